"""From a row of any verb to what it leads to: a message, a queue, bytes, a life; and what can be copied of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from commands._browse import reading
from commands._browse.bytes import BytesView
from commands._browse.queue import QueueView
from commands._browse.reading import MESSAGE_COLUMNS, offset_of, queue_of
from commands._browse.site import Site
from commands._browse.text import TextView
from commands._browse.views import View
from commands._rows import Row
from rmqctl import questions


def view_of(site: Site, row: Row) -> View | None:
    """Return what opens where a row is chosen."""
    kind = row.get("kind")
    if kind == "finding":
        return finding_view(site, row)
    if kind in MESSAGE_COLUMNS:
        return message_view(site, row)
    if kind == "time_answer":
        return QueueView(site, row["topic"], queue_of(row), row.get("queue_offset", row.get("offset")))
    if kind == "segment":
        return BytesView(site, row["file"])
    if row.get("topic") and ("queue_id" in row or "partition" in row):
        at = row.get("consumer_offset", row.get("current_txn_first_offset"))
        return QueueView(site, row["topic"], queue_of(row), at if isinstance(at, int) and at >= 0 else None)
    return TextView(site, str(kind or "row"), "", partial(reading.sheet, row), row)


def finding_view(site: Site, row: Row) -> View:
    """What a finding means, costs, and what to do about it."""
    return TextView(site, str(row["id"]), site.command("verify"), partial(reading.finding, row), row)


def message_view(site: Site, row: Row) -> View:
    """All fields of a message, and its body."""
    queue, offset = queue_of(row), offset_of(row)
    command = site.command("query-offset", f"{row['topic']}/{queue}", str(offset), "-n", "1", "--body", "-o", "json")
    return TextView(site, f"{row['topic']}/{queue}@{offset}", command, partial(reading.message, row), row)


def bytes_of(site: Site, row: Row) -> View | None:
    """Return the bytes that a row is about."""
    file = row.get("file")
    if not file or str(file).endswith("/"):
        return None
    place = row.get("position", row.get("batch_position", row.get("offset", 0)))
    size = row.get("size") or 0
    return BytesView(site, str(file), int(place or 0), int(size))


def life_of(site: Site, row: Row) -> View | None:
    """Return the life of a message."""
    if row.get("kind") not in MESSAGE_COLUMNS:
        return None
    return trace_view(site, f"{row['topic']}/{queue_of(row)}@{offset_of(row)}")


def trace_view(site: Site, message: str, topic: str | None = None) -> View:
    """Return the lives of the messages that a key, an id or a place names."""
    words = ["--topic", topic] if topic else []
    make = partial(reading.answered, questions.Trace(message, topic))
    return TextView(site, f"trace {message}", site.command("trace", message, *words), make)


def copies_of(site: Site, row: Row) -> Mapping[str, str]:
    """Return what can be copied of a row: its id, its path, its place."""
    found: dict[str, str] = {}
    name = row.get("message_id") or row.get("id") or row.get("transactional_id") or row.get("group")
    if name is not None:
        found["id"] = str(name)
    if isinstance(row.get("unique_key"), str):
        found["unique key"] = row["unique_key"]
    if row.get("topic") and ("queue_id" in row or "partition" in row):
        at = f"@{offset_of(row)}" if row.get("kind") in MESSAGE_COLUMNS else ""
        found["place"] = f"{row['topic']}/{queue_of(row)}{at}"
    if row.get("file"):
        found["path"] = site.place_of(str(row["file"]))
    return found
