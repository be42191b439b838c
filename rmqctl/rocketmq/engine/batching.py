"""Messages stored together: client batches record by record, inner batches as one record (spec 2.11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from formats.rocketmq.client_batch import BatchItem
from formats.rocketmq.message import SysFlag
from rmqctl.errors import Refused
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.late import INNER_NUM
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.engine.property_text import client_text
from rmqctl.rocketmq.engine.stamping import Client, batch_item, broker_properties, client_properties

_MAX_INNER = (1 << 15) - 1
_HEAD = len(BatchItem.build({"total_size": 0, "magic": 0, "body_crc": 0, "flag": 0, "body": b"", "properties": b""}))


def client_batch(messages: Sequence[Message], first_key: int, client: Client, config: StoreConfig) -> list[Message]:
    """The records of a batch that a client sends: each has its own text, and what the broker adds for the batch.

    Args:
        messages: with the producer's own properties.
        first_key: number of the first unique key; the batch itself takes the one behind its messages'.

    Raises:
        MessageRefused: a property contains a separator.
    """
    now = config.clock.now()
    batch_key = client.unique_key(first_key + len(messages), now)
    found = []
    for number, message in enumerate(messages):
        properties = client_properties(message.properties, client.unique_key(first_key + number, now))
        found.append(replace(message, properties=properties, property_bytes=batch_item(properties, batch_key, config)))
    return found


def inner_batch(messages: Sequence[Message], first_key: int, client: Client, config: StoreConfig) -> Message:
    """One record that holds all messages, for a topic with batch queues.

    Raises:
        MessageRefused: a property contains a separator.
        Refused: too many messages for one record.
    """
    if len(messages) > _MAX_INNER:
        raise Refused(f"{len(messages)} messages in one record, at most {_MAX_INNER}; make smaller batches")
    now = config.clock.now()
    items = []
    for number, message in enumerate(messages):
        properties = client_properties(message.properties, client.unique_key(first_key + number, now))
        items.append(_item(message, client_text(properties, config.release)))
    batch_key = client.unique_key(first_key + len(messages), now)
    stored = broker_properties(client_properties({}, batch_key), config)
    flags = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    return replace(
        messages[0], body=b"".join(items), properties={**stored, INNER_NUM: str(len(messages))}, sys_flag=flags, flag=0
    )


def _item(message: Message, text: bytes) -> bytes:
    size = _HEAD + len(message.body) + len(text)
    fields = {"total_size": size, "magic": 0, "body_crc": 0, "flag": message.flag}
    data: bytes = BatchItem.build({**fields, "body": message.body, "properties": text})
    return data
