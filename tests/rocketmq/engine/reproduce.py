"""Golden stores made again from their truth files: the same messages through the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fixtures import golden
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import Host, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.engine.record import client_text, java_map_order, property_text
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.producer.drafts import batch_item
from rmqctl.rocketmq.state.config import read_config, table
from rmqctl.rocketmq.store.locate import open_store_at

_SET_BY_CLIENT_FIRST, _SET_BY_CLIENT_LAST = ("TAGS", "KEYS", "WAIT"), ("UNIQ_KEY",)
_ADDED = ("MSG_REGION", "TRACE_ON", "CLUSTER", "REAL_TOPIC", "REAL_QID", "INNER_BASE", "INNER_NUM", "TIMER_DEQUEUE_MS")
_OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
_SIZES = {
    "commit_log_file_size": ("commitLogFileSize", "mappedFileSizeCommitLog"),
    "queue_file_size": ("consumeQueueFileSize", "mappedFileSizeConsumeQueue"),
    "index_slots": ("indexHashSlots", "maxHashSlotNum"),
    "index_entries": ("indexMaxEntries", "maxIndexNum"),
    "batch_queue_file_size": ("batchConsumeQueueFileSize", "mapperFileSizeBatchConsumeQueue"),
}


def config_of(name: str, **more: Any) -> StoreConfig:
    """The settings a golden store was written with."""
    manifest, settings = golden.manifest(name), golden.broker_conf(name)
    sizes = {**manifest.get("geometry", {}), **{k: int(v) for k, v in settings.items() if v.isdigit()}}
    given = {
        ours: next(sizes[k] for k in theirs if k in sizes)
        for ours, theirs in _SIZES.items()
        if set(theirs) & set(sizes)
    }
    return StoreConfig(
        release=Release.parse(manifest["release"]),
        delay_levels=settings.get("messageDelayLevel", "1s"),
        multi_dispatch=settings.get("enableMultiDispatch") == "true",
        property_crc="propcrc" in name,
        commit_log_paths=("commitlog-a", "commitlog-b", "commitlog-c") if "multipath" in name else (),
        services=False,
        **given,
        **more,
    )


def reproduce(name: str, into: Path, config: StoreConfig | None = None) -> tuple[StoreConfig, int]:
    """Write the messages of a golden store again; returns the settings and how many texts were not predicted."""
    config = config or config_of(name)
    odd = 0
    with StoreEngine.open(into, config) as engine:
        for topic, queues, is_batch in _topics(golden.pristine(name)):
            engine.make_topic(topic, queues, batch=is_batch)
        for message, stored in messages(name, config):
            result = engine.put(message)
            assert result.physical_offset == stored["physical_offset"]
            assert result.queue_offset == stored["queue_offset"]
            odd += "odd" in stored
    return config, odd


def messages(name: str, config: StoreConfig) -> Iterator[tuple[Message, dict[str, Any]]]:
    """Messages from the truth, bodies from the store, each with its record; a text that cannot be predicted is given."""
    lines = (line for line in golden.truth(name) if line["kind"] == "msg")
    for line, record in zip(lines, records(golden.pristine(name)), strict=True):
        message = message_of(line, record, config)
        if message.property_bytes is None and property_text(message.properties, config.release) != _text(
            record, config
        ):
            message.property_bytes, record["odd"] = _text(record, config), True
        yield message, record


def records(root: Path) -> Iterator[dict[str, Any]]:
    """The records of a store in log order."""
    for found in CommitLog(open_store_at(str(root)).log_files).walk():
        for row in range(len(found.block)):
            yield found.block.record(row)


def message_of(line: dict[str, Any], record: dict[str, Any], config: StoreConfig) -> Message:
    properties = {n: v for n, v in line["properties"].items() if n != "__CRC32#"}
    message = Message(
        line["topic"], record["body"], line["queueId"], ordered(properties, config.release), line["flag"], record["sys_flag"],
        line["bornTimestamp"], _host(line["bornHost"]), line["storeTimestamp"], _host(line["storeHost"]),
        line["reconsumeTimes"], line["preparedTransactionOffset"], is_stored=True,
    )  # fmt: skip
    if message.topic == _OP_TOPIC:  # the broker makes these itself, in a map of its own
        message.property_bytes = client_text(message.properties, config.release)
    if message.properties.get("TAGS") == "Batch":
        own = {n: properties[n] for n in ("TAGS", "KEYS", "WAIT", "UNIQ_KEY")}
        own["UNIQ_KEY"] = record["properties"].partition(b"UNIQ_KEY\x01")[2].partition(b"\x02")[0].decode()
        message.property_bytes = batch_item(own, properties["UNIQ_KEY"], config_with_cluster(config, properties))
    return message


def config_with_cluster(config: StoreConfig, properties: dict[str, str]) -> StoreConfig:
    return replace(config, cluster=properties.get("CLUSTER", config.cluster))


def ordered(properties: dict[str, str], release: Release) -> dict[str, str]:
    """As client and broker put them (the truth has them sorted by name); 4.9.x takes WAIT out and puts it back."""
    first = [n for n in _SET_BY_CLIENT_FIRST if n in properties]
    last = [n for n in _SET_BY_CLIENT_LAST if n in properties]
    added = [n for n in _ADDED if n in properties]
    if (4, 9, 1) <= release < (5, 0, 0) and properties.get("WAIT") == "true":
        first, added = [n for n in first if n != "WAIT"], [*added, "WAIT"]
    own = sorted((n for n in properties if n not in first + last + added), key=lambda n: (len(n), n))
    return {n: properties[n] for n in java_map_order(first + own + last) + added}


def _text(record: dict[str, Any], config: StoreConfig) -> bytes:
    text: bytes = record["properties"]
    return text[:-20] if config.property_crc else text


def _topics(root: Path) -> Iterator[tuple[str, int, bool]]:
    document = read_config(open_store_at(str(root)), "topics.json").document
    for name, topic in table(document, "topicConfigTable").items():
        yield name, topic["writeQueueNums"], (topic.get("attributes") or {}).get("queue.type") == "BatchCQ"


def _host(text: str) -> Host:
    return Host.parse(text.rpartition("/")[2])
