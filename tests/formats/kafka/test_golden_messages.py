"""Records of internal topics as the official decoders print them, for every line of the recorded texts."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from fixtures import golden
from formats.kafka import internal_records as records
from formats.kafka.messages import encode
from formats.kafka.metadata_messages import frame

_LINE = re.compile(r"\| offset: (\d+) ")
_PARTS = re.compile(r"headerKeys: \[.*?\] (?:key: (\{.*?\}) )?payload: (.*)$")
_CONTROL = re.compile(r"(?:LeaderChange:|KRaftVersion|KRaftVoters|SnapshotHeader|SnapshotFooter) (\{.*)$")
_TOPIC = {
    "--cluster-metadata-decoder": records.CLUSTER_METADATA,
    "--offsets-decoder": records.CONSUMER_OFFSETS,
    "--transaction-log-decoder": records.TRANSACTION_STATE,
    "--share-group-state-decoder": records.SHARE_GROUP_STATE,
}
KRAFT = [name for name in golden.KAFKA_NAMES if not name.startswith("2.8.2")]
Place = tuple[str, int]


def _truth(name: str) -> dict[Place, tuple[bytes | None, bytes | None]]:
    found: dict[Place, tuple[bytes | None, bytes | None]] = {}
    file = ""
    for line in golden.truth(name):
        file = line.get("file", file)
        if line["t"] == "record":
            key, value = (None if line[part] is None else base64.b64decode(line[part]) for part in ("key", "value"))
            found[file, line["offset"]] = key, value
    return found


def _printed(name: str) -> list[tuple[str, Place, str]]:
    """Topic, file and offset, and line of every record printed by a decoder."""
    found = []
    for options, stream, lines in golden.dump_text(name):
        topic = next((topic for option, topic in _TOPIC.items() if option in options), None)
        file = ""
        for line in lines if topic and stream == "stdout" else ():
            file = line.removeprefix("Dumping ") if line.startswith("Dumping ") else file
            match = _LINE.match(line)
            if match and topic:
                found.append((topic, (file, int(match[1])), line))
    return found


def _same(ours: Any, text: str) -> None:
    """Equal values in the same order."""
    assert json.dumps(records.plain(ours)) == json.dumps(json.loads(text))


def _check_keyed(topic: str, key: bytes | None, value: bytes | None, parts: re.Match[str]) -> None:
    found = records.decode_record(topic, key, value)
    assert found is not None and not found.error and found.message is not None
    assert key is not None and found.key is not None
    _same({"type": str(found.type), "data": found.key}, parts[1])
    keys, _ = records._KEYED[topic]
    assert isinstance(found.type, int)
    assert encode(keys[found.type], found.type, found.key) == key[2:]
    if value is None:
        assert parts[2] == "<DELETE>"
        return
    assert found.value is not None and found.version is not None
    _same({"version": str(found.version), "data": found.value}, parts[2])
    if not found.value.get("members"):
        assert encode(found.message, found.version, found.value) == value[2:]


@pytest.mark.parametrize("name", KRAFT)
def test_every_record_is_decoded_as_the_official_tool_does(name: str) -> None:
    truth, seen, older = _truth(name), 0, 0
    for topic, place, line in _printed(name):
        key, value = truth[place]
        control, parts = _CONTROL.search(line), _PARTS.search(line)
        if control is not None and topic == records.CLUSTER_METADATA:
            assert key is not None
            found = records.decode_control(int.from_bytes(key[2:4], "big"), value)
            assert found is not None and not found.error
            _same(found.value, control[1])
        elif parts is None:
            continue  # the official tool of 3.9 prints no more than the type of a control record
        elif topic == records.CLUSTER_METADATA:
            found = records.decode_record(topic, key, value)
            assert found is not None and not found.error and found.message and found.value is not None
            _same({"type": found.type, "version": found.version, "data": found.value}, parts[2])
            assert (
                frame(found.message, found.version or 0, encode(found.message, found.version or 0, found.value))
                == value
            )
        elif parts[1] is None:
            older += 1  # text of an earlier form
            continue
        else:
            _check_keyed(topic, key, value, parts)
        seen += 1
    assert seen > 500
    assert older < 200
