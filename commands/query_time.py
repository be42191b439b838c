"""`rmqctl query-time`: the queue offset that belongs to a time, and the message there."""

from __future__ import annotations

import click

from commands._app import Output
from commands._options import StoreOptions, as_release_option, output_option, store_options
from commands._queue_query import finish, show_options, started
from commands._types import Instant, Queue, QueueName, Size
from rmqctl.release import Release

_COLUMNS = ("topic", "queue_id", "queue_offset", "previous_store_timestamp", "store_timestamp", "next_store_timestamp")


@click.command("query-time", context_settings={"ignore_unknown_options": True})
@store_options
@click.argument("queue", type=QueueName())
@click.argument("time", type=Instant())
@click.option(
    "--boundary",
    type=click.Choice(["lower", "upper"]),
    default="lower",
    show_default=True,
    help="The first message at the time or later, or the last at the time or earlier (brokers from 5.1.1 on).",
)
@click.option("--explain", is_flag=True, help="Add what was looked at, step by step, and why the answer is what it is.")
@show_options
@as_release_option
@output_option()
def command(
    store: StoreOptions,
    queue: Queue,
    time: int,
    boundary: str,
    explain: bool,
    show: dict[str, bool],
    as_release: Release | None,
    out: Output,
) -> None:
    """Find the queue offset that a broker answers for a time, and show the message there.

    QUEUE is TOPIC/ID, or TOPIC for all its queues. TIME is 2026-11-20T08:00:00Z, a local time, epoch
    milliseconds, or -15m. Brokers up to 5.1.0 choose the queue file by its modification time and
    answer with the nearer neighbour; later ones go by the times of the messages. Exits 1 when no
    queue holds a message.

    \b
    Examples:
      rmqctl query-time /data/rocketmq/store TopicTest 2026-11-20T08:00:00Z
      rmqctl query-time /data/rocketmq/store TopicTest/0 -15m --boundary upper --explain
    """
