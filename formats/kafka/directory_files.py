"""Small files that say whose a directory is: meta.properties, partition.metadata, quorum-state, the shutdown marker.

Spec 1.1, 1.3, 9.4, 10.4. Readers keep what they can and name what a broker would not accept.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from construct import Const, GreedyBytes, Struct

from formats.java_properties import parse_properties
from formats.kafka.checkpoint import Problem
from formats.kafka.messages import Field, Message, uuid_bytes
from formats.text import decimal_until, until

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
QUORUM_STATE = "quorum-state"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
ZERO_ID = "A" * 22
_RESERVED = 100
_OF_TWO_LINES = 4096
"""Bytes of a partition.metadata that are read: more have no two lines that a broker takes."""
METADATA_TOPIC_ID = "A" * 21 + "Q"

MetaProperty = Struct(
    "name" / until(b"=") * "version, cluster.id, broker.id (version 0), node.id (version 1), directory.id (3.7)",
    "value" / until(b"\n"),
)
PartitionMetadata = Struct(
    "version_label" / Const(b"version: "),
    "version" / decimal_until(b"\n") * "0",
    "topic_id_label" / Const(b"topic_id: "),
    "topic_id" / GreedyBytes * "id of the topic, 22 characters, without a line end",
)
QUORUM_STATE_DATA = Message(
    "QuorumStateData",
    "0-1",
    "",
    (
        Field("clusterId", "string", "0"),
        Field("leaderId", "int32"),
        Field("leaderEpoch", "int32"),
        Field("votedId", "int32"),
        Field("votedDirectoryId", "uuid", "1+"),
        Field("appliedOffset", "int64", "0"),
        Field("currentVoters", "[]struct", "0", nullable="0", fields=(Field("voterId", "int32"),)),
        Field("data_version", "int16"),
    ),
    since="2.7",
)
"""Written as JSON, not in binary."""
CLEAN_SHUTDOWN_DATA = Message(
    "CleanShutdownMarker", "0", "", (Field("version", "int32"), Field("brokerEpoch", "int64")), since="3.7"
)
"""Written as JSON since 3.7; empty before."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Who a log directory belongs to.

    Attributes:
        version: 0 in the time of ZooKeeper, 1 with KRaft; 0 when the file does not say.
        node_id: ``node.id`` or ``broker.id``.
        values: every property as it stands.
    """

    version: int = 0
    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicIdFile:
    """A partition.metadata: the id of its topic, None when it cannot be read."""

    version: int | None = None
    topic_id: str | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonFile:
    """A small JSON file; ``values`` is empty when it cannot be read."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Read a meta.properties."""
    values = parse_properties(data.decode("iso-8859-1"))
    wrong: list[str] = []
    version = _number(values, "version", wrong) or 0
    if version not in (0, 1):
        wrong.append(f"version {version} is not known, only 0 and 1")
    node = _number(values, "node.id" if version else "broker.id", wrong)
    if version == 1:
        wrong += [f"{name} is missing" for name in ("node.id", "cluster.id") if name not in values]
    directory = values.get("directory.id")
    if directory is not None and not is_id(directory):
        wrong.append(f"directory.id {directory!r} is no id of 22 characters")
    elif directory is not None and is_reserved(directory):
        wrong.append(f"directory.id {directory} is one of the {_RESERVED} that stand for no directory")
    problems = tuple(Problem(0, len(data), text) for text in wrong)
    return MetaProperties(version, node, values.get("cluster.id"), directory, values, problems)


def format_meta_properties(version: int, node_id: int, cluster_id: str, directory_id: str | None = None) -> bytes:
    """Return the bytes of a meta.properties."""
    lines = [f"{'node.id' if version else 'broker.id'}={node_id}", f"version={version}", f"cluster.id={cluster_id}"]
    lines += [f"directory.id={directory_id}"] if directory_id else []
    return "".join(f"{line}\n" for line in lines).encode("ascii")


@lru_cache(maxsize=64)
def parse_partition_metadata(data: bytes) -> TopicIdFile:
    """Read a partition.metadata."""
    lines = re.split("\r\n|\r|\n", data[:_OF_TWO_LINES].decode("utf-8", "replace"))
    version, topic_id = (_after_colon(lines[at]) if at < len(lines) else None for at in (0, 1))
    wrong = []
    number = int(version) if version and re.fullmatch(r"[+-]?[0-9]{1,9}", version) else None
    if number is None:
        wrong.append("line 1 is not 'version: 0'")
    elif number < 0:
        wrong.append(f"version {number} is below 0")
    if topic_id is None or not is_id(topic_id):
        wrong.append("line 2 is not 'topic_id: ' and an id of 22 characters")
        topic_id = None
    elif topic_id == ZERO_ID:
        wrong.append("the topic id is zero")
        topic_id = None
    return TopicIdFile(number, topic_id, tuple(Problem(0, len(data), text) for text in wrong))


def format_partition_metadata(topic_id: str) -> bytes:
    """Return the bytes of a partition.metadata."""
    return f"version: 0\ntopic_id: {topic_id}".encode("ascii")


def parse_quorum_state(data: bytes) -> JsonFile:
    """Read a quorum-state: its first line, an object with ``data_version`` 0 or 1."""
    found = _json_object(re.split(b"[\r\n]", data, maxsplit=1)[0])
    if found is None:
        return JsonFile({}, (Problem(0, len(data), "the first line is not a JSON object"),))
    version = found.get("data_version")
    if version in (0, 1) and not isinstance(version, bool):
        missing = [name for name in ("leaderId", "leaderEpoch", "votedId") if not isinstance(found.get(name), int)]
        return JsonFile(found, tuple(Problem(0, len(data), f"{name} is missing or no number") for name in missing))
    return JsonFile(found, (Problem(0, len(data), f"data_version {version} is not known, only 0 and 1"),))


def parse_clean_shutdown(data: bytes) -> JsonFile:
    """Read a clean shutdown marker. Only that it exists counts; a body that cannot be read loses the broker epoch."""
    if not data:
        return JsonFile()
    found = _json_object(data)
    return JsonFile({}, (Problem(0, len(data), "the body is not a JSON object"),)) if found is None else JsonFile(found)


def is_reserved(text: str) -> bool:
    """Whether an id is none that a directory may have, such as that of lost directories."""
    return int.from_bytes(uuid_bytes(text), "big") < _RESERVED


def is_id(text: str) -> bool:
    """Whether a text is an id of 16 bytes as Kafka writes them."""
    try:
        uuid_bytes(text)
    except ValueError:
        return False
    return True


def _number(values: dict[str, str], name: str, wrong: list[str]) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,9}", text.strip()):
        return int(text)
    wrong.append(f"{name} {text!r} is not a number")
    return None


def _after_colon(line: str) -> str | None:
    parts = re.split(r":\s+", line)
    return parts[1] if len(parts) == 2 else None


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
