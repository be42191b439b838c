"""Small files of an export put together: which, and the task that writes one of them.

Rows of a merged file are those of its files, one after the other; within a row group they ascend by the order of the
layout. The files that go stay until the export that has the merged ones is made visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa

from rmqctl.parallel import Tally
from rmqctl.pipeline.export_manifest import DONE, ExportedFile, ExportLayout
from rmqctl.pipeline.export_task import ROW_GROUP, FileWriter, written_down
from rmqctl.pipeline.outputs import Output

_LARGE = 0.75
"""Of the wanted size: a file from there on is left as it is."""


_END = re.compile(r"(-m[0-9a-f]{8}(-\d+)?)?\.\w+$")


@dataclass(frozen=True, slots=True)
class Merge:
    """Files that become one.

    Attributes:
        name: of the note, and of the file without directory and end.
        files: in log order.
        partition: the directory below that of the export; empty where there is none.
    """

    name: str
    files: tuple[ExportedFile, ...]
    partition: str


def merges(files: Sequence[ExportedFile], target_size: int) -> dict[str, Merge]:
    """Return which files are to be put together, by name: neighbours of one partition that are small."""
    by_partition: dict[str, list[ExportedFile]] = {}
    for file in sorted(files, key=lambda file: file.path.rpartition("/")[2]):
        by_partition.setdefault(file.path.partition("/")[2].rpartition("/")[0], []).append(file)
    found: dict[str, Merge] = {}
    for partition, own in sorted(by_partition.items()):
        for group in _groups(own, target_size):
            stem = _END.sub("", group[0].path.rpartition("/")[2])
            digest = sha256("\n".join([partition, *(file.path for file in group)]).encode()).hexdigest()
            name = f"{stem}-m{digest[:8]}"
            found[name] = Merge(name, tuple(group), partition)
    return found


def _groups(files: Sequence[ExportedFile], target_size: int) -> Iterator[list[ExportedFile]]:
    group: list[ExportedFile] = []
    size = 0
    for file in files:
        is_large = file.size >= target_size * _LARGE
        if is_large or size + file.size > target_size:
            if len(group) > 1:
                yield group
            group, size = [], 0
        if not is_large:
            group.append(file)
            size += file.size
    if len(group) > 1:
        yield group


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What all tasks that merge files share.

    Attributes:
        directory: of the output, for the files.
    """

    layout: ExportLayout
    output: Output
    directory: str

    def run(self, merge: Merge) -> Iterator[pa.RecordBatch]:
        """Write the rows of some files into one; one row about it."""
        import pyarrow.parquet as pq

        name = "/".join(filter(None, (self.directory, merge.partition, merge.name)))
        with ExitStack() as stack:
            made = FileWriter(self.layout, self.output, name, stack, sorts=True, of=merge.files)
            waiting, size = list[pa.Table](), 0
            for file in merge.files:
                is_new = file.path.startswith(f"{self.directory}/")
                with self.output.open(self.output.staged(file.path) if is_new else file.path) as stream:
                    rows = pq.ParquetFile(stream)
                    for group in range(rows.num_row_groups):
                        waiting.append(rows.read_row_group(group))
                        size += waiting[-1].nbytes
                        if size >= ROW_GROUP:
                            made.write(pa.concat_tables(waiting))
                            waiting, size = [], 0
            if waiting:
                made.write(pa.concat_tables(waiting))
            made.close()
        note = f"{self.directory}/{DONE}/{merge.name}.json"
        yield written_down(self.layout, self.output, note, merge.name, made.done, Tally())
