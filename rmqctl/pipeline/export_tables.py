"""Exports as tables: tasks write Parquet files as into any output, and one commit makes them the table's.

What an export has covered, its :class:`Manifest` without the files, is in that commit; so the next export goes on from
exactly there, whatever others have done with the table since. Files of exports that were replaced stay for readers of
earlier versions, until the table is cleaned of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import orjson

from rmqctl.files.new_files import sync_path
from rmqctl.pipeline.export_manifest import (
    DATA,
    DONE,
    NULL_PARTITION,
    PENDING,
    ExportedFile,
    ExportLayout,
    Manifest,
)
from rmqctl.pipeline.outputs import LocalOutput, lost, read_manifest

KEY = "rmqctl.export"
"""What the manifest is called in a commit."""


class TableOutput:
    """What all tables have in common; the files go where :class:`LocalOutput` and :class:`RemoteOutput` say.

    A kind of table brings ``exists()``, ``noted()``, ``doubt()`` and ``commit(made)``.
    """

    prefix = f"{DATA}-"
    evolves: ClassVar[bool] = True

    def staged(self, name: str) -> str:
        """Return the name itself: files are in the table when a commit names them."""
        return name

    def exists(self) -> bool:
        """Whether there is a table."""
        raise NotImplementedError

    def noted(self) -> Iterator[str]:
        """Yield what exports have noted in the commits that the table is made of, the latest first."""
        raise NotImplementedError

    def doubt(self) -> str:
        """Return why nobody can tell whether the rows of the last export are still in the table; empty where they
        are.
        """
        raise NotImplementedError

    def commit(self, made: Manifest) -> None:
        """Make the files of an export those of the table, or more of them, at once."""
        raise NotImplementedError

    def settle(self: Any, paths: Iterable[str]) -> None:
        """Have paths, and the names of all that leads to them, outlast a loss of power, where that is ours to say."""
        if isinstance(self, LocalOutput):
            known = [Path(path) for path in paths]
            above = {up for path in known for up in path.parents if up.is_relative_to(self.root)}
            for path in sorted({*known, *above}, key=lambda path: len(path.parts), reverse=True):
                sync_path(path)

    def manifest(self: Any) -> Manifest | None:
        note = next(self.noted(), None)
        return None if note is None else Manifest.load(note.encode(), self.shown())

    def clear(self: Any, before: Manifest | None, directory: str = "") -> None:
        """Delete what an export has left that was broken off before its commit; other files may be the table's."""
        pending = read_manifest(self, PENDING)
        committed = 0 if before is None else before.generation
        if pending is not None and pending.generation > committed and pending.directory != directory:
            self.remove(pending.directory)
        if before is not None and self.names(f"{before.directory}/{DONE}"):
            self.remove(f"{before.directory}/{DONE}")

    def publish(self: Any, plan: Manifest, kept: Sequence[ExportedFile], new: Sequence[ExportedFile]) -> Manifest:
        for file in new:
            if self.size(file.path) < 0:
                raise lost(self.shown(file.path))
        before = None if plan.replaces else self.manifest()
        made = plan.of(list(new))
        if before is not None:
            made = replace(made, rows=before.rows + made.rows, size=before.size + made.size)
        if not new and not self.exists():
            self.remove(plan.directory)  # a table needs columns, and only rows have them
            return made
        self.settle({os.path.dirname(self.shown(file.path)) for file in new})
        self.commit(made)
        self.remove(f"{plan.directory}/{DONE}")
        return made


def note_of(made: Manifest) -> str:
    """Return what a commit keeps of an export."""
    return orjson.dumps(replace(made, files=[]).document()).decode()


def partition_values(path: str, layout: ExportLayout) -> dict[str, str | None]:
    """Return the values of the columns that a file is divided by, from its directories."""
    parts = path.split("/")[1 : 1 + len(layout.partition_by)]
    found = (part.partition("=")[::2] for part in parts)
    return {name: None if value == NULL_PARTITION else unquote(value) for name, value in found}
