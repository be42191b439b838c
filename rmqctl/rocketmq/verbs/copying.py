"""`salvage` and `diff` of a RocketMQ store: what can be read of it elsewhere, and what two stores differ in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqctl import election, questions
from rmqctl.answer import Answer, Section
from rmqctl.rocketmq.diff.driver import Diff, DiffOptions, Side
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.text import counted, first_lines, number_of, typed
from rmqctl.verification import show_comparison, show_unread, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.rocketmq.salvage.salvage import Salvaged

# --- salvage ------------------------------------------------------------------------------------------


def salvage(stores: Sequence[StoreFiles], asked: questions.Salvage) -> Answer:
    """Write every readable message of one store or several into a new one; rows are what could not be read.

    Raises:
        Refused: the new store would lie in a store, or where something is.
    """
    from rmqctl.files.new_files import Ownership
    from rmqctl.rocketmq.salvage.salvage import SalvageOptions, check_target
    from rmqctl.rocketmq.salvage.salvage import salvage as salvaged
    from rmqctl.rocketmq.store.locate import check_no_part

    check_no_part(asked.into)
    check_target(stores, asked.into)
    answer = Answer(work="salvage", total=4 * sum(f.size for store in stores for f in store.log_files))
    answer.remark_writers(*stores)
    options = SalvageOptions(asked.stale, asked.renumber, Ownership.like(stores[0].tree, asked.owner))
    answer.remark(f"writing a new store to {asked.into}; {', '.join(s.root for s in stores)} is only read")

    def make() -> None:
        saved = salvaged(stores, asked.into, options, answer.advance)
        rows = [{**finding.row(), "source": saved.sources[number][0]} for number, finding in saved.unreadable]
        answer.rows, answer.summary = rows, saved.summary
        answer.document = lambda: {"summary": saved.summary(), "unreadable": rows}
        answer.sections = lambda: [
            show_unread(answer),
            Section(lines=_salvaged_sentences(saved, every=answer.every), folds=True),
        ]
        answer.is_no = bool(saved.unreadable or saved.written.holes)

    answer.make = make
    return answer


def _salvaged_sentences(saved: Salvaged, *, every: bool) -> Iterator[str]:
    s = saved.summary()
    yield f"{number_of(s['messages'], 'message')}, {s['bytes']:,} bytes written to {s['into']}"
    yield from counted(
        s,
        (
            ("unreadable", "place", "places", "could not be read (listed above)"),
            ("placeholders", "placeholder stands", "placeholders stand", "for messages that no source has"),
            ("renumbered", "message", "messages", "got another queue offset"),
            ("duplicates", "message was", "messages were", "found in more than one place and written once"),
            ("conflicts", "of these differs", "of these differ", "between sources; the earlier source counted"),
            ("stale", "message comes", "messages come", "from after the end of the log"),
        ),
    )
    missing = [
        f"{hole['topic']}/{hole['queue_id']}: offsets {hole['from']:,} to {hole['to']:,} are missing"
        for hole in s["holes"]
    ]
    yield from first_lines(missing, every=every)
    for what in s["offsets"]:
        yield f"  {what}"
    yield from saved.books.lines()
    yield f"next: {typed('verify', s['into'])}"


# --- diff ---------------------------------------------------------------------------------------------


def diff(sides: tuple[Side, Side], asked: questions.Diff) -> Answer:
    """List what two stores or logs do not have in common.

    Args:
        asked: ``share`` is a :class:`rmqctl.rocketmq.diff.driver.Sharing` that reads the logs elsewhere.
    """
    options = DiffOptions(asked.by == "physical", asked.queues)
    if asked.share is None:
        answer = Answer(work="diff", total=sum(f.size for f in sides[0].log.files))
        found = Diff(*sides, options, answer.advance)
    else:
        answer, found = Answer(), Diff(*sides, options, share=asked.share)
    return show_comparison(answer, found, _diff_sentences, asked.limit)


def _diff_sentences(s: dict[str, Any]) -> Iterator[str]:
    records = s["records"]
    counts = {
        "equal": records["equal"],
        "changed": records["changed"],
        "moved": records["moved"],
        "with another body": records["other_body"],
        "with other properties": records["other_properties"],
        "only in A": records["only_a"]["records"],
        "only in B": records["only_b"]["records"],
    }
    counted = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "none"
    first = "" if s["first_divergence"] is None else f"; first difference at physical offset {s['first_divergence']}"
    yield f"records: {counted}{first}"
    if s["queues"] is not None:
        q = s["queues"]
        yield (
            f"queue units: {q['equal_units']:,} equal, {q['different_units']:,} different, "
            f"{q['units_only_a']:,} only in A, {q['units_only_b']:,} only in B"
        )
    for letter, side in (("A", s["a"]), ("B", s["b"])):
        if side["damaged_places"]:
            places = number_of(side["damaged_places"], "place")
            what = f"{places} of the log without a record, not compared"
            yield f"{letter}: {what}; type: {typed('verify', side['path'])}"
    yield verdict(s)


# --- elect --------------------------------------------------------------------------------------------


def elect(stores: Sequence[StoreFiles]) -> Answer:
    """Say what is lost with each of some replicas as the master."""
    from rmqctl.rocketmq.diff.elect import contests

    names = [store.root for store in stores]
    election.refuse_twice(names)
    total = (len(stores) - 1) * sum(file.size for store in stores for file in store.log_files) // 2
    answer = election.answer(names, partial(contests, names, stores), total=total)
    answer.remark_writers(*stores)
    return answer
