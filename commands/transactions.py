"""`rmqctl transactions`: transactional ids and the transactions that hang."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, output_option, store_options_with_paths


@click.command("transactions", cls=Command, usual="columns sort limit output")
@store_options_with_paths
@output_option(tables=True)
def command(store: StoreOptions, out: Output) -> None:
    """List transactional ids by their latest state, with the partitions of the transaction that is open.

    A transaction hangs when it is open beyond its timeout, or open in a partition of which its
    coordinator knows nothing: readers of committed records then wait for ever. The line that aborts it
    is printed. Exits 1 when no transaction is noted.

    \b
    Example:
      rmqctl transactions /var/lib/kafka
    """
    from rmqctl.questions import Transactions

    show(out, store.ask(Transactions()))
