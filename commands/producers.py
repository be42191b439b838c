"""`rmqctl producers`: the producers of Kafka partitions, replayed from the log."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, at_option, output_option, store_options_with_words
from commands._types import QueueName


@click.command("producers", cls=Command, usual="at columns sort limit output")
@store_options_with_words("PATH... [TOPIC[/PARTITION]]", 1)
@at_option
@output_option(tables=True)
def command(store: StoreOptions, words: tuple[str, ...], at: int | None, out: Output) -> None:
    """List the producers of partitions: epoch, last sequence and offset, open transaction, replayed from the log.

    Idle producers stay in the list, which brokers forget after a day. `current_txn_first_offset` of -1:
    no transaction is open. A last word that is a directory is a PATH. Exits 1 when no batch has a producer id.

    With --at the answer is that of a time, as far as the log shows: what it does not show is empty, and a
    line says why, and from when on it would be known.

    \b
    Examples:
      rmqctl producers /var/lib/kafka
      rmqctl producers /var/lib/kafka orders/3 -o jsonl
      rmqctl producers /var/lib/kafka orders/3 --at -15m
    """
    from rmqctl.questions import Producers

    topic, number = QueueName().convert(words[0], None, None) if words else (None, None)
    show(out, store.ask(Producers(topic, number, at=at)))
