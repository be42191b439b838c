"""Writing salvaged records through the store engine: new places, the same messages."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from formats.rocketmq.message import decode_record, encode_record, record_plan
from formats.rocketmq.properties import PAIR_END, is_closed, join_properties, split_properties
from formats.rocketmq.property_crc import property_crc, property_crc_bytes, stored_property_crc
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import BLANK_ROOM
from rmqctl.rocketmq.log.reader import LogReader
from rmqctl.rocketmq.repair.placeholder import Setting, placeholder
from rmqctl.rocketmq.repair.queue_references import Claim
from rmqctl.rocketmq.salvage.gather import NO_QUEUE, Records
from rmqctl.rocketmq.store.files import StoreFile

_QUEUE_OFFSET_AT, _PHYSICAL_AT = 20, 28
_LONG = struct.Struct(">q")
_RUN = 1 << 20
_DISPATCH_EVERY = 1 << 15
_CRC_SIZE = 20
_HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
_COMMIT, _TYPE = 0x8, 0xC
_ROOM = 256
MOST_PLACEHOLDERS = 1 << 20


@dataclass(slots=True)
class Written:
    """What was written.

    Attributes:
        messages: records, placeholders apart; bytes: of them.
        placeholders: records that stand for messages no source has any more.
        renumbered: messages that got another queue offset.
        holes: queues whose missing messages were too many for placeholders: topic, queue id, first and next offset.
    """

    messages: int = 0
    bytes: int = 0
    placeholders: int = 0
    renumbered: int = 0
    holes: list[tuple[str, int, int, int]] = field(default_factory=list)


class Writer:
    """Copies records into an engine's log.

    Args:
        keys: topic and queue id by number.
        sources: files of each source's log.
        keep: queue offsets stay as they are; else every queue counts from 0.
    """

    def __init__(
        self, engine: StoreEngine, keys: Sequence[tuple[str, int]], sources: Sequence[list[StoreFile]], *, keep: bool
    ) -> None:
        self.engine, self.keys, self.keep = engine, keys, keep
        self.readers = [LogReader(files) for files in sources]
        self.written = Written()
        self._seen: set[int] = set()
        self._halves: dict[tuple[int, int], int] = {}
        self._run, self._time, self._waiting = bytearray(), 0, 0

    def write(self, records: Records, *, keep: bool | None = None, advance: Callable[[int], object]) -> None:
        """Append records in their order.

        Args:
            keep: as for the whole, unless said here.

        Raises:
            IOFailure: the system refuses to write.
            OSError: a source cannot be read.
        """
        keep = self.keep if keep is None else keep
        names = ("source", "file", "physical", "size", "queue", "queue_offset", "messages", "store_timestamp")
        for row in zip(*(records[name].tolist() for name in names), strict=True):
            self._record(*row, keep=keep)
            advance(row[3])
        self._flush()

    def put(self, queue: int, offset: int, data: bytes, time: int) -> None:
        """Append a record made elsewhere, of one message; what is missing in front of it in its queue is filled.

        Args:
            queue: its number; :attr:`keys` may have grown.
            data: with the queue offset; its place in the log is set here.
            time: its store time, ms.

        Raises:
            IOFailure: the system refuses to write.
        """
        self._time = time
        self._append(self._numbered(bytearray(data), queue, offset, 1, keep=True), -1)
        self.written.messages += 1
        self.written.bytes += len(data)

    def fill_to(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Bring counters of queues to where they were, so that no broker gives an offset away a second time.

        A queue of which nothing was saved gets one placeholder, in front of its next offset.
        """
        numbers = {key: number for number, key in enumerate(self.keys)}
        self.engine.dispatch()
        for key, end in ends.items():
            following = max(
                self.engine.log.queues.next(*key), self.engine.offsets(*key)[1]
            )  # light queues: by dispatch
            number = numbers.get(key)
            if self.keep and following < end:
                first = following if number in self._seen else end - 1
                self.engine.log.queues.advance(*key, first - following)
                self._fill(key, first, end)
                self.engine.log.queues.advance(*key, end - first)
        self._flush()

    def close(self) -> None:
        """Close the sources."""
        for reader in self.readers:
            reader.close()

    def _record(
        self,
        source: int,
        file: int,
        physical: int,
        size: int,
        queue: int,
        offset: int,
        messages: int,
        time: int,
        *,
        keep: bool,
    ) -> None:
        data = _with_sound_properties(bytearray(self.readers[source].read_from(file, physical, size)))
        self._time = time
        if queue != NO_QUEUE:
            data = self._numbered(data, queue, offset, messages, keep=keep)
        place = self._append(data, source)
        if queue != NO_QUEUE and self.keys[queue][0] == _HALF:
            self._halves[source, physical] = place
        self.written.messages += 1
        self.written.bytes += len(data)

    def _numbered(self, data: bytearray, queue: int, offset: int, messages: int, *, keep: bool) -> bytearray:
        """The record with the queue offset it is to have; missing ones in front of it are filled."""
        topic, queue_id = self.keys[queue]
        queues = self.engine.log.queues
        following = queues.next(topic, queue_id)
        if keep and offset >= following:
            if queue in self._seen:
                self._fill(self.keys[queue], following, offset)
            queues.advance(topic, queue_id, offset - queues.next(topic, queue_id))
        elif offset != following:
            self.written.renumbered += messages
            data = _with_offset(data, following)
        self._seen.add(queue)
        queues.advance(topic, queue_id, messages)
        return data

    def _fill(self, queue: tuple[str, int], first: int, stop: int) -> None:
        """Placeholders for the messages ``first`` up to ``stop`` of a queue."""
        topic, queue_id = queue
        if stop - first > MOST_PLACEHOLDERS:
            self.written.holes.append((topic, queue_id, first, stop))
            return
        host = self.engine.config.store_host
        crc = self.engine.config.property_crc
        setting = Setting(self._time, host.ip if len(host.ip) == 4 else b"\x7f\0\0\1", host.port, crc)
        batch = self.engine.rules.is_batch_topic(topic.encode("utf-8", "surrogateescape"))
        size = _ROOM + len(topic.encode("utf-8", "surrogateescape"))
        for offset in range(first, stop):
            claim = Claim(topic, queue_id, offset, self._place(size), batch=1 if batch else 0)
            record = placeholder(claim, size, setting)
            if record is not None:
                self._append(bytearray(record), -1)
                self.written.placeholders += 1

    def _place(self, size: int) -> int:
        """Where a record of so many bytes goes; what waits is written where it does not fit behind it."""
        log = self.engine.log
        at = log.wrote + len(self._run)
        if size + BLANK_ROOM > log.files.file_size - at % log.files.file_size:
            self._flush()
            with log.locked():
                return log.room(size)
        return at

    def _append(self, data: bytearray, source: int) -> int:
        """Give the record its place and put it behind the others; the physical offset."""
        place = self._place(len(data))
        _LONG.pack_into(data, _PHYSICAL_AT, place)
        self._mend_half(data, source)
        if stored_property_crc(bytes(data)) is not None:
            data[-_CRC_SIZE:] = property_crc_bytes(property_crc(bytes(data)))
        self._run += data
        self._waiting += 1
        if len(self._run) >= _RUN:
            self._flush()
        return place

    def _mend_half(self, data: bytearray, source: int) -> None:
        """A committed message names the place of its half message, which has moved (spec 2.12)."""
        flags = int.from_bytes(data[36:40], "big")
        if flags & _TYPE != _COMMIT:
            return
        run = record_plan(data[7] == 0xAB, flags & 0x30).runs[0]
        at = next(f.offset for f in run.fields if f.name == "prepared_transaction_offset")
        moved = self._halves.get((source, _LONG.unpack_from(data, at)[0]))
        if moved is not None:
            _LONG.pack_into(data, at, moved)

    def _flush(self) -> None:
        """Write what waits; now and then, let queues and index follow."""
        log = self.engine.log
        if self._run:
            with log.locked():
                log.append_bytes(memoryview(self._run), log.wrote + len(self._run), self._time)
            self._run = bytearray()
        if self._waiting >= _DISPATCH_EVERY:
            self._waiting = 0
            self.engine.dispatch()


def _with_sound_properties(data: bytearray) -> bytearray:
    """The record without what follows a zero byte in its properties: no encoder writes one (spec 14)."""
    fields, _ = decode_record(bytes(data))
    text = fields["properties"]
    if 0 not in text:
        return data
    whole = text[: max(text.rfind(PAIR_END, 0, text.index(0)), -1) + 1]
    fields["total_size"] += len(whole) - len(text)
    fields["properties"] = whole
    return bytearray(encode_record(fields))


def _with_offset(data: bytearray, offset: int) -> bytearray:
    """The record with another queue offset, also where an inner batch says it in its properties."""
    fields, _ = decode_record(bytes(data))
    pairs = split_properties(fields["properties"])
    fields["queue_offset"] = offset
    if any(name == b"INNER_BASE" for name, _ in pairs):
        changed = [(n, b"%d" % offset if n == b"INNER_BASE" else v) for n, v in pairs]
        text = join_properties(changed, closed=is_closed(fields["properties"]))
        fields["total_size"] += len(text) - len(fields["properties"])
        fields["properties"] = text
    return bytearray(encode_record(fields))
