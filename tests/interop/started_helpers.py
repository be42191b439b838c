"""A store that a broker of another release has taken over, and the replayed start of that release."""

from __future__ import annotations

import re
from typing import Any

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.state.settings import as_configured
from rmqctl.rocketmq.store.locate import open_store

PLAIN = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum",
    "mappedFileSizeTimerLog", "mapperFileSizeBatchConsumeQueue", "messageDelayLevel")  # fmt: skip
"""Settings that stay where all features are off: how long files are, and the levels of delay."""


def broker_settings(store: str, kind: str, release: str) -> dict[str, str]:
    """Settings of the broker: ``own``, those that the store was written with, or ``plain``, without its features."""
    found = golden.broker_conf(store)
    if kind == "plain":
        found = {name: value for name, value in found.items() if name in PLAIN}
    if release.startswith("3."):  # that is how it spells them
        found |= {name.replace("mappedF", "mapedF"): value for name, value in found.items() if "mappedF" in name}
    found |= {name.replace("mapedF", "mappedF"): value for name, value in found.items() if name.startswith("mapedF")}
    return found


def hold(name: str, release: str, answer: dict[str, Any], kind: str = "own") -> None:
    """Hold the replay of a start on a golden store against what the broker had once it had started.

    Args:
        kind: of its settings; see `broker_settings`.
    """
    store = open_store(LocalTree(str(golden.pristine(name))), settings=golden.broker_conf(name))
    if kind == "plain":
        store, _ = as_configured(store, Release.parse(release), broker_settings(name, kind, release))
    found = recover(store, Release.parse(release))
    assert found.starts == answer["starts"]
    if "log.directories" in {part.id for part in found.unread}:  # it "starts empty"
        assert answer["end"] == 0
        return
    known, asked = set(answer["topics"]), set(answer["queues"])
    replayed = {
        f"{topic}/{queue}": [low, high]
        for topic, queue, low, high in found.ranges()
        if topic in known or f"{topic}/{queue}" in asked or not store.in_database(topic)  # else nobody could ask of it
    }
    if found.end == answer["end"]:
        assert replayed == answer["queues"]
    else:  # it had delivered delayed messages before it was asked
        assert found.end is not None
        assert found.end < answer["end"]
        assert all(answer["queues"][queue][1] >= high for queue, (_, high) in replayed.items())
    assert not set(found.unknown_topics) & set(answer["topics"])
    if store.tree.entries("config", sizes=False):
        served = {queue.rpartition("/")[0] for queue in replayed} - set(answer["topics"])
        unknown = set(found.unknown_topics) & served
        assert {topic for topic in served if topic.isalnum()} == {topic for topic in unknown if topic.isalnum()}
        made = re.compile("%RETRY%|%DLQ%|TRANS_CHECK_MAX_TIME_TOPIC")  # by brokers, for one of the others
        assert all(topic.isalnum() or made.match(topic) for topic in unknown)
