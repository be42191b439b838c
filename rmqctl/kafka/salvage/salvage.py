"""Writing what was gathered: sound batches byte for byte under their own offsets, and around them what a broker needs.

Segments begin where those of the sources do. Where the end of a log is damaged, an empty last segment keeps the end
offset that is known to have been reached, so that no offset is given to a second record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from formats.kafka.checkpoint import (
    HIGH_WATERMARK,
    LEADER_EPOCHS,
    LOG_START,
    RECOVERY_POINT,
    PartitionOffset,
    format_leader_epochs,
    format_offsets,
)
from formats.kafka.directory_files import CLEAN_SHUTDOWN, PARTITION_METADATA
from formats.kafka.record_batch import LENGTH_AT, BatchFrame
from formats.layout import plan_of
from rmqctl.answer import Advance
from rmqctl.errors import TooDamaged, Unbalanced
from rmqctl.files.local import ByteSource
from rmqctl.files.new_files import Ownership, check_free, check_new_directory, making
from rmqctl.files.tree import LocalTree
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import LogDirectory, read_partition
from rmqctl.kafka.engine.cluster_files import (
    Cluster,
    ClusterTopic,
    features_of,
    new_id,
    partition_metadata,
    write_cluster,
)
from rmqctl.kafka.findings.log import BATCH_BASE_OFFSET, BATCH_LEADER_EPOCH, BATCH_OFFSET_ORDER
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.log.legacy import offsets_inside
from rmqctl.kafka.rebuild.build import INTERVAL, build
from rmqctl.kafka.replication.copies import Batches
from rmqctl.kafka.replication.union import Union
from rmqctl.kafka.salvage.books import SalvageLedger
from rmqctl.kafka.salvage.gather import Found, Source, Wanted, gather, settings_of
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.release import Release
from rmqctl.repair.books import Books
from rmqctl.repair.copied import balance_copy

_SEGMENT = 1 << 30
_PIECE = 8 << 20
_SPARE = 1.05
_MOST_SAID = 3
_MARKER_SINCE = Release(3, 7, 0)
_MOST_PRODUCERS = 1 << 62
"""Producer ids from here on are damage: a cluster gives them out from 0, a thousand at a time."""
_FRAME = plan_of(BatchFrame).runs[0].packer


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """How to salvage.

    Attributes:
        release: of the broker that is to start on it.
        as_topic_files: the partitions only, for the log directory of a cluster that is there.
        owner: to whom the new directory is given; None: as the directory above.
    """

    release: Release
    wanted: Wanted = field(default_factory=Wanted)
    as_topic_files: bool = False
    owner: Ownership | None = None


@dataclass
class SavedPartition:
    """One partition in the new directory.

    Attributes:
        holes: offsets, first and last, that no source has any more.
        open_transactions: producer and first offset of those without an end.
        epoch: the highest leader epoch that any source knows.
    """

    topic: str
    number: int
    start: int = 0
    end: int = 0
    records: int = 0
    bytes: int = 0
    copies: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    open_transactions: list[tuple[int, int]] = field(default_factory=list)
    epoch: int = -1
    last_producer: int = -1

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "topic": self.topic,
            "partition": self.number,
            "log_start_offset": self.start,
            "log_end_offset": self.end,
            "records": self.records,
            "bytes": self.bytes,
            "copies": self.copies,
        }


@dataclass
class Saved:
    """What became of it.

    Attributes:
        unreadable: findings for what could not be read, each with the number of its source.
        duplicates: records that several copies have, counted for each but the one that was taken.
        conflicts: batches of which two copies differ, with equal offsets; the source named first counts.
        superseded: records that a leader of a later epoch had overwritten.
        left_out: batches whose offsets are in no order with the others, or overlap with better ones.
        lost_metadata: what of the cluster's metadata is not carried over: kind and number.
        books: the whole batches of the sources, and those of the new directory.
    """

    into: Path
    options: SalvageOptions
    sources: list[Source]
    partitions: list[SavedPartition] = field(default_factory=list)
    unreadable: list[tuple[int, Finding]] = field(default_factory=list)
    duplicates: int = 0
    conflicts: int = 0
    superseded: int = 0
    left_out: int = 0
    cluster: Cluster | None = None
    lost_metadata: dict[str, int] = field(default_factory=dict)
    books: Books = field(default_factory=Books)

    @property
    def holes(self) -> list[dict[str, Any]]:
        """Offsets that are gone, as JSON."""
        return [
            {"topic": p.topic, "partition": p.number, "from": first, "to": last}
            for p in self.partitions
            for first, last in p.holes
        ]

    def summary(self) -> dict[str, Any]:
        """Return the JSON object that the command prints at the end."""
        cluster = self.cluster
        return {
            "kind": "summary",
            "into": str(self.into),
            "sources": [source.name for source in self.sources],
            "release": str(self.options.release),
            "cluster_id": None if cluster is None else cluster.cluster_id,
            "node_id": None if cluster is None else cluster.node_id,
            "partitions": len(self.partitions),
            "records": sum(p.records for p in self.partitions),
            "bytes": sum(p.bytes for p in self.partitions),
            "unreadable": len(self.unreadable),
            "holes": self.holes,
            "duplicates": self.duplicates,
            "conflicts": self.conflicts,
            "superseded": self.superseded,
            "left_out": self.left_out,
            "open_transactions": [
                {"topic": p.topic, "partition": p.number, "producer_id": producer, "first_offset": first}
                for p in self.partitions
                for producer, first in p.open_transactions
            ],
            "lost_metadata": self.lost_metadata,
            "gives_up": self.books.gives_up,
            "books": self.books.document(),
        }


def salvage(sources: Sequence[Source], into: Path, options: SalvageOptions, advance: Advance = lambda _: None) -> Saved:
    """Write every readable record of some sources into a new log directory.

    Args:
        sources: replicas, or log directories with other partitions; where two have the same batch the earlier counts.
        into: a directory that is not there yet, or empty.
        advance: called with bytes read, then written, then read again for the books.

    Raises:
        Refused: the directory is not empty, lies in a source, or too little room is free.
        Unbalanced: a whole batch of a source is not in the new directory; that stays, marked as unfinished.
        TooDamaged: nothing can be read.
        WrongUsage: nobody says of which partition a file is.
    """
    check_target(sources, into)
    if not options.as_topic_files:
        features_of(options.release)  # refuses what cannot be written before anything is
    found = gather(sources, options.wanted, advance)
    unions = [Union(one.copies) for one in found]
    if not any(len(union.batches) for union in unions):
        raise TooDamaged(sources[0].name, "not one record can be read")
    check_free(into, int(sum(union.batches.bytes for union in unions) * _SPARE))
    with making(into, options.owner):
        saved = _Salvage(list(sources), into, options, advance).run(found, unions)
        saved.books = _balanced(found, into, advance)
    return saved


def _balanced(found: Sequence[Found], into: Path, advance: Advance) -> Books:
    """Hold the new directory to its books.

    Raises:
        Unbalanced: they do not balance.
    """
    every = [
        (finding.kind, (number, at, finding.file, finding.offset))
        for number, one in enumerate(found)
        for at, copy in enumerate(one.copies)
        for finding in copy.damage
    ]
    named = {place for kind, place in every if kind in (BATCH_BASE_OFFSET, BATCH_OFFSET_ORDER)}
    of_epochs = {place for kind, place in every if kind is BATCH_LEADER_EPOCH}
    ledger = SalvageLedger(found, into, named, advance, of_epochs)
    books = balance_copy(ledger, into)
    if ledger.broken:
        raise Unbalanced(into, "; ".join(ledger.broken[:_MOST_SAID]))
    return books


def check_target(sources: Sequence[Source], into: Path) -> None:
    """Refuse a place ``into`` at which no new directory can be made.

    Raises:
        Refused: something is there already, or it lies in a source.
    """
    roots = [d.root for s in sources for d in s.replicas.directories if isinstance(d.tree, LocalTree)]
    check_new_directory(into, roots)


class _Salvage:
    def __init__(self, sources: list[Source], into: Path, options: SalvageOptions, advance: Advance) -> None:
        self.sources, self.into, self.options, self.advance = sources, into, options, advance
        self.saved = Saved(into, options, sources)

    def run(self, found: list[Found], unions: list[Union]) -> Saved:
        saved = self.saved
        for number, source in enumerate(self.sources):
            saved.unreadable += [(number, finding) for finding in source.unreadable()]
        topics: dict[str, ClusterTopic] = {}
        for one, union in zip(found, unions, strict=True):
            settings = settings_of(self.sources, one)
            made = self._partition(one, union, settings)
            known = topics.get(one.topic)
            topic_id = known.topic_id if known else one.topic_id or new_id()
            epochs = {**(known.partitions if known else {}), one.number: made.epoch}
            topics[one.topic] = ClusterTopic(
                one.topic, topic_id, epochs, {**settings, **(known.configs if known else {})}
            )
        whole = [self._whole(topic) for topic in topics.values()]
        for topic in whole:
            for number in topic.partitions:
                self._topic_id(topic, number, known={one.topic for one in found if one.topic_id})
        if not self.options.as_topic_files:
            self._cluster(whole)
        saved.partitions.sort(key=lambda p: (p.topic, p.number))
        return saved

    # --- a partition ------------------------------------------------------------------------------------

    def _partition(self, one: Found, union: Union, settings: Mapping[str, str]) -> SavedPartition:
        saved, batches = self.saved, union.batches
        for copy, source in zip(one.copies, one.sources, strict=True):
            saved.unreadable += [(source, finding) for finding in copy.damage]
            saved.left_out += copy.misplaced
        superseded = [union.superseded(number).records for number in range(len(one.copies))]
        every = sum(copy.batches.records for copy in one.copies)
        saved.superseded += sum(superseded)
        saved.duplicates += max(every - sum(superseded) - batches.records, 0)
        saved.conflicts += union.conflicts
        saved.left_out += union.overlapping
        made = SavedPartition(
            one.topic, one.number, records=batches.records, bytes=batches.bytes, copies=len(one.copies)
        )
        made.holes = union.holes
        made.epoch = max(copy.chain.latest for copy in one.copies)
        made.last_producer = int(batches.producer[batches.producer < _MOST_PRODUCERS].max(initial=-1))
        directory = self.into / f"{one.topic}-{one.number}"
        directory.mkdir()
        bases = _bases(union)
        _write_segments(directory, union, bases, self.advance)
        last = int(batches.last[-1]) + 1 if len(batches) else 0
        made.end = max(last, bases[-1])
        first = int(batches.base[0]) if len(batches) else made.end
        made.start = min(max(bases[0], min((c.start for c in one.copies if len(c.batches)), default=first)), made.end)
        self._derive(directory, made, settings)
        saved.partitions.append(made)
        return made

    def _derive(self, directory: Path, made: SavedPartition, settings: Mapping[str, str]) -> None:
        """Write what is derived from the log, as a broker's recovery would, and look whether it reads all of it."""
        tree = LocalTree(str(self.into))
        partition = read_partition(tree, directory.name)
        home = LogDirectory(tree, [partition])
        log = PartitionLog(home, partition, Checkpoints(home))
        log.log_start_offset = made.start
        interval = settings.get("index.interval.bytes", "")
        built = build(log, int(interval) if interval.isdigit() else INTERVAL, at_end=True)
        for name in built.names:
            content = built.content(name)
            if content or not name.endswith(".txnindex"):
                (directory / name).write_bytes(content)
        if LEADER_EPOCHS not in built.names:
            (directory / LEADER_EPOCHS).write_bytes(format_leader_epochs([]))
        if built.left or built.end_offset != made.end:
            why = next(iter(built.left.values()), f"its end would be {built.end_offset}, not {made.end}")
            raise TooDamaged(directory, why, "give the sources without it, and report this")
        made.open_transactions = [
            (producer.producer_id, producer.current_txn_first_offset)
            for producer in built.replay.producers.values()
            if producer.current_txn_first_offset >= 0
        ]

    def _whole(self, topic: ClusterTopic) -> ClusterTopic:
        """Return the topic with all its partitions: those that no source has are made, empty."""
        if self.options.as_topic_files:
            return topic
        counts = [source.replicas.image.partitions_of(topic.name) for source in self.sources if source.replicas.image]
        count = max([max(topic.partitions) + 1, *(max(known) + 1 for known in counts if known)])
        epochs = dict(topic.partitions)
        for number in range(count):
            if number not in epochs:
                epochs[number] = -1
                directory = self.into / f"{topic.name}-{number}"
                directory.mkdir()
                for ending in (".log", ".index", ".timeindex"):
                    (directory / f"{0:020d}{ending}").write_bytes(b"")
                (directory / LEADER_EPOCHS).write_bytes(format_leader_epochs([]))
                self.saved.partitions.append(SavedPartition(topic.name, number))
        return ClusterTopic(topic.name, topic.topic_id, dict(sorted(epochs.items())), topic.configs)

    def _topic_id(self, topic: ClusterTopic, number: int, known: set[str]) -> None:
        """Say whose a partition is; for a cluster that is there only what a source knew counts."""
        if not self.options.as_topic_files or topic.name in known:
            path = self.into / f"{topic.name}-{number}" / PARTITION_METADATA
            path.write_bytes(partition_metadata(topic.topic_id))

    # --- the directory ----------------------------------------------------------------------------------

    def _cluster(self, topics: Sequence[ClusterTopic]) -> None:
        saved, options = self.saved, self.options
        identities = [source.identity for source in self.sources]
        cluster_id = next((cluster for cluster, _ in identities if cluster), None) or new_id()
        node = next((node for _, node in identities if node is not None), 1)
        image = next((source.image for source in self.sources if source.image is not None), None)
        producer = max((p.last_producer for p in saved.partitions), default=-1)
        known = image.next_producer_id if image is not None else None
        saved.cluster = Cluster(
            cluster_id,
            node,
            options.release,
            topics,
            features={} if image is None else image.features,
            first_producer_id=max(producer + 1, known or 0),
        )
        write_cluster(self.into, saved.cluster)
        if image is not None:
            counts = {"acls": len(image.acls), "scram": len(image.scram), "quotas": len(image.quotas)}
            counts["tokens"] = len(image.tokens)
            counts["broker_settings"] = sum(len(v) for (kind, _), v in image.configs.items() if kind != "topic")
            saved.lost_metadata = {name: count for name, count in counts.items() if count}
        for name, entries in self._checkpoints():
            (self.into / name).write_bytes(format_offsets(entries))
        marker = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
        (self.into / CLEAN_SHUTDOWN).write_text(marker if options.release >= _MARKER_SINCE else "", "ascii")

    def _checkpoints(self) -> Iterator[tuple[str, list[PartitionOffset]]]:
        every = self.saved.partitions
        ends = [PartitionOffset(p.topic, p.number, p.end) for p in every]
        yield RECOVERY_POINT, ends
        yield HIGH_WATERMARK, ends
        starts = [p for p in every if not (self.into / f"{p.topic}-{p.number}" / f"{p.start:020d}.log").exists()]
        yield LOG_START, [PartitionOffset(p.topic, p.number, p.start) for p in starts]


# --- segments ---------------------------------------------------------------------------------------


def _bases(union: Union) -> list[int]:
    """Return base offsets of the new segments, ascending: those of the copy that gives most, and where one would grow
    over.
    """
    batches = union.batches
    given = np.bincount(union.copy, minlength=len(union.copies)) if len(batches) else np.zeros(len(union.copies))
    most = union.copies[int(np.argmax(given))]
    wanted = sorted({file.base for file in most.files if file.meaning.base is not None})
    first = int(batches.base[0]) if len(batches) else None
    if first is not None and (not wanted or wanted[0] > first):
        wanted = [first, *wanted]
    end = max(int(batches.last[-1]) + 1 if len(batches) else 0, wanted[-1] if wanted else 0)
    reached = union.committed
    if reached > end:
        wanted.append(reached)
    found, size = list[int](), 0
    rest = iter([*wanted, 1 << 63])
    following = next(rest)
    for base, last, bytes_ in zip(batches.base.tolist(), batches.last.tolist(), batches.size.tolist(), strict=True):
        while following <= base:
            found.append(following)
            following, size = next(rest), 0
        if size and (size + bytes_ > _SEGMENT or last - found[-1] > INT_MAX):
            found.append(base)
            size = 0
        size += bytes_
    held = np.searchsorted(np.array(found, np.int64), batches.base, "right") - 1
    filled = set(held.tolist())
    found = [base for number, base in enumerate(found) if number in filled]
    start = min((copy.start for copy in union.copies if len(copy.batches)), default=0)
    if found and start < found[0] and int(batches.last[held == held[0]].max()) - start <= INT_MAX:
        found[0] = start  # what came before the first batch was compacted away, or is lost; the log begins where it did
    if not found or end > int(batches.last[-1]) + 1 or reached > end or wanted[-1] > found[-1]:
        found.append(max(end, reached))
    return found


def _write_segments(directory: Path, union: Union, bases: Sequence[int], advance: Advance) -> None:
    """Copy the batches, run by run."""
    batches = union.batches
    segment = np.searchsorted(np.array(bases), batches.base, "right") - 1
    with _Sources(union) as read:
        for number, base in enumerate(bases):
            rows = np.flatnonzero(segment == number)
            with (directory / f"{base:020d}.log").open("xb") as out:
                for run in _runs(union.copy[rows], batches.take(rows)):
                    for data in read.run(int(union.copy[rows[run][0]]), batches.take(rows[run])):
                        out.write(data)
                        advance(len(data))


def _runs(copy: np.ndarray, batches: Batches) -> Iterator[np.ndarray]:
    """Numbers of batches that follow each other in one file."""
    breaks = (copy[1:] != copy[:-1]) | (batches.file[1:] != batches.file[:-1])
    breaks |= batches.position[1:] != batches.position[:-1] + batches.size[:-1]
    if len(batches):
        yield from np.split(np.arange(len(batches)), np.flatnonzero(breaks) + 1)


class _Sources:
    """The files of all copies, each open once."""

    def __init__(self, union: Union) -> None:
        self.union = union
        self.open: dict[tuple[int, int], ByteSource] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self.open.values():
            source.close()

    def run(self, copy: int, batches: Batches) -> Iterator[bytes]:
        """Yield the bytes of neighbouring batches, with fields that were set right."""
        key = copy, int(batches.file[0])
        source = self.open.get(key)
        if source is None:
            source = self.open[key] = self.union.copies[copy].files[key[1]].open()
        changed = (batches.base != batches.stored_base) | (batches.epoch != batches.stored_epoch)
        if changed.any():
            for row in range(len(batches)):
                yield _mended(source.read_at(int(batches.position[row]), int(batches.size[row])), batches, row)
            return
        at, end = int(batches.position[0]), int(batches.position[-1] + batches.size[-1])
        for start in range(at, end, _PIECE):
            yield source.read_at(start, min(_PIECE, end - start))


def _mended(data: bytes, batches: Batches, row: int) -> bytes:
    """Return a batch with its offset and leader epoch as they count; no CRC covers them."""
    if batches.magic[row] < 2:
        inside = offsets_inside(data)
        last = int(batches.last[row]) if inside is None else inside[1]
        return last.to_bytes(LENGTH_AT, "big") + data[LENGTH_AT:]
    _, size, _, magic = _FRAME.unpack_from(data)
    return _FRAME.pack(int(batches.base[row]), size, int(batches.epoch[row]), magic) + data[_FRAME.size :]
