"""`rmqctl lag`: how far consumer groups are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands._app import Output, message
from commands._options import StoreOptions, as_release_option, output_option, store_options
from rmqctl.release import Release

if TYPE_CHECKING:
    from rmqctl.rocketmq.query.started import StartedStore

_COLUMNS = (
    "group",
    "topic",
    "queue_id",
    "consumer_offset",
    "max_offset",
    "lag",
    "lag_bytes",
    "lag_ms",
    "last_consumed_timestamp",
    "anomaly",
)


@click.command("lag")
@store_options
@click.option("--group", help="Only this consumer group.")
@click.option("--topic", help="Only this topic.")
@as_release_option
@output_option()
def command(store: StoreOptions, group: str | None, topic: str | None, as_release: Release | None, out: Output) -> None:
    """List consumer groups with their offset in each queue, and what they have not consumed yet.

    Offsets come from consumerOffset.json (or its .bak, lmqConsumerOffset.json, the RocksDB databases),
    ends of queues from the queues and the log. The lag is told in messages, in bytes, and in time up
    to the last message of the store. Retry and dead-letter topics of a group are listed with it, without
    a lag where it stored no offset for them, as for dead letters. Exits 1 when there is an anomaly
    (beyond-max, before-min, unknown-topic, unknown-queue), or nothing matches.

    \b
    Examples:
      rmqctl lag /data/rocketmq/store
      rmqctl lag /data/rocketmq/store --group orders -o jsonl
    """
    from rmqctl.open import open_store_at
    from rmqctl.rocketmq.lag import lag_rows
    from rmqctl.rocketmq.query.started import StartedStore
    from rmqctl.rocketmq.releases import release_range

    found = open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    if found.is_running:
        message("a broker holds the lock of this store: what is read may be changing")
    release = as_release or release_range(found, quick=True).highest
    with StartedStore(found, release, exact=as_release is not None) as started:
        rows = list(lag_rows(started, group, topic))
        shown = out.show([row.row() for row in rows], columns=_COLUMNS)
        if not shown:
            _say_nothing(started, group, topic)
    if not shown or any(row.anomaly for row in rows):
        raise SystemExit(1)


def _say_nothing(started: StartedStore, group: str | None, topic: str | None) -> None:
    from rmqctl.rocketmq.lag import progress_of
    from rmqctl.rocketmq.query.topic_names import nearest

    stored = progress_of(started)
    for word, name, names in (
        ("group", group, stored.groups),
        ("topic", topic, {t for _, t in stored.offsets}),
    ):
        if name is not None and name not in names:
            hint = nearest(name, sorted(names))
            end = f"; did you mean {' or '.join(hint)}?" if hint else "; type: rmqctl lag without it for all there are"
            message(f"no consumer offset is stored for {word} {name}{end}")
            return
    if not stored.offsets:
        message("no consumer offset is stored: config/consumerOffset.json is missing, empty, or beyond reading")
    elif group is not None and topic is not None:
        message(f"group {group} has no offset in topic {topic}")
