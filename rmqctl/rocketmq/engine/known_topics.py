"""The topics half of an engine: which a broker will know, made by name or on their first message."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.limits import check_topic
from rmqctl.rocketmq.engine.reput import Reput
from rmqctl.rocketmq.engine.routing import system_queues
from rmqctl.rocketmq.engine.rules import dispatch_rules
from rmqctl.rocketmq.engine.topic_table import BATCH_ATTRIBUTES, TopicTable


class KnownTopics:
    """Keeps topics.json and the rules that depend on it; an engine has the attributes."""

    root: Path
    config: StoreConfig
    disk: Disk
    topics: TopicTable
    rules: DispatchRules
    reput: Reput
    topics_lock: threading.Lock
    reput_lock: threading.Lock

    def know(self, topic: str, queue_id: int) -> None:
        """Make the topic known before its first message, as a broker that creates topics by itself."""
        if queue_id >= (self.topics.queues(topic) or 0) or self.topics.changed:
            with self.topics_lock:
                usual = system_queues(topic, self.config) or self.config.default_queues
                self.topics.ensure(topic, max(usual, queue_id + 1))
                self.save_topics()

    def save_topics(self) -> None:
        """Write topics.json if topics were added.

        Raises:
            IOFailure: it cannot be written.
        """
        self.topics.save(self.root, self.disk, self.config.clock.now())

    def make_topic(self, topic: str, queues: int, *, batch: bool = False) -> None:
        """Make a topic known, with so many queues at least.

        Args:
            batch: with batch queues (queue.type=BatchCQ); 5.0.0 and later.

        Raises:
            MessageRefused: no name for a topic.
            Refused: the release has no batch queues.
            IOFailure: topics.json cannot be written.
        """
        self.make_topics([topic], queues, batch=batch)

    def make_topics(self, topics: Iterable[str], queues: int, *, batch: bool = False) -> None:
        """Make several topics known together, as :meth:`make_topic`."""
        names = list(topics)
        for topic in names:
            check_topic(topic, self.config.release)
        if batch and not self.config.is_5:
            raise Refused(f"brokers of {self.config.release} have no batch queues; use --as-release 5.0.0 or later")
        with self.topics_lock:
            for topic in names:
                self.topics.ensure(topic, queues, BATCH_ATTRIBUTES if batch else None)
            self.rules = dispatch_rules(self.config, self.topics, self.rules)
            with self.reput_lock:
                self.reput.use_rules(self.rules)
            self.save_topics()
