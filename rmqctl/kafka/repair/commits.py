"""Positions appended to ``__consumer_offsets`` and ``__share_group_state`` as their leaders would append them: a batch,
and what is derived.

Nothing that is there changes: the last record of a key counts, and of share groups the last snapshot. The batch goes to
the partition that has the group's, under the last leader epoch of its log, without a producer. Indexes, the leader
epochs of an empty log and checkpoints follow where a broker would have written them, by the code that rebuilds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from formats.kafka.internal_records import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from rmqctl.errors import Refused
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory
from rmqctl.kafka.engine.batch import BatchHead, build_batch
from rmqctl.kafka.engine.commits import commit_record, share_record
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.query.key import partition_of_name
from rmqctl.kafka.rebuild.rebuild import RebuildOptions, rebuild
from rmqctl.kafka.repair.files import appended
from rmqctl.kafka.repair.overlaid import overlaid
from rmqctl.kafka.state.internal_topics import SharePartition, ShareState
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas, meta_properties
from rmqctl.kafka.verify.driver import Verification, VerifyOptions
from rmqctl.positions import Change, Key
from rmqctl.repair.edits import Plan, Step
from rmqctl.text import typed

STEP = "offsets.commit"
_MOST_RECORDS = 1000
"""Of one batch: far below the least ``max.message.bytes`` in use."""
_TOOLS = {CONSUMER_OFFSETS: "kafka-consumer-groups.sh", SHARE_GROUP_STATE: "kafka-share-groups.sh"}
_PARTITIONS = "offsets.topic.num.partitions"


def partition_of_group(replicas: Replicas, group: str) -> int:
    """Return the partition of ``__consumer_offsets`` that has the offsets of a group.

    Raises:
        Refused: nobody knows how many there are.
    """
    here = replicas.of(CONSUMER_OFFSETS)
    count = replicas.partition_count(CONSUMER_OFFSETS)
    known = replicas.image is not None and count
    stated = replicas.settings.get(_PARTITIONS, "")
    if not known and stated.isdigit():
        count = int(stated)
    elif not known and len(here) != count:
        raise Refused(
            f"{CONSUMER_OFFSETS} is not all here, and nothing says how many partitions it has; nothing was written; "
            f"give a --broker-conf with {_PARTITIONS}"
        )
    if not count:
        raise Refused(
            f"{CONSUMER_OFFSETS} is not here: no group has ever committed to this broker; nothing was written"
        )
    return partition_of_name(group, count)


def partition_of_state(state: ShareState) -> int:
    """Return the partition of ``__share_group_state`` that has a state: that in which it was read."""
    return int(state.file.split("/")[-2].removeprefix(f"{SHARE_GROUP_STATE}-"))


def plan_commits(
    replicas: Replicas,
    directory: LogDirectory,
    changes: Sequence[Change],
    settings: Mapping[str, str],
    shares: Mapping[Key, tuple[SharePartition, ShareState]],
    *,
    only_replica: bool,
) -> Plan:
    """Plan the batches that commit positions.

    Args:
        shares: the states of share groups, whose positions are the starts of them.
        only_replica: nobody else has the partitions, whatever the metadata says.

    Raises:
        Refused: a partition is elsewhere, has other replicas, or would be changed by a start.
    """
    by_partition = dict[tuple[str, int], list[Change]]()
    for change in changes:
        share = shares.get(change.key)
        place = partition_of_state(share[1]) if share else partition_of_group(replicas, change.key.group)
        by_partition.setdefault((SHARE_GROUP_STATE if share else CONSUMER_OFFSETS, place), []).append(change)
    now, steps = time.time_ns() // 1_000_000, list[Step]()

    def record(change: Change) -> Record:
        key, share = change.key, shares.get(change.key)
        return share_record(*share, change.new, now) if share else commit_record(*key, change.new, now)

    for (topic, number), found in sorted(by_partition.items()):
        log = _writable(replicas, directory, (topic, number), found, only_replica=only_replica)
        steps.append(_step(replicas, log, found, record))
    steps += _derived(directory, steps, settings)
    return Plan(Path(directory.root), f"positions of groups in {directory.root}", tuple(steps))


def _writable(
    replicas: Replicas,
    directory: LogDirectory,
    place: tuple[str, int],
    changes: Sequence[Change],
    *,
    only_replica: bool,
) -> PartitionLog:
    label, group = f"{place[0]}-{place[1]}", changes[0].key.group
    log = replicas.find(*place)
    if log is None or log.directory is not directory:
        raise Refused(f"the offsets of {group} are in {label}, which is not here; nothing was written")
    nodes = _other_nodes(replicas, directory, *place)
    if nodes is None and not only_replica:
        raise Refused(
            f"nothing here says whether {label} has other replicas, which would not have what is written; nothing was "
            "written; give --only-replica if it has none"
        )
    if nodes and not only_replica:
        raise Refused(
            f"{label} has replicas on other nodes, too ({', '.join(map(str, nodes))}), whose logs would go another "
            f"way; nothing was written; let the brokers do it ({_TOOLS[place[0]]} --reset-offsets), or give "
            "--only-replica if none of those comes back"
        )
    loaded = log.loaded
    if loaded.failure or loaded.stopped_by is not None or loaded.unread_from is not None or not log.segments:
        raise Refused(
            f"a start would change {label} first, so nothing can be appended to it; nothing was written; see: "
            + typed("repair", directory.root)
        )
    return log


def _other_nodes(replicas: Replicas, directory: LogDirectory, topic: str, number: int) -> list[int] | None:
    """Return the other nodes that have a partition; None where the metadata is not here."""
    image, properties = replicas.image, meta_properties(directory)
    if image is None or properties is None:
        return None
    known = image.partitions.get((image.topics.get(topic, ""), number))
    return None if known is None else [node for node in known["replicas"] if node != properties.node_id]


def _step(replicas: Replicas, log: PartitionLog, changes: Sequence[Change], record: Callable[[Change], Record]) -> Step:
    file = log.segments[-1].log
    assert file is not None
    end, epoch, data = log.loaded.log_end_offset, _epoch(replicas, log), b""
    for at in range(0, len(changes), _MOST_RECORDS):
        records = [record(c)._replace(offset=end + at + n) for n, c in enumerate(changes[at : at + _MOST_RECORDS])]
        data += build_batch(BatchHead(end + at, leader_epoch=epoch), records)
    texts = (
        f"{c.key.group} in {c.key.topic}-{c.key.queue} from {'none' if c.old is None else c.old} to {c.new}"
        for c in changes
    )
    what = f"commit from offset {end} on: {'; '.join(texts)}"
    return Step(STEP, file.name, what, "it was asked for", tuple(appended(file.name, file.size, data)))


def _epoch(replicas: Replicas, log: PartitionLog) -> int:
    """Return the leader epoch of the end of a log; of one without batches that which the metadata gives it."""
    if log.replayed.epochs:
        return max(epoch for epoch, _ in log.replayed.epochs)
    image = replicas.image
    known = image.partitions.get((replicas.topic_id(log) or "", log.partition.partition or 0)) if image else None
    return max([0 if known is None else known["leaderEpoch"], *(entry.epoch for entry in log.leader_epochs.entries)])


def _derived(directory: LogDirectory, steps: Sequence[Step], settings: Mapping[str, str]) -> Iterator[Step]:
    """Yield steps for derived files of the partitions that would be wrong with the batches, and are not without."""
    after = overlaid(directory, steps)
    names = sorted({step.file.partition("/")[0] for step in steps})
    findings = list[Finding]()
    for name in names:
        before = {(f.kind.id, f.file) for f in _findings(directory, name)}
        findings += [f for f in _findings(after, name) if (f.kind.id, f.file) not in before]
    if not findings:
        return
    options = RebuildOptions(settings=settings, only=frozenset(names), findings=findings)
    made, wrong = rebuild(Replicas(LogDirectories([after])), after, options), {f.file for f in findings}
    yield from (step for step in made.steps(after) if step.file in wrong)


def _findings(directory: LogDirectory, partition: str) -> Iterator[Finding]:
    checked = Verification(directory, VerifyOptions("structure"), selection=partition)
    return (finding for finding in checked.findings() if finding.level is not Severity.NOTE)
