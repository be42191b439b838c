"""Variable-length parts of a block's records as columns: topics as numbers, properties as pieces.

The texts of a block are compared as arrays of bytes, never decoded one by one; what is rare is left to the callers'
scalar code. The queues that records belong to are small numbers, so that columns of queues sort fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.log.block import Block, Bytes8, Ints

_MIX = np.uint64(0x9E3779B97F4A7C15)
_TABLE_BITS = 13
_TABLE_SHIFT = np.uint64(64 - _TABLE_BITS)
_PAIR, _END = 1, 2
_MANY = 16
_PASS = 32 << 10
"""Bytes of text compared at a time: these, and what is made of them, stay in the cache of one core."""
_TAKEN = 1024  # texts from which Arrow is quicker than slices; a window of large messages has fewer
_WORDS = {4: np.uint32, 8: np.uint64}
Words = npt.NDArray[np.uint64]


class TextIds:
    """Numbers for byte strings, given in the order they are first seen.

    Attributes:
        texts: the strings by number.
    """

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._by_size: dict[int, _Known] = {}

    def number(self, text: bytes) -> int:
        """Return the number of one string."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found

    def numbers(self, data: Bytes8, at: Ints, size: Ints) -> Ints:
        """Numbers of the strings ``data[at:at+size]``, shape (n,)."""
        if not len(at):
            return np.zeros(0, np.int64)
        sizes = np.flatnonzero(np.bincount(size))
        if len(sizes) == 1:
            return self._of_size(data, at, int(sizes[0]))
        ids = np.empty(len(at), np.int64)
        for length in sizes.tolist():
            rows = np.flatnonzero(size == length)
            ids[rows] = self._of_size(data, at[rows], length)
        return ids

    def _of_size(self, data: Bytes8, at: Ints, size: int) -> Ints:
        if size == 0:
            return np.full(len(at), self.number(b""), np.int64)
        words = _words(data, at, size)
        known = self._by_size.setdefault(size, _Known(len(words)))
        ids = known.lookup(words)
        while ids is None or (ids < 0).any():
            first = 0 if ids is None else int(np.argmax(ids < 0))
            start = int(at[first])
            known.add([word[first] for word in words], self.number(data[start : start + size].tobytes()))
            ids = known.lookup(words)
        return ids


class _Known:
    """Strings of one length that have a number, as 64-bit words: found by hash, then compared word by word.

    Attributes:
        places: where a string may stand by the first bits of its hash; of several that share them one.
    """

    def __init__(self, width: int) -> None:
        self.words = np.zeros((width, 0), np.uint64)
        self.hashes = np.zeros(0, np.uint64)
        self.ids = np.zeros(0, np.int64)
        self.places = np.zeros(1 << _TABLE_BITS, np.int32)

    def add(self, words: list[np.uint64], number: int) -> None:
        joined = np.column_stack([self.words, np.array(words, np.uint64)])
        ids, hashes = np.append(self.ids, number), _hash(list(joined))
        order = np.argsort(hashes, kind="stable")
        self.words, self.ids, self.hashes = joined[:, order], ids[order], hashes[order]
        self.places[self.hashes >> _TABLE_SHIFT] = np.arange(len(order))

    def lookup(self, words: list[Words]) -> Ints | None:
        """Numbers of the strings, -1 for those not known, None if nothing is; equal hashes are not trusted."""
        if not len(self.hashes):
            return None
        hashes = _hash(words)
        place = self.places[hashes >> _TABLE_SHIFT]
        same = self._same(words, place)
        if same.all():
            return self.ids[place]
        place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        same = self._same(words, place)
        if same.all():
            return self.ids[place]
        ids = np.where(same, self.ids[place], -1)
        for step in range(1, self._longest_tie()):
            place = np.minimum(place + step, len(self.hashes) - 1)
            same = (ids < 0) & self._same(words, place)
            ids[same] = self.ids[place[same]]
        return ids

    def _same(self, words: list[Words], place: Ints) -> npt.NDArray[np.bool_]:
        same = self.words[0][place] == words[0]
        for known, word in zip(self.words[1:], words[1:], strict=True):
            same &= known[place] == word
        return same

    def _longest_tie(self) -> int:
        return int(np.unique(self.hashes, return_counts=True)[1].max())


def _words(data: Bytes8, at: Ints, size: int) -> list[Words]:
    """Strings of one size as 64-bit words; the last word overlaps the one before where the size is no multiple of 8."""
    if size < 8:
        short = np.zeros((len(at), 8), np.uint8)
        short[:, :size] = rows_of(data, at, size)
        return [short.view(np.uint64)[:, 0]]
    windows: Words = np.ndarray((len(data) - 7,), np.uint64, data, 0, (1,))
    return [windows[at + offset] for offset in (*range(0, size - 7, 8), *([size - 8] if size % 8 else []))]


def _hash(words: list[Words]) -> Words:
    result = words[0] * _MIX
    for word in words[1:]:
        result = ((result ^ (result >> np.uint64(29))) ^ word) * _MIX
    return result


def rows_of(data: Bytes8, at: Ints, size: int) -> npt.NDArray[np.uint8]:
    """Return the ``size`` bytes at each of ``at`` as a matrix, shape (n, size)."""
    return cut_out(data, at, size).view(np.uint8).reshape(len(at), size)


def cut_out(data: Bytes8, at: Ints, size: int) -> npt.NDArray[np.void]:
    """Copy the ``size`` bytes, at least one, at each of ``at``, shape (n,); a list of it holds bytes objects."""
    windows: npt.NDArray[np.void] = np.ndarray((max(len(data) - size + 1, 0),), f"V{size}", data, 0, (1,))
    return windows[at]


def topic_numbers(block: Block, ids: TextIds) -> Ints:
    """Return the number of each record's topic."""
    return ids.numbers(block.data, block.topic_at, block.topic_size)


@dataclass(frozen=True, slots=True)
class Texts:
    """Byte strings end to end: string i is ``data[start[i]:start[i + 1]]``.

    Attributes:
        data: uint8, shape (bytes,), owned (not the window).
        start: shape (n + 1,).
    """

    data: Bytes8
    start: Ints

    @classmethod
    def of(cls, data: Bytes8, at: Ints, size: Ints) -> Texts:
        """Copy the strings ``data[at:at+size]``, in any order, out of a window."""
        n = len(at)
        if n == 0:
            return cls(np.zeros(0, np.uint8), np.zeros(1, np.int64))
        if size[0] and (size == size[0]).all():
            return cls(rows_of(data, at, int(size[0])).reshape(-1), np.arange(n + 1) * size[0])
        return cls._taken(data, at, at + size) if n >= _TAKEN else cls._sliced(data, at, at + size)

    @classmethod
    def _sliced(cls, data: Bytes8, begin: Ints, end: Ints) -> Texts:
        """By a slice of each string: costs no import of Arrow."""
        first = int(begin.min())
        view = memoryview(data[first : int(end.max())].tobytes())
        pieces = [view[a:b] for a, b in zip((begin - first).tolist(), (end - first).tolist(), strict=True)]
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(end - begin)])
        return cls(np.frombuffer(b"".join(pieces), np.uint8), start)

    @classmethod
    def _taken(cls, data: Bytes8, begin: Ints, end: Ints) -> Texts:
        """By one gather of Arrow's; its arrays are made from buffers, as ``pa.array`` would import pandas."""
        import pyarrow as pa

        n = len(begin)
        bounds = np.empty(2 * n, np.int64)
        bounds[0::2], bounds[1::2] = begin, end
        pieces: Any = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), 2 * n - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
        )
        taken = pieces.take(pa.Array.from_buffers(pa.int64(), n, [None, pa.py_buffer(np.arange(0, 2 * n, 2))]))
        _, starts, joined = taken.buffers()
        start = np.frombuffer(starts, np.int64, n + 1, taken.offset * 8)
        text = np.frombuffer(joined, np.uint8) if joined is not None else np.zeros(0, np.uint8)
        return cls(text, start)

    def __getitem__(self, index: int) -> bytes:
        return self.data[self.start[index] : self.start[index + 1]].tobytes()


@dataclass(frozen=True, slots=True)
class Pairs:
    """Name-value pairs of the properties of a block, in order (spec 2.6, the decoder of 4.9.1 and later).

    Attributes:
        data: the text they lie in, shape (bytes,).
        owner: record of each pair, shape (m,), ascending.
        name_at, name_size, value_at, value_size: shape (m,).
    """

    data: Bytes8
    owner: Ints
    name_at: Ints
    name_size: Ints
    value_at: Ints
    value_size: Ints
    _found: dict[bytes, Pairs] = field(default_factory=dict, compare=False)

    def named(self, name: bytes) -> Pairs:
        """Only the pairs of one name; of repeated names the last of each record counts, as in the broker's map."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._named(name)
        return found

    def _named(self, name: bytes) -> Pairs:
        if not self._found:
            self._found[b""] = self.take(np.zeros(0, np.int64))
        if len(name) > int(self.name_size.max(initial=0)):
            return self._found[b""]
        rows = np.flatnonzero(self.name_size == len(name))
        if len(rows):
            rows = rows[_equal(self.data, self.name_at[rows], name)]
        owner = self.owner[rows]
        repeated = owner[1:] == owner[:-1]
        if repeated.any():
            rows = rows[np.append(~repeated, True)]
            owner = self.owner[rows]
        value_at = self.value_at[rows]  # after the name and a mark: one gather does for both
        sizes = np.full(len(rows), len(name), np.int64)
        return Pairs(self.data, owner, value_at - len(name) - 1, sizes, value_at, self.value_size[rows])

    def take(self, keep: Any) -> Pairs:
        """Return the pairs of an index or boolean array."""
        return Pairs(
            self.data,
            self.owner[keep],
            self.name_at[keep],
            self.name_size[keep],
            self.value_at[keep],
            self.value_size[keep],
        )

    def value(self, index: int) -> bytes:
        at = int(self.value_at[index])
        return self.data[at : at + int(self.value_size[index])].tobytes()

    def __len__(self) -> int:
        return len(self.owner)


def _equal(data: Bytes8, at: Ints, text: bytes) -> npt.NDArray[np.bool_]:
    """Where ``text`` stands at the places ``at``; every place leaves room for it."""
    if len(text) in _WORDS:
        word = np.dtype(_WORDS[len(text)])
        windows = np.ndarray((len(data) - len(text) + 1,), word, data, 0, (1,))
        return windows[at] == np.frombuffer(text, word)[0]
    return (rows_of(data, at, len(text)) == np.frombuffer(text, np.uint8)).all(axis=1)


def properties_of(block: Block) -> Texts:
    """Return the properties texts of a block's records."""
    return Texts.of(block.data, block.properties_at, block.properties_size)


def pairs_of(texts: Texts) -> Pairs:
    """Split properties texts into pairs: pieces end at 0x02, a name ends at the piece's first 0x01."""
    alike = _pairs_alike(texts)
    if alike is not None:
        return alike
    texts = _closed(texts)
    data, start = texts.data, texts.start
    end = np.flatnonzero(data == _END)
    begin = np.concatenate([[0], end[:-1] + 1])[: len(end)]
    owner = _owners(begin, start, len(data))
    mark = np.flatnonzero(data == _PAIR)
    if len(mark) != len(begin) or not ((mark > begin) & (mark < end)).all():  # not one 0x01 in every piece
        marks = np.append(mark, len(data))
        mark = marks[np.searchsorted(marks, begin)]
    good = (mark > begin) & (mark < end - 1)
    if not good.all():
        begin, end, owner, mark = begin[good], end[good], owner[good], mark[good]
    return Pairs(data, owner, begin, mark - begin, mark + 1, end - mark - 1)


def _pairs_alike(texts: Texts) -> Pairs | None:
    """Return the pairs where all texts have one length and the same names at the same places, as one producer's often
    do.

    One text is then split, and the others need only be compared with it. None where they differ.
    """
    count, size = len(texts.start) - 1, int(texts.start[1]) if len(texts.start) > 1 else 0
    if count < _MANY or size < 1 or len(texts.data) != count * size or (np.diff(texts.start) != size).any():
        return None
    first = texts.data[:size].tobytes()
    pieces, marks = _pieces_of(first), tuple(at for at, byte in enumerate(first) if byte <= _END)
    rows = max(_PASS // size, 1)
    fixed = np.frombuffer(_fixed_of(size, pieces, marks) * rows, np.uint8)
    wanted = (texts.data[:size] & fixed[:size]).tobytes() * rows
    for start in range(0, len(texts.data), len(fixed)):
        part = texts.data[start : start + len(fixed)]
        of_part = fixed[: len(part)]
        if (part & of_part).tobytes() != wanted[: len(part)] or int((part | of_part).min()) <= _END:
            return None
    return _repeated(texts.data, count, size, pieces)


@lru_cache(maxsize=16)
def _fixed_of(size: int, pieces: Pieces, marks: tuple[int, ...]) -> bytes:
    """Return what every text like one of this size has in common with it, 0xFF for such a byte: names and marks."""
    fixed = {*marks}.union(*(range(begin, mark) for begin, mark, _ in pieces))
    return bytes(0xFF if at in fixed else 0 for at in range(size))


Pieces = tuple[tuple[int, int, int], ...]
"""Begin, 0x01 and end of each good pair of one text."""


def _pieces_of(text: bytes) -> Pieces:
    """Return where the pairs of one text lie."""
    found, begin = [], 0
    for piece in text.split(bytes([_END])):
        mark, end = text.find(_PAIR, begin), begin + len(piece)
        if begin < mark < end - 1:
            found.append((begin, mark, end))
        begin = end + 1
    return tuple(found)


def pairs_repeated(texts: Texts) -> Pairs:
    """Return the pairs of texts, at least one, known to have one length and the same names at the same places."""
    count, size = len(texts.start) - 1, int(texts.start[1])
    return _repeated(texts.data, count, size, _pieces_of(texts[0]))


def _repeated(data: Bytes8, count: int, size: int, pieces: Pieces) -> Pairs:
    """Return the pairs of ``count`` texts of one size that all have these pieces."""
    owner, columns, places = _places_repeated(count, size, pieces)
    none = np.zeros(0, np.int64)
    found = {b"": Pairs(data, none, none, none, none, none)}
    for (begin, mark, _), place in zip(pieces, places, strict=True):
        found[data[begin:mark].tobytes()] = Pairs(data, owner, *place)
    return Pairs(data, *columns, found)


@lru_cache(maxsize=4)
def _places_repeated(
    count: int, size: int, pieces: Pieces
) -> tuple[Ints, tuple[Ints, Ints, Ints, Ints, Ints], list[tuple[Ints, Ints, Ints, Ints]]]:
    """Where the pairs of ``count`` texts lie: texts, columns of all pairs, and but for the owner those of each name.

    One producer's blocks have the same places again and again, so they are kept.
    """
    owner = np.arange(count)
    table = np.array(pieces, np.int64).reshape(-1, 3)
    begin, mark, end = ((owner[:, None] * size + column).reshape(-1) for column in table.T)
    columns = np.repeat(owner, len(pieces)), begin, mark - begin, mark + 1, end - mark - 1
    places = [tuple(column[number :: len(pieces)].copy() for column in columns[1:]) for number in range(len(pieces))]
    for array in (owner, *columns, *(one for place in places for one in place)):
        array.flags.writeable = False
    return owner, columns, places  # type: ignore[return-value]


def _owners(at: Ints, start: Ints, size: int) -> Ints:
    """Which text each place lies in: places ascending, one at the start of every text that is not empty."""
    begins = np.zeros(size + 1, np.int8)
    begins[start[:-1]] = 1
    ordinal = np.cumsum(begins[at], dtype=np.int64) - 1
    filled = start[1:] > start[:-1]
    return ordinal if filled.all() else np.flatnonzero(filled)[ordinal]


def _closed(texts: Texts) -> Texts:
    """Return the texts, each that is not empty ending with 0x02; brokers of 4.9.1 to 5.1.4 leave it out."""
    stops = texts.start[1:]
    open_ends = (np.diff(texts.start) > 0) & (texts.data[np.maximum(stops - 1, 0)] != _END) if len(texts.data) else None
    if open_ends is None or not open_ends.any():
        return texts
    data = np.insert(texts.data, stops[open_ends], _END)
    return Texts(data, texts.start + np.concatenate([[0], np.cumsum(open_ends)]))


# --- small numbers for the queues that records belong to --------------------------------------------


class KeyNumbers:
    """Small numbers for (topic number, queue id) pairs packed as ``topic << 32 | queue``, as first seen."""

    _WIDTH = 1024

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}
        self._table = np.full((0, self._WIDTH), -1, np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self) -> list[int]:
        """Return the keys by number."""
        return list(self._keys)

    def numbers(self, keys: Ints) -> npt.NDArray[Any]:
        """Return the number of each key, in the smallest unsigned type that sorts fast."""
        topic, queue = keys >> 32, keys & 0xFFFFFFFF
        if int(queue.max()) < self._WIDTH:
            self._widen(int(topic.max()) + 1)
            found = self._table[topic, queue]
            if (found < 0).any():
                for key in keys[np.sort(np.unique(keys, return_index=True)[1])].tolist():
                    self._table[key >> 32, key & 0xFFFFFFFF] = self._keys.setdefault(key, len(self._keys))
                found = self._table[topic, queue]
        else:
            found = np.array([self._keys.setdefault(key, len(self._keys)) for key in keys.tolist()])
        return found.astype(np.uint16) if len(self._keys) <= 1 << 16 else found

    def _widen(self, topics: int) -> None:
        missing = topics - len(self._table)
        if missing > 0:
            more = np.full((max(missing, len(self._table)), self._WIDTH), -1, np.int64)
            self._table = np.concatenate([self._table, more])


def signed(value: int) -> int:
    """Return a 32-bit pattern as Java's int."""
    return value - (1 << 32) if value >= 1 << 31 else value


def run_starts(*columns: npt.NDArray[Any]) -> Ints:
    """Where each run of rows begins that are equal in all columns, which are not empty."""
    first, *rest = columns
    new = first[1:] != first[:-1]
    for column in rest:
        new |= column[1:] != column[:-1]
    return np.concatenate([[0], np.flatnonzero(new) + 1])
