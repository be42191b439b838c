"""What a lookup looked at, step by step, and the reasons why it found nothing.

``--explain`` prints the steps in order; the last one carries an ``id`` of the table below, which never changes.
"""

from __future__ import annotations

from rmqctl.explain import declare_miss

NO_TOPIC = declare_miss(
    "no-partition-here",
    "{what}",
    "No partition of the topic, or not the one asked for, lies in the log directories that were given: the topic is "
    "not known, or its partitions are on other brokers or disks.",
)
NO_SEGMENT = declare_miss(
    "no-segment",
    "the partition has no segment",
    "The directory of the partition is there, and no log file in it: a broker starts it empty.",
)
END_OF_LOG = declare_miss(
    "end-of-log",
    "offset {offset} is the end of the log",
    "The offset is that of the next record: a consumer waits there for what comes.",
)
BEYOND_END = declare_miss(
    "offset-beyond-end",
    "offset {offset} is beyond the end of the log, {end}",
    "A broker answers OFFSET_OUT_OF_RANGE, and the consumer goes where its auto.offset.reset says. After a crash it "
    "means that the end of the log was lost.",
)
DELETED_BY_REQUEST = declare_miss(
    "deleted-by-request",
    "records before {start} were deleted by request; they may still lie in the file",
    "DeleteRecords moved the start of the log. `rmqctl dump` shows what is still in the segment.",
)
DELETED_WITH_SEGMENTS = declare_miss(
    "deleted-with-segments",
    "records before {start} were deleted with their segments",
    "Retention by time or size, or DeleteRecords, removed whole segments.",
)
NOT_DECIDED = declare_miss(
    "not-decided",
    "producer {producer} has a transaction open since offset {first}: nothing from there on is decided",
    "Readers of committed records get nothing at or after the last stable offset. `rmqctl transactions` says which "
    "transactions hang.",
)
CONTROL_RECORD = declare_miss(
    "control-record",
    "offset {offset} is a control record, in {place}: consumers are not given it{after}",
    "Markers that end transactions take offsets of the log, and clients skip them.",
)
ABORTED = declare_miss(
    "aborted",
    "{place} belongs to a transaction that the marker at {marker} aborted{after}",
    "The record is in the log, and readers of committed records do not get it.",
)
COMPACTED = declare_miss(
    "compacted",
    "offset {offset} lies in {place}, but the record was removed by compaction{after}",
    "The cleaner removed the record and kept its batch: a later record has its key, or it was a tombstone.",
)
LEFT_OUT = declare_miss(
    "left-out-by-filters",
    "offset {offset} lies in {place}, but the record does not pass the filters{after}",
    "The record is there, and --key, --property, --grep or another filter excludes it.",
)
NO_BATCH = declare_miss(
    "no-batch",
    "no batch holds offset {offset}: compaction, or a cut and repair of the log, removed it{after}",
    "Offsets between two batches are not used any more; consumers go on with the next record.",
)
NONE_THAT_LATE = declare_miss(
    "none-that-late",
    "no segment has a timestamp of {time} or later",
    "A broker answers -1: a consumer that asked goes to the end of the log.",
)
NONE_IN_SEGMENT = declare_miss(
    "none-in-segment",
    "the segment holds no such record, and a broker looks in no other",
    "A time index, or the file time that stands for it, says that the segment reaches the time; its records do not.",
)
NO_TIMESTAMP = declare_miss(
    "no-timestamp",
    "no record has a timestamp",
    "The partition is empty, or holds only messages of magic 0, which have no time.",
)
TIME_INDEX_WRONG = declare_miss(
    "time-index-wrong",
    "no record has the timestamp {time} that the time index says",
    "The last entry of a time index is not the largest time of its segment; `rmqctl verify` names it.",
)
KEY_ELSEWHERE = declare_miss(
    "key-elsewhere",
    "no record has the key here, but its partition {home} is not in this directory",
    "The default partitioner puts the key into a partition that lies on another broker or disk.",
)
NO_KEY = declare_miss(
    "no-record-with-key",
    "no record has the key: never written, or removed by compaction or retention",
    "All partitions that are here were read from start to end.",
)
