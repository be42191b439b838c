"""The metadata image of golden directories, and what becomes of records that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures import golden
from formats.kafka.messages import encode
from formats.kafka.metadata_messages import METADATA_RECORDS, frame
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectory, read_directory
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.state.metadata import MetadataImage, image_of_snapshot, metadata_image, snapshots
from rmqctl.kafka.state.metadata_rows import image_document, image_rows
from rmqctl.kafka.state.partition_state import PartitionLog
from tests.kafka.batches import batch, record

KRAFT = [name for name in golden.KAFKA_NAMES if not name.startswith("2.8.2")]


def _log(directory: LogDirectory) -> PartitionLog:
    partition = directory.metadata_log
    assert partition is not None
    return PartitionLog(directory, partition, Checkpoints(directory))


@pytest.fixture(params=KRAFT)
def kraft(request: pytest.FixtureRequest) -> tuple[str, PartitionLog]:
    return request.param, _log(read_directory(LocalTree(golden.pristine(request.param))))


def test_topics_and_their_settings_are_those_the_broker_told(kraft: tuple[str, PartitionLog]) -> None:
    name, log = kraft
    image = metadata_image(log)
    assert not image.problems
    found = {
        topic: {
            "topicId": topic_id,
            "partitions": len(image.partitions_of(topic)),
            "config": image.configs.get(("topic", topic), {}),
        }
        for topic, topic_id in image.topics.items()
    }
    assert found == golden.oracle(name)["topics"]


def test_snapshot_and_log_give_what_the_whole_log_gives(kraft: tuple[str, PartitionLog]) -> None:
    _, log = kraft
    last = snapshots(log.partition)[-1]
    at = last.base - 1
    from_snapshot = image_of_snapshot(last)
    whole = MetadataImage()
    from rmqctl.kafka.state import metadata

    metadata._Replay(whole, at).log(log)
    assert (from_snapshot.offset, from_snapshot.epoch) == (whole.offset, whole.epoch)
    ours, theirs = image_document(from_snapshot), image_document(whole)
    for part in ("topics", "partitions", "configs", "features", "next_producer_id", "acls", "voters"):
        assert ours[part] == theirs[part]


def test_an_image_at_an_offset(kraft: tuple[str, PartitionLog]) -> None:
    _, log = kraft
    counts = [len(metadata_image(log, at).topics) for at in range(0, 400, 20)]
    assert counts[0] == 0
    assert counts == sorted(counts)[: len(counts)] or max(counts) > counts[-1]  # a topic was deleted
    assert metadata_image(log, 30).offset == 30


def test_rows_and_document_hold_the_same(kraft: tuple[str, PartitionLog]) -> None:
    _, log = kraft
    image = metadata_image(log)
    document, rows = image_document(image), list(image_rows(image))
    assert rows[0]["kind"] == "metadata_image"
    for kind, part in (("topic", "topics"), ("partition", "partitions"), ("broker", "brokers"), ("config", "configs")):
        assert [{k: v for k, v in row.items() if k != "kind"} for row in rows if row["kind"] == kind] == document[part]
    partition = document["partitions"][0]
    assert (partition["topic"], partition["partition"], partition["replicas"]) == ("__consumer_offsets", 0, [1])


def _framed(key: int, version: int, values: dict[str, Any]) -> bytes:
    return frame(METADATA_RECORDS[key], version, encode(METADATA_RECORDS[key], version, values))


def _image(tmp_path: Any, *values: bytes) -> MetadataImage:
    root = tmp_path / "logs"
    folder = root / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(
        b"".join(batch(number, [record(0, None, value)]) for number, value in enumerate(values))
    )
    return metadata_image(_log(read_directory(LocalTree(root))))


TOPIC = _framed(2, 0, {"name": "t", "topicId": "AAAAAAAAAAAAAAAAAAAAAg"})
BEGIN, END, ABORT = _framed(23, 0, {"name": "x"}), _framed(24, 0, {}), _framed(25, 0, {})


def test_a_metadata_transaction_counts_at_its_end(tmp_path: Any) -> None:
    image = _image(tmp_path, BEGIN, TOPIC)
    assert (image.topics, len(image.in_transaction or ())) == ({}, 1)
    assert _image(tmp_path / "ended", BEGIN, TOPIC, END).topics == {"t": "AAAAAAAAAAAAAAAAAAAAAg"}
    assert _image(tmp_path / "aborted", BEGIN, TOPIC, ABORT).topics == {}


def test_what_does_not_fit_is_named_and_the_rest_applied(tmp_path: Any) -> None:
    unfence = _framed(8, 0, {"id": 7, "epoch": 1})
    image = _image(tmp_path, b"\x01\x63\x00", b"", unfence, TOPIC[:-3], TOPIC)
    assert [problem.offset for problem in image.problems] == [0, 1, 2, 3]
    assert image.problems[2].message == "broker 7 changes, but is not registered"
    assert (image.topics, image.offset) == ({"t": "AAAAAAAAAAAAAAAAAAAAAg"}, 4)


def test_partition_changes(tmp_path: Any) -> None:
    topic_id = "AAAAAAAAAAAAAAAAAAAAAg"
    partition = {
        "partitionId": 0, "topicId": topic_id, "replicas": [1, 2, 3], "isr": [1, 2, 3], "removingReplicas": [],
        "addingReplicas": [], "leader": 1, "leaderEpoch": 4, "partitionEpoch": 9, "directories": [],
    }  # fmt: skip
    place = {"partitionId": 0, "topicId": topic_id}
    image = _image(
        tmp_path,
        TOPIC,
        _framed(3, 2, partition),
        _framed(5, 2, {**place, "isr": [2, 3], "leader": 2}),
        _framed(5, 2, {**place, "isr": [2], "eligibleLeaderReplicas": [3]}),
        _framed(4, 0, {"resourceType": 2, "resourceName": "t", "name": "retention.ms", "value": "5"}),
    )
    found = image.partitions[topic_id, 0]
    assert (found["leader"], found["leaderEpoch"], found["partitionEpoch"]) == (2, 5, 11)
    assert (found["isr"], found["eligibleLeaderReplicas"], found["replicas"]) == ([2], [3], [1, 2, 3])
    removed = _image(tmp_path / "r", TOPIC, _framed(3, 2, partition), _framed(9, 0, {"topicId": topic_id}))
    assert (removed.topics, removed.partitions, removed.problems) == ({}, {}, [])
