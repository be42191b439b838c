"""`doctor`: the first look at a store, put together from its other verbs; it knows nothing of its own."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rmqctl.answer import Answer, Row, Section
from rmqctl.errors import Refused, RmqctlError, WrongUsage
from rmqctl.findings import Severity, find_kind
from rmqctl.notices import (
    AT_STAKE,
    BROKER,
    CAUSE,
    SAME_CAUSE,
    Alike,
    Notice,
    destroyed_by_kind,
    finding_notices,
    queue_of,
)
from rmqctl.store import Store
from rmqctl.text import instant, listed, number_of, typed
from rmqctl.verification import count_of

LEVELS = ((1 << 30, "full"), (8 << 30, "structure"))
"""Bytes of log up to which a look is so thorough that it ends within about ten seconds; beyond them it is quick."""
PLANNED = 64 << 20
"""Bytes of log up to which a repair is planned, too, to say what it would cost: it reads everything a few times."""
_CHECKED = ("files", "messages", "placeholders", "counted", "bytes", "seconds")
_NOT_READ = {
    "full": "",
    "structure": "Not looked at: the bodies of messages.",
    "quick": "Not looked at: the records of the log.",
}
_GROUPS = 2
"""Consumer groups that are named; the others are counted."""
_SHOWN = 3
"""Further kinds of damage that stand in a line each; the others are counted."""
_COMMANDS = 5
_SENTENCE_END = re.compile("(?<=[.?]) ")
_CLAUSE_END = re.compile("[,:;] ")
_INNER = {"notices", "alike", "refused"}
"""What is found for people only, and stands in no document."""
_LITTLE = 0.05
"""Part of a disk below which free room is a warning."""


def level_of(store: Store) -> str:
    """Return how thoroughly a look at a store goes."""
    return next((level for most, level in LEVELS if store.size <= most), "quick")


def examine(store: Store, path: str, checked: Answer | None = None) -> Answer:
    """Say what a store is, whether it is sound, what a start of its broker would do, and what to type next.

    Args:
        path: of the store, as it is typed.
        checked: what `verify` answers, where that is there already.
    """
    answer = Answer(work="doctor", total=store.size, document_kinds=frozenset({"json", "jsonl", "csv"}))
    found: dict[str, Any] = {}

    def make() -> None:
        found.update(_look(store, answer, checked))
        found["next"] = _next(found, path)
        found["page"] = _page(found) or None
        answer.is_no = not _is_well(found)

    answer.make = make
    answer.document = lambda: {key: value for key, value in found.items() if key not in _INNER}
    answer.sections = lambda: _sections(found)
    return answer


def _look(store: Store, answer: Answer, checked: Answer | None) -> dict[str, Any]:
    store = store.at_one_moment()
    about = store.info()
    about.prepare()
    document = about.document() if about.document is not None else {}
    checked = checked or store.verify(level=level_of(store), notes=False)
    checked.on_advance, checked.on_stage = answer.advance, answer.stage
    worst, alike, counts, notices = _findings(checked)
    summary = checked.summary() if checked.summary is not None else {}
    level = summary.get("level", level_of(store))
    start, unknown = _start(store, level, summary.get("start"))
    repair, refused = _repair(store) if worst else (None, None)
    return {
        "kind": document.get("kind", store.kind),
        "path": store.root,
        "state": store.state,
        "releases": document.get("releases", []),
        "level": level,
        "not_read": _NOT_READ[level],
        "checked": {
            key: summary.get(key) for key in ("files", "messages", "placeholders", "counted", "bytes", "seconds")
        },
        "findings": {"error": counts["error"], "warning": counts["warning"]},
        "worst": worst,
        "start": start,
        "repair": repair,
        "refused": refused,
        "troubles": [*unknown, *_start_troubles(start), *_lags(store), *_hanging(store), *_room(store)],
        "notices": notices,
        "alike": alike,
    }


def _findings(checked: Answer) -> tuple[Row | None, int, Counter[str], list[Notice]]:
    """Return the first of the worst findings, how many have its id, how many there are by severity, and notices."""
    counts, ids, worst = Counter[str](), Counter[str](), dict[str, Row]()
    lost = dict[str, list[Row]]()

    def rows() -> Iterator[Row]:
        for row in checked:
            if row["severity"] == Severity.NOTE:
                continue
            counts[row["severity"]] += 1
            ids[row["id"]] += 1
            worst.setdefault(row["severity"], row)
            yield row
        if checked.summary is not None:
            lost.update(destroyed_by_kind(checked.summary()))

    def judge(alike: Alike) -> tuple[Sequence[Row], str]:
        return lost.get(alike.first[0]["id"], ()), ""

    notices = list(finding_notices(rows(), "", judge=judge))
    first = worst.get("error", worst.get("warning"))
    return first, ids[first["id"]] if first else 0, counts, notices


def _start(store: Store, level: str, foreseen: Row | None) -> tuple[dict[str, Any], list[Row]]:
    """What a start of the broker would do, as far as all families say it, and the trouble that it is not known.

    Args:
        foreseen: what `verify` says of it; None where it has not tried, and `recover` is asked.
    """
    if foreseen is None and level == "quick" and store.state == "crashed":
        text = "Not looked at: what a start does, which reads the records of the log"
        return {"release": None, "starts": None, "harmless": True}, [
            {"id": "start", "command": "recover", "message": text}
        ]
    if foreseen is None:
        with store.recover() as answer:
            answer.prepare()
            document = answer.document() if answer.document is not None else {}
            is_harmless = not answer.is_no
    else:
        document, is_harmless = foreseen, not foreseen["harm"]
    return {
        "release": document.get("release"),
        "starts": document.get("starts"),
        "error": document.get("error"),
        "lost": document.get("lost", {}),
        "lost_later": document.get("second_start", {}).get("lost", {}),
        "hidden": document.get("hidden", document.get("undispatched", {})),
        "unknown": document.get("unknown"),
        "renumbered": sum(queue["messages"] for queue in document.get("renumbered", {}).values()),
        "redispatched": document.get("redispatched", {}).get("messages", 0),
        "after_a_kill": document.get("after_a_kill"),
        "harmless": is_harmless,
        "harm": document.get("harm", ""),
    }, []


def _repair(store: Store) -> tuple[dict[str, Any] | None, str | None]:
    """What `repair` would do, the summary of its plan; None where it is not made, then why it is refused, if it is."""
    try:
        with store.repair() as planned:
            if store.size > PLANNED:
                return None, None
            planned.prepare()
            summary = planned.summary() if planned.summary is not None else {}
            steps = [] if planned.plan is None else planned.plan.steps
            refusal, harm = planned.refusal and str(planned.refusal), summary.get("refusal") or summary.get("unknown")
    except Refused as error:
        return None, str(error)
    except RmqctlError:
        return None, None
    known = {key: summary.get(key) for key in ("steps", "left", "loses", "loses_by_topic", "before", "after")}
    known["remaining"] = Counter(row["id"] for row in summary.get("remaining", ()))
    gone = max(sum(step.loses for step in steps) - (known["loses"] or 0), 0)
    return {**known, "refusal": refusal, "harm": harm, "gone": gone}, None


def _start_troubles(start: Row) -> Iterator[Row]:
    release = start["release"]
    if start["starts"] is None:
        return
    if not start["starts"]:
        yield {"id": "start", "command": "recover", "message": f"A {release} broker does not start: {start['error']}"}
        return
    if start["unknown"]:
        text = f"What a {release} broker serves here cannot be known: {start['unknown']}"
        yield {"id": "unknown", "command": "recover", "message": text}
    for name, what in (
        ("lost", " loses"),
        ("lost_later", ", stops and starts again loses"),
        ("hidden", " keeps from its consumers"),
    ):
        amount = start[name]
        count = amount.get("messages", amount.get("records", 0))
        if count:
            text = f"A {release} broker that starts{what} {_of(amount, count)}"
            topics = amount.get("by_topic", {})
            yield {"id": name, "command": "recover", "message": text + (f": {listed(topics)}" if topics else "")}
    if start["renumbered"]:
        text = f"A {release} broker that starts numbers {number_of(start['renumbered'], 'message')} anew"
        yield {"id": "renumbered", "command": "recover", "message": text}


def _of(amount: Row, count: int) -> str:
    return number_of(count, "message" if "messages" in amount else "record")


def _lags(store: Store) -> Iterator[Row]:
    """Groups that stand where no message is."""
    rows, unknown = _rows(store.lag, "lag")
    yield from unknown
    wrong = [row for row in rows if row.get("anomaly") not in (None, "open-transaction")]
    if wrong:
        said = [f"{row['group']} at {row['consumer_offset']:,} of {queue_of(row)} ({row['anomaly']})" for row in wrong]
        more = f", and {len(said) - _GROUPS:,} more" if len(said) > _GROUPS else ""
        text = f"Consumers stand where no message is: {', '.join(said[:_GROUPS])}{more}"
        yield {"id": "lag", "command": "lag", "message": text}


def _hanging(store: Store) -> Iterator[Row]:
    """Transactions that hang, and the records that wait for their end."""
    rows, unknown = _rows(store.transactions, "transactions")
    yield from unknown
    hanging = [row for row in rows if row.get("hanging")]
    if not hanging:
        return
    places = {place for row in hanging for place in row["partitions"]}
    here = {f"{row['topic']}-{row['partition']}": row for row in store.topics()}
    waits = [_waiting(here[place]) for place in here if place in places and _waiting_records(here[place])]
    if not waits and places <= here.keys():
        return  # it was ended in each of them
    names = ", ".join(row["transactional_id"] or f"of producer {row['producer_id']}" for row in hanging)
    begun = [row["start_timestamp"] for row in hanging if row["start_timestamp"] is not None]
    since = f", since {instant(min(begun))}" if begun else ""
    never = "Transaction" if len(hanging) == 1 else "Transactions"
    where = ", ".join(waits or sorted(places))
    text = f"{never} {names} never ended{since}: readers of committed records wait at {where}"
    yield {"id": "transaction", "command": "transactions", "message": text}


def _waiting(row: Row) -> str:
    stable, count = row["last_stable_offset"], number_of(_waiting_records(row), "record")
    return f"{row['topic']}-{row['partition']} offset {stable:,} ({count})"


def _waiting_records(row: Row) -> int:
    return row["log_end_offset"] - row["last_stable_offset"]


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
            used = store.topics(disk=True)
            frees = used.summary()["expired_bytes"] if used.summary is not None else 0
            text = f"The disk is nearly full: {room.free >> 20:,} MiB of {room.total >> 20:,} MiB are free"
            text += f"; retention frees {frees >> 20:,} MiB at its next run"
            yield {"id": "disk", "command": "topics --disk", "message": text}


def _is_well(found: Row) -> bool:
    return not found["worst"] and not found["troubles"] and bool(found["start"]["harmless"])


def _next(found: Row, path: str) -> list[str]:
    """Return commands that may be typed next, those that only look before those that plan; none of them writes."""
    wanted = [trouble["command"] for trouble in found["troubles"] if trouble["command"]]
    is_helpless = _is_helpless(found)
    verbs = [
        *(["repair"] if found["worst"] and (not is_helpless or (found["repair"] or {}).get("steps")) else []),
        *(["recover"] if not found["start"]["harmless"] else []),
        *wanted,
    ]
    if found["level"] != "full":
        verbs.append("verify")
    commands = [typed(*verb.split(), path) for verb in dict.fromkeys(verbs)]
    if found["worst"]:  # first where no plan does anything about it: it says what else does
        commands.insert(0 if is_helpless else len(commands), typed("explain", found["worst"]["id"]))
    return commands[:_COMMANDS]


_PAGES = {
    "start": "emergency/does-not-start",
    "unknown": "emergency/metadata-lost",
    "lost": "emergency/missing-messages",
    "lost_later": "emergency/missing-messages",
    "hidden": "emergency/consumers-stall",
    "renumbered": "emergency/file-deleted",
    "lag": "emergency/consumers-stall",
    "transaction": "emergency/hanging-transaction",
    "disk": "emergency/disk-full",
}
"""Page of the emergency guide on each trouble."""


def _page(found: Row) -> str:
    """Return the page of the emergency guide that fits: of what keeps a broker from starting, then of the worst
    damage, then of the first trouble; "" where nothing is wrong.
    """
    troubles = [_PAGES[one["id"]] for one in found["troubles"] if one["id"] in _PAGES]
    kind = find_kind(found["worst"]["id"]) if found["worst"] else None
    damage = kind.page if kind is not None else ""
    if found["start"]["starts"] is False:
        return damage if damage.endswith(("metadata-lost", "file-deleted")) else _PAGES["start"]
    return damage or next(iter(troubles), "")


def _is_helpless(found: Row) -> bool:
    """Whether a plan is refused, or was made and leaves all findings of the worst kind as they are."""
    plan = found["repair"]
    if plan is None or plan["refusal"]:
        return found["refused"] is not None
    return not plan["steps"] or plan["remaining"][found["worst"]["id"]] >= found["alike"] > 0


# --- on a terminal --------------------------------------------------------------------------------------


def _sections(found: Row) -> Iterator[Section]:
    """First what is wrong, what it costs and what to type; then all else."""
    notices: list[Notice] = found["notices"]
    start = found["start"]
    if start["starts"] is False:
        headline, said = f"The broker will not start: {start['error']}", {"start"}
    elif notices:
        headline, said = _meaning(notices[0]), set[str]()
    elif found["troubles"]:
        headline, said = found["troubles"][0]["message"], {found["troubles"][0]["id"]}
    else:
        level = found["level"]
        headline, said = "Nothing is wrong" + ("." if level == "full" else f" as far as level {level} looks."), set()
    costs = [trouble for trouble in found["troubles"] if trouble["id"] in _COSTS and trouble["id"] not in said]
    first = list(_short(notices[0], start, found["worst"], named="start" not in said)) if notices else []
    first += [trouble["message"] for trouble in costs] or list(_harmless(start))
    if found["refused"]:
        first += [*_advice(found["worst"]["id"]), f"No plan is made: {found['refused']}"]
    else:
        first += _repaired(found["repair"])
    yield Section(lines=[headline, *(f"  {line}" for line in first)], folds=True)
    commands: list[str] = found["next"]
    if commands:
        yield Section(lines=[f"Next: {commands[0]}", ""])
    wanted, above = (CAUSE, SAME_CAUSE), " ".join(first)
    more = [line for notice in notices[:1] for line in notice.lines if line.startswith(wanted)]
    more = [line for line in more if line.removeprefix(CAUSE) not in above]
    more += [f"{notice.level} {notice.id}: {notice.about}" for notice in notices[1 : 1 + _SHOWN]]
    if len(notices) > 1 + _SHOWN:
        more.append(f"and {number_of(len(notices) - 1 - _SHOWN, 'more kind')} of damage")
    said |= {trouble["id"] for trouble in costs}
    more += [trouble["message"] for trouble in found["troubles"] if trouble["id"] not in said]
    yield Section(lines=[*more, _identity(found)], folds=True)
    page = [f"Page: {found['page']}"] if found["page"] else []
    yield Section(lines=[*(f"{'      ' if n else 'Then: '}{command}" for n, command in enumerate(commands[1:])), *page])


_COSTS = {"start", "unknown", "lost", "lost_later", "hidden", "renumbered"}
"""Troubles that belong to the first lines: what a start does."""


def _meaning(notice: Notice) -> str:
    kind = find_kind(notice.id)
    meaning = kind.meaning.split(". ")[0].split(": ")[0].split(" (")[0].rstrip(".") if kind is not None else notice.id
    return f"{notice.about}: {meaning}."


def _short(notice: Notice, start: Row, worst: Row, *, named: bool) -> Iterator[str]:
    """The first place, and its cause; or what brokers do about it, where that says more than the replayed start.

    Args:
        worst: the finding at that place.
        named: the line above says what it is about.
    """
    file = worst["file"]
    cause = [line for line in notice.lines if line.startswith(CAUSE)]
    if stake := [line for line in notice.lines if line.startswith(AT_STAKE) and line.endswith(")")]:
        yield from [f"{file}: {cause[0].removeprefix(CAUSE)}" if cause else notice.lines[0], *stake]
        return
    if not worst.get("cause"):
        place = notice.lines[0] if named else _unsaid(notice.lines[0], start["error"])
        yield place if named or file in place else f"{file}: {place}"
    follow = [line for line in notice.lines if line.startswith(SAME_CAUSE)]
    is_short = bool(follow) and ", " not in follow[0]
    if cause and (worst.get("cause") or is_short):
        yield from [*cause, *(follow if is_short else ())]
        return
    says_nothing = start["starts"] is None or (start["harmless"] and not start["redispatched"])
    yield from (
        line
        for line in notice.lines
        if line.startswith(BROKER) and (says_nothing or any(letter.isdigit() for letter in line))
    )


def _unsaid(place: str, error: str) -> str:
    """Return what a place says beyond the error of the start; all of it where that is nothing."""
    return "; ".join(part for part in place.split("; ") if part not in error) or place


def _advice(finding_id: str) -> Iterator[str]:
    """Yield the first sentence of what is to be done about a finding; the second, too, where the first asks."""
    kind = find_kind(finding_id)
    if kind is not None:
        first, *more = _SENTENCE_END.split(kind.remedy)
        yield " ".join([first, *more[: first.endswith("?")]])


def _harmless(start: Row) -> Iterator[str]:
    if not start["starts"]:
        return
    if not start["harmless"]:
        worse = f"A start of a {start['release']} broker changes the store for the worse"
        yield f"{worse}: it would{harm.partition(' would')[2]}" if (harm := start["harm"]) else f"{worse}."
    elif start["redispatched"]:
        count = number_of(start["redispatched"], "message")
        yield f"A {start['release']} broker starts on it, queues {count} again and loses nothing."
    else:
        lost = (start["after_a_kill"] or {}).get("lost", {})
        if lost.get("messages"):
            after = f"after a kill it loses {_of(lost, lost['messages'])}"
            yield f"A {start['release']} broker starts and loses nothing; {after}."
        else:
            yield f"A {start['release']} broker starts on it and loses nothing."


def _repaired(plan: Row | None) -> Iterator[str]:
    """What is left of the damage after a repair without a replica."""
    if plan is None:
        return
    left = f"; {listed(plan['remaining'])} would be left" if plan["remaining"] else ""
    if plan["refusal"]:
        left += f"; --apply is refused: {_CLAUSE_END.split(plan['refusal'])[0]}"
        left += "; give --broker-conf FILE" if "--broker-conf" in plan["refusal"] else ""
    elif plan["harm"] and not left:
        left = f"; {plan['harm']}"
    if plan["gone"]:
        yield f"{number_of(plan['gone'], 'message', 'are')} gone already: another replica may have them (--from)"
    if plan["loses"]:
        topics = f": {listed(plan['loses_by_topic'])}" if plan["loses_by_topic"] else ""
        yield f"A repair alone gives up {plan['loses']:,}{topics}; --from REPLICA may have them{left}"
    elif plan["steps"] and not (plan["gone"] and not left):
        yield f"A repair gives up nothing{left}" if left else "A repair mends all of it and gives up nothing."
    elif left:
        yield f"A repair can do nothing{left}"


def _identity(found: Row) -> str:
    releases = found["releases"]
    span = f" of {' to '.join(dict.fromkeys((releases[0], releases[-1])))}" if releases else ""
    checked = found["checked"]
    counted = count_of(checked, (checked["counted"] or "messages").removesuffix("s"))
    what = f"{number_of(checked['files'] or 0, 'file')}, {counted}"
    return f"A {found['kind']}{span}, {found['state']}: {what}. {found['not_read'] or 'Every byte was looked at.'}"
