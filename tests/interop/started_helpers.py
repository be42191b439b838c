"""A store that a broker of another release has taken over, and the replayed start of that release."""

from __future__ import annotations

from typing import Any

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store


def hold(name: str, release: str, answer: dict[str, Any]) -> None:
    """Hold the replay of a start on a golden store against what the broker had once it had started."""
    store = open_store(LocalTree(str(golden.pristine(name))), settings=golden.broker_conf(name))
    found = recover(store, Release.parse(release))
    assert found.starts == answer["starts"]
    replayed = {f"{topic}/{queue}": [low, high] for topic, queue, low, high in found.ranges()}
    if found.end == answer["end"]:
        assert replayed == answer["queues"]
    else:  # it had delivered delayed messages before it was asked
        assert found.end is not None
        assert found.end < answer["end"]
        assert all(answer["queues"][queue][1] >= high for queue, (_, high) in replayed.items())
    assert not set(found.unknown_topics) & set(answer["topics"])
    if store.tree.entries("config", sizes=False):
        served = {queue.rpartition("/")[0] for queue in replayed} - set(answer["topics"])
        assert {topic for topic in served if topic.isalnum()} == set(found.unknown_topics) & served
