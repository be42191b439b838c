"""`rmqctl topics`: topics and queues with the broker's own offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands._app import Output, message
from commands._options import StoreOptions, output_option, store_options
from commands._unreadable import name_unreadable

if TYPE_CHECKING:
    from rmqctl.rocketmq.store import RocketMQStore

_COLUMNS = ("topic", "queue_id", "min_offset", "max_offset", "messages", "bytes", "last_store_timestamp")
"""What fits a terminal; the other kinds of output have the first store time too."""


@click.command("topics")
@store_options
@click.option("--by-topic", is_flag=True, help="One row a topic, its queues added up.")
@click.option("--topic", help="Only this topic.")
@output_option()
def command(store: StoreOptions, by_topic: bool, topic: str | None, out: Output) -> None:
    """List queues with their smallest and next offset, messages, bytes, first and last store time.

    Offsets are those a broker answers after it has started on the store: messages that the log holds
    and no queue does yet are counted in. Exits 1 when nothing matches or a file
    cannot be read.

    \b
    Example:
      rmqctl topics /data/rocketmq/store --by-topic
    """
    from rmqctl.open import open_store_at
    from rmqctl.rocketmq.topics import by_topic as add_up
    from rmqctl.rocketmq.topics import queue_rows
    from rmqctl.rocketmq.unreadable import forgiving

    found = forgiving(
        open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    )
    if found.is_running:
        message("a broker holds the lock of this store: what is read may be changing")
    rows = [r for r in queue_rows(found) if topic is None or r.topic == topic]
    shown = out.show(add_up(rows) if by_topic else [r.row() for r in rows], columns=None if by_topic else _COLUMNS)
    name_unreadable(found)
    if not shown:
        _say_nothing(found, topic)
        raise SystemExit(1)


def _say_nothing(found: RocketMQStore, topic: str | None) -> None:
    from rmqctl.rocketmq.query.topic_names import nearest, topic_names

    names = topic_names(found)
    if topic is None:
        message("no queue is there, and the log holds no message")
    elif topic in names:
        message(f"topic {topic} has no queue and no message")
    else:
        hint = nearest(topic, names)
        message(f"the store knows no topic {topic}" + (f"; did you mean {' or '.join(hint)}?" if hint else ""))
