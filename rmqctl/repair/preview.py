"""The bytes of a store as a plan finds them and as it would leave them, without writing any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqctl.repair.changes import STORE
from rmqctl.repair.draft import draft_files
from rmqctl.repair.draft_file import DraftFile
from rmqctl.repair.edits import Plan


class DraftSource:
    """One side of a file behind the interface of `rmqctl.files.source.ByteSource`."""

    def __init__(self, file: DraftFile, *, after: bool) -> None:
        self.name = file.name
        self._file, self._after = file, after

    def size(self) -> int:
        return self._file.size if self._after else self._file.first_size

    def read_at(self, offset: int, size: int) -> bytes:
        if self._after:
            return self._file.read(offset, size)
        return self._file.base_bytes(offset, max(min(size, self.size() - offset), 0))

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, self.size())
        if start < end:
            yield start, end

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class FilePreview:
    """One file of a plan.

    Attributes:
        before, after: its bytes; None on the side where it is not in the store.
        stretches: begin and end of what changes, ascending.
    """

    name: str
    before: DraftSource | None
    after: DraftSource | None
    stretches: tuple[tuple[int, int], ...]


def preview(plan: Plan) -> Iterator[FilePreview]:
    """Every file that a plan changes, makes or moves, in the order in which the plan comes to them.

    Raises:
        Refused: the plan does not fit the store as it is.
        OSError: a file cannot be read.
    """
    for file in draft_files(plan):
        was_in, is_in = file.was_at == STORE, file.is_at == STORE
        if not was_in and not is_in:
            continue
        stretches = file.touched() if was_in == is_in else [(0, max(file.first_size, file.size))]
        if stretches or not (was_in and is_in):
            before = DraftSource(file, after=False) if was_in else None
            after = DraftSource(file, after=True) if is_in else None
            yield FilePreview(file.name, before, after, tuple(stretches))
