"""`rmqctl lag`: what consumer groups have not read yet."""

from __future__ import annotations

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import (
    StoreOptions,
    as_found_option,
    as_release_option,
    at_option,
    group_option,
    output_option,
    store_options_with_paths,
    topic_option,
)
from rmqctl.release import Release


@click.command("lag", cls=Command, usual="group topic as-release at columns sort limit output")
@store_options_with_paths
@group_option("Only this consumer group, or those that 'order*' matches; repeatable.")
@topic_option("Only this topic, or those that 'Orders*' matches; repeatable.")
@as_release_option
@as_found_option
@at_option
@output_option(tables=True)
def command(
    store: StoreOptions,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    as_release: Release | None,
    as_found: bool,
    at: int | None,
    out: Output,
) -> None:
    """List consumer groups with their offset in each queue, and what they have not consumed yet.

    Offsets come from consumerOffset.json (or its .bak, lmqConsumerOffset.json, the RocksDB databases),
    ends of queues from what a broker has once it has started on the store, as with `topics`. The lag is
    given in messages, in bytes, and in time up to the last message of the store. Retry and dead-letter
    topics of a group are listed with it, without a lag where it stored no offset for them, as for dead
    letters. Exits 1 when there is an anomaly (beyond-max, before-min, unknown-topic, unknown-queue), or
    nothing matches.

    Of a Kafka log directory the offsets come from __consumer_offsets and __share_group_state. One that an
    open transaction holds is shown as open-transaction; beyond-end, before-start and unknown-topic exit 1.

    With --at the answer is that of a time, as far as the log shows: what it does not show is empty, and a
    line says why, and from when on it would be known.
    Positions of RocketMQ's groups are in files that are written over: those of a time are unknown.

    Several PATHs, a pattern in quotes or @inventory.toml: a topic's queues lie on many brokers, and the sum of each
    cluster, group and topic over all of them follows. Brokers of one Kafka cluster answer as one: committed offsets are
    those of the coordinator, ends of partitions those of the replica that `elect` would have lead.

    \b
    Examples:
      rmqctl lag /data/rocketmq/store
      rmqctl lag /data/rocketmq/store --group orders -o jsonl
      rmqctl lag /var/lib/kafka --group orders
      rmqctl lag /var/lib/kafka --group orders --at -15m
      rmqctl lag '/mnt/broker-*/store' --group orders
    """
    from rmqctl.questions import Lag

    show(out, store.ask(Lag(group, topic, as_release, as_found, at=at)))
