"""The job behind `export`: messages as files for other tools, each message once, nothing half written in sight.

Tasks write into a staging directory; when all are done the files are moved to their places and the
manifest is written. An export that was broken off goes on where it stopped: tasks that left their
note are not run again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from rmqctl.errors import Refused
from rmqctl.pipeline.export_plan import (
    DONE,
    MANIFEST,
    PLAN,
    STAGING,
    ExportedFile,
    Layout,
    Manifest,
    Partition,
    read_manifest,
)
from rmqctl.pipeline.export_task import NOTE_SCHEMA, ExportTask, columns_to_read, name_of
from rmqctl.pipeline.frames import tasks
from rmqctl.pipeline.log_parts import log_splits
from rmqctl.pipeline.log_tip import log_tip
from rmqctl.pipeline.message_batches import message_schema
from rmqctl.pipeline.message_table import MessageTable
from rmqctl.pipeline.options import TableOptions
from rmqctl.pipeline.outputs import Output
from rmqctl.pipeline.skipping import needed
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.rocketmq.verify.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALLEST_PART, LARGEST_PART = 64 << 20, 1 << 30
_PARTS_PER_CORE = 2


@dataclass(frozen=True, slots=True)
class ExportChoices:
    """What is asked of an export.

    Attributes:
        split_size: bytes of the log that become one set of files; None: by the size of the log.
        incremental: only what came since the last export into the same output.
        overwrite: what is in the output goes.
    """

    format: str = "parquet"
    columns: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] = (Partition.TOPIC, Partition.DAY)
    compression: str = "zstd"
    split_size: int | None = None
    incremental: bool = False
    overwrite: bool = False


class Export:
    """One export of the messages of a store.

    Args:
        options: path, filters and bodies.

    Raises:
        Refused: the output holds something else, or does not go with what is asked.
        NotAStore, OSError: there is no store, or it cannot be read.
    """

    def __init__(self, options: TableOptions, output: Output, choices: ExportChoices) -> None:
        self.options, self.output, self.choices = options, output, choices
        self.store: RocketMQStore = options.store()
        self.previous, self.pending = read_manifest(output), read_manifest(output, PLAN)
        self.replaced: Manifest | None = None
        self._check()

    def _check(self) -> None:
        shown = self.output.shown()
        if self.previous is not None and self.pending is not None and self.previous.end >= self.pending.end:
            self.pending = None  # it was complete but for its staging directory
        if self.choices.overwrite:
            if not (self.previous or self.pending or self.output.is_empty()):
                raise Refused(
                    f"{shown} holds files that no export wrote; remove them yourself, or give another directory"
                )
            self.replaced, self.previous, self.pending = self.previous, None, None
        if self.previous is not None and not self.choices.incremental and self.pending is None:
            raise Refused(
                f"{shown} holds an export already; add --incremental to continue it, or --overwrite to replace it"
            )
        if self.choices.incremental and self.previous is None and self.pending is None and not self.output.is_empty():
            raise Refused(f"{shown} holds no export to continue; give another directory")
        if not (self.previous or self.pending or self.choices.overwrite or self.output.is_empty()):
            raise Refused(f"{shown} is not empty; give another directory")

    def plan(self, cores: int) -> Manifest:
        """What is to be done: from where to where, in which layout; an export that was broken off keeps its plan.

        Args:
            cores: tasks that run at once.

        Raises:
            Refused: the plan of the output is another one.
        """
        files = self.store.log_files
        begin = files[0].base if files else 0
        tip = log_tip(self.store, growing=self.store.is_running)
        layout = self._layout(cores, sum(f.size for f in files))
        made = Manifest(self.options.path, layout, _filters(self.options), begin, tip)
        before = self.pending or self.previous
        if before is None:
            return made
        kept = replace(layout, split_size=before.layout.split_size)
        if (before.layout, before.filters) != (kept, made.filters):
            raise Refused(
                f"{self.output.shown()} was exported with other options ({_difference(before, made)}); "
                "repeat those, or add --overwrite to begin anew"
            )
        if self.pending is not None:
            return replace(self.pending, files=[])
        if tip < before.end:
            raise Refused(
                f"the log of {self.options.path} ends at {tip}, before {before.end} where the last export ended; "
                "it is another store, or it was cut: add --overwrite to export it anew"
            )
        return replace(made, layout=kept, start=before.end)

    def _layout(self, cores: int, size: int) -> Layout:
        choices = self.choices
        names = message_schema(choices.columns, self.options.body).names
        written = tuple(name for name in names if name not in choices.partition_by)
        part = choices.split_size or min(max(size // max(cores * _PARTS_PER_CORE, 1), SMALLEST_PART), LARGEST_PART)
        return Layout(choices.format, written, str(self.options.body), choices.partition_by, choices.compression, part)

    def run(self, spark: SparkSession, plan: Manifest) -> Manifest:
        """Do what is left of a plan and make the result visible; the manifest of the whole output.

        Raises:
            OSError: the output cannot be written.
        """
        if self.pending is None:
            self.output.remove(STAGING)
        self._write(PLAN, plan.dump())
        splits = self.splits(plan)
        done = {name.removesuffix(".json") for name in self.output.names(DONE)}
        left = [split for split in splits if name_of(split) not in done]
        task = ExportTask(self._messages(plan), plan.layout, self.output)
        if left:
            tasks(spark, left, task.run, NOTE_SCHEMA).collect()
        return self._commit(plan, [name_of(split) for split in splits])

    def splits(self, plan: Manifest) -> list[Split]:
        """The stretches of the log that a plan covers, each beginning and ending inside its bounds."""
        found = []
        for split in log_splits(self.store, plan.layout.split_size):
            base = split.context.file.base
            start = max(split.start, plan.start - base)
            limit = plan.end - base
            stop = limit if split.stop is None else min(split.stop, limit)
            if start < stop:
                whole = split.stop is None and stop >= split.context.file.size
                found.append(Split(split.context, start, None if whole else stop))
        return needed(self.store, found, self.options.wanted)

    def _messages(self, plan: Manifest) -> MessageTable:
        return MessageTable(replace(self.options, columns=columns_to_read(plan.layout)))

    def _commit(self, plan: Manifest, names: Iterable[str]) -> Manifest:
        """Move the files to their places and write the manifest; repeats what an earlier attempt had begun."""
        moves: list[tuple[str, ExportedFile]] = []
        for name in names:
            note = orjson.loads(self.output.read(f"{DONE}/{name}.json") or b'{"files": []}')
            moves += [(file.pop("staged"), ExportedFile(**file)) for file in note["files"]]
        for staged, file in moves:
            if self.output.size(staged) >= 0:
                self.output.move(staged, file.path)
        before = self.previous
        kept = {file.path for _, file in moves}
        for old in self.replaced.files if self.replaced else []:
            if old.path not in kept:
                self.output.remove(old.path)
        files = [*(before.files if before else []), *(file for _, file in moves)]
        start = before.start if before else plan.start
        whole = replace(
            plan, start=start, files=files, rows=sum(f.rows for f in files), size=sum(f.size for f in files)
        )
        self._write(MANIFEST, whole.dump())
        self.output.remove(STAGING)
        return whole

    def _write(self, name: str, data: bytes) -> None:
        with self.output.create(name) as stream:
            stream.write(data)


def _filters(options: TableOptions) -> dict[str, Any]:
    wanted = asdict(options.wanted)
    if options.wanted.grep is not None:
        wanted["grep"] = options.wanted.grep.pattern.decode("utf-8", "replace")
    loaded: dict[str, Any] = orjson.loads(orjson.dumps(wanted))
    return loaded


def _difference(before: Manifest, now: Manifest) -> str:
    for name in ("format", "columns", "body", "partition_by", "compression"):
        old, new = getattr(before.layout, name), getattr(now.layout, name)
        if old != new:
            return f"{name} {_shown(old)}, now {_shown(new)}"
    return "other filters"


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


__all__ = ["Export", "ExportChoices"]
