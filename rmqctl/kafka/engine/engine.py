"""The engine of a log directory: opens it as a broker that starts, takes records, and stops in order or not at all.

One writer process at a time, held by the broker's own lock; any number of threads.
"""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from formats.kafka.checkpoint import CLEANER, HIGH_WATERMARK, LOG_START, RECOVERY_POINT, PartitionOffset, format_offsets
from formats.kafka.directory_files import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    PARTITION_METADATA,
    ZERO_ID,
    format_meta_properties,
    format_partition_metadata,
    parse_meta_properties,
)
from rmqctl.errors import IOFailure, NotAStore, Refused, StoreInUse, TooDamaged
from rmqctl.files.lock import FileLock, LockHeldError
from rmqctl.files.new_files import MARK
from rmqctl.files.tree import LocalTree
from rmqctl.files.writing import Disk
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.directory.file_names import CHECKPOINTS, METADATA_TOPIC, FileKind, partition_of
from rmqctl.kafka.engine.batch import BatchHead, Ending, build_batch, end_marker
from rmqctl.kafka.engine.cleaner import Cleaned, clean
from rmqctl.kafka.engine.cluster_files import OLDEST, Cluster, ClusterTopic, cluster_records, features_of, write_cluster
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.log import SNAPSHOT, AppendResult, BatchRefused, LogPlace, WritableLog
from rmqctl.kafka.engine.segment import LOG
from rmqctl.kafka.loading.checkpoints import Checkpoints, read_text
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.recovery.plan import recovery_plan
from rmqctl.kafka.recovery.replay import Recovery, recover
from rmqctl.kafka.state.metadata import MetadataImage
from rmqctl.kafka.state.replicas import Replicas, release_shown
from rmqctl.release import Release
from rmqctl.repair.edits import Plan, Quarantine
from rmqctl.repair.execute import Applied, apply
from rmqctl.repair.journal_directory import refuse_pending
from rmqctl.text import typed

LOCK = str(FileKind.LOCK)
_BODY_SINCE = Release(3, 7, 0)
_LONGEST = 249
_TRANSACTIONS = "transaction.version"
_NODE = 1
_MOST_RECORDS = 500
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
Key = tuple[str, int]


class KafkaEngine:
    """A log directory that is open for writing.

    Attributes:
        root: the directory.
        release: whose broker it is written for.
        recovered: what recovery changed when it was opened; None where nothing lay there.
        had_crashed: it was not stopped in order before.
        logs: the partitions that are open, by topic and number.
        transaction_version: level of the feature ``transaction.version`` of the cluster; 0 without it.
    """

    def __init__(self, root: Path, config: EngineConfig, disk: Disk) -> None:
        self.root, self.config, self._disk = root, config, disk
        self.release = config.wanted
        self.recovered: Applied | None = None
        self.had_crashed = False
        self.logs: dict[Key, WritableLog] = {}
        self.cleaned: dict[Key, int] = {}
        self.transaction_version = 0
        self._others = ""
        self._ids: dict[str, str] = {}
        self._settings: dict[str, dict[str, str]] = {}
        self._epochs: dict[Key, int] = {}
        self._metadata: MetadataWriter | None = None
        self._lock = threading.RLock()
        self._is_closed = False
        self._producer_ids = -1
        disk.make_directory(root)
        try:
            self._held = FileLock(str(root / LOCK))
        except LockHeldError as error:
            raise StoreInUse(root) from error
        except OSError as error:
            raise IOFailure.of(error) from error

    # --- opening --------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | Path, config: EngineConfig | None = None, *, disk: Disk | None = None) -> Self:
        """Open a log directory, after the recovery of its release; a new one is made where nothing is.

        Raises:
            NotAStore: something else lies there.
            StoreInUse: a broker runs on it.
            TooDamaged: its broker would not start, or would lose records.
            Refused: the release cannot be written, or an earlier change was broken off.
        """
        config = config or EngineConfig()
        config.check()
        root = Path(path)
        is_new = _is_nothing(root)
        engine = cls(root, config, disk or Disk())
        try:
            if is_new:
                engine._create()
            else:
                engine._take_over()
            engine._disk.remove(root / CLEAN_SHUTDOWN)
            engine.checkpoint()
        except BaseException:
            engine._held.release(remove=engine._held.is_new)
            raise
        return engine

    def _create(self) -> None:
        if not self.config.cluster:
            return
        ids = [self._new_id(what) for what in ("cluster", "directory")]
        if self.release < OLDEST:
            self._disk.write_file(self.root / META_PROPERTIES, format_meta_properties(0, _NODE, ids[0]))
            return
        cluster = Cluster(ids[0], _NODE, self.release, directory_id=ids[1])
        write_cluster(self.root, cluster, self.config.clock(), self._disk)
        self.transaction_version = features_of(self.release).get(_TRANSACTIONS, 0)
        self._metadata = MetadataWriter(self._opened((METADATA_TOPIC, 0)), cluster)

    def _take_over(self) -> None:
        """Recover what lies here, and open every partition."""
        refuse_pending(self.root)
        replicas = _replicas(self.root)
        self.release = self.config.release or release_shown(replicas)
        found = recover(replicas, self.release, self.config.for_recovery)
        self._refuse_losses(found)
        self.had_crashed = not replicas.directories[0].is_clean
        plan = recovery_plan(list(replicas.directories), found)
        self.recovered = apply(plan if self.had_crashed else _needed(plan), lock=LOCK, lock_is_held=True)
        if self.recovered.files:
            replicas = _replicas(self.root)
        if self.had_crashed and self.recovered.journal is None:  # else that was done before anything was changed
            self._disk.sync_all(self.root)
        image = replicas.image
        self._others = _others_than_here(replicas)
        if image is not None:
            self.transaction_version = image.features.get(_TRANSACTIONS, 0)
            self._settings = {name: dict(values) for (kind, name), values in image.configs.items() if kind == "topic"}
            names = image.topic_names
            for (topic_id, number), row in image.partitions.items():
                if topic_id in names:
                    self._epochs[names[topic_id], number] = row["leaderEpoch"]
            self._ids |= image.topics
            self._metadata = self._metadata_of(replicas, image)
        checkpoints = Checkpoints(replicas.directories[0])
        for log in replicas.served:
            partition = log.partition
            key = partition.topic, partition.partition or 0
            if log.topic_id is not None:
                self._ids[partition.topic] = log.topic_id
            start = checkpoints.offset(FileKind.LOG_STARTS, partition) or 0
            point = checkpoints.offset(FileKind.RECOVERY_POINTS, partition) or 0
            self.logs[key] = self._opened(key, start, point)
            cleaned = checkpoints.offset(FileKind.CLEANER_OFFSETS, partition)
            if cleaned is not None:
                self.cleaned[key] = cleaned

    def _metadata_of(self, replicas: Replicas, image: MetadataImage) -> MetadataWriter:
        file = replicas.directories[0].one(FileKind.META_PROPERTIES)
        identity = parse_meta_properties(b"" if file is None else read_text(file))
        cluster = Cluster(
            identity.cluster_id or "", identity.node_id or 0, self.release,
            directory_id=identity.directory_id or ZERO_ID, features=image.features,
            first_producer_id=image.next_producer_id or 0,
        )  # fmt: skip
        return MetadataWriter(self._opened((METADATA_TOPIC, 0)), cluster)

    def _refuse_losses(self, found: Recovery) -> None:
        if not found.starts or found.offline:
            raise TooDamaged(self.root, f"a {found.release} broker does not start on it: {found.error}")
        if found.lost_records:
            raise TooDamaged(
                self.root, f"a {found.release} broker would lose {found.lost_records:,} records of it when it starts",
                f"type: {typed('recover', self.root)}",
            )  # fmt: skip

    def _opened(self, key: Key, start: int = 0, point: int = 0) -> WritableLog:
        topic, number = key
        directory = self.root / f"{topic}-{number}"
        place = LogPlace(
            topic, number, directory, self._log_config(topic), self.release, self.config.clock, self._disk,
            self._epochs.get(key, 0),
        )  # fmt: skip
        log = WritableLog(place, start, point)
        latest = log.epochs.latest
        if latest is not None and latest > place.leader_epoch:
            log.place = replace(place, leader_epoch=latest)
        return log

    def _log_config(self, topic: str) -> LogConfig:
        return self.config.log.with_settings(self._settings.get(topic, {}), self.config.broker)

    # --- topics ---------------------------------------------------------------------------------------

    @property
    def topics(self) -> dict[str, int]:
        """Partitions by topic."""
        found: dict[str, int] = {}
        for topic, number in self.logs:
            found[topic] = max(found.get(topic, 0), number + 1)
        return found

    def make_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic, or add partitions to one that has fewer.

        Args:
            settings: of a new topic, as ``cleanup.policy``.

        Raises:
            Refused: no topic can have this name, or the topic has more partitions.
        """
        check_topic(topic)
        has = self.topics.get(topic, 0)
        if partitions < has:
            raise Refused(f"topic {topic} has {has} partitions, and a topic never loses any; give {has} or more")
        if partitions == has:
            return
        if self._others:
            raise Refused(
                f"{self.root} is of a cluster with {self._others}: partitions that only this directory knows would be "
                f"strays there; make topic {topic} with {partitions} partitions by it first"
            )
        with self._lock:
            topic_id = self._ids.setdefault(topic, self._new_id(f"topic {topic}"))
            if not has and settings:
                self._settings[topic] = dict(settings)
            added = range(has, partitions)
            if self._metadata is not None:
                made = ClusterTopic(topic, topic_id, dict.fromkeys(added, -1), self._settings.get(topic, {}))
                self._metadata.add(made, self.config.clock(), is_known=has > 0)
            for number in added:
                directory = self.root / f"{topic}-{number}"
                self._disk.make_directory(directory)
                self._disk.write_file(directory / PARTITION_METADATA, format_partition_metadata(topic_id))
                self.logs[topic, number] = self._opened((topic, number))

    def _new_id(self, what: str) -> str:
        """Return an id that nothing here has; with a seed the same for the same thing."""
        seed = self.config.seed
        draw = random.SystemRandom() if seed is None else random.Random(f"{seed} {what}")  # noqa: S311 - no secret
        taken = set(self._ids.values())
        while True:
            text = base64.urlsafe_b64encode(draw.randbytes(16)).decode("ascii").rstrip("=")
            if not text.startswith("-") and text not in taken:
                return text

    def replicas(self) -> Replicas:
        """Return the directory as it lies on the disk now, for those who read it."""
        return _replicas(self.root)

    def log(self, topic: str, partition: int) -> WritableLog:
        """One partition.

        Raises:
            Refused: it is not there, or the engine is closed.
        """
        if self._is_closed:
            raise Refused(f"{self.root} is closed; open it again")
        found = self.logs.get((topic, partition))
        if found is None:
            raise Refused(f"there is no partition {partition} of topic {topic}; make it first")
        return found

    # --- appending ------------------------------------------------------------------------------------

    def append(
        self, topic: str, partition: int, records: Sequence[Record], head: BatchHead | None = None
    ) -> AppendResult:
        """Append records as one batch; they get the next offsets, in their order.

        Args:
            records: their offsets are not looked at.
            head: codec, producer and the like; offsets and epoch of the leader are set here.

        Raises:
            BatchRefused: a broker would not take them.
        """
        if not records:
            raise BatchRefused("a producer sends no batch without records")
        if any(record.key is None for record in records):
            self.check_keyless(topic, partition)
        numbered = [record._replace(offset=number) for number, record in enumerate(records)]
        return self.append_batch(topic, partition, build_batch(replace(head or BatchHead(), base_offset=0), numbered))

    def check_keyless(self, topic: str, partition: int) -> None:
        """Hold a record without a key to its topic.

        Raises:
            BatchRefused: the topic is compacted.
        """
        if self.log(topic, partition).config.is_compacted:
            raise BatchRefused(f"a record without a key: topic {topic} is compacted, so each needs one")

    def append_batch(self, topic: str, partition: int, batch: bytes) -> AppendResult:
        """Append a batch as a producer sends it; see :meth:`WritableLog.append`."""
        log = self.log(topic, partition)
        result = log.append(batch)
        log.flush_if_due()
        return result

    def end_transaction(self, ending: Ending, partitions: Iterable[Key]) -> list[AppendResult]:
        """Append the marker that ends a transaction to the partitions that take part in it."""
        if ending.timestamp < 0:
            ending = ending._replace(timestamp=self.config.clock())
        return [self.append_batch(topic, number, end_marker(ending)) for topic, number in partitions]

    # --- keeping house --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Bring all logs to the disk, and their recovery points."""
        if self._metadata is not None:
            self._metadata.log.flush()
        for log in list(self.logs.values()):
            log.flush()
        self.checkpoint()

    def retain(self) -> dict[Key, list[int]]:
        """Delete what retention no longer keeps: base offsets of the segments, by partition."""
        found = {key: dropped for key, log in list(self.logs.items()) if (dropped := log.retain())}
        if found:
            self.checkpoint()
        return found

    def compact(self, *, roll: bool = False) -> dict[Key, Cleaned]:
        """Clean the compacted partitions; what was done in those that had something to clean.

        Args:
            roll: end active segments first, which are never cleaned.

        Raises:
            TooDamaged: a batch cannot be read.
        """
        found: dict[Key, Cleaned] = {}
        for key, log in list(self.logs.items()):
            if not log.config.is_compacted:
                continue
            if roll and log.active.size:
                log.roll()
            cleaned = clean(log, self.cleaned.get(key, 0), self.config.clock())
            if cleaned is not None:
                found[key] = cleaned
                self.cleaned[key] = cleaned.end
        if found:
            self.checkpoint()
        return found

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start of a partition, as `kafka-delete-records` does.

        Raises:
            Refused: the offset is above the end.
        """
        self.log(topic, partition).delete_records(before)
        self.checkpoint()

    def checkpoint(self) -> None:
        """Write the files that say of each partition what is flushed, committed, and where it begins."""
        with self._lock:
            logs = {key: self.logs[key] for key in sorted(self.logs)}
            starts = {k: log.start for k, log in logs.items() if log.start > _first_base(log)}
            self._write(RECOVERY_POINT, {key: log.flushed for key, log in logs.items()})
            self._write(HIGH_WATERMARK, {key: log.end for key, log in logs.items()})
            self._write(LOG_START, starts)
            if self.cleaned:
                self._write(CLEANER, self.cleaned)
            self._disk.settle()

    def _write(self, name: str, offsets: dict[Key, int]) -> None:
        data = format_offsets(PartitionOffset(topic, number, offset) for (topic, number), offset in offsets.items())
        temporary = self.root / f"{name}.tmp"
        self._disk.write_file(temporary, data)
        self._disk.replace(temporary, self.root / name)

    # --- ending ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop in order: all logs flushed, indexes trimmed, checkpoints, the marker.

        Raises:
            IOFailure: the system refuses; the directory is then as after a crash.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._metadata is not None:
                self._metadata.close(self._next_producer_id(), self.config.clock())
            for log in self.logs.values():
                log.close()
            self.checkpoint()
            self._disk.write_file(self.root / CLEAN_SHUTDOWN, self._marker())
            self._disk.settle()
        except BaseException:
            self._abandon()
            raise
        self._held.release(remove=True)

    def _marker(self) -> bytes:
        if self.release < _BODY_SINCE:
            return b""
        return json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":")).encode()

    def crash(self) -> None:
        """Stop as after kill -9, with all on the disk: no marker, indexes in their full length, the lock file left."""
        if not self._is_closed:
            self._is_closed = True
            if self._metadata is not None:
                self._metadata.reserve(self._next_producer_id(), self.config.clock())
            self._abandon()
            self._disk.sync_all(self.root)

    def new_producer_id(self) -> int:
        """Return an id that no producer here has, and that no broker will give to another."""
        with self._lock:
            known = 0 if self._metadata is None else self._metadata.cluster.first_producer_id
            self._producer_ids = max(self._next_producer_id(), known, self._producer_ids + 1)
            return self._producer_ids

    def _next_producer_id(self) -> int:
        """Above the ids of all producers here, so that a broker gives none of them to another."""
        known = (n + 1 for log in self.logs.values() for n in log.states.replay.producers)
        return max(self._producer_ids + 1, *known, 0)

    def _abandon(self) -> None:
        for log in (*self.logs.values(), *([self._metadata.log] if self._metadata is not None else [])):
            log.abandon()
        self._held.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MetadataWriter:
    """The metadata log of a cluster of one node: topics that are made here get into it, as a controller puts them."""

    def __init__(self, log: WritableLog, cluster: Cluster) -> None:
        self.log, self.cluster = log, cluster
        self._features = features_of(cluster.release, cluster.features)

    def add(self, topic: ClusterTopic, now: int, *, is_known: bool) -> None:
        """Append a topic with its settings and partitions; of one that is known only the partitions."""
        cluster = replace(self.cluster, topics=(topic,), first_producer_id=0)
        self._append(list(cluster_records(cluster, self._features, {topic.name} if is_known else ())), now)

    def reserve(self, producer_id: int, now: int) -> None:
        """Say that ids of producers below one are taken."""
        if producer_id > self.cluster.first_producer_id:
            self.cluster = replace(self.cluster, topics=(), first_producer_id=producer_id)
            self._append(list(cluster_records(self.cluster, self._features)), now)

    def _append(self, values: list[bytes], now: int) -> None:
        for at in range(0, len(values), _MOST_RECORDS):
            part = values[at : at + _MOST_RECORDS]
            records = [Record(number, now, -1, None, value) for number, value in enumerate(part)]
            self.log.append(build_batch(BatchHead(), records))
        self.log.flush()

    def close(self, producer_id: int, now: int) -> None:
        """End the log, with the ids of producers that are taken."""
        self.reserve(producer_id, now)
        self.log.close()


def _others_than_here(replicas: Replicas) -> str:
    """Who else decides which topics there are; "" for a node that is alone, and in the time of ZooKeeper."""
    file, image = replicas.directories[0].one(FileKind.META_PROPERTIES), replicas.image
    if image is not None:
        return f"{len(image.brokers)} brokers" if len(image.brokers) > 1 else ""
    is_kraft = file is not None and parse_meta_properties(read_text(file)).version == 1
    return "a controller elsewhere" if is_kraft else ""


def _needed(plan: Plan) -> Plan:
    """Return a recovery after an orderly stop, less what needs no way back.

    That is the indexes of the metadata log, which brokers make again at every start, and snapshots of producers that
    belong to no segment, which :class:`WritableLog` deletes.
    """
    own = {step.file for step in plan.steps if step.file.startswith(f"{METADATA_TOPIC}-")}
    if any(name.endswith(LOG) for name in own):
        own = set()
    kept = [
        step
        for step in plan.steps
        if step.file not in own and not (step.file.endswith(SNAPSHOT) and isinstance(step.edits[0], Quarantine))
    ]
    return replace(plan, steps=tuple(kept))


def _first_base(log: WritableLog) -> int:
    return log.closed[0].base if log.closed else log.active.base


def check_topic(topic: str) -> None:
    """Hold the name of a topic to what brokers take.

    Raises:
        Refused: brokers know no topic of this name.
    """
    if not topic or topic in (".", "..") or len(topic) > _LONGEST or not _NAME.issuperset(topic):
        raise Refused(
            f"{topic!r} is no topic of Kafka: at most {_LONGEST} letters, digits, '.', '_' and '-'; give another name"
        )
    if topic == METADATA_TOPIC:
        raise Refused(f"{topic} is the cluster's own log; give another topic")


def _is_nothing(root: Path) -> bool:
    """Whether nothing lies at a path that an engine would have to take over.

    Raises:
        NotAStore: something lies there that is no log directory.
    """
    if not root.exists():
        return True
    if not root.is_dir():
        raise NotAStore(root, "it is a file", "give a directory", wanted="log directory")
    names = {path.name for path in root.iterdir()} - {LOCK, MARK}
    if not names:
        return True
    known = any(partition_of(n) for n in names) or any(
        str(k) in names for k in (*CHECKPOINTS, FileKind.META_PROPERTIES)
    )
    if not known:
        raise NotAStore(root, "other files are in it", "give a new or empty directory", wanted="log directory")
    return False


def _replicas(root: Path) -> Replicas:
    return Replicas(LogDirectories([read_directory(LocalTree(str(root)))]))
