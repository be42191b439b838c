"""The books of a salvage: every whole batch of every copy is in the new log directory, at its offset.

A batch is copied byte for byte; base offset and leader epoch, which no CRC covers, may be set right. Of what two copies
have at the same offsets one is taken: a leader of a later epoch has overwritten the other, or it is given up by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogFile, read_partition
from rmqctl.kafka.log.block import Block, Flags, Ints
from rmqctl.kafka.log.scan import Extent, scan_inside
from rmqctl.kafka.repair.sides import name_of
from rmqctl.kafka.salvage.gather import Found
from rmqctl.repair.copied import Rows, rows_of

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_DELETED = ".deleted"
LEFT_OVER = -1
"""Instead of the number of a copy: a broker that starts removes or renames the file."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file that is read, with numbers of its partition and of the copy in it."""

    partition: int
    copy: int
    log: LogFile


@dataclass(frozen=True, slots=True)
class _Spans:
    """Batches ascending by offset, int64, shape (n,) each; ``file`` is a number."""

    base: Ints
    last: Ints
    epoch: Ints
    crc: Ints
    file: Ints
    position: Ints

    @classmethod
    def of(cls, files: Sequence[tuple[int, LogFile]]) -> _Spans:
        parts = [np.zeros((6, 0), np.int64)]
        for number, file in files:
            for block in _whole(file):
                offsets, names = (block["base_offset"], block.proven_last), ("partition_leader_epoch", "crc")
                named = (block[name] for name in names)
                parts.append(np.stack([*offsets, *named, np.full(len(block), number), block.position]))
        every = np.concatenate(parts, axis=1)
        return cls(*every[:, np.argsort(every[0], kind="stable")])

    def take(self, rows: Ints | Flags) -> _Spans:
        return _Spans(*(getattr(self, name)[rows] for name in _Spans.__slots__))

    def overlapped(self, by: _Spans) -> Flags:
        """Which of them have an offset that a batch of a log has, too."""
        first = np.append(by.base, np.iinfo(np.int64).max)[np.searchsorted(by.last, self.base)]
        found: Flags = first <= self.last
        return found

    def outdate(self, by: _Spans) -> Flags:
        """Which of them are of a later epoch than what a log has at their offsets: its leader came before theirs."""
        at = np.searchsorted(by.base, self.last, "right")
        found: Flags = np.append(np.iinfo(np.int64).max, by.epoch)[at] < self.epoch
        return found

    def overwritten(self, by: _Spans) -> Flags:
        """Which of them have a batch of a later epoch in their place, or in front: epochs grow along a log."""
        latest = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, by.epoch))
        found: Flags = latest[np.searchsorted(by.base, self.last, "right")] > self.epoch
        return found


class SalvageLedger:
    """Batches of all copies and of the directory made of them; a :class:`~rmqctl.repair.copied.CopyLedger`.

    Args:
        found: the partitions of the sources.
        into: the new directory.
        named: batches of which a finding says that their offsets are wrong: numbers of partition and copy, file,
            position.
        advance: called with bytes passed.
        of_epochs: those of which one says that their leader epochs are.

    Attributes:
        broken: where the new logs, once all were read, cannot be followed, or go back.
    """

    def __init__(
        self,
        found: Sequence[Found],
        into: Path,
        named: Collection[tuple[int, int, str, int]],
        advance: Callable[[int], object] = lambda size: None,
        of_epochs: Collection[tuple[int, int, str, int]] = (),
    ) -> None:
        self.found, self.named, self.advance, self.of_epochs = found, named, advance, of_epochs
        self.broken: list[str] = []
        self.files = [
            _File(number, at, log)
            for number, one in enumerate(found)
            for at, copy in enumerate(one.copies)
            for log in copy.files
        ]
        self.files += [_File(number, LEFT_OVER, log) for number, one in enumerate(found) for log in one.leftovers]
        tree = LocalTree(str(into))
        self.made = [
            _File(number, 0, log)
            for number, one in enumerate(found)
            for log in read_partition(tree, f"{one.topic}-{one.number}").logs
        ]
        self._known: tuple[tuple[int, int], _Spans, _Spans] | None = None

    def before(self) -> Iterator[Rows]:
        """Yield the batches of all copies, and of what brokers left over."""
        return self._rows(self.files)

    def after(self) -> Iterator[Rows]:
        """Yield the batches of the new directory."""
        return self._rows(self.made, self._followed)

    def _followed(self, file: _File, blocks: Iterator[Block]) -> Iterator[Block]:
        """Pass on the batches of a new segment, and note where one does not follow the other."""
        end, last = 0, file.log.base - 1
        for block in blocks:
            begins, lasts = np.append(end, block.position + block.size), np.append(last, block["last_offset"])
            if (begins[:-1] != block.position).any() or (block["base_offset"] <= lasts[:-1]).any():
                self.broken.append(f"{file.log.name} cannot be followed at {end:,}, or goes back")
            end, last = int(begins[-1]), int(lasts[-1])
            yield block
        if end != file.log.size:
            self.broken.append(f"{file.log.name} cannot be followed at {end:,}")

    def _rows(
        self,
        files: Sequence[_File],
        through: Callable[[_File, Iterator[Block]], Iterator[Block]] = lambda file, blocks: blocks,
    ) -> Iterator[Rows]:
        for number, file in enumerate(files):
            for block in through(file, _whole(file.log)):
                identity = np.full(len(block), file.partition, np.uint64)
                span = block.proven_last - block["base_offset"]
                for word in (block["crc"], block.size, span, block["max_timestamp"]):
                    identity = (identity ^ word.astype(np.uint64)) * _ODD
                    identity ^= identity >> _SHIFT
                place = np.full(len(block), file.partition, np.uint64) * _ODD ^ block["base_offset"].astype(np.uint64)
                yield rows_of(identity, place, number, block.position, block["records_count"])
                self.advance(int(block.size.sum()))

    # --- what is not in the result ------------------------------------------------------------------------

    def garbage(self, missing: Rows, holders: Rows) -> Flags:
        """Which batches a leader of a later epoch has overwritten, or a broker had deleted, or cleaned."""
        found = np.zeros(len(missing), np.bool_)
        for rows, file, mine, own, made in self._by_file(missing):
            if file.copy == LEFT_OVER:
                found[rows] = file.log.name.endswith(_DELETED) | mine.overlapped(made)
            else:
                known = np.isin(made.base * 31 ^ made.crc, own.base * 31 ^ own.crc)
                found[rows] = mine.overwritten(made.take(~known)) & ~self._is_named(file, mine)
        return found

    def given_up(self, missing: Rows, holders: Rows) -> Flags:
        """Which batches a finding names, or have offsets that another batch, of no earlier epoch, has in the result."""
        found = np.zeros(len(missing), np.bool_)
        for rows, file, mine, _, made in self._by_file(missing):
            is_older = ~mine.outdate(made) | self._is_named(file, mine, self.of_epochs)
            found[rows] = (mine.overlapped(made) & is_older) | self._is_named(file, mine)
        return found

    def may_move(self, moved: Rows) -> Flags:
        """Which batches have a base offset that a finding calls wrong."""
        found = np.zeros(len(moved), np.bool_)
        for rows, file, mine, _, _ in self._by_file(moved):
            found[rows] = self._is_named(file, mine)
        return found

    def name(self, record: np.void, *, of_copy: bool) -> str:
        """Return the partition, the offsets and the CRC of a batch, and where it lies."""
        file = (self.made if of_copy else self.files)[record["file"]]
        one, at = self.found[file.partition], int(record["position"])
        with closing(file.log.open()) as source:
            extent = Extent(file.log.name, start=at, stop=at + 1, chained=True)
            block = next(block for block, _ in scan_inside(source, extent) if len(block))
        first, last, crc = (int(block[name][0]) for name in ("base_offset", "last_offset", "crc"))
        return f"{name_of(f'{one.topic}-{one.number}', first, last, crc)} in {file.log.name} at {at:,}"

    def _is_named(self, file: _File, mine: _Spans, among: Collection[tuple[int, int, str, int]] | None = None) -> Flags:
        place, named = (file.partition, file.copy, file.log.name), self.named if among is None else among
        return np.array([(*place, at) in named for at in mine.position.tolist()], np.bool_)

    def _by_file(self, missing: Rows) -> Iterator[tuple[Ints, _File, _Spans, _Spans, _Spans]]:
        """Yield numbers of rows of one file, the file, their batches, all of the copy, and those of the result."""
        for number in np.unique(missing["file"]).tolist():
            rows, file = np.flatnonzero(missing["file"] == number), self.files[number]
            own, made = self._spans(file)
            mine = own.take(own.file == number)
            mine = mine.take(np.argsort(mine.position))
            yield rows, file, mine.take(np.searchsorted(mine.position, missing["position"][rows])), own, made

    def _spans(self, file: _File) -> tuple[_Spans, _Spans]:
        """Return all batches of the copy that a file belongs to, and those of the result; the last ones are kept."""
        key = file.partition, file.copy
        if self._known is None or self._known[0] != key:
            own = [(n, f.log) for n, f in enumerate(self.files) if (f.partition, f.copy) == key]
            made = [(n, f.log) for n, f in enumerate(self.made) if f.partition == file.partition]
            self._known = key, _Spans.of(own), _Spans.of(made)
        return self._known[1:]


def _whole(file: LogFile) -> Iterator[Block]:
    """Yield the whole batches of a file, also those inside of torn ones."""
    with closing(file.open()) as source:
        for block, inside in scan_inside(source, Extent(file.name, size=file.size if file.size >= 0 else None)):
            for one in (block.take(block.crc_ok), *inside):
                sound = one.take(one["records_count"] >= 0)
                if len(sound):
                    yield sound
