"""`rebuild` and `repair` of a log directory: what a plan would do, and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl import questions
from rmqctl.answer import Proposal, Row, Section, show_repair, staging
from rmqctl.errors import Refused, WrongUsage
from rmqctl.files.local import ByteSource
from rmqctl.files.new_files import Ownership, check_new_directory, making
from rmqctl.files.tree import LocalTree
from rmqctl.hexview.annotation import Annotation
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, LogFile, read_directory
from rmqctl.kafka.directory.file_names import meaning_of
from rmqctl.kafka.rebuild.rebuild import PARTS, RebuildOptions, Rebuilt, rebuild, write_into
from rmqctl.kafka.state.replicas import Replicas, release_shown
from rmqctl.repair.journal_directory import POINTER
from rmqctl.repair.planning import check_is_here
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.release import Release
    from rmqctl.repair.books import Books
    from rmqctl.repair.edits import Plan

_WORDS = {"equal": "equal", "keep": "answer alike", "create": "missing", "replace": "wrong", "remove": "of nothing"}


@dataclass(frozen=True, slots=True)
class Work:
    """What a plan is made with.

    Attributes:
        settings: of the broker.
        processes: that share the logs.
        others: replicas to take destroyed bytes from.
    """

    settings: Mapping[str, str]
    processes: int
    others: tuple[Replicas, ...] = ()


def only_directory(replicas: Replicas, verb: str) -> LogDirectory:
    """Return the one local log directory that is to be changed.

    Raises:
        Refused: there are several, or it is elsewhere.
    """
    directories = replicas.directories
    if len(directories) != 1:
        others = ", and the others with --from" if verb == "repair" else ""
        roots = ",".join(directory.root for directory in directories)
        raise Refused(f"{verb} works on one log directory at a time; give one of {roots}{others}")
    check_is_here(directories[0], verb)
    return directories[0]


def annotate(source: ByteSource, name: str, begin: int, end: int) -> Iterator[Annotation]:
    """Return the meaning of the bytes of a file as it is, or as a plan would make it."""
    from rmqctl.kafka.dump.annotate import annotate_bytes

    file = LogFile(LocalTree(""), name, meaning_of(name.rpartition("/")[2]), source.size())
    return annotate_bytes(source, file, begin, end)


def hold(
    plan: Plan, replicas: Replicas, release: Release, settings: Mapping[str, str], *, is_start: bool = False
) -> tuple[Plan, Books]:
    """Hold a plan for the only directory to its books; with it come the names of what it gives up.

    Args:
        is_start: it does what a broker does when it starts.
    """
    from rmqctl.kafka.repair.balance import balanced
    from rmqctl.kafka.repair.ledger import KafkaLedger

    directory = replicas.directories[0]
    return balanced(plan, directory, KafkaLedger(plan, directory, release, settings, is_start=is_start))


# --- rebuild ------------------------------------------------------------------------------------------


def rebuild_options(asked: questions.Rebuild, work: Work) -> RebuildOptions:
    """Return what is to be made, as the library takes it.

    Raises:
        WrongUsage: a part is one of RocketMQ.
    """
    for part in sorted(asked.parts):
        if part not in PARTS:
            raise WrongUsage(f"--{part}", "is for RocketMQ: a log directory has --index and --checkpoint.")
    return RebuildOptions(
        sorted(asked.parts), asked.topics, work.settings, fresh=asked.into is not None, processes=work.processes
    )


def plan_rebuild(replicas: Replicas, asked: questions.Rebuild, options: RebuildOptions, answer: Proposal) -> Proposal:
    """Make derived files from the logs and compare them with those that are there.

    Raises:
        Refused: the files cannot go where they are wanted.
    """
    if asked.into is not None:
        _rebuild_into(replicas, options, asked.into, asked.owner, answer)
        return answer
    directory = only_directory(replicas, "rebuild")
    answer.work, answer.unit = "rebuild", "stages"
    answer.make = lambda: _rebuild_in_place(replicas, directory, options, answer)
    return answer


def _rebuild_in_place(replicas: Replicas, directory: LogDirectory, options: RebuildOptions, answer: Proposal) -> None:
    found = rebuild(replicas, directory, options, answer.stage)
    plan, answer.annotate = found.plan(directory), annotate
    if answer.intent.is_real and plan.steps:
        plan, books = hold(plan, replicas, release_shown(replicas), options.settings)
        answer.hold_to(books)
    _show(found, answer)
    if options.topics and not found.partitions:
        answer.hints = [f"no partition of {', '.join(options.topics)} is there; rmqctl topics lists those that are"]
        answer.is_no = True
    elif answer.intent.is_real:
        answer.plan, answer.check = plan, lambda: _unlike(directory, options)
    elif plan.steps:
        answer.hints = [
            "nothing was changed; give --apply to put the new files in place, or --into DIR to have them there"
        ]
    answer.is_no = answer.is_no or bool(plan.steps or found.left)
    answer.is_no_after = bool(found.left)


def _unlike(before: LogDirectory, options: RebuildOptions) -> list[str]:
    """Return what a second rebuild would still change."""
    replicas = opened_again(before)
    again = rebuild(replicas, replicas.directories[0], options)
    return [f"{step.file}: {step.why}" for step in again.steps(replicas.directories[0])]


def opened_again(before: LogDirectory) -> Replicas:
    """Return a directory as it is now, without what the run that asks has put there."""
    directory = read_directory(before.tree)
    directory.others = [name for name in directory.others if name != POINTER]
    return Replicas(LogDirectories([directory]))


def _rebuild_into(
    replicas: Replicas, options: RebuildOptions, into: Path, owner_asked: str | None, answer: Proposal
) -> None:
    directories = replicas.directories
    check_new_directory(into, [d.root for d in directories if isinstance(d.tree, LocalTree)])
    owner = Ownership.like(directories[0].tree, owner_asked)

    def make() -> None:
        from rmqctl.repair.books import Books

        with making(into, owner):
            found = Rebuilt(replicas.place.root)
            for directory in directories:
                made = rebuild(replicas, directory, options)
                write_into(made, into)
                found.changes += made.changes
                found.left |= made.left
                found.damage += made.damage
                found.partitions += made.partitions
                found.built |= made.built
            answer.books = Books(sum(built.records for built in found.built.values()))
            _show(found, answer)
            answer.is_no = bool(found.left)

    answer.make = make


def _show(found: Rebuilt, answer: Proposal) -> None:
    rows: list[Row] = [change.row() for change in found.changes]
    rows += [{"file": name, "change": "left", "bytes": 0, "why": why} for name, why in sorted(found.left.items())]
    summary, lines = found.summary(), []
    if answer.books is not None:
        summary = {**summary, "books": answer.books.document()}
        lines = [answer.books.sentence()]
    shown = [row for row in rows if row["change"] not in {"equal", "keep"}]
    answer.rows = rows
    answer.document = lambda: {"summary": summary, "changes": rows}
    answer.summary = lambda: {"kind": "summary", **summary}
    answer.sections = lambda: [
        Section(rows=shown, columns=("change", "file", "bytes", "why"), is_optional=True),
        Section(lines=[*_sentences(found, summary), *lines]),
    ]


def _sentences(found: Rebuilt, summary: Mapping[str, Any]) -> Iterator[str]:
    files = ", ".join(f"{n:,} {_WORDS[change]}" for change, n in summary["files"].items() if n) or "no files"
    yield f"derived files of {number_of(summary['partitions'], 'partition')}: {files}"
    if found.damage:
        places = number_of(len(found.damage), "place")
        yield f"the logs are damaged in {places}, which leave no trace in derived files: rmqctl repair mends logs first"


# --- repair -------------------------------------------------------------------------------------------


def _transactions(asked: questions.Repair) -> tuple[tuple[str, int], ...]:
    """Return the transactions to be ended: partition and producer id.

    Raises:
        WrongUsage: one is not written as a partition and a number.
    """
    found = []
    for text in asked.abort_transaction:
        label, colon, producer = text.rpartition(":")
        if not colon or not producer.isascii() or not producer.isdigit():
            raise WrongUsage("--abort-transaction", f"{text!r} is not PARTITION:PRODUCER-ID, such as orders-0:4000.")
        found.append((label, int(producer)))
    return tuple(found)


def plan_repair(replicas: Replicas, asked: questions.Repair, work: Work, answer: Proposal) -> Proposal:
    """Plan how to mend what verify finds with the least loss.

    Raises:
        Refused: there is not one local log directory.
        WrongUsage: a transaction is not named as it should be.
    """
    directory = only_directory(replicas, "repair")
    _transactions(asked)
    staged = ExitStack()
    answer.work, answer.unit = "repair", "stages"
    answer.make = lambda: _plan_repair(replicas, directory, asked, work, answer, staged)
    answer.close = staged.close
    return answer


def _plan_repair(
    replicas: Replicas,
    directory: LogDirectory,
    asked: questions.Repair,
    work: Work,
    answer: Proposal,
    staged: ExitStack,
) -> None:
    from rmqctl.kafka.repair.plan import RepairOptions, complaints, plan_repair

    options = RepairOptions(
        release_shown(replicas), work.others, _transactions(asked), work.settings, only=asked.only, skip=asked.skip,
        processes=work.processes, outside=tuple(map(str, answer.intent.outside)), without=asked.without,
    )  # fmt: skip
    place = staged.enter_context(staging(directory.root, answer.intent))
    found = plan_repair(directory, options, place, answer.stage, replicas.image)
    show_repair(answer, found, f"{number_of(found.loses, 'record')} given up" if found.loses else "no record given up")
    assert answer.shown is not None
    answer.preface = [line for step in answer.shown.steps for line in (f"{step.id} {step.file}: {step.what}", step.why)]
    answer.annotate = annotate
    answer.check = lambda: complaints(opened_again(directory).directories[0], found)
    if found.loses and not work.others:
        answer.hints.append(
            f"{number_of(found.loses, 'record')} would be given up: --from DIR takes them from a replica"
        )
