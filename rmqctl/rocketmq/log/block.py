"""What a scan yields: a window of bytes and where its records lie, as columns.

Columns are gathered from the window when first asked for, each with one pass over the records, so
a consumer pays for what it uses. Field offsets come from the plans derived from the message schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import decode_record
from rmqctl.rocketmq.log.record import VARIANTS, head_offset, head_size, plan_of_variant

Ints = npt.NDArray[np.int64]
Bytes8 = npt.NDArray[np.uint8]


class GapKind(StrEnum):
    """Why bytes are not a record."""

    ZEROS = "zeros"
    ZERO_TAIL = "zero-tail"
    MAGIC = "magic"
    SIZE = "size"
    STRUCTURE = "structure"
    CUT = "cut"


@dataclass(slots=True)
class Gap:
    """A stretch that holds no record the chain could read.

    Attributes:
        position, end: bytes into the file; the chain goes on at ``end`` with a sound record, or
            ``end`` is the end of what was scanned.
        why: what the chain met at ``position``; ``ZERO_TAIL`` is room never written, not damage.
        detail: one sentence with expected and found.
        resumed: a sound record or blank follows at ``end``.
        total_size: the TOTALSIZE found at ``position``, None when no message magic was there.
        blank: the size that a blank record states there, None where there is none; the file ends with it unless
            something sound follows.
    """

    position: int
    end: int
    why: GapKind
    detail: str
    resumed: bool = False
    total_size: int | None = None
    blank: int | None = None


@dataclass(slots=True)
class Blank:
    """The record that ends a full file (spec 2.9): ``size`` is what it states, ``end`` the end of the file."""

    position: int
    size: int
    end: int


_FEW = 2
"""Columns of header fields that are gathered one by one; for more the headers are copied out at once."""


@cache
def head_offsets(name: str) -> Ints:
    """Offset of a fixed header field in each of the eight variants, shape (8,)."""
    return np.array([head_offset(name, v) for v in range(VARIANTS)], np.int64)


@cache
def head_sizes() -> Ints:
    """Bytes before the body (fixed header and BODYLEN) in each variant, shape (8,)."""
    return np.array([head_size(v) for v in range(VARIANTS)], np.int64)


def by_variant(table: Ints, variant: Ints) -> Ints | int:
    """Return the table's value for each record; one number where all records have one layout, as they mostly do."""
    if len(variant) and not variant.any():
        return int(table[0])
    return table[variant]


@cache
def _numpy_type(name: str) -> np.dtype[Any]:
    dtype: np.dtype[Any] = plan_of_variant(0).runs[0].dtype[name]
    return dtype


def gather(data: Bytes8, at: Ints, dtype: str | np.dtype[Any]) -> npt.NDArray[Any]:
    """Big-endian integers at the unaligned byte offsets ``at``, in native order.

    Every item must end inside ``data``.
    """
    stored, native = _byte_orders(dtype)
    windows = np.ndarray((max(len(data) - stored.itemsize + 1, 0),), stored, data, 0, (1,))
    return windows[at].astype(native)


@cache
def head_layout() -> np.dtype[Any]:
    """Return the type of a fixed header in the first layout (V1, hosts of IPv4), as stored."""
    return plan_of_variant(0).runs[0].dtype


def copied_heads(data: Bytes8, at: Ints) -> npt.NDArray[Any]:
    """Return copies of the fixed headers at ``at``, in the first layout; each must end inside ``data``."""
    layout = head_layout()
    windows = np.ndarray((max(len(data) - layout.itemsize + 1, 0),), f"V{layout.itemsize}", data, 0, (1,))
    heads: npt.NDArray[Any] = windows[at].view(layout)
    return heads


@cache
def _byte_orders(dtype: str | np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return a type as stored, and the same in this machine's byte order."""
    stored = np.dtype(dtype)
    return stored, stored.newbyteorder("=")


@dataclass(slots=True)
class Block:
    """Records that start in one window of one file, in file order.

    The window is reused for the next block: copy what must live longer.

    Attributes:
        file: name of the file, relative to the store.
        base: physical offset of the file's first byte.
        start: position in the file of ``data[0]``, in bytes.
        data: the window, shape (bytes,), uint8.
        at: where each record starts in ``data``, shape (n,).
        variant: number of the layout variant of each record, shape (n,).
        total_size, body_size, topic_size, properties_size: bytes, shape (n,).
        heads: copies of the fixed headers, where all have the first layout and more than a few fields were asked for.
        gaps, blanks: what else was met; positions in the file, interleaved with the records.
    """

    file: str
    base: int
    start: int
    data: Bytes8
    at: Ints
    variant: Ints
    total_size: Ints
    body_size: Ints
    topic_size: Ints
    properties_size: Ints
    gaps: list[Gap] = field(default_factory=list)
    blanks: list[Blank] = field(default_factory=list)
    _columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    _has_one_layout: bool | None = None
    heads: npt.NDArray[Any] | None = None

    @staticmethod
    def empty(file: str, base: int, start: int, gaps: list[Gap], blanks: Sequence[Blank] = ()) -> Block:
        """Return a block without records."""
        none = np.zeros(0, np.int64)
        return Block(file, base, start, np.zeros(0, np.uint8), none, none, none, none, none, none, gaps, [*blanks])

    def __len__(self) -> int:
        return len(self.at)

    @property
    def position(self) -> Ints:
        """Where each record starts in the file, in bytes, shape (n,)."""
        return self.at + self.start

    @property
    def physical(self) -> Ints:
        """Where each record lies in the log (not what it says of itself), in bytes, shape (n,)."""
        return self.at + (self.base + self.start)

    @property
    def body_at(self) -> Ints:
        """Where each body starts in ``data``."""
        return self.at + self._in_all(head_sizes())

    @property
    def topic_at(self) -> Ints:
        """Where each topic starts in ``data``."""
        return self.body_at + self.body_size + 1 + (self.variant >> 2)

    @property
    def properties_at(self) -> Ints:
        """Where each properties text starts in ``data``."""
        return self.topic_at + self.topic_size + 2

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return a fixed header field of every record as native integers, shape (n,), by its JSON name."""
        column = self._columns.get(name)
        if column is None:
            offset = self._in_all(head_offsets(name))
            if not self._has_one_layout or (self.heads is None and len(self._columns) < _FEW):
                column = gather(self.data, self.at + offset, _numpy_type(name))
            else:
                column = self._all_heads()[name]
                column = column.astype(column.dtype.newbyteorder("="))
            self._columns[name] = column
        return column

    def _in_all(self, table: Ints) -> Ints | int:
        """Return the table's value for each record's layout, as :func:`by_variant`."""
        if self._has_one_layout is None:
            self._has_one_layout = len(self.variant) > 0 and not self.variant.any()
        return int(table[0]) if self._has_one_layout else table[self.variant]

    def _all_heads(self) -> npt.NDArray[Any]:
        """Return the fixed headers of the records, which all have the first layout, end to end: made once."""
        if self.heads is None:
            self.heads = copied_heads(self.data, self.at)
        return self.heads

    def derived(self, name: str, make: Callable[[Block], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return what is computed from every record, shape (n,); it is made once, whoever asks."""
        if name not in self._columns:
            self._columns[name] = make(self)
        return self._columns[name]

    def raw(self, index: int) -> bytes:
        """Return the bytes of one record, copied."""
        at = int(self.at[index])
        return self.data[at : at + int(self.total_size[index])].tobytes()

    def record(self, index: int) -> dict[str, Any]:
        """One record decoded by the schema's plan; body, topic and properties as bytes."""
        return decode_record(self.raw(index))[0]

    def physical_of(self, index: int) -> int:
        """Return what :attr:`physical` has of one record, in a time that does not depend on how many there are."""
        return int(self.at[index]) + self.base + self.start

    def body_of(self, index: int) -> int:
        """Return what :attr:`body_at` has of one record, in such a time."""
        return int(self.at[index]) + int(head_sizes()[int(self.variant[index])])

    def topic(self, index: int) -> bytes:
        """Return the topic of one record, as stored."""
        at = self.body_of(index) + int(self.body_size[index]) + 1 + (int(self.variant[index]) >> 2)
        return self.data[at : at + int(self.topic_size[index])].tobytes()

    def take(self, keep: npt.NDArray[Any] | slice) -> Block:
        """Return the block with only the records of an index or boolean array, or a slice; gaps and blanks stay."""
        return Block(
            self.file,
            self.base,
            self.start,
            self.data,
            self.at[keep],
            self.variant[keep],
            self.total_size[keep],
            self.body_size[keep],
            self.topic_size[keep],
            self.properties_size[keep],
            self.gaps,
            self.blanks,
            {name: column[keep] for name, column in self._columns.items()},
            heads=self.heads[keep] if self.heads is not None and isinstance(keep, slice) else None,
        )
