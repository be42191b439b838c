"""Files that are missing in the middle of the log: from a replica, or made anew with placeholders."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.findings import Finding
from rmqctl.repair.edits import Create, Quarantine, Step
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.commitlog import CommitLog
from rmqctl.rocketmq.geometry import Geometry
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.mend.bridge import bridge
from rmqctl.rocketmq.mend.claims import LIGHT_QUEUE, Claim, Claims, claims_into
from rmqctl.rocketmq.mend.damage import setting_of, survey
from rmqctl.rocketmq.mend.heal import SMALLEST
from rmqctl.rocketmq.mend.holes import Break
from rmqctl.rocketmq.mend.placeholder import Setting
from rmqctl.rocketmq.mend.replica import Replica
from rmqctl.rocketmq.mend.strays import pointless_files
from rmqctl.rocketmq.missing_log import odd_place
from rmqctl.rocketmq.store import COMMIT_LOG, OFFSET_DIGITS, RocketMQStore, StoreFile
from rmqctl.text import number_of


def missing_steps(store: RocketMQStore, geometry: Geometry, replica: Replica | None) -> Iterator[Step]:
    """One step a missing file; files without data behind a gap go into quarantine instead.

    Raises:
        OSError: a file cannot be read.
    """
    if not store.log_files:
        yield from _no_log(store, geometry, replica)
        return
    for name in pointless_files(store):
        why = "the file in front of it is missing, and nothing sound follows"
        yield Step(kinds.LOG_GAP.id, name, "move to quarantine", why, (Quarantine(name),))
    gone = set(pointless_files(store))
    files = [f for f in store.log_files if f.name not in gone]
    log = CommitLog(files, file_size=geometry.commit_log_file_size)
    gaps = [gap for gap in (log.gap_before(at) for at in range(1, len(files))) if gap is not None]
    if gaps:
        yield from _Filler(store, files, geometry.commit_log_file_size, replica).steps(gaps)


def _no_log(store: RocketMQStore, geometry: Geometry, replica: Replica | None) -> Iterator[Step]:
    """A log where there is none: the replica's files, else an empty one behind all that queues point to.

    With a log that begins there a broker takes the messages for expired; without one it would destroy the queues,
    and give their offsets out again.
    """
    if odd := odd_place(store):
        why = "mount the disk, or put the directory in its place, and repair again; or give --commitlog DIR"
        yield Step(kinds.LOG_MISSING.id, COMMIT_LOG, f"left as it is: {odd}", why)
        return
    if replica is not None:
        for file in replica.store.log_files:
            name = f"{COMMIT_LOG}/{file.base:0{OFFSET_DIGITS}d}"
            data = replica.file(file.base, file.size, is_last=file is replica.store.log_files[-1])
            if data is not None:
                why = f"{replica.store.root} has the file, and all its records are sound"
                yield Step(
                    kinds.LOG_MISSING.id,
                    name,
                    "take the file from the replica",
                    why,
                    (Create(name, data, size=file.size),),
                )
        return
    claims = claims_into(store, [(0, 1 << 62)])
    size, end = geometry.commit_log_file_size, claims.end
    if "mappedFileSizeCommitLog" not in store.settings or not end:
        why = (
            "give --from REPLICA, --commitlog DIR if it lies elsewhere, or --broker-conf FILE for the size of its files"
        )
        yield Step(kinds.LOG_MISSING.id, COMMIT_LOG, "left as it is: no file of the commit log is there", why)
        return
    name = f"{COMMIT_LOG}/{-(-end // size) * size:0{OFFSET_DIGITS}d}"
    what = "begin an empty log behind everything that queues point to"
    why = "all messages are lost, but queues keep their offsets: a broker without a log would destroy the queues"
    yield Step(kinds.LOG_MISSING.id, name, what, why, (Create(name, size=size),), loses=len(claims))


class _Filler:
    def __init__(self, store: RocketMQStore, files: list[StoreFile], size: int, replica: Replica | None) -> None:
        self.files, self.size, self.replica = files, size, replica
        self.store = store
        self._holes: list[Break] = []
        self._claims = Claims(())

    def steps(self, gaps: list[Finding]) -> Iterator[Step]:
        ranges = [(g.physical_offset or 0, (g.physical_offset or 0) + g.size) for g in gaps]
        damage = survey(self.store)
        self._holes = damage.holes
        beside = [(max(h.after, 0), h.before) for h in self._holes]  # other ranges may be destroyed in the same hole
        sound = [(m.physical, m.physical + 1) for m in damage.missing]
        claims = claims_into(self.store, [*ranges, *beside, *sound])
        self._claims = claims.without_false(damage.missing, damage.doubtful)
        for gap, (begin, end) in zip(gaps, ranges, strict=True):
            for base in range(begin, end - self.size + 1, self.size):
                name = f"{gap.file.rpartition('/')[0]}/{base:0{OFFSET_DIGITS}d}"
                yield self._from_replica(name, base) or self._anew(name, base)

    def _from_replica(self, name: str, base: int) -> Step | None:
        data = self.replica.file(base, self.size) if self.replica else None
        if data is None or self.replica is None:
            return None
        why = f"{self.replica.store.root} has the file, and all its records are sound"
        return Step(
            kinds.LOG_GAP.id, name, "restore the file from the replica", why, (Create(name, data, size=self.size),)
        )

    def _anew(self, name: str, base: int) -> Step:
        end = base + self.size
        claims = self._claims.inside(base, end - 8)
        loose = [
            Claim(h.topic, h.queue_id, offset, -1, source="hole in the queue offsets of the log")
            for h in self._holes
            if h.after < base and h.before >= end
            for offset in range(h.expected, h.expected + min(h.missing, self.size // SMALLEST))
            if (h.topic, h.queue_id, offset) not in self._claims.places
        ]
        known = self._claims.every() if loose else ()
        made = bridge(base, end, claims, loose, self._setting(base), at_end=True, light=self._light, known=known)
        assert made is not None  # a whole file has room for a blank record
        count = len(made.placed)
        what = f"make the file anew with {number_of(count, 'placeholder')}"
        why = "its messages are lost, but their queue offsets stay taken, and no other record moves"
        edit = Create(name, made.data.rstrip(b"\0"), size=self.size)
        return Step(kinds.LOG_GAP.id, name, what, why, (edit,), loses=count + len(made.unplaced))

    def _light(self, physical: int) -> list[Claim]:
        return [c for c in self._claims.at(physical) if c.topic.startswith(LIGHT_QUEUE)]

    def _setting(self, base: int) -> Setting:
        """From the first record behind the gap that begins a file."""
        with LogReader(self.files) as log:
            behind = (log.record(f.base) for f in self.files if f.base > base)
            after = next((record for record in behind if record), None)
            return setting_of(after) if after else Setting()
