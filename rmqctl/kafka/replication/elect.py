"""What each choice of leader loses: replicas of partitions held against their union."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from rmqctl.answer import Advance
from rmqctl.election import Amount, Candidate, Contest, Relation
from rmqctl.kafka.loading.load import LoadedPartition
from rmqctl.kafka.recovery.replay import Recovery, recover
from rmqctl.kafka.replication.copies import Batches, Copy, EpochChain, copy_at
from rmqctl.kafka.replication.union import Union, joined
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas, meta_properties
from rmqctl.release import Release

_PLACE = ["base", "last", "crc"]
"""What sets a batch apart, whatever leader epoch it claims: no CRC covers that."""


def contests(
    names: Sequence[str],
    brokers: Sequence[Replicas],
    releases: Sequence[Release],
    advance: Advance = lambda _: None,
) -> Iterator[Contest]:
    """Compare the replicas of every partition that the disks of some brokers hold.

    A topic that was deleted and made again under its name is another one.

    Args:
        releases: of the broker that would start on each.
    """
    disks = [  # what a user pointed at inside of one is one partition, or one file
        None if broker.place.selection else Disk(name, broker, recover(broker, release))
        for name, broker, release in zip(names, brokers, releases, strict=True)
    ]
    for label, logs in together(brokers):
        copies, errors = list[Copy](), list[str | None]()
        for number, log in logs:
            disk = disks[number]
            loaded = None if disk is None else disk.loaded(log)
            copies.append(copy_at(brokers[number].place, log, names[number], advance, loaded))
            errors.append(None if disk is None or loaded is not None else disk.error)
        found = contest(label, copies, errors)
        if logs[0][1].partition.is_metadata_log:
            _add_voters(found, [brokers[number] for number, _ in logs])
        yield found


def _add_voters(found: Contest, brokers: Sequence[Replicas]) -> None:
    """Say who elects the leader of the metadata log, as far as the replicas know."""
    nodes = [meta_properties(broker.directories[0]) for broker in brokers]
    images = [broker.image for broker in brokers]
    known = [{voter["voterId"] for voter in image.voters} or {*image.quorum} for image in images if image is not None]
    voters = next((ids for ids in known if ids), set[int]())
    found.voters = len(voters) or len(brokers)
    found.keepers = tuple(
        one.name
        for one, node in zip(found.candidates, nodes, strict=True)
        if one.is_safe and (not voters or (node is not None and node.node_id in voters))
    )


@dataclass(frozen=True)
class Disk:
    """The disks of a broker, and the replay of its start on them."""

    name: str
    broker: Replicas
    start: Recovery

    @property
    def error(self) -> str | None:
        """What keeps the broker from serving what it has not loaded; None where nothing does."""
        if not self.start.starts:
            return f"a {self.start.release} broker does not start on {self.name}: {self.start.error}"
        return (
            f"a {self.start.release} broker takes {self.name} offline: {self.start.error}"
            if self.start.offline
            else None
        )

    def loaded(self, log: PartitionLog) -> LoadedPartition | None:
        """Return what the broker has loaded of a partition; None for one that it does not serve."""
        return self._loaded.get(id(log.partition))

    @cached_property
    def _loaded(self) -> dict[int, LoadedPartition]:
        return {id(one.loaded.partition): one.loaded for one in self.start.partitions}


def contest(label: str, copies: Sequence[Copy], errors: Sequence[str | None]) -> Contest:
    """Compare the copies of one partition.

    Args:
        errors: what keeps a broker from serving each.
    """
    union = Union(copies)
    candidates = [_candidate(union, number, error) for number, error in enumerate(errors)]
    relations = [relation(union, a, b) for a, b in combinations(range(len(copies)), 2)]
    overwritten = joined([union.overwritten(number) for number in range(len(copies))])
    _, first = np.unique(overwritten.keys(), return_index=True)
    return Contest(label, candidates, relations, tuple(union.holes), amount(overwritten.take(first)))


def amount(batches: Batches) -> Amount:
    """Batches as a number of records and where they lie; those that are ascending by offset."""
    if not len(batches):
        return Amount()
    breaks = np.flatnonzero(batches.base[1:] != batches.last[:-1] + 1) + 1
    starts, ends = [0, *breaks.tolist()], [*(breaks - 1).tolist(), len(batches) - 1]
    ranges = zip(batches.base[starts].tolist(), batches.last[ends].tolist(), strict=True)
    return Amount(batches.records, batches.bytes, tuple(ranges))


def _candidate(union: Union, number: int, error: str | None) -> Candidate:
    copy = union.copies[number]
    overwritten = union.overwritten(number)
    lost = joined([union.lacking(number), overwritten])
    lost = lost.take(np.lexsort((lost.last, lost.base)))
    others = joined([union.superseded(n) for n in range(len(union.copies)) if n != number] or [lost.take(slice(0))])
    _, first = np.unique(others.keys(), return_index=True)  # two copies may have the same ones
    others = others.take(first)
    known = [overwritten.keys()[_PLACE], copy.batches.keys()[_PLACE]]
    gone = others.take(~np.isin(others.keys()[_PLACE], np.concatenate(known)))
    return Candidate(
        copy.name,
        copy.start,
        copy.end,
        tuple(copy.chain.entries),
        amount(lost),
        lost.take(lost.base < union.committed).records,
        amount(gone.take(np.lexsort((gone.last, gone.base)))),
        error,
    )


def relation(union: Union, a: int, b: int) -> Relation:
    """How two of the copies relate."""
    one, two = union.copies[a], union.copies[b]
    x, y = one.batches, two.batches
    keys_x, keys_y = x.keys(), y.keys()
    rest_x, rest_y = x.take(~np.isin(keys_x, keys_y)), y.take(~np.isin(keys_y, keys_x))
    places_x, places_y = (rest.keys()[["base", "last", "epoch"]] for rest in (rest_x, rest_y))
    same = np.isin(places_x, places_y)
    differing = [int(rest.base[0]) for rest in (rest_x, rest_y) if len(rest)]
    return Relation(
        one.name,
        two.name,
        common_end(one, two),
        min(differing, default=None),
        amount(rest_x.take(~same)),
        amount(rest_y.take(~np.isin(places_y, places_x))),
        int(same.sum()),
    )


def common_end(one: Copy, two: Copy) -> int:
    """Return the offset up to which two copies have the same leader epochs, as far as both reach."""
    end = min(one.end, two.end)
    starts = sorted({start for copy in (one, two) for _, start in copy.chain.entries} | {max(one.start, two.start)})
    for start in starts:
        at = np.array([start], np.int64)
        if max(one.start, two.start) <= start < end and one.chain.at(at)[0] != two.chain.at(at)[0]:
            return start
    return end


def together(brokers: Sequence[Replicas]) -> Iterator[tuple[str, list[tuple[int, PartitionLog]]]]:
    """Yield the replicas of each partition, with the number of the broker of each; those of one topic id are one."""
    found: dict[tuple[str, int], list[tuple[int, PartitionLog]]] = {}
    for number, broker in enumerate(brokers):
        selected = {id(partition) for partition in broker.place.selected}
        for log in broker.all:
            if id(log.partition) in selected and log.partition.partition is not None:
                found.setdefault((log.partition.topic, log.partition.partition), []).append((number, log))
    for (topic, partition), logs in sorted(found.items()):
        ids = {brokers[number].topic_id(log) for number, log in logs} - {None}
        for topic_id in sorted(ids, key=str) if len(ids) > 1 else [None]:
            some = [(n, log) for n, log in logs if topic_id is None or brokers[n].topic_id(log) in (topic_id, None)]
            yield f"{topic}-{partition}" + (f" ({topic_id})" if topic_id else ""), some


# --- a follower -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Following:
    """What a copy gives up when it follows another one.

    Attributes:
        end, leader_end: of its log and the leader's, once brokers have started on them.
        steps: the last epoch that it asks about, the epoch and end offset that the leader answers, and the offset
            to which it cuts its log (KIP-101, KIP-279).
        cut_to: where its log ends before it fetches.
        cut: what goes; ``alone``: what of that the leader has not.
        unknown_epoch: its latest epoch, where the leader will not know one so late: each fetch is then out of range,
            and the copy never is in sync; -1 where it comes to be.
    """

    end: int
    leader_end: int
    steps: tuple[tuple[int, int, int, int], ...]
    cut_to: int
    cut: Amount
    alone: Amount
    unknown_epoch: int = -1

    def row(self) -> dict[str, object]:
        """As JSON."""
        names = ("asked_epoch", "answered_epoch", "answered_end_offset", "cut_to")
        return {
            "log_end_offset": self.end,
            "leader_log_end_offset": self.leader_end,
            "steps": [dict(zip(names, step, strict=True)) for step in self.steps],
            "cut_to": self.cut_to,
            "cut": {"records": self.cut.count, "bytes": self.cut.bytes},
            "lost": self.alone.row(),
            "unknown_epoch": None if self.unknown_epoch < 0 else self.unknown_epoch,
        }


def follow(copy: Copy, leader: Copy, last_epoch: int | None = None) -> Following:
    """Return what a copy does when its broker starts and the other one is elected: it cuts its log where the two part.

    The leader begins the epoch after the controller's at its end. The copy cuts its log as long as a fetch with its
    latest epoch meets another end or epoch there, as brokers do since 2.7. One that knows no epoch cuts to its high
    watermark, one that lies wholly before the leader's first offset begins there, with nothing. One whose latest epoch
    is above the leader's cuts to the leader's end, and is refused for ever where it knows that epoch still.

    Args:
        last_epoch: which the controller gave the partition; None: nobody says, and no copy knows a later one.
    """
    served, end, chain = copy.served, copy.end, copy.known
    stated = max(chain.latest, leader.known.latest) if last_epoch is None else last_epoch
    elected = max(stated, *(int(one.batches.epoch.max(initial=-1)) for one in (copy, leader))) + 1
    kept = (entry for entry in leader.known.entries if entry[0] < elected and entry[1] < leader.end)
    known, unknown = EpochChain([*kept, (elected, leader.end)]), -1
    steps = list[tuple[int, int, int, int]]()
    if chain.latest < 0:
        end = min(max(copy.high_watermark, copy.start), end)
    while (asked := chain.latest) >= 0 and unknown < 0:
        epoch, answered = known.end_of(asked, leader.end)
        parts = epoch < asked or answered < end
        if epoch < 0:
            end = min(end, leader.end)
        elif parts:
            own_epoch, own_end = chain.end_of(epoch, end)
            end = min(own_end, end) if own_epoch != epoch else min(own_end, answered, end)
        if parts or not steps:
            steps.append((asked, epoch, answered, end))
        if not parts:
            break
        chain = EpochChain(entry for entry in chain.entries if entry[1] < end)
        unknown = asked if epoch < 0 and chain.latest == asked else -1
    end = min(end, leader.end)
    gone = served if end < leader.start else served.take(served.last >= end)
    end = max(end, leader.start)
    alone = gone.take(~np.isin(gone.keys()[_PLACE], leader.served.keys()[_PLACE]))
    return Following(copy.end, leader.end, tuple(steps), end, amount(gone), amount(alone), unknown)


def each_following(follower: Disk, leader: Disk, advance: Advance = lambda _: None) -> Iterator[tuple[str, Following]]:
    """Yield what the partitions of one broker give up when those of the other one lead; partitions that both serve."""
    disks = follower, leader
    for label, logs in together([disk.broker for disk in disks]):
        loaded = [disks[number].loaded(log) for number, log in logs]
        if len(logs) == 2 and None not in loaded:
            copies = [
                copy_at(disks[number].broker.place, log, label, advance, one)
                for (number, log), one in zip(logs, loaded, strict=True)
            ]
            yield label, follow(copies[0], copies[1], _last_epoch(disks, logs[0][1]))


def _last_epoch(disks: Sequence[Disk], log: PartitionLog) -> int | None:
    """Return the latest leader epoch that the metadata on some disks gives a partition; None where none has it."""
    topic, number = log.partition.topic, log.partition.partition
    images = [disk.broker.image for disk in disks]
    known = [image.partitions.get((image.topics.get(topic, ""), number or 0)) for image in images if image is not None]
    return max((partition["leaderEpoch"] for partition in known if partition is not None), default=None)
