"""`-o hex`: the annotated bytes of what a dump would show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commands import _sink
from commands._screen import Screen

if TYPE_CHECKING:
    from rmqctl.hexview import Annotation, FileKind
    from rmqctl.open import LoneFile
    from rmqctl.rocketmq.rows.dump import Dump
    from rmqctl.rocketmq.rows.one_file import Request
    from rmqctl.rocketmq.store import RocketMQStore, StoreFile


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of a file; ``stop`` None: to its end."""

    file: StoreFile
    start: int = 0
    stop: int | None = None


class Hex:
    """Writes annotated bytes, and counts what is wrong in them.

    Attributes:
        wrong: fields whose meaning says that something is not as it should be.
        stretches: pieces of files shown.
    """

    def __init__(self, found: RocketMQStore | LoneFile, request: Request) -> None:
        self._files = {file.name: file for file in _files(found)}
        self._request = request
        self.wrong = self.stretches = 0

    def write_files(self) -> None:
        """All files, as far as the wanted offsets reach."""
        _sink.write_text(self._lines(self._ranges()))

    def write_rows(self, dump: Dump) -> None:
        """The bytes of each row of a dump: records, units, damage."""
        _sink.write_text(self._lines(self._rows(dump)))

    def _ranges(self) -> Iterator[Stretch]:
        low, high = self._request.wanted.from_offset, self._request.wanted.to_offset
        for file in self._files.values():
            start = 0 if low is None else max(low - file.base, 0)
            stop = None if high is None else high - file.base
            if start < file.size and (stop is None or stop > 0):
                yield Stretch(file, start, stop)

    def _rows(self, dump: Dump) -> Iterator[Stretch]:
        for row in dump.rows():
            start = row.get("position", row.get("offset"))
            file = self._files.get(row.get("file", ""))
            if file is not None and start is not None:
                yield Stretch(file, start, start + max(row.get("size") or 0, 1))

    def _lines(self, stretches: Iterator[Stretch]) -> Iterator[str]:
        from rmqctl.hexview import render

        screen, file = Screen.here(), ""
        for stretch in stretches:
            if stretch.file.name != file:
                file = stretch.file.name
                yield screen.style(f"{file}, {stretch.file.size} bytes", "bold")
            self.stretches += 1
            yield from render(self._annotations(stretch), width=screen.width, colour=screen.colour)

    def _annotations(self, stretch: Stretch) -> Iterator[Annotation]:
        from rmqctl.hexview import annotate
        from rmqctl.rocketmq.rows.one_file import configured_index

        file, source = stretch.file, stretch.file.open()
        try:
            for note in annotate(
                source,
                _kind(file),
                base=file.base,
                start=stretch.start,
                stop=stretch.stop,
                name=file.name,
                index=configured_index(self._request.settings),
            ):
                self.wrong += note.wrong
                yield note
        finally:
            source.close()


def _files(found: RocketMQStore | LoneFile) -> Iterator[StoreFile]:
    from rmqctl.open import LoneFile
    from rmqctl.rocketmq.rows.one_file import identify
    from rmqctl.rocketmq.rows.places import selected_files

    if isinstance(found, LoneFile):
        yield identify(found.tree, found.name, found.name)[0]
    else:
        yield from selected_files(found)


def _kind(file: StoreFile) -> FileKind:
    """The kind by the file's place in a store, else by its content."""
    from rmqctl.hexview import FileKind, kind_of
    from rmqctl.rocketmq.rows import guess

    by_place = kind_of(file.name)
    if "/" in file.name and by_place is not FileKind.OTHER:
        return by_place
    source = file.open()
    try:
        found = guess.kind_of(file.name.rpartition("/")[2], source)
    finally:
        source.close()
    return by_place if found is None else found
