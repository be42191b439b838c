"""`rmqctl convert`: a Kafka log directory of a RocketMQ store, or the other way round."""

from __future__ import annotations

from pathlib import Path

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, output_option, owner_option, store_options
from commands._types import LocalPath, Release
from rmqctl.release import Release as ReleaseNumber

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command("convert", cls=Command, usual="as-release codec renumber owner output")
@store_options
@click.argument("into", type=LocalPath(), metavar="DST")
@click.option(
    "--as-release", type=Release(), metavar="RELEASE", help="The brokers that are to start on DST; default: the newest."
)
@click.option(
    "--codec", type=click.Choice(_CODECS), default="none", show_default=True, help="Kafka: what compresses batches."
)
@click.option(
    "--offsets-partitions",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="Kafka: partitions of __consumer_offsets.",
)
@click.option(
    "--renumber", is_flag=True, help="RocketMQ: count every queue from 0, without placeholders; default: offsets stay."
)
@click.option("--small", is_flag=True, help="Small files in DST, for a test: segments of 64 KiB, a log of 4 MiB.")
@owner_option
@output_option(tables=True)
def command(
    store: StoreOptions,
    into: Path,
    as_release: ReleaseNumber | None,
    codec: str,
    offsets_partitions: int,
    renumber: bool,
    small: bool,
    owner: str | None,
    out: Output,
) -> None:
    """Make a Kafka log directory of a RocketMQ store, or a RocketMQ store of Kafka log directories.

    PATH is only read. DST must be new or empty; a broker of --as-release starts on it. Queues become
    partitions and keep their offsets; keys, tags and properties become keys and headers, and consumer
    groups go on where they were. What one side has no place for is kept under names rmq-... and
    kafka-..., and read on the way back; what has no twin is listed, docs/convert.md says more. Damage
    is passed over. Exits 1 when something could not be read or written.

    \b
    Examples:
      rmqctl convert /data/rocketmq/store /data/kafka-logs
      rmqctl convert /disk1/kafka,/disk2/kafka /data/rocketmq/store --as-release 5.3.3 -o json
    """
    from rmqctl.convert import ConvertOptions, convert
    from rmqctl.files.new_files import Ownership
    from rmqctl.files.remote import open_tree

    found = store.open()
    given = Ownership.like(open_tree(store.path.partition(",")[0]), owner)
    options = ConvertOptions(as_release, _CODECS.index(codec), offsets_partitions, small, renumber, given)
    show(out, convert(found, into, options))
