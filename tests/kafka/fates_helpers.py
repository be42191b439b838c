"""What clients of a Kafka broker did and saw of records to which they gave random fates, against what `trace` says.

The record says what was sent where and in which transaction, what groups committed when, what a share group said of
what it took, and what consumers and the admin saw in the end (``tests/interop/kafka/Fates.java``). What follows for the
fate of each record is worked out here from that alone.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import rmqctl
from rmqctl.kafka.query.life import LifeReader
from rmqctl.kafka.store import KafkaStore
from rmqctl.kafka.verbs.looking import keeping_of
from rmqctl.life import Event, Life

READ = {"passed", "waiting", "stored"}
SAMPLE = 60
"""Records that are looked at on a damaged copy."""
DELIVERIES = 5
"""How often a share group is given a record (group.share.delivery.count.limit)."""
_PLACES = {
    "passed": ("__consumer_offsets-", "__share_group_state-"), "not-passed": ("__consumer_offsets-", "__share_group_state-"),
    "unknown": ("__consumer_offsets-", "__share_group_state-"), "coordinator": ("__transaction_state-",),
}  # fmt: skip
"""Where steps of a kind stand, if not in the log of the record."""

Place = tuple[str, int, int]
"""Topic, partition and offset."""


class Clients:
    """What the clients of a broker recorded.

    Attributes:
        is_rolled: commits of groups were compacted, too.
        is_killed: the broker had no time to note where the clients had deleted up to.
    """

    def __init__(self, rows: Sequence[list[Any]], *, is_rolled: bool = False, is_killed: bool = False) -> None:
        self.rows, self.is_rolled, self.is_killed = rows, is_rolled, is_killed
        self.how = {(client, number): how for _, client, number, how in self._of("ended")}
        self.now: dict[str, Any] = next(self._of("now"))[1]
        self.limits = {(topic, number): limits for topic, number, _, *limits in self.now["topics"]}
        self.seen = defaultdict[str, dict[Place, tuple[int, str]]](dict)
        for _, isolation, topic, number, offset, epoch, text in self._of("read"):
            self.seen[isolation][topic, number, offset] = epoch, text

    def _of(self, kind: str) -> Iterator[list[Any]]:
        return (row for row in self.rows if row[0] == kind)

    @cached_property
    def messages(self) -> dict[Place, dict[str, Any]]:
        """What was sent, by its place."""
        names = ("time", "key", "text", "client", "transaction")
        return {(t, n, o): dict(zip(names, rest, strict=True)) for _, t, n, o, *rest in self._of("message")}

    @cached_property
    def sequences(self) -> dict[Place, int]:
        """The sequence of each message: a client counts in each partition, and anew in each transaction."""
        counts, found = Counter[Any](), {}
        for place in sorted(self.messages):
            run = (*place[:2], self.messages[place]["client"], self.messages[place]["transaction"])
            found[place] = counts[run]
            counts[run] += 1
        return found

    def ended(self, place: Place) -> str | None:
        """How the transaction of a message ended; None without one."""
        row = self.messages[place]
        how = self.how.get((row["client"], row["transaction"]))
        return {"fenced": "aborted", "late": "aborted"}.get(how or "", how)

    def fate(self, place: Place) -> str:
        """Say what must have become of a message."""
        topic, number, offset = place
        if (topic, number) not in self.limits:
            return "dropped"
        start, _, _ = self.limits[topic, number]
        if offset < start:
            return "deleted"
        if place not in self.seen["read_uncommitted"]:
            return "compacted"
        ended = self.ended(place)
        if ended in {"aborted", "open"}:
            return {"aborted": "rolled-back", "open": "open"}[ended]
        said = {what for what, _, _ in self.groups(place).values()}
        return next(
            (f for w, f in (("passed", "passed"), ("not-passed", "waiting"), ("unknown", "unknown")) if w in said),
            "stored",
        )

    def is_less(self, fates: tuple[str, str]) -> bool:
        """Whether of a fate and what `trace` says the second is what a broker without all of it would say, too."""
        if fates == ("passed", "waiting"):
            return self.is_rolled  # looked at group by group: one went back, and the commit that was ahead is gone
        return fates == ("deleted", "unknown") and self.is_killed

    def groups(self, place: Place) -> dict[str, tuple[str, int, int]]:
        """What each group has to do with a message, and not before and not after when it passed it."""
        topic, number, offset = place
        found = dict[str, tuple[str, int, int]]()
        for kind, group, *rest in self.rows:
            if kind == "forgotten":
                if group in found and found[group][0] != "passed":
                    found[group] = "unknown", 0, 0
            elif kind == "commit" and rest[:2] == [topic, number] and rest[5] != "aborted":
                _, _, at, begin, end, how = rest
                if group in found and found[group][0] == "passed":
                    continue
                found[group] = ("passed" if at > offset and how == "committed" else "not-passed", begin, end)
        if topic == "shared" and any(row[1:3] == [topic, number] for row in self._of("taken")):
            found["shares (share)"] = (self._shared(place), 0, 0)
        return found

    def _shared(self, place: Place) -> str:
        acks = [row[4] for row in self._of("taken") if tuple(row[1:4]) == place]
        return "passed" if acks and (acks[-1] in "ax" or acks.count("r") >= DELIVERIES) else "not-passed"


def reader(root: Path) -> LifeReader:
    store = rmqctl.open(root)
    assert isinstance(store, KafkaStore)
    return LifeReader(store.replicas, lambda topic: keeping_of(store.replicas, topic, {}))


def batch_at(root: Path, event: Event) -> tuple[int, int, int]:
    """First and last offset of the batch at the place of a step, and its attributes."""
    assert event.file is not None
    assert event.position is not None
    head = (root / event.file).read_bytes()[event.position :][:61]
    assert head[16] == 2, event
    first = int.from_bytes(head[:8], "big")
    return first, first + int.from_bytes(head[23:27], "big"), int.from_bytes(head[21:23], "big")


def wrong_places(life: Life, place: Place, root: Path) -> Iterator[str]:
    """Yield steps that do not stand at their place."""
    topic, number, offset = place
    for event in life.events:
        if event.file is None or not (root / event.file).exists():
            if event.what in {"stored", "passed", "committed", "aborted", "coordinator", "superseded"}:
                yield f"{event.what}: no file, {event.file}"
            continue
        if event.position is None:
            continue
        first, last, attributes = batch_at(root, event)
        if not event.file.startswith(_PLACES.get(event.what, (f"{topic}-{number}/",))):
            yield f"{event.what}: in {event.file}"
        if event.what == "stored" and not first <= offset <= last:
            yield f"stored: the batch has the offsets {first} to {last}"
        if event.what in {"committed", "aborted"} and (attributes & 0x30 != 0x30 or first <= offset):
            yield f"{event.what}: no marker, {event.text}"


def wrong_record(clients: Clients, life: Life, place: Place) -> Iterator[str]:
    """Yield what is told of a record otherwise than its client and consumers saw it."""
    (topic, number, offset), row = place, clients.messages[place]
    (stored,) = (event for event in life.events if event.what == "stored")
    steps, more = {event.what for event in life.events}, stored.more
    if (stored.time, more["offset"], more["transactional"]) != (row["time"], offset, row["transaction"] >= 0):
        yield f"stored: {stored}"
    epoch, text = clients.seen["read_uncommitted"][place]
    if more["leader_epoch"] != epoch or text != row["text"]:
        yield f"leader epoch {more['leader_epoch']}, a consumer was told {epoch}, and {text}"
    if more["sequence"] != clients.sequences[place]:
        yield f"sequence {more['sequence']}, the client's {clients.sequences[place]}"
    if row["text"] is None and "tombstone" not in steps:
        yield "no tombstone"
    same = [
        later
        for later in clients.seen["read_uncommitted"]
        if later[:2] == (topic, number) and later[2] > offset and clients.ended(later) in {None, "committed"}
        if clients.messages[later]["key"] == row["key"]
    ]
    if topic == "keyed" and ("superseded" in steps) != bool(same):
        yield f"{steps}, later records of its key are at {same}"


def wrong_transaction(clients: Clients, life: Life, place: Place) -> Iterator[str]:
    """Yield what is told of a transaction otherwise than its client ended it, and who sees the record."""
    steps, ended = {event.what for event in life.events}, clients.ended(place)
    if {"committed", "aborted"} & steps != {ended} - {None, "open"}:
        yield f"{steps}, the transaction is {ended}"
    if (ended is not None) != ("coordinator" in steps):
        yield f"{steps} of its coordinator, the transaction is {ended}"
    if ended is None or ended == "committed":
        is_seen = place in clients.seen["read_committed"]
        if is_seen == ("not visible to readers of committed records yet" in life.sentence):
            yield f"a reader of committed records got it: {is_seen}; {life.sentence}"


def wrong_groups(clients: Clients, life: Life, place: Place) -> Iterator[str]:
    """Yield groups of which other is told than they did."""
    wanted = clients.groups(place)
    told = {event.more["group"]: event for event in life.events if "group" in event.more}
    if wanted.keys() != told.keys():
        yield f"groups {sorted(told)}, the clients say {wanted}"
        return
    for group, (what, begin, end) in wanted.items():
        event = told[group]
        if clients.is_rolled and event.what != what and what == "passed" and event.more["consumer_offset"] <= place[2]:
            continue  # it went back since, and compaction took the commit that was ahead
        is_later = clients.is_rolled and "the first that is left of it" in event.text
        if event.what != what:
            yield f"{group}: {event.what}, the clients say {what}: {event.text}"
        elif what == "passed" and end and not (begin <= (event.time or 0) and (is_later or event.time <= end)):  # type: ignore[operator]
            yield f"{group}: passed at {event.time}, the clients say from {begin} to {end}: {event.text}"


def wrong_lives(clients: Clients, root: Path) -> Iterator[str]:
    """Yield what `trace` says otherwise than the clients."""
    lives = reader(root)
    for place, row in clients.messages.items():
        wanted, name = clients.fate(place), f"{place} {row['client']}"
        found = lives.at_place(*place)
        if wanted == "dropped":
            yield from (f"{name}: {life.sentence}" for life in found)
            continue
        (life,) = found
        if life.fate != wanted and not clients.is_less((wanted, life.fate)):
            yield f"{name}: {life.fate}, the clients say {wanted}: {life.sentence}"
        elif wanted in READ | {"rolled-back", "open"}:
            told = (*wrong_places(life, place, root), *wrong_record(clients, life, place))
            yield from (f"{name}: {one}" for one in (*told, *wrong_transaction(clients, life, place)))
        if wanted in READ:
            yield from (f"{name}: {one}" for one in wrong_groups(clients, life, place))
    for (topic, number), (_, end, _) in clients.limits.items():
        (life,) = lives.at_place(topic, number, end)
        if life.fate != "unwritten":
            yield f"the end of {topic}-{number}, {end}: {life.fate}, {life.sentence}"
    place = next(place for place, row in clients.messages.items() if place[0] == "fates" and row["key"])
    found, _ = lives.with_key(clients.messages[place]["key"].encode(), None, 5)
    if [life.identity["offset"] for life in found] != [place[2]]:
        yield f"the key of {place} is at {found}"


def damaged(root: Path, chance: random.Random) -> str:
    """Damage a copy in one way; what was done."""
    logs = sorted(file for file in root.glob("*/*.log") if file.stat().st_size and "cluster" not in file.parts[-2])
    file, kind = chance.choice(logs), chance.randrange(6)
    data = bytearray(file.read_bytes())
    if kind == 0:
        file.unlink()
    elif kind == 1:
        del data[chance.randrange(len(data)) :]
        file.write_bytes(data)
    elif kind == 2:
        file = file.parent
        shutil.rmtree(file)
    elif kind == 3:
        for beside in (*root.glob("*-checkpoint"), *root.glob("*/*.snapshot"), *root.glob("*/*.txnindex")):
            beside.write_bytes(chance.choice((b"", b"x", chance.randbytes(40), beside.read_bytes())))
    else:
        for log in chance.sample(logs, min(5, len(logs))):
            data = bytearray(log.read_bytes())
            at = chance.randrange(len(data))
            count = min(chance.choice((1, 50, 700)), len(data) - at)
            data[at : at + count] = chance.choice((bytes(count), chance.randbytes(count)))
            log.write_bytes(data)
    return f"damage {kind} of {file.relative_to(root)}"


def wrong_fates(clients: Clients, root: Path, chance: random.Random) -> Iterator[str]:
    """Yield fates that are wrong on a damaged copy; that less is known is none."""
    lives = reader(root)
    for place in chance.sample(sorted(clients.messages), SAMPLE):
        wanted = clients.fate(place)
        for life in lives.at_place(*place):
            if life.fate not in {wanted, "unknown"} and not clients.is_less((wanted, life.fate)):
                yield f"{place}: {life.fate}, the clients say {wanted}: {life.sentence}"
