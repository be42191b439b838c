"""What the official dump tool (``kafka-dump-log.sh``) of a release prints of a file, line by line (spec 16.1).

It differs where the tool gives up: corrupt frames, entries that point nowhere and missing files are reported, and
the dump goes on. What the tool says on stderr at its end is kept in :attr:`OfficialDump.reports`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formats.errors import DecodeError
from formats.kafka.internal_records import decode_control
from formats.kafka.record_batch import MARKER_SIZE, Attributes, Codec, ControlType, control_type, coordinator_epoch
from rmqctl.findings import Severity
from rmqctl.kafka.directory.directory import LogFile, Partition
from rmqctl.kafka.directory.file_names import BOOTSTRAP, FileKind
from rmqctl.kafka.dump.official_indexes import IndexDump
from rmqctl.kafka.dump.official_values import (
    JAVA_TOOL,
    JSON_COORDINATORS,
    TOPICS,
    Texts,
    decoder_of,
    java_text,
    to_json,
)
from rmqctl.kafka.dump.segments import extent_of
from rmqctl.kafka.log.block import Block
from rmqctl.kafka.log.codecs import codec_name
from rmqctl.kafka.log.gaps import gap_finding
from rmqctl.kafka.log.legacy import read_message, unwrap
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.log.scan import scan
from rmqctl.release import Release

DEFAULT_RELEASE = Release(4, 3, 0)
DUMPED = (
    FileKind.LOG, FileKind.KRAFT_SNAPSHOT, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.PRODUCER_SNAPSHOT,
    FileKind.TXN_INDEX,
)  # fmt: skip

_LONG_RECORDS, _LOWER_CODECS, _HORIZON = Release(2, 8, 0), Release(3, 0, 0), Release(3, 2, 0)
_KRAFT = Release(3, 3, 0)
_SHOWN = int(Attributes.TRANSACTIONAL), int(Attributes.CONTROL)
_WITH_HORIZON = int(Attributes.DELETE_HORIZON)
_CONTROL_WORDS = {3: "SnapshotHeader", 4: "SnapshotFooter", 5: "KRaftVersion", 6: "KRaftVoters"}
_CONTROL_TYPES = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the official tool, by its names.

    Attributes:
        decoders: options that choose decoders; each is for its own topic where a whole directory is dumped.
        max_bytes: read only so many bytes of a segment; None: all.
    """

    deep_iteration: bool = False
    print_data_log: bool = False
    decoders: tuple[str, ...] = ()
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int | None = None
    max_message_size: int = 5 << 20

    @property
    def prints(self) -> bool:
        """Whether keys and payloads are printed."""
        return self.print_data_log or bool(self.decoders)

    @property
    def is_deep(self) -> bool:
        """Whether records are printed."""
        return self.deep_iteration or self.prints

    def decoder_for(self, topic: str | None, *, is_alone: bool) -> str | None:
        """Return the option whose decoder reads a file's records: the tool's first, or the one for the topic."""
        asked = [option for option in TOPICS if option in self.decoders]
        if is_alone:
            return next(iter(asked), None)
        return next((option for option in asked if TOPICS[option] == topic), None)


@dataclass
class OfficialDump:
    """Prints files as the tool of a release does.

    Attributes:
        reports: what the tool says at its end, by kind, a line each.
        is_damaged: something was wrong with what was printed so far.
    """

    options: Options
    release: Release = DEFAULT_RELEASE
    reports: list[str] = field(default_factory=list)
    is_damaged: bool = False

    def __post_init__(self) -> None:
        self.is_java = self.release >= JAVA_TOOL
        self.indexes = IndexDump(self.options, self.release)

    def lines(self, partition: Partition | None, file: LogFile, shown: str, *, is_alone: bool) -> Iterator[str]:
        """Yield the lines of one file.

        Args:
            shown: the file's name as the user knows it.
            is_alone: it is all that is dumped.
        """
        yield f"Dumping {shown}"
        if file.is_leftover or file.kind not in DUMPED:
            self.reports.append(f"Ignoring unknown file {shown}")
        elif file.kind in {FileKind.LOG, FileKind.KRAFT_SNAPSHOT}:
            option = self.options.decoder_for(partition.topic if partition else None, is_alone=is_alone)
            yield from _LogText(self, file, shown, option).lines()
        else:
            yield from self.indexes.lines(partition, file, shown)

    def end(self) -> list[str]:
        """Return what is said after the last file, on stderr."""
        self.is_damaged = self.is_damaged or self.indexes.is_damaged
        return [*self.indexes.reports(), *self.reports]


class _LogText:
    """The lines of one segment or snapshot."""

    def __init__(self, dump: OfficialDump, file: LogFile, shown: str, option: str | None) -> None:
        self.dump, self.file, self.shown = dump, file, shown
        self.options, self.release = dump.options, dump.release
        self.decode = decoder_of(option, dump.release)
        self.last_offset = -1
        self.jumps: list[tuple[int, int]] = []

    def lines(self) -> Iterator[str]:
        yield self._head()
        name, end = self.file.name.rpartition("/")[2], 0
        tail: int | None = None
        source = self.file.open()
        try:
            size = source.size()
            for block in scan(source, extent_of(self.file)):
                yield from self._block(block)
                for gap in block.gaps:
                    finding = gap_finding(block.file, gap, None)
                    self.dump.is_damaged |= finding.level is not Severity.NOTE
                    if not gap.resumed:
                        tail = gap.position if tail is None else tail
                    elif self.options.max_bytes is None or gap.position < self.options.max_bytes:
                        yield f"Found {finding.size} invalid bytes at position {gap.position} of {name}: {gap.detail}"
                end = block.start + len(block.data)
                if self.options.max_bytes is not None and end >= self.options.max_bytes:
                    break
        finally:
            source.close()
        if tail is not None and self.options.max_bytes is None:
            yield f"Found {size - tail} invalid bytes at the end of {name}"
        self._report()

    def _head(self) -> str:
        name = self.file.name.rpartition("/")[2]
        if self.file.kind is FileKind.LOG:
            word = "Log starting offset" if self.release >= _KRAFT else "Starting offset"
            return f"{word}: {self.file.base}"
        if name == BOOTSTRAP:
            return "KRaft bootstrap snapshot"
        return f"Snapshot end offset: {self.file.base}, epoch: {self.file.meaning.epoch}"

    def _block(self, block: Block) -> Iterator[str]:
        if self.options.max_bytes is not None:
            block = block.take(block.position + block.size <= self.options.max_bytes)
        self.dump.is_damaged |= bool((~block.crc_ok).any() or (block.magic > 2).any())
        yield from self._with_records(block) if self.options.is_deep else self._batch_lines(block)

    def _batch_lines(self, block: Block) -> Iterator[str]:
        columns = [
            block[name].tolist()
            for name in (
                "base_offset", "last_offset", "records_count", "base_sequence", "last_sequence", "producer_id",
                "producer_epoch", "partition_leader_epoch", "attributes", "base_timestamp", "max_timestamp", "crc",
            )
        ]  # fmt: skip
        places = zip(
            block.position.tolist(), block.size.tolist(), block.magic.tolist(), block.crc_ok.tolist(), strict=True
        )
        with_horizon = self.release >= _HORIZON
        for numbers, (position, size, magic, is_valid) in zip(zip(*columns, strict=True), places, strict=True):
            base, last, count, first, final, producer, epoch, leader, attributes, base_time, time, crc = numbers
            if magic >= 2:
                until = base_time if attributes & _WITH_HORIZON else -1
                horizon = f" deleteHorizonMs: {_optional(until)}" if with_horizon else ""
                transactional, control = (_bool(attributes & one) for one in _SHOWN)
                head = (
                    f"baseOffset: {base} lastOffset: {last} count: {count} baseSequence: {first} lastSequence: {final} "
                    f"producerId: {producer} producerEpoch: {epoch} partitionLeaderEpoch: {leader} "
                    f"isTransactional: {transactional} isControl: {control}{horizon}"
                )
            else:
                head = f"offset: {last}"
            yield (
                f"{head} position: {position} {_time_type(attributes, magic)}: {time} size: {size} magic: {magic} "
                f"compresscodec: {self._codec(attributes)} crc: {crc} isvalid: {_bool(is_valid)}"
            )

    def _codec(self, attributes: int) -> str:
        name = codec_name(attributes & int(Attributes.CODEC))
        return name if self.release >= _LOWER_CODECS else name.upper()

    # --- records ------------------------------------------------------------------------------------

    def _with_records(self, block: Block) -> Iterator[str]:
        """Yield the lines of batches, each with those of its records, which are decoded some at a time."""
        heads = enumerate(self._batch_lines(block))
        modern = np.flatnonzero(~block.is_legacy)

        def up_to(last: int) -> Iterator[str]:
            for row, line in heads:
                yield line
                if block.is_legacy[row]:
                    yield from self._messages(block, row)
                if row == last:
                    return

        done = -1
        for records in records_of(block.take(modern)):
            for number in sorted({*np.unique(records.batch).tolist(), *records.failures}):
                row = int(modern[number])
                if row > done:
                    yield from up_to(row)
                done = max(row, done)
                start, stop = np.searchsorted(records.batch, [number, number + 1]).tolist()
                yield from self._modern(records, number, range(start, stop))
        yield from up_to(-1)

    def _modern(self, records: Records, batch: int, rows: range) -> Iterator[str]:
        block = records.block
        attributes = int(block["attributes"][batch])
        time_type, is_control = _time_type(attributes, 2), bool(attributes & int(Attributes.CONTROL))
        long = self._long_fields(block, batch) if self._is_long else None
        looks = self.options.prints or is_control
        for index in rows:
            key, value = (records.key(index), records.value(index)) if looks else (None, None)
            offset, time = int(records.offset[index]), int(records.timestamp[index])
            sizes = f"keySize: {records.key_size[index]} valueSize: {records.value_size[index]}"
            if long is None:
                line = f"| offset: {offset} {time_type}: {time} {sizes}"
            else:
                line = f"| offset: {offset} isValid: true crc: null {sizes} {time_type}: {time} {long}"
            names = ",".join(java_text(name) for name, _ in records.headers_of(index))
            line += f" sequence: {records.sequence[index]} headerKeys: [{names}]"
            if is_control:
                line += self._control(key, value)
            yield self._with_contents(line, offset, key, value, is_control=is_control)
        if batch in records.failures:
            self.dump.is_damaged = True
            yield f"| the records of this batch cannot be read: {records.failures[batch]}"

    def _messages(self, block: Block, row: int) -> Iterator[str]:
        raw: Any = block.raw(row)
        try:
            outer = read_message(raw, 0, len(raw))
            wrapped = None if outer.codec == Codec.NONE else unwrap(raw, outer)
        except DecodeError as error:
            self.dump.is_damaged = True
            yield f"| the records of this batch cannot be read: {error}"
            return
        data = raw if wrapped is None else wrapped.data
        time_type = _time_type(int(block["attributes"][row]), int(block.magic[row]))
        for m in wrapped or [outer]:
            is_valid = _bool(_message_crc(data[m.crc_range]) == m.crc)
            key, value = _cut(data, m.key_at, m.key_size), _cut(data, m.value_at, m.value_size)
            sizes = f"keySize: {m.key_size} valueSize: {m.value_size}"
            if self._is_long:
                long = self._long_fields(block, row)
                line = (
                    f"| offset: {m.offset} isValid: {is_valid} crc: {m.crc} {sizes} {time_type}: {m.timestamp} {long} "
                    f"crc: {m.crc} isvalid: {is_valid}"
                )
            else:
                line = f"| offset: {m.offset} {time_type}: {m.timestamp} {sizes} isValid: {is_valid} crc: {m.crc}"
                line += "" if self.dump.is_java else "}"  # as the Scala tool prints it
            yield self._with_contents(line, m.offset, key, value, is_control=False)

    @property
    def _is_long(self) -> bool:
        return _LONG_RECORDS <= self.release < _LOWER_CODECS

    def _long_fields(self, block: Block, row: int) -> str:
        """Return what 2.8 repeats of the batch in every record."""
        return (
            f"baseOffset: {block['base_offset'][row]} lastOffset: {block['last_offset'][row]} "
            f"baseSequence: {block['base_sequence'][row]} lastSequence: {block['last_sequence'][row]} "
            f"producerEpoch: {block['producer_epoch'][row]} "
            f"partitionLeaderEpoch: {block['partition_leader_epoch'][row]} batchSize: {block.size[row]} "
            f"magic: {block.magic[row]} compressType: {self._codec(int(block['attributes'][row]))} "
            f"position: {block.position[row]}"
        )

    def _with_contents(
        self, line: str, offset: int, key: bytes | None, value: bytes | None, *, is_control: bool
    ) -> str:
        self._note_offset(offset)
        prefix = " "
        if self.options.skip_record_metadata:
            line, prefix = "", "| "
        if not self.options.prints or is_control:
            return line
        key_text, payload = self._contents(offset, key, value)
        if key_text is not None:
            line, prefix = f"{line}{prefix}key: {key_text}", " "
        if payload is not None:
            line += f"{prefix if self.dump.is_java else ' '}payload: {payload}"
        return line

    def _contents(self, offset: int, key: bytes | None, value: bytes | None) -> Texts:
        return self.decode(offset, key, value)

    def _note_offset(self, offset: int) -> None:
        if offset != self.last_offset + 1 and (self.last_offset != -1 or self.dump.is_java):
            self.jumps.append((self.last_offset, offset))
        self.last_offset = offset

    def _control(self, key: bytes | None, value: bytes | None) -> str:
        number = control_type(key)
        if number in {ControlType.ABORT, ControlType.COMMIT} and value is not None and len(value) >= MARKER_SIZE:
            return f" endTxnMarker: {_CONTROL_TYPES[number]} coordinatorEpoch: {coordinator_epoch(value)}"
        found = decode_control(number, value)
        if found is not None and found.value is not None and self.release >= _KRAFT:
            if number in _CONTROL_WORDS:
                return f" {_CONTROL_WORDS[number]} {to_json(found.value)}"
            if self.release >= JSON_COORDINATORS:
                return f" LeaderChange: {to_json(found.value)}"
        name = _CONTROL_TYPES[number] if 0 <= number < len(_CONTROL_TYPES) else "UNKNOWN"
        return f" controlType: {name}({number})"

    def _report(self) -> None:
        if self.jumps:
            self.dump.reports.append(f"Non-consecutive offsets in {self.shown}")
            jumps = self.jumps if self.dump.is_java else reversed(self.jumps)
            self.dump.reports += [f"  {first} is followed by {second}" for first, second in jumps]


def _bool(value: object) -> str:
    return "true" if value else "false"


def _optional(value: int) -> str:
    return "OptionalLong.empty" if value < 0 else f"OptionalLong[{value}]"


def _time_type(attributes: int, magic: int) -> str:
    if magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if attributes & int(Attributes.LOG_APPEND_TIME) else "CreateTime"


def _cut(data: Any, at: int, size: int) -> bytes | None:
    return None if size < 0 else bytes(data[at : at + size])


def _message_crc(data: Any) -> int:
    from isal.isal_zlib import crc32

    return int(crc32(data))
