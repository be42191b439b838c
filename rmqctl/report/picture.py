"""A store as a picture: lanes with what lies where, for the script of the page to draw, and as a table.

A lane is the commit log, a queue or a partition. Its places are offsets: bytes of the commit log, else messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from rmqctl.answer import Row
from rmqctl.notices import queue_of
from rmqctl.text import instant, number_of

LANES = 40
"""Queues or partitions that are drawn: the largest, and before them those with damage."""
_CHECKPOINTS = {"confirm_phy_offset": "confirm offset", "master_flushed_offset": "flushed by the master"}
_POINTS = {
    "log_start_offset": "log start",
    "high_watermark": "high watermark",
    "last_stable_offset": "last stable offset",
}
_LOG = "commit log"


def picture(store: Row) -> Row:
    """Return the lanes of a store of a report: ``log`` in bytes, ``queues`` in messages, ``times`` with counts.

    A lane has ``blocks`` (segments) and ``marks`` (findings, positions of groups, checkpoints), the log's also ``cut``,
    what a start would take away: begin and end. ``more`` says how many queues are not drawn.
    """
    lanes, more = _queues(store)
    return {"log": list(_log(store)), "queues": lanes, "more": more, "times": _times(store)}


def _log(store: Row) -> Iterator[Row]:
    """Yield the lane of a commit log; a log directory has none."""
    segments = [one for one in store["segments"] if "partition" not in one]
    if not segments:
        return
    start = (store.get("start") or {}).get("log") or {}
    checkpoint = store["info"].get("checkpoint") or {}
    marks = [
        _mark(checkpoint[name], "checkpoint", label) for name, label in _CHECKPOINTS.items() if checkpoint.get(name)
    ]
    marks += [_found(f, f["physical_offset"]) for f in store["findings"] if f.get("physical_offset") is not None]
    marks += [
        _mark(row["physical_offset"], "pending", _waiting(row))
        for row in store["pending"]
        if (row.get("physical_offset") or -1) >= 0
    ]
    end, before = start.get("end"), start.get("end_before")
    cut = [end, before] if end is not None and before is not None and end < before else None
    if cut is not None:
        marks.append(_mark(end, "cut", f"a start with {store['start']['release']} ends the log here"))
    blocks = [_block(one, one["base_offset"] + one["size"], "first_store_timestamp") for one in segments]
    yield {
        "name": _LOG, "begin": blocks[0]["begin"], "end": blocks[-1]["end"], "unit": "bytes", "blocks": blocks,
        "marks": marks, "cut": cut,
    }  # fmt: skip


def _waiting(row: Row) -> str:
    """Return what waits, in words."""
    due = row.get("due_timestamp")
    until = "" if not due else f", due {instant(due)}"
    return f"{_WAITS.get(row['what'], row['what'])} of {row['topic']}{until}"


_WAITS = {"timer": "timer", "delay": "delayed message", "transaction": "half message", "pop": "popped message"}


def side_by_side(stores: Sequence[Row], differences: Iterable[Row]) -> Row:
    """Return the lanes of replicas as :func:`picture`, those of one log or queue below one another.

    Damage comes first, then what is not alike. A lane has ``label``, which of the stores it is of, and ``prefix``,
    where its findings lead; what differs from the first store is a mark on the lane of the other.

    Args:
        differences: rows of `diff` between the first store and each other one, with ``store``.
    """
    names = [str(store["store"]) for store in stores]
    parts = [name.split("/") for name in names]
    shared = len(list(takewhile(lambda some: len(set(some)) == 1, zip(*parts, strict=False))))
    found: dict[bool, dict[str, list[Row]]] = {True: {}, False: {}}
    for number, (store, name) in enumerate(zip(stores, names, strict=True)):
        label = "/".join(parts[number][shared:]) or name
        rows = list(enumerate(differences)) if number else []
        unlike = [(at, row) for at, row in rows if row["store"] == name]
        for is_log, lanes in ((True, _log(store)), (False, _lanes(store))):
            for lane in lanes:
                own = found[is_log].setdefault(lane["name"], [])
                marks = list(_differences(lane, own[0] if own else lane, unlike))
                own.append({**lane, "label": label, "prefix": f"s{number}", "marks": [*marks, *lane["marks"]]})
    log, queues = (_unlike_first(found[is_log]) for is_log in (True, False))
    most = LANES * 3 // len(stores)
    shown = [lane for lanes in queues[:most] for lane in lanes]
    return {"log": [lane for lanes in log for lane in lanes], "queues": shown, "more": max(len(queues) - most, 0)}


def _unlike_first(logs: Mapping[str, list[Row]]) -> list[list[Row]]:
    """Return the lanes of each log or queue that several stores have, in the order in which they are looked at."""

    def order(lanes: list[Row]) -> tuple[bool, bool, int]:
        is_alike = len({(lane["begin"], lane["end"]) for lane in lanes}) == 1
        is_sound = not any(mark["kind"] in {"error", "warning", "cut"} for lane in lanes for mark in lane["marks"])
        return is_sound, is_alike, -max(lane["end"] - lane["begin"] for lane in lanes)

    return sorted((lanes for lanes in logs.values() if len(lanes) > 1), key=order)


def _differences(lane: Row, first: Row, rows: Iterable[tuple[int, Row]]) -> Iterator[Row]:
    """Yield marks of what differs in one lane from that of the first store; they lead to the row that says it."""
    for number, row in rows:
        if lane["name"] == _LOG:
            at = row.get("physical_offset")
        else:
            at = _place(row, first["blocks"]) if row.get("topic") and queue_of(row) == lane["name"] else None
        if at is not None:
            yield {"at": at, "kind": "warning", "text": f"differs: {row['message']}", "to": f"d{number}"}


def _queues(store: Row) -> tuple[list[Row], int]:
    """Return lanes of queues or partitions, the damaged and the largest ones, and how many there are more."""
    lanes = list(_lanes(store))
    return lanes[:LANES], len(lanes[LANES:])


def _lanes(store: Row) -> Iterator[Row]:
    """Yield lanes of all queues or partitions: the damaged ones, then by size."""
    marks = _marks(store)
    segments: dict[str, list[Row]] = defaultdict(list)
    for one in store["segments"]:
        if "partition" in one:
            segments[queue_of(one)].append(one)
    damage: dict[str, list[Row]] = defaultdict(list)
    for finding in store["findings"]:
        if finding.get("topic") is not None:
            damage[queue_of(finding)].append(finding)
    ends = {row["partition"]: row["log_end_offset"] for row in store["partitions"]}
    rows = sorted(store["topics"], key=lambda row: (queue_of(row) not in damage, -(row.get("bytes") or 0)))
    for row in rows:
        name = queue_of(row)
        begin = row.get("min_offset", row.get("log_start_offset")) or 0
        end = row.get("max_offset", row.get("log_end_offset")) or 0
        own = segments.get(name, [])
        shown = [_mark(row[key], "checkpoint", label) for key, label in _POINTS.items() if row.get(key) is not None]
        shown += marks.get(name, [])
        shown += [_found(f, place) for f in damage.get(name, []) if (place := _place(f, own)) is not None]
        last = max([end, *(one["end_offset"] for one in own)])
        kept = ends.get(f"{row['topic']}-{row.get('partition')}", last)
        if kept < last:
            shown.append(_mark(kept, "cut", f"a start with {store['doctor']['start']['release']} ends the log here"))
        yield {
            "name": name, "begin": begin, "end": last, "unit": "messages", "bytes": row.get("bytes") or 0,
            "blocks": [_block(one, one["end_offset"], "first_timestamp") for one in own], "marks": shown,
            "cut": [kept, last] if kept < last else None,
        }  # fmt: skip


def _marks(store: Row) -> dict[str, list[Row]]:
    """Return by queue or partition where groups stand, leader epochs begin and transactions are open."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in store["leader_epochs"]:
        found[queue_of(row)].append(_mark(row["start_offset"], "epoch", f"leader epoch {row['epoch']} begins"))
    for row in store["producers"]:
        if row["current_txn_first_offset"] >= 0:
            text = f"producer {row['producer_id']} has a transaction open from here on"
            found[queue_of(row)].append(_mark(row["current_txn_first_offset"], "open", text))
    for row in store["lag"]:
        if row["consumer_offset"] is not None:
            text = f"{row['group']}, {number_of(row['lag'] or 0, 'message')} after it"
            kind = "group" if row["anomaly"] is None else "anomaly"
            found[queue_of(row)].append(_mark(row["consumer_offset"], kind, text))
    return found


def _place(finding: Row, segments: Iterable[Row]) -> int | None:
    """Return the offset of a finding in its queue; in a segment as its byte lies in the file."""
    if finding.get("queue_offset") is not None:
        return int(finding["queue_offset"])
    for one in segments:
        if one["file"] == finding["file"] and one["size"] > 0:
            begin, end = one.get("base_offset", one.get("begin")), one.get("end_offset", one.get("used"))
            return int(begin + (end - begin) * min(finding["offset"] / one["size"], 1))
    return None


def _block(one: Row, end: int, time: str) -> Row:
    return {
        "begin": one["base_offset"], "end": end, "used": one["end_offset"], "file": one["file"], "size": one["size"],
        "time": one[time],
    }  # fmt: skip


def _mark(at: Any, kind: str, text: str) -> Row:
    return {"at": at, "kind": kind, "text": text}


def _found(finding: Row, at: int) -> Row:
    text = f"{finding['severity']} {finding['id']}: {finding['message']}"
    return {"at": at, "kind": finding["severity"], "text": text, "finding": finding["number"]}


def _times(store: Row) -> Row | None:
    """Return how many messages of each topic were stored when."""
    figures = store.get("figures")
    if not figures or not figures["timeline"]:
        return None
    step = figures["step_ms"]
    counts: dict[str, list[list[int]]] = defaultdict(list)
    for row in figures["timeline"]:
        counts[row["topic"]].append([row["time"], row["messages"]])
    largest = sorted(counts, key=lambda topic: -sum(n for _, n in counts[topic]))[:LANES]
    moments = [at for topic in largest for at, _ in counts[topic]]
    return {
        "begin": min(moments), "end": max(moments) + step, "step": step,
        "lanes": [{"name": topic, "counts": counts[topic]} for topic in largest],
        "segments": [
            [at, one["file"]]
            for one in store["segments"]
            if (at := one.get("first_store_timestamp", one.get("first_timestamp"))) is not None
        ],
    }  # fmt: skip


def shares(store: Row) -> list[Row]:
    """Return what lies unevenly, each with a ``title`` and ``rows`` of name, value and percent of the largest.

    The queues of topics that have several, by messages; groups by the sum of their lags.
    """
    topics: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in store["topics"]:
        count = row.get("messages", row.get("records"))
        if count is not None:
            topics[row["topic"]].append((queue_of(row), count))
    several = {name: rows for name, rows in topics.items() if len(rows) > 1}
    largest = sorted(several, key=lambda name: -sum(count for _, count in several[name]))[:_SHARES]
    found = [_shares(f"Queues of {name}, messages", sorted(several[name])[:LANES]) for name in largest]
    groups: dict[str, int] = defaultdict(int)
    for row in store["lag"]:
        groups[row["group"]] += row["lag"] or 0
    behind = sorted(groups.items(), key=lambda item: -item[1])[:LANES]
    return found + ([_shares("Consumer groups, messages behind", behind)] if behind else [])


_SHARES = 12
"""Topics whose queues are compared: the largest."""


def _shares(title: str, rows: Sequence[tuple[str, int]]) -> Row:
    most = max(1, *(count for _, count in rows))
    return {
        "title": title,
        "rows": [{"name": name, "value": n, "percent": round(100 * n / most, 1)} for name, n in rows],
    }


def forecast(store: Row) -> list[Row]:
    """Return what retention deletes: rows of `topics --disk`, what goes first in front."""
    rows = [
        row
        for row in store["disk"]
        if row["fate"] == "retention" and (row["expired_bytes"] or row["expires_timestamp"])
    ]
    return sorted(rows, key=lambda row: (not row["expired_bytes"], row["expires_timestamp"] or 0))


def strips(store: Row) -> list[Row]:
    """Return what would become of the messages: if a broker started now, and if the store were mended first.

    Each has a ``title``, ``parts`` (what, messages, percent of all) and, where that is not known, ``unknown``.
    """
    doctor = store["doctor"]
    start, repair = doctor["start"], (store["repair"] or {}).get("summary")
    total = doctor["checked"].get("messages") or 0
    lost, hidden = (_count(start.get(name)) for name in ("lost", "hidden"))
    if start["starts"] is None:
        found: list[Row] = [{"title": "If a broker started now", "parts": [], "unknown": "it was not looked at"}]
    elif not start["starts"]:
        title = f"If a {start['release']} broker started now"
        found = [{"title": title, "parts": [], "unknown": f"it does not start: {start['error']}"}]
    else:
        parts = {"kept": total - lost - hidden, "lost": lost, "hidden": hidden}
        found = [{"title": f"If a {start['release']} broker started now", "parts": _parts(parts), "unknown": ""}]
    if repair is not None:
        books = repair.get("books") or {}
        loses = repair.get("loses") or 0
        parts = {"kept": total - loses - books.get("healed", 0), "healed": books.get("healed", 0), "given up": loses}
        left = repair.get("refusal") or repair.get("unknown") or ""
        found.append({"title": "If the repair were carried out first", "parts": _parts(parts), "unknown": left})
    return found


def _count(amount: Row | None) -> int:
    amount = amount or {}
    return int(amount.get("messages", amount.get("records", 0)))


def _parts(parts: Mapping[str, int]) -> list[Row]:
    total = sum(max(n, 0) for n in parts.values()) or 1
    found, at = list[Row](), 0.0
    for what, count in parts.items():
        if count > 0:
            percent = max(100 * count / total, 0.4)
            found.append({"what": what, "messages": count, "at": round(at, 2), "percent": round(percent, 2)})
            at += percent
    return found
