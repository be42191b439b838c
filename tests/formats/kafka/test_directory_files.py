"""meta.properties, partition.metadata, quorum-state and the clean shutdown marker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.java_properties import parse_properties
from formats.kafka import directory_files as files

ID = "8MMb0XfkRj6EtuEGJYuuJA"


def test_meta_properties_of_kraft() -> None:
    found = files.parse_meta_properties(
        b"#\n#Sat Nov 21 01:35:28 UTC 2026\nnode.id=1\ndirectory.id=%s\nversion=1\ncluster.id=c1\n" % ID.encode()
    )
    assert (found.version, found.node_id, found.cluster_id, found.directory_id) == (1, 1, "c1", ID)
    assert found.problems == ()
    assert files.parse_meta_properties(files.format_meta_properties(1, 1, "c1", ID)) == found


def test_meta_properties_of_zookeeper() -> None:
    found = files.parse_meta_properties(b"broker.id=3\r\nversion=0\r\ncluster.id=c\r\n")
    assert (found.version, found.node_id, found.cluster_id, found.directory_id) == (0, 3, "c", None)
    assert files.parse_meta_properties(files.format_meta_properties(0, 3, "c")) == found
    assert files.parse_meta_properties(b"broker.id=3\n").version == 0


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (b"version=2\n", ["version 2 is not known, only 0 and 1"]),
        (b"version=x\n", ["version 'x' is not a number"]),
        (b"version=1\n", ["node.id is missing", "cluster.id is missing"]),
        (b"version=1\ncluster.id=c\nnode.id=one\n", ["node.id 'one' is not a number"]),
        (b"version=0\ndirectory.id=abc\n", ["directory.id 'abc' is no id of 22 characters"]),
        (b"", []),
    ],
)
def test_meta_properties_that_a_broker_refuses(data: bytes, messages: list[str]) -> None:
    assert [problem.message for problem in files.parse_meta_properties(data).problems] == messages


def test_partition_metadata() -> None:
    data = files.format_partition_metadata(ID)
    assert data == b"version: 0\ntopic_id: 8MMb0XfkRj6EtuEGJYuuJA"
    assert files.parse_partition_metadata(data) == files.TopicIdFile(0, ID)
    assert files.parse_partition_metadata(data.replace(b"\n", b"\r\n")).topic_id == ID
    parsed = files.PartitionMetadata.parse(data)
    assert (parsed.version, parsed.topic_id) == (0, ID.encode())


@pytest.mark.parametrize(
    ("data", "topic_id", "messages"),
    [
        (b"", None, ["line 1 is not 'version: 0'", "line 2 is not 'topic_id: ' and an id of 22 characters"]),
        (b"version: -1\ntopic_id: " + ID.encode(), ID, ["version -1 is below 0"]),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", None, ["the topic id is zero"]),
        (b"version: 0\ntopic_id: x", None, ["line 2 is not 'topic_id: ' and an id of 22 characters"]),
        (b"version:0\ntopic_id: " + ID.encode(), ID, ["line 1 is not 'version: 0'"]),
    ],
)
def test_partition_metadata_that_a_broker_refuses(data: bytes, topic_id: str | None, messages: list[str]) -> None:
    found = files.parse_partition_metadata(data)
    assert (found.topic_id, [problem.message for problem in found.problems]) == (topic_id, messages)


def test_quorum_state() -> None:
    data = b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    found = files.parse_quorum_state(data)
    assert (found.values["leaderEpoch"], found.values["data_version"], found.problems) == (3, 1, ())
    assert [p.message for p in files.parse_quorum_state(b'{"data_version":2}').problems] == [
        "data_version 2 is not known, only 0 and 1"
    ]
    assert [p.message for p in files.parse_quorum_state(b"[]\n").problems] == ["the first line is not a JSON object"]
    assert len(files.parse_quorum_state(b'{"data_version":0}').problems) == 3


def test_the_clean_shutdown_marker() -> None:
    assert files.parse_clean_shutdown(b"") == files.JsonFile()
    assert files.parse_clean_shutdown(b'{"version":0,"brokerEpoch":187}').values["brokerEpoch"] == 187
    assert files.parse_clean_shutdown(b"\xff").problems[0].message == "the body is not a JSON object"


@given(st.binary(max_size=80))
def test_no_bytes_raise(data: bytes) -> None:
    files.parse_meta_properties(data)
    files.parse_partition_metadata(data)
    files.parse_quorum_state(data)
    files.parse_clean_shutdown(data)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1\n# b=2\n! c=3\n\n  d : 4\ne 5\nf", {"a": "1", "d": "4", "e": "5", "f": ""}),
        ("a=one \\\n   two\nb=x", {"a": "one two", "b": "x"}),
        ("a=1\\\n#no comment", {"a": "1#no comment"}),
        ("a\\=b=c\\:d\\\\", {"a=b": "c:d\\"}),
        ("a=\\u00e9\\ud83d\\ude00\\t|\\uzz", {"a": "é😀\t|uzz"}),
        ("a=1\ra=2 \r\n", {"a": "2 "}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_java_properties(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values
