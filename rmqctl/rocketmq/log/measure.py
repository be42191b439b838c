"""Where records may start in a window, and whether each is whole and as long as it says.

All of it is arithmetic on arrays: candidates by the two bytes every message magic shares, then
lengths read from the fields that the schema's plans locate (spec 2.1, 6.2).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import Magic
from rmqctl.files.local import ByteSource, BytesSource
from rmqctl.rocketmq.log.block import (
    Block,
    Bytes8,
    Ints,
    by_variant,
    copied_heads,
    gather,
    head_layout,
    head_offsets,
    head_sizes,
)
from rmqctl.rocketmq.log.crc import MASK, crc32
from rmqctl.rocketmq.log.record import BODY_LENGTH, CRC_SPAN, HOST_SHIFT, MAGIC_SPAN, SMALLEST
from rmqctl.rocketmq.store.files import StoreFile

Flags = npt.NDArray[np.bool_]

_V1 = int(Magic.MESSAGE_V1) & 0xFFFFFFFF
_V2 = int(Magic.MESSAGE_V2) & 0xFFFFFFFF
_EVEN, _ODD = np.frombuffer(_V1.to_bytes(4, "big")[:2] + _V1.to_bytes(4, "big")[1:3], np.uint16)
_MAGIC_AT = MAGIC_SPAN.start
_HOSTS = 3 << HOST_SHIFT
_TEXT_SIZES = np.array([1, 1, 1, 1, 2, 2, 2, 2], np.int64)
PEEK = 40
"""Bytes from the start of a record that settle its layout: TOTALSIZE to SYSFLAG."""


MAX_RECORD = 128 << 20
"""Largest record that is read; brokers accept maxMessageSize (4 MiB by default) plus 64 KiB."""


@dataclass(slots=True)
class Measured:
    """Lengths of the records that may start at ``at``; shapes (n,).

    Attributes:
        whole: the window holds the record to its end and every length adds up.
        needs: bytes from ``at`` that a window must hold to decide, 0 where it is decided already.
        heads: copies of the fixed headers, where they were made and all have the first layout; else None.
    """

    at: Ints
    variant: Ints
    total_size: Ints
    body_size: Ints
    topic_size: Ints
    properties_size: Ints
    whole: Flags
    needs: Ints
    heads: npt.NDArray[Any] | None = None

    def take(self, keep: Any) -> Measured:
        """Return the columns of a slice, an index array or a boolean array."""
        found = Measured(*(getattr(self, name)[keep] for name in _COLUMNS))
        found.heads = None if self.heads is None else self.heads[keep]
        return found

    def physical_shifts(self, data: Bytes8, origin: int) -> Ints:
        """Return what each record says of its position, less where it is; ``origin`` is that of ``data[0]``."""
        stated = gather(data, self.at + int(head_offsets("physical_offset")[0]), ">i8")
        return stated.astype(np.int64) - origin - self.at

    @staticmethod
    def concatenate(parts: list[Measured]) -> Measured:
        """Return the records of all parts, in the order given."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return nothing_measured()
        return Measured(*(np.concatenate([getattr(p, name) for p in parts]) for name in _COLUMNS))


_COLUMNS = tuple(f.name for f in fields(Measured) if f.name != "heads")


def nothing_measured() -> Measured:
    """Return the lengths of no record."""
    none = np.zeros(0, np.int64)
    return Measured(none, none, none, none, none, none, none.astype(bool), none)


def records_at(
    data: Bytes8, position: int, base: int, limit: int, lead: int = 0, shifts: tuple[int, ...] = (0,)
) -> Measured:
    """Measure the candidates of a window that say they lie where they are.

    Args:
        data: the window, at ``position`` of a file whose first byte has physical offset ``base``.
        limit: bytes from the start of ``data`` to the end of the file.
        lead: bytes that stand before each record.
        shifts: accepted differences between PHYSICALOFFSET and the position, in bytes.
    """
    at = candidates(data, lead)
    off = gather(data, at + int(head_offsets("physical_offset")[0]), ">i8") - (at + (base + position))
    keep = off == shifts[0]
    for shift in shifts[1:]:
        keep |= off == shift
    return measure(data, at[keep], limit)


# --- records that follow each other, without a search -------------------------------------------------


_STRETCH = 16
"""Records of the usual size in a stretch of a window: more of them, fewer stretches, more steps to its end."""
_LEAST, _LONG = 16, 8 << 10
_STEPS = 6 * _STRETCH


def records_from(data: Bytes8, first: int, origin: int, limit: int, usual: int) -> tuple[Measured, Measured]:
    """Measure the records that follow each other from ``first`` on, as far as each lies where it says and is whole.

    Returns also the first one after them, if it lies where it says.

    The window is divided into stretches. A short search finds the first record of each, and all of them are then
    followed side by side from size to size: where each ends at the beginning of the next, they are one chain. Where
    not, it ends there, and what lies after it is left to the search.

    Args:
        origin: physical offset of ``data[0]``.
        limit: bytes from the start of ``data`` to the end of the file.
        usual: bytes that a record has about; long ones are followed one by one.
    """
    end = len(data) - head_layout().itemsize + 1
    if first >= end:
        return nothing_measured(), nothing_measured()
    stretch = _STRETCH * usual
    alone = usual >= _LONG or end - first < _LEAST * stretch
    at = _one_by_one(data, first, end) if alone else _side_by_side(data, first, end, origin, stretch)
    heads = copied_heads(data, at)
    magics = heads["magic"].astype(np.uint32)
    count = _first_false((heads["physical_offset"] == at + origin) & is_message_magic(magics))
    at, heads, magics = at[:count], heads[:count], magics[:count]
    alike = not (magics != _V1).any() and not (heads["sys_flag"] & _HOSTS).any()
    found = measure(data, at, limit, heads if alike else None)
    follows = np.append(at[:-1] + found.total_size[:-1] == at[1:], True) & found.whole
    count = _first_false(follows)
    count += count < len(at) and bool(found.whole[count])
    return found.take(slice(count)), found.take(slice(count, count + 1))


def _one_by_one(data: Bytes8, first: int, end: int) -> Ints:
    view, at, starts = memoryview(data.data), first, []
    while at < end:
        starts.append(at)
        at += int.from_bytes(view[at : at + _MAGIC_AT], "big") or end
    return np.array(starts, np.int64)


def _side_by_side(data: Bytes8, first: int, end: int, origin: int, stretch: int) -> Ints:
    """Where records begin, ascending; after the end of the chain, if it does end, anything."""
    heads = _heads(data, first, end, origin, stretch)
    stops, sizes = np.append(heads[1:], end), np.ndarray((len(data) - 3,), ">u4", data, 0, (1,))
    at, steps = heads, [heads]
    while len(steps) < _STEPS:
        at = np.minimum(at + sizes[at].astype(np.int64), stops)
        steps.append(at)
        if len(steps) > _STRETCH and not len(steps) % 4 and (at[:-1] == stops[:-1]).all() and at[-1] >= end:
            break
    found = np.array(steps).T
    starts: Ints = found[found < stops[:, None]]
    return starts


def _heads(data: Bytes8, first: int, end: int, origin: int, stretch: int) -> Ints:
    """Return the first record of each stretch that begins in its first part, where a search looks for it.

    Where all records have the usual size, nothing need be searched.
    """
    stated_at = int(head_offsets("physical_offset")[0])
    at = np.arange(first, end - stated_at, stretch)
    if (gather(data, at + stated_at, ">i8") == at + origin).all():
        return at
    count, part = (end - first) // stretch, stretch * 5 // (_STRETCH * 4) + PEEK & ~1
    looked_at = data[first : first + count * stretch].reshape(count, stretch)[:, :part].reshape(-1)
    number, at = np.divmod(candidates(looked_at), part)
    number, at = (column[at <= part - PEEK] for column in (number, at))
    at += first + number * stretch
    keep = gather(data, at + stated_at, ">i8") == at + origin
    number, at = number[keep], at[keep]
    keep = np.append(True, number[1:] != number[:-1])[: len(at)] & (at > first)
    return np.append(first, at[keep])


def _first_false(flags: Flags) -> int:
    return len(flags) if flags.all() else int(np.argmin(flags))


# --- the search -------------------------------------------------------------------------------------


def candidates(data: Bytes8, lead: int = 0) -> Ints:
    """Offsets in ``data`` where a message magic stands 4 bytes on, ascending; at least ``lead`` bytes in.

    ``data`` must begin on an even address (a buffer of its own does). Both magics share their first
    three bytes; an aligned 16-bit word holds two of them whether the magic begins on an even or an
    odd place, so one pass over aligned words finds all.
    """
    words = np.frombuffer(data, np.uint16, len(data) // 2)
    marked = words == _EVEN
    marked |= words == _ODD
    hits = rare_true(marked)
    at = hits * 2 - (words[hits] == _ODD)
    at = at[(at >= lead + _MAGIC_AT) & (at <= len(data) + _MAGIC_AT - PEEK)]
    at = at[is_message_magic(gather(data, at, ">u4"))]
    return at - _MAGIC_AT


def rare_true(flags: Flags) -> Ints:
    """Where a long array of flags is true, ascending; quick where few are, which are looked for eight at a time."""
    even = len(flags) & ~7
    groups = np.flatnonzero(flags[:even].view(np.uint64) != 0)
    inside = np.flatnonzero(flags[:even].reshape(-1, 8)[groups])
    found = groups[inside >> 3] * 8 + (inside & 7)
    rest = np.flatnonzero(flags[even:])
    return np.concatenate([found, rest + even]) if len(rest) else found


def is_message_magic(magic: npt.NDArray[np.uint32]) -> Flags:
    """Which values are the magic of a message, V1 or V2."""
    return (magic == _V1) | (magic == _V2)


def measure(data: Bytes8, at: Ints, limit: int, heads: npt.NDArray[Any] | None = None) -> Measured:
    """Lengths of the records at ``at``, each with a message magic and ``PEEK`` bytes inside ``data``.

    Args:
        limit: bytes from the start of ``data`` to the end of the file; no record crosses it.
        heads: their fixed headers, where they are known and all have the first layout.
    """
    total = (heads["total_size"] if heads is not None else gather(data, at, ">i4")).astype(np.int64)
    variant = np.zeros(len(at), np.int64) if heads is not None else _variants(data, at)
    head = by_variant(head_sizes(), variant)
    text = by_variant(_TEXT_SIZES, variant)
    fits = (total >= head + text + 2) & (at + total <= limit) & (total <= MAX_RECORD)
    seen = fits & (at + head <= len(data))
    needs = np.where(fits & ~seen, head, 0)
    body = _at_or(data, at + head - BODY_LENGTH, ">i4", seen, -1) if heads is None else heads["body"].astype(np.int64)
    sane = seen & (body >= 0) & (head + body + text + 2 <= total)
    inside = sane & (at + total <= len(data))
    needs = np.where(sane & ~inside, total, needs)
    topic_at = at + head + body
    topic = _at_or(data, topic_at, ">i1", inside, -1)
    if not isinstance(text, int) and (text == 2).any():
        topic = np.where(text == 1, topic, _at_or(data, topic_at, ">i2", inside, -1))
    named = inside & (topic >= 0) & (head + body + text + topic + 2 <= total)
    properties = _at_or(data, topic_at + text + topic, ">i2", named, -1)
    whole = named & (properties >= 0) & (head + body + text + topic + 2 + properties == total)
    return Measured(at, variant, total, body, topic, properties, whole, needs, heads)


def _variants(data: Bytes8, at: Ints) -> Ints:
    """Layout variant of each record, from its magic and SYSFLAG."""
    hosts = (gather(data, at + int(head_offsets("sys_flag")[0]), ">i4") >> HOST_SHIFT) & 3
    v2 = gather(data, at + _MAGIC_AT, ">u4") == _V2
    return hosts.astype(np.int64) | (v2.astype(np.int64) << 2)


def _at_or(data: Bytes8, at: Ints, dtype: str, where: Flags, otherwise: int) -> Ints:
    """Integers at ``at`` where ``where`` holds, ``otherwise`` elsewhere; never reads outside ``data``."""
    if where.all():
        return gather(data, at, dtype).astype(np.int64, copy=False)
    values = np.full(len(at), otherwise, np.int64)
    count = int(np.count_nonzero(where))
    rows = slice(count) if where[:count].all() else where
    values[rows] = gather(data, at[rows], dtype)
    return values


Read = Callable[[int, int], bytes]
"""Bytes at a place, counted from the start of the window; fewer where the file ends."""


def is_whole(read: Read, one: Measured, limit: int) -> bool:
    """Whether all lengths of the record that ``one`` measured add up, also where the window ends before it."""
    total, head, text = _sizes(one)
    at = int(one.at[0])
    body = _int_at(read, at + head - BODY_LENGTH, BODY_LENGTH)
    if body < 0 or head + body + text + 2 > total or total > min(limit - at, MAX_RECORD):
        return False
    topic = _int_at(read, at + head + body, text)
    if topic < 0 or head + body + text + topic + 2 > total:
        return False
    properties = _int_at(read, at + head + body + text + topic, 2)
    return properties >= 0 and head + body + text + topic + 2 + properties == total


def describe(read: Read, one: Measured, limit: int) -> str:
    """One sentence on why the record that ``one`` measured does not add up."""
    total, head, text = _sizes(one)
    at = int(one.at[0])
    if total < head + text + 2:
        return f"TOTALSIZE is {total}, less than the {head + text + 2} bytes of an empty message"
    if total > min(limit - at, MAX_RECORD):
        return f"TOTALSIZE is {total}, but the file ends after {limit - at} bytes"
    body = _int_at(read, at + head - BODY_LENGTH, BODY_LENGTH)
    if body < 0 or head + body + text + 2 > total:
        return f"BODYLEN is {body} in a record of {total} bytes"
    topic = _int_at(read, at + head + body, text)
    if topic < 0 or head + body + text + topic + 2 > total:
        return f"TOPICLEN is {topic} in a record of {total} bytes with a body of {body}"
    properties = _int_at(read, at + head + body + text + topic, 2)
    spans = head + body + text + topic + 2 + properties
    return f"TOTALSIZE is {total}, but the lengths inside add up to {spans} (PROPLEN {properties})"


def _sizes(one: Measured) -> tuple[int, int, int]:
    """TOTALSIZE, bytes of the fixed header, bytes of the topic's length."""
    variant = int(one.variant[0])
    return int(one.total_size[0]), int(head_sizes()[variant]), 1 + (variant >> 2)


def _int_at(read: Read, at: int, size: int) -> int:
    return int.from_bytes(read(at, size), "big", signed=True)


# --- whole records anywhere ---------------------------------------------------------------------------


_PART = 4 << 20
_NEAR, _FAR = 64 << 10, 8 << 20
"""Bytes in front of a place in which a record that reaches it may begin, where none lies in the place that it names;
how far the first of those is looked for.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What stands where a message magic does.

    Attributes:
        at: where its TOTALSIZE stands in the file.
        raw: the record; of one that is not whole the first bytes.
        is_whole: its lengths add up and its body has the CRC that it states; without a body its CRC is zero.
    """

    at: int
    raw: bytes
    is_whole: bool


def records_anywhere(
    source: ByteSource, base: int = -1, stretches: Sequence[tuple[int, int]] | None = None
) -> Iterator[Found]:
    """Yield every record of a file wherever it says that it lies, and what may be left of one, ascending.

    Args:
        base: physical offset of the first byte, -1 where nobody knows.
        stretches: only what overlaps one of these parts of the file, ascending; None: all.
    """
    size = source.size()
    wanted = sorted((max(a, 0), min(b, size)) for a, b in (stretches if stretches is not None else [(0, size)]))
    if not wanted:
        return
    begins, ends = np.array(wanted, np.int64).T
    for start, stop in _windows(source, base, wanted):
        data = np.frombuffer(source.read_at(start, min(stop - start + PEEK, size - start)), np.uint8)
        at = candidates(data)
        at = at[at + start < stop]
        total = gather(data, at, ">i4").astype(np.int64)
        fits = (total >= SMALLEST) & (total <= MAX_RECORD) & (at + start + total <= size)
        reach = np.where(fits, total, PEEK)
        first = np.minimum(np.searchsorted(ends, at + start, side="right"), len(ends) - 1)
        keep = (begins[first] < at + start + reach) & (ends[first] > at + start)
        yield from _proven(source, start, measure(data, at[keep], size - start), size)


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending ranges that do not overlap."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def lie_in(positions: Ints, ranges: Iterable[tuple[int, int]]) -> Flags:
    """Which of many positions lie in one of the ranges, shape (n,)."""
    bounds = np.array(merged(ranges), np.int64).reshape(-1, 2)
    row = np.searchsorted(bounds[:, 0], positions, side="right")
    return np.asarray((row > 0) & (positions < np.append(bounds[:, 1], 0)[row - 1]))


def outermost(source: ByteSource, base: int, stretches: Iterable[tuple[int, int]]) -> Iterator[Found]:
    """Yield the whole records that begin in some parts of a file, ascending; none that lies inside of another.

    Without a body only those at their place: lengths alone prove no other.

    Args:
        stretches: parts of the file in which the chain of its records has none that is sound.
    """
    stretches = merged(stretches)
    begins, end = [begin for begin, _ in stretches], 0
    for found in records_anywhere(source, base, stretches):
        row = bisect_right(begins, found.at) - 1
        if found.is_whole and row >= 0 and end <= found.at < stretches[row][1]:
            end = found.at + len(found.raw)
            block = block_of(found, "", base)
            if block.body_size[0] or int(block["physical_offset"][0]) == base + found.at:
                yield found


def block_of(found: Found, file: str, base: int) -> Block:
    """Return a whole record as a block, where it lies.

    Args:
        file, base: its name, and the physical offset of its first byte.
    """
    data = np.frombuffer(found.raw, np.uint8)
    m = measure(data, np.zeros(1, np.int64), len(found.raw))
    sizes = m.total_size, m.body_size, m.topic_size, m.properties_size
    return Block(file, base, found.at, data, m.at, m.variant, *sizes)


def whole_records(
    source: ByteSource, base: int = -1, stretches: Sequence[tuple[int, int]] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the whole ones among them, each with its place in the file."""
    return ((found.at, found.raw) for found in records_anywhere(source, base, stretches) if found.is_whole)


def whole_among(files: Iterable[StoreFile], ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Whole records of a log that overlap some ranges of physical offsets, with the offsets at which they lie."""
    wanted = sorted(ranges)
    farthest = list(accumulate((end for _, end in wanted), max))
    for file in files:
        first, last = bisect_right(farthest, file.base), bisect_left(wanted, (file.base + file.size,))
        inside = ((max(a - file.base, 0), min(b - file.base, file.size)) for a, b in wanted[first:last])
        if stretches := [(begin, end) for begin, end in inside if begin < end]:
            with closing(file.open()) as source:
                yield from ((file.base + at, raw) for at, raw in whole_records(source, file.base, stretches))


def is_whole_record(raw: bytes) -> bool:
    """Whether the bytes are exactly one record that is whole by its own proof."""
    return any(at == 0 and len(found) == len(raw) for at, found in whole_records(BytesSource(raw), stretches=[(0, 1)]))


def _proven(source: ByteSource, start: int, measured: Measured, size: int) -> Iterator[Found]:
    """Yield what stands at each candidate of a window."""

    def read(place: int, count: int) -> bytes:
        return source.read_at(start + place, count)

    for row in range(len(measured.at)):
        one, place = measured.take(slice(row, row + 1)), int(measured.at[row])
        adds_up = bool(one.whole[0]) or (bool(one.needs[0]) and is_whole(read, one, size - start))
        raw = read(place, int(one.total_size[0])) if adds_up else b""
        if raw and _has_proof(raw, one):
            yield Found(place + start, raw, is_whole=True)
        else:
            yield Found(place + start, raw[:PEEK] or read(place, PEEK), is_whole=False)


def _windows(source: ByteSource, base: int, wanted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Parts of a file in which records may begin that overlap the stretches; holes are left out."""
    done = 0
    for low, end in _reaches(source, base, wanted):
        for data_from, data_to in source.data_ranges(low, end):
            at = max(data_from - PEEK, low, done)
            while at < min(data_to, end):
                stop = min(at + _PART, data_to, end)
                yield at, stop
                at = done = stop


def _reaches(source: ByteSource, base: int, wanted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Parts of a file in which the records begin that overlap the stretches, ascending; stretches near each other share
    one, of some windows at most.
    """
    low = done = 0
    for begin, end in wanted:
        if begin - done > _NEAR or done - low > _PART:
            if done > low:
                yield low, done
            low = done if begin - done <= _NEAR else max(_in_front(source, base, begin), done)
        done = max(done, end)
    if done > low:
        yield low, done


def _in_front(source: ByteSource, base: int, begin: int) -> int:
    """Return a place in front of which no record begins that reaches beyond ``begin``: that of a record at home."""
    low = max(begin - _NEAR, 0)
    data = np.frombuffer(source.read_at(low, begin - low), np.uint8)
    found = records_at(data, low, base, len(data)) if base >= 0 else nothing_measured()
    for at, size in zip(found.at[found.whole].tolist(), found.total_size[found.whole].tolist(), strict=True):
        if _has_proof(data[at : at + size].tobytes(), found.take(found.at == at)):
            return low + int(at)
    return max(begin - _FAR, 0)


def _has_proof(raw: bytes, one: Measured) -> bool:
    """Whether the body of a record has the CRC that the record states."""
    head = int(head_sizes()[int(one.variant[0])])
    size = int.from_bytes(raw[head - BODY_LENGTH : head], "big")
    return int.from_bytes(raw[CRC_SPAN], "big") == (crc32(raw[head : head + size]) & MASK if size else 0)
