"""Messages as JSON lines, column by column, byte for byte what orjson makes of the rows, without an object for each:
numbers and texts become columns of JSON text, which are joined row by row in one go.

Most properties texts are plain: names and values in turn, none empty, no name twice, valid UTF-8.
For those JSON comes from replacing bytes in the texts joined end to end, and what a row shows is a
slice of the result. The others are named in ``odd`` and left to the record-by-record code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from formats.rocketmq.message import COMPRESSION, TRANSACTION, SysFlag
from rmqctl.rocketmq.dump.log import MessageRows, ShownRecords, hosts_v4, id_bytes, merged
from rmqctl.rocketmq.dump.record import VERSIONS, Row, RowOptions, host_text, transaction
from rmqctl.rocketmq.log.block import Block, Bytes8, Ints
from rmqctl.rocketmq.log.columns import Texts, properties_of
from rmqctl.rocketmq.log.record import compression
from rmqctl.text import text_or_base64

Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_PAIR, _END = 1, 2
_SHORT = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_ESCAPES = {byte: _SHORT.get(byte, b"\\u%04x" % byte) for byte in (92, 34, 0, *range(3, 32))}
_LONGER = np.zeros(256, np.int64)
_LONGER[list(_ESCAPES)] = [len(text) - 1 for text in _ESCAPES.values()]
_LONGER[[_PAIR, _END]] = 2
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
_MIX_A, _MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
SETS_KEPT = 4096


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


__all__ = ["PropertyJson", "PropertyTexts", "slices_of"]


# --- whole messages --------------------------------------------------------------------------------


FEW = 64
"""Blocks with fewer records are not worth columns."""

Column = bytes | Any
"""One text for every row, or an Arrow array of texts."""

_HEX = np.array([int.from_bytes(b"%02X" % byte, "little") for byte in range(256)], "<u2")
_IPV6_BITS = 3  # of Block.variant
_V2_SHIFT = 2
_INNER = int(SysFlag.INNER_BATCH)
_KEPT = 1 << 16
_CLOSE = 64


class MessageLines:
    """Turns blocks into JSON lines; keeps what recurs from block to block."""

    def __init__(self, show: RowOptions) -> None:
        """
        Args:
            show: a plain one (:attr:`~RowOptions.is_plain`); it decides how odd properties are read.
        """
        self._rows = MessageRows(show)
        self._properties = PropertyTexts((b"TAGS", b"KEYS", b"UNIQ_KEY"))
        self._topics = _Recurring(lambda raw: orjson.dumps(text_or_base64(raw)))
        self._hosts = _Recurring(lambda raw: orjson.dumps(host_text(raw.to_bytes(8, "big"))))

    def pieces(self, part: ShownRecords) -> Iterator[bytes | memoryview]:
        """Yield the rows of a part, many lines a piece, with what stands between them."""
        lines, at = self.lines(part.block, part.crc_ok), 0
        for place, row in part.between:
            yield _text(lines, at, place)
            yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
            at = place
        yield _text(lines, at, len(lines))

    def objects(self, part: ShownRecords) -> Iterator[Row]:
        """Return the rows of a part as objects."""
        return merged(self._rows.rows(part.block, part.crc_ok), part.between)

    def lines(self, block: Block, crc_ok: Flags) -> Any:
        """Return the rows of a block as an Arrow array of JSON texts, each with a newline at its end."""
        if len(block) < FEW:
            return pa.array(self._slow(block, crc_ok), pa.binary())
        properties = self._properties.json(properties_of(block))
        odd = properties.odd | ((block["sys_flag"] & _INNER) != 0) | ((block.variant & _IPV6_BITS) != 0)
        lines = _joined([*self._header(block, crc_ok), *self._texts(block, properties), *_tail(block)])
        if odd.any():
            others = pa.array(self._slow(block.take(odd), crc_ok[odd]), pa.binary())
            lines = pc.replace_with_mask(lines, pa.array(odd), others)
        return lines

    def _slow(self, block: Block, crc_ok: Flags) -> list[bytes]:
        return [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self._rows.rows(block, crc_ok)]

    def _header(self, block: Block, crc_ok: Flags) -> Iterable[Column]:
        yield b'{"kind":"message","file":' + orjson.dumps(block.file)
        yield from (b',"position":', _ints(block.position))
        yield from (b',"physical_offset":', _ints(block["physical_offset"]))
        yield from (b',"size":', _ints(block.total_size))
        yield from (b',"magic":', _chosen(VERSIONS, block.variant >> _V2_SHIFT))
        yield from (b',"body_crc":', _ints(block["body_crc"]))
        yield from (b',"body_crc_ok":', _chosen((False, True), crc_ok))
        for name in ("queue_id", "flag"):
            yield _few(_key(name), block[name])
        yield from (b',"queue_offset":', _ints(block["queue_offset"]))
        yield _few(b',"sys_flag":', block["sys_flag"])
        yield from (b',"born_timestamp":', _ints(block["born_timestamp"]))
        yield self._hosts.column(pa.array(hosts_v4(block, "born")), b',"born_host":', b',"store_timestamp":')
        yield _ints(block["store_timestamp"])
        yield self._hosts.column(pa.array(hosts_v4(block, "store")), b',"store_host":')
        yield _few(b',"reconsume_times":', block["reconsume_times"])
        yield from (b',"prepared_transaction_offset":', _ints(block["prepared_transaction_offset"]))

    def _texts(self, block: Block, properties: PropertyJson) -> Iterable[Column]:
        tags, keys, unique_key = properties.named
        has_tags, _, has_unique_key = properties.has
        raw = slices_of(pa.py_buffer(block.data), block.topic_at, block.topic_at + block.topic_size)
        yield self._topics.column(raw, b',"topic":', b',"tags":')
        yield _or_null(tags, has_tags)
        yield from (b',"keys":[', _listed(keys))
        yield from (b'],"unique_key":', _or_null(unique_key, has_unique_key))
        yield from (b',"message_id":"', _hex(id_bytes(block)))
        yield from (b'","properties":{', properties.pairs, b"}")


def _tail(block: Block) -> Iterable[Column]:
    flags = block["sys_flag"]
    yield from (b',"transaction":', _by_flag(flags, TRANSACTION, transaction))
    yield from (b',"compression":', _by_flag(flags, COMPRESSION, compression))
    yield from (b',"body_size":', _ints(block.body_size))
    yield b"}\n"


def _key(name: str) -> bytes:
    return b',"%s":' % name.encode()


def _ints(values: npt.NDArray[Any]) -> Column:
    """Whole numbers in decimal."""
    if (values == values[0]).all():
        return b"%d" % values[0]
    return pc.cast(pa.array(values), pa.string()).view(pa.binary())


def _few(before: bytes, values: npt.NDArray[Any]) -> Column:
    """Whole numbers in decimal with a key before them; made once each where they lie close together."""
    low, high = int(values.min()), int(values.max())
    if high - low >= _CLOSE:
        return _joined([before, _ints(values)])
    texts = [before + b"%d" % value for value in range(low, high + 1)]
    return texts[0] if low == high else pa.array(texts, pa.binary()).take(pa.array(values - low))


def _chosen(values: Iterable[Any], which: npt.NDArray[Any]) -> Column:
    """Return the JSON of one of a few values for each row."""
    json = [orjson.dumps(value) for value in values]
    if (which == which[0]).all():
        return json[int(which[0])]
    return pa.array(json, pa.binary()).take(pa.array(which.astype(np.int64)))


def _by_flag(flags: Ints, bits: int, name: Callable[[int], str]) -> Column:
    """Return the JSON of what some bits of the flags mean."""
    flags = flags & bits
    if (flags == flags[0]).all():
        return orjson.dumps(name(int(flags[0])))
    few, which = np.unique(flags, return_inverse=True)
    return _chosen(map(name, few.tolist()), which)


class _Recurring:
    """JSON of values that recur, made once each."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode
        self._json: dict[Any, bytes] = {}

    def column(self, values: Any, before: bytes, after: bytes = b"") -> Column:
        """Return the JSON of each value of an Arrow array, with what stands before and after it."""
        encoded = values.dictionary_encode()
        if len(self._json) > _KEPT:
            self._json.clear()
        json = [before + self._of(value) + after for value in encoded.dictionary.to_pylist()]
        return json[0] if len(json) == 1 else pa.array(json, pa.binary()).take(encoded.indices)

    def _of(self, value: Any) -> bytes:
        json = self._json.get(value)
        if json is None:
            json = self._json[value] = self._encode(value)
        return json


def _or_null(values: Any, has: Flags) -> Column:
    """Return the values, ``null`` for rows that have none."""
    if has.all():
        return values
    return pc.if_else(pa.array(has), values, b"null") if has.any() else b"null"


def _listed(keys: Any) -> Any:
    """Quoted KEYS as the quoted parts between its spaces, with commas."""
    several = pc.match_substring(keys, " ")
    if not pc.any(several).as_py():
        return keys
    parts = [text[1:-1].split(b" ") for text in keys.filter(several).to_pylist()]
    lists = [b",".join(b'"%s"' % part for part in found if part) for found in parts]
    return pc.replace_with_mask(keys, several, pa.array(lists, pa.binary()))


def _hex(ids: npt.NDArray[np.uint8]) -> Any:
    """Bytes of each row as upper-case hex digits."""
    width = 2 * ids.shape[1]
    bounds = np.arange(0, width * (len(ids) + 1), width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(ids), [None, pa.py_buffer(bounds), pa.py_buffer(_HEX[ids])])


def _joined(columns: Iterable[Column]) -> Any:
    """Return the columns put together row by row."""
    parts: list[Column] = []
    for column in columns:
        if isinstance(column, bytes) and parts and isinstance(parts[-1], bytes):
            parts[-1] += column
        else:
            parts.append(column)
    scalars = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()))


def _text(lines: Any, start: int, stop: int) -> bytes | memoryview:
    """Lines ``start`` to ``stop`` of an array without gaps, end to end."""
    if start >= stop:
        return b""
    _, bounds, text = lines.buffers()
    begin, end = np.frombuffer(bounds, np.int32)[[lines.offset + start, lines.offset + stop]].tolist()
    return memoryview(text)[begin:end]
