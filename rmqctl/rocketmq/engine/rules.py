"""The dispatch rules that follow from an engine's settings."""

from __future__ import annotations

from dataclasses import replace

from formats.rocketmq.tags_code import parse_delay_levels
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.topic_table import TopicTable


def dispatch_rules(config: StoreConfig, topics: TopicTable, shown: DispatchRules | None) -> DispatchRules:
    """Rules for a store that is written as ``config`` says.

    Args:
        shown: what the store itself shows, where there is one: its batch topics stay so.
    """
    batch = frozenset(t.encode("utf-8", "surrogateescape") for t in topics.topics if topics.is_batch(t))
    if shown is not None:
        batch |= shown.batch_topics or frozenset()
    return replace(
        DispatchRules(config.release),
        delays=parse_delay_levels(config.delay_levels),
        multi_dispatch=config.multi_dispatch,
        lmq=config.multi_dispatch,
        extension=config.queue_ext,
        batch_topics=batch,
    )
