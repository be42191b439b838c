"""The table of everything that can be wrong with a RocketMQ store.

Ids never change. ``see`` names sections of the format reference (spec) and issues of apache/rocketmq.
"""

from __future__ import annotations

from rmqctl.findings import FindingKind, Severity, register

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE


def _kind(id: str, severity: Severity, meaning: str, remedy: str, **more: str) -> FindingKind:
    kind = FindingKind(id, severity, meaning, remedy, **more)
    register(kind)
    return kind


# --- the commit log ---------------------------------------------------------------------------

LOG_BAD_RECORD = _kind(
    "log.bad-record",
    _E,
    "Bytes in the middle of the log are no record: the magic, the size or a length inside is wrong. Sound records follow.",
    "Do not start the broker before the damage is repaired: its recovery drops everything behind it. See it with "
    "`rmqctl dump -o hex`, copy the store, then plan a repair.",
    broker="Recovery that scans this file stops here, cuts the file and deletes all later ones.",
    see="spec 6.2, 6.3, 14.26",
)
LOG_BODY_CRC = _kind(
    "log.body-crc",
    _E,
    "The body does not match the CRC-32 stored in the record: the body, or the CRC field, was changed after it was written.",
    "The rest of the record is intact. Restore the body from a replica, or accept the loss of this one message.",
    broker="Recovery that scans this file treats the record as the end of the log and drops everything behind it.",
    see="spec 2.5, 6.2",
)
LOG_PROPERTY_CRC = _kind(
    "log.property-crc",
    _E,
    "The record carries a CRC over all its bytes (`__CRC32#`), and it does not match: something in the record was changed.",
    "Compare the record with a replica; topic, properties or header fields may be wrong although the body CRC fits.",
    broker="Checked only with forceVerifyPropCRC=true; then the record ends the log.",
    fixed_in="5.3.1",
    see="spec 2.7; #8350: 20 odd bytes at the end of properties",
)
LOG_CRC_ZERO = _kind(
    "log.crc-zero",
    _N,
    "The property CRC of this record is zero and right. Brokers 5.2.0 to 5.3.1 with forceVerifyPropCRC refuse it.",
    "Use a broker of 5.3.2 or later, or leave forceVerifyPropCRC off.",
    fixed_in="5.3.2",
    see="spec 2.7; #9121",
)
LOG_PROPERTIES_LOST = _kind(
    "log.properties-damaged",
    _E,
    "The properties hold bytes no encoder writes (zeros, or text cut inside a pair) while the body is good: the body CRC "
    "does not cover them, so a broker serves the message without its keys and tags.",
    "Restore the record from a replica; without one the properties cannot be proven.",
    broker="Accepts the record as it is.",
    see="spec 2.6, 6.2; #7437",
)
LOG_PHYSICAL_OFFSET = _kind(
    "log.physical-offset",
    _E,
    "A whole record says it lies elsewhere in the log: the field was damaged, or the record belongs to another file that "
    "was reused or renamed.",
    "If its neighbours are right, only the field is damaged. If the whole file differs, check the file's name.",
    broker="Not compared by recovery; dispatch takes the wrong offset over into queues and index.",
    see="spec 2.1, 6.2; #10017: reused file",
)
LOG_QUEUE_OFFSET = _kind(
    "log.queue-offset",
    _E,
    "QUEUEOFFSET does not continue its queue: records are missing between, or the field was damaged, or the broker lost "
    "queue units and gave the same offsets again.",
    "Compare with the queue unit at that offset: `rmqctl dump` of the queue.",
    broker="Appends the unit at the end of the queue all the same; position and offset then differ.",
    see="spec 2.16, 3.4, 14.25",
)
LOG_STORE_TIME = _kind(
    "log.store-time",
    _W,
    "The store time is before that of the record in front of it, or zero: the broker's clock was set back, or the field was damaged.",
    "Time lookups near this place may answer wrongly; nothing to repair if the clock was stepped.",
    broker="A first record of a file with store time 0 is passed over when recovery chooses its start.",
    see="spec 6.4, 14.24",
)
LOG_BLANK = _kind(
    "log.blank",
    _W,
    "The blank record that ends a full file is wrong: its size does not reach the end of the file, or it was destroyed.",
    "If only the size is wrong brokers do not care; a destroyed blank stops recovery: restore its eight bytes.",
    broker="Goes to the next file at any blank, whatever its size; bytes that are no blank end the log.",
    see="spec 2.9",
)
LOG_GAP = _kind(
    "log.gap",
    _E,
    "A file is missing between two files of the log.",
    "Look for the file on other commit log paths or replicas. Units that point into it cannot be served.",
    broker="Starts and only logs it; recovery walks over the hole.",
    see="spec 1.2",
)
LOG_FILE_LENGTH = _kind(
    "log.file-length",
    _E,
    "A file of the log has another length than the others.",
    "Extend a short file with zeros to the full length on a copy, or take it from a replica; a longer one was not written by a broker.",
    broker="From 4.5.1 on refuses to start; an empty last file is deleted from 5.1.3 on.",
    see="spec 1.2",
)
LOG_FILE_NAME = _kind(
    "log.file-name",
    _E,
    "A name in the log's directory is not a file offset, or not a multiple of the file size.",
    "Move the file out of the directory.",
    broker="A name that is no number stops the broker at load.",
    see="spec 1.2, 14.28",
)
LOG_MISSING = _kind(
    "log.missing",
    _E,
    "The store has no commit log, or no file in it, while queues or configuration exist.",
    "Do not start the broker: without a log it deletes all queues. Look for the log on another path (--commitlog).",
    broker="Starts with an empty log and destroys every consume queue.",
    see="spec 6.3, 1",
)
LOG_TORN_TAIL = _kind(
    "log.torn-tail",
    _E,
    "The log ends in bytes that are no whole record: the last write did not reach the disk completely.",
    "The broker cuts these bytes at start-up; the message was never complete on this disk.",
    broker="Recovery ends the log in front of it.",
    see="spec 6.2",
)
LOG_STALE_TAIL = _kind(
    "log.stale-tail",
    _W,
    "Old records lie behind the end of the log: a recovery once cut the log here and left the bytes. They are not part of "
    "the log, but could come back if the chain reaches them.",
    "Nothing if the broker runs well; to be safe zero the bytes behind the end on a stopped store.",
    broker="Overwrites them in time; a stale record that happens to follow the end is taken back into the log.",
    see="spec 6.5, 14.3; #10666",
)
LOG_ZERO_FILE = _kind(
    "log.zero-file",
    _N,
    "The file behind the last one with data is all zeros: brokers create the next file in advance.",
    "Nothing to do; a clean stop or a recovery deletes it.",
    see="spec 1.1, 14.1",
)
LOG_COMPRESSION = _kind(
    "log.compression",
    _E,
    "The compressed flag does not fit the body: it cannot be decompressed, or the compression type is unknown.",
    "The CRC says whether the body itself is intact; if it is, the flag was damaged.",
    broker="Stores and serves it unseen; consumers fail on the message.",
    see="spec 2.3, 2.10",
)
LOG_TOPIC = _kind(
    "log.topic",
    _W,
    "The topic in the record has characters or a length that no broker accepts: it was damaged, or written by something else.",
    "Compare with the queue unit that points here.",
    broker="Creates a queue of that name at dispatch.",
    see="spec 1, 2.2",
)
LOG_SIZE = _kind(
    "log.size",
    _W,
    "The record is larger than a broker with default settings accepts (maxMessageSize 4 MiB plus 64 KiB).",
    "Fine if maxMessageSize was raised; give --broker-conf to say so.",
    see="spec 2.8, 14.30",
)
LOG_V2 = _kind(
    "log.v2-record",
    _N,
    "The record has the V2 layout (two-byte topic length), which brokers before 5.1.0 cannot read.",
    "Do not downgrade this store below 5.1.0; it is not damage.",
    broker="Before 5.1.0 recovery stops here as at damage.",
    see="spec 2.2, 14.9",
)
LOG_DLEDGER_ENTRY = _kind(
    "log.dledger-entry",
    _E,
    "A DLedger entry header does not fit its place: index, position or size is not what the chain demands.",
    "Restore the range from another member of the group.",
    see="spec 2.14",
)

# --- consume queues ---------------------------------------------------------------------------

QUEUE_UNIT_MISMATCH = _kind(
    "queue.unit-mismatch",
    _E,
    "A queue unit does not fit the record it stands for: offset, size or tags code differ, or it points where no such record is.",
    "The log is the truth: rebuild the queue from it.",
    broker="Serves whatever the unit points at, or skips to the next log file when it cannot be read.",
    see="spec 3.1, 8.1",
)
QUEUE_MISSING_UNITS = _kind(
    "queue.missing-units",
    _E,
    "The log holds messages of this queue that have no unit in it: consumers cannot see them.",
    "Rebuild the queue from the log before a broker hands out the same queue offsets again.",
    broker="Re-dispatches only what lies behind the recovery start; the rest stays invisible.",
    see="spec 2.16, 6.7",
)
QUEUE_MISSING = _kind(
    "queue.missing",
    _E,
    "The log holds messages of a queue that has no files at all.",
    "Rebuild the queue from the log.",
    broker="Rebuilds it only if all queues are gone, or after an unclean exit as far as recovery scans.",
    see="spec 6.7",
)
QUEUE_UNDISPATCHED = _kind(
    "queue.undispatched",
    _N,
    "The last messages of the log have no queue units yet: the broker stopped before dispatch reached them.",
    "Nothing: the recovery after an unclean exit dispatches them.",
    broker="Dispatches them again at start-up.",
    see="spec 6.4",
)
QUEUE_AHEAD = _kind(
    "queue.ahead",
    _E,
    "Units point behind the end of the log: the log lost its tail, or was cut, after they were written.",
    "The messages are gone from this log; a broker cuts the units. Look for the tail on a replica first.",
    broker="Cuts them when the largest such offset is at or behind the end of the log.",
    see="spec 6.3, 14.4",
)
QUEUE_HOLE = _kind(
    "queue.hole",
    _E,
    "An empty unit stands between units: the queue ends there for a broker that recovers it.",
    "Rebuild the queue from the log.",
    broker="Recovery of the queue ends at the first empty unit and cuts what follows.",
    see="spec 6.6",
)
QUEUE_STALE_TAIL = _kind(
    "queue.stale-tail",
    _W,
    "Units behind the end of the queue do not continue it: left over from a cut, or foreign bytes.",
    "Nothing if a broker has run since; a rebuild leaves them out.",
    broker="Counts them as units if they look valid.",
    see="spec 6.6, 14.4",
)
QUEUE_TORN_UNIT = _kind(
    "queue.torn-unit",
    _E,
    "The file ends inside a unit, or a unit is only partly written.",
    "Rebuild the queue from the log.",
    broker="Refuses to start when the file's length is wrong.",
    fixed_in="5.4.0",
    see="#10108, #9728",
)
QUEUE_FILE_LENGTH = _kind(
    "queue.file-length",
    _E,
    "A queue file has another length than the others.",
    "Rebuild the queue from the log, or extend the file with zeros to its full length on a copy.",
    broker="From 4.5.1 on refuses to start; an empty last file is deleted from 5.1.3 on.",
    see="spec 1.2; #10108, #9728",
)
QUEUE_FILE_NAME = _kind(
    "queue.file-name",
    _E,
    "A name in a queue's directory is no file offset, or not a multiple of the file size.",
    "Move the file out of the directory.",
    broker="A name that is no number stops the broker at load.",
    see="spec 1.2",
)
QUEUE_FILE_GAP = _kind(
    "queue.file-gap",
    _E,
    "A file is missing between two files of a queue.",
    "Rebuild the queue from the log.",
    broker="Starts; reads in the hole answer OFFSET_FOUND_NULL.",
    see="spec 1.2",
)
QUEUE_MIN_OFFSET = _kind(
    "queue.min-offset",
    _N,
    "The first units of the queue point before the start of the log: their messages have expired.",
    "Nothing: brokers compute the first offset that is still there.",
    see="spec 3.9, 14.5",
)
QUEUE_ORPHAN = _kind(
    "queue.orphan",
    _W,
    "A queue exists for a topic that topics.json does not know.",
    "Harmless; create the topic if its messages are still wanted, else delete it with the broker's own command.",
    broker="Loads the queue all the same; expiry removes it when empty.",
    see="spec 1.2",
)
QUEUE_EXT = _kind(
    "queue.extension",
    _E,
    "A unit's tags code is an address into consumequeue_ext where no fitting extension unit lies.",
    "Brokers treat the tag as unknown and let the message match; rebuild to mend.",
    see="spec 3.5",
)

# --- index ------------------------------------------------------------------------------------

INDEX_HEADER = _kind(
    "index.header",
    _E,
    "The header of an index file cannot be right: counts outside the file, or times and offsets that contradict its entries.",
    "Rebuild the index from the log.",
    broker="Believes it: queries by key may find nothing in this file.",
    see="spec 4.1",
)
INDEX_COUNT = _kind(
    "index.count",
    _W,
    "The header's slot count is not what the release that wrote the file would have counted.",
    "No query reads it; it only shows that the file was written by another release or header and slots are out of step.",
    fixed_in="4.7.1",
    see="spec 4.1",
)
INDEX_CHAIN = _kind(
    "index.chain",
    _E,
    "A slot or a chain of entries is broken: it points outside the entries, forwards, in a circle, or to another slot's entries.",
    "Rebuild the index from the log.",
    broker="Queries follow the chain as it is and miss keys or loop until their limit.",
    see="spec 4.3, 4.6",
)
INDEX_ENTRY = _kind(
    "index.entry-mismatch",
    _E,
    "An index entry points at a record that has no key with its hash, or at no record at all.",
    "Rebuild the index from the log; until then queries by key check the message and drop the false hit.",
    see="spec 4.2, 6.8",
)
INDEX_COVERAGE = _kind(
    "index.coverage",
    _W,
    "Messages with keys are in no index file: queries by key do not find them.",
    "Rebuild the index from the log, or use a scan of the log to find them.",
    broker="Never indexes them again unless recovery scans their file.",
    see="spec 6.8, 14.17",
)
INDEX_BEYOND = _kind(
    "index.beyond-log",
    _W,
    "Index entries point behind the end of the log: brokers never cut index files.",
    "Harmless for queries; new messages below the file's endPhyOffset will not be indexed. Rebuild the index to mend.",
    see="spec 6.8",
)
INDEX_FILE_LENGTH = _kind(
    "index.file-length",
    _E,
    "An index file is shorter or longer than its slots and entries need.",
    "Rebuild the index from the log.",
    broker="Extends a short file with zeros, silently; its entries are lost.",
    see="spec 4.5",
)
INDEX_FILE_NAME = _kind(
    "index.file-name",
    _W,
    "A name in index/ is not a time of 17 digits.",
    "Move it out of the directory.",
    broker="Skips it with an error in its log.",
    see="spec 4.5",
)
INDEX_NEWER = _kind(
    "index.newer-than-checkpoint",
    _N,
    "After an unclean exit the broker deletes this index file, because it is newer than the checkpoint, and rebuilds it "
    "from where recovery starts.",
    "Nothing; keep a copy if the log before the recovery start has expired.",
    broker="Deletes it at start-up.",
    see="spec 4.5; #8007",
)
INDEX_MISSING = _kind(
    "index.missing",
    _W,
    "Messages have keys, but the store has no index file for them.",
    "Rebuild the index from the log if queries by key are needed.",
    see="spec 4.3",
)

# --- checkpoint, lock, abort --------------------------------------------------------------------

CHECKPOINT_ZERO = _kind(
    "checkpoint.zero",
    _W,
    "The checkpoint's times are zero although the log has messages: recovery will scan the whole log.",
    "Harmless but slow; a clean stop writes it again.",
    broker="Starts recovery at the first file (5.4.0 and later: at most ten files).",
    see="spec 5, 6.4; #1153",
)
CHECKPOINT_AHEAD = _kind(
    "checkpoint.ahead",
    _E,
    "The checkpoint claims times later than anything in the store: after a crash recovery would start too late.",
    "Zero the checkpoint, so that recovery scans everything.",
    broker="Chooses a recovery start behind messages that were not dispatched.",
    see="spec 5, 6.4; #7233, #10073",
)
CHECKPOINT_BEHIND = _kind(
    "checkpoint.behind",
    _N,
    "The checkpoint is older than the last message: normal after a crash, it only makes recovery scan more.",
    "Nothing.",
    see="spec 5",
)
CHECKPOINT_MISSING = _kind(
    "checkpoint.missing",
    _W,
    "There is no checkpoint file although the log has messages.",
    "Nothing to do before a start: brokers create it and scan the whole log.",
    broker="Reads it as all zero.",
    see="spec 5",
)
CHECKPOINT_LENGTH = _kind(
    "checkpoint.length",
    _W,
    "The checkpoint file is too short to hold its fields.",
    "Brokers extend it with zeros and scan the whole log.",
    broker="Reads missing fields as zero.",
    see="spec 5",
)
STORE_ABORT = _kind(
    "store.abort",
    _N,
    "The file `abort` is there and no broker runs: the last exit was not clean.",
    "The next start does an abnormal recovery; look at it first with `rmqctl verify`.",
    broker="Recovers from the checkpoint on, deletes index files newer than it.",
    see="spec 12",
)
STORE_RUNNING = _kind(
    "store.running",
    _N,
    "A broker holds the lock of this store: what was read may be changing.",
    "Findings at the tail may be gone in a moment; stop the broker for a full check.",
    see="spec 12",
)

# --- configuration ------------------------------------------------------------------------------

CONFIG_UNREADABLE = _kind(
    "config.unreadable",
    _E,
    "A configuration file cannot be read as JSON, and its .bak does not help either.",
    "Restore it from another broker of the cluster; an empty file and no .bak make some releases refuse to start.",
    broker="Falls back to the .bak; if that fails too the broker does not start, or starts without the data (4.9.8 topics.json).",
    see="spec 9.1",
)
CONFIG_FALLBACK = _kind(
    "config.fallback",
    _W,
    "A configuration file cannot be read, but its .bak is good: the broker will use the older content.",
    "Copy the .bak over the file after looking at both.",
    broker="Loads the .bak.",
    see="spec 9.1",
)
CONFIG_CONSUMER_OFFSET = _kind(
    "config.consumer-offset",
    _W,
    "A consumer group's offset is behind the end of its queue: after a cut of the log it waits for messages that never come.",
    "Reset the group's offset to the end of the queue.",
    broker="Corrects it at the next pull, which can skip or repeat messages.",
    see="spec 9.2",
)
CONFIG_DELAY_OFFSET = _kind(
    "config.delay-offset",
    _W,
    "The progress of a delay level is outside its queue.",
    "Brokers from 4.9.2 on correct it at start-up; older ones stop delivering that level.",
    fixed_in="4.9.2",
    see="spec 6.1, 9.2",
)
CONFIG_UNKNOWN_TOPIC = _kind(
    "config.unknown-topic",
    _N,
    "A consumer group has an offset for a topic that the store does not know.",
    "Harmless; left over from a deleted topic.",
    see="spec 9.2",
)

# --- files ----------------------------------------------------------------------------------------

FILE_STRAY = _kind(
    "file.stray",
    _W,
    "A file or directory lies where the broker keeps its own and belongs to none of its formats.",
    "Move it away; some stray names stop a broker.",
    see="spec 1.2, 14.28",
)
FILE_EMPTY = _kind(
    "file.empty",
    _W,
    "A file has no bytes.",
    "Delete it on a stopped store, or let a broker of 5.1.3 or later do it.",
    broker="Before 5.1.3 an empty last file stops the broker.",
    fixed_in="5.1.3",
    see="spec 1.2; #10108",
)
FILE_UNREADABLE = _kind(
    "file.unreadable",
    _E,
    "A file could not be read: no permission, an I/O error, or it vanished meanwhile.",
    "Mend the permission or the disk and run again.",
)
TIMER_LOG = _kind(
    "timer.log",
    _E,
    "A unit of the timer log, or a slot of the timer wheel, is damaged or points nowhere.",
    "Delete timerlog/ and timerwheel on a stopped store: brokers rebuild them from the queue of rmq_sys_wheel_timer.",
    broker="Recovery cuts the timer log at the first bad unit.",
    see="spec 11.4",
)
