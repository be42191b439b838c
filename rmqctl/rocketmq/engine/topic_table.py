"""topics.json and its like, as the release writes them, so that a broker knows the topics (spec 9). A new store gets a
consumerOffset.json without positions beside it, as a broker writes it within seconds: a missing one was lost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.errors import IOFailure
from rmqctl.files.writing import Disk
from rmqctl.release import Release
from rmqctl.rocketmq.state.config import has_batch_queues, read_config, table
from rmqctl.rocketmq.store.files import StoreFiles

_IN_PLACE = Release(5, 1, 0)
READ_WRITE = 6
BATCH_ATTRIBUTES = {"queue.type": "BatchCQ"}
TOPICS, OFFSETS = "topics.json", "consumerOffset.json"
_TABLE = "topicConfigTable"


class KnownTopic(NamedTuple):
    """What a put asks of a topic.

    Attributes:
        queues: write queues, None for a topic that is not known.
        is_batch: its queues are batch queues (attribute queue.type).
    """

    queues: int | None
    is_batch: bool


class TopicTable:
    """The topics a broker will know.

    Args:
        document: topics.json as it is; empty for none.
        is_new: the store is made now.
    """

    def __init__(self, release: Release, document: dict[str, Any], *, is_new: bool) -> None:
        self._release, self._document, self._is_new = release, document, is_new
        self.changed, self._kept = False, dict[str, KnownTopic]()

    @classmethod
    def of(cls, store: StoreFiles | None, release: Release) -> TopicTable:
        """From a store's topics.json."""
        document = read_config(store, TOPICS).document if store is not None else None
        return cls(release, document if isinstance(document, dict) else {}, is_new=store is None)

    @property
    def topics(self) -> dict[str, Any]:
        """Each topic's settings by name."""
        return table(self._document, _TABLE)

    def queues(self, topic: str) -> int | None:
        """Write queues of a topic, None if it is not known."""
        return self.known(topic).queues

    def is_batch(self, topic: str) -> bool:
        """Whether the topic's queues are batch queues."""
        return self.known(topic).is_batch

    def known(self, topic: str) -> KnownTopic:
        """Queues and kind of a topic, kept because every put asks."""
        kept = self._kept.get(topic)
        if kept is None:
            found = self.topics.get(topic)
            number = found.get("writeQueueNums") if isinstance(found, dict) else None
            kept = self._kept[topic] = KnownTopic(number if isinstance(number, int) else None, has_batch_queues(found))
        return kept

    def ensure(self, topic: str, queues: int, attributes: dict[str, str] | None = None) -> None:
        """Make a topic known, with at least so many queues."""
        known = self.topics.get(topic)
        if isinstance(known, dict):
            if (self.queues(topic) or 0) < queues:
                known["readQueueNums"] = known["writeQueueNums"] = queues
                self.changed = True
                self._kept.clear()
            return
        settings: dict[str, Any] = {"attributes": attributes or {}} if self._is_5 else {}
        settings |= {
            "order": False, "perm": READ_WRITE, "readQueueNums": queues, "topicFilterType": "SINGLE_TAG",
            "topicName": topic, "topicSysFlag": 0, "writeQueueNums": queues,
        }  # fmt: skip
        self._document.setdefault(_TABLE, {})[topic] = settings
        self.changed = True
        self._kept.clear()

    @property
    def _is_5(self) -> bool:
        return self._release >= Release(5, 0, 0)

    def save(self, root: Path, disk: Disk, now_ms: int) -> None:
        """Write topics.json if anything changed."""
        if self.changed:
            if self._is_new:
                none: dict[str, Any] = {"offsetTable": {}}
                none = versioned(none, self._release, now_ms) if self._is_5 else none
                _put(root / "config" / OFFSETS, pretty(none).encode(), disk)
                self._is_new = False
            save_config(root, TOPICS, versioned(self._document, self._release, now_ms), disk, self._release)
            self.changed = False


def versioned(document: dict[str, Any], release: Release, now_ms: int) -> dict[str, Any]:
    """Return the document with its dataVersion counted up."""
    version = table(document, "dataVersion")
    counter = version.get("counter")
    found: dict[str, Any] = {"counter": (counter if isinstance(counter, int) else 0) + 1}
    if release >= Release(5, 0, 0):
        found["stateVersion"] = version.get("stateVersion", 0)
    found["timestamp"] = now_ms
    document["dataVersion"] = found
    return dict(sorted(document.items()))


def save_config(root: Path, name: str, document: dict[str, Any], disk: Disk, release: Release) -> None:
    """Write a file of config/ in the steps of the release: over a copy, or in place after one (spec 9.1).

    Keys that are whole numbers are written quoted; brokers of all releases read them.
    """
    path = root / "config" / name
    data = pretty(document).encode()
    if path.exists() and path.stat().st_size:  # an empty one is what a failed write left: no copy of it helps
        _copy(path, path.with_name(name + ".bak"), disk)
    if release >= _IN_PLACE:
        disk.write_file(path, data)
        return
    temporary = path.with_name(name + ".tmp")
    disk.write_file(temporary, data)
    disk.replace(temporary, path)


def pretty(document: dict[str, Any]) -> str:
    """As fastjson writes it with pretty format: tabs, no space around colons."""
    return json.dumps(document, indent="\t", separators=(",", ":"), ensure_ascii=False)


def _copy(source: Path, target: Path, disk: Disk) -> None:
    """Copy a file whole or not at all: a copy that is empty would take the place of the last good one."""
    try:
        data = source.read_bytes()
    except OSError as error:
        raise IOFailure(f"cannot copy {source} to {target}", error) from error
    _put(target, data, disk)


def _put(target: Path, data: bytes, disk: Disk) -> None:
    """Write a file whole or not at all."""
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        disk.write_file(temporary, data)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    disk.replace(temporary, target)
