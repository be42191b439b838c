"""Steps that mend the log: heal, restore from a replica, bridge, cut; each range by the best way that is proven."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.findings import Finding
from rmqctl.repair.edits import Overwrite, Step
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.mend.claims import claims_into
from rmqctl.rocketmq.mend.damage import survey
from rmqctl.rocketmq.mend.displaced import displaced_steps
from rmqctl.rocketmq.mend.gaps import GapMender
from rmqctl.rocketmq.mend.mending import BodyDamage, Mending, left
from rmqctl.rocketmq.mend.placeholder import blank
from rmqctl.rocketmq.mend.records import RecordMender
from rmqctl.rocketmq.mend.replica import Replica
from rmqctl.rocketmq.store import RocketMQStore

_MOST_STALE = 256 << 20


class LogMender:
    """Plans the mending of one store's log.

    Args:
        store: as it is now, earlier steps of the plan included.
        replica: another store of the same broker group.
        suspects: physical offsets of records that an index entry contradicts.
    """

    def __init__(
        self,
        store: RocketMQStore,
        *,
        replica: Replica | None = None,
        body_damage: BodyDamage = BodyDamage.PLACEHOLDER,
        suspects: frozenset[int] = frozenset(),
    ) -> None:
        damage = survey(store)
        ranges = [*damage.ranges(), *((at, at + 1) for at in suspects)]
        log = LogReader(store.log_files)
        claims = claims_into(store, ranges).without_false(damage.missing, damage.doubtful)
        self.mending = Mending(store, damage, claims, log, replica, body_damage)
        self.suspects = suspects

    def steps(self) -> Iterator[Step]:
        """What to do, by offset in the log.

        Raises:
            OSError: a file cannot be read.
        """
        damage, gaps = self.mending.damage, GapMender(self.mending)
        with self.mending.log:
            steps, filled = displaced_steps(self.mending)  # what these leave is for the next round
            steps += [s for gap in damage.gaps if gap.begin not in filled for s in gaps.steps(gap)]
            steps += [self._blank(f) for f in damage.blanks]
            steps += RecordMender(self.mending, self.suspects).steps()
            steps += [self._stale(f) for f in damage.stale]
        yield from sorted(steps, key=_place)

    def _blank(self, finding: Finding) -> Step:
        file = self.mending.log.file_of(finding.physical_offset or 0)
        assert file is not None
        assert finding.physical_offset is not None
        right = blank(file.size - finding.offset)
        raw = self.mending.log.read(finding.physical_offset, len(right))
        what = f"put the size of the blank record at {finding.physical_offset} right"
        return Step(
            finding.kind.id,
            file.name,
            what,
            "the file's length says it",
            self.mending.edits(finding.physical_offset, raw, right),
        )

    def _stale(self, finding: Finding) -> Step:
        file = next(f for f in self.mending.store.log_files if f.name == finding.file)
        source = file.open()
        size = sum(end - begin for begin, end in source.data_ranges(finding.offset, file.size))
        source.close()
        if size > _MOST_STALE:
            return left(finding, f"{size:,} bytes: brokers write over them in time")
        edits = tuple(self.mending.zeroed(file, finding.offset))
        what = f"zero what lies behind the end of the log at {file.base + finding.offset}"
        return Step(finding.kind.id, file.name, what, finding.message, edits)


def _place(step: Step) -> tuple[str, int]:
    """Where in the log a step works."""
    first = next((e for e in step.edits if isinstance(e, Overwrite)), None)
    return step.file.rpartition("/")[2], first.offset if first else -1
