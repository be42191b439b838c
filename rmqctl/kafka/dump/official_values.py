"""Keys and values of records as the official dump tool's decoders print them, by release (spec 16.1)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import orjson

from formats.kafka.coordinator_messages import TransactionStatus
from formats.kafka.internal_records import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    REMOTE_LOG_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    InternalRecord,
    decode_record,
    plain,
)
from formats.text import java_hash
from rmqctl.kafka.columns import LARGEST_SHOWN
from rmqctl.release import Release

Texts = tuple[str | None, str | None]
"""Key and payload; None is not printed."""

Decoder = Callable[[int, bytes | None, bytes | None], Texts]
"""From the offset, key and value of a record to what is printed."""

JSON_OFFSETS = Release(3, 8, 0)
JSON_COORDINATORS = Release(4, 1, 0)
"""One parser for the topics of all coordinators: transactions are JSON, too, and so is a change of leader."""
JAVA_TOOL = Release(4, 3, 0)
"""The tool was written again in Java."""

TOPICS = {
    "offsets_decoder": CONSUMER_OFFSETS,
    "transaction_log_decoder": TRANSACTION_STATE,
    "cluster_metadata_decoder": CLUSTER_METADATA,
    "remote_log_metadata_decoder": REMOTE_LOG_METADATA,
    "share_group_state_decoder": SHARE_GROUP_STATE,
}
"""Options that choose a decoder, in the order in which the tool looks at them, and the topic that each is for."""

_DELETED = "<DELETE>"
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_UNREADABLE = "\ufffd".encode()
_SEGMENT_STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
_PARTITION_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def decoder_of(option: str | None, release: Release) -> Decoder:
    """Return the decoder that an option chooses; without one, keys and values are text."""
    if option == "offsets_decoder":
        return _json_of(CONSUMER_OFFSETS) if release >= JSON_OFFSETS else _old_offsets
    if option == "transaction_log_decoder":
        return _json_of(TRANSACTION_STATE) if release >= JSON_COORDINATORS else _old_transactions
    if option == "share_group_state_decoder":
        return _json_of(SHARE_GROUP_STATE)
    if option == "cluster_metadata_decoder":
        return _metadata
    if option == "remote_log_metadata_decoder":
        return _remote
    return lambda offset, key, value: (_text(key), _text(value))


def to_json(value: Any) -> str:
    """Return decoded values in one line."""
    return orjson.dumps(plain(value)).decode()


def java_text(data: bytes) -> str:
    """Bytes as Java decodes them: half a surrogate pair is one unreadable character, not one for each byte; of what is
    too large to be shown its hash.
    """
    if len(data) > LARGEST_SHOWN:
        return f"sha256:{hashlib.sha256(data).hexdigest()}"
    return _SURROGATE.sub(_UNREADABLE, data).decode("utf-8", "replace")


def _text(data: bytes | None) -> str | None:
    return None if data is None else java_text(data)


def _json_of(topic: str) -> Decoder:
    """Return the decoder of records of a coordinator: type and fields of the key, version and fields of the value."""

    def decode(offset: int, key: bytes | None, value: bytes | None) -> Texts:
        found = decode_record(topic, key, value)
        assert found is not None
        if found.key is None or (found.value is None and value is not None):
            return _not_read(found, offset), None
        shown = to_json({"type": str(found.type), "data": found.key})
        if value is None:
            return shown, _DELETED
        return shown, to_json({"version": str(found.version), "data": found.value})

    return decode


def _not_read(found: InternalRecord, offset: int) -> str:
    if found.message is None and isinstance(found.type, int):
        return f"Unknown record type {found.type} at offset {offset}, skipping."
    return f"Error at offset {offset}, skipping. {found.error}"


def _metadata(offset: int, _: bytes | None, value: bytes | None) -> Texts:
    found = decode_record(CLUSTER_METADATA, None, value)
    assert found is not None
    if found.value is None:
        return None, f"Error at {offset}, skipping. {found.error}"
    return None, to_json({"type": found.type, "version": found.version, "data": found.value})


def _remote(offset: int, _: bytes | None, value: bytes | None) -> Texts:
    found = decode_record(REMOTE_LOG_METADATA, None, value)
    assert found is not None
    if found.value is None or found.message is None:
        return None, f"Error at offset {offset}, skipping. {found.error}"
    try:
        return None, _REMOTE[found.message.key or 0](found.value)
    except (KeyError, IndexError, TypeError) as error:
        return None, f"Error at offset {offset}, skipping. {error}"


def _segment_id(values: dict[str, Any]) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(values['topicIdPartition'])}, id={values['id']}}}"


def _partition(values: dict[str, Any]) -> str:
    return f"{values['id']}:{values['name']}-{values['partition']}"


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _segment(values: dict[str, Any]) -> str:
    epochs = ", ".join(f"{e['leaderEpoch']}={e['offset']}" for e in values["segmentLeaderEpochs"])
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(values['remoteLogSegmentId'])}, "
        f"startOffset={values['startOffset']}, endOffset={values['endOffset']}, brokerId={values['brokerId']}, "
        f"maxTimestampMs={values['maxTimestampMs']}, eventTimestampMs={values['eventTimestampMs']}, "
        f"segmentLeaderEpochs={{{epochs}}}, segmentSizeInBytes={values['segmentSizeInBytes']}, "
        f"customMetadata={_custom(values.get('customMetadata'))}, "
        f"state={_SEGMENT_STATES[values['remoteLogSegmentState']]}}}"
    )


def _segment_update(values: dict[str, Any]) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(values['remoteLogSegmentId'])}, "
        f"customMetadata={_custom(values.get('customMetadata'))}, "
        f"state={_SEGMENT_STATES[values['remoteLogSegmentState']]}, "
        f"eventTimestampMs={values['eventTimestampMs']}, brokerId={values['brokerId']}}}"
    )


def _partition_delete(values: dict[str, Any]) -> str:
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(values['topicIdPartition'])}, "
        f"state={_PARTITION_STATES[values['remotePartitionDeleteState']]}, "
        f"eventTimestampMs={values['eventTimestampMs']}, brokerId={values['brokerId']}}}"
    )


_REMOTE: dict[int, Callable[[dict[str, Any]], str]] = {
    0: _segment,
    1: _segment_update,
    2: _partition_delete,
    3: _segment,
}


# --- the words of older tools ---------------------------------------------------------------------------


def _old_offsets(offset: int, key: bytes | None, value: bytes | None) -> Texts:
    found = decode_record(CONSUMER_OFFSETS, key, value)
    assert found is not None
    if found.key is None or (found.value is None and value is not None):
        return _not_read(found, offset), None
    fields, content = found.key, found.value
    if found.type in {0, 1}:
        shown = f"offset_commit::group={fields['group']},partition={fields['topic']}-{fields['partition']}"
        if content is None:
            return shown, _DELETED
        metadata = f",metadata={content['metadata']}" if content["metadata"] else ""
        return shown, f"offset={content['offset']}{metadata}"
    if found.type == 2:
        return f"group_metadata::group={fields['group']}", _DELETED if content is None else _old_group(content)
    return f"unknown::version={found.type}", None


def _old_group(content: dict[str, Any]) -> str:
    kind = content.get("protocolType") or ""
    members = ",".join(f"{m['memberId']}={_old_assignment(m['assignment'])}" for m in content["members"] or ())
    return to_json(
        {
            "protocolType": kind,
            "protocol": content.get("protocol"),
            "generationId": content["generation"],
            "assignment": f"{{{members}}}",
        }
    )


def _old_assignment(assignment: Any) -> str:
    if isinstance(assignment, bytes):
        return assignment.hex().upper().lstrip("0")
    topics = assignment["assignedPartitions"]
    partitions = [f"{t['topic']}-{number}" for t in topics for number in t["partitions"]]
    user_data = (assignment.get("userData") or b"").hex().upper()
    return f"[{', '.join(partitions)}]{':' + user_data if user_data else ''}"


def _old_transactions(offset: int, key: bytes | None, value: bytes | None) -> Texts:
    found = decode_record(TRANSACTION_STATE, key, value)
    assert found is not None
    if found.key is None:
        return f"unknown::version={found.type}", None
    if found.value is None and value is not None:
        return _not_read(found, offset), None
    shown = f"transaction_metadata::transactionalId={found.key['transactionalId']}"
    if found.value is None:
        return shown, _DELETED
    v = found.value
    topics = v["transactionPartitions"] or ()
    partitions = ",".join(_in_scala_set([(t["topic"], number) for t in topics for number in t["partitionIds"]]))
    number = v["transactionStatus"]
    status = TransactionStatus(number).name if number in set(TransactionStatus) else str(number)
    return shown, (
        f"producerId:{v['producerId']},producerEpoch:{v['producerEpoch']},state={status},partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={v['transactionLastUpdateTimestampMs']},txnTimeoutMs={v['transactionTimeoutMs']}"
    )


def _in_scala_set(partitions: list[tuple[str, int]]) -> list[str]:
    """Partitions in the order in which a hash set of Scala 2.13 gives them."""
    slots = 16
    while len(partitions) >= slots * 3 // 4:
        slots *= 2
    hashed = []
    for topic, number in partitions:
        code = (31 * (31 + number) + java_hash(topic)) & 0xFFFFFFFF
        code ^= code >> 16
        hashed.append((code & (slots - 1), code - (1 << 32) if code >= 1 << 31 else code, f"{topic}-{number}"))
    return [name for _, _, name in sorted(hashed)]
