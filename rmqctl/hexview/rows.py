"""Annotations as JSON-ready objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rmqctl.hexview.annotation import Annotation, Value
from rmqctl.rocketmq.rows.text import text_or_base64


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
