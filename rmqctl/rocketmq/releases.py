"""Which releases could have written a store: evidence from its files, each with what it proves (spec 15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.message import Magic, decode_record
from formats.rocketmq.properties import is_closed, split_properties
from rmqctl.files.tree import read_all
from rmqctl.release import Release
from rmqctl.rocketmq.scan import Extent, scan
from rmqctl.rocketmq.store import RocketMQStore

OLDEST, NEWEST = Release(4, 4, 0), Release(5, 5, 0)
_SAMPLE = 64
_PATHS = (
    ("abort.bak", Release(5, 0, 0)),
    ("timerwheel", Release(5, 0, 0)),
    ("timerlog", Release(5, 0, 0)),
    ("config/timercheck", Release(5, 0, 0)),
    ("config/topicQueueMapping.json", Release(5, 0, 0)),
    ("compaction", Release(5, 1, 0)),
    ("config/tieredStoreMetadata.json", Release(5, 1, 0)),
    ("config/transactionMetrics", Release(5, 2, 0)),
    ("consumequeue/CURRENT", Release(5, 2, 0)),
    ("kvStore", Release(5, 3, 2)),
    ("config/rdb", Release(5, 3, 2)),
    ("rocksdbstore", Release(5, 4, 0)),
)
_CHECKPOINT_FIELDS = ((24, Release(5, 0, 0)), (32, Release(5, 1, 1)), (40, Release(5, 5, 0)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact and the releases it leaves.

    Attributes:
        lowest, highest: first and last release that fits, None where it does not limit.
    """

    fact: str
    lowest: Release | None = None
    highest: Release | None = None


@dataclass(frozen=True, slots=True)
class ReleaseRange:
    """The releases that fit all evidence."""

    lowest: Release
    highest: Release
    evidence: tuple[Evidence, ...]

    @property
    def is_5(self) -> bool:
        """Whether the rules of 5.x apply; a store that could be either is read by its later release."""
        return self.highest.major >= 5

    def row(self) -> list[str]:
        """Lowest and highest, as the contract shows them."""
        return [str(self.lowest), str(self.highest)]


def release_range(store: RocketMQStore) -> ReleaseRange:
    """Weigh the evidence; contradicting evidence (a store moved between releases) keeps the newest lower bound.

    Raises:
        OSError: a file cannot be read.
    """
    evidence = tuple(e for look in _LOOKS for e in look(store))
    lowest = max((e.lowest for e in evidence if e.lowest), default=OLDEST)
    highest = min((e.highest for e in evidence if e.highest and e.highest >= lowest), default=NEWEST)
    return ReleaseRange(lowest, highest, evidence)


def _paths(store: RocketMQStore) -> Iterator[Evidence]:
    for path, since in _PATHS:
        if store.tree.stat(path) is not None:
            yield Evidence(f"{path} is there", lowest=since)


def _absent(store: RocketMQStore) -> Iterator[Evidence]:
    """Every broker of 5.4.0 and later makes rocksdbstore/ (spec 1)."""
    if store.tree.stat("rocksdbstore") is None:
        yield Evidence("rocksdbstore is not there", highest=Release(5, 3, 4))


def _abort(store: RocketMQStore) -> Iterator[Evidence]:
    data = read_all(store.tree, "abort")
    if data is not None and data.strip().isdigit():
        yield Evidence("abort holds a process id", lowest=Release(5, 0, 0))


def _checkpoint(store: RocketMQStore) -> Iterator[Evidence]:
    data = read_all(store.tree, "checkpoint") or b""
    for at, since in _CHECKPOINT_FIELDS:
        if any(data[at : at + 8]):
            yield Evidence(f"the checkpoint has a value at byte {at}", lowest=since)


def _config(store: RocketMQStore) -> Iterator[Evidence]:
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        try:
            document = parse_config(read_all(store.tree, f"config/{name}") or b"")
        except DecodeError:
            continue
        version = document.get("dataVersion") if isinstance(document, dict) else None
        if isinstance(version, dict) and "stateVersion" in version:
            yield Evidence(f"config/{name} has a stateVersion", lowest=Release(5, 0, 0))
        elif isinstance(version, dict):
            yield Evidence(f"config/{name} has no stateVersion", highest=Release(4, 9, 8))


def _records(store: RocketMQStore) -> Iterator[Evidence]:
    """The last file with data: form of the properties text, layout, compression bits."""
    texts, v2, codec = [], False, False
    for fields in _last_records(store):
        texts.append(fields["properties"])
        v2 |= fields["magic"] == int(Magic.MESSAGE_V2)
        codec |= bool(fields["sys_flag"] & 1 and fields["sys_flag"] & 0x700)
    texts = [t for t in texts if t]
    if v2:
        yield Evidence("the log has records with a long topic (V2)", lowest=Release(5, 1, 0))
    if codec:
        yield Evidence("bodies name their compression type", lowest=Release(4, 9, 4))
    if any(name == b"__CRC32#" for t in texts for name, _ in split_properties(t)):
        yield Evidence("records carry a CRC property", lowest=Release(5, 2, 0))
    elif texts and not is_closed(texts[-1]):
        yield Evidence("properties do not end with 0x02", lowest=Release(4, 9, 1), highest=Release(5, 1, 4))
    elif texts and store.tree.stat("abort.bak") is not None:
        yield Evidence("properties end with 0x02 in a 5.x store", lowest=Release(5, 2, 0))
    elif texts:
        yield Evidence("properties end with 0x02 and nothing of 5.x is there", highest=Release(4, 9, 0))


def _last_records(store: RocketMQStore) -> Iterator[dict[str, Any]]:
    """Up to 64 records from the start of the last file that has some."""
    for file in reversed(store.log_files):
        source = file.open()
        try:
            for block in scan(source, Extent(file.name, file.base, stop=1 << 20)):
                for i in range(min(len(block), _SAMPLE)):
                    yield decode_record(block.raw(i))[0]
                if len(block):
                    return
        finally:
            source.close()


_LOOKS: tuple[Callable[[RocketMQStore], Iterator[Evidence]], ...] = (
    _paths,
    _absent,
    _abort,
    _checkpoint,
    _config,
    _records,
)
