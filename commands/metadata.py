"""`rmqctl metadata`: the cluster image that a KRaft metadata log gives."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, output_option, store_options_with_paths
from commands._types import TimeOrOffset


@click.command("metadata", cls=Command, usual="at columns sort limit output")
@store_options_with_paths
@click.option(
    "--at",
    type=TimeOrOffset(),
    metavar="TIME|OFFSET",
    help="As it was at this time, or once the record at this offset was applied.",
)
@output_option(tables=True)
def command(store: StoreOptions, at: int | str | None, out: Output) -> None:
    """Show the metadata of a Kafka cluster: brokers, topics, partitions, configurations, ACLs, features.

    PATH is a log directory with __cluster_metadata-0, or one of its .checkpoint files. The newest
    snapshot is read, then the log after it. Exits 1 when a record does not fit.

    --at takes a time (2026-11-20 14:05, -15m, epoch milliseconds) or an offset: a number below
    1,000,000,000, or offset:N. Records have the time of the controller. A time from before the first
    snapshot is unknown, and exits 1.

    \b
    Examples:
      rmqctl metadata /var/lib/kafka
      rmqctl metadata /var/lib/kafka --at 1200 -o json
      rmqctl metadata /var/lib/kafka --at '2026-11-20 14:05'
    """
    show(out, store.open_any().metadata(at=at))
