"""`recover` of a log directory: a broker's start as the JSON object of the contract, as rows, and as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from rmqctl import questions
from rmqctl.answer import Answer, Proposal, Row, Section
from rmqctl.findings import header_of
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.directory.releases import COMPARED, NEWEST
from rmqctl.kafka.recovery.losses import lost_blocks
from rmqctl.kafka.recovery.replay import RecoveredPartition, Recovery
from rmqctl.kafka.recovery.replay import recover as replay
from rmqctl.kafka.state.replicas import Gone, Replicas, release_shown
from rmqctl.release import Release
from rmqctl.text import listed_names, number_of, typed, what_a_start_leaves

if TYPE_CHECKING:  # only a start beside a leader compares two disks
    from rmqctl.kafka.replication.elect import Disk, Following

_FOLLOWING = ("partition", "log_end_offset", "leader_log_end_offset", "cut_to", "cut", "lost")


def recover(
    replicas: Replicas,
    asked: questions.Recover,
    settings: Mapping[str, str],
    of_leader: Replicas | None,
    answer: Proposal,
) -> Proposal:
    """Say what a broker's start does to log directories, and plan it where that is wanted.

    Args:
        settings: of the broker.
        of_leader: the disks of a broker that is to lead: also say what is cut when it is followed.

    Raises:
        Refused: what is to be planned cannot be carried out.
    """
    if asked.compare:
        starts = [replay(replicas, release, settings) for release in (*COMPARED, Release.parse(NEWEST))]
        answer.rows = [comparison(start) for start in starts]
        answer.is_no = not all(start.is_harmless for start in starts)
    else:
        found = replay(replicas, asked.as_release or release_shown(replicas), settings)
        gone = list(replicas.gone())
        answer.is_no = answer.is_no_after = not found.is_harmless or bool(gone)
        if asked.list_lost:
            from rmqctl.kafka.dump.dumping import BATCH_KEYS

            answer.rows, answer.header = lost_rows(found), header_of(BATCH_KEYS, damage=True)
        else:
            show(found, gone, replicas.place.root, answer)
        if asked.wants_plan:
            from rmqctl.kafka.recovery.plan import recovery_plan
            from rmqctl.kafka.verbs.planning import annotate, hold

            answer.annotate = annotate
            plan = recovery_plan(list(replicas.directories), found)
            answer.document = None
            plan, books = hold(plan, replicas, found.release, settings, is_start=True)
            answer.plan = answer.shown = plan
            if plan.steps:
                answer.hold_to(books)
            answer.check = partial(_complaints, replicas, found.release, settings)
        if of_leader is not None:
            from rmqctl.kafka.replication.elect import Disk

            led = replay(of_leader, asked.as_release or release_shown(of_leader), settings)
            leader = Disk(of_leader.place.root, of_leader, led)
            _add_leader(Disk(replicas.place.root, replicas, found), leader, answer)
    if replicas.place.is_running:
        answer.remark(
            "a broker holds the lock of this directory: it has started already, and what is read may be changing"
        )
    return answer


def _add_leader(follower: Disk, leader: Disk, answer: Proposal) -> None:
    """Say also what the partitions give up when they follow a leader."""
    from rmqctl.kafka.replication.elect import each_following

    found = dict(each_following(follower, leader, answer.advance))
    if leader.error is not None:
        answer.remark(leader.error)
    rows: list[Row] = [{"partition": label, **one.row()} for label, one in found.items()]
    lost = sum(one.alone.count for one in found.values())
    before, sections = answer.document, answer.sections
    topics = Counter[str]()
    for label, one in found.items():
        topics[label.rpartition("-")[0]] += one.alone.count
    total: Row = {
        "path": leader.name,
        "partitions": {label: one.row() for label, one in found.items()},
        "lost": {
            "records": lost,
            "bytes": sum(one.alone.bytes for one in found.values()),
            "by_topic": {topic: count for topic, count in sorted(topics.items()) if count},
        },
    }

    def shown() -> Iterator[Section]:
        yield from sections() if sections is not None else ()
        yield Section([f"As a follower of {leader.name} it loses {number_of(lost, 'record')} that the leader has not"])
        yield Section([*_never_in_sync(found, follower.name)], folds=True)
        table = [
            {**row, "cut": one.cut.count, "lost": one.alone.count}
            for row, one in zip(rows, found.values(), strict=True)
        ]
        yield Section(rows=table, columns=_FOLLOWING, title="Partitions as followers", is_optional=True)

    answer.rows = chain(answer.rows, ({"kind": "following", **row} for row in rows))
    answer.header = header_of(_HEADER, _FOLLOWING_KEYS)
    answer.document = lambda: {**(before() if before is not None else {}), "leader": total}
    answer.sections = shown
    is_no = lost > 0 or leader.error is not None or any(one.unknown_epoch >= 0 for one in found.values())
    answer.is_no = answer.is_no or is_no
    answer.is_no_after = answer.is_no_after or is_no


def _never_in_sync(found: Mapping[str, Following], root: str) -> Iterator[str]:
    """Yield which partitions the leader refuses for ever, and what to do about it."""
    for label, one in found.items():
        if one.unknown_epoch >= 0:
            yield (
                f"{label} knows leader epoch {one.unknown_epoch}, which is above the one that the leader will have: "
                "each fetch is refused, and it never is in sync; where its leader-epoch-checkpoint is wrong, type: "
                + typed("rebuild", root, "--checkpoint", "--topic", label.rpartition("-")[0])
            )


def _complaints(before: Replicas, release: Release, settings: Mapping[str, str]) -> list[str]:
    """Return what a second start would still change."""
    from rmqctl.kafka.recovery.plan import recovery_plan
    from rmqctl.repair.journal_directory import POINTER

    directories = [read_directory(directory.tree) for directory in before.directories]
    for directory in directories:
        directory.others = [name for name in directory.others if name != POINTER]  # of the run that asks
    again = replay(Replicas(LogDirectories(directories)), release, settings)
    if not again.starts:
        return [f"a {release} broker still does not start: {again.error}"]
    count = len({edit.file for edit in recovery_plan(directories, again).edits})
    return [f"a {release} broker would still change {number_of(count, 'file')}"] if count else []


_HEADER = """
    partition log_start_offset log_end_offset segments recovered_segments stopped_by deleted_files created_files
    changed_files lost stray hidden
"""
_FOLLOWING_KEYS = "kind leader_log_end_offset steps cut_to cut unknown_epoch"
"""What the rows of partitions that follow a leader have beside these."""
_COLUMNS = ("partition", "log_start_offset", "log_end_offset", "segments", "recovered", "changes", "lost_records")


def show(found: Recovery, gone: Sequence[Gone], root: str, answer: Answer) -> None:
    """Let an answer show what a start does to the log directories of a root, in which some logs are gone already."""
    answer.rows, answer.header = (partition_row(partition) for partition in found.partitions), _HEADER.split()
    answer.sections = lambda: _sections(found, gone, root, every=answer.every)
    answer.document = lambda: document(found, gone)
    answer.summary = lambda: {"kind": "summary", **summary(found, gone)}


def document(found: Recovery, gone: Sequence[Gone]) -> Row:
    """Return the object of ``recover -o json``."""
    whole = summary(found, gone)
    first = {name: whole[name] for name in ("release", "starts", "error", "scan")}
    return {**first, "partitions": {one.key: _partition(one) for one in found.partitions}, **whole}


def summary(found: Recovery, gone: Sequence[Gone] = ()) -> Row:
    """Return what a start does to all partitions together, and which were gone before it."""
    topics = Counter[str]()
    for partition in found.partitions:
        topics[partition.loaded.partition.topic] += partition.lost.records
    read = [
        max(segment.log.size, 0)
        for one in found.partitions
        for segment in one.loaded.partition.segments
        if segment.log is not None and segment.base in one.loaded.recovered
    ]
    return {
        "release": str(found.release),
        "starts": found.starts,
        "error": found.error,
        "scan": {"segments": len(read), "bytes": sum(read)},
        "lost": {
            "records": found.lost_records,
            "bytes": sum(partition.lost.bytes for partition in found.partitions),
            "by_topic": {topic: count for topic, count in sorted(topics.items()) if count},
            "by_partition": {one.key: one.lost.records for one in found.partitions if one.lost.records},
        },
        "offline": found.offline,
        "hidden": {
            "records": sum(partition.hidden.records for partition in found.partitions),
            "bytes": sum(partition.hidden.bytes for partition in found.partitions),
        },
        "unknown": found.unknown or None,
        **({"unread": [part.row() for part in found.unread]} if found.unread and found.starts else {}),
        **({"gone": [{"partition": one.label, "message": one.message} for one in gone]} if gone else {}),
    }


def partition_row(partition: RecoveredPartition) -> Row:
    """One partition as a row of JSON lines."""
    return {"partition": partition.key, **_partition(partition)}


def _partition(partition: RecoveredPartition) -> Row:
    loaded, changes = partition.loaded, partition.changes
    row: Row = {
        "log_start_offset": loaded.log_start_offset,
        "log_end_offset": loaded.log_end_offset,
        "segments": len(loaded.bases),
        "recovered_segments": sorted(loaded.recovered),
        "stopped_by": None if loaded.stopped_by is None else loaded.stopped_by.row(),
        "deleted_files": changes.deleted,
        "created_files": changes.created,
        "changed_files": changes.changed,
        "lost": {"records": partition.lost.records, "bytes": partition.lost.bytes},
    }
    hidden = {"records": partition.hidden.records, "bytes": partition.hidden.bytes}
    return {**row, "stray": True, "hidden": hidden} if partition.is_stray else row


def lost_rows(found: Recovery) -> Iterator[Row]:
    """Yield the batches given up, as `dump` shows them."""
    from rmqctl.kafka.rows import batch_rows

    for partition in found.partitions:
        if partition.lost.records or partition.lost.bytes:
            for block in lost_blocks(partition.loaded):
                yield from batch_rows(block, partition.loaded.partition)


def comparison(found: Recovery) -> Row:
    """One release as a row beside others."""
    changes = [partition.changes for partition in found.partitions]
    return {
        "release": str(found.release),
        "starts": found.starts,
        "offline": found.offline,
        "recovered_segments": sum(len(partition.loaded.recovered) for partition in found.partitions),
        "deleted_files": sum(len(change.deleted) for change in changes),
        "created_files": sum(len(change.created) for change in changes),
        "changed_files": sum(len(change.changed) for change in changes),
        "strays": sum(partition.is_stray for partition in found.partitions),
        "lost_records": found.lost_records,
        "error": found.error or found.unknown or ", ".join(part.about for part in found.unread if part.harms) or None,
    }


def _sections(found: Recovery, gone: Sequence[Gone], root: str, *, every: bool) -> Iterator[Section]:
    below = [what_a_start_leaves(root, removes=found.removes)] if found.starts else []
    rows = [_table_row(partition) for partition in found.partitions if every or _is_touched(partition)]
    whole = len(found.partitions) - len(rows)
    if whole:
        below.append(f"{number_of(whole, 'partition', 'keep')} all records (--all lists them)")
    yield Section([*_sentences(found, gone), *below, *([""] if rows else [])], folds=True)
    if rows:
        yield Section(
            rows=rows, columns=_COLUMNS, title="Partitions afterwards (changes: files deleted -, created +, changed ~)"
        )


def _is_touched(partition: RecoveredPartition) -> bool:
    """Whether a start does more to a partition than to write its indexes, snapshots and checkpoints."""
    changes = partition.changes
    logs = any(name.endswith(".log") for names in (changes.deleted, changes.created, changes.changed) for name in names)
    return logs or partition.is_stray or bool(partition.lost.records) or partition.loaded.stopped_by is not None


def _table_row(partition: RecoveredPartition) -> Row:
    loaded, changes = partition.loaded, partition.changes
    counts = (len(changes.deleted), len(changes.created), len(changes.changed))
    return {
        "partition": partition.key,
        "log_start_offset": loaded.log_start_offset,
        "log_end_offset": loaded.log_end_offset,
        "segments": len(loaded.bases),
        "recovered": len(loaded.recovered),
        "changes": "-{} +{} ~{}".format(*counts) if any(counts) else "",
        "lost_records": partition.lost.records,
    }


def _sentences(found: Recovery, gone: Sequence[Gone]) -> Iterator[str]:
    """Yield what happens, for people."""
    broker = f"A {found.release} broker"
    if not found.starts:
        yield f"{broker} does not start: {found.error}"
        return
    if found.offline:
        yield f"{broker} takes a log directory offline: {found.error}"
    loss = number_of(found.lost_records, "record")
    without = [part for part in found.unread if part.harms]
    strays = [partition for partition in found.partitions if partition.is_stray]
    hides = f" and takes {number_of(len(strays), 'partition')} out of service" if strays else ""
    nothing = "nothing more" if gone else "nothing"
    if found.unknown:
        yield f"What a {found.release} broker serves here cannot be known: {found.unknown}"
        yield f"Of the logs it cuts {loss if found.lost_records else nothing}{hides}"
    elif without and not (found.lost_records or hides):
        yield f"{broker} starts and does without {listed_names([part.about for part in without])}"
    else:
        yield f"{broker} starts{',' if hides else ' and'} loses {loss if found.lost_records else nothing}{hides}"
    if gone:
        count = number_of(len(gone), "partition")
        yield f"It begins {count} anew, of which all is gone already; restore from a replica first:"
        yield from (f"{one.label}: {one.message}" for one in gone)
    yield from (f"It does without {part.about}: {part.message}" for part in without)
    for partition in found.partitions:
        stop = partition.loaded.stopped_by
        if stop is not None:
            lost = number_of(partition.lost.records, "record")
            what = "ends for the broker, not in the file," if partition.is_clean else "is cut"
            yield f"{partition.key} {what} at byte {stop.offset} of {stop.file} ({stop.message}); {lost} lost"
        if partition.is_stray:
            held = number_of(partition.hidden.records, "record")
            yield f"{partition.key}: its directory with {held} is renamed to -stray: {partition.stray}"
