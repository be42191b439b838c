"""The logs of a cluster as one: of each partition the replica with which least is lost when it leads."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property

from formats.kafka.internal_records import CLUSTER_METADATA, CONSUMER_OFFSETS, SHARE_GROUP_STATE
from rmqctl.kafka.directory.directory import LogDirectories
from rmqctl.kafka.loading.load import LoadedPartition
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.replication.copies import copy_of
from rmqctl.kafka.replication.elect import Disk, contest, together
from rmqctl.kafka.state.metadata import metadata_image
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas

INTERNAL = frozenset({CLUSTER_METADATA, CONSUMER_OFFSETS, SHARE_GROUP_STATE})
"""What says which groups there are, and where they stand."""
_Logs = Sequence[tuple[int, PartitionLog]]
"""Replicas of a partition, each with the number of its broker."""


class ClusterReplicas(Replicas):
    """The partitions of a cluster, one replica of each.

    Args:
        names: of the brokers.
        brokers: their replicas.
        compared: topics whose replicas are held against each other, batch by batch, where they differ, as `elect` does;
            of others the one with the latest leader epoch and the most counts.
        before: the same brokers with fewer topics compared, so that nothing is compared twice.
    """

    def __init__(
        self,
        names: Sequence[str],
        brokers: Sequence[Replicas],
        compared: Container[str] = INTERNAL,
        before: ClusterReplicas | None = None,
    ) -> None:
        super().__init__(LogDirectories([one for broker in brokers for one in broker.directories]))
        self.names, self.brokers, self.compared, self.before = names, brokers, compared, before
        self.unread: dict[str, str] = {}
        self.disks: list[Disk | None] = before.disks if before is not None else list(map(_disk, names, brokers))
        self._stores = {id(one): n for n, broker in zip(names, brokers, strict=True) for one in broker.directories}

    def store_of(self, log: PartitionLog) -> str:
        """Return the name of the broker whose log it is."""
        return self._stores[id(log.directory)]

    @cached_property
    def all(self) -> list[PartitionLog]:
        found: dict[tuple[str, int], list[_Logs]] = {}
        for _, logs in together(self.brokers):
            name = logs[0][1].partition
            found.setdefault((name.topic, name.partition or 0), []).append(logs)
        chosen: dict[tuple[str, int], PartitionLog] = {}
        topics: dict[str, str] = {}
        for key in sorted(found, key=lambda key: (key[0] != CLUSTER_METADATA, key)):
            before = self.before.find(*key) if self.before is not None and key[0] in self.before.compared else None
            log = before or self._chosen(self._of_topic(topics.get(key[0]), found[key]))
            if log is not None:
                chosen[key] = log
                if key[0] == CLUSTER_METADATA:
                    topics = metadata_image(log).topics
        return [chosen[key] for key in sorted(chosen)]

    def _of_topic(self, topic_id: str | None, groups: Sequence[_Logs]) -> _Logs:
        """Return the replicas of the topic that has the name now, else of that which most brokers have."""

        def order(logs: _Logs) -> tuple[bool, int]:
            ids = {self.brokers[number].topic_id(log) for number, log in logs}
            return topic_id in ids, len(logs)

        return max(groups, key=order)

    def _chosen(self, logs: _Logs) -> PartitionLog | None:
        """Return the replica that leads; None where none can be read."""
        readable = [(number, log) for number, log in logs if self._is_readable(number, log)]
        if len(readable) < 2:
            return readable[0][1] if readable else None
        errors = [self._error(number, log) for number, log in readable]

        def order(at: int) -> tuple[bool, int, int]:
            loaded = readable[at][1].loaded
            return errors[at] is None, max((epoch for epoch, _ in loaded.epochs), default=-1), loaded.log_end_offset

        ends = {(tuple(log.loaded.epochs), log.loaded.log_end_offset) for _, log in readable}
        if len(ends) == 1 or readable[0][1].partition.topic not in self.compared:
            return readable[max(range(len(readable)), key=order)][1]
        copies = [copy_of(log, str(at), loaded=self._loaded(number, log)) for at, (number, log) in enumerate(readable)]
        return readable[int(contest("", copies, errors).best.name)][1]

    def _is_readable(self, number: int, log: PartitionLog) -> bool:
        try:
            return log.loaded is not None
        except OSError as error:
            self.unread.setdefault(self.names[number], f"{log.partition.directory}: {error.strerror or error}")
            return False

    def _loaded(self, number: int, log: PartitionLog) -> LoadedPartition | None:
        disk = self.disks[number]
        return None if disk is None else disk.loaded(log)

    def _error(self, number: int, log: PartitionLog) -> str | None:
        disk = self.disks[number]
        return None if disk is None or self._loaded(number, log) is not None else disk.error


def _disk(name: str, broker: Replicas) -> Disk | None:
    """Return the start on the disks of a broker; None where one runs, or where they cannot be read."""
    if broker.place.is_running:
        return None
    try:
        return Disk(name, broker, recover(broker))
    except OSError:
        return None  # the partition that cannot be read says so
