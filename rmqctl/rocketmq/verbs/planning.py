"""`recover`, `repair` and `rebuild` of a RocketMQ store: what a plan would do, and the plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl import questions
from rmqctl.answer import Proposal, Row, Section, show_repair, staging
from rmqctl.errors import Refused, WrongUsage
from rmqctl.findings import header_of
from rmqctl.parallel import most_processes, processes_for
from rmqctl.rocketmq.store.files import StoreFiles, bytes_held
from rmqctl.text import number_of, typed, what_a_start_leaves

if TYPE_CHECKING:
    from rmqctl.files.local import ByteSource
    from rmqctl.findings import Finding
    from rmqctl.hexview.annotation import Annotation
    from rmqctl.repair.edits import Plan
    from rmqctl.repair.planning import Repair
    from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions, Rebuilt
    from rmqctl.rocketmq.recovery.outcome import Recovery


def annotate(source: ByteSource, name: str, begin: int, end: int) -> Iterator[Annotation]:
    """Return the meaning of some bytes of a file of a store."""
    from rmqctl.rocketmq.dump.kinds import kind_of
    from rmqctl.rocketmq.hexview import annotate as annotating
    from rmqctl.rocketmq.store.file_kinds import FileKind

    last = name.rpartition("/")[2]
    base = int(last) if last.isdigit() else 0
    kind = kind_of(name, source) or FileKind.OTHER
    return annotating.annotate(source, kind, base=base, start=begin, stop=end, name=name)


# --- recover ------------------------------------------------------------------------------------------


def recover(store: StoreFiles, asked: questions.Recover, answer: Proposal) -> Proposal:
    """Say what a broker's start does to the store, and plan it where that is wanted.

    Raises:
        Refused: the log is one of DLedger.
    """
    from rmqctl.rocketmq.recovery import outcome
    from rmqctl.rocketmq.recovery.replay import recover as replay
    from rmqctl.rocketmq.recovery.rules import has_dledger_log
    from rmqctl.rocketmq.store.geometry import geometry_of

    if has_dledger_log(store):
        raise Refused(
            f"{store.root} has a DLedger log, whose recovery is not replayed: its group decides where the log ends; "
            f"rmqctl elect compares it with those of the other members, {typed('verify', store.root)} says "
            "what is damaged"
        )
    if geometry_of(store).source == "default":
        answer.remark("sizes that no file shows are the broker's defaults; give --broker-conf FILE if yours differ")
    if store.is_running:
        answer.remark("a broker holds the lock of this store: it has started already, and what is read may be changing")
    shared = asked.processes or most_processes()
    if asked.compare:
        answer.make = lambda: _compare(store, answer, shared)
        return answer
    staged = ExitStack()
    answer.close = staged.close
    answer.work, answer.unit = "recover", "stages"

    def make() -> None:
        answer.stage("a start of the broker")
        found = replay(store, asked.as_release, index=asked.wants_plan, databases=True, processes=shared)
        answer.is_no = not found.is_harmless
        if asked.list_lost:
            from rmqctl.rocketmq.verbs.common import MESSAGE_KEYS

            answer.rows, answer.header = outcome.lost_rows(found), header_of(MESSAGE_KEYS, damage=True)
        elif asked.wants_plan:
            _plan_recovery(store, found, answer, staged)
        else:
            below = [what_a_start_leaves(store.root, removes=found.removes)] if found.starts else []
            answer.document = lambda: outcome.document(found)
            answer.document_kinds, answer.document_header = frozenset({"json", "jsonl", "csv"}), outcome.HEADER.split()
            answer.rows = outcome.queue_rows(found)
            answer.sections = lambda: _after_a_start(found, below, every=answer.every)

    answer.make = make
    return answer


def _after_a_start(found: Recovery, below: Sequence[str], *, every: bool) -> Iterator[Section]:
    """What a start does, then the queues that lose something; all of them where each is wanted."""
    from rmqctl.rocketmq.recovery import outcome

    rows, gone = outcome.queue_rows(found), {(record.topic, record.queue_id) for record in found.lost}
    topics = {*found.undispatched.by_topic, *found.unknown_topics}
    shown = [row for row in rows if every or row["topic"] in topics or (row["topic"], row["queue_id"]) in gone]
    whole = len(rows) - len(shown)
    more = [f"{number_of(whole, 'queue', 'keep')} all messages (--all lists them)"] if whole else []
    yield Section(lines=[*outcome.sentences(found, every=every), *below, *more, *([""] if shown else [])], folds=True)
    yield Section(rows=shown, title="Queues afterwards", is_optional=True)


def _compare(store: StoreFiles, answer: Proposal, processes: int) -> None:
    from rmqctl.rocketmq.recovery import outcome
    from rmqctl.rocketmq.recovery.replay import recover as replay
    from rmqctl.rocketmq.recovery.rules import FAMILIES
    from rmqctl.rocketmq.state.releases import release_range

    newest = release_range(store).highest
    compared = FAMILIES if newest >= FAMILIES[0] else (newest, *FAMILIES)
    starts = [replay(store, release, processes=processes) for release in compared]
    rows = [outcome.comparison(start) for start in starts]
    answer.rows, answer.is_no = rows, not all(start.is_harmless for start in starts)
    empty = {key for key in ("undispatched", "lost_later") if not any(row[key] for row in rows)}
    left_out = {"does_without", *empty}
    shown = [{key: value for key, value in row.items() if key not in left_out} for row in rows]
    without: dict[str, list[str]] = {}
    for start in starts:
        if names := ", ".join(part.about for part in start.unread_harms):
            without.setdefault(names, []).append(str(start.release))
    below = [f"{', '.join(releases)} would do without {names}" for names, releases in without.items()]
    answer.sections = lambda: [Section(rows=shown), Section(lines=below, folds=True)]


def refusal_of(missing: Finding) -> Refused:
    """Return the refusal to change a store whose log is not there."""
    return Refused(f"{missing.message}; nothing was written. {missing.kind.remedy}")


def _hold_sizes(store: StoreFiles, answer: Proposal) -> None:
    """Refuse to carry out a plan that makes queue files whose size nothing shows, unless that is forced."""
    from rmqctl.repair.edits import Create
    from rmqctl.rocketmq.rebuild.rebuild import unknown_size

    if answer.plan is not None and not answer.intent.force:
        made = {edit.file.split("/")[0] for edit in answer.plan.edits if isinstance(edit, Create)}
        answer.refusal = answer.refusal or unknown_size(store, made)


def _plan_recovery(store: StoreFiles, found: Recovery, answer: Proposal, staged: ExitStack) -> None:
    from formats.rocketmq.tags_code import SCHEDULE_TOPIC
    from rmqctl.rocketmq.dispatch.rules import assumed_levels
    from rmqctl.rocketmq.recovery.plan import recovery_plan
    from rmqctl.rocketmq.repair.books import books_of

    if found.missing is not None and not answer.intent.force:
        answer.refusal = refusal_of(found.missing)
    room = staged.enter_context(staging(store.root, answer.intent)) if found.databases else None
    plan = _naming(store, recovery_plan(store, found, datetime.now().astimezone(), room))
    answer.plan = answer.shown = plan
    _hold_sizes(store, answer)
    if plan.steps:
        answer.hold_to(books_of(store, plan, is_start=True))
    delayed = {image.key[2] for image in found.images if image.key[1] == SCHEDULE_TOPIC and image.appended}
    for sentence in filter(None, [assumed_levels(store, delayed) if delayed else ""]):
        answer.remark(sentence)
    answer.annotate, answer.check = annotate, lambda: _left_to_do(store, found)
    answer.is_no = answer.is_no_after = bool(found.lost or found.missing)


def _naming(store: StoreFiles, plan: Plan) -> Plan:
    """Return a plan whose steps name the whole records that a broker cuts off."""
    from rmqctl.repair.edits import Cut, Quarantine
    from rmqctl.rocketmq.repair.books import names_in

    steps = []
    for step in plan.steps:
        names: list[str] = []
        for edit in step.edits:
            if isinstance(edit, Cut | Quarantine):
                cut = [(edit.to_size, edit.from_size)] if isinstance(edit, Cut) else None
                names += names_in(store, edit.file, cut)
        steps.append(replace(step, gives_up=tuple(names)))
    return replace(plan, steps=tuple(steps))


def _left_to_do(store: StoreFiles, found: Recovery) -> Sequence[str]:
    """Return what a second start would still change."""
    from rmqctl.rocketmq.recovery.replay import recover as replay
    from rmqctl.rocketmq.store.locate import open_store_at

    again = open_store_at(store.root)
    again.settings = store.settings
    second = replay(again, found.release)
    if second.error is not None:
        return [f"a {found.release} broker still does not start: {second.error}"]
    left = len(second.deleted) + len(second.index_deleted) + len(second.cuts) + second.redispatched
    return [f"a {found.release} broker would still find {left} things to do"] if left else []


# --- repair -------------------------------------------------------------------------------------------


def repair(store: StoreFiles, asked: questions.Repair, answer: Proposal, replica: StoreFiles | None) -> Proposal:
    """Plan how to mend what verify finds with the least loss.

    Args:
        replica: a store to take destroyed bytes from.
    """
    staged = ExitStack()
    answer.work, answer.unit = "repair", "stages"
    answer.make = lambda: _plan_repair(store, asked, replica, answer, staged)
    answer.close = staged.close
    return answer


def _plan_repair(
    store: StoreFiles, asked: questions.Repair, replica: StoreFiles | None, answer: Proposal, staged: ExitStack
) -> None:
    from rmqctl.rocketmq.rebuild.rebuild import building
    from rmqctl.rocketmq.repair.log_repair import BodyDamage
    from rmqctl.rocketmq.repair.plan import RepairOptions, complaints, plan_repair
    from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

    shared = asked.processes or processes_for(bytes_held(store.log_files))
    options = RepairOptions(
        replica, BodyDamage(asked.body_damage), asked.neutralize, asked.accept, only=asked.only, skip=asked.skip,
        processes=shared, outside=tuple(map(str, answer.intent.outside)), without=asked.without,
    )  # fmt: skip
    directory = staged.enter_context(staging(store.root, answer.intent))
    with building(store, directory):
        found = plan_repair(store, options, directory, answer.stage)
    loses = f"{number_of(found.loses, 'message', 'are')} given up" if found.loses else "no message is given up"
    gone = max(sum(step.loses for step in found.plan.steps) - found.loses, 0)
    if gone:
        loses += f", {number_of(gone, 'message', 'were')} gone before"
    show_repair(answer, found, loses)
    assert answer.shown is not None
    answer.preface = [
        line for step in answer.shown.steps for line in (f"{step.id} {step.file}: {step.what}", f"  {step.why}")
    ]
    answer.annotate, answer.check = annotate, lambda: complaints(store, found, shared)
    answer.error = Verification(store, VerifyOptions()).incomplete
    _hold_sizes(store, answer)
    answer.remarks += _assumptions(store, found)
    ways = ["--from STORE takes them from a replica"] if replica is None else []
    if options.body_damage is BodyDamage.PLACEHOLDER and any("body" in step.id for step in found.plan.steps):
        ways.append("--body-damage accept keeps damaged bodies as they are")
    amounts = [f"{number_of(found.loses, 'message')} would be given up"] if found.loses else []
    amounts += [f"{number_of(gone, 'message', 'were')} gone before"] if gone else []
    if amounts and ways:
        answer.hints.append(f"{', '.join(amounts)}: {'; '.join(ways)}")


def _assumptions(store: StoreFiles, found: Repair) -> Iterator[str]:
    from formats.rocketmq.tags_code import SCHEDULE_TOPIC
    from rmqctl.repair.edits import Create
    from rmqctl.rocketmq.dispatch.rules import assumed_levels
    from rmqctl.rocketmq.findings.log import LOG_MISSING
    from rmqctl.rocketmq.rebuild.rebuild import assumed_sizes
    from rmqctl.rocketmq.store.geometry import geometry_of

    for finding in found.before:
        if finding.kind is LOG_MISSING:
            yield f"{finding.message}. {finding.kind.remedy}"
    made = {edit.file.split("/")[0] for edit in found.plan.edits if isinstance(edit, Create)}
    sentences = list(assumed_sizes(store, made))
    yield from sentences
    if found.plan.steps and not sentences and geometry_of(store).source == "default":
        yield "some file sizes are taken from the broker's defaults; give --broker-conf FILE if yours differ"
    places = (step.file.split("/") for step in found.plan.steps)
    delayed = {
        int(place[2]) for place in places if place[1:2] == [SCHEDULE_TOPIC] and place[2:3] and place[2].isdigit()
    }
    yield from filter(None, [assumed_levels(store, delayed) if delayed else ""])


# --- rebuild ------------------------------------------------------------------------------------------


_COLUMNS = ("change", "file", "differing_units", "first_difference", "why")
_WORDS = {
    "equal": "equal",
    "keep": "kept",
    "create": "missing",
    "replace": "different",
    "remove": "to be removed",
}


def check_topics(asked: questions.Rebuild) -> None:
    """Refuse parts of some topics only that exist for all of them together.

    Raises:
        WrongUsage: they are asked for.
    """
    if asked.topics and asked.parts & {"index", "checkpoint"}:
        raise WrongUsage("--topic", "chooses queues; index and checkpoint can only be rebuilt for all topics.")


def _options(asked: questions.Rebuild, held: int) -> RebuildOptions:
    """Return what is to be made from a log that holds so many bytes."""
    from rmqctl.rocketmq.rebuild.rebuild import RebuildOptions

    parts = asked.parts or ({"queues"} if asked.topics else {"queues", "index"})
    return RebuildOptions(
        "queues" in parts,
        "index" in parts,
        "checkpoint" in parts,
        frozenset(map(os.fsencode, asked.topics)) if asked.topics else None,
        asked.as_release,
        asked.processes or processes_for(held),
        databases=True,
    )


def rebuild(store: StoreFiles, asked: questions.Rebuild, answer: Proposal) -> Proposal:
    """Make derived files from the log and compare them with what is there; plan to put them in place."""
    from rmqctl.rocketmq.rebuild.rebuild import Rebuild

    size = sum(f.size for f in store.log_files)
    if asked.share is None:
        answer.work, answer.total = "rebuild", size
        work = Rebuild(store, _options(asked, bytes_held(store.log_files)), answer.advance)
    else:
        work = Rebuild(store, _options(asked, 0), builder=asked.share)
    if asked.into is not None:
        _rebuild_into(work, asked.into, asked.owner, answer)
        return answer
    if answer.intent.is_real:
        work.check_in_place()
    staged = ExitStack()
    answer.close = staged.close
    try:
        directory = staged.enter_context(staging(store.root, answer.intent))
        _check_room(work, directory, answer, is_said=answer.intent.is_real)
    except BaseException:
        staged.close()
        raise
    answer.make = lambda: _rebuild_in_place(work, directory, answer)
    return answer


def _rebuild_in_place(work: Rebuild, directory: Path, answer: Proposal) -> None:
    from rmqctl.rocketmq.rebuild.rebuild import building
    from rmqctl.rocketmq.repair.books import books_of

    with building(work.store, directory):
        found = work.run(directory)
    unknown = _unknown_topics(work, found)
    if answer.intent.is_real and not unknown:
        answer.plan = _with_index_kept(work, work.plan(found))
        _hold_sizes(work.store, answer)
        answer.hold_to(books_of(work.store, answer.plan, whole_before=found.built.records))
    _show_rebuilt(work, found, answer)
    if unknown:
        answer.hints, answer.is_no = unknown, True
    elif answer.plan is None and not found.is_equal:
        in_place = "give --apply to put the new files in place, or give --into DIR to have them there"
        answer.hints = [f"nothing was changed; {in_place}"]
        answer.is_no = True


def _with_index_kept(work: Rebuild, plan: Plan) -> Plan:
    """Return the plan with a checkpoint that reaches to the index that it makes: the start after a kill deletes else
    what is newer.
    """
    from rmqctl.rocketmq.recovery.plan import overlaid
    from rmqctl.rocketmq.repair.config import index_time_steps

    if not work.options.index or work.options.checkpoint or not work.store.has_abort:
        return plan
    kept = index_time_steps(overlaid(work.store, plan.edits), "rebuild.checkpoint")
    return replace(plan, steps=(*plan.steps, *(step for step in kept if step.edits)))


def _rebuild_into(work: Rebuild, directory: Path, owner: str | None, answer: Proposal) -> None:
    """Have the files made in a directory of their own.

    Raises:
        Refused: the directory holds something, lies in a store, or has too little room.
    """
    from rmqctl.files.new_files import Ownership, check_new_directory, making
    from rmqctl.files.tree import LocalTree
    from rmqctl.repair.books import Books
    from rmqctl.rocketmq.store.locate import check_no_part

    tree = work.store.tree
    check_no_part(directory)
    check_new_directory(directory, [work.store.root] if isinstance(tree, LocalTree) else [])
    to = Ownership.like(tree, owner)
    _check_room(work, directory, answer)

    def make() -> None:
        with making(directory, to):
            found = work.run(directory)
            answer.books = Books(found.built.records)
            _show_rebuilt(work, found, answer)
            work.complete(found)

    answer.make = make


def _check_room(work: Rebuild, directory: Path, answer: Proposal, *, is_said: bool = True) -> None:
    """Refuse where too little room is free; with ``is_said`` say how much is needed."""
    from rmqctl.rocketmq.rebuild.rebuild import bytes_needed, check_room

    needed = bytes_needed(work.store, work.geometry, work.rules, work.wanted)
    free = check_room(directory, needed, force=answer.intent.force)
    if is_said:
        answer.remark(f"building in {directory}: about {needed:,} bytes are needed, {free:,} are free")


def _show_rebuilt(work: Rebuild, found: Rebuilt, answer: Proposal) -> None:
    rows: list[Row] = [change.row() for change in found.changes]
    summary, lines = found.summary(), list(_rebuilt_sentences(found))
    if answer.books is not None:
        summary["books"] = answer.books.document()
        lines.append(answer.books.sentence())
    answer.rows = rows
    answer.document = lambda: {"summary": summary, "changes": rows}
    answer.summary = lambda: {"kind": "summary", **summary}
    answer.sections = lambda: [Section(rows=rows, columns=_COLUMNS), Section(lines=lines)]
    answer.remarks += work.remarks(found)


def _unknown_topics(work: Rebuild, found: Rebuilt) -> list[str]:
    """Return what to say where no topic that was asked for has a message or a queue: the names are wrong."""
    from rmqctl.rocketmq.state.config import did_you_mean
    from rmqctl.rocketmq.state.config import known_topics as topic_names

    topics = work.options.topics
    if topics is None or any(found.counts.values()):
        return []
    names = topic_names(work.store)
    wanted = [(topic, did_you_mean(topic, names, work.store.root)) for topic in sorted(map(os.fsdecode, topics))]
    return [f"no message and no queue of topic {topic} is there{hint}" for topic, hint in wanted]


def _rebuilt_sentences(found: Rebuilt) -> Iterator[str]:
    s: dict[str, Any] = found.summary()
    counts = [(n, _WORDS[change]) for change, n in s["files"].items() if n]
    files = ", ".join(f"{n:,} {word}" for n, word in counts) or "no files"
    if counts:  # the first number carries the noun
        files = files.replace(f"{counts[0][0]:,} ", f"{number_of(counts[0][0], 'file')} ", 1)
    yield (
        f"{number_of(s['records'], 'record')} dispatched as {s['release']} does, {number_of(s['queues'], 'queue')}, "
        f"{number_of(s['index_files'], 'index file')}: {files}"
    )
    if s["damaged_ranges"]:
        ranges = number_of(s["damaged_ranges"], "range")
        lost = f"{number_of(s['damaged_bytes'], 'byte')} of the log, in {ranges}, hold no record"
        yield f"{lost}: rmqctl verify says which"
    if s["filled_units"]:
        without = number_of(s["filled_units"], "queue offset", "have")
        yield f"{without} no record; a unit there points to the message that follows"
    for (topic, queue_id), offset in sorted(found.counters.items()):
        known = f"its next offset {offset:,} is what consumers committed"
        yield f"queue {os.fsdecode(topic)}/{queue_id} has no record left; {known}"
