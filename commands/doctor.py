"""`rmqctl doctor`: the first command of a bad night."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, output_option, store_options_with_paths


@click.command("doctor", cls=Command, usual="broker-conf output")
@store_options_with_paths
@output_option()
def command(store: StoreOptions, out: Output) -> None:
    """Say on one screen what is here, what is wrong, what a start of the broker would do, and what to type next.

    Nothing is written. It looks as thoroughly as ends within about ten seconds, by the size of the log, and says
    what it has not looked at. Everything comes from `info`, `verify`, `recover`, `lag` and `transactions`. Exits 0 when
    nothing is wrong, else 1. `rmqctl PATH` is the same.

    Several PATHs, a pattern in quotes or @inventory.toml: a line a store, and what to look at next.

    \b
    Examples:
      rmqctl doctor /data/rocketmq/store
      rmqctl /var/lib/kafka/data
      rmqctl doctor /data/rocketmq/store -o json
    """
    from rmqctl.doctor import examine
    from rmqctl.store import Store

    found = store.open_each(silently=True)
    if not isinstance(found, Store):
        show(out, found.examine())
        return
    show(out, examine(found, store.path))
