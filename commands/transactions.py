"""`rmqctl transactions`: transactional ids and the transactions that hang."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, at_option, output_option, store_options_with_paths


@click.command("transactions", cls=Command, usual="at columns sort limit output")
@store_options_with_paths
@at_option
@output_option(tables=True)
def command(store: StoreOptions, at: int | None, out: Output) -> None:
    """List transactional ids by their latest state, with the partitions of the transaction that is open.

    A transaction hangs when it is open beyond its timeout, or open in a partition of which its
    coordinator knows nothing: readers of committed records then wait for ever. The line that aborts it
    is printed. Exits 1 when no transaction is noted.

    With --at the answer is that of a time, as far as the log shows: what it does not show is empty, and a
    line says why, and from when on it would be known.

    \b
    Examples:
      rmqctl transactions /var/lib/kafka
      rmqctl transactions /var/lib/kafka --at '2026-11-20 14:05'
    """
    from rmqctl.questions import Transactions

    show(out, store.ask(Transactions(at=at)))
