"""`rmqctl info`: what is here."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, at_option, output_option, store_options_with_paths
from commands._types import refuse


@click.command("info", cls=Command, usual="explain segments at output local-time")
@store_options_with_paths
@click.option("--explain", is_flag=True, help="Show instead what each fact says about the release.")
@click.option("--segments", is_flag=True, help="List instead the files of the log, with where and when each begins.")
@at_option
@output_option(tables=True)
def command(store: StoreOptions, explain: bool, segments: bool, at: int | None, out: Output) -> None:
    """Show what is in a store: kind, release, geometry, sizes, offsets, times, exit state.

    Reads the ends of the log and directory lists only, so it is quick on any size. The releases are
    the range that fits all evidence; geometry says how it was known (broker-conf, detected, default).
    A file that cannot be read is named, and the exit status is 1. Give several PATHs, or one with
    commas, where a Kafka broker has several log directories (log.dirs). Other PATHs are stores of their own,
    as are those of a pattern in quotes and of @inventory.toml: a row a store.

    With --at the answer is that of a time, as far as the log shows: what it does not show is empty, and a
    line says why, and from when on it would be known.

    \b
    Examples:
      rmqctl info /data/rocketmq/store
      rmqctl info /disk1/kafka /disk2/kafka
      rmqctl info @fleet.toml
      rmqctl info /data/rocketmq/store --explain
      rmqctl info /data/rocketmq/store --segments
      rmqctl info /var/lib/kafka -o json
    """
    from rmqctl.questions import Info

    if explain and segments:
        refuse("--segments", "and --explain list different things; give one of them.")
    if at is not None and (explain or segments):
        refuse("--at", "goes with neither --explain nor --segments, which list what files show.")
    show(out, store.ask(Info(explain, segments, at=at)))
