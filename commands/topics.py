"""`rmqctl topics`: topics and queues with the broker's own offsets."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import (
    StoreOptions,
    as_found_option,
    at_option,
    output_option,
    store_options_with_paths,
    topic_option,
)
from commands._types import refuse


@click.command("topics", cls=Command, usual="topic by-topic as-found at disk columns sort limit output")
@store_options_with_paths
@click.option("--by-topic", is_flag=True, help="One row a topic, its queues added up.")
@topic_option("Only this topic, or those that 'Orders*' matches; repeatable.")
@as_found_option
@at_option
@click.option("--disk", is_flag=True, help="The room that files take, what retention frees of it, what may go.")
@output_option(tables=True)
def command(
    store: StoreOptions,
    by_topic: bool,
    topic: tuple[str, ...],
    as_found: bool,
    at: int | None,
    disk: bool,
    out: Output,
) -> None:
    """List queues with their smallest and next offset, messages, bytes, first and last store time.

    Offsets are those that a broker of the store's release answers once it has started on the store, as
    `recover` replays that start: what it would cut is not counted, what it would dispatch is. With
    --as-found the files count as they lie. Exits 1 when nothing matches, no broker would
    start on the store, or a file cannot be read.

    With --disk the room of the disk is looked at: what files take it, by queue or partition and what they
    hold, what retention frees at its next run and when the next file expires, what may be deleted without a
    loss, and what never.

    With --at the answer is that of a time, as far as the log shows: what it does not show is empty, and a
    line says why, and from when on it would be known.
    `clock` says whose time that is: of brokers, of files, or what Kafka's producers claim.

    Several PATHs, a pattern in quotes or @inventory.toml: the queues of all stores, with the name of theirs,
    and the sum of each topic, in which copies of a Kafka partition count once, by the one that ends last.
    Directories of one Kafka broker are one store.

    \b
    Examples:
      rmqctl topics /data/rocketmq/store --by-topic
      rmqctl topics '/mnt/broker-*/store' --by-topic
      rmqctl topics /data/rocketmq/store --disk --by-topic
      rmqctl topics /data/rocketmq/store --at '2026-11-20 14:05'
    """
    from rmqctl.questions import Topics
    from rmqctl.store import Store

    if disk and as_found:
        refuse("--as-found", "changes nothing with --disk, which takes the files as they lie.")
    if disk and at is not None:
        refuse("--at", "means nothing with --disk, which shows the files that are there.")
    found = store.open_each()
    if disk and not isinstance(found, Store):
        refuse("--disk", "looks at one store; give its PATH alone.")
    show(out, found.ask(Topics(topic, by_topic, as_found, disk, at=at)))
