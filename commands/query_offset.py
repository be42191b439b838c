"""`rmqctl query-offset`: messages of a queue from an offset on."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._complete import topics
from commands._options import (
    StoreOptions,
    as_found_option,
    as_release_option,
    filter_options_but,
    max_body_option,
    output_option,
    store_options_with_paths,
)
from commands._types import QueueChoice, QueueName
from rmqctl.filters import Filters, Rendering
from rmqctl.release import Release


@click.command(
    "query-offset",
    cls=Command,
    usual="explain read-committed body key after limit as-release output",
    context_settings={"ignore_unknown_options": True},
)
@store_options_with_paths
@click.argument("queue", type=QueueName(needs_queue=True), shell_complete=topics)
@click.argument("offset", type=int)
@click.option("--explain", is_flag=True, help="Every step, and one sentence why a message is not there.")
@click.option("--read-committed", is_flag=True, help="Kafka: only records that no open or aborted transaction holds.")
@click.option("--body", is_flag=True, help="Add the body, decompressed.")
@max_body_option
@filter_options_but("topic", "queue", "damaged", "from_offset", "to_offset")
@as_release_option
@as_found_option
@output_option(columns=True)
def command(
    store: StoreOptions,
    queue: QueueChoice,
    offset: int,
    explain: bool,
    read_committed: bool,
    body: bool,
    max_body: int,
    filters: Filters,
    as_release: Release | None,
    as_found: bool,
    out: Output,
) -> None:
    """Show messages of a queue, or records of a Kafka partition, from OFFSET on: one, or -n many, across its files.

    With --as-release the answer is what one getMessage call of such a broker returns: 32 messages or
    -n, limits of the broker, end of the queue file. The status is the broker's word for it.
    --tag drops what the broker drops by the hash of the tag, then what a consumer drops by its text.
    Exits 1 when there is no message.

    \b
    Examples:
      rmqctl query-offset /data/rocketmq/store TopicTest/0 1000 -n 10
      rmqctl query-offset /data/rocketmq/store TopicTest/0 1000 --as-release 4.9.8
      rmqctl query-offset /data/rocketmq/store TopicTest/0 99999 --explain
      rmqctl query-offset /var/lib/kafka orders/3 1000 -n 10 --read-committed
    """
    assert queue.queue_id is not None
    rendering = Rendering(body, max_body=max_body)
    answer = store.open().query_offset(
        queue.topic,
        queue.queue_id,
        offset,
        filters,
        rendering,
        read_committed=read_committed,
        explain=explain,
        as_release=as_release,
        as_found=as_found,
    )
    show(out, answer)
