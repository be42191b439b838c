"""Properties of the messages of a block as JSON and as Arrow columns, without an object for each.

Most properties texts are plain: names and values in turn, none empty, no name twice, valid UTF-8.
For those JSON comes from replacing bytes in the texts joined end to end, and what a row shows is a
slice of the result. The others are named in ``odd`` and left to the record-by-record code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.arrow import strings
from rmqctl.columns import Cell, Flags, where
from rmqctl.rocketmq.dump.record import KEYS, TAGS, UNIQUE_KEY, split_keys
from rmqctl.rocketmq.log.block import Bytes8, Ints
from rmqctl.rocketmq.log.columns import Pairs, TextIds, Texts
from rmqctl.text import name_of

TEXTS = pa.list_(pa.string())
PROPERTIES = pa.map_(pa.string(), pa.string())

Words = npt.NDArray[np.uint64]
_PAIR, _END = 1, 2
_SHORT = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_ESCAPES = {byte: _SHORT.get(byte, b"\\u%04x" % byte) for byte in (92, 34, 0, *range(3, 32))}
_LONGER = np.zeros(256, np.int64)
_LONGER[list(_ESCAPES)] = [len(text) - 1 for text in _ESCAPES.values()]
_LONGER[[_PAIR, _END]] = 2
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
_MIX_A, _MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
SETS_KEPT = 4096
NAMES = (TAGS, KEYS, UNIQUE_KEY)
"""Properties that have columns of their own."""


@dataclass(frozen=True, slots=True)
class PropertyJson:
    """JSON of the properties of n records.

    Attributes:
        odd: records that are left to other code; their slices below are empty, shape (n,).
        pairs: ``"name":"value",...`` of each record, without the braces.
        named: for each name asked for, the quoted value, empty where the record has none.
        has: for each name asked for, which records have it, shape (n,).
    """

    odd: Flags
    pairs: Any
    named: list[Any]
    has: list[Flags]


class PropertyTexts:
    """Makes :class:`PropertyJson`; remembers which sets of names hold no name twice."""

    def __init__(self, names: tuple[bytes, ...], most_sets: int = SETS_KEPT) -> None:
        """
        Args:
            names: properties whose values are wanted by themselves; at most eight bytes each.
            most_sets: sets of names after which those remembered are forgotten.
        """
        self.names, self.most_sets = names, most_sets
        self._sets = np.zeros(0, np.uint64)
        self._repeating = np.zeros(0, np.bool_)

    def json(self, texts: Texts) -> PropertyJson:
        """Return the properties texts of a block as JSON."""
        closed = _close(texts)
        raw = closed.data.tobytes()
        marks = _marks_of(closed, _special(raw, closed.data))
        names = _Names.of(closed.data, marks)
        odd = marks.irregular | _not_text(raw, closed) | self._repeats(marks, names)
        text = pa.py_buffer(_escaped(raw, marks))
        found, has = [], []
        for name in self.names:
            begin, end, there = marks.values(names.are(name), odd)
            found.append(slices_of(text, begin, end))
            has.append(there)
        return PropertyJson(odd, slices_of(text, marks.row_at, marks.row_ends()), found, has)

    def _repeats(self, marks: _Marks, names: _Names) -> Flags:
        """Which records may have a name twice: judged once for each set of names, which a hash stands for."""
        repeats = np.zeros(len(marks.first) - 1, np.bool_)
        rows = np.flatnonzero(np.diff(marks.first))
        if not len(rows):
            return repeats
        if len(self._sets) > self.most_sets:
            self._sets, self._repeating = self._sets[:0], self._repeating[:0]
        prints = names.prints()
        sets = np.add.reduceat(prints, marks.first[rows])
        unknown = np.flatnonzero(~self._knows(sets))
        if len(unknown):
            self._learn(sets[unknown], [prints[marks.first[r] : marks.first[r + 1]] for r in rows[unknown]])
        repeats[rows] = self._repeating[np.searchsorted(self._sets, sets)]
        return repeats

    def _knows(self, sets: Words) -> Flags:
        if not len(self._sets):
            return np.zeros(len(sets), np.bool_)
        place = np.minimum(np.searchsorted(self._sets, sets), len(self._sets) - 1)
        return self._sets[place] == sets

    def _learn(self, sets: Words, prints: list[Words]) -> None:
        """Judge sets of names that have not come up before."""
        known = dict(zip(self._sets.tolist(), self._repeating.tolist(), strict=True))
        for number, names in zip(sets.tolist(), prints, strict=True):
            if number not in known:
                known[number] = len(np.unique(names)) < len(names)
        order = sorted(known)
        self._sets = np.array(order, np.uint64)
        self._repeating = np.array([known[number] for number in order], np.bool_)


@dataclass(frozen=True, slots=True)
class _Marks:
    """Where the pairs of texts joined end to end lie, before and after the replacement of bytes.

    Attributes:
        special: places of the bytes that are replaced; ``kinds`` their values.
        irregular: records whose marks do not alternate or enclose nothing; they have no pairs here, shape (n,).
        first: number of the first pair of each record, shape (n + 1,).
        name_at, name_end: bounds of each name in the texts, shape (m,).
        value_at, value_end: bounds of each value with its quotes in the replaced text, shape (m,).
        row_at: where each record's first quote lies in the replaced text, shape (n,).
    """

    special: Ints
    kinds: Bytes8
    irregular: Flags
    first: Ints
    name_at: Ints
    name_end: Ints
    value_at: Ints
    value_end: Ints
    row_at: Ints

    def row_ends(self) -> Ints:
        """Where each record's last quote ends; where it begins for a record without pairs."""
        ends = self.row_at.copy()
        rows = np.flatnonzero(np.diff(self.first))
        ends[rows] = self.value_end[self.first[rows + 1] - 1]
        return ends

    def values(self, pairs: Ints, odd: Flags) -> tuple[Ints, Ints, Flags]:
        """Bounds of the quoted values of these pairs by record, empty ones for records without, and who has one."""
        if len(pairs) == len(odd) and ((pairs >= self.first[:-1]) & (pairs < self.first[1:])).all():
            return self.value_at[pairs], self.value_end[pairs], np.ones(len(odd), np.bool_)  # one for each record
        owner = np.searchsorted(self.first, pairs, side="right") - 1
        if odd.any():
            pairs, owner = pairs[~odd[owner]], owner[~odd[owner]]
        begin, end, has = self.row_at.copy(), self.row_at.copy(), np.zeros(len(odd), np.bool_)
        begin[owner], end[owner], has[owner] = self.value_at[pairs], self.value_end[pairs], True
        return begin, end, has


def _close(texts: Texts) -> Texts:
    """Return the texts, each but the empty ones ending with 0x02."""
    end = texts.start[1:]
    open_ = np.flatnonzero((end > texts.start[:-1]) & (texts.data[end - 1] != _END)) if len(texts.data) else end[:0]
    if not len(open_):
        return texts
    added = np.zeros(len(texts.start), np.int64)
    added[open_ + 1] = 1
    return Texts(np.insert(texts.data, end[open_], _END), texts.start + np.cumsum(added))


def _special(raw: bytes, data: Bytes8) -> Ints:
    """Places of the bytes that JSON cannot have as they are."""
    found = data < 32
    for byte in (b'"', b"\\"):
        if byte in raw:
            found |= data == ord(byte)
    return np.flatnonzero(found)


def _marks_of(texts: Texts, special: Ints) -> _Marks:
    data, start = texts.data, texts.start
    kinds = data[special]
    is_mark = (kinds - np.uint8(_PAIR)) <= _END - _PAIR
    if is_mark.all():
        marks, before = special, np.arange(0, 2 * len(special) + 1, 2)
        moved = marks + (before[:-1] + 1)
    else:
        marks, before = special[is_mark], np.concatenate([[0], np.cumsum(_LONGER[kinds])])
        moved = marks + (before[:-1][is_mark] + 1)
    irregular, keep = _regularity(start, marks, kinds[is_mark] if len(marks) < len(kinds) else kinds)
    if keep is not None:
        marks, moved = marks[keep], moved[keep]
    name_end, end = marks[0::2], marks[1::2]
    first = np.searchsorted(end, start)
    name_at = np.concatenate([[0], end[:-1] + 1]) if len(end) else end
    if keep is not None:
        name_at = np.maximum(name_at, np.repeat(start[:-1], np.diff(first)))
    row_at = start[:-1] + before[np.searchsorted(special, start[:-1])]
    return _Marks(special, kinds, irregular, first, name_at, name_end, moved[0::2] + 2, moved[1::2] + 1, row_at)


def _regularity(start: Ints, marks: Ints, kinds: Bytes8) -> tuple[Flags, Flags | None]:
    """Which records have irregular marks, and which marks belong to the others, None for all."""
    irregular = np.zeros(len(start) - 1, np.bool_)
    if not len(marks):
        return irregular, None
    gaps = marks[1:] - marks[:-1]
    if len(marks) % 2 == 0 and marks[0] > 0 and gaps.min() > 1 and (kinds.view("<u2") == _PAIR | _END << 8).all():
        return irregular, None
    gaps = np.concatenate([marks[:1] + 1, gaps])
    row = np.searchsorted(start, marks, side="right") - 1
    number = np.arange(len(marks)) - np.searchsorted(marks, start[row])
    gaps = np.where(number == 0, marks - start[row] + 1, gaps)
    irregular[row[(kinds != _PAIR + (number & 1)) | (gaps <= 1)]] = True
    return irregular, ~irregular[row]


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of pairs as numbers; shapes (m,).

    Attributes:
        size: bytes.
        head: the first eight bytes, little-endian, the missing ones zero.
        tail: the last eight bytes; of shorter names the same as ``head``.
    """

    size: Ints
    head: Words
    tail: Words

    @staticmethod
    def of(data: Bytes8, marks: _Marks) -> _Names:
        """Return the names of the pairs that the marks bound in these texts."""
        size = marks.name_end - marks.name_at
        padded = np.concatenate([data, np.zeros(8, np.uint8)])
        words: Words = np.ndarray((len(data),), "<u8", padded, 0, (1,))
        head = words[marks.name_at] & _MASKS[np.minimum(size, 8)]
        long = np.flatnonzero(size > 8)
        tail = head
        if len(long):
            tail = head.copy()
            tail[long] = words[marks.name_end[long] - 8]
        return _Names(size, head, tail)

    def are(self, name: bytes) -> Ints:
        """Numbers of the pairs with this name of at most eight bytes."""
        return np.flatnonzero((self.size == len(name)) & (self.head == int.from_bytes(name, "little")))

    def prints(self) -> Words:
        """Return a number for each name; equal names have equal ones."""
        mixed = (self.head * _MIX_A) ^ (self.tail + self.size.astype(np.uint64) * _MIX_B)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX_B
        return mixed ^ (mixed >> np.uint64(32))


def _not_text(raw: bytes, texts: Texts) -> Flags:
    """Which texts are not UTF-8."""
    bad = np.zeros(len(texts.start) - 1, np.bool_)
    if not raw.isascii():
        wide = np.flatnonzero(texts.data >= 128)
        for row in np.unique(np.searchsorted(texts.start, wide, side="right") - 1).tolist():
            bad[row] = not _is_text(texts[row])
    return bad


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _escaped(raw: bytes, marks: _Marks) -> bytes:
    """Return the texts with a quote in front, quotes and colons for the marks, and escapes as JSON wants them."""
    counts = np.bincount(marks.kinds, minlength=256)
    for byte, escape in _ESCAPES.items():  # the backslash comes first
        if counts[byte]:
            raw = raw.replace(bytes([byte]), escape)
    return b'"' + raw.replace(b"\x01", b'":"').replace(b"\x02", b'","')


def slices_of(text: Any, begin: Ints, end: Ints) -> Any:
    """``text[begin:end]`` as an array of bytes; the slices ascend and do not overlap."""
    bounds = np.empty(2 * len(begin), np.int32)
    bounds[0::2], bounds[1::2] = begin, end
    pieces = pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), text])
    return pieces.take(pa.array(np.arange(0, len(bounds), 2)))


def cells_of(made: PropertyJson, name: str, end: bytes) -> tuple[Cell, ...]:
    """Return the cells of ``tags``, ``keys``, ``unique_key`` or ``properties``, of texts made with :data:`NAMES`."""
    if name == "properties":
        return b"{", made.pairs, b"}" + end
    if name == "keys":
        return b"[", _listed(made.named[1]), b"]" + end
    place = 0 if name == "tags" else 2
    return where(made.has[place], made.named[place], b"null"), end


def _listed(keys: Any) -> Any:
    """Quoted KEYS as the quoted parts between its spaces, with commas."""
    several = pc.match_substring(keys, " ")
    if not pc.any(several).as_py():
        return keys
    parts = [text[1:-1].split(b" ") for text in keys.filter(several).to_pylist()]
    lists = [b",".join(b'"%s"' % part for part in found if part) for found in parts]
    return pc.replace_with_mask(keys, several, pa.array(lists, pa.binary()))


# --- as Arrow columns -------------------------------------------------------------------------------


_BITS = 32  # different names, a bit each


class PropertyColumns:
    """Columns of ``count`` records, each made when asked for."""

    def __init__(self, pairs: Pairs, count: int) -> None:
        self._pairs, self._count = pairs, count

    @cached_property
    def tags(self) -> Any:
        return strings(self._values(TAGS))

    @cached_property
    def unique_key(self) -> Any:
        return strings(self._values(UNIQUE_KEY))

    @cached_property
    def keys(self) -> Any:
        """The parts of KEYS between single spaces, empty ones dropped; no parts without KEYS."""
        raw = pc.fill_null(self._values(KEYS), b"")
        if pc.any(pc.match_substring(raw, b" ")).as_py():
            return pa.array([list(map(name_of, split_keys(keys))) for keys in raw.to_pylist()], TEXTS)
        bounds = np.zeros(len(raw) + 1, np.int32)
        full = pc.not_equal(raw, b"")
        np.cumsum(full.to_numpy(zero_copy_only=False), out=bounds[1:])
        return pa.ListArray.from_arrays(pa.array(bounds), strings(raw.filter(full)))

    @cached_property
    def properties(self) -> Any:
        """Every property by name; of repeated names the last value."""
        pairs = self._unique()
        names = strings(_slices(pairs, pairs.name_at, pairs.name_size))
        values = strings(_slices(pairs, pairs.value_at, pairs.value_size))
        bounds = np.searchsorted(pairs.owner, np.arange(self._count + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(bounds), names, values).cast(PROPERTIES)

    def _values(self, name: bytes) -> Any:
        found = self._pairs.named(name)
        return scattered(_slices(found, found.value_at, found.value_size), found.owner, self._count)

    def _unique(self) -> Pairs:
        """Return the pairs less those whose name comes again in the same record."""
        pairs = self._pairs
        if not len(pairs):
            return pairs
        ids = TextIds().numbers(pairs.data, pairs.name_at, pairs.name_size)
        if not _repeats(pairs.owner, ids):
            return pairs
        key = pairs.owner * (int(ids.max()) + 1) + ids
        _, last = np.unique(key[::-1], return_index=True)
        return pairs.take(np.sort(len(key) - 1 - last))


def _repeats(owner: Ints, ids: Ints) -> bool:
    """Whether any record may have a name twice: the sum of its names' bits is then not their union."""
    if int(ids.max()) >= _BITS:
        return True
    bits = np.left_shift(np.int64(1), ids)
    first = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
    return bool((np.add.reduceat(bits, first) != np.bitwise_or.reduceat(bits, first)).any())


def _slices(pairs: Pairs, at: Ints, size: Ints) -> Any:
    if not len(at):
        return pa.array([], pa.binary())
    return slices_of(pa.py_buffer(pairs.data), at, at + size)


def scattered(values: Any, rows: Ints, count: int) -> Any:
    """Return an array of ``count`` rows with the values at ``rows`` and null elsewhere."""
    if len(rows) == count:
        return values
    place = np.zeros(count, np.int64)
    missing = np.ones(count, np.bool_)
    place[rows], missing[rows] = np.arange(len(rows)), False
    return values.take(pa.array(place, mask=missing))
