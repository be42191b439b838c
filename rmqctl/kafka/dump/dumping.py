"""`dump` of a log directory, a partition or one file: rows, JSON lines, what is said beside them, and what is added."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import orjson

from formats.kafka.directory_files import parse_partition_metadata
from rmqctl import questions
from rmqctl.answer import AnnotatedStretch, Answer, HexAnswer, Row, Section, TableLayout, within_one_file
from rmqctl.errors import WrongUsage
from rmqctl.files.moment import MomentTree, raise_refused
from rmqctl.files.tree import Tree
from rmqctl.filters import Filters, Glob, Rendering, did_you_mean
from rmqctl.findings import Finding, Severity, header_of
from rmqctl.kafka.columns import redacted, shown_text
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, LogFile, Partition, read_partition
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.directory.moment import tree_at_one_moment
from rmqctl.kafka.dump.files import file_rows
from rmqctl.kafka.dump.lines import LineBytes, SegmentLines, SharedLines, gathered
from rmqctl.kafka.dump.segments import SegmentDump, extent_of
from rmqctl.kafka.filters import Wanted
from rmqctl.kafka.findings.directory import FILE_UNREADABLE
from rmqctl.kafka.log.block import Block
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.rows import FORM
from rmqctl.release import Release
from rmqctl.text import compile_form, number_of

if TYPE_CHECKING:
    from rmqctl.hexview.annotation import Annotation
    from rmqctl.kafka.dump.official import Options
    from rmqctl.kafka.state.partition_state import View


SEGMENTS = (FileKind.LOG, FileKind.KRAFT_SNAPSHOT)
_BATCH = ("position", "base_offset", "last_offset", "count", "compression", "max_timestamp", "producer_id", "remark")
_RECORD = ("offset", "timestamp", "key", "value", "headers", "remark")


BATCH_KEYS = """
    kind file topic partition position size magic base_offset last_offset count compression timestamp_type
    base_timestamp max_timestamp producer_id producer_epoch base_sequence last_sequence leader_epoch
    transactional control delete_horizon crc crc_ok
"""
RECORD_KEYS = """
    kind file topic partition batch_position offset timestamp sequence key value headers key_size value_size
    control_type decoded
"""


def dump(
    logs: LogDirectories,
    filters: Filters,
    rendering: Rendering,
    *,
    follow: bool = False,
    read_committed: bool = False,
    processes: int = 1,
) -> Answer:
    """Show batches, and with ``rendering.records`` what is in them, or the entries of the file that was pointed at.

    Args:
        processes: that share the segments where lines are made; what depends on what came before is made by one.
        read_committed: leave out control batches, aborted transactions, and what is not decided yet.
    """
    if rendering.raw_body or rendering.body_limit is not None:
        raise WrongUsage("--raw-body", "is for RocketMQ: --records shows the records of batches, decompressed.")
    if follow and logs.selected_file is not None:
        raise WrongUsage("--follow", "needs a directory: a segment ends, and its partition goes on.")
    answer = Answer()
    if logs.is_running:
        answer.remark("a broker holds the lock of this directory: what is read may be changing")
    show = redacted if rendering.redact else shown_text
    with_records = rendering.records or rendering.body or rendering.redact
    segments = SegmentDump(Wanted(filters), with_records, show, _stopped(logs))
    if read_committed:
        segments.views = _committed_views(logs)
    run = _Run(logs, segments, filters, answer, 1 if read_committed else processes)
    answer.rows = run.following() if follow else run.rows()
    if logs.selected_file is None or logs.selected_file[1].kind in SEGMENTS:
        answer.header = header_of(BATCH_KEYS, RECORD_KEYS if with_records else "", damage=True)
    if logs.selected_file is None or logs.selected_file[1].kind in SEGMENTS:
        answer.formatter = lambda text: compile_form(text, FORM)
    answer.sections = lambda: [Section(rows=answer.rows, layout=RECORD_LAYOUT if with_records else LAYOUT)]
    if follow:
        return answer
    answer.work, answer.total = "dump", run.total
    if run.is_named_in_utf8:
        answer.lines = run.lines
    return answer


def hexadecimal(logs: LogDirectories, asked: questions.Hex) -> HexAnswer:
    """Show the bytes of what a dump shows, every byte with its meaning."""
    from rmqctl.kafka.dump.annotate import annotate

    answer, filters = HexAnswer(), asked.filters
    wanted = Wanted(filters)

    def noted(notes: Iterator[Annotation]) -> Iterator[Annotation]:
        for note in notes:
            answer.is_no = answer.is_no or note.wrong
            yield note

    def files() -> Iterator[AnnotatedStretch]:
        for _, file in wanted_files(logs, wanted):
            yield AnnotatedStretch(file.name, file.size, noted(annotate(file)))

    def rows() -> Iterator[AnnotatedStretch]:
        known = {file.name: file for _, file in wanted_files(logs, wanted)}
        for row in _Run(logs, SegmentDump(wanted, stopped=_stopped(logs)), filters, answer).rows():
            start, size = row.get("position", row.get("offset")), row.get("size") or 1
            if row["kind"] in {"batch", "finding"} and start is not None:
                file = known[row["file"]]
                yield AnnotatedStretch(file.name, file.size, noted(annotate(file, start, start + size)))

    def stretch(file: LogFile, within: tuple[int, int]) -> Iterator[AnnotatedStretch]:
        yield AnnotatedStretch(file.name, file.size, noted(annotate(file, *within)))

    if asked.within is not None:
        answer.stretches = stretch(within_one_file(file for _, file in wanted_files(logs, wanted)), asked.within)
        return answer
    by_rows = wanted.is_selective or filters.damaged or filters.limit is not None
    answer.stretches = rows() if by_rows else files()
    return answer


def _stopped(logs: LogDirectories) -> frozenset[str]:
    return frozenset(directory.root for directory in logs.directories if directory.is_clean)


def _committed_views(logs: LogDirectories) -> Callable[[Partition | None], View]:
    """Return what a consumer sees of each partition, found out when it is first asked for."""
    views: dict[str, View] = {}

    def view(partition: Partition | None) -> View:
        if partition is None or not partition.logs:
            raise WrongUsage("--read-committed", "needs a partition's directory, for the log says what is committed.")
        if partition.directory not in views:
            home = next(directory for directory in logs.directories if partition in directory.partitions)
            views[partition.directory] = _committed(home, partition)
        return views[partition.directory]

    return view


def _committed(home: LogDirectory, partition: Partition) -> View:
    """Return what readers of committed records see of a partition."""
    from rmqctl.kafka.loading.checkpoints import Checkpoints
    from rmqctl.kafka.state.partition_state import PartitionLog, view_of

    return view_of(PartitionLog(home, partition, Checkpoints(home)), read_committed=True)


def official(logs: LogDirectories, options: Options, release: Release | None) -> Answer:
    """Print files as the official dump tool of a release does: the one that was pointed at, or all that it knows."""
    from rmqctl.kafka.dump.official import DEFAULT_RELEASE, DUMPED, OfficialDump

    answer = Answer()
    dump = OfficialDump(options, release or DEFAULT_RELEASE)

    def lines() -> Iterator[str]:
        if logs.selected_file is not None:
            partition, file = logs.selected_file
            yield from dump.lines(partition, file, _as_typed(logs, file), is_alone=True)
        else:
            for partition in logs.selected:
                for file in partition.files:
                    if file.kind in DUMPED and not file.is_leftover:
                        yield from dump.lines(partition, file, file.name, is_alone=False)
        for sentence in dump.end():
            answer.remark(sentence)
        answer.is_no = dump.is_damaged

    answer.sections = lambda: [Section(lines=lines())]
    return answer


def _as_typed(logs: LogDirectories, file: LogFile) -> str:
    return file.name if logs.root in {"", "."} else f"{logs.root.rstrip('/')}/{file.name}"


def wanted_files(logs: LogDirectories, wanted: Wanted) -> Iterator[tuple[Partition | None, LogFile]]:
    """Yield the files to show, in order: the one that was pointed at, or the segments of the chosen partitions."""
    if logs.selected_file is not None:
        yield logs.selected_file
        return
    for partition, log in logs.selected_logs():
        if wanted.includes_partition(partition):
            yield partition, log


@dataclass
class _Run:
    """One pass: rows counted up to the limit, then what they amount to."""

    logs: LogDirectories
    segments: SegmentDump
    filters: Filters
    answer: Answer
    processes: int = 1
    shown: int = 0
    damage: int = 0

    @property
    def total(self) -> int:
        """Bytes of segments that are looked at."""
        return sum(max(f.size, 0) for _, f in wanted_files(self.logs, self.segments.wanted) if f.kind in SEGMENTS)

    @property
    def is_named_in_utf8(self) -> bool:
        """Whether all file names are text; the lines of others are left to who writes the rows."""
        try:
            "".join(name for p in self.logs.partitions for name in (p.directory, *(f.name for f in p.files))).encode()
        except UnicodeEncodeError:
            return False
        return True

    def rows(self) -> Iterator[Row]:
        self.segments.advance = self.answer.advance
        limited = self._limited(self._all_rows())
        yield from limited
        self._finish()

    def following(self) -> Iterator[Row | None]:
        """Yield what is there and what comes, without end."""
        wanted = self.segments.wanted
        chosen = [partition for partition in self.logs.selected if wanted.includes_partition(partition)]
        left = self.filters.limit
        for row in Follow(self.segments, self.logs, chosen).rows():
            if row is None:
                yield None
                continue
            yield row
            if left is not None and row["kind"] == ("record" if self.segments.with_records else "batch"):
                left -= 1
                if left == 0:
                    return

    def lines(self) -> Iterator[LineBytes]:
        """Yield the rows as JSON lines, many in a piece; without a limit, records are not made into objects on
        the way.
        """
        if self.filters.limit is not None:
            yield from gathered(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self.rows())
            return
        self.segments.advance = self.answer.advance
        unlisted = self._unlisted()
        self.damage += len(unlisted)
        yield b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in unlisted)
        files = list(wanted_files(self.logs, self.segments.wanted))
        if self.processes > 1 and all(file.kind in SEGMENTS and file.size >= 0 for _, file in files):
            shared = SharedLines(self.segments, files, self.processes, self._unreadable_line)
            yield from shared.pieces()
            self.shown, self.damage = self.shown + shared.shown, self.damage + shared.damage
        else:
            yield from self._lines_of(files)
        self._finish()

    def _lines_of(self, files: list[tuple[Partition | None, LogFile]]) -> Iterator[LineBytes]:
        lines = SegmentLines(self.segments)
        for partition, file in files:
            if file.kind not in SEGMENTS:
                rows = self._limited(self._rows_of(partition, file))
                yield from gathered(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
                continue
            try:
                for part in self.segments.parts(partition, file):
                    yield from lines.pieces(part)
            except OSError as error:
                self.damage += 1
                yield self._unreadable_line(file, error)
        self.shown += lines.shown
        self.damage += lines.damage

    def _unreadable_line(self, file: LogFile, error: OSError) -> bytes:
        return orjson.dumps(self._unreadable(file, error).row(), option=orjson.OPT_APPEND_NEWLINE)

    def _unlisted(self) -> list[Row]:
        """Partitions whose directories the system refuses to list, as findings."""
        partitions = self.logs.selected if self.logs.selected_file is None else []
        return [
            Finding(FILE_UNREADABLE, partition.directory, 0, 0, partition.problem, topic=partition.topic).row()
            for partition in partitions
            if partition.problem and self.segments.wanted.includes_partition(partition)
        ]

    def _all_rows(self) -> Iterator[Row]:
        yield from self._unlisted()
        for partition, file in wanted_files(self.logs, self.segments.wanted):
            try:
                yield from self._rows_of(partition, file)
            except OSError as error:
                yield self._unreadable(file, error).row()

    def _rows_of(self, partition: Partition | None, file: LogFile) -> Iterator[Row]:
        if file.kind in SEGMENTS:
            return self.segments.rows(partition, file)
        return filter(self.segments.wanted.includes_row, file_rows(file))

    def _unreadable(self, file: LogFile, error: OSError) -> Finding:
        """Return a file among many that cannot be read, as a finding.

        Raises:
            OSError: it is the one that was asked for.
        """
        if self.logs.selected_file is not None:
            raise error
        return Finding(FILE_UNREADABLE, file.name, 0, 0, f"cannot be read: {error.strerror or error}")

    def _limited(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows up to the limit, which counts records where they are shown, else everything but findings."""
        left = self.filters.limit
        counted = "record" if self.segments.with_records else "batch"
        for row in rows:
            kind = row["kind"]
            if left == 0 and kind != "finding":
                return
            if kind == "finding":
                self.damage += row["severity"] != Severity.NOTE
            elif kind == counted or kind not in {"batch", "record"}:
                self.shown += 1
                left = None if left is None else left - 1
            yield row

    def _finish(self) -> None:
        hidden = self.segments.hidden
        if hidden:
            places = number_of(hidden, "place")
            self.answer.remark(f"damage in {places} is not shown because of the filters; see it with --damaged")
        nothing = not self.shown and not self.filters.is_empty and not self.filters.damaged
        if nothing:
            self.answer.remark(f"nothing matched the filters{self._unknown_topic()}")
        self.answer.is_no = self.answer.is_no or bool(self.damage) or nothing

    def _unknown_topic(self) -> str:
        topics = {partition.topic for partition in self.logs.partitions}
        unmet = self.filters.topics.unmet(topics)
        if not unmet:
            return ""
        if isinstance(unmet[0], Glob):
            return f"; no topic here matches {unmet[0]}"
        return f"; there is no topic {unmet[0]} here{did_you_mean(unmet[0], sorted(topics))}"


# --- tables -------------------------------------------------------------------------------------------


_AS_TEXT = frozenset({"meta_properties", "quorum_state", "clean_shutdown", "partition_metadata"})


def _remark(row: Row) -> str | None:
    remark = _REMARKS.get(row["kind"])
    return (remark(row) if remark else None) or None


def _of_batch(row: Row) -> str:
    facts = [
        *([] if row["crc_ok"] else ["CRC is wrong"]),
        *([f"magic {row['magic']}"] if row["magic"] != 2 else []),
        *([name for name in ("transactional", "control") if row[name]]),
        *(["append time"] if row["timestamp_type"] == "LogAppendTime" else []),
        *(["delete horizon"] if row["delete_horizon"] is not None else []),
    ]
    return ", ".join(facts)


_REMARKS: dict[str, Callable[[Row], str]] = {
    "finding": lambda row: f"{row['severity']} {row['id']}: {row['message']}",
    "batch": _of_batch,
    "record": lambda row: row["control_type"] or "",
}

LAYOUT = TableLayout(
    {
        "finding": ("file", "offset", "size", "remark"),
        "batch": ("file", *_BATCH),
        "record": _RECORD,
    },
    _remark,
    _AS_TEXT,
)
"""Of each kind of row the columns that say most, with a remark on what is unusual."""


def _remark_on_records(row: Row) -> str | None:
    if row["kind"] != "batch":
        return _remark(row)
    facts = ", ".join(filter(None, [row["compression"] if row["compression"] != "none" else "", _of_batch(row)]))
    place = f"batch at {row['position']}: offsets {row['base_offset']} to {row['last_offset']}"
    return f"{place}, {facts}" if facts else place


RECORD_LAYOUT = TableLayout(dict.fromkeys(("finding", "batch", "record"), _RECORD), _remark_on_records, _AS_TEXT)
"""The same where records are shown under their batches."""


POLL_SECONDS = 0.5


@dataclass(slots=True)
class _Followed:
    """How much of a partition was shown.

    Attributes:
        topic_id: of its topic; another is another partition of that name.
        next: offset after the last batch that was shown.
        end: offset from which on nothing is shown yet, for it is not decided; None: all is shown.
        size: bytes of the logs when they were looked at last.
        files: of each log the inode, where a broker may put another in its place, and the bytes that were shown.
    """

    topic_id: str | None = None
    next: int = 0
    end: int | None = None
    size: int = -1
    files: dict[str, tuple[int | None, int]] = field(default_factory=dict)


@dataclass
class Follow:
    """The partitions of a dump, looked at again and again, beside a broker each time as they are at one moment.

    What stands at the end of a file and is no whole batch is left for the next look: a broker may be writing it.
    Segments that are added to the partitions are followed too. Of one that the cleaner puts in the place of others
    only batches are shown that go on from those that were shown.

    Attributes:
        partitions: which of the directories' are followed.
        sleep: waits between two looks.
    """

    segments: SegmentDump
    logs: LogDirectories
    partitions: list[Partition]
    sleep: Callable[[float], object] = time.sleep
    _done: dict[tuple[str, str], _Followed] = field(default_factory=dict)

    def rows(self) -> Iterator[Row | None]:
        """Rows without end; None when the next one may take a while."""
        names, chosen = frozenset(p.directory for p in self.partitions), set(map(id, self.partitions))
        while True:
            for directory in self.logs.directories:
                tree = tree_at_one_moment(directory, names)
                for partition in directory.partitions:
                    if id(partition) in chosen:
                        now = read_partition(tree, partition.directory, partition.name)
                        yield from self._partition(LogDirectory(tree, [now], directory.files), now)
            yield None
            self.sleep(POLL_SECONDS)

    def _partition(self, home: LogDirectory, now: Partition) -> Iterator[Row]:
        tree, known = home.tree, self._done.setdefault((home.root, now.directory), _Followed())
        topic_id = _topic_id_of(now)
        if topic_id not in {None, known.topic_id}:
            known.topic_id, known.next, known.files = topic_id, 0, {}
        is_first, begin = not known.files, now.logs[0].base if now.logs else 0
        if not is_first and known.next < begin:
            yield self._missed(now, now.logs[0], f"offsets {known.next} to {begin - 1} were").row()
        known.next = max(known.next, begin)
        if self.segments.views is not None and now.logs:
            before, known.size = known.size, sum(log.size for log in now.logs)
            if known.size == before:
                return
            view = _committed(home, now)
            known.end, self.segments.views = view.end, lambda _: view
        for log in now.logs:
            try:
                yield from self._file(tree, now, log, known, is_first=is_first)
            except FileNotFoundError:
                yield self._missed(now, log, "it was").row()
        known.files = {log.name: known.files[log.name] for log in now.logs if log.name in known.files}

    def _file(
        self, tree: Tree, partition: Partition, file: LogFile, known: _Followed, *, is_first: bool
    ) -> Iterator[Row]:
        inode = tree.inode(file.name) if isinstance(tree, MomentTree) else None
        before, start = known.files.get(file.name, (None, 0))
        is_other = not is_first and (file.name not in known.files or before != inode)
        start = 0 if is_other else min(start, file.size)
        known.files[file.name] = inode, start
        if file.size <= start:
            return
        whole = extent_of(file)
        source = file.open()
        try:
            for block in scan(source, Extent(whole.file, whole.base, start, size=file.size, chained=True)):
                raise_refused(tree, file.name)
                block, is_decided = _decided(_whole(block, file.size), known.end)
                if len(block):
                    known.files[file.name] = inode, int(block.position[-1] + block.size[-1])
                if is_other:
                    block = block.take(block["last_offset"] >= known.next)
                if len(block) or block.gaps:
                    for part in self.segments.parts_of(partition, block):
                        yield from self.segments.rows_of(part)
                if len(block):
                    known.next = max(known.next, int(block["last_offset"][-1]) + 1)
                if not is_decided:
                    break
        finally:
            source.close()
        raise_refused(tree, file.name)

    def _missed(self, partition: Partition, file: LogFile, what: str) -> Finding:
        text = f"{what} deleted before all was shown"
        return Finding(FILE_UNREADABLE, file.name, 0, 0, text, topic=partition.topic, partition=partition.partition)


def _topic_id_of(partition: Partition) -> str | None:
    """Return the id of a partition's topic; None where nothing says it."""
    from rmqctl.kafka.loading.checkpoints import read_text

    file = partition.one(FileKind.PARTITION_METADATA)
    with suppress(FileNotFoundError):
        return None if file is None else parse_partition_metadata(read_text(file)).topic_id
    return None


def _decided(block: Block, end: int | None) -> tuple[Block, bool]:
    """Return the batches before an offset, and whether those are all."""
    count = len(block) if end is None else int(np.cumprod(block["last_offset"] < end).sum())
    if count == len(block):
        return block, True
    found = block.take(slice(0, count))
    found.gaps = [gap for gap in block.gaps if gap.position < block.position[count]]
    return found, False


def _whole(block: Block, size: int) -> Block:
    """Return a block without what may still be written: a bad batch at the very end, and a gap that no batch ends."""
    found = block
    if len(block) and not block.crc_ok[-1] and block.position[-1] + block.size[-1] >= size:
        found = block.take(slice(0, -1))
    found.gaps = [gap for gap in block.gaps if gap.resumed]
    return found
