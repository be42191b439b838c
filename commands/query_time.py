"""`rmqctl query-time`: the queue offset that belongs to a time, and the message there."""

from __future__ import annotations

import click

from commands._answer import show
from commands._app import Output
from commands._complete import topics
from commands._options import (
    StoreOptions,
    as_found_option,
    as_release_option,
    max_body_option,
    output_option,
    store_options_with_paths,
)
from commands._types import QueueChoice, QueueName, SpanArguments, TimeOrWord
from rmqctl.filters import TIME_WORDS, Rendering
from rmqctl.release import Release


@click.command("query-time", cls=SpanArguments, usual="boundary explain body as-release output")
@store_options_with_paths
@click.argument("queue", type=QueueName(), shell_complete=topics)
@click.argument("time", type=TimeOrWord(*TIME_WORDS))
@click.option(
    "--boundary",
    type=click.Choice(["lower", "upper"]),
    default="lower",
    show_default=True,
    help="RocketMQ: the first message of the time or later, or the last one of the time or earlier.",
)
@click.option("--explain", is_flag=True, help="Every step, and one sentence why the answer is what it is.")
@click.option("--body", is_flag=True, help="Add the body, decompressed.")
@max_body_option
@as_release_option
@as_found_option
@output_option(tables=True)
def command(
    store: StoreOptions,
    queue: QueueChoice,
    time: int | str,
    boundary: str,
    explain: bool,
    body: bool,
    max_body: int,
    as_release: Release | None,
    as_found: bool,
    out: Output,
) -> None:
    """Find the queue offset that a broker answers for a time, and show the message there.

    QUEUE is TOPIC/ID, or TOPIC for all its queues. Brokers up to 5.1.0 choose the queue file by its
    modification time, and answer with the message nearest to the time; later ones go by the times of
    the messages, and --boundary counts. A Kafka broker answers with the first record of that time or
    later, and to `earliest`, `latest` and `max-timestamp`. Exits 1 when no queue holds a message.

    \b
    Examples:
      rmqctl query-time /data/rocketmq/store TopicTest 2026-11-20T08:00:00Z
      rmqctl query-time /data/rocketmq/store TopicTest/0 -15m --boundary upper --explain
      rmqctl query-time /var/lib/kafka orders max-timestamp
    """
    answer = store.open().query_time(
        queue.topic,
        queue.queue_id,
        time,
        Rendering(body, max_body=max_body),
        boundary=boundary,
        explain=explain,
        as_release=as_release,
        as_found=as_found,
    )
    show(out, answer)
