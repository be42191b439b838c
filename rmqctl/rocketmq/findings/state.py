"""What can be wrong with checkpoint, abort, lock, configuration, timer files, and files that do not belong."""

from __future__ import annotations

from functools import partial

from rmqctl.findings import Severity, declare

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_declare_lost = partial(declare, page="emergency/file-deleted")


CHECKPOINT_ZERO = declare(
    "checkpoint.zero",
    _W,
    "The checkpoint's times are zero although the log has messages, or negative: recovery will scan the whole log.",
    "Harmless but slow; a clean stop writes it again.",
    broker="Starts recovery at the first file (5.4.0 and later: at most ten files).",
    see="spec 5, 6.4; #1153",
)
CHECKPOINT_AHEAD = declare(
    "checkpoint.ahead",
    _E,
    "The checkpoint claims times later than anything in the store: after a crash recovery would start too late.",
    "Zero the checkpoint, so that recovery scans everything.",
    broker="Chooses a recovery start after messages that were not dispatched.",
    see="spec 5, 6.4; #7233, #10073",
    page="emergency/copied-while-running",
)
CHECKPOINT_BEHIND = declare(
    "checkpoint.behind",
    _N,
    "The checkpoint is older than the last message: normal after a crash, it only makes recovery scan more.",
    "Nothing.",
    see="spec 5",
)
CHECKPOINT_MISSING = declare(
    "checkpoint.missing",
    _W,
    "There is no checkpoint file although the log has messages.",
    "Nothing to do before a start: brokers create it and scan the whole log.",
    broker="Reads it as all zero.",
    see="spec 5",
    page="emergency/file-deleted",
)
CHECKPOINT_LENGTH = declare(
    "checkpoint.length",
    _W,
    "The checkpoint file is too short to hold its fields.",
    "Brokers extend it with zeros and scan the whole log.",
    broker="Reads missing fields as zero.",
    see="spec 5",
)
CHECKPOINT_OFFSET = declare(
    "checkpoint.offset",
    _E,
    "A physical offset in the checkpoint is negative or beyond the end of the log.",
    "Zero the checkpoint, so that recovery scans everything.",
    broker="5.5.0 starts its recovery by the offset of the last dispatched record: messages in front of it get no queue unit.",
    see="spec 5, 6.4",
)
STORE_ABORT = declare(
    "store.abort",
    _N,
    "The file `abort` is there and no broker runs: the last exit was not clean.",
    "The next start does an abnormal recovery; look at it first with `rmqctl verify`.",
    broker="Recovers from the checkpoint on, deletes index files newer than it.",
    see="spec 12",
)
STORE_RUNNING = declare(
    "store.running",
    _N,
    "A broker holds the lock of this store: what was read may be changing.",
    "Findings at the tail may be gone in a moment; stop the broker for a full check.",
    see="spec 12",
)

CONFIG_UNREADABLE = _declare_lost(
    "config.unreadable",
    _E,
    "A configuration file cannot be read as JSON, and its .bak does not help either.",
    "Restore it from another broker of the cluster; an empty file and no .bak make some releases refuse to start.",
    broker="Falls back to the .bak; if that fails too the broker does not start, or starts without the data (4.9.8 topics.json).",
    see="spec 9.1",
)
CONFIG_NO_TOPICS = _declare_lost(
    "config.no-topics",
    _E,
    "There is neither topics.json nor its .bak, but there are messages of topics that only it makes known.",
    "`rmqctl repair` makes it again from the queues; settings that they do not show are the broker's defaults.",
    broker="Starts without the topics and answers TOPIC_NOT_EXIST to their consumers; 5.x does not start where one has batch queues.",
    see="spec 9.1",
)
CONFIG_NO_OFFSETS = _declare_lost(
    "config.no-offsets",
    _W,
    "There is neither consumerOffset.json nor its .bak, but topics of consumer groups: how far these had read is lost.",
    "Take the file from a backup, or set the positions with `rmqctl offsets set`; a broker that starts writes an empty one.",
    broker="Lets each group begin where a new one begins, as its client's ConsumeFromWhere says (by default at the end), and in queues that begin at 0 and are still in memory at 0.",
    see="spec 9.1",
    by_hand=True,
)
CONFIG_FALLBACK = _declare_lost(
    "config.fallback",
    _W,
    "A configuration file cannot be read, but its .bak is good: the broker will use the older content.",
    "Copy the .bak over the file after looking at both.",
    broker="Loads the .bak.",
    see="spec 9.1",
)
CONFIG_BACKUP = _declare_lost(
    "config.backup",
    _W,
    "The .bak of a configuration file cannot be loaded, while the file itself is good.",
    "Copy the file over its .bak on a stopped store, or let the broker write both again.",
    broker="From 5.1.0 on writes the file in place: a crash in the middle then leaves neither.",
    see="spec 9.1",
)
CONFIG_CONSUMER_OFFSET = _declare_lost(
    "config.consumer-offset",
    _W,
    "A consumer group's offset is negative, or beyond the end of its queue: after a cut of the log it waits for messages "
    "that never come.",
    "Stop the group's consumers, and set its offset by `rmqctl offsets` to what it has read: the .bak may have it; the end of the "
    "queue skips what it has not read.",
    broker="Corrects it at the next pull, which can skip or repeat messages.",
    see="spec 9.2",
    page="emergency/consumers-stall",
)
CONFIG_DELAY_OFFSET = _declare_lost(
    "config.delay-offset",
    _W,
    "The progress of a delay level is outside its queue.",
    "Brokers from 4.9.2 on correct it at start-up; older ones stop delivering that level.",
    fixed_in="4.9.2",
    see="spec 6.1, 9.2",
)
CONFIG_UNKNOWN_TOPIC = _declare_lost(
    "config.unknown-topic",
    _N,
    "A consumer group has an offset for a topic that the store does not know.",
    "Harmless; left over from a deleted topic.",
    see="spec 9.2",
)

DATABASE_ROW = _declare_lost(
    "database.row",
    _W,
    "A row of a RocksDB database fits none of the formats that brokers write there.",
    "Look at it with `rmqctl dump` of the database's directory; what a broker does not know it leaves out.",
    broker="Leaves the row out, or fails on it when it comes to it.",
    see="spec 10, A2 to A6",
)
DATABASE_UNREADABLE = _declare_lost(
    "database.unreadable",
    _E,
    "A RocksDB database cannot be opened or read: files of it are damaged or missing.",
    "`rmqctl repair` makes queues, index, timers and open transactions new from the log, and keeps of configuration and pop state what can be read; better for those is a copy of the directory.",
    broker="Does not start; only without rocksdbstore/ it does, and answers nothing from it. Where CURRENT is gone, the second start makes an empty database and deletes the tables, without a write-ahead log the first one does.",
    see="spec A1, A5, A6",
)
DATABASE_TWO_PLACES = _declare_lost(
    "database.two-places",
    _E,
    "Two directories hold a database of queues, of which a broker uses one.",
    "`rmqctl repair` moves away the one that broker.conf does not name, else the one that holds less of the log.",
    broker="Does not start (maybe incompatible config).",
    see="spec A4.1",
)
DATABASE_REACH = _declare_lost(
    "database.reach",
    _W,
    "The checkpoint of a database, or the row that names the end of a queue, does not agree with rows and log.",
    "After a kill nothing: a start dispatches the rest again. Else `rmqctl repair` makes the database new from the log.",
    broker="Starts dispatch at the checkpoint; what lies in front of it gets no rows.",
    see="spec A4.1, A4.3",
)
DATABASE_TWIN = _declare_lost(
    "database.twin",
    _W,
    "Units of a queue in RocksDB are others than those of its files, though a broker writes both.",
    "`rmqctl repair` makes the database new from the log. Do not move it away: beside queue files a broker starts a new one at the end of the log.",
    broker="Reads the files (combineCQPreferCQType).",
    see="spec A4.2",
)
DATABASE_WRONG_ROW = _declare_lost(
    "database.wrong-row",
    _W,
    "A row of a database leads to no record that it fits.",
    "Look at it with `rmqctl dump`; `rmqctl repair` makes the database new, without it.",
    broker="Reads what lies there and drops it where topic or key differ.",
    see="spec A5, A6",
)
DATABASE_MISSING_ROWS = _declare_lost(
    "database.missing-rows",
    _W,
    "Records of the log lack their rows in RocksDB: queries by key do not find them, timers are not delivered, transactions are not checked.",
    "`rmqctl query-key --scan` finds messages by key all the same; `rmqctl repair` makes the rows.",
    broker="Dispatches again only what lies after the mark of the index, of timers or of half messages.",
    see="spec A5",
)
DATABASE_LAST_OFFSETS = _declare_lost(
    "database.last-offsets",
    Severity.NOTE,
    "The consumer offsets of the last seconds before the stop may not be stored: brokers of 5.5.0 with one database for all configuration (useSingleRocksDBForAllConfigs) close it before they store them.",
    "Nothing: consumers get the messages of these seconds (flushConsumerOffsetInterval, 5 s) once more. persistConsumerOffsetIncrementally avoids it, and has a defect of its own (database.unclean-stop).",
    broker="Says 'has been stopped, persist fail' in its log, and stops cleanly.",
    see="spec A2.5",
)
DATABASE_UNCLEAN_STOP = _declare_lost(
    "database.unclean-stop",
    Severity.NOTE,
    "The broker was stopped in order, by SIGTERM, and yet left abort and unfinished queues: with persistConsumerOffsetIncrementally and one database for all configuration the stop of 5.5.0 fails half way. The database of configuration is closed and whole.",
    "Nothing: a start takes it for a crash and dispatches the log again. Until it is fixed, turn persistConsumerOffsetIncrementally off.",
    broker="Ends its stop with an exception before it closes the message store.",
    see="spec A2.5",
)
FILE_STRAY = declare(
    "file.stray",
    _W,
    "A file or directory lies where the broker keeps its own and belongs to none of its formats.",
    "Move it away; some stray names stop a broker.",
    see="spec 1.2, 14.28",
)
FILE_EMPTY = declare(
    "file.empty",
    _W,
    "A file has no bytes.",
    "Delete it on a stopped store, or let a broker of 5.1.3 or later do it.",
    broker="Before 5.1.3 an empty last file stops the broker.",
    fixed_in="5.1.3",
    see="spec 1.2; #10108",
    page="emergency/disk-full",
)
FILE_UNREADABLE = declare(
    "file.unreadable",
    _E,
    "A file could not be read: no permission, an I/O error, or it vanished meanwhile.",
    "Mend the permission or the disk and run again.",
)
TIMER_CHECK = declare(
    "timer.check",
    _W,
    "config/timercheck says more than the timer log and the timer queue hold, or a time that is still to come.",
    "Delete config/timercheck together with timerlog/ and timerwheel on a stopped store: brokers make them again.",
    broker="Leaves timer messages out that lie after these numbers, or waits until the time has come.",
    see="spec 11.3, 11.4; #7480",
    page="emergency/missing-messages",
)
TIMER_LOG = declare(
    "timer.log",
    _E,
    "A unit of the timer log, or a slot of the timer wheel, is damaged or points nowhere.",
    "Units for messages that the log has lost: `rmqctl repair` points them in front of the log, where no broker finds "
    "anything. Other damage: delete timerlog/, timerwheel and config/timercheck together on a stopped store; brokers fill "
    "them again from the queue of rmq_sys_wheel_timer, and deliver again what they had delivered of it. Where timercheck "
    "stays, they go on where it says, and pending messages never come.",
    broker="Recovery cuts the timer log at the first bad unit. A unit for a lost message is passed over, until another "
    "message lies in the place: the broker reads that, fails on it, and delivers no timer message any more.",
    see="spec 11.4; #10668: references beyond a cut log",
    page="emergency/missing-messages",
)
