"""The kinds of files in a broker store, a row each: where they lie, what a lone one is called and looks like, what
reads its rows, what walks its bytes, and which release made it first (spec 1).

A new kind of file is one row here, beside its schema, its rows and its walker. What reads is named, not imported: the
rooms that read stand above this one, and whoever asks for a place alone loads none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pkgutil import resolve_name
from typing import Any

from rmqctl.release import Release
from rmqctl.rocketmq.store.files import is_offset


class FileKind(StrEnum):
    """What a file is, whether its place in a store says so or its content."""

    COMMIT_LOG = "commit-log"
    QUEUE = "queue"
    QUEUE_EXT = "queue-ext"
    BATCH_QUEUE = "batch-queue"
    COMPACTION_LOG = "compaction-log"
    COMPACTION_QUEUE = "compaction-queue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    TIMER_WHEEL = "timer-wheel"
    TIMER_LOG = "timer-log"
    TIMER_CHECK = "timer-check"
    DLEDGER_DATA = "dledger-data"
    DLEDGER_INDEX = "dledger-index"
    DLEDGER_CHECKPOINT = "dledger-checkpoint"
    DLEDGER_TERM = "dledger-term"
    CONFIG = "config"
    EPOCH = "epoch"
    IDENTITY = "identity"
    ABORT = "abort"
    LOCK = "lock"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class KindRow:
    """What is known of one kind of file.

    Attributes:
        places: where it lies, relative to the root of a store: ``*`` is any text in a name, ``**/`` any directories or
            none, ``<offset>`` the 20 digits of an offset; the first row that fits wins. A copy (``.bak``, ``.tmp``) is
            of the kind of what it is a copy of.
        names: what a lone file of the kind is called, in the same signs; ``<time>`` is a time in 17 digits.
        looks: says by the first bytes and the size whether a file of another name is one,
            ``(bytes, int) -> bool``; the first row that says so wins, so the most particular stand first.
        rows: yields what `dump` shows of one, ``(StoreFile, Request) -> Iterator[Row]``; "" for logs of messages, which
            are read as a log.
        walk: yields what `dump -o hex` shows of one, see `rmqctl.rocketmq.hexview.annotate.Walker`.
        since: the release that made one first, where one that is there says something of the store's release.
    """

    kind: FileKind
    places: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    looks: str = ""
    rows: str = ""
    walk: str = ""
    since: Release | None = None

    @property
    def made_at(self) -> str:
        """The path that is there once a broker has made the first: the file, or the directory of the files."""
        head = self.places[0].partition("*")[0].partition("<")[0]
        return head.split("/")[0] if head != self.places[0] else head


_LOOKS = "rmqctl.rocketmq.dump.kinds:"
_ROWS = "rmqctl.rocketmq.dump.files:"
_QUEUE_ROWS = "rmqctl.rocketmq.dump.queues:"
_WALK = "rmqctl.rocketmq.hexview.annotate:"
_UNITS = "rmqctl.rocketmq.hexview.units:"
_5 = Release(5, 0, 0)

KINDS: Mapping[FileKind, KindRow] = {
    row.kind: row
    for row in (
        KindRow(
            FileKind.COMMIT_LOG,
            places=("commitlog*/**/<offset>", "<offset>"),
            looks=f"{_LOOKS}is_log",
            walk=f"{_WALK}walk_log",
        ),
        KindRow(
            FileKind.TIMER_WHEEL,
            places=("timerwheel",),
            names=("timerwheel",),
            looks=f"{_LOOKS}is_timer_wheel",
            rows=f"{_ROWS}wheel_rows",
            walk=f"{_UNITS}TIMER_WHEEL.walk",
            since=_5,
        ),
        KindRow(
            FileKind.DLEDGER_INDEX,
            places=("dledger-*/**/index/**/<offset>",),
            looks=f"{_LOOKS}is_dledger_index",
            rows=f"{_ROWS}entry_index_rows",
            walk=f"{_UNITS}DLEDGER_INDEX.walk",
        ),
        KindRow(
            FileKind.DLEDGER_DATA,
            places=("dledger-*/**/<offset>",),
            looks=f"{_LOOKS}is_dledger_log",
            walk=f"{_WALK}walk_dledger",
        ),
        KindRow(
            FileKind.TIMER_LOG,
            places=("timerlog/**/<offset>",),
            looks=f"{_LOOKS}is_timer_log",
            rows=f"{_ROWS}timer_log_rows",
            walk=f"{_UNITS}walk_timer_log",
            since=_5,
        ),
        KindRow(
            FileKind.BATCH_QUEUE,
            places=("batchconsumequeue/**/<offset>",),
            looks=f"{_LOOKS}is_batch_queue",
            rows=f"{_QUEUE_ROWS}lone_batch_rows",
            walk=f"{_UNITS}BATCH_QUEUE.walk",
            since=_5,
        ),
        KindRow(
            FileKind.COMPACTION_QUEUE,
            places=("compaction/compactionCq/**/<offset>",),
            rows=f"{_QUEUE_ROWS}lone_batch_rows",
            walk=f"{_UNITS}BATCH_QUEUE.walk",
        ),
        KindRow(
            FileKind.COMPACTION_LOG,
            places=("compaction/compactionLog/**/<offset>",),
            walk=f"{_WALK}walk_log",
            since=Release(5, 1, 0),
        ),
        KindRow(
            FileKind.CHECKPOINT,
            places=("checkpoint",),
            looks=f"{_LOOKS}is_checkpoint",
            rows=f"{_ROWS}checkpoint_rows",
            walk=f"{_UNITS}CHECKPOINT.walk",
        ),
        KindRow(
            FileKind.QUEUE_EXT,
            places=("consumequeue_ext/**/<offset>",),
            looks=f"{_LOOKS}is_extension",
            rows=f"{_QUEUE_ROWS}lone_extension_rows",
            walk=f"{_UNITS}walk_ext",
        ),
        KindRow(
            FileKind.QUEUE,
            places=("consumequeue/**/<offset>",),
            looks=f"{_LOOKS}is_queue",
            rows=f"{_QUEUE_ROWS}lone_queue_rows",
            walk=f"{_UNITS}QUEUE.walk",
        ),
        KindRow(
            FileKind.INDEX,  # brokers take every file in the directory for one
            places=("index/**/*",),
            names=("<time>",),
            looks=f"{_LOOKS}is_index",
            rows=f"{_ROWS}index_file_rows",
            walk=f"{_UNITS}walk_index",
        ),
        KindRow(
            FileKind.CONFIG,
            places=(
                "config/*.json",
                "config/timermetrics",
                "config/transactionMetrics",
                "compaction/position-checkpoint",
            ),
            names=("*.json", "timermetrics", "transactionMetrics", "position-checkpoint"),
            looks=f"{_LOOKS}is_json",
            rows=f"{_ROWS}config_rows",
            walk=f"{_WALK}walk_config",
        ),
        KindRow(
            FileKind.TIMER_CHECK,
            places=("config/timercheck",),
            names=("timercheck",),
            rows=f"{_ROWS}check_rows",
            walk=f"{_UNITS}TIMER_CHECK.walk",
            since=_5,
        ),
        KindRow(
            FileKind.DLEDGER_CHECKPOINT,
            places=("dledger-*/checkpoint",),
            rows=f"{_ROWS}dledger_checkpoint_rows",
            walk=f"{_WALK}walk_text",
        ),
        KindRow(
            FileKind.DLEDGER_TERM,
            places=("dledger-*/currterm",),
            names=("currterm",),
            rows=f"{_ROWS}dledger_term_rows",
            walk=f"{_WALK}walk_text",
        ),
        KindRow(
            FileKind.EPOCH,
            places=("epochFileCheckpoint",),
            names=("epochFileCheckpoint",),
            rows=f"{_ROWS}epoch_rows",
            walk=f"{_WALK}walk_epochs",
            since=_5,
        ),
        KindRow(
            FileKind.IDENTITY,
            places=("brokerIdentity", "brokerIdentity-temp"),
            names=("brokerIdentity", "brokerIdentity-temp"),
            rows=f"{_ROWS}identity_rows",
            walk=f"{_WALK}walk_text",
        ),
        KindRow(
            FileKind.ABORT,
            places=("abort",),
            names=("abort",),
            rows=f"{_ROWS}abort_rows",
            walk=f"{_WALK}walk_abort",
        ),
        KindRow(
            FileKind.LOCK,
            places=("lock",),
            names=("lock",),
            rows=f"{_ROWS}lock_rows",
            walk=f"{_WALK}walk_lock",
            since=Release(4, 4, 0),  # the first release of Apache; 3.2.6 makes none
        ),
        KindRow(FileKind.OTHER, walk=f"{_WALK}walk_nothing"),
    )
}


@cache
def reader(name: str) -> Any:
    """Return what a row of the table names: a function that shows files of the kind."""
    return resolve_name(name)


_SIGNS = {"**/": r"(?:.*/)?", "*": r"[^/]*", "<offset>": r"\d{20,}", "<time>": r"\d{17}"}
_COPY = r"(?:\.tmp)?(?:\.bak)?"


def _pattern(of: str) -> re.Pattern[str]:
    """Return one expression for a column of the table; the name of the group that fits is that of the kind."""
    rows = []
    for row in KINDS.values():
        ways = [_expression(place) for place in getattr(row, of)]
        rows += [f"(?P<{row.kind.name}>{'|'.join(ways)})"] if ways else []
    return re.compile(f"(?:{'|'.join(rows)}){_COPY}", re.ASCII | re.DOTALL)


def _expression(place: str) -> str:
    parts = re.split(r"(\*\*/|\*|<offset>|<time>)", place)
    return "".join(_SIGNS.get(part) or re.escape(part) for part in parts)


_PLACE, _NAME = _pattern("places"), _pattern("names")
_SEQUENCES = frozenset(row.kind for row in KINDS.values() if any(place.endswith("<offset>") for place in row.places))


def kind_at(path: str) -> FileKind:
    """Return the kind of the file at ``path``, relative to the store's root, with ``/``.

    Files in directories of RocksDB and unknown ones are ``OTHER``.
    """
    kind = _kind(_PLACE, path) or FileKind.OTHER
    if kind in _SEQUENCES and not is_offset(path.rpartition("/")[2].partition(".")[0]):
        return FileKind.OTHER
    return kind


def kind_by_name(name: str) -> FileKind | None:
    """Return the kind of a lone file by its name, None where the name says nothing."""
    return _kind(_NAME, name)


def _kind(pattern: re.Pattern[str], path: str) -> FileKind | None:
    found = pattern.fullmatch(path)
    return FileKind[found.lastgroup] if found is not None and found.lastgroup else None
