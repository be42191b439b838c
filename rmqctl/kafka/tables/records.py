"""The tables ``records`` and ``batches``, and the records of all partitions bit by bit, as they grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from rmqctl.errors import WrongUsage
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.log.records import Records
from rmqctl.kafka.state.partition_state import PartitionLog, Visible, view_of
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.tables.columns import BATCH_SCHEMA, RECORD_SCHEMA, batches_of, chosen_schema, rows_of
from rmqctl.kafka.tables.stretches import NO_END, Division, KafkaFilter, Stretch, grouped, segments_of
from rmqctl.opening import open_store
from rmqctl.parallel import leave_out
from rmqctl.tables import (
    Change,
    Look,
    Marks,
    Places,
    cores,
    flag,
    gone,
    level,
    names,
    options_of,
    split_size,
    usual_split_size,
)
from rmqctl.text import milliseconds_of

_BODIES = ("decompressed", "none")


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Options of a table.

    Attributes:
        path: of one or several log directories, local or URLs.
        columns: the wanted ones; None for all.
        body: ``none`` leaves out values.
        split_size: bytes of log in one task; None: by the size of the logs and the cores.
        wanted: only these records.
        skip: leave out segments and stretches in which nothing wanted can lie.
        read_committed: leave out control records, aborted transactions, and what is not decided yet.
        level: of the checks that ``findings`` runs.
        cores: tasks that run at once; None where nobody knows.
        look: at the directories, which all options share that were made of these.
    """

    path: str
    columns: tuple[str, ...] | None = None
    body: str = "decompressed"
    split_size: int | None = None
    wanted: KafkaFilter = field(default_factory=KafkaFilter)
    skip: bool = True
    read_committed: bool = False
    level: str = "full"
    cores: int | None = None
    look: Look = field(default_factory=Look, compare=False, repr=False)

    def replicas(self) -> Replicas:
        """Return the partitions as they were when these options were first asked for them.

        Raises:
            NotAStore: there is no log directory at the path.
        """
        return self.look.at(self._seen)

    def _seen(self) -> Replicas:
        found: Any = open_store(self.path, format="kafka")
        replicas: Replicas = found.replicas
        return replicas

    def anew(self) -> KafkaOptions:
        """Return the same options, whose first question sees what there is then."""
        return replace(self, look=Look())

    def logs(self) -> list[PartitionLog]:
        """Return the partitions with wanted records, by topic and number."""
        return list(filter(self.wanted.includes, self.served()))

    def served(self) -> list[PartitionLog]:
        """Return the partitions that are read where nothing is filtered, by topic and number."""
        replicas = self.replicas()
        chosen = set(map(id, replicas.place.selected))
        return [log for log in replicas.all if id(log.partition) in chosen]

    def visible(self, log: PartitionLog) -> Visible | None:
        """Return what of a partition is read; None for all of it."""
        if not self.read_committed:
            return None
        view = view_of(log, read_committed=True)
        return Visible(view.end, view.aborted)


def kafka_options(given: Mapping[str, str]) -> KafkaOptions:
    """Options as Spark hands them over: text by name, names in any case.

    Raises:
        BadOption: one is not known, or its value is no such thing.
    """
    made = options_of("kafkalog", given, _OPTIONS)
    wanted = {name: made.pop(name) for name in _WANTED if name in made}
    return KafkaOptions(wanted=KafkaFilter(**wanted), **made)


def _body(text: str) -> str:
    if text not in _BODIES:
        raise ValueError(f"give {' or '.join(_BODIES)}")
    return text


_WANTED = ("topics", "queue_id", "after", "before", "from_offset", "to_offset")
_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "path": ("path", str),
    "columns": ("columns", names),
    "body": ("body", _body),
    "splitSize": ("split_size", split_size),
    "cores": ("cores", cores),
    "skip": ("skip", flag),
    "readCommitted": ("read_committed", flag),
    "level": ("level", level),
    "topic": ("topics", names),
    "partition": ("queue_id", int),
    "queue": ("queue_id", int),
    "after": ("after", milliseconds_of),
    "before": ("before", milliseconds_of),
    "fromOffset": ("from_offset", int),
    "toOffset": ("to_offset", int),
}


# --- the tables ---------------------------------------------------------------------------------------


class _OfSegments:
    """A table of what lies in segments, with those of small partitions together in a part."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options

    def parts(self) -> list[list[Stretch]]:
        """Stretches of segments, as many in a part as make a split."""
        options, served = self.options, self.options.served()
        logs = list(filter(options.wanted.includes, served))
        leave_out("partition", size_of(served) - size_of(logs))
        size = options.split_size or usual_split_size(size_of(logs), options.cores)
        divide = Division(size, options.wanted, options.skip)
        found = [stretch for log in logs for stretch in divide.stretches(log, visible=options.visible(log))]
        return grouped(found, size)


class RecordTable(_OfSegments):
    """Every record of the partitions, in the order of the logs: what ``dump --records`` shows."""

    def schema(self) -> pa.Schema:
        """Return the wanted columns.

        Raises:
            BadOption: there is no such column.
        """
        without = ("value",) if self.options.body == "none" else ()
        return chosen_schema(RECORD_SCHEMA, self.options.columns, without)

    def read(self, part: list[Stretch]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted records of some stretches; a file that cannot be read is a finding, and no end of the work.

        Raises:
            OSError: the directory is not there.
        """
        schema = self.schema()
        for stretch, records in self.through(part):
            yield rows_of(records, stretch.place, schema)

    def through(self, part: list[Stretch]) -> Iterator[tuple[Stretch, Records]]:
        """Yield the wanted records of some stretches, each with its own."""
        for stretch in part:
            for records in stretch.readable(stretch.records(self.options.wanted.within(stretch.low, stretch.high))):
                yield stretch, records


class BatchTable(_OfSegments):
    """Every batch of the partitions, in the order of the logs: what ``dump`` shows."""

    def schema(self) -> pa.Schema:
        """Return the columns, see :data:`~rmqctl.kafka.tables.columns.BATCH_SCHEMA`."""
        return BATCH_SCHEMA

    def read(self, part: list[Stretch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of some stretches that may hold wanted records.

        Raises:
            OSError: the directory is not there.
        """
        for stretch in part:
            for block in stretch.readable(stretch.batches(self.options.wanted.within(stretch.low, stretch.high))):
                if len(block):
                    yield batches_of(block, stretch.place, BATCH_SCHEMA)


def limited(options: KafkaOptions, count: int) -> KafkaOptions:
    """Return options for only the first ``count`` records, where they lie in one partition: then their last offset
    says which.

    Raises:
        WrongUsage: they lie in several.
    """
    table, places, last = RecordTable(options), set[tuple[str | None, int | None]](), 0
    for part in table.parts():
        for stretch in part:
            for records in stretch.records(options.wanted.within(stretch.low, stretch.high)):
                places.add((stretch.place.topic, stretch.place.partition))
                if len(places) > 1:
                    raise WrongUsage("--limit", "of records needs --topic and --queue: they lie in several partitions.")
                last = int(records.offset[:count][-1]) + 1
                count -= len(records)
                if count <= 0:
                    ((topic, number),) = places
                    only = replace(options.wanted, topics=(topic,) if topic else (), queue_id=number, to_offset=last)
                    return replace(options, wanted=only)
    return options


def size_of(logs: list[PartitionLog]) -> int:
    """Bytes of the segments of some partitions."""
    return sum(max(s.log.size, 0) for log in logs for s in log.readable if s.log is not None)


# --- bit by bit ---------------------------------------------------------------------------------------


class RecordLog:
    """The records of all partitions, each by its offsets (`rmqctl.tables.Log`): a place is the next offset of one.

    With ``read_committed`` a partition ends where the first transaction begins that is not decided. What comes is seen
    by :meth:`end`: all else is as of then, but for the changes, which are those up to now.
    """

    row_place, row_time = "offset", "timestamp"
    partitions = ("topic", "partition")

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options

    @property
    def size(self) -> int:
        return size_of(self.options.logs())

    @property
    def is_running(self) -> bool:
        return self.options.replicas().place.is_running

    def begin(self) -> Places:
        return {log.partition.label: _begin(log) for log in self.options.logs()}

    def end(self, known: Places | None = None, most_bytes: int | None = None, *, growing: bool = True) -> Places:
        self.options = self.options.anew()
        found, logs = dict(known or {}), {log.partition.label: log for log in self.options.logs()}
        for label, log in logs.items():
            low = (known or {}).get(label, _begin(log))
            high = _end(log, low if known is not None else None, growing=growing)
            if not growing:  # a batch whose offsets jump may lie before the last segment
                high = max(high, view_of(log, read_committed=False).end)
            if self.options.read_committed:
                high = min(high, view_of(log, read_committed=True).end)
            found[label] = max(high, low)
        if most_bytes is not None and known is not None:
            news = [label for label in logs if found[label] > known.get(label, -1)]
            for label in news:
                low = known.get(label, _begin(logs[label]))
                found[label] = _within(logs[label], low, found[label], most_bytes // len(news))
        return found

    def marks(self, places: Places) -> Marks:
        logs = {log.partition.label: log for log in self.options.logs()}
        return {name: str(_Mark.of(logs[name], place)) for name, place in places.items() if name in logs}

    def changes(self, places: Places, marks: Marks) -> list[Change]:
        logs = {log.partition.label: log for log in self.options.anew().replicas().all}
        found = (_change(name, logs.get(name), place, marks.get(name)) for name, place in places.items())
        return [change for change in found if change is not None]

    def parts(self, start: Places, end: Places, size: int | None = None) -> list[Stretch]:
        options, found = self.options, []
        wanted = size or options.split_size
        logs = options.logs()
        divide = Division(wanted or usual_split_size(size_of(logs), options.cores), options.wanted, options.skip)
        for log in logs:
            low, high = start.get(log.partition.label, 0), end.get(log.partition.label, 0)
            if low < high:
                found += divide.stretches(log, low, high, options.visible(log))
        return found

    def name_of(self, part: Stretch) -> str:
        where = f"{quote(part.place.topic or '', safe='')}-{part.place.partition}"
        return f"{where}-{part.base:020d}-{part.start:010d}-{part.low}"

    def size_of(self, part: Stretch) -> int:
        return part.stop - part.start

    def read(self, part: Stretch) -> Iterator[pa.RecordBatch]:
        schema = RecordTable(self.options).schema()
        try:
            for records in part.records(self.options.wanted.within(part.low, part.high)):
                yield rows_of(records, part.place, schema)
        except FileNotFoundError:
            raise gone(part.file) from None


@dataclass(frozen=True, slots=True)
class _Mark:
    """What distinguishes the last batch in front of an offset from any other that may lie there later.

    Attributes:
        topic_id: of the partition; empty where nothing says it.
        last: offset of the batch; -1 where there is none, and no epoch and CRC.
        epoch: of the leader that wrote it.
        crc: of the batch.
    """

    topic_id: str
    last: int = -1
    epoch: int = -1
    crc: int = 0

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.last}/{self.epoch}/{self.crc}"

    @classmethod
    def read(cls, text: str) -> _Mark:
        """Return what its text says.

        Raises:
            ValueError: it is none.
        """
        topic_id, *numbers = text.split("/")
        return cls(topic_id, *map(int, numbers))

    @classmethod
    def of(cls, log: PartitionLog, offset: int) -> _Mark:
        """Return the mark in front of an offset."""
        found = cls(log.topic_id or "")
        for segment in reversed(segments_of(log)):
            if segment.base >= offset:
                continue
            for block in segment.scanned(segment.position(offset - 1)):
                before = np.flatnonzero((block["last_offset"] < offset) & block.crc_ok)
                if len(before):
                    facts = (block["last_offset"], block["partition_leader_epoch"], block["crc"])
                    found = cls(found.topic_id, *(int(column[before[-1]]) for column in facts))
                if len(before) < len(block):
                    break
            if found.last >= 0:
                break
        return found


def _change(name: str, log: PartitionLog | None, place: int, text: str | None) -> Change | None:
    """Return what became of a partition that was read up to a place, None where it is the same."""
    if log is None:
        return Change(name, place, f"the partition {name} is no longer here", place, is_gone=True)
    known = None if text is None else _Mark.read(text)
    if known is not None and known.topic_id and log.topic_id and known.topic_id != log.topic_id:
        return Change(name, place, f"the topic of {name} was deleted and made again", _begin(log))
    if place <= _begin(log):
        return None
    now = _Mark.of(log, place)
    end = place if log.segments and log.segments[-1].base >= place else _end(log, max(now.last, 0), growing=False)
    if end < place:
        return Change(name, place, f"the partition {name} ends at {end} now, before {place}: it was cut", end)
    if known is None or known.last < 0 or now == replace(known, topic_id=now.topic_id) or _is_cleaned(log):
        return None
    # where leaders changed, their epochs tell how much of the old log is left (KIP-279)
    begins = [one.start_offset for one in log.leader_epochs.entries if one.epoch > known.epoch]
    go_on = max(min([place, *begins]), _begin(log))
    what = f"another batch lies in front of offset {place} of {name} now: the partition was cut and grew again"
    return Change(name, place, what, go_on)


def _is_cleaned(log: PartitionLog) -> bool:
    """Whether compaction may change what lies in a partition (`LogCleaner`)."""
    return (log.checkpoints.offset(FileKind.CLEANER_OFFSETS, log.partition) or 0) > 0


def _begin(log: PartitionLog) -> int:
    """Return the first offset whose segment is there."""
    return log.readable[0].base if log.readable else 0


def _end(log: PartitionLog, known: int | None, *, growing: bool) -> int:
    """Return the offset after the last batch that has arrived in full.

    Args:
        known: an offset that was the end before; the last segment is read from there on.
        growing: a last batch with a wrong CRC is one that is being written.
    """
    segments = segments_of(log)
    if not segments:
        return known or 0
    last = segments[-1]
    end = last.base
    start = last.position(known) if known is not None else 0
    for block in last.scanned(start):
        sound = np.flatnonzero(block.crc_ok) if growing else np.arange(len(block))
        if len(sound):
            end = max(end, int(block["last_offset"][sound].max()) + 1)
    return max(end, known or 0)


def _within(log: PartitionLog, low: int, high: int, most_bytes: int) -> int:
    """Return the offset after the batches from one on that are of so many bytes, at least one batch."""
    left, end = most_bytes, low
    segments = segments_of(log)
    for number, segment in enumerate(segments):
        following = segments[number + 1].base if number + 1 < len(segments) else NO_END
        if following <= low:
            continue
        for block in segment.scanned(segment.position(low)):
            for offset, size in zip(block["last_offset"].tolist(), block.size.tolist(), strict=True):
                if offset < low:
                    continue
                if offset >= high:
                    return high
                if left < size and end > low:
                    return end
                left, end = left - size, max(offset + 1, end)
    return high
