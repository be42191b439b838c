"""Messages of a queue from an offset on: as one `getMessage` call of a broker answers, or across files (spec 8.1).

Sources: DefaultMessageStore.getMessage of 4.5.2 to 5.3.3. A broker gives fewer messages of records that it takes to
be on disk; here all count as being in memory, as they do for anyone who reads near the end of the log.

The broker filters by tag with the code in the queue unit, or in the extension unit it leads to (spec 3.2, 3.5). As
rows the answer has the broker's status, the messages, and why one is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from formats.layout import plan_of
from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE, MAX_EXT_ADDRESS
from formats.rocketmq.consumequeue_ext import ConsumeQueueExtUnit
from formats.rocketmq.properties import split_properties
from formats.rocketmq.tags_code import tags_code
from rmqctl.explain import Trace
from rmqctl.release import Release
from rmqctl.rocketmq.dump.record import RowOptions
from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.query.units import UNIT_SIZE, Unit
from rmqctl.rocketmq.store.files import QUEUES_EXT, sequence
from rmqctl.rocketmq.store.geometry import integer

_EXT_HEAD = plan_of(ConsumeQueueExtUnit).runs[0].only("size", "tags_code")


def fits_tag(view: QueueView, unit: Unit, tag: str | None, file: str, trace: Trace) -> bool:
    """Whether a broker gives the unit to a consumer of the tag: the low 32 bits of the code are those of the tag."""
    if tag is None or tag == "*":
        return True
    code, wanted = real_tags_code(view, unit), tags_code(tag)
    if code is None or (code ^ wanted) & 0xFFFFFFFF == 0:
        return True
    trace.add(file, f"unit {unit.queue_offset}", f"tag code {code}, not {wanted} of {tag}; dropped")
    return False


def real_tags_code(view: QueueView, unit: Unit) -> int | None:
    """Return the code of the tag; None where its extension unit is not there: a broker lets that pass."""
    code = unit.tags_code
    if code is None:
        fields = view.log.fields(unit.physical_offset) or {"properties": b""}
        return tags_code(_tag_text(fields["properties"]))
    return _extended(view, code) if code <= MAX_EXT_ADDRESS and not view.is_batch else code


def _tag_text(properties: bytes) -> str | None:
    tags = dict(split_properties(properties)).get(b"TAGS")
    return None if tags is None else tags.decode("utf-8", "replace")


def _extended(view: QueueView, address: int) -> int | None:
    """Return the code in the extension unit at an address (spec 3.5)."""
    at = address - EXT_ADDRESS_BASE
    path = f"{QUEUES_EXT}/{view.topic}/{view.queue_id}"
    for file in sequence(view.store.tree, path, path)[0]:
        if file.base <= at < file.base + file.size:
            source = file.open()
            data = source.read_at(at - file.base, _EXT_HEAD.size)
            source.close()
            size, code = _EXT_HEAD.unpack(data) if len(data) == _EXT_HEAD.size else (0, 0)
            return int(code) if size > 0 else None
    return None


# --- messages of a queue from an offset on ----------------------------------------------------------


FOUND, NO_MATCH, REMOVING = "FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING"
NULL, EMPTY = "OFFSET_FOUND_NULL", "NO_MESSAGE_IN_QUEUE"
TOO_SMALL, OVERFLOW_ONE, OVERFLOW_BADLY = "OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY"

PULL_COUNT = 32
"""Messages that a consumer asks for in one call, by default."""
_BADLY_TO_MIN_UNTIL = Release(4, 9, 3)
_BYTES_SINCE, _LIMIT_EXACT_SINCE = Release(5, 1, 0), Release(5, 3, 3)
_EXAMINED_BYTES = 16000
IN_VAIN = _EXAMINED_BYTES // UNIT_SIZE
MAX_PULL = 128 << 20
_MEMORY_BYTES, _MEMORY_COUNT = 262_144, 32


@dataclass(slots=True)
class GetMessage:
    """The answer.

    Attributes:
        status: the broker's word (GetMessageStatus).
        next_offset: where a consumer goes on.
        units: of the messages, ascending.
    """

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    units: list[Unit] = field(default_factory=list)
    bytes: int = 0
    count: int = 0

    def row(self) -> dict[str, object]:
        """As the JSON object of the contract."""
        names = ("status", "next_offset", "min_offset", "max_offset")
        return {"kind": "status", **{name: getattr(self, name) for name in names}}


def get_message(
    view: QueueView,
    offset: int,
    count: int = PULL_COUNT,
    tag: str | None = None,
    trace: Trace | None = None,
    *,
    max_pull: int = MAX_PULL,
) -> GetMessage:
    """Return what one call of a broker of the view's release returns; it ends with the queue file at the latest.

    Args:
        count: messages asked for (maxMsgNums).
        tag: only units with the hash of this tag, as the broker filters; consumers compare the text afterwards.
        max_pull: bytes of one answer at the most, from 5.x on.
    """
    trace = trace or Trace(on=False)
    answer = _outside(view, offset, trace)
    if answer is not None:
        return answer
    answer = GetMessage(NO_MATCH, offset, view.min_offset, view.max_offset)
    place = view.at(offset)
    if place is None:
        answer.status, answer.next_offset = NULL, _next_file(view, offset)
        trace.add("", f"offset {offset}", f"no queue file holds it; a consumer goes on at {answer.next_offset}")
        return answer
    units = (place[0].unit(n) for n in range(place[1], len(place[0])))
    _Call(view, offset, count, tag, trace, answer, place[0].name, max_pull).run(units)
    return answer


def browse(
    view: QueueView,
    offset: int,
    count: int = 1,
    tag: str | None = None,
    trace: Trace | None = None,
    *,
    in_vain: int = IN_VAIN,
) -> GetMessage:
    """``count`` messages from an offset on, across files and without a broker's limits; fillers are passed over.

    Args:
        in_vain: units in a row without a readable record, after which it ends; default: as many as a broker examines.
    """
    trace = trace or Trace(on=False)
    answer = _outside(view, offset, trace)
    if answer is not None:
        return answer
    answer = GetMessage(NO_MATCH, offset, view.min_offset, view.max_offset)
    unread = 0
    for name, unit in units_from(view, offset):
        if answer.count >= count or unread >= in_vain:
            break
        answer.next_offset = unit.queue_offset + unit.count
        if unit.is_filler:
            trace.add(name, f"unit {unit.queue_offset}", "a filler; passed over")
        elif fits_tag(view, unit, tag, name, trace):
            unread = 0 if _take(view, answer, unit, name, trace) else unread + 1
    else:
        answer.next_offset = max(answer.next_offset, view.max_offset)
    return answer


def units_from(view: QueueView, offset: int) -> Iterator[tuple[str, Unit]]:
    """Units of a queue from an offset on, each with the name of its file; holes between files are left out."""
    position = offset * UNIT_SIZE
    start = view.at(offset)
    for file in view.files:
        if start is not None and file is start[0]:
            yield from ((file.name, file.unit(n)) for n in range(start[1], len(file)))
        elif file.base > (start[0].base if start else position):
            yield from ((file.name, unit) for unit in file)


def _outside(view: QueueView, offset: int, trace: Trace) -> GetMessage | None:
    """Return the answer for an offset where the queue has nothing; None for one inside."""
    answer = _beyond(view, offset)
    if answer is not None:
        trace.add("", f"offset {offset}", f"{answer.status}: the queue is [{view.min_offset}, {view.max_offset})")
    return answer


def _beyond(view: QueueView, offset: int) -> GetMessage | None:
    low, high = view.min_offset, view.max_offset
    if high == 0:
        return GetMessage(EMPTY, 0, low, high)
    if offset < low:
        return GetMessage(TOO_SMALL, low, low, high)
    if offset == high:
        return GetMessage(OVERFLOW_ONE, offset, low, high)
    if offset > high:
        to_min = low == 0 and view.release <= _BADLY_TO_MIN_UNTIL
        return GetMessage(OVERFLOW_BADLY, low if to_min else high, low, high)
    return None


def _next_file(view: QueueView, offset: int) -> int:
    """``rollNextFile``: the first offset of the next file; batch and RocksDB queues answer 0."""
    if view.is_batch or not view.files:
        return 0
    units = view.files[0].capacity
    return offset + units - offset % units


def _take(view: QueueView, answer: GetMessage, unit: Unit, file: str, trace: Trace) -> bool:
    """Add a unit's message, where its record can be read."""
    if not view.is_readable(unit):
        if not answer.units:
            answer.status = REMOVING
        trace.add(file, f"unit {unit.queue_offset}", f"record at {unit.physical_offset} cannot be read; dropped")
        return False
    if trace.on:
        trace.add(file, f"unit {unit.queue_offset}", f"record at {unit.physical_offset}, {unit.size} bytes; kept")
    answer.units.append(unit)
    answer.status, answer.bytes, answer.count = FOUND, answer.bytes + unit.size, answer.count + unit.count
    return True


@dataclass(slots=True)
class _Call:
    """One call of getMessage inside one queue file."""

    view: QueueView
    offset: int
    wanted: int
    tag: str | None
    trace: Trace
    answer: GetMessage
    file: str
    max_pull: int
    skip_before: int = -1  # physical offset; after an unreadable record a broker goes on with the next log file

    def run(self, units: Iterator[Unit]) -> None:
        """Examine units until the call ends; ``next_offset`` is after the last one examined."""
        for examined, unit in enumerate(units):
            end = self._end(examined, unit)
            if end:
                self.trace.add(self.file, f"unit {unit.queue_offset}", f"{end}; the call ends in front of it")
                return
            self.answer.next_offset = self._after(examined, unit)
            if unit.physical_offset < self.skip_before:
                self.trace.add(self.file, f"unit {unit.queue_offset}", "its record is in the same log file; dropped")
            elif fits_tag(self.view, unit, self.tag, self.file, self.trace):
                taken = _take(self.view, self.answer, self._as_read(unit), self.file, self.trace)
                self.skip_before = -1 if taken else self._next_log_file(unit.physical_offset)
        self.trace.add(self.file, "end of the queue file", "the call ends")

    def _as_read(self, unit: Unit) -> Unit:
        """Return a broker looks for offset 0 in the first file of the log, whatever its name
        (``CommitLog.getMessage``).

        So a unit of the very first message gives, where that has expired, as many bytes of the oldest file.
        """
        begin = self.view.log_begin
        if unit.physical_offset or not begin:
            return unit
        self.trace.add(self.file, f"unit {unit.queue_offset}", f"offset 0 is read from the first file, at {begin}")
        return replace(unit, physical_offset=begin)

    def _after(self, examined: int, unit: Unit) -> int:
        """4.x counts the units it went through, 5.x takes the unit's own offset."""
        return unit.queue_offset + unit.count if self.view.is_5 else self.offset + examined + 1

    def _end(self, examined: int, unit: Unit) -> str:
        """Why the call ends in front of a unit; "" where it goes on."""
        if self.view.is_5 and self.answer.next_offset >= self.view.max_offset:
            return "end of the queue"
        if self._is_far(examined, unit):
            return "enough units were examined"
        # up to 4.9.8 units that are passed over after an unreadable record come before the test
        passed_over = not self.view.is_5 and unit.physical_offset < self.skip_before
        return "" if passed_over else self._is_full(unit)

    def _is_far(self, examined: int, unit: Unit) -> bool:
        size, release = self.view.unit_size, self.view.release
        limit = max(_EXAMINED_BYTES, self.wanted * size)
        if not self.view.is_5:
            return examined * UNIT_SIZE >= limit
        passed = unit.queue_offset - self.offset
        if release < _BYTES_SINCE:
            return passed > max(_EXAMINED_BYTES, self.wanted * UNIT_SIZE)
        return passed * size >= limit if release >= _LIMIT_EXACT_SINCE else passed * size > limit

    def _is_full(self, unit: Unit) -> str:
        """``isTheBatchFull``; never in front of the first message."""
        answer, settings = self.answer, self.view.store.settings
        if not answer.units:
            return ""
        if answer.count + (unit.count if self.view.is_5 else 1) > self.wanted:
            return f"{answer.count} messages of {self.wanted} are found"
        size = answer.bytes + unit.size
        most = integer(settings, "maxTransferBytesOnMessageInMemory") or _MEMORY_BYTES
        if (self.view.is_5 and size > self.max_pull) or size > most:
            return f"the messages would be {size} bytes, and {most} is the limit"
        many = integer(settings, "maxTransferCountOnMessageInMemory") or _MEMORY_COUNT
        return f"{answer.count} messages are the limit" if answer.count > many - 1 else ""

    def _next_log_file(self, physical: int) -> int:
        file = self.view.log.files[0] if self.view.log.files else None
        size = file.size if file and file.size > 0 else 1
        return physical + size - physical % size


# --- the answer to a question by queue offset as rows -----------------------------------------------


Wanted = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class OffsetQuestion:
    """What is asked.

    Attributes:
        count: messages wanted; None: one, or with ``one_call`` as many as a consumer asks for.
        tag: only messages of this tag: by code as the broker compares it, then by text as the consumer does.
        one_call: answer as one `getMessage` call does, which ends with the queue file.
        wanted: which records pass besides.
        explain: add the steps, and the sentence that says what is missing.
    """

    offset: int
    count: int | None = None
    tag: str | None = None
    one_call: bool = False
    explain: bool = False
    show: RowOptions = field(default_factory=RowOptions)
    wanted: Wanted | None = None
