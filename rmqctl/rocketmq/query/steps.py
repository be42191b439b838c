"""What a query looked at, step by step, and the reasons why it found nothing.

`--explain` prints the steps in order. The last one carries an ``id`` of the table below; ids never
change once released, so scripts and tests may match on them.
"""

from __future__ import annotations

from rmqctl.explain import declare_miss
from rmqctl.text import instant

_FOREVER = 1 << 62


def span(begin: int, end: int) -> str:
    """Return a range of times in words."""
    if begin <= 0 and end > _FOREVER:
        return "all times"
    if end > _FOREVER:
        return f"from {instant(begin)} on"
    return f"up to {instant(end)}" if begin <= 0 else f"{instant(begin)} to {instant(end)}"


# --- the question ---------------------------------------------------------------------------------

UNKNOWN_TOPIC = declare_miss(
    "unknown-topic",
    "the store knows no topic {topic}{nearest}",
    "Neither a queue directory, nor config/topics.json, nor the log knows the topic.",
)
NO_QUEUE = declare_miss(
    "no-queue",
    "topic {topic} has no queue {queue_id}; its queues are {queues}",
    "The topic exists, but this queue of it was never written or created.",
)
KEY_NOWHERE = declare_miss(
    "key-nowhere",
    "no message of the log has {key} {where}",
    "The log was read from its first to its last record, and no message carries the key: it was never sent to this "
    "broker, or its log file is gone.",
)
LOG_DAMAGED = declare_miss(
    "log-damaged",
    "no readable message of the log has {key}, but the log is damaged at {places}, where {text}",
    "What lay in damaged or missing parts of the log is lost to every query; no index entry names it either.",
)
OTHER_TOPIC = declare_miss(
    "other-topic",
    "{key} is in the log, but under topic {topic}",
    "The index is asked for topic#key; a message of another topic has another hash, or is dropped when "
    "topics are compared.",
)
SYSTEM_TOPIC = declare_miss(
    "system-topic",
    "{key} is in the log only as a {copy} copy under {system_topic}; its real topic is {topic}",
    "Half messages of transactions, delayed, timer and retried messages are stored under a system topic until they are "
    "delivered; the index knows them under that topic.",
)

FILTERED = declare_miss(
    "filtered",
    "{count} messages were found, and the filters leave none of them",
    "What the index gave is there, but --queue, --tag, --property, --after, --before, an offset or --grep excludes it.",
)

# --- the index ------------------------------------------------------------------------------------

NO_INDEX = declare_miss(
    "no-index",
    "the store has no index file, so a broker finds nothing by key; {key} is in the log at offset {physical_offset}",
    "index/ is empty or gone: the index was off (messageIndexEnable=false), or a broker deleted its files "
    "after a crash.",
)
INDEX_SPAN = declare_miss(
    "index-span",
    "the index in RocksDB answers nothing for {span}; {key} is in the log at offset {physical_offset}",
    "A broker looks through so many days at most (maxRocksDBIndexQueryDays), and gives an empty answer for more. "
    "Without a begin or an end it takes the last days.",
)
INDEX_ROW_MISSING = declare_miss(
    "index-row-missing",
    "the index in RocksDB has no row for {key} of the record at offset {physical_offset}: {reason}",
    "Rows are in memory until the database writes them; a kill loses those since start-up, and the next start makes "
    "them again from the mark of the index on.",
)
INDEX_PREFIX = declare_miss(
    "index-prefix",
    "the index gives {count} candidates, but all are other messages: their keys only begin with {key}@",
    "Rows in RocksDB are joined with @ and compared by prefix, so a key also gives those that go on with @.",
)
INDEX_EMPTY = declare_miss(
    "index-empty",
    "the header of {file} says that it holds no entries; {key} is in the log at offset {physical_offset}",
    "An index file whose header is zero or was lost counts as empty, whatever its entries hold.",
)
INDEX_HEADER = declare_miss(
    "index-header",
    "the header of {file} is damaged: {reason}; {key} has an entry in it",
    "A broker believes the header: times or counts that are wrong keep it from looking into the file, or from its "
    "newest entries. `rmqctl rebuild --index` makes the index again.",
)
INDEX_TIME = declare_miss(
    "index-time",
    "no index file covers the time asked for ({span})",
    "A broker looks only into files whose first and last store time overlap the time asked for.",
)
INDEX_OUTSIDE_FILES = declare_miss(
    "index-file-gone",
    "{key} is in the log at offset {physical_offset}, which lies outside what the index files hold ({first} to {last})",
    "The index file of that part of the log is gone: deleted after a crash, expired, or removed by hand.",
)
SLOT_EMPTY = declare_miss(
    "slot-empty",
    "the slot of {key} is empty in every index file that covers the time",
    "No key with this hash was ever indexed in these files.",
)
SLOT_BAD = declare_miss(
    "slot-out-of-range",
    "slot {slot} of {file} points to entry {entry}, but its header says there are {count}",
    "A broker takes a slot that points after the last entry for empty. The header counts fewer entries than there are "
    "after a crash, or one of the two is damaged.",
)
CHAIN_TIME = declare_miss(
    "chain-cut-by-time",
    "the chain of {key} ends at entry {entry} of {file}, whose time lies before {begin}; entry {wanted}, the "
    "wanted one, is behind it",
    "A broker stops following a chain at the first entry older than the time asked for. After a step of the clock "
    "younger entries can stand after it.",
)
CHAIN_BROKEN = declare_miss(
    "chain-broken",
    "the chain of {key} breaks at entry {entry} of {file}: {reason}; entries behind it cannot be reached",
    "An entry points to itself, in a circle, out of range, or its time is negative: the entries after it "
    "are lost to a query.",
)
ENTRY_TIME = declare_miss(
    "entry-outside-time",
    "{key} is indexed, but stored at {time}, outside the time asked for ({span})",
    "The message exists, but was not stored in the time asked for.",
)
FILES_CUT_BY_TIME = declare_miss(
    "files-cut-by-time",
    "the search ends at {file}, which begins before {begin}; {key} is in an older file",
    "A broker goes from the newest index file to older ones and stops at the first that begins before the time "
    "asked for.",
)
LIMIT = declare_miss(
    "limit",
    "{limit} candidates were found, and a broker looks no further; {key} comes later",
    "A query gives at most 64 offsets (maxMsgsNumBatch), 32 for a unique key, hash collisions counted.",
)
CODE_208 = declare_miss(
    "unique-key-clock",
    "the unique key was made at {made} by the producer's clock, after the broker stored the message at {stored}: "
    "clients ask for messages from 1 s before that time on and report CODE 208",
    "The producer's clock was ahead of the broker's. viewMessage and queryMsgByUniqueKey find nothing; query-key "
    "--begin 0 does.",
)
COLLISION = declare_miss(
    "hash-collision",
    "the index gives {count} candidates, but all are other messages: their keys only have the same hash as {key}",
    "Index entries hold a hash of topic and key, never the key; different keys can share one.",
)
NEVER_INDEXED = declare_miss(
    "never-indexed",
    "{key} is in the log at offset {physical_offset}, but has no index entry: {reason}",
    "The message was stored but not indexed: the index was off, the broker stopped before it was dispatched, the "
    "record is older than what the index file says it already has (endPhyOffset), or it is a rollback record.",
)
INDEX_UNREADABLE = declare_miss(
    "index-unreadable",
    "{file} cannot be read as an index file: {reason}",
    "The file is cut, its size or its geometry (maxHashSlotNum, maxIndexNum) is not the one it was written with.",
)

# --- the record -----------------------------------------------------------------------------------

RECORD_EXPIRED = declare_miss(
    "record-expired",
    "{wanted} leads to offset {physical_offset}, in front of the log, which begins at {min_offset}",
    "The log file with the record was deleted after its retention time, or is missing.",
)
BEYOND_LOG = declare_miss(
    "beyond-log",
    "{wanted} leads to offset {physical_offset}, behind the end of the log at {end}",
    "The log was cut or lost its tail; queue units and index entries that point after its end remain.",
)
RECORD_GONE = declare_miss(
    "record-gone",
    "{wanted} leads to offset {physical_offset}, where no record begins: {found}",
    "The file is missing, or the place was never written, or holds the middle of another record.",
)
RECORD_DAMAGED = declare_miss(
    "record-damaged",
    "{wanted} leads to offset {physical_offset}, where the log is damaged: {found}",
    "The record was there when the unit or the entry was made; its bytes are no longer what was written. "
    "`rmqctl verify` shows the damage.",
)
RECORD_REPLACED = declare_miss(
    "record-replaced",
    "{wanted} leads to offset {physical_offset}, but the record there is another one: {found}",
    "None of the record's keys has the hash of the entry: the log was cut and written again, or the entry is damaged.",
)
NO_RECORD_AT_ID = declare_miss(
    "no-record-at-id",
    "the id names offset {physical_offset}, where no record begins: {found}",
    "The id is wrong, belongs to another broker, or the record there is gone.",
)
FOREIGN_HOST = declare_miss(
    "foreign-host",
    "the id names broker {host}, but this store was written by {store_host}; {found}",
    "An offsetMsgId is only good for the broker whose address it holds.",
)

# --- the queue ------------------------------------------------------------------------------------

NO_QUEUE_UNIT = declare_miss(
    "no-queue-unit",
    "the message is in the log at offset {physical_offset}, but queue {topic}/{queue_id} has no unit for it",
    "Consumers read by queue units; a message without one is never delivered. `rmqctl rebuild --queues` makes it.",
)
QUEUE_MISSING = declare_miss(
    "queue-missing",
    "the files of queue {topic}/{queue_id} are missing; {messages} of its messages are in the log",
    "The queue directory is gone or empty. `rmqctl rebuild --queues` makes it from the log.",
)
NEVER_QUEUED = declare_miss(
    "never-queued",
    "the record at offset {physical_offset} gets no queue unit: it is a {transaction} record",
    "Prepared and rollback records of old releases are not dispatched to queues.",
)
UNIT_BEFORE_MIN = declare_miss(
    "before-min-offset",
    "offset {queue_offset} lies before the smallest offset {min_offset} of queue {topic}/{queue_id}",
    "The message expired with its log file, or the queue begins later.",
)
BEYOND_MAX = declare_miss(
    "beyond-max-offset",
    "offset {queue_offset} lies behind the largest offset {max_offset} of queue {topic}/{queue_id}",
    "The queue has not come so far; messages are [min_offset, max_offset).",
)
QUEUE_EMPTY = declare_miss(
    "queue-empty",
    "queue {topic}/{queue_id} holds no message",
    "The queue was made but never written, or all its messages expired.",
)
FILLER_UNIT = declare_miss(
    "filler-unit",
    "unit {queue_offset} of queue {topic}/{queue_id} is a filler, not a message",
    "A queue that begins late is filled up to its first message with units that stand for nothing.",
)
UNIT_MISMATCH = declare_miss(
    "unit-to-another-record",
    "unit {queue_offset} of queue {topic}/{queue_id} leads to offset {physical_offset}, where {found}",
    "The unit is damaged, or points to where the log was written again after a cut.",
)
QUEUE_HOLE = declare_miss(
    "queue-hole",
    "unit {queue_offset} of queue {topic}/{queue_id} is not written ({found})",
    "Units of zeros, or a missing file, in the middle of a queue.",
)
TAG_CODE = declare_miss(
    "tag-code",
    "the unit's tag code {code} is not that of {tag} ({wanted})",
    "A broker filters by the hash of the tag in the queue unit, before it reads the message.",
)
TAG_TEXT = declare_miss(
    "tag-text",
    "the tag code is that of {tag}, but the message's tag is {found}: two tags with one hash",
    "Clients compare the text of the tag after the broker compared its hash.",
)
TIME_OUTSIDE = declare_miss(
    "time-outside-queue",
    "{time} lies {side} all messages of queue {topic}/{queue_id} ({first} to {last})",
    "The queue holds no message of that time.",
)
CUT_AT_START = declare_miss(
    "cut-at-start",
    "unit {queue_offset} of queue {topic}/{queue_id} and its message are on disk, but a broker of {release} that "
    "starts on the store cuts the log at {end}: {reason}",
    "Recovery ends at the first record that does not hold, and takes away what lies after it. `rmqctl recover` shows "
    "all that a start costs, `rmqctl salvage` saves the messages.",
)
TIME_ORDER = declare_miss(
    "time-out-of-order",
    "offset {queue_offset} of queue {topic}/{queue_id} is the answer for {time}, but not the message of that time: "
    "{reason}",
    "Brokers look for a time by halves, in one file of the queue. Where files or messages are not in the order of "
    "their times, the search ends beside the message.",
)
