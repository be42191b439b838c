"""Transactions as their coordinator keeps them: producers by transactional id, and ``__transaction_state``.

Sources: TransactionCoordinator, TransactionMetadata, TransactionLog. A broker that starts on the directory knows the
ids: it goes on with their producers, and ends what was left open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from formats.kafka.coordinator_messages import TRANSACTION_KEY, TRANSACTION_VALUE, TransactionStatus
from formats.kafka.internal_records import TRANSACTION_STATE
from formats.kafka.messages import Values, encode
from rmqctl.errors import Refused
from rmqctl.kafka.engine.batch import Ending
from rmqctl.kafka.engine.engine import KafkaEngine, Key
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.query.key import partition_of_name
from rmqctl.kafka.state.internal_topics import transactions
from rmqctl.kafka.state.replicas import Replicas

PARTITIONS = 50
"""``transaction.state.log.num.partitions``."""
TIMEOUT_MS = 60_000
"""``transaction.timeout.ms`` of the Java client."""
_SETTINGS = {
    "cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": str(100 << 20),
    "unclean.leader.election.enable": "false",
}  # fmt: skip
_NEW_EPOCH_AT_END = 2
"""The ``transaction.version`` from which on the end of a transaction has an epoch of its own."""
_LONGEST = (1 << 15) - 1
_SURROGATE = re.compile("[\ud800-\udfff]").match
_LAST_EPOCH = (1 << 15) - 2
"""The last epoch that a client gets."""
_ENDS = {TransactionStatus.PrepareCommit: True, TransactionStatus.PrepareAbort: False}


@dataclass
class Transactional:
    """A transactional id and its producer.

    Attributes:
        producer_epoch: with which it writes now.
        partitions: that take part in the transaction.
        started, updated: ms; -1 where none was begun.
        version: ``transaction.version`` with which it was begun last.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = -1
    timeout_ms: int = TIMEOUT_MS
    status: TransactionStatus = TransactionStatus.Empty
    partitions: set[Key] = field(default_factory=set)
    started: int = -1
    updated: int = -1
    version: int = 0


class Coordinator:
    """The transactional ids of a log directory, and their transactions.

    Args:
        partitions: of ``__transaction_state`` where it is not there yet.
    """

    def __init__(self, engine: KafkaEngine, partitions: int = PARTITIONS) -> None:
        self.engine = engine
        replicas = engine.replicas()
        self._partitions = replicas.partition_count(TRANSACTION_STATE) or partitions
        self._known = dict(self._read(replicas))

    def _read(self, replicas: Replicas) -> Iterable[tuple[str, Transactional]]:
        for name, found in transactions(replicas.of(TRANSACTION_STATE)).items():
            if found.state in TransactionStatus.__members__:
                yield name, Transactional(
                    name, found.producer_id, found.producer_epoch, found.timeout_ms, TransactionStatus[found.state],
                    set(found.partitions), found.start_timestamp, found.last_update,
                )  # fmt: skip

    def begin(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Transactional:
        """Give a producer its id and epoch, as ``initTransactions`` does; what an earlier one left open is ended.

        Raises:
            Refused: the partition of the id is with another broker.
        """
        if not 0 < len(transactional_id.encode("utf-8", "ignore")) <= _LONGEST or any(
            map(_SURROGATE, transactional_id)
        ):
            raise Refused(f"a transactional id is a text of 1 to {_LONGEST:,} bytes in UTF-8; give another name")
        number = partition_of_name(transactional_id, self._partitions)
        if TRANSACTION_STATE not in self.engine.topics:
            self.engine.make_topic(TRANSACTION_STATE, self._partitions, _SETTINGS)
        elif (TRANSACTION_STATE, number) not in self.engine.logs:
            raise Refused(
                f"transactional id {transactional_id} belongs to {TRANSACTION_STATE}-{number}, "
                "which is not here but with another broker; give another id"
            )
        found = self._known.get(transactional_id)
        if found is None:
            found = self._known[transactional_id] = Transactional(transactional_id, self.engine.new_producer_id())
        elif found.status is TransactionStatus.Ongoing:
            found.producer_epoch += 1  # fences the earlier one
            self.end(found, commit=False)
        elif found.status in _ENDS:
            self._complete(found, commit=_ENDS[found.status])
        if found.producer_epoch >= _LAST_EPOCH:
            found.producer_id, found.producer_epoch = self.engine.new_producer_id(), -1
        found.producer_epoch += 1
        found.timeout_ms, found.partitions, found.started = timeout_ms, set(), -1
        self._note(found, TransactionStatus.Empty)
        return found

    def add(self, transaction: Transactional, partitions: Iterable[Key]) -> None:
        """Let partitions take part, before a batch is appended to them; the first ones begin the transaction."""
        new = set(partitions) - transaction.partitions
        if not new:
            return
        if transaction.status is not TransactionStatus.Ongoing:
            transaction.started = self.engine.config.clock()
        transaction.partitions |= new
        transaction.version = self.engine.transaction_version
        self._note(transaction, TransactionStatus.Ongoing)

    def end(self, transaction: Transactional, *, commit: bool) -> None:
        """Decide how a transaction ends, and write its markers; nothing for one that has no partitions.

        The epoch of the producer may be another one afterwards, and its id.
        """
        if transaction.status is not TransactionStatus.Ongoing:
            return
        if self.engine.transaction_version >= _NEW_EPOCH_AT_END and transaction.producer_epoch <= _LAST_EPOCH:
            transaction.producer_epoch += 1
        transaction.version = self.engine.transaction_version
        prepare = TransactionStatus.PrepareCommit if commit else TransactionStatus.PrepareAbort
        self._note(transaction, prepare)
        self._complete(transaction, commit=commit)

    def _complete(self, transaction: Transactional, *, commit: bool) -> None:
        ending = Ending(
            transaction.producer_id, transaction.producer_epoch, commit, self._log_epoch(transaction.transactional_id)
        )
        self.engine.end_transaction(ending, sorted(transaction.partitions & self.engine.logs.keys()))
        transaction.partitions = set()
        if transaction.producer_epoch > _LAST_EPOCH:
            transaction.producer_id, transaction.producer_epoch = self.engine.new_producer_id(), 0
        self._note(transaction, TransactionStatus.CompleteCommit if commit else TransactionStatus.CompleteAbort)

    # --- the log of the coordinator -------------------------------------------------------------------

    def _log_epoch(self, name: str) -> int:
        """Return the epoch of the coordinator: that of the leader of its partition."""
        return self.engine.log(TRANSACTION_STATE, partition_of_name(name, self._partitions)).place.leader_epoch

    def _note(self, transaction: Transactional, status: TransactionStatus) -> None:
        """Append what is to be known of an id."""
        transaction.status, transaction.updated = status, self.engine.config.clock()
        name, version = transaction.transactional_id, min(self.engine.transaction_version, 1)
        key = b"\0\0" + encode(TRANSACTION_KEY, 0, {"transactionalId": name})
        value = version.to_bytes(2, "big") + encode(TRANSACTION_VALUE, version, _values(transaction))
        record = Record(0, transaction.updated, -1, key, value, ())
        self.engine.append(TRANSACTION_STATE, partition_of_name(name, self._partitions), [record])


def _values(transaction: Transactional) -> Values:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(number)
    listed = [{"topic": topic, "partitionIds": numbers} for topic, numbers in by_topic.items()]
    version = {"clientTransactionVersion": transaction.version} if transaction.version else {}
    return {
        "producerId": transaction.producer_id, "previousProducerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch, "transactionTimeoutMs": transaction.timeout_ms,
        "transactionStatus": int(transaction.status),
        "transactionPartitions": None if transaction.status is TransactionStatus.Empty else listed,
        "transactionLastUpdateTimestampMs": transaction.updated,
        "transactionStartTimestampMs": transaction.started, **version,
    }  # fmt: skip
