"""The comparison as a whole: what is compared, in which order, and what it comes to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from rmqctl.errors import NotAStore
from rmqctl.files.tree import Tree
from rmqctl.findings import Finding
from rmqctl.rocketmq.diff.differences import Differences
from rmqctl.rocketmq.diff.logs import Laid, Log, LogDiff
from rmqctl.rocketmq.diff.queues import Common, QueueDiff, QueueKey, QueuesLaid
from rmqctl.rocketmq.dump.log import is_under
from rmqctl.rocketmq.dump.sources import identify
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, FileKind, RocketMQStore
from rmqctl.rocketmq.store.unreadable import forgiving, unreadable_files

_EVERYWHERE = (-1 << 62, 1 << 62)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: a store, or a part of one.

    Attributes:
        log: its log; without files where the path leads to queues.
        store: for its queues, None where there are none to compare.
    """

    log: Log
    store: RocketMQStore | None = None

    @classmethod
    def of_store(cls, store: RocketMQStore, name: str) -> Side:
        """A store as typed: all of it, its log or a file of that, or its queues.

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
        """A file of a log that lies in no store.

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
        self._left: Differences | None = None
        self._queues: QueueDiff | None = None
        self._started = time.monotonic()

    @property
    def is_different(self) -> bool:
        """Whether anything was found."""
        return sum(self.counts.values()) > 0

    def findings(self) -> Iterator[Finding]:
        """Differences of the logs by physical offset, then those of the queues, then files that cannot be read.

        Raises:
            OSError: a directory cannot be read.
            MissingExtra: RocksDB queues are to be compared and the extra is not installed.
        """
        for finding in self._all():
            self.counts[str(finding.level)] += 1
            yield finding

    def _all(self) -> Iterator[Finding]:
        logs = None if self._share is None else self._share.logs
        self._logs.run(by_place=self.options.by_place, advance=self._advance, share=logs)
        self._left = Differences(self._logs, by_place=self.options.by_place)
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
    return {"path": log.name, **facts, "messages": log.records, "bytes": log.bytes, "damaged_places": log.gaps}
