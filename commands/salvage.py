"""`rmqctl salvage`: every readable message into a new store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._complete import files
from commands._options import StoreOptions, as_release, output_option, owner_option, store_options
from commands._types import LocalPath, QueueName

if TYPE_CHECKING:
    from rmqctl.release import Release


@click.command("salvage", cls=Command, usual="replica deleted partition as-topic-files owner output")
@store_options
@click.argument("others", nargs=-1, metavar="[PATH]...", shell_complete=files)
@click.argument("into", type=LocalPath())
@click.option("--from", "--replica", "replicas", multiple=True, metavar="STORE", help="A further source; repeatable.")
@click.option(
    "--stale", is_flag=True, help="RocketMQ: take old records after the end of the log, too: what a cut left there."
)
@click.option("--renumber", is_flag=True, help="RocketMQ: count every queue from 0; default: queue offsets are kept.")
@click.option("--deleted", is_flag=True, help="Kafka: take directories that wait to be deleted (-delete), too.")
@click.option("--stray", is_flag=True, help="Kafka: take directories that the cluster had no use for (-stray), too.")
@click.option(
    "--partition",
    type=QueueName(needs_queue=True),
    metavar="TOPIC/NUMBER",
    help="Kafka: the partition of files that lie in no partition's directory.",
)
@click.option("--as-topic-files", is_flag=True, help="Kafka: only the partitions, for a cluster that is there.")
@as_release("Kafka: write for a broker of this release, such as 3.9.2; default: that which the sources show.")
@owner_option
@output_option(folds="each of what could not be read, not the first places and a count")
def command(
    store: StoreOptions,
    others: tuple[str, ...],
    into: Path,
    replicas: tuple[str, ...],
    stale: bool,
    renumber: bool,
    deleted: bool,
    stray: bool,
    partition: tuple[str, int | None] | None,
    as_topic_files: bool,
    as_release: Release | None,
    owner: str | None,
    out: Output,
) -> None:
    """Copy every readable message of PATH into a new store at INTO, also those after damage in the middle of the log.

    PATH is only read. The new store is written by the store engine: brokers start on it. Messages keep
    their queue offsets; where one is lost for good a placeholder stands, so that no consumer stalls. What
    could not be read is listed. With several PATHs the messages of several stores are merged by queue offset;
    where two have the same message the one named first counts. Exits 1 when something could not be read.

    Of Kafka's log directories, partitions or directories with segments, every sound batch is copied byte for byte
    with its offsets, as far as no later leader epoch had overwritten it. Indexes, snapshots and checkpoints are
    made again from it, and a metadata log with the topics and their ids: one broker (KRaft) starts on INTO.

    \b
    Examples:
      rmqctl salvage /data/rocketmq/store /data/salvaged
      rmqctl salvage /data/rocketmq/store /backup/store /data/salvaged
      rmqctl salvage /data/kafka-logs /mnt/broker2/kafka-logs /data/salvaged --deleted
    """
    paths = (*others, *replicas)
    sources = [StoreOptions(path, broker_conf=store.broker_conf).open_silently() for path in paths]
    found = store.open_silently()
    answer = found.salvage(
        into,
        replicas=sources,
        stale=stale,
        renumber=renumber,
        owner=owner,
        deleted=deleted,
        stray=stray,
        partition=partition,
        as_topic_files=as_topic_files,
        as_release=as_release,
    )
    show(out, answer)
