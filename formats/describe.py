"""A schema as a table for people: offset, size, type, name, note, read from the construct objects themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import construct as c

from formats.kafka.messages import NUMBER_SIZES, Field, Message

Context = dict[str, Any]
_KINDS = {
    "b": "i8",
    "B": "u8",
    "h": "i16",
    "H": "u16",
    "i": "i32",
    "I": "u32",
    "l": "i32",
    "L": "u32",
    "q": "i64",
    "Q": "u64",
}

_WORDS = {
    type(c.ZigZag): "varint",
    type(c.VarInt): "varint",
    type(c.Pass): "absent",
    c.FocusedSeq: "list",  # what PrefixedArray makes
}


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field of a layout.

    Attributes:
        offset: bytes from the start; after a field of varying size its length stands in it, ``88+len(body)``; "" in a
            message whose fields depend on its version.
        size: bytes, ``len(body)`` for varying ones.
        type: ``i32`` and the like (big-endian if not said otherwise, signed unless ``u``), ``bytes``, ``text``.
        note: meaning, unit, and what other layouts have here instead.
    """

    offset: str
    size: str
    type: str
    name: str
    note: str


def describe(schema: Any, context: Context | None = None) -> list[FieldRow]:
    """Return the fields of a schema in file order, for the branches that ``context`` chooses."""
    if isinstance(schema, Message):
        return [*_message_rows(schema.fields), *_tag_rows(schema)]
    place = _Place()
    rows = []
    for name, node, notes in _fields(schema, c.Container(context or {})):
        rows += list(_rows(name, node, notes, place))
    return rows


def fixed_size(schema: Any) -> int | None:
    """Bytes of a schema whose size does not vary, else None."""
    if isinstance(schema, Message):
        return None
    try:
        size: int = schema.sizeof()
    except c.SizeofError:
        return None
    return size


class _Place:
    """Where the next field begins: a number and the names of the varying fields before it."""

    def __init__(self) -> None:
        self.fixed = 0
        self.varying: list[str] = []

    def __str__(self) -> str:
        return "+".join([str(self.fixed), *(f"len({name})" for name in self.varying)])


def _fields(
    node: Any, context: Any, name: str = "", notes: tuple[str, ...] = ()
) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Leaves of a schema with their names and notes; conditions are decided, and reported."""
    match node:
        case c.Renamed():
            own = (node.docs,) if node.docs and node.docs not in notes else ()
            inner = f"{name}.{node.name}".strip(".") if node.name and node.name != name.rpartition(".")[2] else name
            yield from _fields(node.subcon, context, inner, notes + own)
        case c.Struct():
            for subcon in node.subcons:
                yield from _fields(subcon, context, name)
        case c.IfThenElse():
            condition: Any = node.condfunc
            chosen = bool(condition(context))
            taken, other = (node.thensubcon, node.elsesubcon) if chosen else (node.elsesubcon, node.thensubcon)
            relation = "unless" if chosen else "where"
            yield from _fields(taken, context, name, (*notes, f"{_type(other)} {relation} {_condition(node.condfunc)}"))
        case c.Switch():
            chosen_case = node.cases.get(node.keyfunc(context) if context else None)
            if chosen_case is None:
                yield name, node, (*notes, f"by {_condition(node.keyfunc)}")
            else:
                yield from _fields(chosen_case, context, name, notes)
        case c.Computed():
            return
        case c.Rebuild() | c.Default() | c.ExprAdapter():
            yield from _fields(node.subcon, context, name, notes)
        case _:
            yield name, node, notes


def _rows(name: str, node: Any, notes: tuple[str, ...], place: _Place) -> Iterator[FieldRow]:
    note = "; ".join(notes)
    match node:
        case c.Prefixed():
            yield from _rows(f"{name}_size", node.lengthfield, ("bytes that follow",), place)
            yield FieldRow(str(place), f"len({name})", "bytes", name, note)
            place.varying.append(name)
        case c.NullTerminated():
            note = "; ".join(filter(None, [note, f"up to {_mark(node.term)}"]))
            yield FieldRow(str(place), f"len({name})+{len(node.term)}", "text", name, note)
            place.varying.append(name)
            place.fixed += len(node.term)
        case c.Const():
            value = node.value.hex(" ") if isinstance(node.value, bytes) else str(node.value)
            yield FieldRow(
                str(place),
                str(node.sizeof()),
                _type(node.subcon),
                name,
                "; ".join(filter(None, [f"always {value}", note])),
            )
            place.fixed += node.sizeof()
        case _:
            size = fixed_size(node)
            yield FieldRow(str(place), f"len({name})" if size is None else str(size), _type(node), name, note)
            if size is None:
                place.varying.append(name)
            else:
                place.fixed += size


def _message_rows(fields: tuple[Field, ...], outer: str = "") -> Iterator[FieldRow]:
    """Fields of a message and of the structs in it; where one begins depends on all before it."""
    for field in fields:
        name = outer + field.name
        size = NUMBER_SIZES.get(field.type)
        note = [f"versions {field.versions}"]
        note += [f"may be null in {field.nullable}"] * bool(field.nullable)
        note += [] if field.tag is None else [f"tag {field.tag}, absent: {field.default}"]
        yield FieldRow("", f"len({name})" if size is None else str(size), field.type, name, "; ".join(note))
        yield from _message_rows(field.fields, f"{name}.")


def _tag_rows(message: Message) -> list[FieldRow]:
    note = f"in {message.flexible}, at the end of each struct: their count, then number, size and data of each"
    return [FieldRow("", "len(tags)", "tagged", "tags", note)] if message.flexible else []


def _mark(term: bytes) -> str:
    """Return what ends a text, as people write it."""
    return "the end of the line" if term == b"\n" else f"{term.decode('ascii')!r}"


def _type(node: Any) -> str:
    match node:
        case c.FormatField():
            little = " little-endian" if node.fmtstr[0] == "<" and node.sizeof() > 1 else ""
            return _KINDS.get(node.fmtstr[-1], node.fmtstr) + little
        case c.Bytes():
            return f"bytes[{node.length}]" if isinstance(node.length, int) else "bytes"
        case c.Prefixed():
            return f"{_type(node.lengthfield)} length + bytes"
        case c.Renamed() | c.Const():
            return _type(node.subcon)
        case _:
            return _WORDS.get(type(node), "bytes")


def _condition(function: object) -> str:
    """Return the condition as written in the schema, without construct's ``this.``."""
    text = repr(function).replace("this['", "").replace("']", "").replace("this.", "")
    return text.removeprefix("(").removesuffix(")") if text.startswith("(") and text.endswith(")") else text
