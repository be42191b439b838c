"""What every part of mending a log needs: the damage, who points where, the bytes, a replica."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rmqctl.findings import Finding
from rmqctl.repair.edits import Edit, Overwrite, Step
from rmqctl.repair.overwrites import changes, zeroed
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.mend.claims import Claims
from rmqctl.rocketmq.mend.damage import LogDamage
from rmqctl.rocketmq.mend.replica import Replica, Restored
from rmqctl.rocketmq.store import RocketMQStore, StoreFile

_PIECE = 1 << 20


class BodyDamage(StrEnum):
    """What becomes of a record whose body only is bad: a placeholder in its place, or the body as it is."""

    PLACEHOLDER = "placeholder"
    ACCEPT = "accept"


@dataclass(slots=True)
class Mending:
    """One pass over a damaged log.

    Attributes:
        store: as it is now, earlier steps of the plan included.
        damage: what the walk over its log has shown.
        claims: queue units that point at damage.
        log: its records by offset.
        replica: another store of the same group, or None.
    """

    store: RocketMQStore
    damage: LogDamage
    claims: Claims
    log: LogReader
    replica: Replica | None = None
    body_damage: BodyDamage = BodyDamage.PLACEHOLDER

    def edits(self, physical: int, before: bytes, after: bytes) -> tuple[Edit, ...]:
        """Overwrites from the bytes at an offset of the log to others; ``after`` may be shorter."""
        file = self.log.file_of(physical)
        assert file is not None
        return tuple(changes(file.name, physical - file.base, before[: len(after)], after))

    def restored(self, begin: int, end: int) -> Restored | None:
        """A range from the replica, if there is one and it has it."""
        return self.replica.restore(self.log, begin, end) if self.replica else None

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
    """A step that changes nothing: what is wrong and why it stays."""
    return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)
