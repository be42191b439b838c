"""`doctor`: the first look at a store, put together from its other verbs; it knows nothing of its own."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from rmqctl.answer import Answer, Row, Section
from rmqctl.errors import RmqctlError, WrongUsage
from rmqctl.findings import find_kind
from rmqctl.notices import BROKER, Notice, finding_notices, queue_of, typed
from rmqctl.store import Store
from rmqctl.text import number_of

LEVELS = ((1 << 30, "full"), (8 << 30, "structure"))
"""Bytes of log up to which a look is so thorough that it ends within about ten seconds; beyond them it is quick."""
_NOT_READ = {
    "full": "",
    "structure": "Not looked at: the bodies of messages.",
    "quick": "Not looked at: the records of the log.",
}
_SHOWN = 3
"""Notices that stand whole; the others are counted."""
_COMMANDS = 5
_LITTLE = 0.05
"""Part of a disk below which free room is a warning."""


def examine(store: Store, path: str) -> Answer:
    """Say what a store is, whether it is sound, what a start of its broker would do, and what to type next.

    Args:
        path: of the store, as it is typed.
    """
    answer = Answer(work="doctor", total=store.size, document_kinds=frozenset({"json", "jsonl", "csv"}))
    found: dict[str, Any] = {}

    def make() -> None:
        found.update(_look(store, answer))
        found["next"] = _next(found, path)
        answer.is_no = not _is_well(found)

    answer.make = make
    answer.document = lambda: {key: value for key, value in found.items() if key != "notices"}
    answer.sections = lambda: _sections(found)
    return answer


def _look(store: Store, answer: Answer) -> dict[str, Any]:
    level = next((level for most, level in LEVELS if store.size <= most), "quick")
    about = store.info()
    about.prepare()
    document = about.document() if about.document is not None else {}
    checked = store.verify(level=level, notes=False)
    checked.on_advance = answer.advance
    worst, counts, notices = _findings(checked)
    troubles = [*_start_troubles(start := _start(store)), *_lags(store), *_hanging(store), *_room(store)]
    summary = checked.summary() if checked.summary is not None else {}
    return {
        "kind": document.get("kind", store.kind),
        "path": store.root,
        "state": store.state,
        "releases": document.get("releases", []),
        "level": level,
        "not_read": _NOT_READ[level],
        "checked": {key: summary.get(key) for key in ("files", "messages", "bytes", "seconds")},
        "findings": {"error": counts["error"], "warning": counts["warning"]},
        "worst": worst,
        "start": start,
        "troubles": troubles,
        "notices": notices,
    }


def _findings(checked: Answer) -> tuple[Row | None, Counter[str], list[Notice]]:
    """Return the first of the worst findings, how many there are by severity, and notices of them."""
    counts, worst = Counter[str](), dict[str, Row]()

    def rows() -> Iterator[Row]:
        for row in checked:
            counts[row["severity"]] += 1
            worst.setdefault(row["severity"], row)
            yield row

    notices = list(finding_notices(rows(), ""))
    return worst.get("error", worst.get("warning")), counts, notices


def _start(store: Store) -> dict[str, Any]:
    """What a start of the broker would do: the document of `recover`, as far as all families have it."""
    with store.recover() as foreseen:
        foreseen.prepare()
        document = foreseen.document() if foreseen.document is not None else {}
        return {
            "release": document.get("release"),
            "starts": document.get("starts"),
            "error": document.get("error"),
            "lost": document.get("lost", {}),
            "hidden": document.get("hidden", document.get("undispatched", {})),
            "unknown": document.get("unknown"),
            "harmless": not foreseen.is_no,
        }


def _start_troubles(start: Row) -> Iterator[Row]:
    release = start["release"]
    if not start["starts"]:
        yield {"id": "start", "command": "recover", "message": f"A {release} broker does not start: {start['error']}"}
        return
    if start["unknown"]:
        text = f"What a {release} broker serves here cannot be known: {start['unknown']}"
        yield {"id": "unknown", "command": "recover", "message": text}
    for name, what in (("lost", "loses"), ("hidden", "keeps from its consumers")):
        amount = start[name]
        count = amount.get("messages", amount.get("records", 0))
        if count:
            unit = "message" if "messages" in amount else "record"
            topics = ", ".join(f"{topic} {n:,}" for topic, n in amount.get("by_topic", {}).items())
            text = f"A {release} broker that starts {what} {number_of(count, unit)}" + (f": {topics}" if topics else "")
            yield {"id": name, "command": "recover", "message": text}


def _lags(store: Store) -> Iterator[Row]:
    """Groups that stand where no message is."""
    rows, unknown = _rows(store.lag, "lag")
    yield from unknown
    wrong = [row for row in rows if row.get("anomaly") not in (None, "open-transaction")]
    if wrong:
        row = wrong[0]
        more = f", and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        text = f"Group {row['group']} stands at {row['consumer_offset']} of {queue_of(row)}: {row['anomaly']}{more}"
        yield {"id": "lag", "command": "lag", "message": text}


def _hanging(store: Store) -> Iterator[Row]:
    """Transactions that hang."""
    rows, unknown = _rows(store.transactions, "transactions")
    yield from unknown
    for row in rows:
        if row.get("hanging"):
            where = ", ".join(row["partitions"])
            text = f"Transaction {row['transactional_id']} never ended: readers of committed records wait in {where}"
            yield {"id": "transaction", "command": "transactions", "message": text}


def _rows(verb: Callable[[], Answer], name: str) -> tuple[list[Row], list[Row]]:
    """Return the rows of a verb, none where the family does not have it, and the trouble that it cannot be asked."""
    try:
        return list(verb()), []
    except WrongUsage:  # the family does not have it
        return [], []
    except RmqctlError as error:
        return [], [{"id": name, "command": name, "message": f"Not looked at: {name}: {error}"}]


def _room(store: Store) -> Iterator[Row]:
    if os.path.isdir(store.root):
        room = shutil.disk_usage(store.root)
        if room.free < room.total * _LITTLE:
            text = f"The disk is nearly full: {room.free >> 20:,} MiB of {room.total >> 20:,} MiB are free"
            yield {"id": "disk", "command": "", "message": text}


def _is_well(found: Row) -> bool:
    return not found["worst"] and not found["troubles"] and bool(found["start"]["harmless"])


def _next(found: Row, path: str) -> list[str]:
    """Return commands that may be typed next, those that only look before those that plan; none of them writes."""
    wanted = [trouble["command"] for trouble in found["troubles"] if trouble["command"]]
    verbs = [*(["repair"] if found["worst"] else []), *(["recover"] if not found["start"]["harmless"] else []), *wanted]
    if found["level"] != "full":
        verbs.append("verify")
    commands = [typed(verb, path) for verb in dict.fromkeys(verbs)]
    if found["worst"]:
        commands.append(typed("explain", found["worst"]["id"]))
    return commands[:_COMMANDS]


# --- on a terminal --------------------------------------------------------------------------------------


def _sections(found: Row) -> Iterator[Section]:
    notices: list[Notice] = found["notices"]
    lines = [line for notice in notices[:_SHOWN] for line in _short(notice)]
    if len(notices) > _SHOWN:
        lines.append(f"and {number_of(len(notices) - _SHOWN, 'more kind')} of damage")
    headline, start = _headline(found), found["start"]
    lines += [trouble["message"] for trouble in found["troubles"] if trouble["message"] != headline]
    if start["harmless"]:
        lines.append(f"A {start['release']} broker starts on it and loses nothing.")
    lines.append(_identity(found))
    yield Section(lines=[headline, *(f"  {line}" for line in lines)], folds=True)
    yield Section(lines=[f"{'     ' if n else 'Next:'} {command}" for n, command in enumerate(found["next"])])


def _short(notice: Notice) -> Iterator[str]:
    """One finding in a line or two: the first place, and what a broker does about it."""
    yield f"{notice.level} {notice.id}: {notice.about}"
    yield f"  {notice.lines[0]}"
    yield from (f"  {line}" for line in notice.lines if line.startswith(BROKER))


def _headline(found: Row) -> str:
    start, notices = found["start"], found["notices"]
    if not start["starts"]:
        return f"The broker will not start: {start['error']}"
    if notices:
        kind = find_kind(notices[0].id)
        meaning = kind.meaning.split(". ")[0].split(": ")[0].rstrip(".") if kind is not None else notices[0].id
        more = f" And {number_of(len(notices) - 1, 'more kind')} of damage." if len(notices) > 1 else ""
        return f"{notices[0].about}: {meaning}.{more}"
    if found["troubles"]:
        return str(found["troubles"][0]["message"])
    if not start["harmless"]:
        return f"The files are sound, but a start of a {start['release']} broker changes them for the worse."
    return "Nothing is wrong" + (f" as far as level {found['level']} looks." if found["level"] != "full" else ".")


def _identity(found: Row) -> str:
    releases = found["releases"]
    span = f" of {releases[0]}" + (f" to {releases[-1]}" if releases[1:] else "") if releases else ""
    checked = found["checked"]
    what = f"{number_of(checked['files'] or 0, 'file')}, {number_of(checked['messages'] or 0, 'message')}"
    return f"A {found['kind']}{span}, {found['state']}: {what}. {found['not_read'] or 'Every byte was looked at.'}"
