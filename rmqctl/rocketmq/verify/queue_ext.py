"""Tags codes that are addresses into consumequeue_ext (spec 3.5)."""

from __future__ import annotations

from formats.layout import plan_of
from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE
from formats.rocketmq.consumequeue_ext import HEAD_SIZE, ConsumeQueueExtUnit
from rmqctl.rocketmq.store import QUEUES_EXT, RocketMQStore, sequence

_HEAD = plan_of(ConsumeQueueExtUnit).runs[0]


def real_tags(store: RocketMQStore, topic: bytes, queue_id: int, address: int) -> int | None:
    """The tags code of the extension unit at an address.

    None where there are no extension files: brokers then take the tag for a match. -1 where no unit lies.

    Raises:
        OSError: an extension file cannot be read.
    """
    path = f"{QUEUES_EXT}/{topic.decode('utf-8', 'surrogateescape')}/{queue_id}"
    files, _ = sequence(store.tree, path, path)
    offset = address - EXT_ADDRESS_BASE
    for file in files:
        if file.base <= offset < file.base + file.size:
            source = file.open()
            try:
                raw = source.read_at(offset - file.base, HEAD_SIZE)
            finally:
                source.close()
            values = dict(zip(_HEAD.names, _HEAD.packer.unpack(raw), strict=True)) if len(raw) == HEAD_SIZE else {}
            return int(values["tags_code"]) if values.get("size", 0) >= HEAD_SIZE else -1
    return None if not files else -1
