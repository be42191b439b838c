"""Fast paths derived from construct schemas, so that a layout is written down once.

A schema whose branches are settled (``sys_flag`` and ``magic`` known) is a list
of runs: fixed-size fields end to end, each run closed by at most one field whose
length is the run's last integer. :func:`plan_of` finds the runs; a run is then a
`struct.Struct` for one record or a NumPy record type for millions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import construct as c

from formats.errors import DecodeError

if TYPE_CHECKING:  # NumPy takes longer to import than a lookup of one message takes
    import numpy as np
    import numpy.typing as npt

Decode = Callable[[Any], Any]


class NotFlat(TypeError):
    """The schema uses a construct without a flat layout; parse it with construct."""


@dataclass(frozen=True)
class Field:
    """A fixed-size field: dotted name, `struct` code, offset in bytes into its run."""

    name: str
    code: str
    offset: int
    decode: Decode | None = None

    @property
    def is_padding(self) -> bool:
        return self.code.endswith("x")


@dataclass(frozen=True)
class Run:
    """Fixed-size fields in file order; with ``tail``, the last one counts the bytes after it."""

    order: str
    fields: tuple[Field, ...]
    tail: bool = False

    @cached_property
    def packer(self) -> struct.Struct:
        return struct.Struct(self.order + "".join(f.code for f in self.fields))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields if not f.is_padding)

    def only(self, *names: str) -> struct.Struct:
        """Return what packs these fields alone, in the order of the file; it ends with the last of them."""
        codes, end = [self.order], 0
        for field in (self.field(name) for name in names):
            codes += [f"{field.offset - end}x" if field.offset > end else "", field.code]
            end = field.offset + struct.calcsize("=" + field.code)
        return struct.Struct("".join(codes))

    def field(self, name: str) -> Field:
        """Return a field by its name.

        Raises:
            KeyError: there is none.
        """
        return {field.name: field for field in self.fields}[name]

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """The run as a record type: same names, same offsets, file byte order."""
        import numpy as np

        shown = [f for f in self.fields if not f.is_padding]
        return np.dtype(
            {
                "names": [f.name for f in shown],
                "formats": [_numpy_format(self.order, f.code) for f in shown],
                "offsets": [f.offset for f in shown],
                "itemsize": self.packer.size,
            }
        )


@dataclass(frozen=True)
class StructPlan:
    """What a schema boils down to for one set of known context values."""

    runs: tuple[Run, ...]

    @cached_property
    def _steps(self) -> tuple[tuple[Any, ...], ...]:
        return tuple(
            (
                r.packer.unpack_from,
                r.packer.size,
                r.names,
                r.tail,
                [(f.name, f.decode) for f in r.fields if f.decode],
            )
            for r in self.runs
        )

    def unpack_from(self, buffer: bytes, offset: int = 0) -> tuple[dict[str, Any], int]:
        """Decode one record; return its fields and the offset of the byte after it.

        Raises:
            DecodeError: the buffer ends inside the record, a length is negative, or
                text is not valid in its encoding.
        """
        record: dict[str, Any] = {}
        end = len(buffer)
        for unpack, size, names, tail, decoders in self._steps:
            start, offset = offset, offset + size
            if offset > end:
                raise DecodeError(f"needs {size} bytes, {end - start} left", field=names[0], offset=start)
            record.update(zip(names, unpack(buffer, start), strict=True))
            if tail:
                start, offset = offset, offset + record[names[-1]]
                if not start <= offset <= end:
                    raise DecodeError(
                        f"needs {offset - start} bytes, {end - start} left", field=names[-1], offset=start
                    )
                record[names[-1]] = buffer[start:offset]
            for name, decode in decoders:
                try:
                    record[name] = decode(record[name])
                except c.ConstructError as error:
                    raise DecodeError(str(error), field=name, offset=start) from error
        return record, offset


def plan_of(schema: c.Construct[Any, Any], **known: Any) -> StructPlan:
    """Flatten ``schema``, taking the branches that the ``known`` values choose."""
    context = c.Container(known)
    runs: list[Run] = []
    fields: list[Field] = []
    orders: set[str] = set()

    def close(*, tail: bool) -> None:
        if len(orders) > 1:
            raise NotFlat(f"mixed byte orders in one run: {sorted(orders)}")
        if fields:
            runs.append(Run("".join(orders) or ">", tuple(fields), tail))
        fields.clear()
        orders.clear()

    for name, leaf, decode in _leaves(schema, context):
        tail = isinstance(leaf, c.Prefixed) and leaf.subcon is c.GreedyBytes and not leaf.includelength
        order, code = _struct_code(leaf.lengthfield if tail else leaf, context)
        orders.update(order)
        offset = struct.calcsize("=" + "".join(f.code for f in fields))
        fields.append(Field(name, code, offset, decode))
        if tail:
            close(tail=True)
    close(tail=False)
    return StructPlan(tuple(runs))


def gather(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], run: Run) -> npt.NDArray[np.void]:
    """Columns of the fixed ``run`` found at each of ``offsets``.

    Args:
        data: the whole file, shape (bytes,).
        offsets: where each run starts, shape (n,); every run must end inside ``data``.

    Returns:
        Record array of shape (n,) with dtype ``run.dtype``.
    """
    import numpy as np

    rows = np.lib.stride_tricks.sliding_window_view(data, run.packer.size)[offsets]
    return rows.view(run.dtype)[:, 0]


def _leaves(
    node: Any, context: c.Container[Any], name: str = "", decode: Decode | None = None
) -> Iterator[tuple[str, Any, Decode | None]]:
    """Yield ``(dotted name, primitive, decoder)`` in file order."""
    match node:
        case c.Renamed(subcon=c.Renamed() as inner):  # "name" / Int32sb * "note" wraps twice
            yield from _leaves(inner, context, name, decode)
        case c.Renamed():
            yield from _leaves(node.subcon, context, f"{name}.{node.name}".lstrip("."), decode)
        case c.Struct():
            for subcon in node.subcons:
                yield from _leaves(subcon, context, name)
        case c.IfThenElse():
            branch = node.thensubcon if _value(node.condfunc, context) else node.elsesubcon
            yield from _leaves(branch, context, name, decode)
        case c.Switch():
            branch = node.cases.get(_value(node.keyfunc, context), node.default)
            yield from _leaves(branch, context, name, decode)
        case c.Rebuild() | c.Default():
            yield from _leaves(node.subcon, context, name, decode)
        case c.Adapter() | c.StringEncoded():
            wrapper: Any = node
            yield from _leaves(wrapper.subcon, context, name, _then(wrapper, decode))
        case _:
            yield name, node, decode


def _then(adapter: Any, outer: Decode | None) -> Decode:
    def decode(raw: Any) -> Any:
        value = adapter._decode(raw, None, "")
        return outer(value) if outer else value

    return decode


def _struct_code(leaf: Any, context: c.Container[Any]) -> tuple[str, str]:
    """Return the byte order ("" where it does not matter) and the `struct` code."""
    match leaf:
        case c.FormatField():
            return leaf.fmtstr[0] if leaf.length > 1 else "", leaf.fmtstr[1:]
        case c.Bytes():
            return "", f"{_value(leaf.length, context)}s"
        case c.Padded(subcon=c.Pass):
            return "", f"{_value(leaf.length, context)}x"
        case _:
            raise NotFlat(f"no flat layout for {leaf!r}")


def _value(param: Any, context: c.Container[Any]) -> Any:
    return param(context) if callable(param) else param


def _numpy_format(order: str, code: str) -> str:
    if code.endswith("s"):
        return f"V{code[:-1]}"
    kind = "f" if code in "efd" else "u" if code.isupper() else "i"
    return f"{order}{kind}{struct.calcsize('=' + code)}"
