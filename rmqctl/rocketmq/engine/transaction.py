"""Transactions: half messages, their end, and the op messages that say so (spec 2.12).

Sources: TransactionalMessageBridge.parseHalfMessageInner, EndTransactionProcessor,
TransactionalMessageServiceImpl.deletePrepareMessage; from 5.1.0 on one op message names several half messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rmqctl.release import Release
from rmqctl.rocketmq.engine.limits import check_queue, check_topic
from rmqctl.rocketmq.engine.message import Message, PutResult
from rmqctl.rocketmq.engine.property_text import client_text
from rmqctl.rocketmq.engine.routing import REAL_QUEUE, REAL_TOPIC, moved

if TYPE_CHECKING:
    from rmqctl.rocketmq.engine.config import StoreConfig
    from rmqctl.rocketmq.engine.engine import StoreEngine

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT = 0x8
_TRANSACTION = 0xC
_OPS_TOGETHER, _TEXT_CLEANED = Release(5, 1, 0), Release(5, 4, 0)
_OP_BYTES = 4096
"""Largest body of an op message (transactionOpMsgMaxSize)."""


@dataclass(frozen=True, slots=True)
class Half:
    """A prepared message that waits for its end."""

    message: Message
    result: PutResult


@dataclass(slots=True)
class Transactions:
    """The half messages that ended and have no op message yet: queue offsets, in the order of their ends."""

    ended: list[int] = field(default_factory=list)

    def prepare(self, engine: StoreEngine, message: Message, group: str) -> Half:
        """Store the half message.

        Raises:
            MessageRefused, IOFailure: it cannot be stored.
        """
        config = engine.config
        check_topic(message.topic, config.release)
        check_queue(message.queue_id)
        properties = {**message.properties, "TRAN_MSG": "true", "PGROUP": group}
        key = {"__transactionId__": properties["UNIQ_KEY"]} if config.is_5 and "UNIQ_KEY" in properties else {}
        half = moved(replace(message, properties=properties), HALF_TOPIC, 0, config, key)
        half.sys_flag &= ~_TRANSACTION
        return Half(replace(half, topic=message.topic, queue_id=message.queue_id), engine.put(half))

    def end(self, engine: StoreEngine, half: Half, *, commit: bool) -> PutResult | None:
        """Commit or roll back; gives the record of the committed message.

        Raises:
            IOFailure: it cannot be stored.
        """
        result = engine.put(_committed(half, engine.config)) if commit else None
        self.ended.append(half.result.queue_offset)
        if engine.config.release < _OPS_TOGETHER or sum(len(str(n)) + 1 for n in self.ended) > _OP_BYTES:
            self.note(engine)
        return result

    def note(self, engine: StoreEngine) -> None:
        """Store the op message for all that ended.

        Raises:
            IOFailure: it cannot be stored.
        """
        if self.ended:
            body = ",".join(map(str, self.ended)) + ("," if engine.config.release >= _OPS_TOGETHER else "")
            properties = {"TAGS": "d", "WAIT": "true"}
            text = client_text(properties, engine.config.release)
            host = engine.config.store_host
            engine.put(
                Message(OP_TOPIC, body.encode(), 0, properties, born_host=host, property_bytes=text, is_stored=True)
            )
            self.ended.clear()


def _committed(half: Half, config: StoreConfig) -> Message:
    properties = dict(half.message.properties)
    if config.release >= _TEXT_CLEANED:
        del properties[REAL_TOPIC], properties[REAL_QUEUE]
    return replace(
        half.message,
        properties=properties,
        sys_flag=half.message.sys_flag | COMMIT,
        born_timestamp=half.result.store_timestamp
        if half.message.born_timestamp is None
        else half.message.born_timestamp,
        prepared_transaction_offset=half.result.physical_offset,
    )
