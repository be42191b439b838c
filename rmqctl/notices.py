"""Notices: what a person is to understand of findings and plans, one a cause, with what it costs and what to type.

Findings with one id are one notice: its first places stand whole, the others are counted. Rows, documents and the
library keep every finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rmqctl.findings import Severity, find_kind
from rmqctl.text import Row, listed, number_of, typed

PLACES = 3
"""Places that stand whole; one more does, too, where it is the last."""
BROKER = "A broker: "
"""How the line begins that says what brokers do about it."""
AT_STAKE = "At stake: "
"""How the line begins that counts the messages which consumers do not get."""
CUT = "Here "
"""How the line begins that says where a start of the broker cuts: it stands for what brokers do in general."""
CAUSE = "Cause: "
"""How the line begins that says what did it."""
SAME_CAUSE = "From the same cause: "
"""How the line begins that names findings which follow."""
_OF_ROCKETMQ = {"physical_offset", "queue_id"}
"""What only rows of RocketMQ have, whose records are called messages."""
_QUEUES = 4
"""Queues whose destroyed offsets are named."""
_TOPICS = 3
"""Topics that a head names with their counts."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to be understood: a head line, and indented lines below it.

    Attributes:
        level: the severity, or what of a plan it is: ``step 1``, ``left``.
        id: of the finding.
        about: what it is about, in words of whoever uses the store.
        lines: places with what was found and expected, what it costs, what is done.
        command: what to type next; "" where nothing is to be done.
    """

    level: str
    id: str
    about: str
    lines: Sequence[str] = ()
    command: str = ""


@dataclass(slots=True)
class Alike:
    """Findings of one id and severity.

    Attributes:
        first: the first of them.
        count: how many there are.
        files, queues: where they are.
        topics: how many are about each topic.
        messages: how many messages or records of each topic they keep from consumers, or have destroyed; "" for those
            of which no topic is known.
    """

    first: list[Row] = field(default_factory=list)
    count: int = 0
    files: set[str] = field(default_factory=set)
    topics: Counter[str] = field(default_factory=Counter)
    queues: set[str] = field(default_factory=set)
    messages: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        """Add the row of a finding."""
        self.count += 1
        self.files.add(row["file"])
        if topic := row.get("topic"):
            self.topics[topic] += 1
            self.queues.add(queue_of(row))
        if messages := row.get("messages"):
            self.messages[topic or ""] += messages
        if len(self.first) <= PLACES:
            self.first.append(row)


Judge = Callable[[Alike], tuple[Sequence[Row], str]]
"""Says more of findings: queues whose messages lay there, and what a start of the broker makes of them."""


def destroyed_by_kind(summary: Row) -> dict[str, list[Row]]:
    """Return the queues whose messages lay in damage, by the id of the findings there, as `verify` sums them up."""
    found = dict[str, list[Row]]()
    for row in summary.get("destroyed", ()):
        found.setdefault(row["id"], []).append(row)
    return found


def finding_notices(
    rows: Iterable[Row | None], command: str, *, every: bool = False, judge: Judge = lambda _: ((), "")
) -> Iterator[Notice]:
    """Yield notices of rows of findings: errors first, then warnings, then notes; in each the first one first.

    Findings that follow from others (``folded_under``) are counted in the notice of those.

    Args:
        command: what shows how to mend them, to which ``--only ID`` is added; "" for none.
        every: a notice for each, as it comes.
        judge: asked once the rows are read, of each notice but those of notes.
    """
    found: dict[tuple[str, str, str | None], Alike] = {}
    for row in rows:
        if row is None:
            continue
        alike = Alike() if every else found.setdefault((row["severity"], row["id"], row.get("folded_under")), Alike())
        alike.add(row)
        if every:
            yield _notice(alike, command, judge)
    order = [str(severity) for severity in Severity]
    ids = {name for _, name, _ in found}
    under: dict[str, list[Alike]] = {}
    for (_, name, head), alike in found.items():
        if head in ids and head != name:
            under.setdefault(str(head), []).append(alike)
    for (_, name, head), alike in sorted(found.items(), key=lambda each: order.index(each[0][0])):
        if head not in ids or head == name:
            yield _notice(alike, command, judge, under.pop(name, ()))


def _notice(alike: Alike, command: str, judge: Judge, folded: Iterable[Alike] = ()) -> Notice:
    """Make a notice of findings, and of those that come of the same cause."""
    row = alike.first[0]
    destroyed, start = judge(alike)
    about = _about(alike, destroyed)
    shown, more = first_of(alike.first, alike.count)
    lines = [_place(one, about) for one in shown]
    if row["severity"] == Severity.NOTE:
        lines, more = lines[:1], alike.count - 1
    if more:
        where = "this file" if len(alike.files) == 1 else number_of(len(alike.files), "file")
        lines.append(f"and {more:,} more in {where} (--all)")
    folded = list(folded)
    if causes := [one["cause"] for one in (row, *(other.first[0] for other in folded)) if one.get("cause")]:
        lines.append(f"{CAUSE}{causes[0]}")
    if follow := [f"{one.first[0]['id']} ({_about(one)})" for one in folded]:
        lines.append(f"{SAME_CAUSE}{', '.join(follow)}")
    kind = find_kind(row["id"])
    if row["severity"] == Severity.NOTE or kind is None:
        return Notice(row["severity"], row["id"], about, lines)
    if messages := alike.messages + _by_topic(destroyed):
        lines.append(f"{AT_STAKE}{'at least ' if destroyed else ''}{_amount(messages, row)}{_offsets(destroyed)}")
    if kind.broker and not start.startswith(CUT):
        lines.append(f"{BROKER}{kind.broker}")
    if start:
        lines.append(start)
    lines.append(kind.remedy)
    is_left = not command or kind.remedy.startswith(("Nothing", "None"))
    told = typed("explain", row["id"]) if kind.by_hand else f"{command} --only {row['id']}"
    return Notice(row["severity"], row["id"], about, lines, "" if is_left else told)


def _by_topic(destroyed: Iterable[Row]) -> Counter[str]:
    found = Counter[str]()
    for queue in destroyed:
        found[queue["topic"]] += queue["messages"]
    return found


def _offsets(queues: Sequence[Row]) -> str:
    """`` (offsets: LabOrders/0 68 to 73, LabOrders/1 60)``; "" for none, and for too many to be read."""
    said = (f"{queue_of(queue)} {_span(queue)}" for queue in queues)
    return f" (offsets: {', '.join(said)})" if 0 < len(queues) <= _QUEUES else ""


def _span(queue: Row) -> str:
    """``68 to 73``, ``5 of 68 to 73``, ``68``."""
    first, last, count = queue["first_offset"], queue["last_offset"], queue["messages"]
    if first == last:
        return f"{first:,}"
    return ("" if count == last - first + 1 else f"{count:,} of ") + f"{first:,} to {last:,}"


def _amount(messages: Counter[str], row: Row) -> str:
    """``50 messages of LabLog``, ``324 records: a 300, b 24``."""
    said = number_of(messages.total(), "message" if row.keys() & _OF_ROCKETMQ else "record")
    if len(messages) == 1:
        (topic,) = messages
        return f"{said} of {topic}" if topic else said
    return f"{said}: {listed(messages)}"


def first_of(places: Sequence[Row], count: int) -> tuple[Sequence[Row], int]:
    """Return the places that stand whole, and how many more there are."""
    shown = places if count <= PLACES + 1 else places[:PLACES]
    return shown, count - len(shown)


def queue_of(row: Row) -> str:
    """Return the queue or partition of a finding as `rmqctl` takes it: ``LabOrders/1``, ``plain-0``; or its topic."""
    if "queue_id" in row:
        return f"{row['topic']}/{row['queue_id']}"
    return f"{row['topic']}-{row['partition']}" if "partition" in row else str(row["topic"])


def about_one(row: Row) -> str:
    """What one finding is about, in words of whoever uses the store: a queue and offsets, else its file."""
    if row.get("about"):
        return str(row["about"])
    if not row.get("topic"):
        return str(row["file"])
    if "base_offset" in row and row["last_offset"] > row["base_offset"]:
        return f"{queue_of(row)}, offsets {row['base_offset']:,} to {row['last_offset']:,}"
    offset = row.get("queue_offset", row.get("base_offset"))
    return queue_of(row) if offset is None else f"{queue_of(row)}, offset {offset:,}"


def _about(alike: Alike, destroyed: Sequence[Row] = ()) -> str:
    """What findings are about: topics and queues, else files.

    Args:
        destroyed: queues whose messages lay there.
    """
    row, places = alike.first[0], number_of(alike.count, _noun(alike))
    if destroyed and not alike.topics:
        return _about_destroyed(alike, destroyed)
    if alike.count == 1:
        return about_one(row)
    if not alike.topics:
        return _about_files(alike, places)
    if alike.topics.total() == alike.count and len(alike.topics) == 1:  # each is about it
        if len(alike.queues) > 1:
            return f"{row['topic']}, {places}"
        offsets = [one[key] for one in alike.first for key in ("queue_offset", "base_offset") if key in one]
        after = f", from offset {min(offsets):,} on" if offsets else ""
        return f"{queue_of(row)}, {places}{after}"
    named = [f"{topic} {count:,}" for topic, count in alike.topics.most_common(_TOPICS)]
    others = len(alike.topics) - len(named)
    return f"{places}: {', '.join(named)}" + (f", and {number_of(others, 'more topic')}" if others else "")


def _about_destroyed(alike: Alike, queues: Sequence[Row]) -> str:
    return about_messages(queues) if alike.count == 1 else f"{number_of(alike.count, 'place')}, {_in_queues(queues)}"


def about_messages(queues: Sequence[Row]) -> str:
    """``LabOrders/0, offsets 68 to 73``, ``14 messages of LabOrders in 4 queues``.

    Args:
        queues: each with ``topic``, ``queue_id``, ``messages``, ``first_offset`` and ``last_offset``; at least one.
    """
    if len(queues) > 1:
        return _in_queues(queues)
    (queue,) = queues
    return f"{queue_of(queue)}, offset{'' if queue['messages'] == 1 else 's'} {_span(queue)}"


def _in_queues(queues: Sequence[Row]) -> str:
    what, colon, topics = _amount(_by_topic(queues), queues[0]).partition(":")
    return f"{what} in {number_of(len(queues), 'queue')}{colon}{topics}"


def _about_files(alike: Alike, places: str) -> str:
    row = alike.first[0]
    if row.get("about"):
        if all(one.get("about") == row["about"] for one in alike.first):
            return f"{row['about']}, {places}"
        return f"{row['about']}, and {number_of(alike.count - 1, 'more place')}"
    if len(alike.files) == alike.count:
        return places
    return f"{places} in {row['file'] if len(alike.files) == 1 else number_of(len(alike.files), 'file')}"


_FILES = {"commitlog": "log file", "consumequeue": "queue file", "index": "index file", "config": "configuration file"}
"""What files in a directory of a store are called."""


def _noun(alike: Alike) -> str:
    """What is counted: queues or partitions where each place is one, files where each place is one."""
    row = alike.first[0]
    if alike.topics:
        noun = "queue" if "queue_id" in row else "partition" if "partition" in row else "topic"
        return noun if len(alike.queues) == alike.count else "place"
    if len(alike.files) < alike.count:
        return "place"
    nouns = {_FILES.get(name.partition("/")[0], "file") for name in alike.files}
    return nouns.pop() if len(nouns) == 1 else "file"


def _place(row: Row, about: str) -> str:
    """One place: file, position and size where they mean something, what was found and expected."""
    at = f"at {row['offset']:,}" if row["offset"] or row["size"] else ""
    size = number_of(row["size"], "byte") if row["size"] else ""
    inside = ", ".join(filter(None, (at, size)))
    named = " ".join(filter(None, ("" if row["file"] == about else row["file"], inside)))
    return f"{named}: {row['message']}" if named else row["message"]
