"""`rmqctl rebuild`: queues, index and checkpoint from the log, in place by plan or into a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message
from commands._apply import Manner, apply_options, carry_out, staged, stop_if_pending
from commands._options import StoreOptions, as_release_option, output_option, owner_option, processes_for, store_options
from commands._progress import progress
from commands._spark import spark_options, started, working
from commands._types import LocalPath, refuse
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.pipeline.settings import Cluster
    from rmqctl.release import Release
    from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions, Rebuilt
    from rmqctl.rocketmq.store.files import RocketMQStore

_COLUMNS = ("change", "file", "differing_units", "first_difference", "why")


@click.command("rebuild")
@store_options
@click.option("--queues", is_flag=True, help="Rebuild the queues.")
@click.option("--index", is_flag=True, help="Rebuild the key index.")
@click.option("--checkpoint", is_flag=True, help="Rebuild the checkpoint.")
@click.option("--topic", "topics", multiple=True, help="Only the queues of this topic; repeatable.")
@click.option(
    "--into",
    type=LocalPath(file_okay=False),
    metavar="DIR",
    help="Write to this new or empty directory and leave the store alone.",
)
@owner_option
@click.option("--processes", type=click.IntRange(min=1), help="Processes to share the log among; default: by its size.")
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Who dispatches the log: processes here, or Spark.",
)
@spark_options
@as_release_option
@apply_options
@output_option()
def command(
    store: StoreOptions,
    queues: bool,
    index: bool,
    checkpoint: bool,
    topics: tuple[str, ...],
    into: Path | None,
    owner: str | None,
    processes: int | None,
    engine: str,
    cluster: Cluster,
    as_release: Release | None,
    manner: Manner,
    out: Output,
) -> None:
    """Rebuild from the log what is derived from it, and compare it with what is there.

    Without --queues, --index and --checkpoint: queues and index. Files are made as a broker's dispatch
    makes them, byte for byte; what differs is listed. Queues whose messages have all expired keep their
    files, and so their next offset. --apply puts the new files in the place of the old, which move to
    quarantine beside the journal; `rmqctl undo JOURNAL` takes that back. A store with RocksDB queues gets
    queue files with --into. Exits 1 when something differs and nothing was written.

    \b
    Examples:
      rmqctl rebuild /data/rocketmq/store
      rmqctl rebuild /data/rocketmq/store --queues --topic Orders --apply
      rmqctl rebuild /data/rocketmq/store --into /data/rebuilt
    """
    from rmqctl.rocketmq.rebuild.rebuild import RebuildOptions, building
    from rmqctl.rocketmq.store.locate import check_no_part, open_root_at

    if into and manner.is_real:
        refuse("--into", "leaves the store alone, and --apply changes it: give one of the two.")
    if owner and not into:
        refuse("--owner", "is for --into; in its place a store keeps the owners that it has.")
    if topics and (index or checkpoint):
        refuse("--topic", "chooses queues; index and checkpoint can only be rebuilt for all topics.")
    found = open_root_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    if into:
        check_no_part(into)
    _check_state(found, apply=manner.is_real)
    wanted = RebuildOptions(
        queues=queues or not (index or checkpoint),
        index=index or not (queues or checkpoint or topics),
        checkpoint=checkpoint,
        topics=frozenset(os.fsencode(t) for t in topics) if topics else None,
        as_release=as_release,
        processes=processes or processes_for(sum(f.size for f in found.log_files)),
    )
    with staged(found.root, manner) as directory:
        with _rebuilder(found, wanted, cluster if engine == "spark" else None) as rebuild:
            if into:
                _into(rebuild, into, owner, out, force=manner.force)
                return
            if manner.is_real:
                rebuild.check_in_place()
            _check_room(rebuild, directory, force=manner.force, told=manner.is_real)
            with building(found, directory):
                rebuilt = rebuild.run(directory)
            _remark(rebuild, rebuilt)
        _show(rebuilt, out)
        _stop_if_nothing(found, wanted, rebuilt)
        if manner.is_real:
            carry_out(rebuild.plan(rebuilt), manner, outside=found.logs_outside)
            return
    if not rebuilt.is_equal:
        in_place = "" if found.is_rocksdb and wanted.queues else "give --apply to put the new files in place, or "
        message(f"nothing was changed; {in_place}give --into DIR to have them there")
        raise SystemExit(1)


@contextmanager
def _rebuilder(found: RocketMQStore, wanted: RebuildOptions, cluster: Cluster | None) -> Iterator[Rebuild]:
    """What rebuilds, here or on Spark, with a bar while it works."""
    from rmqctl.rocketmq.rebuild.rebuild import Rebuild

    size = sum(f.size for f in found.log_files)
    if cluster is None:
        with progress("rebuild", size) as advance:
            yield Rebuild(found, wanted, advance)
        return
    with started(cluster, size) as spark:
        from rmqctl.pipeline.rebuild import builder

        with working(spark, f"rebuild of {found.root}", size):
            yield Rebuild(found, wanted, builder=builder(spark))


def _check_state(found: RocketMQStore, *, apply: bool) -> None:
    from rmqctl.errors import NotAStore, StoreInUse

    if not found.log_files:
        raise NotAStore(found.root, "no file of a commit log is there to rebuild from")
    stop_if_pending(found.root)
    if found.is_running:
        if apply:
            raise StoreInUse(found.root)
        message("a broker holds the lock of this store: what is read may be changing")


def _remark(rebuild: Rebuild, rebuilt: Rebuilt) -> None:
    for sentence in rebuild.remarks(rebuilt):
        message(sentence)


def _stop_if_nothing(found: RocketMQStore, wanted: RebuildOptions, rebuilt: Rebuilt) -> None:
    """Exit 1 where no topic of --topic has a message or a queue: the names are wrong."""
    from rmqctl.rocketmq.state.config import did_you_mean
    from rmqctl.rocketmq.state.config import known_topics as topic_names

    if wanted.topics is None or any(rebuilt.counts.values()):
        return
    names = topic_names(found)
    for topic in sorted(map(os.fsdecode, wanted.topics)):
        message(f"no message and no queue of topic {topic} is there{did_you_mean(topic, names)}")
    raise SystemExit(1)


def _check_room(rebuild: Rebuild, directory: Path, *, force: bool, told: bool = True) -> None:
    """Refuse where too little room is free; with ``told`` say how much is needed."""
    from rmqctl.rocketmq.rebuild.rebuild import bytes_needed, check_room

    needed = bytes_needed(rebuild.store, rebuild.geometry, rebuild.rules, rebuild.wanted)
    free = check_room(directory, needed, force=force)
    if told:
        message(f"building in {directory}: about {needed:,} bytes are needed, {free:,} are free")


def _into(rebuild: Rebuild, directory: Path, owner: str | None, out: Output, *, force: bool) -> None:
    from rmqctl.files.new_files import Ownership, check_new_directory, making
    from rmqctl.files.tree import LocalTree

    tree = rebuild.store.tree
    check_new_directory(directory, [rebuild.store.root] if isinstance(tree, LocalTree) else [])
    to = Ownership.like(tree, owner)
    _check_room(rebuild, directory, force=force)
    with making(directory, to):
        rebuilt = rebuild.run(directory)
        _remark(rebuild, rebuilt)
        rebuild.complete(rebuilt)
    _show(rebuilt, out)


def _show(rebuilt: Rebuilt, out: Output) -> None:
    rows = [change.row() for change in rebuilt.changes]
    if out.kind == "json":
        out.document({"summary": rebuilt.summary(), "changes": rows})
        return
    out.show(rows, columns=_COLUMNS)
    if out.kind == "jsonl":
        out.show([{"kind": "summary", **rebuilt.summary()}])
    elif out.kind == "table":
        out.text(_sentences(rebuilt))


def _sentences(rebuilt: Rebuilt) -> Iterator[str]:
    s: dict[str, Any] = rebuilt.summary()
    files = ", ".join(f"{n:,} {_WORDS[change]}" for change, n in s["files"].items() if n) or "no files"
    yield (
        f"{number_of(s['records'], 'record')} dispatched as {s['release']} does, {number_of(s['queues'], 'queue')}, "
        f"{s['index_files']:,} index files: {files}"
    )
    if s["damaged_ranges"]:
        ranges = number_of(s["damaged_ranges"], "range")
        lost = f"{number_of(s['damaged_bytes'], 'byte')} of the log, in {ranges}, hold no record"
        yield f"{lost}: rmqctl verify tells which"
    if s["filled_units"]:
        yield f"{s['filled_units']:,} queue offsets have no record; their units point to the message that follows"
    for (topic, queue_id), offset in sorted(rebuilt.counters.items()):
        known = f"its next offset {offset:,} is what consumers committed"
        yield f"queue {os.fsdecode(topic)}/{queue_id} has no record left; {known}"


_WORDS = {
    "equal": "equal",
    "keep": "kept",
    "create": "missing",
    "replace": "different",
    "remove": "to be removed",
}
