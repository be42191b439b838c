"""`rmqctl elect`: which replica may lead, and what each choice loses."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._complete import files
from commands._options import StoreOptions, output_option, refusing


@click.command("elect", cls=Command, usual="output")
@click.argument("a", metavar="A", shell_complete=files)
@click.argument("b", metavar="B", shell_complete=files)
@click.argument("others", nargs=-1, metavar="[C]...", shell_complete=files)
@output_option(tables=True)
@refusing
def command(a: str, b: str, others: tuple[str, ...], out: Output) -> None:
    """Compare the disks of all replicas, A, B and more, and say what is lost with each of them as the leader.

    For every log: up to where the replicas are equal by their epochs, where they first differ, what only one
    has, and what a choice loses: what others have and it has not, and what a broker cuts off when it starts on it.
    What a leader of a later epoch has overwritten is no loss. Nothing is written.
    Exits 1 where every choice loses something, and says whether a salvaged union of all has it.

    \b
    Examples:
      rmqctl elect /mnt/broker1/kafka-logs /mnt/broker2/kafka-logs /mnt/broker3/kafka-logs
      rmqctl elect /data/master/store /data/slave/store -o json
    """
    first, *rest = (StoreOptions(path).open_silently() for path in (a, b, *others))
    show(out, first.elect(rest))
