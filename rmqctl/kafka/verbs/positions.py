"""`offsets` of a log directory: what its groups have committed, and the plan that commits others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from formats.kafka.internal_records import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from formats.kafka.record_batch import Attributes
from rmqctl import questions
from rmqctl.answer import Proposal
from rmqctl.errors import Refused
from rmqctl.kafka.directory.directory import LogDirectories
from rmqctl.kafka.log.block import stated_records
from rmqctl.kafka.log.records import records_of
from rmqctl.kafka.query.time import offset_for_time
from rmqctl.kafka.repair.commits import partition_of_group, partition_of_state, plan_commits
from rmqctl.kafka.state.internal_topics import GroupOffsets, SharePartition, ShareState, group_offsets, share_states
from rmqctl.kafka.state.replicas import Replicas, release_shown
from rmqctl.kafka.verbs.looking import begin_served
from rmqctl.kafka.verbs.planning import annotate, hold, only_directory, opened_again
from rmqctl.positions import Key, elsewhere, show_changes, shown, wanted
from rmqctl.release import Release

_SHARES = Release(4, 2, 0)
"""The first release whose share groups are meant for use."""
_LONGEST = (1 << 15) - 1
"""Bytes of a string in the key of a commit (``OffsetCommitKey``)."""


class HeldOffsets:
    """Groups and partitions of log directories; a :class:`rmqctl.positions.Held`."""

    family, queue_field = "kafka", "partition"

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas

    @cached_property
    def _groups(self) -> GroupOffsets:
        return group_offsets(self.replicas.of(CONSUMER_OFFSETS))

    @cached_property
    def shares(self) -> Mapping[Key, tuple[SharePartition, ShareState]]:
        """The states of share groups, those without a start yet among them."""
        names, found = self.replicas.topic_names, share_states(self.replicas.of(SHARE_GROUP_STATE))
        return {Key(at.group, names.get(at.topic_id, at.topic_id), at.partition): (at, s) for at, s in found.items()}

    def positions(self) -> Mapping[Key, int]:
        found = {Key(*key): commit.offset for key, commit in self._groups.commits.items()}
        return found | {key: state.start_offset for key, (_, state) in self.shares.items() if state.start_offset >= 0}

    def is_internal(self, group: str) -> bool:
        return False

    def name_error(self, group: str) -> str | None:
        try:
            return None if len(group.encode()) <= _LONGEST else f"it has more than {_LONGEST} bytes"
        except UnicodeEncodeError:
            return "it is not UTF-8"

    def place(self, key: Key) -> str:
        if key in self.shares:
            return f"{SHARE_GROUP_STATE}-{partition_of_state(self.shares[key][1])}"
        return f"{CONSUMER_OFFSETS}-{partition_of_group(self.replicas, key.group)}"

    def done(self, key: Key) -> Sequence[tuple[int, int]]:
        return self.shares[key][1].done_ranges if key in self.shares else ()

    def queues(self, topic: str) -> Sequence[int]:
        image, here = self.replicas.image, {log.partition.partition or 0 for log in self.replicas.of(topic)}
        return sorted(here | (set() if image is None else set(range(self.replicas.partition_count(topic)))))

    def limits(self, topic: str, queue: int) -> tuple[int, int] | None:
        log = self.replicas.find(topic, queue)
        return None if log is None else (log.replayed.log_start_offset, log.replayed.log_end_offset)

    def at_time(self, topic: str, queue: int, time: int) -> int:
        log = self.replicas.find(topic, queue)
        assert log is not None
        offset = offset_for_time(log, time, release_shown(self.replicas)).offset
        return log.replayed.log_end_offset if offset < 0 else offset

    def between(self, topic: str, queue: int, low: int, high: int) -> int:
        log, count = self.replicas.find(topic, queue), 0
        for _, block in log.blocks(low) if log is not None and low < high else ():
            if len(block) and int(block["base_offset"][0]) >= high:
                break
            meant = (block["last_offset"] >= low) & (block["base_offset"] < high) & ~block.flag(Attributes.CONTROL)
            whole = meant & (block["base_offset"] >= low) & (block["last_offset"] < high)
            count += int(stated_records(block)[whole].sum())
            for records in records_of(block.take(meant & ~whole)) if (meant & ~whole).any() else ():
                count += int(np.count_nonzero((records.offset >= low) & (records.offset < high)))
        return count


def offsets(replicas: Replicas, asked: questions.Offsets, settings: Mapping[str, str], answer: Proposal) -> Proposal:
    """Show the committed offsets of groups, or plan others.

    Raises:
        Refused: there is not one local log directory to be changed.
    """
    begin_served(replicas, answer)
    if asked.choice.changes:
        only_directory(replicas, "offsets")
    answer.make = lambda: _make(replicas, asked, settings, answer)
    return answer


def _make(replicas: Replicas, asked: questions.Offsets, settings: Mapping[str, str], answer: Proposal) -> None:
    held = HeldOffsets(replicas)
    if not asked.choice.changes:
        shown(asked.choice, held, answer)
        return
    found = wanted(asked.choice, held)
    _refuse_shares(replicas, held, [change.key for change in found.changes])
    if found.changes:
        directory = only_directory(replicas, "offsets")
        plan = plan_commits(replicas, directory, found.changes, settings, held.shares, only_replica=asked.only_replica)
        plan, books = hold(plan, replicas, release_shown(replicas), settings)
        answer.plan, answer.annotate = plan, annotate
        answer.hold_to(books)
        expected = {change.key: change.new for change in found.changes}
        answer.check = lambda: _not_there(opened_again(directory), expected)
    show_changes(found, held, answer)


def _refuse_shares(replicas: Replicas, held: HeldOffsets, keys: Sequence[Key]) -> None:
    """Refuse positions of share groups that no coordinator would take.

    Raises:
        Refused: a group shares partitions and has no state of one, or the release writes them otherwise.
    """
    sharing = {key.group for key in held.shares}
    for key in keys:
        if key.group in sharing and key not in held.shares:
            raise Refused(
                f"{key.group} is a share group and has no state of {key.topic}-{key.queue}: its coordinator makes one "
                "when a member of the group joins; nothing was written; choose the partitions that it has"
            )
        if key in held.shares and release_shown(replicas) < _SHARES:
            raise Refused(
                f"{key.group} is a share group, and before {_SHARES} their state has another form; nothing was "
                "written; use kafka-share-groups.sh --reset-offsets on a running cluster"
            )


def _not_there(replicas: Replicas, expected: Mapping[Key, int]) -> list[str]:
    """Return the positions that a directory, as it is now, has otherwise, a sentence each."""
    now = HeldOffsets(Replicas(LogDirectories(list(replicas.directories)))).positions()
    return elsewhere(now, expected, "-")
