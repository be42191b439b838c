"""`rmqctl salvage`: every readable message into a new store."""

from __future__ import annotations

from pathlib import Path

import click

from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, output_option, owner_option, store_options
from commands._types import LocalPath


@click.command("salvage")
@store_options
@click.argument("into", type=LocalPath())
@click.option("--from", "--replica", "replicas", multiple=True, metavar="STORE", help="A further source; repeatable.")
@click.option("--stale", is_flag=True, help="Take old records behind the end of the log, too: what a cut left behind.")
@click.option("--renumber", is_flag=True, help="Count every queue anew from 0; default: queue offsets are kept.")
@owner_option
@output_option()
def command(
    store: StoreOptions,
    into: Path,
    replicas: tuple[str, ...],
    stale: bool,
    renumber: bool,
    owner: str | None,
    out: Output,
) -> None:
    """Copy every readable message of PATH into a new store at INTO, also those behind damage in the middle of the log.

    PATH is only read. The new store is written by the store engine: brokers start on it. Messages keep
    their queue offsets; where one is lost for good a placeholder stands, so that no consumer stalls. What
    could not be read is listed. With --replica the messages of several stores are merged by queue offset.
    Exits 1 when something could not be read.

    \b
    Examples:
      rmqctl salvage /data/rocketmq/store /data/salvaged
      rmqctl salvage /data/rocketmq/store /data/salvaged --replica /backup/store
    """
    sources = [StoreOptions(path, broker_conf=store.broker_conf).open_silently() for path in replicas]
    found = store.open_silently()
    show(out, found.salvage(into, replicas=sources, stale=stale, renumber=renumber, owner=owner))
