"""What is said about a stretch of bytes, and the file it is said of.

Annotations as JSON-ready objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rmqctl.files.local import ByteSource
from rmqctl.text import text_or_base64

Value = int | str | bytes | None
RAW_LIMIT = 256
"""Bytes of a field that an annotation carries unless more are asked for."""


@dataclass(frozen=True, slots=True)
class Group:
    """A record, unit, entry or gap: what neighboring fields belong to.

    Attributes:
        offset, size: bytes in the file.
        title: what tells it from others of its name.
        wrong: something about it is not as it should be.
    """

    name: str
    offset: int
    size: int
    title: str = ""
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """One field of a file, or bytes that belong to none.

    Attributes:
        file: as the caller named it.
        offset, size: bytes in the file; a field may be empty.
        path: names from the outside in, ``("message", "store_timestamp")``. Bytes of no field are
            ``gap``, ``zeros``, ``zero_tail`` (never written) or ``gone`` (the file was cut while it was read).
        raw: the first bytes, all of them unless the field is longer than the limit.
        value: integers and text as stored; bytes that are no text, as many as ``raw`` has; None for gaps.
        meaning: what the value stands for, in words; "" where it speaks for itself.
        wrong: the meaning says what is not as it should be.
        group: what it belongs to, None at the top level.
    """

    file: str
    offset: int
    size: int
    path: tuple[str, ...]
    raw: bytes
    value: Value = None
    meaning: str = ""
    wrong: bool = False
    group: Group | None = None

    @property
    def depth(self) -> int:
        """How many names stand before its own."""
        return len(self.path) - 1

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.size

    @property
    def is_elided(self) -> bool:
        """Whether bytes were left out of ``raw``."""
        return len(self.raw) < self.size


@dataclass(frozen=True, slots=True)
class View:
    """A file as all walkers see it.

    Attributes:
        size: bytes in the file when the walk began.
        base: offset of its first byte in the sequence of files.
        limit: bytes of a field to carry, None for all.
        index: geometry of an index file where it is known.
    """

    source: ByteSource
    file: str
    size: int
    base: int = 0
    limit: int | None = RAW_LIMIT
    index: Any = None

    @property
    def topic(self) -> str:
        """The topic whose queue this is a file of, by its path; "" where the path is too short."""
        parts = self.file.split("/")
        return parts[-3] if len(parts) >= 3 else ""

    def head(self, data: bytes) -> bytes:
        """The part of a field's bytes to carry."""
        return data if self.limit is None else data[: self.limit]

    def note(
        self,
        path: tuple[str, ...],
        offset: int,
        data: bytes,
        value: Value = None,
        meaning: str = "",
        *,
        size: int | None = None,
        wrong: bool = False,
        group: Group | None = None,
    ) -> Annotation:
        """An annotation of this file; ``size`` where ``data`` is only the beginning."""
        length = len(data) if size is None else size
        raw = self.head(data)
        shown = value[: len(raw)] if isinstance(value, (str, bytes)) and len(raw) < length else value
        return Annotation(self.file, offset, length, path, raw, shown, meaning, wrong, group)


# --- annotations as json-ready objects --------------------------------------------------------------


def rows(annotations: Iterable[Annotation]) -> Iterator[dict[str, Any]]:
    """One object per field: where it is, what it is called, its bytes in hex, its value and meaning.

    ``record`` is the record, unit or entry around it, null at the top level; ``raw`` holds the first
    bytes, all of them when ``raw_truncated`` is not there.
    """
    for note in annotations:
        row: dict[str, Any] = {
            "kind": "field",
            "file": note.file,
            "position": note.offset,
            "size": note.size,
            "name": note.path[-1],
            "path": list(note.path),
            "value": _json(note.value),
            "meaning": note.meaning,
            "wrong": note.wrong,
            "raw": note.raw.hex(),
            "record": None,
        }
        if note.group is not None:
            group = note.group
            row["record"] = {"name": group.name, "position": group.offset, "size": group.size, "title": group.title}
        if note.is_elided:
            row["raw_truncated"] = True
        yield row


def _json(value: Value) -> Any:
    return text_or_base64(value) if isinstance(value, bytes) else value
