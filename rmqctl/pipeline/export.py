"""The job of `export`: messages or records as files, each once, nothing half written in sight.

The files of an export are written in a directory of its own that nobody looks into. When all are there, one switch
makes them the export, see :meth:`rmqctl.pipeline.outputs.Output.publish`: before it a reader sees all of the old, after
it all of the new. An export that was broken off goes on where it stopped when the same is asked for again: tasks that
left their note are not run again. What else was left is removed by the next export. The tasks are done by Spark's
executors or by processes here; what they write is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from rmqctl.errors import Refused
from rmqctl.parallel import Ordered, Tally, most_processes, noted, taken
from rmqctl.pipeline.export_compact import Merge, MergeTask, merges
from rmqctl.pipeline.export_manifest import (
    DAY,
    DONE,
    PENDING,
    TARGET_SIZE,
    ExportedFile,
    ExportLayout,
    Manifest,
    directory_of,
)
from rmqctl.pipeline.export_task import NOTE_SCHEMA, ExportTask, columns_to_read
from rmqctl.pipeline.outputs import Output, lost, read_manifest
from rmqctl.tables import Change, Places, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = ExportTask | MergeTask
Work = Callable[[Any, list[Any]], None]
"""Does a :data:`Task` for each of some items, in any order."""
SMALLEST_PART, LARGEST_PART = 64 << 20, 1 << 30
_PARTS_PER_CORE = 2


@dataclass(frozen=True, slots=True)
class ExportChoices:
    """What is asked of an export.

    Attributes:
        body: what bodies are in the files, for families that have a choice.
        split_size: bytes of the log that become one set of files; None: by the size of the log.
        incremental: only what came since the last export into the same output.
        overwrite: what is in the output goes.
        target_size: bytes of a file from which on another is begun.
        compact: put small files of a partition together.
    """

    format: str = "parquet"
    columns: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] = ("topic", DAY)
    compression: str = "zstd"
    body: str = "decompressed"
    split_size: int | None = None
    incremental: bool = False
    overwrite: bool = False
    target_size: int = TARGET_SIZE
    compact: bool = False


class Export:
    """One export of the main table of a store.

    Args:
        store: its tables, with the filters of the rows.

    Attributes:
        added: files that the last run has made.
        rows: how many it has added.
        read: what it has read of the log for them, and what it has left out.

    Raises:
        Refused: the output holds something else, or does not go with what is asked.
        NotAStore, OSError: there is no store, or it cannot be read.
    """

    def __init__(self, store: Tables, output: Output, choices: ExportChoices) -> None:
        self.store, self.output, self.choices = store, output, choices
        self.log = store.log()
        self.added: list[ExportedFile] = []
        self.rows = 0
        self.read = Tally()
        self.before = output.manifest()
        self._check()

    def _check(self) -> None:
        shown, choices = self.output.shown(), self.choices
        if self.before is not None and not (choices.incremental or choices.overwrite):
            raise Refused(
                f"{shown} holds an export already; add --incremental to continue it, or --overwrite to replace it"
            )
        if self.before is not None or self._pending() is not None or self.output.is_empty():
            return
        if choices.overwrite:
            raise Refused(f"{shown} holds files that no export wrote; remove them yourself, or give another directory")
        if choices.incremental:
            raise Refused(f"{shown} holds no export to continue; give another directory")
        raise Refused(f"{shown} is not empty; give another directory")

    def _pending(self) -> Manifest | None:
        return read_manifest(self.output, PENDING)

    def plan(self, cores: int) -> Manifest:
        """Return what is to be done: from where to where, in which layout. The same, broken off before, keeps its plan.

        Args:
            cores: tasks that run at once.

        Raises:
            Refused: the export that is to be continued is another one.
        """
        log = self.log
        layout = self._layout(cores, log.size)
        schema = self.store.asked(columns_to_read(layout)).table(self.store.names[0]).schema()
        layout = self.output.fitted(layout, schema)
        end = log.end(growing=log.is_running)
        filters = orjson.loads(orjson.dumps(self.store.described()))
        made = Manifest(self.store.path, layout, filters, log.begin(), end, log.marks(end))
        made.replaces, made.compact = self.choices.overwrite, self.choices.compact
        if self.before is not None:
            made.generation = self.before.generation + 1
            if not made.replaces:
                made = self._continued(made, self.before)
        pending = self._pending()
        if pending is not None and self._is_same(pending, made):
            return pending
        made.directory = directory_of(made, self.output.prefix)
        return made

    def _continued(self, made: Manifest, before: Manifest) -> Manifest:
        """Return what has come since an export."""
        kept = replace(made.layout, split_size=before.layout.split_size)
        same = replace(kept, target_size=before.layout.target_size)
        if self.output.evolves:
            same = replace(same, columns=before.layout.columns, field_ids=before.layout.field_ids)
        if (before.layout, before.filters) != (same, made.filters):
            raise Refused(
                f"{self.output.shown()} was exported with other options ({_difference(before, made)}); "
                "repeat those, or add --overwrite to export all of it again"
            )
        if doubt := self.output.doubt():
            raise Refused(
                f"{self.output.shown()} may lack rows of the last export: {doubt}; "
                "add --overwrite to export all of it again"
            )
        for change in self._changes(before):
            raise Refused(
                f"{self.store.path} is not what {self.output.shown()} was exported from: {change.what}; "
                "add --overwrite to export all of it again"
            )
        start, end = made.start | before.end, before.end | made.end
        return replace(made, layout=kept, start=start, end=end, marks=before.marks | made.marks)

    def _is_same(self, pending: Manifest, made: Manifest) -> bool:
        """Whether a plan is that of the same export, made when the log was shorter."""
        size = self.choices.split_size or pending.layout.split_size
        layout = replace(made.layout, split_size=size)
        now = replace(made, layout=layout, end=pending.end, marks=pending.marks, directory=pending.directory)
        return pending == now and not self._changes(pending)

    def _changes(self, known: Manifest) -> list[Change]:
        """Return where the log was cut, or is another, since its rows up to the end of a manifest were there. What was
        exported of a partition that is gone stays.
        """
        return [change for change in self.log.changes(known.end, known.marks) if not change.is_gone]

    def _layout(self, cores: int, size: int) -> ExportLayout:
        choices, log = self.choices, self.log
        names = self.store.asked(choices.columns).table(self.store.names[0]).schema().names
        written = tuple(name for name in names if name not in choices.partition_by)
        part = choices.split_size or min(max(size // max(cores * _PARTS_PER_CORE, 1), SMALLEST_PART), LARGEST_PART)
        return ExportLayout(
            choices.format, written, choices.body, choices.partition_by, choices.compression, part,
            log.row_place, log.row_time, choices.target_size,
        )  # fmt: skip

    def run(self, plan: Manifest, work: Work) -> Manifest:
        """Do what is left of a plan and make the result visible; the manifest of the whole output.

        Args:
            work: does the tasks of the given splits, in any order.

        Raises:
            Refused: another export is at work in the output.
        """
        with self.output.alone() as check_owner:
            self._check_unchanged()
            self.output.clear(self.before, plan.directory)
            is_empty = _is_empty(plan.start, plan.end) and self.before is not None and not plan.replaces
            if is_empty and self.before is not None and not self._merges(self.before.files):
                self.output.remove(PENDING)
                return self.before
            self.output.write(PENDING, plan.dump())
            before = noted()
            parts = {self.log.name_of(part): part for part in self.parts(plan)}
            planned = noted().plus(before, -1)
            self._do(plan, self.task(plan), parts, work)
            files, read = self._noted(plan, parts)
            self.read = planned.plus(read)
            return self._commit(plan, files, work, check_owner)

    def _do(self, plan: Manifest, task: Task, items: dict[str, Any], work: Work) -> None:
        """Have the tasks done that left no note yet, or whose files a loss of power took after it kept the note.

        Args:
            items: what each works on, by the name of its note.
        """
        done = {name.removesuffix(".json") for name in self.output.names(f"{plan.directory}/{DONE}")}
        left = [item for name, item in items.items() if name not in done or not self._has_files(plan, name)]
        if left:
            work(task, left)

    def _has_files(self, plan: Manifest, name: str) -> bool:
        """Whether all files are there, of the size, that a note of this plan has."""
        files, _ = self._noted(plan, [name])
        return all(
            file.size in {self.output.size(self.output.staged(file.path)), self.output.size(file.path)}
            for file in files
        )

    def _noted(self, plan: Manifest, names: Iterable[str]) -> tuple[list[ExportedFile], Tally]:
        """Return the files of tasks by their notes, and what they have read."""
        files, read = list[ExportedFile](), Tally()
        for name in names:
            place = f"{plan.directory}/{DONE}/{name}.json"
            note = self.output.read(place)
            if note is None:
                raise lost(self.output.shown(place))
            found = orjson.loads(note)
            files += [ExportedFile.of(file, plan.layout.place, plan.layout.time) for file in found["files"]]
            read = read.plus(Tally.of(found["read"]))
        return files, read

    def _check_unchanged(self) -> None:
        if self.output.manifest() != self.before:
            raise Refused(f"{self.output.shown()} was changed by another export meanwhile; give the command again")

    def parts(self, plan: Manifest) -> list[Any]:
        """Return the stretches of the log that a plan covers, each beginning and ending inside its bounds."""
        return self.log.parts(plan.start, plan.end, plan.layout.split_size)

    def task(self, plan: Manifest) -> ExportTask:
        """Return what the tasks of a plan share."""
        asked = self.store.asked(columns_to_read(plan.layout))
        return ExportTask(asked.log(), plan.layout, self.output, plan.directory)

    def _merges(self, files: Sequence[ExportedFile]) -> dict[str, Merge]:
        return merges(files, self.choices.target_size) if self.choices.compact else {}

    def _commit(self, plan: Manifest, new: list[ExportedFile], work: Work, check_owner: Callable[[], None]) -> Manifest:
        """Make the files of a plan the export, by one switch, and remove what is no part of it any more."""
        self.rows = sum(file.rows for file in new)
        start, kept = plan.start, list[ExportedFile]()
        if self.before is not None and not plan.replaces:
            start, kept, before = plan.start | self.before.start, self.before.files, self.before.read
            plan = replace(plan, read=None if before is None else before.plus(self.read))
        else:
            plan = replace(plan, read=self.read)
        made = self._merges([*kept, *new])
        if made:
            self._do(plan, MergeTask(plan.layout, self.output, plan.directory), made, work)
            gone = {file.path for one in made.values() for file in one.files}
            plan = replace(plan, merged=[file.path for file in kept if file.path in gone])
            kept = [file for file in kept if file.path not in gone]
            new = [file for file in new if file.path not in gone] + self._noted(plan, made)[0]
        for change in self._changes(plan):
            raise Refused(f"{self.store.path} changed while it was exported: {change.what}; give the command again")
        check_owner()
        self._check_unchanged()
        whole = self.output.publish(replace(plan, start=start), kept, new)
        self.added = whole.files[len(kept) :]
        self.output.remove(PENDING)
        self.output.clear(whole)
        return whole


def on_spark(spark: SparkSession) -> Work:
    """Tasks done by executors."""

    def work(task: Task, items: list[Any]) -> None:
        from rmqctl.pipeline.jobs import tasks

        tasks(spark, items, task.run, NOTE_SCHEMA).collect()

    return work


def here(processes: int | None = None, advance: Callable[[int], object] = bool) -> Work:
    """Tasks done by processes of this machine.

    Args:
        processes: how many; one is this process. None: as many as there are processors.
        advance: called with the bytes of log read since its last call.
    """

    def work(task: Task, items: list[Any]) -> None:
        count = min(processes or most_processes(), len(items))
        if count > 1:
            for size in Ordered(partial(partial, _run, task), count, 2 * count).results(items):
                advance(size)
            return
        for item in items:
            advance(_run(task, item))

    return work


def _run(task: Task, item: Any) -> int:
    """Do one task; bytes of log read."""
    for _ in task.run(item):
        pass
    return taken().bytes


def _is_empty(start: Places, end: Places) -> bool:
    return all(high <= start.get(name, 0) for name, high in end.items())


def _difference(before: Manifest, now: Manifest) -> str:
    for name in ("format", "columns", "body", "partition_by", "compression"):
        old, new = getattr(before.layout, name), getattr(now.layout, name)
        if old != new:
            return f"{name} {_shown(old)}, now {_shown(new)}"
    return "other filters"


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


__all__ = ["Export", "ExportChoices", "here", "on_spark"]
