"""`salvage`, `diff` and `elect` of log directories: what can be read of them elsewhere, and how copies relate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from rmqctl import election, questions
from rmqctl.answer import Answer, Row, Section
from rmqctl.errors import WrongUsage
from rmqctl.files.new_files import Ownership
from rmqctl.kafka.directory.directory import LogDirectories
from rmqctl.kafka.directory.releases import COMPARED
from rmqctl.kafka.engine.cluster_files import OLDEST
from rmqctl.kafka.replication.diff import Diff, Side
from rmqctl.kafka.replication.elect import contests
from rmqctl.kafka.salvage.gather import Source, Wanted
from rmqctl.kafka.salvage.salvage import SalvageOptions, Saved, check_target
from rmqctl.kafka.salvage.salvage import salvage as salvaged
from rmqctl.kafka.state.replicas import Replicas, release_shown
from rmqctl.text import counted, first_lines, number_of, typed
from rmqctl.verification import show_comparison, show_unread, verdict

_LAST_WITH_BOTH = COMPARED[1]
"""Of the last series that still ran with ZooKeeper, too: what salvages a directory of that time by default."""


# --- salvage ------------------------------------------------------------------------------------------


def salvage(
    places: Sequence[LogDirectories],
    asked: questions.Salvage,
) -> Answer:
    """Write every readable record of some log directories into a new one; rows are what could not be read.

    Raises:
        Refused: the new directory would lie in a source, or where something is.
    """
    if asked.partition is not None and asked.partition[1] is None:
        raise WrongUsage("--partition", "needs a number: TOPIC/NUMBER.")
    of = None if asked.partition is None else (asked.partition[0], int(asked.partition[1] or 0))
    sources, into = [Source.of(place.root, place) for place in places], asked.into
    check_target(sources, into)
    release = asked.as_release or release_shown(sources[0].replicas)
    if asked.as_release is None and release < OLDEST:
        release = _LAST_WITH_BOTH
    answer = Answer(work="salvage", total=4 * sum(source.size for source in sources))
    answer.remark_writers(*places)
    what = "partitions" if asked.as_topic_files else f"a log directory for a {release} broker"
    read = "is" if len(sources) == 1 else "are"
    answer.remark(f"writing {what} to {into}; {', '.join(source.name for source in sources)} {read} only read")
    to = Ownership.like(places[0].directories[0].tree, asked.owner)
    options = SalvageOptions(release, Wanted(asked.deleted, asked.stray, of), asked.as_topic_files, to)

    def make() -> None:
        saved = salvaged(sources, into, options, answer.advance)
        rows: list[Row] = [{**finding.row(), "source": sources[n].name} for n, finding in saved.unreadable]
        partitions = [partition.row() for partition in saved.partitions]
        answer.rows, answer.summary = rows, saved.summary
        answer.document = lambda: {"summary": saved.summary(), "partitions": partitions, "unreadable": rows}
        answer.sections = lambda: [
            show_unread(answer),
            Section(lines=_saved_sentences(saved, every=answer.every), folds=True),
        ]
        answer.is_no = bool(saved.unreadable or saved.holes or saved.left_out)

    answer.make = make
    return answer


def _saved_sentences(saved: Saved, *, every: bool) -> Iterator[str]:
    s = saved.summary()
    yield (
        f"{number_of(s['records'], 'record')}, {s['bytes']:,} bytes of {number_of(s['partitions'], 'partition')} "
        f"written to {s['into']}"
    )
    yield from counted(
        s,
        (
            ("unreadable", "place", "places", "could not be read (listed above)"),
            ("left_out", "batch was", "batches were", "left out: offsets in no order with the others"),
            ("duplicates", "record was", "records were", "found in more than one copy and written once"),
            ("conflicts", "batch differs", "batches differ", "between copies; the earlier source counted"),
            ("superseded", "record was", "records were", "left out, overwritten by a leader of a later epoch"),
        ),
    )
    missing = [
        f"{hole['topic']}-{hole['partition']}: offsets {hole['from']:,} to {hole['to']:,} are missing"
        for hole in s["holes"]
    ]
    yield from first_lines(missing, every=every)
    if s["open_transactions"]:
        count = len(s["open_transactions"])
        yield f"  {number_of(count, 'transaction')} without an end: readers of committed records wait there"
    lost = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in s["lost_metadata"].items())
    if lost:
        yield f"  not carried over from the cluster's metadata: {lost}"
    yield from saved.books.lines()
    if saved.cluster is None:
        yield (
            "next: stop the broker, move the partitions into its log directory in place of those that are there, "
            "remove .kafka_cleanshutdown, and start it"
        )
    else:
        yield (
            f"next: start a {s['release']} broker with process.roles=broker,controller, node.id={s['node_id']}, "
            f"controller.quorum.voters={s['node_id']}@HOST:PORT and log.dirs={s['into']}"
        )


# --- diff ---------------------------------------------------------------------------------------------


def diff(places: tuple[LogDirectories, LogDirectories], names: tuple[str, str], asked: questions.Diff) -> Answer:
    """List what two log directories, partitions or segments do not have in common."""
    answer = Answer(work="diff", total=sum(place.size for place in places) if asked.share is None else None)
    one, two = (Side.of(place, name) for place, name in zip(places, names, strict=True))
    answer.remark_writers(*places)
    found = Diff(one, two, by_batch=asked.by == "physical", advance=answer.advance, share=asked.share)
    return show_comparison(answer, found, _diff_sentences, asked.limit)


def _diff_sentences(s: dict[str, Any]) -> Iterator[str]:
    records, partitions = s["records"], s["partitions"]
    counts = {
        "equal": records["equal"],
        "changed": records["changed"],
        "in other batches": records["repacked"],
        "of another leader epoch": records["other_epoch"],
        "only in A": records["only_a"]["records"],
        "only in B": records["only_b"]["records"],
    }
    listed = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "none"
    yield f"records: {listed}"
    yield f"partitions: {partitions['equal']:,} of {partitions['compared']:,} that both have are equal"
    for label, offset in list(s["first_divergence"].items())[:1]:
        more = len(s["first_divergence"]) - 1
        yield f"first difference: {label} at offset {offset}" + (f", and in {more:,} more partitions" if more else "")
    metadata = s["metadata"]
    if metadata is not None and metadata["differences"] is None:
        yield f"the metadata of the two was not compared at offset {metadata['offset']}: {metadata['problem']}"
    elif metadata is not None:
        yield f"metadata at offset {metadata['offset']}: {number_of(metadata['differences'], 'difference')}"
    for letter, side in (("A", s["a"]), ("B", s["b"])):
        if side["damaged_places"]:
            places = number_of(side["damaged_places"], "damaged place")
            yield f"{letter}: {places}, not compared; type: {typed('verify', side['path'])}"
    yield verdict(s)


# --- elect --------------------------------------------------------------------------------------------


def elect(places: Sequence[LogDirectories]) -> Answer:
    """Say what each choice of leader loses, for every partition of some brokers' disks."""
    names, brokers = [place.root for place in places], [Replicas(place) for place in places]
    election.refuse_twice(names)
    total = sum(place.size for place in places)
    releases = [release_shown(broker) for broker in brokers]
    answer = election.answer(names, partial(contests, names, brokers, releases), total=total)
    answer.remark_writers(*places)
    return answer
