"""`recover` of a log directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from rmqctl.answer import Proposal
from rmqctl.kafka.directories import LogDirectories
from rmqctl.kafka.directory import read_directory
from rmqctl.kafka.file_names import FileKind
from rmqctl.kafka.recovery import report
from rmqctl.kafka.recovery.replay import recover as replay
from rmqctl.kafka.releases import release_range
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.verbs.describing import facts
from rmqctl.release import Release
from rmqctl.text import number_of

COMPARED = (Release(2, 8, 2), Release(3, 9, 2), Release(4, 3, 1))
"""One release of each family whose starts differ."""


@dataclass(frozen=True, slots=True)
class StartQuestion:
    """Which start is asked for, and what of it.

    Attributes:
        release: whose rules; None: that of the release that the directories show.
        settings: of the broker.
        plan: also make the plan that carries it out.
        list_lost: rows are the batches that would be lost.
        compare: a row for each family of releases.
    """

    release: Release | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    plan: bool = False
    list_lost: bool = False
    compare: bool = False


def recover(replicas: Replicas, asked: StartQuestion, answer: Proposal) -> Proposal:
    """Say what a broker's start does to log directories, and plan it where that is wanted.

    Raises:
        Refused: what is to be planned cannot be carried out.
        OSError: a file cannot be read.
    """
    if asked.compare:
        starts = [replay(replicas, release, asked.settings) for release in COMPARED]
        answer.rows = [report.comparison(start) for start in starts]
        answer.is_no = not all(start.is_harmless for start in starts)
    else:
        found = replay(replicas, asked.release or release_shown(replicas), asked.settings)
        answer.is_no = answer.is_no_after = not found.is_harmless
        if asked.list_lost:
            answer.rows = report.lost_rows(found)
        else:
            report.show(found, answer)
        if asked.plan:
            from rmqctl.kafka.recovery.plan import recovery_plan

            answer.plan = answer.shown = recovery_plan(list(replicas.directories), found)
            answer.document = None
            answer.check = partial(_complaints, replicas, found.release, asked.settings)
    if replicas.place.is_running:
        answer.remark(
            "a broker holds the lock of this directory: it has started already, and what is read may be changing"
        )
    return answer


def _complaints(before: Replicas, release: Release, settings: Mapping[str, str]) -> list[str]:
    """What a second start would still change."""
    from rmqctl.kafka.recovery.plan import recovery_plan
    from rmqctl.repair.preconditions import POINTER

    directories = [read_directory(directory.tree) for directory in before.directories]
    for directory in directories:
        directory.others = [name for name in directory.others if name != POINTER]  # of the run that asks
    again = replay(Replicas(LogDirectories(directories)), release, settings)
    if not again.starts:
        return [f"a {release} broker still does not start: {again.error}"]
    count = len({edit.file for edit in recovery_plan(directories, again).edits})
    return [f"a {release} broker would still change {number_of(count, 'file')}"] if count else []


def release_shown(replicas: Replicas) -> Release:
    """The release that wrote the directories last, as far as they show it.

    With KRaft it is the newest known patch of the series of ``metadata.version``. A directory of the time of
    ZooKeeper counts as one of 3.x where every partition has leader epochs, which releases before did without.
    """
    found = facts(replicas)
    lowest, highest = (Release.parse(text) for text in release_range(found))
    if any(fact.fact.startswith("metadata.version") for fact in found):
        return next((r for r in COMPARED if r[:2] == lowest[:2]), lowest)
    if replicas.metadata_log is None and not any(fact.fact.startswith("meta.properties is") for fact in found):
        epochs = [log.partition.one(FileKind.LEADER_EPOCHS) for log in replicas.served]
        return COMPARED[1] if all(epochs) else COMPARED[0]
    return highest
