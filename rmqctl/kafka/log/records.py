"""The records of a block's batches as columns: decoded thousands at a time, from none to some hundred batches at once.

Records follow each other by their lengths, so their starts are found in lockstep, the i-th record of
all batches at once; then every field is read for all records together. A batch that does not add up
is decoded again by :mod:`rmqctl.kafka.log.reference`, which keeps what comes before the damage and says what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.errors import DecodeError
from formats.kafka.record_batch import HEADER_SIZE, MAGIC_AT, Attributes, Codec
from rmqctl.kafka.log import reference
from rmqctl.kafka.log.block import SLACK, Block, Bytes8, Flags, Ints, sequences
from rmqctl.kafka.log.codecs import INFLATE_LIMIT, Buffer, inflate
from rmqctl.kafka.log.legacy import InnerMessages, Message, read_message, unwrap
from rmqctl.kafka.log.varints import Varints, takes_more_than

GROUP_BYTES = 16 << 20
"""Decompressed bytes after which a group of batches ends."""
GROUP_RECORDS = 1 << 16
_MIN_RECORD = 7
_FEW = 24
_CHUNK = 1 << 14
_NONE = np.zeros(0, np.int64)
_NUMBERS = ("batch", "offset", "timestamp", "sequence", "key_at", "key_size", "value_at", "value_size")


@dataclass
class Records:
    """Records in file order, with their keys, values and headers as places in ``data``.

    Attributes:
        block: the block their batches lie in.
        data: where keys and values lie: the block's window, or decompressed bytes.
        batch: row of each record's batch in the block, shape (n,), ascending.
        offset, timestamp: as a consumer sees them, ms; shape (n,).
        sequence: -1 where there is none.
        key_at, key_size, value_at, value_size: places in ``data``; size -1 is null.
        header_count: headers of each record, shape (n,).
        headers: name_at, name_size, value_at, value_size of all headers in order, shape (m, 4).
        failures: what stopped the decoding of a batch, by its row; its records before that are here.
    """

    block: Block
    data: Bytes8
    batch: Ints
    offset: Ints
    timestamp: Ints
    sequence: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    header_count: Ints
    headers: Ints
    failures: dict[int, DecodeError] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def header_start(self) -> Ints:
        """Where the headers of each record begin in ``headers``, shape (n + 1,)."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.header_count)])

    def key(self, index: int) -> bytes | None:
        """Return the key of one record."""
        return self.cut(self.key_at[index], self.key_size[index])

    def value(self, index: int) -> bytes | None:
        """Return the value of one record."""
        return self.cut(self.value_at[index], self.value_size[index])

    def headers_of(self, index: int) -> list[tuple[bytes, bytes | None]]:
        """Names and values of the headers of one record, in order."""
        places = self.headers[self.header_start[index] : self.header_start[index + 1]].tolist()
        return [(self.cut(a, n) or b"", self.cut(b, m)) for a, n, b, m in places]

    def cut(self, at: Any, size: Any) -> bytes | None:
        """Bytes of ``data``; None for a negative size."""
        return None if size < 0 else self.data[at : at + size].tobytes()

    def take(self, keep: npt.NDArray[Any]) -> Records:
        """Only the records of an ascending index array or a boolean array."""
        rows = np.flatnonzero(keep) if keep.dtype == np.bool_ else keep
        count = self.header_count[rows]
        from_row = np.repeat(self.header_start[rows] - (np.cumsum(count) - count), count)
        headers = self.headers[from_row + np.arange(len(from_row))]
        columns = {name: getattr(self, name)[rows] for name in _NUMBERS}
        return Records(self.block, self.data, **columns, header_count=count, headers=headers, failures=self.failures)

    def column(self, name: str) -> Ints:
        """Return a column of the records' batches, one value a record."""
        return self.block[name][self.batch]


def records_of(block: Block, limit: int = INFLATE_LIMIT) -> Iterator[Records]:
    """Yield the records of all batches of a block in order, in groups bounded in bytes and records.

    Control records and batches whose CRC is wrong are decoded too; filter the block to leave them out. A batch of very
    many records goes on from group to group; what stopped its decoding is a failure of the last of them.

    Args:
        limit: bytes that one batch may inflate to; one that would be larger is a failure.
    """
    for start, stop in _groups(block):
        yield from _Group(block, start, stop, limit).records()


def records_in(batch: bytes, limit: int = INFLATE_LIMIT) -> Iterator[Records]:
    """Yield the records of one whole batch of any magic, as :func:`records_of` does."""
    data, at = np.frombuffer(batch, np.uint8), np.zeros(1, np.int64)
    magic = data[MAGIC_AT : MAGIC_AT + 1].view(np.int8).astype(np.int64)
    yield from records_of(Block("", 0, data, at, at + len(batch), magic, at == 0), limit)


def _groups(block: Block) -> Iterator[tuple[int, int]]:
    """Ranges of batches to decode together, by their stored bytes and stated records."""
    if not len(block):
        return
    stored = block.size.copy()
    stored[block["codec"] != 0] *= 8
    counts = np.ones(len(block), np.int64) if block.has_legacy else np.clip(block["records_count"], 0, block.size)
    group = np.cumsum(stored) // GROUP_BYTES + np.cumsum(counts) // GROUP_RECORDS
    bounds = np.flatnonzero(np.diff(group)) + 1
    yield from zip([0, *bounds.tolist()], [*bounds.tolist(), len(block)], strict=True)


_TOGETHER, _WRAPPED, _ALONE, _COMPRESSED = range(4)
"""How batches are decoded: side by side, message by message, in several groups, and apart from messages."""


class _Group:
    """Some neighbouring batches of a block, decoded into one :class:`Records`, or several where they become large."""

    def __init__(self, block: Block, start: int, stop: int, limit: int) -> None:
        self.block, self.limit = block, limit
        self.rows = np.arange(start, stop)
        self.failures: dict[int, DecodeError] = {}

    def records(self) -> Iterator[Records]:
        ways = self._ways()
        bounds = [0, *(np.flatnonzero(np.diff(ways)) + 1).tolist(), len(ways)]
        for start, stop in pairwise(bounds):
            rows = self.rows[start:stop]
            match ways[start]:
                case way if way == _WRAPPED:
                    yield from self._singly(rows)
                case way if way == _ALONE:
                    for row in rows.tolist():
                        at = int(self.block.at[row])
                        yield from self._large(row, self.block.padded, at + HEADER_SIZE, at + int(self.block.size[row]))
                case _:
                    yield from self._together(rows)

    def _ways(self) -> Ints:
        """How each batch is decoded, by what it holds and what stands around it."""
        block, rows = self.block, self.rows
        legacy, packed = block.is_legacy[rows], block["codec"][rows] != 0
        counts = block.size[rows] // _MIN_RECORD
        if not legacy.all():
            counts = np.minimum(counts, block["records_count"][rows])
        large = ~legacy & ~packed & ((counts > GROUP_RECORDS) | (block.size[rows] > GROUP_BYTES))
        ways = np.where(large, _ALONE, _TOGETHER)
        if legacy.any():
            ways[packed & (ways == _TOGETHER)] = _COMPRESSED
            ways[legacy & (packed | (block.size[rows] > GROUP_BYTES))] = _WRAPPED
        return ways

    def _together(self, rows: Ints) -> Iterator[Records]:
        legacy = self.block.is_legacy[rows]
        if not legacy.any():
            yield from self._modern(rows)
        else:
            yield _merged([*self._modern(rows[~legacy]), *self._singly(rows[legacy])])

    # --- batches of magic 2 -----------------------------------------------------------------------

    def _modern(self, rows: Ints) -> Iterator[Records]:
        """Yield the records of batches with few of them each."""
        block = self.block
        codec = block["codec"][rows]
        if not codec.any():
            if len(rows):
                start = block.at[rows] + HEADER_SIZE
                yield self._decoded(rows, block.padded, start, block.at[rows] + block.size[rows])
            return
        counts = block["records_count"][rows].tolist()
        kept, parts, size, total = list[int](), list[Any](), 0, 0
        for row, count in zip(rows.tolist(), counts, strict=True):
            part = self._inflated(row)
            count = min(max(count, 0), len(part) // _MIN_RECORD)
            if kept and (size + len(part) > GROUP_BYTES or total + count > GROUP_RECORDS):
                yield self._joined(kept, parts)
                kept, parts, size, total = [], [], 0, 0
            if len(part) > GROUP_BYTES or count > GROUP_RECORDS:
                end = len(part)
                yield from self._large(row, _padded(part), 0, end)
            else:
                kept.append(row)
                parts.append(part)
                size, total = size + len(part), total + count
            del part  # the next may be as large
        if kept:
            yield self._joined(kept, parts)

    def _inflated(self, row: int) -> Buffer:
        """Return the bytes of the records of a batch; none where they cannot be had, which is a failure."""
        at = int(self.block.at[row])
        stored = memoryview(self.block.data)[at + HEADER_SIZE : at + int(self.block.size[row])]  # type: ignore[arg-type]
        try:
            return inflate(int(self.block["codec"][row]), stored, limit=self.limit)
        except DecodeError as error:
            self.failures[row] = error
            return b""

    def _joined(self, rows: list[int], parts: list[Any]) -> Records:
        sizes = np.array([len(part) for part in parts], np.int64)
        end = np.cumsum(sizes)
        data = np.frombuffer(b"".join([*parts, bytes(SLACK)]), np.uint8)
        return self._decoded(np.array(rows, np.int64), data, end - sizes, end)

    def _decoded(self, rows: Ints, data: Bytes8, start: Ints, end: Ints) -> Records:
        count = self.block["records_count"][rows]
        lost = (count < 0) | (count * _MIN_RECORD > end - start) | np.isin(rows, list(self.failures))
        sound = np.flatnonzero(~lost)
        starts, ends, batch, broken = _record_bounds(data, start[sound], end[sound], count[sound])
        decoded = _fields(data, starts, ends)
        broken[batch[decoded.bad]] = True
        lost[sound[broken]] = True
        keep = ~broken[batch]
        doubtful = [row for row in rows[lost].tolist() if row not in self.failures]
        found = self._columns(data, rows[sound[batch]], decoded)
        if keep.all() and not lost.any():
            return found
        return _merged([found.take(keep), *self._singly(np.array(doubtful, np.int64))])

    def _large(self, row: int, data: Bytes8, at: int, end: int) -> Iterator[Records]:
        """Yield the records of a batch of very many or very large ones, some at a time."""
        view: Any = memoryview(data)  # type: ignore[arg-type]
        count, done = int(self.block["records_count"][row]), 0
        while done < count:
            some = min(count - done, GROUP_RECORDS)
            decoded, after = _stretch(data, at, end, some)
            if decoded is None:
                places = list[reference.Places]()
                try:
                    places.extend(islice(reference.places(view, at, end, count, done), some))
                except DecodeError as error:
                    self.failures[row] = error
                decoded, after = _fields_at(places), places[-1].end if places else at
            at, done, failed = after, done + some, row in self.failures
            yield self._columns(data, np.full(len(decoded.key_at), row), decoded)
            if failed:
                return
        try:
            next(reference.places(view, at, end, count, max(count, 0)), None)
        except DecodeError as error:
            self.failures[row] = error
            yield self._columns(data, _NONE, _fields(data, _NONE, _NONE))

    def _columns(self, data: Bytes8, batch: Ints, decoded: _Fields) -> Records:
        block = self.block
        stamped = block.flag(Attributes.LOG_APPEND_TIME)[batch]
        timestamp = block["base_timestamp"][batch] + decoded.timestamp_delta
        if stamped.any():
            timestamp = np.where(stamped, block["max_timestamp"][batch], timestamp)
        return Records(
            block, data, batch, block["base_offset"][batch] + decoded.offset_delta, timestamp,
            sequences(block["base_sequence"][batch], decoded.offset_delta), decoded.key_at, decoded.key_size,
            decoded.value_at, decoded.value_size, decoded.header_count, decoded.headers, self._taken_failures(),
        )  # fmt: skip

    def _taken_failures(self) -> dict[int, DecodeError]:
        """Return what failed since the last records were given."""
        taken, self.failures = self.failures, {}
        return taken

    # --- one batch at a time ----------------------------------------------------------------------

    def _singly(self, rows: Ints) -> Iterator[Records]:
        """Messages of magic 0 and 1, and batches that do not add up."""
        single = _Singles(self.block, self.limit)
        for row in rows.tolist():
            yield from single.add(row)
        yield single.taken()


class _Singles:
    """Records collected one batch at a time; their keys and values get bytes of their own."""

    def __init__(self, block: Block, limit: int) -> None:
        self.block, self.limit = block, limit
        self.failures: dict[int, DecodeError] = {}
        self.parts: list[Any] = []
        self.size = 0
        self.numbers: list[tuple[int, ...]] = []
        self.headers: list[tuple[int, int, int, int]] = []

    def add(self, row: int) -> Iterator[Records]:
        """Collect the records of a batch; what is enough for a group is yielded."""
        try:
            if self.block.is_legacy[row]:
                yield from self._add_messages(row)
            else:
                self._add_batch(row)
        except DecodeError as error:
            self.failures[row] = error
        if self.size > GROUP_BYTES or len(self.numbers) >= GROUP_RECORDS:
            yield self.taken()

    def _keep(self, data: Any) -> int:
        """Keep bytes; where they begin."""
        begin, self.size = self.size, self.size + len(data)
        self.parts.append(data)
        return begin

    def _add_messages(self, row: int) -> Iterator[Records]:
        at, size = int(self.block.at[row]), int(self.block.size[row])
        raw: Any = memoryview(self.block.data)[at : at + size]  # type: ignore[arg-type]
        outer = read_message(raw, 0, size)
        inner: Iterable[Message] = [outer]
        if outer.codec != Codec.NONE:
            inner = unwrap(raw, outer, self.limit)
            raw = inner.data
        if len(raw) > GROUP_BYTES:
            yield self.taken()
            whole, begin = self.block.padded, at
            if isinstance(inner, InnerMessages):
                whole, begin, size = _padded(raw), 0, len(raw)
                inner = replace(inner, data=memoryview(whole)[:size])  # type: ignore[arg-type]
            del raw
            for number, message in enumerate(inner, 1):
                self._add_message(row, message, begin)
                if number % GROUP_RECORDS == 0:
                    yield self.taken(whole)
            yield self.taken(whole)
            return
        begin = self._keep(raw)
        for message in inner:
            self._add_message(row, message, begin)

    def _add_message(self, row: int, m: Message, begin: int) -> None:
        self.numbers.append(
            (row, m.offset, m.timestamp, -1, begin + m.key_at, m.key_size, begin + m.value_at, m.value_size, 0)
        )

    def _add_batch(self, row: int) -> None:
        block = self.block
        stored = memoryview(block.raw(row))[HEADER_SIZE:]
        payload = bytes(inflate(int(block["codec"][row]), stored, limit=self.limit))
        begin, base, first = self._keep(payload), int(block["base_offset"][row]), int(block["base_sequence"][row])
        stamped = bool(block["attributes"][row] & int(Attributes.LOG_APPEND_TIME))
        base_time, time = int(block["base_timestamp"][row]), int(block["max_timestamp"][row])
        for at in reference.places(payload, 0, len(payload), int(block["records_count"][row])):
            moved = [(begin + a, n, begin + b, m) for a, n, b, m in at.headers]
            self.numbers.append(
                (
                    row, _wrapped(base + at.offset_delta),
                    time if stamped else _wrapped(base_time + at.timestamp_delta),
                    reference.sequence_of(first, at.offset_delta),
                    begin + at.key_at, at.key_size, begin + at.value_at, at.value_size, len(moved),
                )
            )  # fmt: skip
            self.headers += moved

    def taken(self, data: Bytes8 | None = None) -> Records:
        """Return what was collected, and begin again.

        Args:
            data: where keys and values lie, if not in the bytes that were kept.
        """
        numbers = np.array(self.numbers, np.int64).reshape(-1, 9)
        headers = np.array(self.headers, np.int64).reshape(-1, 4)
        if data is None:
            data = np.frombuffer(b"".join([*self.parts, bytes(SLACK)]), np.uint8)
        columns = dict(zip((*_NUMBERS, "header_count"), numbers.T, strict=True))
        found = Records(self.block, data, **columns, headers=headers, failures=self.failures)
        self.failures, self.parts, self.size, self.numbers, self.headers = {}, [], 0, [], []
        return found


def _padded(data: Buffer) -> Bytes8:
    """Return inflated bytes with the slack after them; in their own buffer where that can grow."""
    if isinstance(data, bytearray):
        data += bytes(SLACK)
        return np.frombuffer(data, np.uint8)
    return np.frombuffer(b"".join([data, bytes(SLACK)]), np.uint8)


def _wrapped(value: int) -> int:
    """Return a sum as 64 bits hold it; only damage goes over."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _merged(parts: list[Records]) -> Records:
    """Return records of several parts in the order of their batches, over joined bytes."""
    first = parts[0]
    if len(parts) == 1:
        return first
    shift, shifted = 0, []
    for part in parts:
        headers = part.headers + np.array([shift, 0, shift, 0])
        columns = {name: getattr(part, name) for name in _NUMBERS}
        columns["key_at"], columns["value_at"] = part.key_at + shift, part.value_at + shift
        shifted.append((columns, part.header_count, headers))
        shift += len(part.data)
    joined = {name: np.concatenate([columns[name] for columns, _, _ in shifted]) for name in _NUMBERS}
    whole = Records(
        first.block, np.concatenate([part.data for part in parts]), **joined,
        header_count=np.concatenate([count for _, count, _ in shifted]),
        headers=np.concatenate([headers for _, _, headers in shifted]),
        failures={row: error for part in parts for row, error in part.failures.items()},
    )  # fmt: skip
    return whole.take(np.argsort(whole.batch, kind="stable"))


# --- where records begin and end ----------------------------------------------------------------------


def _record_bounds(data: Bytes8, start: Ints, end: Ints, count: Ints) -> tuple[Ints, Ints, Ints, Flags]:
    """First byte after the length of each record, its end, its batch; and which batches do not add up.

    Args:
        start, end: where the records of each batch lie in ``data``, shape (batches,).
    """
    first = np.cumsum(count) - count
    starts = np.empty(int(count.sum()), np.int64)
    order = np.argsort(-count, kind="stable")
    at, limit, place, wanted = start[order], end[order], first[order], count[order]
    numbers = Varints(data)
    most, done = int(wanted[0]) if len(wanted) else 0, 0
    alive = int(np.searchsorted(-wanted, 0, side="left"))
    while alive and (alive >= _FEW or most - done <= 2):
        at, limit, place = at[:alive], limit[:alive], place[:alive]
        starts[place + done] = at
        at = np.minimum(at + numbers.spans(at), limit)
        done += 1
        alive = int(np.searchsorted(-wanted, -done, side="left"))
    for k in range(alive):
        _walk(data, int(at[k]), int(limit[k]), starts, int(place[k]) + done, int(wanted[k]) - done)
    return _checked(numbers, starts, first, end, count, start)


def _checked(
    numbers: Varints, starts: Ints, first: Ints, end: Ints, count: Ints, start: Ints
) -> tuple[Ints, Ints, Ints, Flags]:
    """Return what :func:`_record_bounds` gives, once each record is seen to end where the next one starts."""
    batch = np.repeat(np.arange(len(count)), count)
    ends = np.empty(len(starts), np.int64)
    ends[:-1] = starts[1:]
    filled = np.flatnonzero(count)
    ends[first[filled] + count[filled] - 1] = end[filled]
    length, size = numbers.read(starts)
    bodies = starts + size
    broken = (count == 0) & (start != end)
    wrong = (length < 0) | takes_more_than(size, 4) | (bodies + length != ends)
    if wrong.any():
        broken[batch[wrong]] = True
        bodies = np.minimum(bodies, ends)
    return bodies, ends, batch, broken


def _stretch(data: Bytes8, at: int, end: int, count: int) -> tuple[_Fields | None, int]:
    """Return the fields of the next records of a batch whose bytes end at ``end``, and where those after them begin;
    None where they do not add up.
    """
    starts, one = np.empty(count, np.int64), np.ones(1, np.int64)
    after = _walk(data, at, end, starts, 0, count)
    if after > end:
        return None, at
    bodies, ends, _, broken = _checked(Varints(data), starts, one - 1, one * after, one * count, one * at)
    fields = _fields(data, bodies, ends)
    return (None, at) if broken.any() or len(fields.bad) else (fields, after)


def _fields_at(places: list[reference.Places]) -> _Fields:
    """Return the fields of records that the reference has read."""
    count = np.array([len(p.headers) for p in places], np.int64)
    headers = np.array([four for p in places for four in p.headers], np.int64).reshape(-1, 4)
    numbers = np.array([p[:6] for p in places], np.int64).reshape(-1, 6)
    offset_delta, timestamp_delta, key_at, key_size, value_at, value_size = numbers.T
    return _Fields(
        timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, count, headers, _NONE
    )  # fmt: skip


def _walk(data: Bytes8, at: int, limit: int, starts: Ints, place: int, count: int) -> int:
    """Find the starts of the records of one batch, record by record, where too few batches are left to go in
    lockstep; where the next begins, above ``limit`` where they are more than it holds.
    """
    view = memoryview(data)  # type: ignore[arg-type]
    found = []
    for _ in range(count):
        found.append(at)
        length = view[at]
        at += 1
        if length >= 0x80:
            second = view[at]
            at += 1
            length += (second - 1) << 7
            if second >= 0x80:
                length += (view[at] - 1) << 14
                if view[at] >= 0x80:
                    length += (view[at + 1] - 1) << 21
                    at += 1
                at += 1
        at += length >> 1
        if at > limit:
            break
    starts[place : place + len(found)] = found
    starts[place + len(found) : place + count] = limit
    return at


# --- the fields of records ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Fields:
    """What the records say, before their batches are asked; ``bad`` are numbers of those that do not add up."""

    timestamp_delta: Ints
    offset_delta: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    header_count: Ints
    headers: Ints
    bad: Ints


def _fields(data: Bytes8, at: Ints, end: Ints) -> _Fields:
    """Read the fields of records whose bodies begin at ``at`` and end at ``end``."""
    numbers = Varints(data)
    if len(at) <= _CHUNK:
        return _fields_of(numbers, at, end)
    parts = [_fields_of(numbers, at[i : i + _CHUNK], end[i : i + _CHUNK]) for i in range(0, len(at), _CHUNK)]
    for number, part in enumerate(parts):
        part.bad = part.bad + number * _CHUNK
    return _Fields(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Fields.__slots__))


def _fields_of(numbers: Varints, at: Ints, end: Ints) -> _Fields:
    reader = _Reader(numbers, np.minimum(at + 1, end), end)
    reader.wrong |= at >= end
    timestamp_delta, offset_delta = reader.number(8), reader.number(4)
    key_at, key_size = reader.piece()
    value_at, value_size = reader.piece()
    count = reader.number(4)
    reader.wrong |= (count < 0) | (count > end - reader.at)
    count = np.where(reader.wrong, 0, count)
    headers = _headers(reader, count)
    reader.wrong |= reader.at != end
    bad = np.flatnonzero(reader.wrong)
    return _Fields(timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, count, headers, bad)


class _Reader:
    """A place in each of many records that moves on as fields are read, never over a record's end."""

    def __init__(self, numbers: Varints, at: Ints, end: Ints) -> None:
        self.numbers, self.at, self.end = numbers, at, end
        self.wrong = np.zeros(len(at), np.bool_)

    def number(self, most: int) -> Ints:
        """Return a zig-zag number of at most ``most`` bytes; what takes more is left to the reference."""
        value, size = self.numbers.read(self.at)
        if size.max(initial=1) > 2 or not size.all():
            self.wrong |= takes_more_than(size, most)
        self._move(self.at + size)
        return value

    def piece(self) -> tuple[Ints, Ints]:
        """Return a size and that many bytes: where they begin, and their size, -1 for null."""
        size = self.number(4)
        begin = self.at
        self._move(begin + np.maximum(size, 0))
        return begin, np.maximum(size, -1)

    def _move(self, to: Ints) -> None:
        over = to > self.end
        if over.any():
            self.wrong |= over
            to = np.minimum(to, self.end)
        self.at = to

    def part(self, rows: Ints) -> _Reader:
        """Return a reader of some of the records, which stands where this one does in each."""
        return _Reader(self.numbers, self.at[rows], self.end[rows])


def _headers(reader: _Reader, count: Ints) -> Ints:
    """Places of the headers of all records in order, shape (m, 4); the reader moves after them."""
    total = int(count.sum())
    found = np.zeros((total, 4), np.int64)
    if not total:
        return found
    first = np.cumsum(count) - count
    rows, number = np.flatnonzero(count), 0
    while len(rows):
        part = reader.part(rows)
        name_at, name_size = part.piece()
        part.wrong |= name_size < 0
        value_at, value_size = part.piece()
        places = first[rows] + number
        found[places, 0], found[places, 1] = name_at, name_size
        found[places, 2], found[places, 3] = value_at, value_size
        reader.at[rows] = part.at
        reader.wrong[rows] |= part.wrong
        number += 1
        rows = rows[(count[rows] > number) & ~part.wrong]
    return found
