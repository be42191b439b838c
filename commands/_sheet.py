"""One object as a sheet: ``name  value``, groups under headings, a list as a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from commands import _sink
from commands._cells import cell, heading, printable
from commands._rows import Row
from commands._screen import Screen, cells_of, pad

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Sheet:
    """How an object is shown: the screen, and the zone of times."""

    screen: Screen
    local_time: bool

    def lines(self, document: Row, depth: int = 0) -> Iterator[str]:
        """Yield the values that stand beside each other in one block, and each group below its heading."""
        indent = _GAP * depth
        for is_group, entries in groupby(document.items(), key=lambda entry: _is_group(entry[1])):
            if not is_group:
                yield from self._values(dict(entries), indent)
                continue
            for key, value in entries:
                yield indent + self.screen.style(_name(key), "bold")
                if isinstance(value, Mapping):
                    yield from self.lines(value, depth + 1)
                else:
                    yield from self._items(value, depth + 1)

    def _items(self, items: Sequence[Row], depth: int) -> Iterator[str]:
        """Objects of a list, each with a dash before its first line."""
        for item in items:
            for number, line in enumerate(self.lines(item, depth + 1)):
                yield line if number else f"{_GAP * depth}- {line[len(_GAP) * (depth + 1) :]}"

    def _values(self, values: Row, indent: str) -> Iterator[str]:
        margin = max(cells_of(_name(key)) for key in values)
        room = self.screen.width - len(indent) - margin - len(_GAP)
        for key, value in values.items():
            for number, part in enumerate(self._parts(key, value, room)):
                name = self.screen.style(pad("" if number else _name(key), margin), "bold")
                yield f"{indent}{name}{_GAP}{part}".rstrip()

    def _parts(self, key: str, value: Any, room: int) -> list[str]:
        """Lines of a value: of a list that is too long for one line, an item each. ``at`` is the time asked about."""
        text = cell("timestamp" if key == "at" else key, value, local_time=self.local_time)
        if isinstance(value, list) and len(value) > 1 and cells_of(text) > room and self.screen.folds:
            return [part for item in value for part in self.screen.fold(self._item(key, item), room)]
        return self.screen.fold(text, room)

    def _item(self, key: str, item: Any) -> str:
        return cell(key, item, local_time=self.local_time)


def write_sheet(document: Row, *, local_time: bool = False) -> None:
    """Write one object as a sheet."""
    _sink.write_text(Sheet(Screen.here(), local_time).lines(document))


def _is_group(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and list(value) != ["base64"]
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) and item for item in value)


def _name(key: str) -> str:
    """A key in words; names of files and settings, which are no words, as they are."""
    return " ".join(heading(key)) if key.isidentifier() and key.islower() else printable(key)
