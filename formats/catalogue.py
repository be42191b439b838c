"""Every known format by name: which file it lies in, since when, and its schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from formats.describe import FieldRow, describe, fixed_size
from formats.kafka import checkpoint as kafka_checkpoint
from formats.kafka import directory_files, message_catalogue, message_set, producer_snapshot, record_batch
from formats.kafka import indexes as kafka_indexes
from formats.rocketmq import (
    abort_lock,
    checkpoint,
    client_batch,
    compaction,
    consumequeue,
    consumequeue_ext,
    dledger,
    epoch,
    index,
    message,
    message_id,
    properties,
    property_crc,
    rocksdb,
    rocksdb_config,
    rocksdb_files,
    rocksdb_messages,
    tiered,
    timer,
)
from formats.rocketmq import batch_consumequeue as batch

_V1, _V2 = int(message.Magic.MESSAGE_V1), int(message.Magic.MESSAGE_V2)
_V6 = int(message.SysFlag.BORN_HOST_V6 | message.SysFlag.STORE_HOST_V6)


@dataclass(frozen=True, slots=True)
class Format:
    """One known layout.

    Attributes:
        name: what to type: ``rmqctl formats NAME``.
        files: where it lies, relative to the store's root.
        since: first release that writes it, "" for all.
        context: values that choose among the schema's branches.
    """

    name: str
    title: str
    files: str
    schema: Any
    since: str = ""
    context: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> list[FieldRow]:
        """Return the layout, field by field."""
        return describe(self.schema, self.context)

    @property
    def size(self) -> int | None:
        """Bytes, None when it varies."""
        return fixed_size(self.schema)


_LOG, _CQ = "commitlog/<offset>", "consumequeue/<topic>/<queue>/<offset>"
_RDB1 = "config/metadata/, config/topics/ and others (RocksDB)"
_CQ_RDB = "consumequeue/ or consumequeue_rocksdb/ (RocksDB)"
_RDB, _RIP82 = "config/rdb/ (RocksDB)", "rocksdbstore/ (RocksDB)"
_DATABASE = "any database of RocksDB: "
_SST, _WAL, _MANIFEST = _DATABASE + "<number>.sst", _DATABASE + "<number>.log", _DATABASE + "MANIFEST-<number>"
_TIERED, _TIERED_INDEX = "<tieredStoreFilePath>/<cluster>/<broker>/<topic>/<queue>/", "tiered_index_file/<time>"

CATALOGUE: tuple[Format, ...] = (
    Format("message-v1", "message record, IPv4 hosts", _LOG, message.MessageRecord, "", {"magic": _V1, "sys_flag": 0}),
    Format("message-v1-ipv6", "message record, IPv6 hosts", _LOG, message.MessageRecord, "4.6.0", {"magic": _V1, "sys_flag": _V6}),
    Format("message-v2", "message record with a long topic", _LOG, message.MessageRecord, "5.1.0", {"magic": _V2, "sys_flag": 0}),
    Format("message-v2-ipv6", "message record with a long topic, IPv6 hosts", _LOG, message.MessageRecord, "5.1.0", {"magic": _V2, "sys_flag": _V6}),
    Format("blank", "blank record at the end of a full file", _LOG, message.BlankRecord),
    Format("property", "one property of a message, in UTF-8", _LOG + " (properties)", properties.PropertyPair),
    Format("property-crc", "CRC over a record, its last property", _LOG, property_crc.PropertyCrc, "5.2.0"),
    Format("batch-item", "message inside an inner batch", _LOG + " (in a body)", client_batch.BatchItem, "5.0.0"),
    Format("queue-unit", "consume queue unit", _CQ, consumequeue.ConsumeQueueUnit),
    Format("queue-pre-blank", "filler in front of the first unit of a queue that begins late", _CQ, consumequeue.PreBlankUnit),
    Format("queue-ext-unit", "consume queue extension unit", "consumequeue_ext/<topic>/<queue>/<offset>", consumequeue_ext.ConsumeQueueExtUnit),
    Format("batch-queue-unit", "batch consume queue unit", "batchconsumequeue/<topic>/<queue>/<offset>", batch.BatchConsumeQueueUnit, "5.0.0"),
    Format("compaction-queue-unit", "queue unit of a compacted topic", "compaction/compactionCq/<topic>/<queue>/<offset>", batch.BatchConsumeQueueUnit, "5.1.0"),
    Format("compaction-position", "how far a queue was compacted, one entry of a JSON object", "compaction/position-checkpoint", compaction.PositionEntry, "5.1.0"),
    Format("index-header", "index file header", "index/<time>", index.IndexHeader),
    Format("index-slot", "index slot", "index/<time>", index.IndexSlot),
    Format("index-entry", "index entry", "index/<time>", index.IndexEntry),
    Format("checkpoint", "store checkpoint", "checkpoint", checkpoint.Checkpoint),
    Format("timer-wheel-slot", "timer wheel slot", "timerwheel", timer.TimerWheelSlot, "5.0.0"),
    Format("timer-log-unit", "timer log unit", "timerlog/<offset>", timer.TimerLogUnit, "5.0.0"),
    Format("timer-log-blank", "blank at the end of a timer log file", "timerlog/<offset>", timer.TimerLogBlank, "5.0.0"),
    Format("timer-check", "timer progress", "config/timercheck", timer.TimerCheck, "5.0.0"),
    Format("dledger-entry", "DLedger entry header", "dledger-<id>/data/<offset>", dledger.DLedgerEntry, "4.5.0"),
    Format("dledger-blank", "DLedger blank", "dledger-<id>/data/<offset>", dledger.DLedgerBlank, "4.5.0"),
    Format("dledger-index-unit", "DLedger entry index unit", "dledger-<id>/index/<offset>", dledger.DLedgerIndexUnit, "4.5.0"),
    Format("dledger-checkpoint-line", "line of the DLedger checkpoint, Java properties text", "dledger-<id>/checkpoint", dledger.DLedgerCheckpointLine, "4.5.0"),
    Format("dledger-term-line", "line of the current term, Java properties text", "dledger-<id>/currterm", dledger.DLedgerTermLine, "4.5.0"),
    Format("rocksdb-queue-key", "key of a unit in RocksDB queues", _CQ_RDB, rocksdb.QueueUnitKey, "5.2.0"),
    Format("rocksdb-queue-value", "unit in RocksDB queues", _CQ_RDB, rocksdb.QueueUnitValue, "5.2.0"),
    Format("rocksdb-queue-end-key", "key of a queue's first or last offset in RocksDB queues", _CQ_RDB, rocksdb.QueueEndKey, "5.2.0"),
    Format("rocksdb-queue-end", "first and last offset in RocksDB queues", _CQ_RDB, rocksdb.QueueEnd, "5.2.0"),
    Format("rocksdb-dispatched-end", "how far RocksDB queues reach in the log", _CQ_RDB, rocksdb.DispatchedEnd, "5.2.0"),
    Format("rocksdb-config-name-v1", "key of a topic or group in RocksDB, version 1", _RDB1, rocksdb_config.NameKeyV1, "5.1.4"),
    Format("rocksdb-offset-key-v1", "key of a group's offsets in RocksDB, version 1", _RDB1, rocksdb_config.OffsetsKeyV1, "5.1.4"),
    Format("rocksdb-config-entry", "topic, group, offsets, forbidden or data version in RocksDB, version 1", _RDB1, rocksdb_config.ConfigEntryV1, "5.1.4"),
    Format("rocksdb-data-version-key-v1", "key of the data version in RocksDB, version 1", _RDB1, rocksdb_config.VersionKeyV1, "5.1.4"),
    Format("rocksdb-config-key", "key of a topic or group in RocksDB, version 2", _RDB, rocksdb_config.NamedKey, "5.3.2"),
    Format("rocksdb-config-value", "topic or group in RocksDB, version 2", _RDB, rocksdb_config.NamedValue, "5.3.2"),
    Format("rocksdb-offset-key", "key of a consumer offset in RocksDB, version 2", _RDB, rocksdb_config.ConsumerOffsetKey, "5.3.2"),
    Format("rocksdb-offset-value", "consumer offset in RocksDB, version 2", _RDB, rocksdb_config.ConsumerOffsetValue, "5.3.2"),
    Format("rocksdb-data-version-key", "key of a data version in RocksDB, version 2", _RDB, rocksdb_config.DataVersionKey, "5.3.2"),
    Format("rocksdb-data-version", "data version in RocksDB, version 2", _RDB, rocksdb_config.DataVersionValue, "5.3.2"),
    Format("rocksdb-pop-key", "key of a message taken by a pop consumer", "kvStore/ (RocksDB)", rocksdb_messages.PopStateKey, "5.3.2"),
    Format("rocksdb-pop-value", "message taken by a pop consumer", "kvStore/ (RocksDB)", rocksdb_messages.PopStateValue, "5.3.2"),
    Format("rocksdb-index-key", "key of an index entry in RocksDB", _RIP82, rocksdb_messages.MessageIndexKey, "5.4.0"),
    Format("rocksdb-index-value", "index entry in RocksDB", _RIP82, rocksdb_messages.MessageIndexValue, "5.4.0"),
    Format("rocksdb-mark", "how far index, timers or half messages in RocksDB reach", _RIP82, rocksdb_messages.Mark, "5.4.0"),
    Format("rocksdb-timer-key", "key of a timer message in RocksDB", _RIP82, rocksdb_messages.TimerKey, "5.4.0"),
    Format("rocksdb-timer-value", "timer message in RocksDB", _RIP82, rocksdb_messages.TimerValue, "5.4.0"),
    Format("rocksdb-half-key", "key of a half message in RocksDB", _RIP82, rocksdb_messages.HalfMessageKey, "5.4.0"),
    Format("rocksdb-half-value", "half message in RocksDB", _RIP82, rocksdb_messages.HalfMessageValue, "5.4.0"),
    Format("rocksdb-table-footer", "end of a table of RocksDB", _SST, rocksdb_files.TableFooter, "5.1.4"),
    Format("rocksdb-block-handle", "where a block lies: in the footer, and as the value of an index entry", _SST, rocksdb_files.BlockHandle, "5.1.4"),
    Format("rocksdb-block-entry", "key and value in a block; the numbers of restart points end the block", _SST, rocksdb_files.BlockEntry, "5.1.4"),
    Format("rocksdb-key-end", "what follows a key in a data block", _SST, rocksdb_files.InternalKeyEnd, "5.1.4"),
    Format("rocksdb-block-trailer", "what follows a block", _SST, rocksdb_files.BlockTrailer, "5.1.4"),
    Format("rocksdb-log-piece", "head of a piece of a record, in blocks of 32 KiB", _WAL + ", MANIFEST-<number>", rocksdb_files.LogPiece, "5.1.4"),
    Format("rocksdb-write-batch", "record of the write-ahead log", _WAL, rocksdb_files.WriteBatchHeader, "5.1.4"),
    Format("rocksdb-write", "one write of a batch", _WAL, rocksdb_files.Write, "5.1.4", {"kind": 5}),
    Format("rocksdb-manifest-field", "field of a record of the manifest", _MANIFEST, rocksdb_files.ManifestField, "5.1.4", {"tag": 2}),
    Format("rocksdb-manifest-table", "table that a manifest adds, tag 103", _MANIFEST, rocksdb_files.ManifestTable, "5.1.4"),
    Format("rocksdb-manifest-table-detail", "detail of a table that a manifest adds", _MANIFEST, rocksdb_files.TableDetail, "5.1.4", {"kind": 2}),
    Format("rocksdb-manifest-table-gone", "table that a manifest takes away, tag 6", _MANIFEST, rocksdb_files.ManifestTableGone, "5.1.4"),
    Format("tiered-queue-unit", "queue unit of tiered storage", _TIERED + "CONSUME_QUEUE/<hash><offset>", consumequeue.ConsumeQueueUnit, "5.1.0"),
    Format("tiered-coda", "end of a log file of tiered storage, 5.1 and 5.2", _TIERED + "COMMIT_LOG/<hash><offset>", tiered.TieredCoda, "5.1.0"),
    Format("tiered-index-header", "index header of tiered storage", _TIERED_INDEX, tiered.TieredIndexHeader, "5.2.0"),
    Format("tiered-index-slot", "index slot of tiered storage", _TIERED_INDEX, tiered.TieredIndexSlot, "5.2.0"),
    Format("tiered-index-item", "index item of tiered storage", _TIERED_INDEX, tiered.TieredIndexItem, "5.2.0"),
    Format("tiered-compact-slot", "index slot of tiered storage, uploaded", _TIERED + "INDEX/<hash><offset>", tiered.TieredCompactSlot, "5.2.0"),
    Format("tiered-compact-item", "index item of tiered storage, uploaded", _TIERED + "INDEX/<hash><offset>", tiered.TieredCompactItem, "5.2.0"),
    Format("abort", "sign that the broker runs or was not stopped cleanly", "abort", abort_lock.AbortFile),
    Format("lock", "file that the running broker locks", "lock", abort_lock.LockFile),
    Format("epoch-head", "count and CRC of the epoch file", "epochFileCheckpoint", epoch.EpochFileHead, "5.0.0"),
    Format("epoch-line", "one epoch", "epochFileCheckpoint", epoch.EpochLine, "5.0.0"),
    Format("broker-identity", "who the broker is to its controller", "brokerIdentity", epoch.BrokerIdentity, "5.0.0"),
    Format("broker-identity-temp", "who the broker wants to be", "brokerIdentity-temp", epoch.BrokerIdentityTemp, "5.0.0"),
    Format("offset-message-id", "offsetMsgId, IPv4 store host (in hex)", "ids shown to users", message_id.OffsetMessageIdV4),
    Format("offset-message-id-ipv6", "offsetMsgId, IPv6 store host (in hex)", "ids shown to users", message_id.OffsetMessageIdV6, "4.6.0"),
    Format("unique-key", "UNIQ_KEY of Java clients, IPv4 (in hex)", "properties", message_id.UniqueKeyV4),
    Format("unique-key-ipv6", "UNIQ_KEY of Java clients, IPv6 (in hex)", "properties", message_id.UniqueKeyV6),
    Format("grpc-message-id", "message id of gRPC clients, stored as UNIQ_KEY (in hex)", "properties", message_id.GrpcMessageId, "5.0.0"),
)  # fmt: skip

_PARTITION = "<topic>-<partition>/"

CATALOGUE += (
    Format("kafka-checkpoint-head", "first two lines of a Kafka checkpoint", "*-checkpoint", kafka_checkpoint.CheckpointHead, "0.8"),
    Format("kafka-offset-line", "one partition in a Kafka checkpoint", "*-offset-checkpoint", kafka_checkpoint.OffsetLine, "0.8"),
    Format("kafka-leader-epoch-line", "one leader epoch", _PARTITION + "leader-epoch-checkpoint", kafka_checkpoint.LeaderEpochLine, "0.11"),
    Format("meta-property", "one line of meta.properties", "meta.properties", directory_files.MetaProperty, "0.9.0"),
    Format("partition-metadata", "id of a partition's topic", _PARTITION + "partition.metadata", directory_files.PartitionMetadata, "2.8"),
    Format("quorum-state", "vote of a KRaft node, as JSON", "__cluster_metadata-0/quorum-state", directory_files.QUORUM_STATE_DATA, "2.7"),
    Format("clean-shutdown", "sign of an orderly stop, as JSON since 3.7, empty before", ".kafka_cleanshutdown", directory_files.CLEAN_SHUTDOWN_DATA, "0.8"),
)  # fmt: skip

_SEGMENT, _SIZES = _PARTITION + "<offset>.log", {"key_size": 0, "value_size": 0}

CATALOGUE += (
    Format("batch-frame", "frame of a batch of any magic", _SEGMENT, record_batch.BatchFrame),
    Format("record-batch", "header of a record batch, magic 2", _SEGMENT, record_batch.RecordBatchHeader, "0.11.0"),
    Format("record", "record in a batch, after decompression", _SEGMENT, record_batch.Record, "0.11.0", _SIZES),
    Format("record-header", "header of a record", _SEGMENT, record_batch.RecordHeader, "0.11.0", {"value_size": 0}),
    Format("control-record-key", "key of a control record", _SEGMENT, record_batch.ControlRecordKey, "0.11.0"),
    Format("end-transaction-marker", "value of ABORT and COMMIT", _SEGMENT, record_batch.EndTransactionMarker, "0.11.0"),
    Format("message-magic-0", "message of magic 0", _SEGMENT, message_set.MessageV0, "0.8.0", _SIZES),
    Format("message-magic-1", "message of magic 1", _SEGMENT, message_set.MessageV1, "0.10.0", _SIZES),
    Format("offset-index-entry", "offset index entry", _PARTITION + "<offset>.index", kafka_indexes.OffsetIndexEntry),
    Format("time-index-entry", "time index entry", _PARTITION + "<offset>.timeindex", kafka_indexes.TimeIndexEntry, "0.10.1"),
    Format("aborted-transaction", "transaction index entry", _PARTITION + "<offset>.txnindex", kafka_indexes.AbortedTransaction, "0.11.0"),
    Format("producer-snapshot", "head of a producer snapshot", _PARTITION + "<offset>.snapshot", producer_snapshot.SnapshotHead, "0.11.0"),
    Format("producer-entry", "producer in a snapshot", _PARTITION + "<offset>.snapshot", producer_snapshot.ProducerEntry, "0.11.0"),
)  # fmt: skip

CATALOGUE += tuple(
    Format(name, title, files, table, table.since) for name, title, files, table in message_catalogue.messages()
)


def find(name: str) -> Format | None:
    """Return the format of a name, None if there is none."""
    return next((f for f in CATALOGUE if f.name == name), None)


def nearest(name: str) -> list[str]:
    """Names that a mistyped one may have meant."""
    return get_close_matches(name, [f.name for f in CATALOGUE], n=3, cutoff=0.4)
