"""`rmqctl diff`: what two stores or logs do not have in common."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._complete import files
from commands._options import StoreOptions, output_option, refusing
from commands._spark import engine_choice, is_spark, spark_options, spread_pairs, started, working

if TYPE_CHECKING:
    from rmqctl.pipeline import Cluster
    from rmqctl.store import LoneFile, Store


@click.command("diff", cls=Command, usual="by no-queues limit all output")
@click.argument("a", shell_complete=files)
@click.argument("b", shell_complete=files)
@click.option(
    "--by",
    type=click.Choice(["physical", "queue"]),
    default="physical",
    show_default=True,
    help="Which messages belong together: those at the same physical offset (replicas), or those of the same topic, "
    "queue and queue offset (salvaged stores).",
)
@click.option("--no-queues", is_flag=True, help="Compare the logs only, not the consume queues.")
@click.option("--commitlog-a", metavar="DIR[,DIR...]", help="Directories of A's commit log outside A.")
@click.option("--commitlog-b", metavar="DIR[,DIR...]", help="Directories of B's commit log outside B.")
@engine_choice("Who reads the logs: this process, or Spark; of two sets each pair is a task.")
@spark_options
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Show at most this many differences; all are counted.")
@output_option(folds="each of what is alike, not the first places and a count")
@refusing
def command(
    a: str,
    b: str,
    by: str,
    no_queues: bool,
    commitlog_a: str | None,
    commitlog_b: str | None,
    engine: str,
    cluster: Cluster,
    limit: int | None,
    out: Output,
) -> None:
    """Compare two stores, two logs, or two log files: A and B.

    Records are compared byte by byte at the same physical offset; what has no equal there is looked for by
    topic, queue and queue offset. Then the queues, unit by unit, also RocksDB queues with files, as far as
    both logs hold their records. Logs may begin and end at different offsets. Exits 1 when A and B differ.

    Of Kafka: two log directories, two replicas of a partition, or two segments, batch by batch at the same record
    offsets (with --by queue record by record, in whatever batches); where leader epochs part; and of two controllers
    the metadata at the last offset that both have.

    Two sets of stores, A and B patterns in quotes or @inventories: those that are called alike are compared, by
    name or by what the wildcards stand for, and each pair has a row; what only one set has is a row, too.

    \b
    Examples:
      rmqctl diff /data/master/store /data/slave/store
      rmqctl diff /data/store /backup/store -o json
      rmqctl diff /mnt/broker1/kafka-logs/orders-0 /mnt/broker2/kafka-logs/orders-0
      rmqctl diff /data/store /data/salvaged --by queue
      rmqctl diff '/backup/monday/*/store' '/backup/tuesday/*/store'
      rmqctl diff s3://a/store s3://b/store --engine spark --master spark://host:7077
    """
    from rmqctl.inventory import is_several
    from rmqctl.questions import Diff

    on_spark = is_spark(engine)
    if is_several(a) or is_several(b):
        from rmqctl.fleet import open_all

        sides = [(a, _directories(commitlog_a)), (b, _directories(commitlog_b))]
        if on_spark:
            spread_pairs(cluster, sides, partial(Diff, by=by, queues=not no_queues, limit=limit), out)
            return
        first, second = (open_all([path], commit_log=logs) for path, logs in sides)
        show(out, first.against(second, by=by, queues=not no_queues, limit=limit))
        return
    found, other = _opened(a, commitlog_a), _opened(b, commitlog_b)
    with ExitStack() as work:
        share = None
        if on_spark:
            size = found.size + other.size
            spark = work.enter_context(started(cluster, size))
            from rmqctl.pipeline.diff import SparkSharing

            work.enter_context(working(spark, f"diff of {a} and {b}", size))
            share = SparkSharing(spark)
        show(out, found.diff(other, by=by, queues=not no_queues, limit=limit, share=share))


def _opened(path: str, commit_log: str | None) -> Store | LoneFile:
    return StoreOptions(path, commit_log=_directories(commit_log)).open_any()


def _directories(commit_log: str | None) -> tuple[str, ...]:
    return tuple(part for part in (commit_log or "").split(",") if part)
