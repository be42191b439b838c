"""The job of `export`: messages or records as files, each once, nothing half written in sight.

The files of an export are written where they stay, in a directory of its own that nobody looks into. When all are
there, one switch makes them the export, see :meth:`rmqctl.pipeline.outputs.Output.publish`: before it a reader sees all
of the old, after it all of the new. An export that was broken off goes on where it stopped when the same is asked for
again: tasks that left their note are not run again. What else was left is removed by the next export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from rmqctl.errors import Refused
from rmqctl.pipeline.export_manifest import (
    DAY,
    DONE,
    MANIFEST,
    PENDING,
    ExportedFile,
    ExportLayout,
    Manifest,
    directory_of,
)
from rmqctl.pipeline.export_task import NOTE_SCHEMA, ExportTask, columns_to_read
from rmqctl.pipeline.outputs import Output, lost
from rmqctl.tables import Change, Places, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Callable[[ExportTask, list[Any]], None]
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
    """

    format: str = "parquet"
    columns: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] = ("topic", DAY)
    compression: str = "zstd"
    body: str = "decompressed"
    split_size: int | None = None
    incremental: bool = False
    overwrite: bool = False


class Export:
    """One export of the main table of a store.

    Args:
        store: its tables, with the filters of the rows.

    Attributes:
        added: files that the last run has made.

    Raises:
        Refused: the output holds something else, or does not go with what is asked.
        NotAStore, OSError: there is no store, or it cannot be read.
    """

    def __init__(self, store: Tables, output: Output, choices: ExportChoices) -> None:
        self.store, self.output, self.choices = store, output, choices
        self.log = store.log()
        self.added: list[ExportedFile] = []
        self.before = read_manifest(output)
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
        end = log.end(growing=log.is_running)
        filters = orjson.loads(orjson.dumps(self.store.described()))
        made = Manifest(self.store.path, layout, filters, log.begin(), end, log.marks(end))
        made.replaces = self.choices.overwrite
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
        if (before.layout, before.filters) != (kept, made.filters):
            raise Refused(
                f"{self.output.shown()} was exported with other options ({_difference(before, made)}); "
                "repeat those, or add --overwrite to export all of it again"
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
            log.row_place, log.row_time,
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
            self.output.clear(_in_use(self.before) | {plan.directory})
            if _is_empty(plan.start, plan.end) and self.before is not None and not plan.replaces:
                self.output.remove(PENDING)
                return self.before
            self.output.write(PENDING, plan.dump())
            parts = self.parts(plan)
            done = {name.removesuffix(".json") for name in self.output.names(f"{plan.directory}/{DONE}")}
            left = [part for part in parts if self.log.name_of(part) not in done]
            if left:
                work(self.task(plan), left)
            return self._commit(plan, [self.log.name_of(part) for part in parts], check_owner)

    def _check_unchanged(self) -> None:
        if read_manifest(self.output) != self.before:
            raise Refused(f"{self.output.shown()} was changed by another export meanwhile; give the command again")

    def parts(self, plan: Manifest) -> list[Any]:
        """Return the stretches of the log that a plan covers, each beginning and ending inside its bounds."""
        return self.log.parts(plan.start, plan.end, plan.layout.split_size)

    def task(self, plan: Manifest) -> ExportTask:
        """Return what the tasks of a plan share."""
        asked = self.store.asked(columns_to_read(plan.layout))
        return ExportTask(asked.log(), plan.layout, self.output, plan.directory)

    def _commit(self, plan: Manifest, names: Iterable[str], check_owner: Callable[[], None]) -> Manifest:
        """Make the files of a plan the export, by one switch, and remove what is no part of it any more."""
        files: list[ExportedFile] = []
        for name in names:
            place = f"{plan.directory}/{DONE}/{name}.json"
            note = self.output.read(place)
            if note is None:
                raise lost(self.output.shown(place))
            files += [ExportedFile.of(file, plan.layout.place, plan.layout.time) for file in orjson.loads(note)]
        self.added = files
        start = plan.start
        if self.before is not None and not plan.replaces:
            files = [*self.output.kept(self.before.files, plan.directory), *files]
            start = plan.start | self.before.start
        for change in self._changes(plan):
            raise Refused(f"{self.store.path} changed while it was exported: {change.what}; give the command again")
        rows, size = sum(f.rows for f in files), sum(f.size for f in files)
        whole = replace(plan, start=start, files=files, rows=rows, size=size)
        check_owner()
        self._check_unchanged()
        self.output.publish(plan.directory, whole.dump(), {file.path for file in files})
        self.output.remove(PENDING)
        self.output.clear(_in_use(whole))
        return whole


def on_spark(spark: SparkSession) -> Work:
    """Tasks done by executors."""

    def work(task: ExportTask, parts: list[Any]) -> None:
        from rmqctl.pipeline.jobs import tasks

        tasks(spark, parts, task.run, NOTE_SCHEMA).collect()

    return work


def _in_use(manifest: Manifest | None) -> set[str]:
    """Return the directories in which the files of an export lie."""
    return {file.path.partition("/")[0] for file in manifest.files} | {manifest.directory} if manifest else set()


def read_manifest(output: Output, name: str = MANIFEST) -> Manifest | None:
    """Return the manifest in an output, None where there is none.

    Raises:
        Refused: it cannot be read.
    """
    raw = output.read(name)
    return None if raw is None else Manifest.load(raw, output.shown(name))


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


__all__ = ["Export", "ExportChoices", "on_spark"]
