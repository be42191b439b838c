"""`rmqctl rebuild`: queues, indexes and checkpoints from the log, in place by plan or into a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import Command
from commands._answer import prepare, show
from commands._app import Output
from commands._apply import Manner, apply_options, propose
from commands._complete import topics
from commands._options import StoreOptions, as_release_option, output_option, owner_option, store_options_with_paths
from commands._spark import engine_choice, is_spark, spark_options, spread, started, working
from commands._types import LocalPath, Name, refuse

if TYPE_CHECKING:
    from rmqctl.pipeline import Cluster
    from rmqctl.release import Release
    from rmqctl.store import Store as AnyStore


@click.command("rebuild", cls=Command, usual="queues index checkpoint topic into apply output")
@store_options_with_paths
@click.option("--queues", is_flag=True, help="RocketMQ: rebuild the queues.")
@click.option("--index", is_flag=True, help="Rebuild the key index; Kafka: offset, time and transaction indexes.")
@click.option(
    "--checkpoint", is_flag=True, help="Rebuild the checkpoint; Kafka: producer snapshots, leader epochs, checkpoints."
)
@click.option(
    "--topic",
    "topics",
    type=Name("topic"),
    multiple=True,
    shell_complete=topics,
    help="Only the queues, or partitions, of this topic, or of those that 'Orders*' matches; repeatable.",
)
@click.option(
    "--into",
    type=LocalPath(file_okay=False),
    metavar="DIR",
    help="Write to this new or empty directory and leave the store alone.",
)
@owner_option
@click.option("--processes", type=click.IntRange(min=1), help="Processes to share the log among; default: by its size.")
@engine_choice("Who dispatches the log: processes here, or Spark; of several stores each is a task.")
@spark_options
@as_release_option
@apply_options
@output_option(folds="each of what is alike, not the first places and a count")
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
    quarantine beside the journal; `rmqctl undo JOURNAL` takes that back. RocksDB databases of queues and
    index are made new as a whole (not with --topic); with --into a store whose queues lie in RocksDB
    gets queue files. Exits 1 when something differs and nothing was written.

    In a Kafka log directory it is all that derives from the logs, and partition.metadata from the metadata
    log. A file with other bytes that answers alike stays: index entries depend on when a broker was started.

    Several PATHs, a pattern in quotes or @inventory.toml: a row a store, how many files differ; nothing is written.

    \b
    Examples:
      rmqctl rebuild /data/rocketmq/store
      rmqctl rebuild /data/rocketmq/store --queues --topic Orders --apply
      rmqctl rebuild /data/rocketmq/store --into /data/rebuilt
      rmqctl rebuild /data/kafka --index --apply
      rmqctl rebuild '/mnt/broker-*/store' --engine spark --master spark://host:7077
    """
    if into and manner.is_real:
        refuse("--into", "leaves the store alone, and --apply changes it: give one of the two.")
    if owner and not into:
        refuse("--owner", "is for --into; in its place a store keeps the owners that it has.")
    named = {"queues": queues, "index": index, "checkpoint": checkpoint}
    parts = [part for part, wanted in named.items() if wanted]
    on_spark = is_spark(engine)
    if store.is_several:
        from rmqctl.questions import Rebuild

        if manner.is_real or into or topics or out.kind == "hex":
            refuse("PATH", "may be several only where they are compared with their logs; give one PATH.")
        question = Rebuild(frozenset(parts), processes=processes, as_release=as_release)
        if on_spark and spread(cluster, store, question, out):
            return
        from rmqctl.store import Store

        each = store.open_each(silently=True)
        if not isinstance(each, Store):
            show(out, each.ask(question))
            return
        found = each
    else:
        found = store.open_silently()
    with ExitStack() as work:
        share = work.enter_context(_spark(found, cluster)) if on_spark else None
        with found.rebuild(
            parts=parts,
            topics=topics,
            into=into,
            owner=owner,
            processes=processes,
            as_release=as_release,
            share=share,
            intent=manner,
        ) as proposal:
            prepare(proposal)
            work.close()
            propose(proposal, manner, out)


@contextmanager
def _spark(found: AnyStore, cluster: Cluster) -> Iterator[Callable[..., Any]]:
    """Who dispatches the log on Spark, with a bar while it works."""
    with started(cluster, found.size) as spark:
        from rmqctl.pipeline.rebuild import builder

        with working(spark, f"rebuild of {found.root}", found.size):
            yield builder(spark)
