"""Every readable message of one or several damaged stores into a new store that brokers start on.

Records are written through the store engine: new places, the same messages. The configuration is that of the source,
with offsets that the new queues have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from formats.rocketmq.message import COMMIT, TRANSACTION, decode_record, encode_record
from formats.rocketmq.properties import is_closed, join_properties, split_properties
from formats.rocketmq.property_crc import SIZE as PROPERTY_CRC_SIZE
from formats.rocketmq.property_crc import property_crc, property_crc_bytes, stored_property_crc
from rmqctl.errors import Refused, TooDamaged
from rmqctl.files.new_files import Ownership, check_free, check_new_directory, making
from rmqctl.files.tree import LocalTree, join, read_all
from rmqctl.findings import Finding
from rmqctl.repair.books import Books
from rmqctl.repair.copied import balance_copy
from rmqctl.repair.edits import Create, Overwrite
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import BLANK_ROOM
from rmqctl.rocketmq.findings.log import LOG_TOPIC
from rmqctl.rocketmq.findings.state import CONFIG_CONSUMER_OFFSET
from rmqctl.rocketmq.log.commitlog import files_to_rename, log_file_at, misplaced_files
from rmqctl.rocketmq.log.record import (
    PHYSICAL_AT,
    LogReader,
    body_size_of,
    flags_of,
    head_offset,
    head_size,
    magic_of,
    variant_of,
)
from rmqctl.rocketmq.repair.config import config_steps
from rmqctl.rocketmq.repair.placeholder import Setting, placeholder
from rmqctl.rocketmq.repair.queue_references import QueueReference
from rmqctl.rocketmq.salvage.books import SalvageLedger, sound_text
from rmqctl.rocketmq.salvage.gather import NO_QUEUE, Gathered, Merged, Names, Records, gather, gather_stray, merge
from rmqctl.rocketmq.state.config import CONFIG, read_config, table
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import StoreFile, StoreFiles, forgiving, unreadable_files
from rmqctl.rocketmq.store.geometry import geometry_of
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify import state
from rmqctl.rocketmq.verify.context import LogContext

_OFFSETS = ("consumerOffset.json", "delayOffset.json")
_FILES = ("topics.json", "subscriptionGroup.json", *_OFFSETS)


def copy_config(store: StoreFiles, into: Path, *, renumbered: bool) -> list[str]:
    """Copy the files that can be read; offsets only where queues keep theirs.

    Returns:
        Their names.
    """
    copied = []
    for name in _FILES:
        file = read_config(store, name)
        if file.document is None or (renumbered and name in _OFFSETS):
            continue
        source = f"{file.path}.bak" if file.fallback else file.path
        target = into / CONFIG / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(read_all(store.tree, source) or b"")
        copied.append(name)
    return copied


def bring_back_offsets(into: Path) -> list[str]:
    """Set offsets that stand after the end of their queue to that end, as ``repair`` does.

    A consumer that stands there would pass over the messages that the queue gets next.

    Returns:
        What was done, a sentence for each file.
    """
    return list(_brought_back(open_store_at(str(into)), into))


def _brought_back(store: StoreFiles, into: Path) -> Iterator[str]:
    findings = state.check_config(store, LogContext.of(store, None))
    for step in config_steps(store, findings, 0):
        if step.id == CONFIG_CONSUMER_OFFSET.id and not step.edits:
            yield f"{step.file}: {step.what}: {step.why}"
        for edit in step.edits:
            if isinstance(edit, (Create, Overwrite)):
                (into / edit.file).write_bytes(edit.content if isinstance(edit, Create) else edit.after)
                yield f"{edit.file}: {step.what}"


# --- every readable message of one or several damaged stores into a new sto -------------------------


_SPARE = 1.25
_LIGHT = "%LMQ%"
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """What to take, and how.

    Attributes:
        stale: old records after the end of the log as well.
        renumber: give every queue new offsets from 0; else they are kept, and placeholders fill what is missing.
        owner: to whom the new store is given; None: as the directory above.
    """

    stale: bool = False
    renumber: bool = False
    owner: Ownership | None = None


@dataclass(slots=True)
class Salvaged:
    """What became of it.

    Attributes:
        sources: roots of the stores read, with the number of records found in each; a file of the log that another
            file has the place of is a source of its own.
        unreadable: findings for what could not be read, each with the number of its source.
        duplicates, conflicts, stale: records left out, those of them that differ, records from after the end.
        config: configuration files copied.
        offsets: what was changed in them, because the message it stood at could not be read.
        books: the whole records of the sources, and those of the new store.
    """

    into: Path
    sources: list[tuple[str, int]]
    written: Written
    unreadable: list[tuple[int, Finding]] = field(default_factory=list)
    duplicates: int = 0
    conflicts: int = 0
    stale: int = 0
    config: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    books: Books = field(default_factory=Books)

    def summary(self) -> dict[str, Any]:
        """Return the JSON object that the command prints at the end."""
        written = self.written
        return {
            "kind": "summary",
            "into": str(self.into),
            "sources": [{"path": path, "messages": count} for path, count in self.sources],
            "messages": written.messages,
            "bytes": written.bytes,
            "unreadable": len(self.unreadable),
            "placeholders": written.placeholders,
            "renumbered": written.renumbered,
            "duplicates": self.duplicates,
            "conflicts": self.conflicts,
            "stale": self.stale,
            "holes": [dict(zip(("topic", "queue_id", "from", "to"), hole, strict=True)) for hole in written.holes],
            "config": self.config,
            "offsets": self.offsets,
            "gives_up": self.books.gives_up,
            "books": self.books.document(),
        }


def salvage(
    stores: Sequence[StoreFiles], into: Path, options: SalvageOptions, progress: Progress = lambda size: None
) -> Salvaged:
    """Copy what can be read.

    Args:
        stores: replicas of one broker's store; where two hold the same message the earlier counts.
        into: a directory that is not there yet, or empty.
        progress: called with bytes read, then written, then read again for the books.

    Raises:
        Refused: the directory is not empty, lies in a source, or too little room is free.
        Unbalanced: a whole record of a source is not in the new store; that stays, marked as unfinished.
        TooDamaged: nothing can be read.
        OSError: a directory of a source, or a remote one, cannot be read; a file that cannot be is a finding.
    """
    check_target(stores, into)
    names, stores = Names(), [forgiving(s) for s in stores]
    parts = [part for store in stores for part in _parts(store)]
    found = [gather(s, n, names, stale=options.stale, advance=progress) for n, (_, s) in enumerate(parts)]
    for path, owner, file in [one for store in stores for one in _beside(store, parts)]:
        stray = gather_stray(owner, file, len(parts), names)
        if len(stray.records):
            parts.append((path, stray.store))
            found.append(stray)
    if not any(len(f.records) for f in found):
        raise TooDamaged(stores[0].root, "not one message can be read")
    merged = merge([f.records for f in found])
    needed = int((merged.records["size"].sum() + merged.repeats["size"].sum()) * _SPARE)
    check_free(into, needed)
    with making(into, options.owner):
        result = _made(stores, parts, found, merged, names, into, options, progress)
        result.books = _balanced(found, into, progress)
    return result


def _made(
    stores: Sequence[StoreFiles],
    parts: Sequence[tuple[str, StoreFiles]],
    found: Sequence[Gathered],
    merged: Merged,
    names: Names,
    into: Path,
    options: SalvageOptions,
    progress: Progress,
) -> Salvaged:
    """Write the new store."""
    config = _config(found)
    if not options.renumber and _begins_late(merged.records, names, _ends(found)):
        config = replace(config, log_start=config.commit_log_file_size)
    with StoreEngine.open(into, config) as engine:
        _make_topics(engine, stores[0], [*names.queues(), *_ends(found)])
        writer = Writer(engine, names.queues(), [s.log_files for _, s in parts], keep=not options.renumber)
        try:
            writer.write(merged.records, advance=progress)
            writer.write(merged.repeats, keep=False, advance=progress)
            writer.fill_to(_ends(found))
        finally:
            writer.close()
    paths = [path for path, _ in parts]
    result = Salvaged(into, [(p, len(f.records)) for p, f in zip(paths, found, strict=True)], writer.written)
    result.unreadable = [(n, finding) for n, f in enumerate(found) for finding in f.unreadable]
    result.unreadable += [(paths.index(s.root), finding) for s in stores for finding in unreadable_files(s)]
    result.duplicates, result.conflicts = merged.duplicates, merged.conflicts
    result.stale = int(merged.records["stale"].sum())
    result.config = copy_config(stores[0], into, renumbered=options.renumber)
    result.offsets = bring_back_offsets(into)
    return result


def _parts(store: StoreFiles) -> Iterator[tuple[str, StoreFiles]]:
    """Yield the store with the files of its log in their places, and each file whose place another has; with their
    paths.
    """
    found = misplaced_files(store, geometry_of(store).commit_log_file_size)
    moved, wrong = files_to_rename(store, found), {one.file.name for one in found}
    files = [f for f in store.log_files if f.name not in wrong]
    yield store.root, store.with_log([*files, *(one.at_home() for one in moved)]) if found else store
    for one in found:
        if one not in moved:
            yield join(store.root, one.file.name), store.with_log([one.at_home()])


def _beside(store: StoreFiles, parts: Sequence[tuple[str, StoreFiles]]) -> Iterator[tuple[str, StoreFiles, StoreFile]]:
    """Yield the files beside those of the log that no part has, with their paths and their store."""
    known = {file.name for _, part in parts for file in part.log_files if part.root == store.root}
    for entry in store.log_strays:
        file = log_file_at(store, entry.path) if entry.path not in known else None
        if file is not None:
            yield join(store.root, file.name), store, file


def _balanced(found: Sequence[Gathered], into: Path, progress: Progress) -> Books:
    """Hold the new store to its books.

    Raises:
        Unbalanced: they do not balance.
    """
    ends = {number: one.end for number, one in enumerate(found) if one.end is not None}
    named = {
        (number, finding.file, finding.physical_offset)
        for number, one in enumerate(found)
        for finding in one.unreadable
        if finding.kind is LOG_TOPIC
    }
    made = open_store_at(str(into)).log_files
    return balance_copy(SalvageLedger([one.store.log_files for one in found], made, ends, named, progress), into)


def _ends(found: Sequence[Gathered]) -> dict[tuple[str, int], int]:
    """Return the highest counter of each queue over all sources."""
    ends: dict[tuple[str, int], int] = {}
    for one in found:
        for key, end in one.ends.items():
            ends[key] = max(ends.get(key, 0), end)
    return ends


def check_target(stores: Sequence[StoreFiles], into: Path) -> None:
    """Refuse a place ``into`` at which no new store can be made of these sources.

    Raises:
        Refused: something is there already, it lies in a source, or a source has a DLedger log.
    """
    check_new_directory(into, [store.root for store in stores if isinstance(store.tree, LocalTree)])
    for store in stores:
        if any(file.lead for file in store.log_files):
            raise Refused(f"{store.root} has a DLedger log; export its messages instead")


def _config(found: Sequence[Gathered]) -> StoreConfig:
    """Return the settings of the new store: release, sizes and forms of the first source."""
    store = found[0].store
    geometry = geometry_of(store)
    largest = max((int(f.records["size"].max(initial=0)) for f in found), default=0)
    return StoreConfig(
        release=release_range(store).highest,
        commit_log_file_size=max(geometry.commit_log_file_size, largest + 16),
        queue_file_size=geometry.queue_file_size,
        batch_queue_file_size=geometry.batch_queue_file_size,
        index_slots=geometry.index_slots,
        index_entries=geometry.index_entries,
        property_crc=_has_property_crc(found[0]),
        multi_dispatch=True,
        delay_levels=store.settings.get("messageDelayLevel") or StoreConfig().delay_levels,
        services=False,
    )


def _begins_late(records: Records, names: Names, ends: Mapping[tuple[str, int], int]) -> bool:
    """Whether a queue will begin above offset 0, with its first message or with a placeholder for its counter."""
    own = records[np.lexsort((records["queue_offset"], records["queue"]))]
    numbers, first = np.unique(own["queue"], return_index=True)
    begins = dict(zip(numbers.tolist(), own["queue_offset"][first].tolist(), strict=True))
    keys = {key: number for number, key in enumerate(names.queues())}
    late = any(offset > 0 for number, offset in begins.items() if number != NO_QUEUE)
    return late or any(end > 1 and keys.get(key) not in begins for key, end in ends.items())


def _has_property_crc(found: Gathered) -> bool:
    """Whether records end with their own CRC, by the first of them."""
    if not len(found.records):
        return False
    with LogReader(found.store.log_files) as log:
        first = found.records[0]
        record = log.read_from(int(first["file"]), int(first["physical"]), int(first["size"]))
        return stored_property_crc(record) is not None


def _make_topics(engine: StoreEngine, store: StoreFiles, keys: Sequence[tuple[str, int]]) -> None:
    """Make every topic known, with batch queues where the source has them."""
    rules = DispatchRules.of(store)
    topics = table(read_config(store, "topics.json").document, "topicConfigTable")
    queues: dict[str, int] = {}
    for topic, queue_id in keys:
        queues[topic] = max(queues.get(topic, 0), queue_id + 1)
    for topic, count in queues.items():
        if topic.startswith(_LIGHT):
            continue
        entry = topics.get(topic)
        known = entry.get("writeQueueNums", 0) if isinstance(entry, dict) else 0
        batch = rules.is_batch_topic(topic.encode("utf-8", "surrogateescape"))
        engine.make_topic(topic, max(count, known if isinstance(known, int) else 0), batch=batch)


# --- writing through the engine ------------------------------------------------------------------------


_LONG = struct.Struct(">q")
_RUN = 1 << 20
_DISPATCH_EVERY = 1 << 15
_HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
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
        self._run, self._time, self._waiting = bytearray(), engine.config.clock.now(), 0

    def write(self, records: Records, *, keep: bool | None = None, advance: Callable[[int], object]) -> None:
        """Append records in their order.

        Args:
            keep: as for the whole, unless said here.
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
        """Return the record with the queue offset it is to have; missing ones in front of it are filled."""
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
        batch = self.engine.known.rules.is_batch_topic(topic.encode("utf-8", "surrogateescape"))
        size = _ROOM + len(topic.encode("utf-8", "surrogateescape"))
        for offset in range(first, stop):
            claim = QueueReference(topic, queue_id, offset, self._place(size), batch=1 if batch else 0)
            record = placeholder(claim, size, setting)
            if record is not None:
                self._append(bytearray(record), -1)
                self.written.placeholders += 1

    def _place(self, size: int) -> int:
        """Where a record of so many bytes goes; what waits is written where it does not fit after it."""
        log = self.engine.log
        at = log.wrote + len(self._run)
        if size + BLANK_ROOM > log.files.file_size - at % log.files.file_size:
            self._flush()
            with log.locked():
                return log.room(size)
        return at

    def _append(self, data: bytearray, source: int) -> int:
        """Give the record its place and put it after the others; the physical offset."""
        place = self._place(len(data))
        _LONG.pack_into(data, PHYSICAL_AT, place)
        self._mend_half(data, source)
        if stored_property_crc(bytes(data)) is not None:
            data[-PROPERTY_CRC_SIZE:] = property_crc_bytes(property_crc(bytes(data)))
        self._run += data
        self._waiting += 1
        if len(self._run) >= _RUN:
            self._flush()
        return place

    def _mend_half(self, data: bytearray, source: int) -> None:
        """Let a committed message name the new place of its half message (spec 2.12)."""
        flags = flags_of(data)
        if flags & TRANSACTION != COMMIT:
            return
        variant = variant_of(magic_of(data), flags)
        assert variant is not None
        at = head_offset("prepared_transaction_offset", variant)
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
    variant = variant_of(magic_of(data), flags_of(data))
    assert variant is not None
    topic = head_size(variant) + body_size_of(data, variant)
    wide = 1 + (variant >> 2)
    if not data.count(0, topic + wide + int.from_bytes(data[topic : topic + wide], "big") + 2):
        return data
    fields, _ = decode_record(bytes(data))
    text = sound_text(fields["properties"])
    if text == fields["properties"]:
        return data
    fields["total_size"] += len(text) - len(fields["properties"])
    fields["properties"] = text
    return bytearray(encode_record(fields))


def _with_offset(data: bytearray, offset: int) -> bytearray:
    """Return the record with another queue offset, also where an inner batch says it in its properties."""
    fields, _ = decode_record(bytes(data))
    pairs = split_properties(fields["properties"])
    fields["queue_offset"] = offset
    if any(name == b"INNER_BASE" for name, _ in pairs):
        changed = [(n, b"%d" % offset if n == b"INNER_BASE" else v) for n, v in pairs]
        text = join_properties(changed, closed=is_closed(fields["properties"]))
        fields["total_size"] += len(text) - len(fields["properties"])
        fields["properties"] = text
    return bytearray(encode_record(fields))
