"""What every part of repair a log needs: the damage, who points where, the bytes, a replica.

A replica is another store of the same group: it holds the same log at the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from formats.errors import DecodeError
from formats.rocketmq.message import Magic, body_crc, decode_record
from rmqctl.findings import Finding, Severity
from rmqctl.repair.edits import Edit, Overwrite, Step, StepName, changes, zeroed
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.commitlog import FileContext, LogState, walk_file
from rmqctl.rocketmq.log.crc import body_crcs
from rmqctl.rocketmq.log.record import HEAD_SEEN, LogReader, magic_of, total_size_of
from rmqctl.rocketmq.repair.damage import LogDamage
from rmqctl.rocketmq.repair.queue_references import QueueReferences
from rmqctl.rocketmq.store.files import StoreFile, StoreFiles

_COMPARED = 256
"""Bytes in front of a range that must be equal in both stores."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The bytes of a range as a replica has them, and what shows that it is the same log."""

    data: bytes
    proof: str


class Replica:
    """Another store, read only.

    Args:
        store: of the same broker group; its files may begin and end elsewhere.
    """

    def __init__(self, store: StoreFiles) -> None:
        self.store = store
        self._log = LogReader(store.log_files)

    def restore(self, log: LogReader, begin: int, end: int) -> Restored | None:
        """Return the range ``[begin, end)``; None if it is not there, not sound, or its neighbours differ.

        Args:
            log: the log to be mended.
        """
        data = self._log.read(begin, end - begin)
        if len(data) != end - begin or not _is_sound(data, begin):
            return None
        front, after = self._front(log, begin), self._after(log, end)
        if False in (front, after) or (front is None and after is None):
            return None
        sides = [name for name, equal in (("in front", front), ("behind", after)) if equal]
        return Restored(
            data,
            f"{self.store.root} has sound records there, and the bytes {' and '.join(sides)} are equal in both stores",
        )

    def file(self, base: int, size: int, *, is_last: bool = False) -> bytes | None:
        """Return the whole file that begins at an offset; None if it is not there or has damage.

        Args:
            is_last: it is the last of its log, and need not be full.
        """
        file = next((f for f in self.store.log_files if f.base == base and f.size == size), None)
        if file is None:
            return None
        state = LogState()
        for found in walk_file(FileContext(file, followed=not is_last), state):
            if any(f.level is not Severity.NOTE for f in found.findings) or len(_body_crc_rows(found.block)):
                return None
        return self._log.read(base, size)

    def _front(self, log: LogReader, begin: int) -> bool | None:
        """Whether the bytes in front are equal; None at the begin of a file."""
        file = log.file_of(begin)
        size = min(_COMPARED, begin - file.base) if file else 0
        return log.read(begin - size, size) == self._log.read(begin - size, size) if size else None

    def _after(self, log: LogReader, end: int) -> bool | None:
        """Whether the record after is equal; None where no record is."""
        own = log.record(end)
        return own == self._log.read(end, len(own)) if own else None


def _body_crc_rows(block: Block) -> Ints:
    """Rows whose body does not fit its CRC."""
    return np.flatnonzero((block["body_crc"].astype(np.int64) != body_crcs(block)) & (block.body_size > 0))


def _is_sound(data: bytes, begin: int) -> bool:
    """Whether records, each at the place it states and with a right body CRC, fill the bytes exactly."""
    at = 0
    while at < len(data):
        if magic_of(data[at : at + HEAD_SEEN]) == Magic.BLANK:
            return total_size_of(data[at : at + HEAD_SEEN]) == len(data) - at
        try:
            fields, after = decode_record(data, at)
        except DecodeError:
            return False
        crc = body_crc(fields["body"]) if fields["body"] else fields["body_crc"]
        if fields["physical_offset"] != begin + at or fields["body_crc"] != crc:
            return False
        at = after
    return at == len(data)


# --- what every part of repair a log needs ---------------------------------------------------------


_PIECE = 1 << 20


class BodyDamage(StrEnum):
    """What becomes of a record whose body only is bad: a placeholder in its place, or the body as it is."""

    PLACEHOLDER = "placeholder"
    ACCEPT = "accept"


@dataclass(slots=True)
class LogRepair:
    """One pass over a damaged log.

    Attributes:
        store: as it is now, earlier steps of the plan included.
        damage: what the walk over its log has shown.
        claims: queue units that point at damage.
        log: its records by offset.
        replica: another store of the same group, or None.
        accepted: names of steps in whose place the body is kept as it is.
        unhealed: physical offsets of records that are not healed; None: none is.
    """

    store: StoreFiles
    damage: LogDamage
    claims: QueueReferences
    log: LogReader
    replica: Replica | None = None
    body_damage: BodyDamage = BodyDamage.PLACEHOLDER
    accepted: frozenset[StepName] = frozenset()
    unhealed: frozenset[int] | None = frozenset()
    _touching: tuple[dict[int, int], dict[int, int]] | None = None

    def heals(self, physical: int) -> bool:
        """Whether a damaged record may be healed."""
        return self.unhealed is not None and physical not in self.unhealed

    def edits(self, physical: int, before: bytes, after: bytes) -> tuple[Edit, ...]:
        """Return overwrites from the bytes at an offset of the log to others; ``after`` may be shorter."""
        file = self.log.file_of(physical)
        assert file is not None
        return tuple(changes(file.name, physical - file.base, before[: len(after)], after))

    def restored(self, begin: int, end: int) -> Restored | None:
        """Return a range from the replica, if there is one and it has it.

        Where the bytes beside the range are damaged, too, they cannot show that both are one log; then what lies beside
        all of the damage does.
        """
        if self.replica is None:
            return None
        found = self.replica.restore(self.log, begin, end)
        first, last = self._with_damage_beside(begin, end)
        if found is not None or (first, last) == (begin, end):
            return found
        found = self.replica.restore(self.log, first, last)
        data = found.data[begin - first : end - first] if found is not None else b""
        return Restored(data, found.proof) if found is not None and _is_sound(data, begin) else None

    def _with_damage_beside(self, begin: int, end: int) -> tuple[int, int]:
        """Return a range with the gaps and the damaged records that touch it, and those that touch these."""
        if self._touching is None:
            bounds = [(gap.begin, gap.end) for gap in self.damage.gaps]
            bounds += [(at, at + len(record)) for at in self.damage.records if (record := self.log.record(at))]
            bounds = [(first, last) for first, last in bounds if last > first]
            self._touching = dict(bounds), {last: first for first, last in bounds}
        after, before = self._touching
        while begin in before:
            begin = before[begin]
        while end in after:
            end = after[end]
        return begin, end

    def zeroed(self, file: StoreFile, start: int) -> Iterator[Overwrite]:
        """Zeros over what is left of a file; its holes are not read."""
        source = file.open()
        try:
            for begin, end in source.data_ranges(start, file.size):
                for at in range(begin, end, _PIECE):
                    yield from zeroed(file.name, at, source.read_at(at, min(_PIECE, end - at)))
        finally:
            source.close()


def left(finding: Finding, why: str) -> Step:
    """Return a step that changes nothing: what is wrong and why it stays."""
    return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)
