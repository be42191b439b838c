"""`rmqctl trace`: the life of one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, as_release_option, output_option, store_options
from commands._types import refuse
from rmqctl.questions import SHOWN

if TYPE_CHECKING:
    from rmqctl.release import Release


@click.command("trace", cls=Command, usual="topic limit output")
@store_options
@click.argument("message", metavar="KEY|ID|TOPIC/QUEUE@OFFSET")
@click.option("--topic", help="Only messages of this topic.")
@click.option(
    "-n", "--limit", "most", type=click.IntRange(min=1), default=SHOWN, show_default=True, help="Lives at most."
)
@as_release_option
@output_option(columns=True)
def command(
    store: StoreOptions, message: str, topic: str | None, most: int, as_release: Release | None, out: Output
) -> None:
    """Show the life of one message: each step with time, file and byte, and one sentence on what became of it.

    RocketMQ: all copies with its unique key, as a half, delayed, timed, retried or dead message; units and
    index entries that lead to them; the end of its transaction; pop consumers; the groups whose offsets have
    passed it; when its log file may be deleted. Kafka: its batch, producer and leader epoch; the transaction,
    its coordinator and its marker; since when readers of committed records see it; the groups that passed it
    and when they committed; later records of its key; when its segment may be deleted.

    A key that several messages have gives a life each, the newest first. A group has passed a message when
    its offset lies after it, which is all that files say of reading. Where evidence is gone the answer is
    "unknown" with the reason. Exits 1 when nothing is found.

    \b
    Examples:
      rmqctl trace /data/rocketmq/store order-17
      rmqctl trace /data/rocketmq/store AC110001002A18B4AAC2716E3B4D0000
      rmqctl trace /data/rocketmq/store TopicTest/0@1000 -o json
      rmqctl trace /var/lib/kafka orders/3@1000
    """
    if out.chooses and out.kind == "table":
        refuse(
            "--columns" if out.columns else "--sort", "chooses among rows, and a table shows a life whole; add -o csv."
        )
    show(out, store.open().trace(message, topic=topic, most=most, as_release=as_release))
