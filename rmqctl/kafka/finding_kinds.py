"""What can be wrong with a Kafka log directory: the table of findings (spec 1 to 13, 21)."""

from __future__ import annotations

from rmqctl.findings import FindingKind, Severity, declare
from rmqctl.kafka.block import Gap, GapKind

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_REBUILT = "Builds it again while it loads the segment after a crash; after a clean stop it uses it as it is."

# --- frames and headers of batches ------------------------------------------------------------------

BATCH_CRC = declare(
    "batch.crc",
    _E,
    "The bytes of the batch do not match its CRC-32C (CRC-32 of messages of magic 0 and 1): they were changed after they were written.",
    "Fetch the batch again from another replica, or accept the loss of its records: `rmqctl dump -o hex` shows the bytes.",
    broker="Recovery after a crash cuts the log here and deletes all later segments; a consumer gets a corrupt record error.",
    see="spec 2, 13.3",
)
BATCH_SIZE = declare(
    "batch.size",
    _E,
    "The size in the frame is less than any batch can have: the field was damaged, or something else was written here.",
    "What follows is shown where batches prove themselves. Copy the directory before a broker starts on it.",
    broker="Reading stops here; at the end of a log that was stopped in order the start fails.",
    see="spec 2, 13.4",
)
BATCH_MAGIC = declare(
    "batch.magic",
    _E,
    "The magic is none that is known: brokers read 3 and above as 2 without a word, and a negative one as a message of magic 0.",
    "The magic lies outside the CRC, so the rest of the batch may be whole.",
    broker="3 to 127 pass even recovery unnoticed.",
    see="spec 2, 21.21",
)
BATCH_ZEROS = declare(
    "batch.zeros",
    _E,
    "Zeros stand where a batch was expected, and batches follow: a page was lost, or a write never reached the disk.",
    "Fetch the range again from another replica.",
    broker="Recovery after a crash cuts the log here.",
    see="spec 13.4, 21.5",
)
BATCH_CUT = declare(
    "batch.cut",
    _E,
    "The frame states more bytes than the file has, or the batch begins in the middle of the file and batches follow it.",
    "If it is the end of the log, the last write was torn; nothing but its records is lost.",
    broker="Readers stop here without a word; recovery after a crash cuts the log here. After an orderly stop the torn "
    "bytes stay, and what is appended after them cannot be read.",
    see="spec 2, 13.4",
)
BATCH_LENGTH = declare(
    "batch.length",
    _E,
    "The batch does not match its CRC, and no batch follows where it ends: its size, or the bytes after it, are damaged.",
    "What follows is shown where batches prove themselves.",
    broker="Recovery after a crash cuts the log here.",
    see="spec 2, 13.5",
)
BATCH_ROOM = declare(
    "batch.zero-tail",
    _N,
    "The file ends with zeros that were never written: it was made in its full size, or the file system lost its length in a crash.",
    "Nothing to do where a broker starts on it after a crash: it cuts them off.",
    broker="Cut at recovery. After an orderly stop 18 or more zeros make the start fail.",
    see="spec 1.6, 13.4",
)
BATCH_TORN_TAIL = declare(
    "batch.torn-tail",
    _W,
    "The log of a broker that crashed ends with part of a batch: it was being written.",
    "Nothing: the broker cuts it when it starts. It was not acknowledged by this broker's disk.",
    broker="Cuts the part off.",
    see="spec 13.3, 21 (5)",
)
BATCH_ZERO_END = declare(
    "batch.zero-end",
    _E,
    "A segment ends with zeros although it is complete: not the last one, or the broker was stopped in order.",
    "Cut the zeros off.",
    broker="After a clean stop 18 zeros or more make the start fail; a second start cuts them.",
    see="spec 13.4 (a)",
)
BATCH_BASE_OFFSET = declare(
    "batch.base-offset",
    _E,
    "The base offset of a batch is not one that its segment can hold: below the segment's own, or 2^31 and more above it.",
    "Restore the eight bytes from a replica; no CRC covers them.",
    broker="An offset below the segment's makes loading fail; one too far above makes it split the segment.",
    fixed_in="2.0 (KAFKA-6264, for segments that were written so)",
    see="spec 13.2, 13.3; KAFKA-6264",
)
BATCH_OFFSET_ORDER = declare(
    "batch.offset-order",
    _E,
    "The offsets of a batch are not above those of the batches before it: it was moved, doubled, or its base offset has changed.",
    "Compare with a replica; no CRC covers a base offset.",
    broker="Does not notice it, except at index points; consumers get messages twice, or skip some.",
    see="spec 13.3, 21 (21, 23)",
)
BATCH_OFFSET_GAP = declare(
    "batch.offset-gap",
    _W,
    "Offsets are missing between two batches of a topic that shows no sign of compaction.",
    "Compare with a replica. A follower that fetched from a compacted log has such gaps, too.",
    broker="Reads over it.",
    see="spec 1.5, 14, 21 (17)",
)
BATCH_COUNT = declare(
    "batch.count",
    _E,
    "A batch states more records than its offsets have room for, or a negative number.",
    "Restore the batch from a replica.",
    broker="Recovery does not look; consumers stop at it.",
    see="spec 2",
)
BATCH_CODEC = declare(
    "batch.codec",
    _E,
    "A batch names a compression that does not exist.",
    "Restore the batch from a replica.",
    broker="Serves it; consumers fail.",
    see="spec 2, 5",
)
BATCH_TIMESTAMP_SPAN = declare(
    "batch.timestamp-span",
    _N,
    "The timestamps of a batch lie more than 24.8 days apart: client libraries that read the difference as 32 bits get wrong times.",
    "Nothing on the broker; use a client that reads 64 bits.",
    see="spec 3",
)
BATCH_LEADER_EPOCH = declare(
    "batch.leader-epoch",
    _E,
    "The leader epoch of a batch is higher than that of batches after it: epochs never go back along a log.",
    "Restore the four bytes from a replica; no CRC covers them.",
    broker="After a crash it adds the epoch to its chain, and followers may cut their logs at the wrong place.",
    see="spec 9.3, 13.3",
)
BATCH_SEQUENCE = declare(
    "batch.sequence",
    _W,
    "The sequence numbers of a producer do not follow each other, in a topic without compaction and without other damage here.",
    "Look for batches that were lost or doubled; compare with a replica.",
    broker="Accepts what is in the log.",
    see="spec 2, 9.2",
)
BATCH_PRODUCER_EPOCH = declare(
    "batch.producer-epoch",
    _W,
    "A batch carries a lower epoch than its producer had before: brokers refuse such batches.",
    "Compare with a replica.",
    broker="Accepts what is in the log.",
    see="spec 9.2",
)
# --- records ----------------------------------------------------------------------------------------

RECORD_UNREADABLE = declare(
    "record.unreadable",
    _E,
    "The records of the batch cannot be read as the header states them, though the CRC may match: they were written by a "
    "faulty client, or damaged together with the CRC.",
    "The records before the place are shown. `rmqctl dump -o hex` shows the bytes.",
    broker="Not noticed when the log is loaded; consumers stop at the batch.",
    see="spec 2, 3, 5",
)
RECORD_OFFSET = declare(
    "record.offset",
    _E,
    "The offset of a record is not inside its batch, or not above that of the record before it.",
    "It was written so: look at the producer.",
    broker="Serves it; consumers may skip or repeat records.",
    see="spec 3, 16.3",
)
RECORD_MAX_TIMESTAMP = declare(
    "record.max-timestamp",
    _W,
    "The largest timestamp of a batch's records is not the one in its header.",
    "Lookups by time may miss or pass records of this batch.",
    broker="Believes the header.",
    see="spec 2, 16.3",
)
RECORD_CONTROL = declare(
    "record.control",
    _E,
    "A control batch holds no control record that can be read.",
    "Restore the batch from a replica.",
    broker="Fails to load the partition's producer state.",
    see="spec 4",
)
# --- segments ---------------------------------------------------------------------------------------

SEGMENT_MISSING = declare(
    "segment.missing",
    _E,
    "The log file of a segment is gone while its index or snapshot is there and its offsets are missing.",
    "Restore the file from a replica, or from a .deleted or .swap file beside it.",
    broker="Deletes the index files that are left over, and goes on without the offsets.",
    see="spec 13.2",
)
SEGMENT_EMPTIED = declare(
    "segment.emptied",
    _E,
    "A segment that is not the last is empty and its offsets are missing.",
    "Restore the file from a replica.",
    broker="Goes on without the offsets.",
    see="spec 1.5",
)
FILE_UNREADABLE = declare(
    "directory.unreadable-file",
    _E,
    "The system refuses to read the file.",
    "Let this user read it, or copy what can still be read to another disk.",
)
# --- indexes ----------------------------------------------------------------------------------------

OFFSET_INDEX_MISSING = declare(
    "offset-index.missing",
    _W,
    "A segment has no offset index.",
    "rmqctl rebuild writes it; a broker does, too.",
    broker="Recovers the segment, which builds all its indexes.",
    see="spec 13.2",
)
OFFSET_INDEX_SIZE = declare(
    "offset-index.size",
    _E,
    "The length of an offset index is no multiple of 8.",
    "Cut it, or delete it: a broker builds it again.",
    broker=_REBUILT,
    see="spec 7.4",
)
OFFSET_INDEX_PADDING = declare(
    "offset-index.padding",
    _E,
    "An offset index that is complete ends with zeros: its trim was lost, and a broker takes the zeros for entries.",
    "Cut the zeros off.",
    broker="Believes that the index is full: rolls at once, or fails to append.",
    see="spec 7.3, 21 (2); KAFKA-10207, KAFKA-12734, KAFKA-19200, KAFKA-20979",
)
OFFSET_INDEX_ORDER = declare(
    "offset-index.order",
    _E,
    "The entries of an offset index do not ascend.",
    "Delete the index: a broker builds it again.",
    broker=_REBUILT,
    see="spec 7.1",
)
OFFSET_INDEX_ENTRY = declare(
    "offset-index.entry",
    _E,
    "An entry of an offset index points to no batch, or offsets at or above its own lie before the place it points to.",
    "Delete the index: a broker builds it again.",
    broker=_REBUILT + " Lookups answer wrongly.",
    see="spec 7.2, 13.4 (c)",
)
OFFSET_INDEX_COVERAGE = declare(
    "offset-index.coverage",
    _W,
    "An offset index has no entries where it should: each lookup reads the segment from its start.",
    "rmqctl rebuild writes it.",
    broker="Copes, slowly.",
    see="spec 7.2",
)
TIME_INDEX_MISSING = declare(
    "time-index.missing",
    _W,
    "A segment has no time index.",
    "rmqctl rebuild writes it; a broker never does, except where it recovers the segment.",
    broker="Makes an empty one; lookups by time then go by the time of the file.",
    see="spec 13.2, 21 (18)",
)
TIME_INDEX_SIZE = declare(
    "time-index.size",
    _E,
    "The length of a time index is no multiple of 12.",
    "Cut it, or rebuild it.",
    broker=_REBUILT,
    see="spec 7.4",
)
TIME_INDEX_PADDING = declare(
    "time-index.padding",
    _E,
    "A time index that is complete ends with zeros: its trim was lost, and the segment's largest time reads as 0.",
    "Cut the zeros off.",
    broker="Takes the segment for older than it is: retention may delete it, appends may fail.",
    see="spec 7.3, 21 (2); KAFKA-10207, KAFKA-12734",
)
TIME_INDEX_ORDER = declare(
    "time-index.order",
    _E,
    "The timestamps of a time index do not ascend, or its offsets go back.",
    "Rebuild the index.",
    broker=_REBUILT,
    see="spec 8.1",
)
TIME_INDEX_ENTRY = declare(
    "time-index.entry",
    _E,
    "An entry of a time index does not agree with the log: no batch with its offset, or not the largest time up to there.",
    "Rebuild the index.",
    broker=_REBUILT + " Lookups by time answer wrongly.",
    see="spec 8.1, 8.2",
)
TIME_INDEX_LAST = declare(
    "time-index.last",
    _W,
    "The last entry of a complete time index is not the largest time of its segment.",
    "Rebuild the index.",
    broker="Takes the segment for older or newer than it is, in lookups by time and in retention.",
    see="spec 8.2",
)
TXN_INDEX_SIZE = declare(
    "txn-index.size",
    _W,
    "A transaction index ends with part of an entry.",
    "Rebuild the index.",
    broker="Ignores the part, and leaves it in place.",
    see="spec 9.1",
)
TXN_INDEX_VERSION = declare(
    "txn-index.version",
    _E,
    "An entry of a transaction index has a version that does not exist.",
    "Rebuild the index.",
    broker="Does not start where the first byte is not 0; does not notice the second.",
    see="spec 9.1",
)
TXN_INDEX_ENTRY = declare(
    "txn-index.entry",
    _E,
    "An entry of a transaction index is no aborted transaction of the log.",
    "Rebuild the index.",
    broker="Readers of committed records miss records, or get records of aborted transactions.",
    see="spec 9.1",
)
TXN_INDEX_ABSENT = declare(
    "txn-index.absent",
    _E,
    "A transaction that was aborted in the log is not in the transaction index.",
    "Rebuild the index.",
    broker="Readers of committed records get records of the aborted transaction.",
    see="spec 9.1",
)
# --- producers, epochs ------------------------------------------------------------------------------

SNAPSHOT_UNREADABLE = declare(
    "snapshot.unreadable",
    _W,
    "A producer snapshot cannot be used: its CRC, version or length is wrong.",
    "Nothing: a broker deletes it and takes an older one.",
    broker="Deletes it and replays the log from an older one.",
    see="spec 9.2, 13.4",
)
SNAPSHOT_STATE = declare(
    "snapshot.state",
    _W,
    "A producer snapshot does not agree with the batches before it.",
    "Rebuild or delete it: a broker replays the log from an older one.",
    broker="Believes it: producers may be refused, or accepted twice.",
    see="spec 9.2",
)
SNAPSHOT_MISSING = declare(
    "snapshot.missing",
    _N,
    "The last segment has no producer snapshot though producers wrote to the log.",
    "Nothing: a broker makes it. Where none is there after a clean stop, it does so without a scan and forgets the producers.",
    broker="Writes empty snapshots after a clean stop; replays the log after a crash.",
    see="spec 13.4",
)
SNAPSHOT_ORPHAN = declare(
    "snapshot.orphan",
    _N,
    "A producer snapshot belongs to no segment and does not stand at the end of the log.",
    "Nothing: a broker deletes it.",
    broker="Deletes it when it starts.",
    see="spec 13.4",
)
EPOCH_UNREADABLE = declare(
    "epoch.unreadable",
    _E,
    "The leader-epoch-checkpoint cannot be read.",
    "Rebuild it from the batches; an empty file is valid.",
    broker="Takes the directory offline; with one directory it does not start.",
    see="spec 1.2, 9.3",
)
EPOCH_ORDER = declare(
    "epoch.order",
    _W,
    "The entries of the leader-epoch-checkpoint do not ascend.",
    "Rebuild it from the batches.",
    broker="Drops earlier entries that a later one contradicts.",
    see="spec 9.3",
)
EPOCH_BATCHES = declare(
    "epoch.batches",
    _W,
    "The leader-epoch-checkpoint does not agree with the epochs in the batches.",
    "Rebuild it from the batches.",
    broker="Believes the file: followers may cut at the wrong place. After a crash it adds epochs that it meets.",
    see="spec 9.3, 13.3",
)
EPOCH_MISSING = declare(
    "epoch.missing",
    _W,
    "There is no leader-epoch-checkpoint, or it is empty, though batches carry epochs.",
    "Rebuild it from the batches.",
    broker="Starts with an empty chain; followers fall back to the high watermark.",
    see="spec 9.3",
)
EPOCH_BEYOND_END = declare(
    "epoch.beyond-end",
    _W,
    "An entry of the leader-epoch-checkpoint starts after the end of the log.",
    "Nothing: a broker removes it.",
    broker="Removes it when it starts.",
    see="spec 9.3",
)
TRANSACTION_OPEN = declare(
    "transaction.open",
    _N,
    "A transaction has not ended: readers of committed records wait before it.",
    "Normal while it runs; rmqctl transactions says which hang.",
    see="spec 12",
)
# --- files of the directory -------------------------------------------------------------------------

CHECKPOINT_UNREADABLE = declare(
    "checkpoint.unreadable",
    _E,
    "An offset checkpoint cannot be read: a line, its version or its count is wrong.",
    "Rebuild it, or empty it: an empty file is valid.",
    broker="Takes the directory offline; with one directory it does not start.",
    see="spec 1.2",
)
CHECKPOINT_BEYOND_END = declare(
    "checkpoint.beyond-end",
    _W,
    "A recovery point or high watermark lies after the end of its log.",
    "Nothing: a broker takes the end of the log instead.",
    broker="Lowers it. After a crash it checks no segment below a recovery point.",
    see="spec 13.4, 21 (14)",
)
CHECKPOINT_LOG_START = declare(
    "checkpoint.log-start",
    _E,
    "The log start offset of a partition lies after the end of its log: a broker would delete all its segments.",
    "Remove the entry, or set it to the first offset that is to be served.",
    broker="Deletes all segments and begins an empty log at that offset.",
    see="spec 13.4",
)
CHECKPOINT_UNKNOWN = declare(
    "checkpoint.unknown-partition",
    _N,
    "A checkpoint has an entry of a partition that is not here.",
    "Nothing: normal after a topic was deleted or moved.",
    see="spec 1.2",
)
DIRECTORY_IDENTITY = declare(
    "directory.meta-properties",
    _E,
    "meta.properties is missing or cannot be read.",
    "Write it again with the ids of the cluster and the node.",
    broker="Does not start.",
    see="spec 1.1",
)
DIRECTORY_FOREIGN = declare(
    "directory.foreign-directory",
    _E,
    "A directory whose name is no partition's lies in the log directory.",
    "Move it away.",
    broker="Does not start (lost+found is the classic case).",
    see="spec 1",
)
DIRECTORY_NAME = declare(
    "directory.file-name",
    _E,
    "A file with the ending of a segment file has no offset as its name.",
    "Move it away.",
    broker="Fails to load the partition and does not start.",
    see="spec 1.5",
)
DIRECTORY_OTHER = declare(
    "directory.foreign-file",
    _N,
    "A file that is not Kafka's lies in the directory.",
    "Nothing: brokers pass over it.",
    see="spec 21 (19)",
)
DIRECTORY_LEFTOVER = declare(
    "directory.leftover",
    _N,
    "A file waits to be removed or renamed: .deleted, .cleaned, .swap, .tmp or .part.",
    "Nothing: a broker deals with it when it starts.",
    broker="Removes .deleted and .cleaned files, and puts .swap files in the place of what they replace.",
    see="spec 1.5, 13.1",
)
DIRECTORY_SWAP = declare(
    "directory.swap",
    _W,
    "A .swap file stands beside a segment: a broker that starts puts it in the place of the segments that it covers.",
    "Nothing if compaction was broken off; if somebody made the file, move it away before a start.",
    broker="Deletes the segments that it covers and renames it.",
    see="spec 13.1",
)
DIRECTORY_ORPHAN = declare(
    "directory.orphan-index",
    _W,
    "An index belongs to no segment.",
    "Nothing: a broker deletes it.",
    broker="Deletes it when it starts.",
    see="spec 13.2",
)
DIRECTORY_TOPIC_ID = declare(
    "directory.partition-metadata",
    _E,
    "partition.metadata is missing or cannot be read where topics have ids.",
    "Write it again with the id that the metadata log gives.",
    broker="A missing file makes a KRaft broker rename the directory to -stray and begin an empty one; a bad one takes the directory offline.",
    see="spec 9.4",
)
DIRECTORY_OTHER_ID = declare(
    "directory.topic-id",
    _E,
    "The topic id of a partition is not that of the cluster's metadata.",
    "Write the id that the metadata log gives, if the data belongs to that topic.",
    broker="Renames the directory to -stray and begins an empty one.",
    see="spec 9.4",
)
DIRECTORY_STRAY = declare(
    "directory.stray",
    _W,
    "A partition is not in the cluster's metadata, or its directory is marked as stray.",
    "Nothing if the topic was deleted; else look at the metadata log.",
    broker="Renames the directory to -stray, or leaves it.",
    see="spec 1.4",
)
DIRECTORY_EMPTY = declare(
    "directory.no-segment",
    _W,
    "A partition's directory holds no segment.",
    "Nothing: a broker begins an empty log; if data was there, restore it.",
    broker="Begins an empty log.",
    see="spec 13.4",
)
DIRECTORY_DOUBLE = declare(
    "directory.double",
    _E,
    "One partition lies in two log directories.",
    "Compare them, and move one away.",
    broker="Does not start.",
    see="spec 1.4",
)
QUORUM_STATE = declare(
    "metadata.quorum-state",
    _W,
    "The quorum-state file is missing or cannot be read.",
    "Nothing where other controllers are up: a node that lost it may vote twice in an epoch.",
    broker="Begins without a vote.",
    see="spec 10.4",
)
METADATA_REPLAY = declare(
    "metadata.replay",
    _E,
    "A record of the metadata log or of a snapshot cannot be applied.",
    "Compare with another controller's directory: rmqctl diff.",
    broker="The controller or broker stops with a fatal fault.",
    see="spec 10.4",
)
METADATA_SNAPSHOT = declare(
    "metadata.snapshot",
    _E,
    "The metadata log starts after offset 0 and no snapshot reaches its start.",
    "Restore the snapshot from another controller.",
    broker="Cannot load the cluster's metadata.",
    see="spec 10.4",
)

OF_GAPS: dict[GapKind, FindingKind] = {
    GapKind.ZEROS: BATCH_ZEROS,
    GapKind.ZERO_TAIL: BATCH_ROOM,
    GapKind.SIZE: BATCH_SIZE,
    GapKind.MAGIC: BATCH_MAGIC,
    GapKind.CRC: BATCH_LENGTH,
    GapKind.CUT: BATCH_CUT,
}
"""What a gap of the scan is called, where nothing is known of the log around it; see :func:`kind_of_gap`."""
LEAST_ZEROS = 18
"""Zeros after the last batch that a broker takes for a batch; it passes over fewer (spec 2)."""


def kind_of_gap(gap: Gap, *, growing: bool) -> FindingKind:
    """What a gap of the scan is called.

    Args:
        growing: it lies in the last segment of a log that was not stopped in order, whose end may be torn.
    """
    if gap.why is GapKind.CUT and growing and not gap.resumed:
        return BATCH_TORN_TAIL
    if gap.why is GapKind.ZERO_TAIL and not growing and gap.end - gap.position >= LEAST_ZEROS:
        return BATCH_ZERO_END
    return OF_GAPS[gap.why]
