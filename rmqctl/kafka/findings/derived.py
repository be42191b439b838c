"""Findings in what is derived from segments: indexes, producer snapshots, leader epochs (spec 7 to 9)."""

from __future__ import annotations

from functools import partial

from rmqctl.findings import Severity, declare

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_declare_index = partial(declare, page="emergency/index-lost")
_REBUILT = "Builds it again while it loads the segment after a crash; after a clean stop it uses it as it is."

OFFSET_INDEX_MISSING = _declare_index(
    "offset-index.missing",
    _W,
    "A segment has no offset index.",
    "rmqctl rebuild writes it; a broker does, too.",
    broker="Recovers the segment, which builds all its indexes.",
    see="spec 13.2",
)
OFFSET_INDEX_SIZE = _declare_index(
    "offset-index.size",
    _E,
    "The length of an offset index is no multiple of 8.",
    "Cut it, or delete it: a broker builds it again.",
    broker=_REBUILT,
    see="spec 7.4",
)
OFFSET_INDEX_PADDING = _declare_index(
    "offset-index.padding",
    _E,
    "An offset index that is complete ends with zeros: its trim was lost, and a broker takes the zeros for entries.",
    "Cut the zeros off.",
    broker="Believes that the index is full: rolls at once, or fails to append.",
    see="spec 7.3, 21 (2); KAFKA-10207, KAFKA-12734, KAFKA-19200, KAFKA-20979",
)
OFFSET_INDEX_ORDER = _declare_index(
    "offset-index.order",
    _E,
    "The entries of an offset index do not ascend.",
    "Delete the index: a broker builds it again.",
    broker=_REBUILT,
    see="spec 7.1",
)
OFFSET_INDEX_ENTRY = _declare_index(
    "offset-index.entry",
    _E,
    "An entry of an offset index points to no batch, offsets at or above its own lie before the place it points to, or its "
    "offset is beyond the end of the segment.",
    "Delete the index: a broker builds it again.",
    broker=_REBUILT
    + " Lookups answer wrongly. After an orderly stop the log ends at the base offset of its last segment where "
    "the last entry of that segment's index leads to no batch: its offsets are given out again.",
    see="spec 7.2, 13.4 (c)",
)
OFFSET_INDEX_COVERAGE = _declare_index(
    "offset-index.coverage",
    _W,
    "An offset index has no entries where it should: each lookup reads the segment from its start.",
    "rmqctl rebuild writes it.",
    broker="Copes, slowly.",
    see="spec 7.2",
)
TIME_INDEX_MISSING = _declare_index(
    "time-index.missing",
    _W,
    "A segment has no time index.",
    "rmqctl rebuild writes it; a broker never does, except where it recovers the segment.",
    broker="Makes an empty one; lookups by time then go by the time of the file.",
    see="spec 13.2, 21 (18)",
)
TIME_INDEX_SIZE = _declare_index(
    "time-index.size",
    _E,
    "The length of a time index is no multiple of 12.",
    "Cut it, or rebuild it.",
    broker=_REBUILT,
    see="spec 7.4",
)
TIME_INDEX_PADDING = _declare_index(
    "time-index.padding",
    _E,
    "A time index that is complete ends with zeros: its trim was lost, and the segment's largest time reads as 0.",
    "Cut the zeros off.",
    broker="Takes the segment for older than it is: retention may delete it, appends may fail.",
    see="spec 7.3, 21 (2); KAFKA-10207, KAFKA-12734",
)
TIME_INDEX_ORDER = _declare_index(
    "time-index.order",
    _E,
    "The timestamps of a time index do not ascend, or its offsets go back.",
    "Rebuild the index.",
    broker=_REBUILT,
    see="spec 8.1",
)
TIME_INDEX_ENTRY = _declare_index(
    "time-index.entry",
    _E,
    "An entry of a time index does not agree with the log: no batch with its offset, or not the largest time up to there.",
    "Rebuild the index.",
    broker=_REBUILT + " Lookups by time answer wrongly.",
    see="spec 8.1, 8.2",
)
TIME_INDEX_LAST = _declare_index(
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
    "A producer snapshot is missing: that of the last segment, or, after a clean stop, that of the end of the log.",
    "After a clean stop with none left: rmqctl repair makes it; else nothing: a broker makes it.",
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
    page="emergency/hanging-transaction",
)
TRANSACTION_MARKER_GONE = declare(
    "transaction.marker-gone",
    _W,
    "Compaction removed the marker that ended a transaction, and left records of it: what was aborted hangs, or counts as committed with the producer's next commit.",
    "Compare the records with another replica. `rmqctl transactions` prints the line that ends a transaction that hangs.",
    broker="Removes the marker of an aborted transaction that began in the segment in which a cleaning stopped, and keeps its records.",
    fixed_in="3.0.2, 3.1.1 and 3.2.0 (KAFKA-13727); what was written so stays",
    see="KAFKA-13727",
    page="emergency/hanging-transaction",
)
