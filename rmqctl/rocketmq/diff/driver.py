"""The comparison as a whole: what is compared, in which order, and what it comes to.

What is left of two logs becomes findings in the order of A's log: changed, moved, or there on one side only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from formats.errors import DecodeError
from formats.rocketmq.message import decode_record
from rmqctl.errors import NotAStore
from rmqctl.files.tree import Tree
from rmqctl.findings import DIFF_ONLY_A, DIFF_ONLY_B, DIFF_RECORD, Finding, FindingKind
from rmqctl.rocketmq.diff.logs import Columns, Joined, Laid, Log, LogDiff, join
from rmqctl.rocketmq.diff.queues import Common, QueueDiff, QueueKey, QueuesLaid
from rmqctl.rocketmq.dump.log import is_under
from rmqctl.rocketmq.dump.sources import identify
from rmqctl.rocketmq.findings.derived import DIFF_BODY, DIFF_MOVED, DIFF_PROPERTIES
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.crc import MASK, crc32
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.store.file_kinds import FileKind
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, StoreFiles, forgiving, unreadable_files
from rmqctl.text import instant, number_of

_EVERYWHERE = (-1 << 62, 1 << 62)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: a store, or a part of one.

    Attributes:
        log: its log; without files where the path leads to queues.
        store: for its queues, None where there are none to compare.
    """

    log: Log
    store: StoreFiles | None = None

    @classmethod
    def of_store(cls, store: StoreFiles, name: str) -> Side:
        """Return a store as typed: all of it, its log or a file of that, or its queues.

        Raises:
            NotAStore: the path leads to another part of a store.
        """
        path, store = store.selection, forgiving(store)
        if path.split("/")[0] in {QUEUES, BATCH_QUEUES}:
            return cls(Log(name, []), store)
        files = [f for f in store.log_files if is_under(f.name, path)]
        if path and not files:
            raise NotAStore(name, "neither log nor queues are there to compare", "give a store, its log, or a log file")
        return cls(Log(name, files, store.has_abort), None if path else store)

    @classmethod
    def of_file(cls, tree: Tree, path: str, name: str) -> Side:
        """Return a file of a log that lies in no store.

        Raises:
            NotAStore: it is no file of a commit log.
        """
        file, kind = identify(tree, path, path)
        if kind is not FileKind.COMMIT_LOG:
            raise NotAStore(name, "the file is no commit log", "give a store, its log, or a log file")
        return cls(Log(name, [file]))


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What to compare.

    Attributes:
        by_place: records at the same physical offset belong together; else those of the same queue offset.
        queues: compare the consume queues too.
    """

    by_place: bool = True
    queues: bool = True


class Sharing(Protocol):
    """Has the work done elsewhere; the results are the same."""

    def logs(self, a: Log, b: Log, by_place: bool, /) -> Laid:
        """Two logs beside each other, stretch by stretch, each by :func:`rmqctl.rocketmq.diff.logs.lay`."""
        ...

    def queues(self, work: QueueDiff, keys: list[QueueKey], /) -> Iterable[QueuesLaid]:
        """Queues beside each other in the order of the keys, some at a time, each by :meth:`QueueDiff.compare`."""
        ...


class Diff:
    """Compares two sides: :meth:`findings` once, then :meth:`summary`.

    Attributes:
        counts: findings by severity.
    """

    def __init__(
        self,
        a: Side,
        b: Side,
        options: DiffOptions,
        advance: Callable[[int], None] = lambda size: None,
        share: Sharing | None = None,
    ) -> None:
        self.a, self.b, self.options, self._advance, self._share = a, b, options, advance, share
        self.counts: Counter[str] = Counter()
        self._logs = LogDiff(a.log, b.log)
        self._left: LogDifferences | None = None
        self._queues: QueueDiff | None = None
        self._started = time.monotonic()

    @property
    def is_different(self) -> bool:
        """Whether anything was found."""
        return sum(self.counts.values()) > 0

    def findings(self) -> Iterator[Finding]:
        """Differences of the logs by physical offset, then those of the queues, then files that cannot be read.

        Raises:
            MissingExtra: RocksDB queues are to be compared and the extra is not installed.
        """
        for finding in self._all():
            self.counts[str(finding.level)] += 1
            yield finding

    def _all(self) -> Iterator[Finding]:
        logs = None if self._share is None else self._share.logs
        self._logs.run(by_place=self.options.by_place, advance=self._advance, share=logs)
        self._left = LogDifferences(self._logs, by_place=self.options.by_place)
        yield from self._left.findings()
        if self.options.queues and self.a.store is not None and self.b.store is not None:
            self._queues = QueueDiff(self.a.store, self.b.store, self._common())
            yield from self._queues.findings(None if self._share is None else self._share.queues)
        for letter, side in (("A", self.a), ("B", self.b)):
            for found in unreadable_files(side.store) if side.store is not None else ():
                yield replace(found, message=f"in {letter} it {found.message}; it was taken for empty")

    def _common(self) -> Common:
        a, b = self.a.log, self.b.log
        begin, end = (max(a.begin, b.begin), min(a.end, b.end)) if a.files and b.files else _EVERYWHERE
        return Common(begin, end, places=self.options.by_place)

    def summary(self) -> dict[str, Any]:
        """Numbers of the whole; offsets and sizes in bytes, None where nothing was compared."""
        left = self._left
        assert left is not None, "findings() comes first"
        changed, equal_bodies = left.replaced
        by_place = self.options.by_place
        return {
            "a": _facts(self.a.log),
            "b": _facts(self.b.log),
            "by": "physical" if by_place else "queue",
            "different": self.is_different,
            "first_divergence": left.first,
            "records": {
                "equal": self._logs.laid.equal if by_place else len(left.same) + self._logs.laid.matched,
                "moved": len(left.moved),
                "changed": changed,
                "changed_equal_bodies": equal_bodies,
                "other_body": len(left.bodies),
                "other_properties": len(left.properties),
                "only_a": asdict(left.only("a")),
                "only_b": asdict(left.only("b")),
            },
            "queues": self._queue_facts(),
            "findings": {level: self.counts[level] for level in ("error", "warning", "note")},
            "seconds": round(time.monotonic() - self._started, 3),
        }

    def _queue_facts(self) -> dict[str, int] | None:
        q = self._queues
        if q is None:
            return None
        return {
            "queues": q.queues,
            "equal_units": q.equal,
            "different_units": q.different,
            "units_only_a": q.only_a,
            "units_only_b": q.only_b,
        }


def _facts(log: Log) -> dict[str, Any]:
    facts = {"files": len(log.files), "min_offset": log.begin, "max_offset": log.end}
    return {"path": log.name, **facts, "records": log.records, "bytes": log.bytes, "damaged_places": log.gaps}


# --- what is left of two logs --------------------------------------------------------------------------


_FOLLOWS = {"total_size": ("body", "properties"), "body_crc": ("body",)}
"""Fields that differ because others do."""
_LONGEST = 20


def difference(left: bytes, right: bytes) -> str:
    """One sentence: whether the bodies are equal, each field with both values, and whose body is damaged."""
    try:
        a, b = decode_record(left)[0], decode_record(right)[0]
    except DecodeError:
        return "one of them cannot be decoded"
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    shown = [name for name in names if name != "physical_offset" and not set(_FOLLOWS.get(name, ())) & set(names)]
    fields = "; ".join(_field(name, a.get(name), b.get(name)) for name in shown)
    bad = [side for side, record in (("A", a), ("B", b)) if not _is_sound(record)]
    verdict = f"; the body fails its CRC in {' and '.join(bad)}" if bad else ""
    return f"{'bodies differ' if 'body' in names else 'equal bodies'}; {fields or 'other bytes'}{verdict}"


def _field(name: str, a: object, b: object) -> str:
    """One field on both sides; of the body where it begins to differ, of the properties those that differ."""
    if name.endswith("_timestamp") and isinstance(a, int) and isinstance(b, int):
        return f"{name} {instant(a)} / {instant(b)}"
    if not isinstance(a, bytes) or not isinstance(b, bytes):
        return f"{name} {_short(a)} / {_short(b)}"
    if name == "properties":
        one, two = _properties(a), _properties(b)
        keys = [key for key in {**one, **two} if one.get(key) != two.get(key)]
        values = [f"{_short(key)} {_short(one.get(key))} / {_short(two.get(key))}" for key in keys]
        return f"properties {', '.join(values) or 'in other bytes'}"
    if name == "body":
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
        return f"body from byte {same:,} on ({len(a):,} / {len(b):,} bytes)"
    return f"{name} {_short(a)} / {_short(b)}"


def _properties(text: bytes) -> dict[bytes, bytes]:
    """Names and values, as far as the text has any."""
    return {name: value for name, mark, value in (part.partition(b"\1") for part in text.split(b"\2")) if mark}


def is_sound_record(data: bytes) -> bool:
    """Whether the bytes are a record whose body is that of its CRC."""
    try:
        return _is_sound(decode_record(data)[0])
    except DecodeError:
        return False


def _is_sound(record: dict[str, Any]) -> bool:
    """Whether the stored CRC of a body is that of its bytes; 0 was never computed."""
    return int(record["body_crc"]) in {0, crc32(record["body"]) & MASK}


def _short(value: object) -> str:
    """Return a value that fits a sentence; of long ones the end, where ids that are made one after the other differ."""
    if value is None:
        return "none"
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _LONGEST else f"...{text[-_LONGEST:]}"


# --- what is left of two logs -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ranges:
    """Records of one log that the other does not have.

    Attributes:
        records, bytes: how many, and their bytes.
        queues: ``topic/queue`` -> smallest and largest queue offset, and number.
    """

    records: int
    bytes: int
    queues: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Rows of A and B that should be one record; compared field by field when they are shown."""

    kind: FindingKind
    a: int
    b: int


class LogDifferences:
    """Sorts what two logs do not have in common.

    Attributes:
        joined: records of both with the same topic, queue and queue offset.
        changed, moved, bodies, properties: rows of ``joined``: other bytes at the same place; the same message
            elsewhere; another body elsewhere; other properties only.
    """

    def __init__(self, diff: LogDiff, *, by_place: bool) -> None:
        self._diff = diff
        self.a, self.b = diff.laid.left_a, diff.laid.left_b
        self._replaced = _replaced(self.a, self.b) if by_place else (_NONE, _NONE)
        self.joined = self._join()
        j = self.joined
        body = (self.a.body[j.a] == self.b.body[j.b]) & (self.a.body_size[j.a] == self.b.body_size[j.b])
        text = self.a.properties[j.a] == self.b.properties[j.b]
        self.bodies = np.flatnonzero(~body)
        self.properties = np.flatnonzero(body & ~text)
        self.same = np.flatnonzero(body & text)
        self.moved = self.same if by_place else _NONE

    def _join(self) -> Joined:
        """Match by queue offset what does not share a place."""
        rest_a, rest_b = _rest(len(self.a.seq), self._replaced[0]), _rest(len(self.b.seq), self._replaced[1])
        found = join(self.a.take(rest_a), self.b.take(rest_b))
        return Joined(rest_a[found.a], rest_b[found.b], rest_a[found.only_a], rest_b[found.only_b])

    @property
    def first(self) -> int | None:
        """Smallest physical offset at which the logs differ, None where they do not."""
        starts = [int(side.physical[rows].min()) for side, rows in self._differing() if len(rows)]
        return min(starts, default=None)

    @property
    def replaced(self) -> tuple[int, int]:
        """Records that share their place with another one, and how many of them have equal bodies."""
        x, y = self._replaced
        equal = (self.a.body[x] == self.b.body[y]) & (self.a.body_size[x] == self.b.body_size[y])
        return len(x), int(equal.sum())

    @property
    def replaced_rows(self) -> tuple[Ints, Ints]:
        """Rows of ``a`` and of ``b`` that share their place with another one."""
        return self._replaced

    def only(self, which: str) -> Ranges:
        """Return what only one side has; ``which`` is ``a`` or ``b``."""
        side, rows = (self.a, self.joined.only_a) if which == "a" else (self.b, self.joined.only_b)
        some = side.take(rows)
        return Ranges(len(rows), int(some.size.sum()), dict(self._queues(some)))

    def findings(self) -> Iterator[Finding]:
        """Every difference, ascending by physical offset; neighbours of one kind are one finding."""
        found: list[tuple[int, Finding | _Pair]] = []
        found += self._ranges(DIFF_ONLY_A, self._diff.a, self._diff.b, self.a, self.joined.only_a)
        found += self._ranges(DIFF_ONLY_B, self._diff.b, self._diff.a, self.b, self.joined.only_b)
        found += self._moved()
        pairs: list[tuple[FindingKind, Ints, Ints]] = [(DIFF_RECORD, *self._replaced)]
        for kind, rows in ((DIFF_BODY, self.bodies), (DIFF_PROPERTIES, self.properties)):
            pairs.append((kind, self.joined.a[rows], self.joined.b[rows]))
        for kind, rows_a, rows_b in pairs:
            places = self.a.physical[rows_a].tolist()
            both = zip(rows_a.tolist(), rows_b.tolist(), strict=True)
            found += zip(places, (_Pair(kind, i, j) for i, j in both), strict=True)
        with LogReader(self._diff.a.files) as one, LogReader(self._diff.b.files) as two:
            for _, item in sorted(found, key=lambda pair: pair[0]):
                yield item if isinstance(item, Finding) else self._pair(item, one, two)

    def _differing(self) -> list[tuple[Columns, Ints]]:
        j, other = self.joined, np.concatenate([self.bodies, self.properties, self.moved])
        return [
            (self.a, np.concatenate([j.only_a, self._replaced[0], j.a[other]])),
            (self.b, np.concatenate([j.only_b, self._replaced[1], j.b[other]])),
        ]

    def _ranges(
        self, kind: FindingKind, log: Log, other: Log, side: Columns, rows: Ints
    ) -> Iterator[tuple[int, Finding]]:
        """Yield records without partner, those that follow each other in the log as one range."""
        letter, missing = ("A", "B") if kind is DIFF_ONLY_A else ("B", "A")
        for part in np.split(rows, np.flatnonzero(np.diff(side.seq[rows]) != 1) + 1) if len(rows) else []:
            some = side.take(part)
            begin, end = int(some.physical[0]), int(some.physical[-1] + some.size[-1])
            text = (
                f"only in {letter}: {number_of(len(part), 'record')}, {int(some.size.sum()):,} bytes, "
                f"physical offsets {begin} to {end}; {missing}'s log {_why(begin, end, other)}"
            )
            yield begin, self._finding(kind, log, some, 0, end - begin, text, is_one=len(part) == 1)

    def _moved(self) -> Iterator[tuple[int, Finding]]:
        """Equal messages at other places; neighbours that moved by the same distance as one."""
        j = self.joined
        if not len(self.moved):
            return
        a, b = self.a.take(j.a[self.moved]), self.b.take(j.b[self.moved])
        shift = b.physical - a.physical
        breaks = (np.diff(a.seq) != 1) | (np.diff(b.seq) != 1) | (np.diff(shift) != 0)
        for part in np.split(np.arange(len(shift)), np.flatnonzero(breaks) + 1):
            some = a.take(part)
            begin, end = int(some.physical[0]), int(some.physical[-1] + some.size[-1])
            there = int(b.physical[part[0]])
            text = f"{number_of(len(part), 'record')} at {begin} to {end} in A, from {there} on in B"
            one = len(part) == 1
            yield begin, self._finding(DIFF_MOVED, self._diff.a, some, 0, end - begin, text, is_one=one)

    def _pair(self, pair: _Pair, one: LogReader, two: LogReader) -> Finding:
        """Two records that should be one: which fields differ."""
        kind, i, j = pair.kind, pair.a, pair.b
        a, b = int(self.a.physical[i]), int(self.b.physical[j])
        left, right = one.read(a, int(self.a.size[i])), two.read(b, int(self.b.size[j]))
        place = f"at {a}" if a == b else f"at {a} in A and {b} in B"
        text = f"{place}: {difference(left, right)}"
        return self._finding(kind, self._diff.a, self.a, i, int(self.a.size[i]), text, is_one=True)

    def _finding(
        self, kind: FindingKind, log: Log, side: Columns, row: int, size: int, text: str, *, is_one: bool
    ) -> Finding:
        file, physical = log.files[int(side.file[row])], int(side.physical[row])
        found = Finding(kind, file.name, physical - file.base, size, text, physical_offset=physical)
        if not is_one:
            return found
        topic, queue_id = self._topic(int(side.topic[row])), int(side.queue_id[row])
        return replace(found, topic=topic, queue_id=queue_id, queue_offset=int(side.queue_offset[row]))

    def _queues(self, some: Columns) -> Iterator[tuple[str, dict[str, int]]]:
        """Queue offsets of some records, by topic and queue."""
        names = self._diff.laid.topics
        places = np.argsort(np.array([*names, b""], np.object_))  # in the order of their texts, whoever numbered them
        some = some.take(np.lexsort((some.queue_offset, some.queue_id, np.argsort(places)[some.topic])))
        breaks = (np.diff(some.topic) != 0) | (np.diff(some.queue_id) != 0)
        for part in np.split(np.arange(len(some.seq)), np.flatnonzero(breaks) + 1) if len(some.seq) else []:
            first, last = int(part[0]), int(part[-1])
            offsets = {"from": int(some.queue_offset[first]), "to": int(some.queue_offset[last])}
            name = f"{self._topic(int(some.topic[first]))}/{int(some.queue_id[first])}"
            yield name, {**offsets, "records": len(part)}

    def _topic(self, number: int) -> str:
        return self._diff.laid.topics[number].decode("utf-8", "replace")


_NONE = np.zeros(0, np.int64)


def _replaced(a: Columns, b: Columns) -> tuple[Ints, Ints]:
    """Rows that lie at the same place in both logs."""
    _, at_a, at_b = np.intersect1d(a.physical, b.physical, assume_unique=True, return_indices=True)
    return at_a, at_b


def _rest(count: int, rows: Ints) -> Ints:
    keep = np.ones(count, bool)
    keep[rows] = False
    return np.flatnonzero(keep)


def _why(begin: int, end: int, other: Log) -> str:
    if not other.files:
        return "has no files"
    if end <= other.begin:
        return f"begins at {other.begin}"
    return f"ends at {other.end}" if begin >= other.end else "has no sound record there"
