"""Who points where: the queue units that lead into given ranges of the log (spec 3.1, 3.6)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import SysFlag, decode_record
from formats.rocketmq.properties import split_properties
from formats.rocketmq.tags_code import tags_code
from rmqctl.errors import MissingExtra
from rmqctl.rocketmq.dispatch.rules import inner_batch
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.measure import merged
from rmqctl.rocketmq.log.record import is_as_good, is_same_message
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue, Units, is_pre_blank, is_valid, queues_of
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.store.databases import DatabaseDamaged
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, QueueFiles, StoreFiles
from rmqctl.rocketmq.verify.missing import MissingUnits

LIGHT_QUEUE = "%LMQ%"
Range = tuple[int, int]
Place = tuple[str, int, int]
"""Topic, queue and queue offset."""


def place_of(fields: Mapping[str, Any]) -> Place:
    """Topic, queue and queue offset of a record, as it says them; of an inner batch the offset of its first message."""
    return fields["topic"].decode("utf-8", "surrogateescape"), fields["queue_id"], _span(fields)[0]


def messages_of(fields: Mapping[str, Any]) -> int:
    """How many messages a record has: 1, or those of an inner batch."""
    return _span(fields)[1]


def _span(fields: Mapping[str, Any]) -> tuple[int, int]:
    if fields["sys_flag"] & SysFlag.INNER_BATCH:
        return inner_batch(dict(split_properties(fields["properties"])), fields["queue_offset"])
    return fields["queue_offset"], 1


@dataclass(frozen=True, slots=True)
class QueueReference:
    """What a queue unit says of a record.

    Attributes:
        physical, size: where the record lies in the log and how long it is, bytes; size 0 where no unit says it.
        tags_code: as in the unit; None where no unit says it.
        store_timestamp: ms, from units that carry it (batch queues); None else.
        batch: messages in an inner batch, 0 for a plain message.
        source: file and place of the unit, or how else this is known.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical: int
    size: int = 0
    tags_code: int | None = None
    store_timestamp: int | None = None
    batch: int = 0
    source: str = ""

    @property
    def end(self) -> int:
        """Physical offset after the record."""
        return self.physical + self.size

    @property
    def place(self) -> Place:
        """Topic, queue and queue offset."""
        return self.topic, self.queue_id, self.queue_offset

    @property
    def topic_bytes(self) -> bytes:
        """The topic as it stands in a record."""
        return self.topic.encode("utf-8", "surrogateescape")


class QueueReferences:
    """All claims into a set of ranges, by physical offset."""

    def __init__(self, claims: Iterable[QueueReference]) -> None:
        self._at: dict[int, list[QueueReference]] = {}
        for claim in claims:
            self._at.setdefault(claim.physical, []).append(claim)
        self._starts = sorted(self._at)
        self._longest = max((claim.size for found in self._at.values() for claim in found), default=0)

    def __len__(self) -> int:
        """Return records that are claimed."""
        return len(self._starts)

    @property
    def end(self) -> int:
        """Physical offset after the last claimed record; 0 without one."""
        return max((claim.end for claims in self._at.values() for claim in claims), default=0)

    @cached_property
    def places(self) -> frozenset[Place]:
        """Topic, queue and queue offset of every claim."""
        return frozenset(c.place for c in self.every())

    def every(self) -> list[QueueReference]:
        """All claims."""
        return [claim for claims in self._at.values() for claim in claims]

    def without_false(self, missing: MissingUnits, doubtful: Container[int]) -> QueueReferences:
        """Return the references without units that contradict the log: a record that stands by itself is the truth.

        Such a record keeps its place in its queue, so a unit for that place that points elsewhere is wrong; and so are
        units beside one that points to it from another place, for units are moved and exchanged in runs.

        Args:
            missing: records whose units are not there, or point elsewhere; claims on them are among these.
            doubtful: physical offsets of records that the others of their queue do not bear out.
        """
        taken: dict[Place, int] = {}
        wrong: set[Place] = set()
        for m in missing.where(missing.is_wrong | np.isin(missing.physical, self._starts)):
            if m.actual is not None and (m.physical not in doubtful or not self.at(m.physical)):
                taken[*m.key, m.offset] = m.physical
            if m.physical not in doubtful:
                others = (c for c in self.at(m.physical) if not c.topic.startswith(LIGHT_QUEUE))
                wrong |= {c.place for c in others if c.place != (*m.key, m.offset)}
        return QueueReferences(
            c for c in self.every() if taken.get(c.place, c.physical) == c.physical and not (_beside(c) & wrong)
        )

    def at(self, physical: int) -> list[QueueReference]:
        """Claims on the record at an offset; those of light queues last."""
        return sorted(self._at.get(physical, ()), key=lambda c: c.topic.startswith(LIGHT_QUEUE))

    def over(self, begin: int, end: int) -> list[QueueReference]:
        """Claims on records that have a byte in ``[begin, end)``."""
        first = bisect_right(self._starts, begin - self._longest)
        found = self._starts[first : bisect_left(self._starts, end)]
        return [claim for start in found for claim in self._at[start] if claim.end > begin]

    def inside(self, begin: int, end: int) -> list[QueueReference]:
        """One claim for each record that lies in ``[begin, end)``, ascending, none overlapping another."""
        found: list[QueueReference] = []
        for start in self._starts:
            if begin <= start < end:
                own = self.at(start)[0]
                if own.end <= end and own.size > 0 and not (found and found[-1].end > start):
                    found.append(own)
        return found


def _beside(claim: QueueReference) -> set[Place]:
    """Return the places in the queue in front of a claimed one and after it."""
    topic, queue_id, offset = claim.place
    return {(topic, queue_id, offset - 1), (topic, queue_id, offset + max(claim.batch, 1))}


def references_into(store: StoreFiles, ranges: Iterable[Range], records: Ints | None = None) -> QueueReferences:
    """Return the units of all queues that point into the ranges, or to one of many records, by physical offset."""
    bounds = np.array(merged(ranges), np.int64).reshape(-1, 2)
    wanted = _Wanted(bounds[:, 0], bounds[:, 1], np.sort(records) if records is not None else bounds[:0, 0])
    if not len(bounds) and not len(wanted.records):
        return QueueReferences(())
    return QueueReferences(_claims(store, wanted))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Places in the log: ranges that do not overlap, and single records, each ascending."""

    begin: Ints
    end: Ints
    records: Ints

    def has(self, physical: Ints) -> npt.NDArray[np.bool_]:
        """Which of many physical offsets are among them."""
        place = np.searchsorted(self.begin, physical, side="right")
        found = (place > 0) & (physical < np.append(self.end, 0)[place - 1])
        row = np.searchsorted(self.records, physical)
        found |= (row < len(self.records)) & (np.append(self.records, 0)[row] == physical)
        return np.asarray(found)


def leads_to(store: StoreFiles, place: Place) -> int | None:
    """Return the physical offset that the unit at a place in a queue names; None where there is no unit."""
    found = _unit_at(store, place)
    return None if found is None else found[0]


def stands_for(store: StoreFiles, kept: bytes, lost: bytes) -> bool:
    """Whether nothing is lost with a whole record, as another has its message, and properties no worse than its own.

    Args:
        store: whose units may say which of the two has the tags of the message.
    """
    if is_as_good(kept, lost):
        return True
    return is_same_message(decode_record(kept)[0], decode_record(lost)[0]) and has_tags_of(store, kept, lost)


def has_tags_of(store: StoreFiles, raw: bytes, other: bytes) -> bool:
    """Whether the unit of a message has the tags that one of two records has of it, and not those of the other.

    Args:
        raw, other: whole records that say the same of their place.
    """
    fields = decode_record(raw)[0]
    unit, true, false = _unit_at(store, place_of(fields)), _tags_code(raw), _tags_code(other)
    return unit == (fields["physical_offset"], len(raw), true) and true != false


def _tags_code(raw: bytes) -> int:
    tags = dict(split_properties(decode_record(raw)[0]["properties"])).get(b"TAGS", b"")
    return tags_code(tags.decode("utf-8", "replace"))


def _unit_at(store: StoreFiles, place: Place) -> tuple[int, int, int] | None:
    """Return physical offset, size and tags code of the unit at a place in a queue; None where there is none."""
    topic, queue_id, offset = place
    if offset < 0:
        return None
    if store.is_rocksdb:
        try:
            with open_queues(store) as database:
                found = database.unit(topic, queue_id, offset)
        except (MissingExtra, DatabaseDamaged):
            return None
        return None if found is None else (found.physical_offset, found.size, found.tags_code)
    where = QueueFiles(QUEUES, topic, queue_id, f"{QUEUES}/{topic}/{queue_id}", store.tree)
    unit = Queue.open(where).unit_at(offset * UNIT.itemsize)
    is_there = unit is not None and is_valid(unit)[0] and not is_pre_blank(unit)[0]
    if unit is None or not is_there:
        return None
    return int(unit["physical_offset"][0]), int(unit["size"][0]), int(unit["tags_code"][0])


def _claims(store: StoreFiles, wanted: _Wanted) -> Iterator[QueueReference]:
    if store.is_rocksdb:
        yield from _of_database(store, wanted)
        return
    for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT)):
        for queue in queues_of(store.queues(kind), dtype):
            for file in queue.files:
                for first, units in queue.chunks(file):
                    yield from _of_chunk(queue, file.name, file.base // dtype.itemsize + first, units, wanted)


def _of_database(store: StoreFiles, wanted: _Wanted) -> Iterator[QueueReference]:
    """Units of a RocksDB database; none where it cannot be opened: the log alone must do then."""
    try:
        with open_queues(store) as database:
            for unit in database.units():
                if unit.size > 0 and wanted.has(np.array([unit.physical_offset]))[0]:
                    yield QueueReference(
                        unit.topic, unit.queue_id, unit.queue_offset, unit.physical_offset, unit.size, unit.tags_code,
                        unit.store_timestamp, 0, f"unit {unit.queue_offset} of {unit.topic}/{unit.queue_id} in RocksDB",
                    )  # fmt: skip
    except (MissingExtra, DatabaseDamaged):
        return


def _is_filler(queue: Queue, units: Units) -> npt.NDArray[np.bool_]:
    """Units in front of the first real one; batch queues have none."""
    return is_pre_blank(units) if queue.dtype is UNIT else np.zeros(len(units), bool)


def _of_chunk(queue: Queue, name: str, first: int, units: Units, wanted: _Wanted) -> Iterator[QueueReference]:
    physical = units["physical_offset"].astype(np.int64)
    hit = queue.valid(units) & ~_is_filler(queue, units) & wanted.has(physical)
    for row in np.flatnonzero(hit).tolist():
        unit, (topic, queue_id) = units[row], queue.key
        batch = queue.dtype is BATCH_UNIT
        yield QueueReference(
            topic, queue_id,
            int(unit["base_offset"]) if batch else first + row,
            int(unit["physical_offset"]), int(unit["size"]), int(unit["tags_code"]),
            int(unit["store_timestamp"]) if batch else None,
            int(unit["batch_size"]) if batch else 0,
            f"unit {first + row} in {name}",
        )  # fmt: skip
