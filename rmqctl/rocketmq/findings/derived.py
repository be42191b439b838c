"""What can be wrong with consume queues and index files, which are derived from the log; and how two stores differ."""

from __future__ import annotations

from functools import partial

from rmqctl.findings import Severity, declare, declare_difference

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_declare_queue = partial(declare, page="emergency/file-deleted")
_declare_units = partial(declare, page="emergency/consumers-stall")  # the files are there, what they say is wrong
_declare_index = partial(declare, page="emergency/index-lost")


QUEUE_UNIT_MISMATCH = _declare_units(
    "queue.unit-mismatch",
    _E,
    "A queue unit does not fit the record it stands for: offset, size or tags code differ, or it points where no such record is.",
    "The log is the truth: rebuild the queue from it.",
    broker="Serves whatever the unit points at, or skips to the next log file when it cannot be read.",
    see="spec 3.1, 8.1",
)
QUEUE_MISSING_UNITS = _declare_units(
    "queue.missing-units",
    _E,
    "The log holds messages of this queue that have no unit in it: consumers cannot see them.",
    "Rebuild the queue from the log before a broker hands out the same queue offsets again.",
    broker="Re-dispatches only what lies after the recovery start; the rest stays invisible.",
    see="spec 2.16, 6.7",
)
QUEUE_MISSING = _declare_queue(
    "queue.missing",
    _E,
    "The log holds messages of a queue that has no files at all.",
    "Rebuild the queue from the log.",
    broker="Rebuilds it only if all queues are gone, or after an unclean exit as far as recovery scans.",
    see="spec 6.7",
)
QUEUE_DATABASE = _declare_queue(
    "queue.database",
    _E,
    "The queues are a RocksDB database that cannot be opened: files of it are damaged or missing.",
    "`rmqctl repair` makes the database new from the log, `rmqctl rebuild --into` makes queue files.",
    broker="Does not start.",
    see="spec 10.1",
)
QUEUE_UNDISPATCHED = _declare_queue(
    "queue.undispatched",
    _N,
    "The last messages of the log have no queue units yet: the broker stopped before dispatch reached them, or before replicas had confirmed them.",
    "Nothing: the next start dispatches them.",
    broker="Dispatches them again at start-up.",
    see="spec 6.4",
)
QUEUE_AHEAD = _declare_queue(
    "queue.ahead",
    _E,
    "Units point beyond the end of the log: the log lost its tail, or was cut, after they were written.",
    "The messages are gone from this log; a broker cuts the units. Look for the tail on a replica first.",
    broker="Cuts them when the largest such offset is at or after the end of the log.",
    see="spec 6.3, 14.4",
)
QUEUE_HOLE = _declare_units(
    "queue.hole",
    _E,
    "An empty unit stands between units: the queue ends there for a broker that recovers it.",
    "Rebuild the queue from the log.",
    broker="Recovery of the queue ends at the first empty unit and cuts what follows.",
    see="spec 6.6",
)
QUEUE_STALE_TAIL = _declare_queue(
    "queue.stale-tail",
    _W,
    "Units after the end of the queue do not continue it: left over from a cut, or foreign bytes.",
    "Nothing if a broker has run since; a rebuild leaves them out.",
    broker="Counts them as units if they look valid.",
    see="spec 6.6, 14.4",
)
QUEUE_REPEAT = _declare_queue(
    "queue.repeat",
    _N,
    "Units repeat the one beside them: the log has no record for their queue offsets any more.",
    "None: so a rebuild keeps the queue offsets of the messages behind; `rmqctl repair` mends the log itself.",
    broker="Delivers the message of the neighbour again.",
    see="spec 3.4",
)
QUEUE_TORN_UNIT = _declare_queue(
    "queue.torn-unit",
    _E,
    "The file ends inside a unit, or a unit is only partly written.",
    "Rebuild the queue from the log.",
    broker="Refuses to start when the file's length is wrong.",
    fixed_in="5.4.0",
    see="#10108, #9728",
)
QUEUE_FILE_LENGTH = _declare_queue(
    "queue.file-length",
    _E,
    "A queue file has another length than the others.",
    "Rebuild the queue from the log, or extend the file with zeros to its full length on a copy.",
    broker="From 4.5.1 on refuses to start; an empty last file is deleted from 5.1.3 on.",
    see="spec 1.2; #10108, #9728",
)
QUEUE_FILE_NAME = _declare_queue(
    "queue.file-name",
    _E,
    "A name in a queue's directory is no file offset, or not a multiple of the file size.",
    "Move the file out of the directory.",
    broker="A name that is no number stops the broker at load.",
    see="spec 1.2",
)
QUEUE_FILE_GAP = _declare_queue(
    "queue.file-gap",
    _E,
    "A file is missing between two files of a queue.",
    "Rebuild the queue from the log.",
    broker="Starts; reads in the hole answer OFFSET_FOUND_NULL.",
    see="spec 1.2",
)
QUEUE_DIRECTORY = _declare_queue(
    "queue.directory-name",
    _E,
    "A queue's directory has the name of another topic or queue: its units lead to records that name theirs.",
    "`rmqctl repair --apply` moves it back; before that no broker should start on the store.",
    broker="Serves the messages under the wrong topic or queue, and makes an empty queue where the right one should be.",
    see="spec 1.2, 3.1",
)
QUEUE_MIN_OFFSET = _declare_queue(
    "queue.min-offset",
    _N,
    "The first units of the queue point before the start of the log: their messages have expired.",
    "Nothing: brokers compute the first offset that is still there.",
    see="spec 3.9, 14.5",
)
QUEUE_ORPHAN = _declare_queue(
    "queue.orphan",
    _W,
    "A queue exists for a topic that the configuration (topics.json, or its database) does not know.",
    "`rmqctl repair` makes the topic known again; else delete it with the broker's own command.",
    broker="Loads the queue and serves none of its messages: it answers TOPIC_NOT_EXIST, for retry messages until a consumer of the group comes, for dead letters and given up half messages until it has the next one. Queues in RocksDB it deletes.",
    see="spec 1.2",
)
QUEUE_EXT = _declare_queue(
    "queue.extension",
    _E,
    "A unit's tags code is an address into consumequeue_ext where no fitting extension unit lies.",
    "Brokers treat the tag as unknown and let the message match; rebuild to mend.",
    see="spec 3.5",
)

INDEX_HEADER = _declare_index(
    "index.header",
    _E,
    "The header of an index file cannot be right: counts outside the file, or times and offsets that contradict its entries.",
    "Rebuild the index from the log.",
    broker="Believes it: queries by key may find nothing in this file.",
    see="spec 4.1",
)
INDEX_TIME = _declare_index(
    "index.entry-time",
    _E,
    "Index entries keep another time than their records were stored at.",
    "Rebuild the index from the log; until then ask by key without times.",
    broker="Queries by key and time miss the messages; a negative difference ends the walk in front of all older ones.",
    see="spec 4.1, 4.3, 4.6",
)
INDEX_COUNT = _declare_index(
    "index.count",
    _W,
    "The header's slot count is not what the release that wrote the file would have counted.",
    "No query reads it; it only shows that the file was written by another release or header and slots are out of step.",
    fixed_in="4.7.1",
    see="spec 4.1",
)
INDEX_CHAIN = _declare_index(
    "index.chain",
    _E,
    "A slot or a chain of entries is broken: it points outside the entries, forwards, in a circle, or to another slot's entries.",
    "Rebuild the index from the log.",
    broker="Queries follow the chain as it is and miss keys or loop until their limit.",
    see="spec 4.3, 4.6",
)
INDEX_ENTRY = _declare_index(
    "index.entry-mismatch",
    _E,
    "An index entry points at a record that has no key with its hash, or at no record at all.",
    "Rebuild the index from the log; until then queries by key check the message and drop the false hit.",
    see="spec 4.2, 6.8",
)
INDEX_COVERAGE = _declare_index(
    "index.coverage",
    _W,
    "Messages with keys are in no index file: queries by key do not find them.",
    "Rebuild the index from the log, or use a scan of the log to find them.",
    broker="Never indexes them again unless recovery scans their file.",
    see="spec 6.8, 14.17",
)
INDEX_BEYOND = _declare_index(
    "index.beyond-log",
    _W,
    "Index entries point beyond the end of the log: brokers never cut index files.",
    "Harmless for queries; new messages below the file's endPhyOffset will not be indexed. Rebuild the index to mend.",
    see="spec 6.8",
)
INDEX_FILE_LENGTH = _declare_index(
    "index.file-length",
    _E,
    "An index file, read only by queries by key, is cut or too long.",
    "Rebuild the index from the log.",
    broker="Extends a short file with zeros, silently; its entries are lost.",
    see="spec 4.5",
)
INDEX_FILE_NAME = _declare_index(
    "index.file-name",
    _W,
    "A name in index/ is not a time of 17 digits.",
    "Move it out of the directory.",
    broker="Skips it with an error in its log.",
    see="spec 4.5",
)
INDEX_NEWER = _declare_index(
    "index.newer-than-checkpoint",
    _N,
    "After an unclean exit the broker deletes this index file, because it is newer than the checkpoint, and rebuilds it "
    "from where recovery starts.",
    "Nothing; keep a copy if the log before the recovery start has expired. A plan of `rmqctl repair` keeps it.",
    broker="Deletes it at start-up.",
    see="spec 4.5; #8007",
)
INDEX_MISSING = _declare_index(
    "index.missing",
    _W,
    "Messages have keys, but the store has no index file for them.",
    "Rebuild the index from the log if queries by key are needed.",
    see="spec 4.3",
)

# --- how two stores differ: A is the one named first, B the other ------------------------------------

DIFF_MOVED = declare_difference(
    "diff.moved",
    _W,
    "Messages with the same queue, queue offset and body lie at another physical offset: the logs were written apart.",
    "Nothing for salvaged or converted stores (compare those with --by queue); replicas must not differ so.",
)
DIFF_BODY = declare_difference(
    "diff.body",
    _E,
    "Messages of the same topic, queue and queue offset have different bodies.",
    "The stores took different messages: decide which one counts before consumers see both.",
)
DIFF_PROPERTIES = declare_difference(
    "diff.properties",
    _W,
    "Messages of the same topic, queue, queue offset and body have different properties.",
    "Look at both with rmqctl dump.",
)
DIFF_QUEUE_UNIT = declare_difference(
    "diff.queue-unit",
    _E,
    "The queue units of one queue offset lead to different records, or carry different tag codes.",
    "Run verify on both; rebuild --queues makes them again from the log.",
    see="spec 3",
)
DIFF_QUEUE_ONLY_A = declare_difference(
    "diff.queue-only-a",
    _W,
    "Queue units that only A has, although both logs hold their records.",
    "Normal while B has not dispatched yet (its broker does at the next start); else rebuild --queues on B.",
    see="spec 3, 6.7",
)
DIFF_QUEUE_ONLY_B = declare_difference(
    "diff.queue-only-b",
    _W,
    "Queue units that only B has, although both logs hold their records.",
    "Normal while A has not dispatched yet (its broker does at the next start); else rebuild --queues on A.",
    see="spec 3, 6.7",
)
