"""Tags codes that are addresses into consumequeue_ext, and the units they lead to (spec 3.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from formats.layout import plan_of
from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE
from formats.rocketmq.consumequeue_ext import HEAD_SIZE, ConsumeQueueExtUnit
from rmqctl.files.source import ByteSource
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.store import QUEUES_EXT, RocketMQStore, StoreFile, sequence
from rmqctl.rocketmq.unreadable import is_unread, refusals_of
from rmqctl.rocketmq.verify.context import LogContext

_HEAD = plan_of(ConsumeQueueExtUnit).runs[0]
Wrong = tuple[int, int, str]
"""Offset and size of a wrong field in its unit, bytes, and what is wrong."""


@dataclass(frozen=True, slots=True)
class ExtensionProblem:
    """An extension unit that does not fit the record whose queue unit names it.

    Attributes:
        file: the extension file, or the queue's directory where it has none.
        offset, size: the bytes that are wrong; 0 and 0 where there is no file.
        what: the problem, the same for all of its sort.
        physical: physical offset of the record.
    """

    topic: str
    queue_id: int
    file: str
    offset: int
    size: int
    what: str
    physical: int


class Extensions:
    """The extension files of all queues, opened when first asked for."""

    def __init__(self, store: RocketMQStore) -> None:
        self.store = store
        self.problems: list[ExtensionProblem] = []
        self._files: dict[str, list[StoreFile]] = {}
        self._open: dict[str, ByteSource] = {}

    def close(self) -> None:
        """Close all files."""
        for source in self._open.values():
            source.close()
        self._open.clear()

    def names(self, topic: str, queue_id: int, address: int, wanted: tuple[int, int], physical: int) -> bool:
        """Whether a queue unit's address is that of the record's extension unit; a damaged one is kept as a problem.

        An address is taken to be right when the unit there has the record's tags code or its store time, when nothing
        is written there, or when the file it leads to is gone.

        Args:
            wanted: tags code and store time (ms) of the record.
            physical: physical offset of the record.

        Raises:
            OSError: an extension file cannot be read.
        """
        path, offset = f"{QUEUES_EXT}/{topic}/{queue_id}", address - EXT_ADDRESS_BASE
        files = self._listed(path)
        file = next((f for f in files if f.base <= offset < f.base + f.size), None)
        wrong: Wrong | None = (0, 0, "the extension file that units point into is gone")
        if file is not None:
            head = self._head(file, offset - file.base)
            if head.leads_elsewhere(wanted):
                return False
            wrong = head.wrong_field(wanted)
        elif files and offset >= files[-1].base + 2 * files[-1].size:
            return False
        name, position = (file.name, offset - file.base) if file else (path, 0)
        if wrong and not is_unread(refusals_of(self.store.tree), name):
            self.problems.append(
                ExtensionProblem(topic, queue_id, name, position + wrong[0], wrong[1], wrong[2], physical)
            )
        return True

    def _head(self, file: StoreFile, position: int) -> _Head:
        if file.name not in self._open:
            self._open[file.name] = file.open()
        raw = self._open[file.name].read_at(position, HEAD_SIZE).ljust(HEAD_SIZE, b"\0")
        size, tags_code, store_timestamp, bitmap = _HEAD.packer.unpack(raw)
        return _Head(size, tags_code, store_timestamp, bitmap, file.size - position)

    def _listed(self, path: str) -> list[StoreFile]:
        if path not in self._files:
            self._files[path] = sequence(self.store.tree, path, path)[0]
        return self._files[path]


@dataclass(frozen=True, slots=True)
class _Head:
    """The fixed fields of an extension unit, and the bytes from it to the end of its file."""

    size: int
    tags_code: int
    store_timestamp: int
    bitmap: int
    room: int

    @property
    def is_empty(self) -> bool:
        """Nothing is written here."""
        return not (self.size or self.tags_code or self.store_timestamp or self.bitmap)

    def leads_elsewhere(self, wanted: tuple[int, int]) -> bool:
        """Whether nothing here is the record's."""
        return not self.is_empty and self.tags_code != wanted[0] and self.store_timestamp != wanted[1]

    def wrong_field(self, wanted: tuple[int, int]) -> Wrong | None:
        """The first field that cannot be right."""
        if self.is_empty:
            return 0, HEAD_SIZE, "nothing is written where an extension unit should be"
        if self.tags_code != wanted[0]:
            return 2, 8, "the extension unit has another tags code than the record"
        if self.store_timestamp != wanted[1]:
            return 10, 8, "the extension unit has another store time than the record"
        if self.size != HEAD_SIZE + self.bitmap or not HEAD_SIZE <= self.size <= self.room:
            return 0, HEAD_SIZE, "the sizes of the extension unit and of its bitmap contradict each other"
        return None


def extension_findings(problems: list[ExtensionProblem], context: LogContext) -> Iterator[Finding]:
    """One finding for each sort of problem in a file, at the first place."""
    groups: dict[tuple[str, str], list[ExtensionProblem]] = {}
    for problem in problems:
        if not context.is_damaged(problem.physical, problem.physical + 1):
            groups.setdefault((problem.file, problem.what), []).append(problem)
    for (file, what), found in groups.items():
        first = min(found, key=lambda p: p.offset)
        more = f"; so it is at {len(found) - 1} more places behind" if len(found) > 1 and first.size else ""
        units = f"; {len(found)} units do" if not first.size else ""
        yield Finding(
            kinds.QUEUE_EXT, file, first.offset, first.size, f"{what} (record at {first.physical}){more}{units}",
            physical_offset=first.physical, topic=first.topic, queue_id=first.queue_id,
        )  # fmt: skip
