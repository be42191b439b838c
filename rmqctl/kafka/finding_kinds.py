"""What can be wrong with a Kafka log directory, area by area: the kinds of findings."""

from __future__ import annotations

from rmqctl.findings import FindingKind, Severity, declare
from rmqctl.kafka.block import GapKind

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

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
RECORD_UNREADABLE = declare(
    "record.unreadable",
    _E,
    "The records of the batch cannot be read as the header states them, though the CRC may match: they were written by a "
    "faulty client, or damaged together with the CRC.",
    "The records before the place are shown. `rmqctl dump -o hex` shows the bytes.",
    broker="Not noticed when the log is loaded; consumers stop at the batch.",
    see="spec 2, 3, 5",
)
FILE_REST = declare(
    "offset-index.rest",
    _W,
    "The size of an index is no multiple of its entries: bytes are left at its end.",
    "Delete the index; a broker makes `.index` again when it starts, and `.timeindex` with it.",
    broker="Not checked when the log is loaded since 2.3.",
    see="spec 7.4",
)
SNAPSHOT_UNREADABLE = declare(
    "snapshot.unreadable",
    _E,
    "The producer snapshot is of an unknown version, its CRC does not match, or entries are missing.",
    "Delete the file: the state is built again from an older snapshot and the log.",
    broker="Deletes it and uses an older one.",
    see="spec 9.2",
)
CHECKPOINT_UNREADABLE = declare(
    "checkpoint.unreadable",
    _E,
    "A line of the text file is not what it should be: the version, the number of entries, or an entry.",
    "Restore the file, or write it again: the version, the number of entries, an entry a line.",
    broker="Takes the log directory offline; recovery points and log starts count as missing.",
    see="spec 1.2, 9.3",
)
FILE_UNREADABLE = declare(
    "directory.unreadable-file",
    _E,
    "The system refuses to read the file.",
    "Let this user read it, or copy what can still be read to another disk.",
)

OF_GAPS: dict[GapKind, FindingKind] = {
    GapKind.ZEROS: BATCH_ZEROS,
    GapKind.ZERO_TAIL: BATCH_ROOM,
    GapKind.SIZE: BATCH_SIZE,
    GapKind.MAGIC: BATCH_MAGIC,
    GapKind.CRC: BATCH_LENGTH,
    GapKind.CUT: BATCH_CUT,
}
"""What a gap of the scan is called."""
