"""Findings in segments: batches, records, segments that are gone (spec 2 to 6, 13)."""

from __future__ import annotations

from functools import partial

from rmqctl.findings import Severity, declare, declare_difference

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_declare = partial(declare, page="emergency/segment-corrupt")

BATCH_CRC = _declare(
    "batch.crc",
    _E,
    "The bytes of the batch do not match its CRC-32C (CRC-32 of messages of magic 0 and 1): they were changed after they were written.",
    "Fetch the batch again from another replica, or accept the loss of its records: `rmqctl dump -o hex` shows the bytes.",
    broker="Recovery after a crash cuts the log here and deletes all later segments; a consumer gets a corrupt record error.",
    see="spec 2, 13.3",
)
BATCH_SIZE = _declare(
    "batch.size",
    _E,
    "The size in the frame is less than any batch can have: the field was damaged, or something else was written here.",
    "What follows is shown where batches prove themselves. Copy the directory before a broker starts on it.",
    broker="Reading stops here; at the end of a log that was stopped in order the start fails.",
    see="spec 2, 13.4",
)
BATCH_MAGIC = _declare(
    "batch.magic",
    _E,
    "The magic is none that is known: brokers read 3 and above as 2 without a word, and a negative one as a message of magic 0.",
    "The magic lies outside the CRC, so the rest of the batch may be whole.",
    broker="3 to 127 pass even recovery unnoticed.",
    see="spec 2, 21.21",
)
BATCH_ZEROS = _declare(
    "batch.zeros",
    _E,
    "Zeros stand where a batch was expected, and batches follow: a page was lost, or a write never reached the disk.",
    "Fetch the range again from another replica.",
    broker="Recovery after a crash cuts the log here.",
    see="spec 13.4, 21.5",
)
BATCH_CUT = _declare(
    "batch.cut",
    _E,
    "The frame states more bytes than the file has, or the batch begins in the middle of the file and batches follow it.",
    "If it is the end of the log, the last write was torn; nothing but its records is lost.",
    broker="Readers stop here without a word; recovery after a crash cuts the log here. After an orderly stop the torn "
    "bytes stay, and what is appended after them cannot be read.",
    see="spec 2, 13.4",
)
BATCH_LENGTH = _declare(
    "batch.length",
    _E,
    "The batch does not match its CRC, and no batch follows where it ends: its size, or the bytes after it, are damaged.",
    "What follows is shown where batches prove themselves.",
    broker="Recovery after a crash cuts the log here.",
    see="spec 2, 13.5",
)
BATCH_ROOM = _declare(
    "batch.zero-tail",
    _N,
    "The file ends with zeros that were never written: it was made in its full size, or the file system lost its length in a crash.",
    "Nothing to do where a broker starts on it after a crash: it cuts them off.",
    broker="Cut at recovery. After an orderly stop 18 or more zeros make the start fail.",
    see="spec 1.6, 13.4",
    page="emergency/missing-messages",
)
BATCH_TORN_TAIL = _declare(
    "batch.torn-tail",
    _W,
    "The log of a broker that crashed ends with part of a batch: it was being written.",
    "Nothing: the broker cuts it when it starts. It was not acknowledged by this broker's disk.",
    broker="Cuts the part off.",
    see="spec 13.3, 21 (5)",
    page="emergency/missing-messages",
)
BATCH_ZERO_END = _declare(
    "batch.zero-end",
    _E,
    "A segment ends with zeros although it is complete: not the last one, or the broker was stopped in order.",
    "Cut the zeros off.",
    broker="In the last segment, 18 or more make the start after a clean stop fail; a second one cuts them. Earlier ones stay.",
    see="spec 13.4 (a)",
)
BATCH_BASE_OFFSET = _declare(
    "batch.base-offset",
    _E,
    "The base offset of a batch is not one that its segment can hold: below the segment's own, or 2^31 and more above it.",
    "Restore the eight bytes from a replica; no CRC covers them.",
    broker="An offset below the segment's makes loading fail; one too far above makes it split the segment.",
    fixed_in="2.0 (KAFKA-6264, for segments that were written so)",
    see="spec 13.2, 13.3; KAFKA-6264",
)
BATCH_OFFSET_ORDER = _declare(
    "batch.offset-order",
    _E,
    "The offsets of a batch are not above those of the batches before it: it was moved, doubled, or its base offset has changed.",
    "Compare with a replica; no CRC covers a base offset.",
    broker="Does not notice it, except at index points; consumers get messages twice, or skip some.",
    see="spec 13.3, 21 (21, 23)",
)
BATCH_WRAPPER = _declare(
    "batch.wrapper-offset",
    _E,
    "A compressed message of magic 0 has another offset than the last message inside, whose own the CRC covers.",
    "`rmqctl repair` puts the offset of the last one inside back.",
    broker="Goes by the offset outside: lookups pass over messages inside that are above it, the log ends with it, and what "
    "is appended gets the one after it.",
    see="spec 6",
)
BATCH_OFFSET_GAP = _declare(
    "batch.offset-gap",
    _W,
    "Offsets are missing between two batches of a topic that shows no sign of compaction.",
    "Compare with a replica (`rmqctl diff`). A follower that fetched from a compacted log has such gaps, too. Before the last "
    "batch of a log its own base offset may be the wrong one: `repair` sets it right where no other offsets are missing, and the "
    "offset index or the recovery point of an orderly stop proves that it follows the batch before it.",
    broker="Reads over it; the next record gets the offset after the last batch.",
    see="spec 1.5, 14, 21 (17)",
)
BATCH_COUNT = _declare(
    "batch.count",
    _E,
    "A batch states more records than its offsets have room for, or a negative number.",
    "Restore the batch from a replica.",
    broker="Recovery does not look; consumers stop at it.",
    see="spec 2",
)
BATCH_CODEC = _declare(
    "batch.codec",
    _E,
    "A batch names a compression that does not exist.",
    "Restore the batch from a replica.",
    broker="Serves it; consumers fail.",
    see="spec 2, 5",
)
BATCH_TIMESTAMP_SPAN = _declare(
    "batch.timestamp-span",
    _N,
    "The timestamps of a batch lie more than 24.8 days apart: client libraries that read the difference as 32 bits get wrong times.",
    "Nothing on the broker; use a client that reads 64 bits.",
    see="spec 3",
)
BATCH_FUTURE = _declare(
    "batch.future-time",
    _W,
    "Records are stamped later than the year 9999: a producer sends microseconds or nanoseconds where milliseconds are meant.",
    "Nothing on the disk: mend the producer; message.timestamp.after.max.ms (3.6 and later) keeps such records out. Give the topic retention.bytes: by time "
    "this segment and those after it are never deleted.",
    broker="Serves them. Retention by time ends at the segment, and lookups by time lead to it.",
    see="KAFKA-6482",
    by_hand=True,
)
BATCH_LEADER_EPOCH = _declare(
    "batch.leader-epoch",
    _E,
    "The leader epoch of a batch is higher than that of batches after it: epochs never go back along a log. Or it is that of the "
    "last batches, and of no leader that there was.",
    "Restore the four bytes from a replica; no CRC covers them.",
    broker="After a crash it adds the epoch to its chain, and followers may cut their logs at the wrong place.",
    see="spec 9.3, 13.3",
)
BATCH_SEQUENCE = _declare(
    "batch.sequence",
    _W,
    "The sequence numbers of a producer do not follow each other, in a topic without compaction and without other damage here.",
    "Look for batches that were lost or doubled; compare with a replica.",
    broker="Accepts what is in the log.",
    see="spec 2, 9.2",
)
BATCH_PRODUCER_EPOCH = _declare(
    "batch.producer-epoch",
    _W,
    "A batch carries a lower epoch than its producer had before: brokers refuse such batches.",
    "Compare with a replica.",
    broker="Accepts what is in the log.",
    see="spec 9.2",
)
RECORD_UNREADABLE = _declare(
    "record.unreadable",
    _E,
    "The records of the batch cannot be read as the header states them, though the CRC may match: they were written by a "
    "faulty client, or damaged together with the CRC.",
    "The records before the place are shown. `rmqctl dump -o hex` shows the bytes.",
    broker="Not noticed when the log is loaded; consumers stop at the batch.",
    see="spec 2, 3, 5",
)
RECORD_OFFSET = _declare(
    "record.offset",
    _E,
    "The offset of a record is not inside its batch, or not above that of the record before it.",
    "It was written so: look at the producer.",
    broker="Serves it; consumers may skip or repeat records.",
    see="spec 3, 16.3",
)
RECORD_MAX_TIMESTAMP = _declare(
    "record.max-timestamp",
    _W,
    "The largest timestamp of a batch's records is not the one in its header.",
    "Lookups by time may miss or pass records of this batch.",
    broker="Believes the header.",
    see="spec 2, 16.3",
)
RECORD_CONTROL = _declare(
    "record.control",
    _E,
    "A control batch holds no control record that can be read.",
    "Restore the batch from a replica.",
    broker="Fails to load the partition's producer state.",
    see="spec 4",
)
SEGMENT_MISSING = declare(
    "segment.missing",
    _E,
    "The log file of a segment is gone while its index or snapshot is there and its offsets are missing. Of the first segments: "
    "the leader-epoch-checkpoint begins before the log, and the topic's settings let no broker delete segments. A warning where "
    "no metadata log has the settings.",
    "Restore the file from a replica, or from a .deleted or .swap file beside it.",
    broker="Deletes the index files that are left over, and goes on without the offsets.",
    see="spec 13.2",
    page="emergency/file-deleted",
)
SEGMENT_NAME = declare(
    "segment.name",
    _E,
    "The name of a segment is not the offset at which its batches begin: they all belong to another segment's offsets, or the "
    "name lies among the offsets of the segment before.",
    "`repair` gives it the name that its batches prove.",
    broker="Looks for offsets by the names of segments: records are hidden, served twice, or their segment is not loaded.",
    see="spec 1.5, 13.2",
    page="emergency/file-deleted",
)
SEGMENT_EMPTIED = declare(
    "segment.emptied",
    _E,
    "A segment that is not the last is empty and its offsets are missing; in a compacted log that is damage where its indexes have entries.",
    "Restore the file from a replica.",
    broker="Goes on without the offsets.",
    see="spec 1.5",
    page="emergency/file-deleted",
)

DIFF_BATCH = declare_difference(
    "diff.batch",
    Severity.NOTE,
    "The same offsets lie in other batches, and the records that both have are equal: one copy was compressed again, or they were compacted at other times.",
    "Nothing: followers and the cleaner do so. `diff --by queue` leaves it out where no record is missing.",
    see="spec 14",
)
DIFF_EPOCH = declare_difference(
    "diff.epoch",
    Severity.ERROR,
    "Two copies have batches of different leader epochs at the same offsets: their logs have parted.",
    "`rmqctl elect` says which copy may lead; the other one is cut where they part as soon as it follows (`recover --leader`).",
    broker="A follower cuts its log to the end that the leader gives for its last epoch (KIP-101).",
    see="spec 9.3",
)
