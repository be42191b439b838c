"""Records that are whole but wrong: fields that contradict their place or their unit, bodies, and what no CRC covers.

Sound records in destroyed ranges that belong elsewhere (bytes put in or taken out, swapped blocks) go back to where
they belong. One message can be made harmless: its place in log and queue stays taken, what it said is gone.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.message import Magic, SysFlag, decode_record
from formats.rocketmq.properties import is_closed, split_properties
from formats.rocketmq.property_crc import SIZE
from rmqctl.errors import Refused
from rmqctl.findings import Finding, Severity
from rmqctl.repair.edits import Edit, Step, changes, zeroed
from rmqctl.rocketmq.dispatch.rules import inner_batch
from rmqctl.rocketmq.findings.derived import QUEUE_UNIT_MISMATCH
from rmqctl.rocketmq.findings.log import (
    LOG_BODY_CRC,
    LOG_COMPRESSION,
    LOG_PHYSICAL_OFFSET,
    LOG_PORT,
    LOG_PROPERTIES_LOST,
    LOG_PROPERTY_CRC,
    LOG_STORE_TIME,
)
from rmqctl.rocketmq.log.crc import MASK, crc32
from rmqctl.rocketmq.log.record import CRC_SPAN, SMALLEST, LogReader, physical_of
from rmqctl.rocketmq.repair.damage import SOURCE, LogGap, setting_of
from rmqctl.rocketmq.repair.heal import (
    Mended,
    heal,
    heal_property_crc,
    mend_compression,
    mend_ports,
    mend_properties,
    with_store_time,
)
from rmqctl.rocketmq.repair.log_repair import BodyDamage, LogRepair, left
from rmqctl.rocketmq.repair.placeholder import bodiless, placeholder
from rmqctl.rocketmq.repair.queue_references import LIGHT_QUEUE, Place, QueueReference, references_into
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.text import number_of


def neutralize_step(store: RocketMQStore, physical: int) -> Step:
    """Replace the message at a physical offset by a placeholder.

    Raises:
        Refused: no whole record begins there, or there is no room for a placeholder.
    """
    with LogReader(store.log_files) as log:
        raw, file = log.record(physical), log.file_of(physical)
    if raw is None or file is None:
        raise Refused(
            f"no record begins at offset {physical}; `rmqctl dump --from-offset {physical}` shows what is there"
        )
    fields, _ = decode_record(raw)
    found = references_into(store, [(physical, physical + 1)]).at(physical)
    own = next((c for c in found if c.topic_bytes == fields["topic"]), None)
    if own is None:
        topic = fields["topic"].decode("utf-8", "surrogateescape")
        own = QueueReference(topic, fields["queue_id"], fields["queue_offset"], physical, len(raw))
    if fields["sys_flag"] & int(SysFlag.INNER_BATCH) and not own.batch:
        raise Refused(
            f"the record at offset {physical} is an inner batch without a queue unit; repair the queues first"
        )
    record = placeholder(own, len(raw), setting_of(raw), [c for c in found if c is not own])
    if record is None:
        raise Refused(f"the {len(raw)} bytes of the record at offset {physical} are too few for a placeholder")
    edits: tuple[Edit, ...] = tuple(changes(file.name, physical - file.base, raw, record))
    what = f"replace the message at {physical} ({own.topic}/{own.queue_id}, offset {own.queue_offset}) by a placeholder"
    return Step("message.neutralize", file.name, what, "asked for with --neutralize", edits, loses=1)


# --- sound records in destroyed ranges of the log that belong elsewhere -----------------------------


_MAGIC = re.compile(
    b"|".join(re.escape(int(m).to_bytes(4, "big", signed=True)) for m in (Magic.MESSAGE_V1, Magic.MESSAGE_V2))
)
_MOST = 256 << 20
"""Bytes of destroyed ranges that are searched."""
_WORK = 8
"""How often each byte of a range may be read for headers that claim it in vain; beyond that only shorter claims are."""
_PLACE = slice(28, 36)


def displaced_steps(repair: LogRepair) -> tuple[list[Step], set[int]]:
    """Return steps that put such records back where they say they were, and the begins of the ranges that these fill.

    The bytes of each are sound, and the place that it states lies in a destroyed range: nothing sound is written over.
    """
    gaps = [gap for gap in repair.damage.gaps if not gap.file.lead]
    if sum(_limit(gap) - gap.begin for gap in gaps) > _MOST:
        return [], set()
    data = {gap.begin: repair.log.read(gap.begin, _limit(gap) - gap.begin) for gap in gaps}
    found: dict[int, dict[int, bytes]] = defaultdict(dict)
    for gap in gaps:
        for at, raw in _records(data[gap.begin]):
            place = int.from_bytes(raw[_PLACE], "big", signed=True)
            home = next((g for g in gaps if g.begin <= place and place + len(raw) <= _limit(g)), None)
            if home is not None and place != gap.begin + at:
                found[home.begin].setdefault(place, raw)
    steps = []
    for gap in gaps:
        moved = _apart(found[gap.begin])
        if moved:
            after = bytearray(data[gap.begin])
            for place, raw in moved:
                after[place - gap.begin : place - gap.begin + len(raw)] = raw
            what = f"move {number_of(len(moved), 'record')} back to where they say they were, from {moved[0][0]} on"
            why = "their structure and CRCs are sound, and nothing else is in those places"
            edits = repair.edits(gap.begin, data[gap.begin], bytes(after))
            steps.append(Step(gap.finding.kind.id, gap.file.name, what, why, edits))
    return steps, {gap.begin for gap in gaps if found[gap.begin]}


def _limit(gap: LogGap) -> int:
    """Where the range ends in which records may have been; at the end of the log that is the end of the file."""
    return gap.file.base + gap.file.size if gap.is_tail else gap.end


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Sound records with a body, anywhere in some bytes, each with its place in them; none overlaps another."""
    at, work = 0, _WORK * max(len(data), 1 << 20)
    while found := _MAGIC.search(data, at + 4):
        at = found.start() - 4
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if SMALLEST <= size <= min(len(data) - at, work):
            if _is_sound(data[at : at + size]):
                yield at, data[at : at + size]
                at += size
                continue
            work -= size
        at += 1


def _is_sound(raw: bytes) -> bool:
    """Whether the bytes are exactly one record, and its body has the CRC that it states."""
    try:
        fields, end = decode_record(raw)
    except DecodeError:
        return False
    return bool(end == len(raw) and fields["body"] and fields["body_crc"] == crc32(fields["body"]) & MASK)


def _apart(records: dict[int, bytes]) -> Sequence[tuple[int, bytes]]:
    """Return records by place, without those that overlap the one in front."""
    kept: list[tuple[int, bytes]] = []
    for place, raw in sorted(records.items()):
        if not kept or kept[-1][0] + len(kept[-1][1]) <= place:
            kept.append((place, raw))
    return kept


# --- records that are whole -------------------------------------------------------------------------


_MOST_MOVED = 64
_MOST_SHIFTED = 4
_MOST_CONTRADICTED = 1024


class RecordMender:
    """Decides for each record that something contradicts.

    Args:
        suspects: physical offsets of records that an index entry contradicts.
    """

    def __init__(self, repair: LogRepair, suspects: frozenset[int] = frozenset()) -> None:
        self.repair, self.suspects = repair, suspects
        self._shifted = Counter(
            f.file for found in repair.damage.records.values() for f in found if f.kind is LOG_PHYSICAL_OFFSET
        )

    def steps(self) -> Iterator[Step]:
        """Yield what to do, by offset."""
        damage = self.repair.damage
        moved = {**damage.strayed, **self._moved(), **self._flagged()}
        retagged = {m.physical for m in damage.missing if m.actual and m.expected and m.actual[:2] == m.expected[:2]}
        contradicted = {*retagged, *self.suspects}
        contradicted = contradicted if len(contradicted) <= _MOST_CONTRADICTED else set()
        for physical in sorted({*damage.records, *moved, *contradicted}):
            yield from self._record(physical, damage.records.get(physical, []), moved.get(physical))

    def _moved(self) -> dict[int, QueueReference]:
        """Return records that the others of their queue do not bear out, and for which their unit says another
        place.
        """
        found = {}
        for physical in sorted(self.repair.damage.doubtful)[:_MOST_CONTRADICTED]:
            raw = self.repair.log.record(physical)
            own = self._own_claim(physical, raw) if raw is not None else None
            if own is not None and raw is not None and own.place != _place_of(raw):
                found[physical] = own
        return found if len(found) <= _MOST_MOVED else {}

    def _flagged(self) -> dict[int, QueueReference]:
        """Return records whose flags say that they get no queue unit, and whose own place in a queue has one."""
        found = {}
        for record in sorted(self.repair.damage.unqueued, key=_is_first)[:_MOST_CONTRADICTED]:
            unit = next((c for c in self.repair.claims.at(record.physical) if c.place == record.place), None)
            if unit is not None:
                found[record.physical] = unit
        return found

    def _own_claim(self, physical: int, raw: bytes) -> QueueReference | None:
        """Return the one unit that points to a record and has its size, if it agrees with the record or may contradict
        it.

        It may where the others of its queue do not bear the record out, but do the unit's place. Everything else of the
        log is the truth, and the queue is built again.
        """
        found = self.repair.claims.at(physical)
        own = [c for c in found if c.size == len(raw) and not c.topic.startswith(LIGHT_QUEUE)]
        if len(own) != 1:
            return None
        damage, place = self.repair.damage, own[0].place
        if place == _place_of(raw):
            return own[0]
        is_due = place in damage.beside or own[0].queue_offset == 0
        proves = physical in damage.doubtful and is_due and (not own[0].batch or own[0].queue_offset == _base_of(raw))
        return own[0] if proves else None

    def _record(self, physical: int, findings: list[Finding], moved: QueueReference | None) -> Iterator[Step]:
        raw, file = self.repair.log.record(physical), self.repair.log.file_of(physical)
        if raw is None or file is None:
            return
        claim = self._own_claim(physical, raw)
        if claim is None or (moved is not None and moved.source == SOURCE):
            claim = moved or claim
        first = findings[0] if findings else None
        if claim is None and first and self._is_foreign_file(first):
            yield left(first, "many records of the file say so: the file may belong elsewhere")
            return
        kind = first.kind.id if first else QUEUE_UNIT_MISMATCH.id
        if claim is None and self._is_copy(physical, raw):
            why = "it is a copy of the record at the offset that it states, left behind the end by a cut"
            edits = tuple(zeroed(file.name, physical - file.base, raw))
            yield Step(kind, file.name, f"end the log at {physical}: zero what follows", why, edits)
            return
        healed = heal(raw, physical, claim)
        if healed is None:
            yield from self._bad_body(physical, raw, findings)
            return
        if healed.record != raw:
            yield self._step(
                kind, physical, raw, Mended(healed.record, healed.what(physical), healed.proof, is_exact=True)
            )
        yield from self._unprotected(physical, healed.record, findings, claim, fresh=healed.record == raw)

    def _step(self, kind: str, physical: int, raw: bytes, mended: Mended) -> Step:
        file = self.repair.log.file_of(physical)
        assert file is not None
        return Step(kind, file.name, mended.what, mended.why, self.repair.edits(physical, raw, mended.record))

    def _is_foreign_file(self, finding: Finding) -> bool:
        return finding.kind is LOG_PHYSICAL_OFFSET and self._shifted[finding.file] > _MOST_SHIFTED

    def _is_copy(self, physical: int, raw: bytes) -> bool:
        """Whether the last record of the log is an old one whose original lies where it says."""
        stated, log = physical_of(raw), self.repair.log
        return physical + len(raw) == self.repair.damage.end and stated != physical and log.record(stated) == raw

    # --- what the body CRC does not cover -----------------------------------------------------------

    def _unprotected(
        self, physical: int, raw: bytes, findings: list[Finding], claim: QueueReference | None, *, fresh: bool
    ) -> Iterator[Step]:
        """Properties, the record's own CRC, the store time.

        Args:
            fresh: nothing else was wrong with the record, so what its findings say still stands.
        """
        finding = next((f for f in findings if f.kind is not LOG_PHYSICAL_OFFSET), None)
        kind = finding.kind.id if finding else QUEUE_UNIT_MISMATCH.id
        mended = self._by_kind(finding, physical, raw, claim) if finding is not None and fresh else None
        restored = (
            self.repair.restored(physical, physical + len(raw)) if mended is None or not mended.is_exact else None
        )
        if restored is not None and restored.data != raw and (finding or mended):
            what = f"restore the record at {physical} from the replica"
            yield self._step(kind, physical, raw, Mended(restored.data, what, restored.proof, is_exact=True))
        elif mended is not None:
            yield self._step(kind, physical, raw, replace(mended, what=f"{mended.what} (record at {physical})"))
        elif finding is not None and fresh:
            yield left(finding, "nothing else in the store says what the bytes were")

    def _by_kind(self, finding: Finding, physical: int, raw: bytes, claim: QueueReference | None) -> Mended | None:
        if finding.kind is LOG_PROPERTY_CRC:
            return heal_property_crc(raw)
        if finding.kind is LOG_PORT:
            return mend_ports(raw)
        if finding.kind is LOG_PROPERTIES_LOST:
            return mend_properties(raw, closed=self._closes_properties(physical, raw))
        if finding.kind is LOG_COMPRESSION and finding.level is not Severity.NOTE:
            return mend_compression(raw, self.repair.damage.compressions)
        return self._store_time(physical, raw, claim) if finding.kind is LOG_STORE_TIME else None

    def _closes_properties(self, physical: int, raw: bytes) -> bool:
        """Whether the record after, or else the first of the log, ends its properties with 0x02."""
        log = self.repair.log
        beside = log.record(physical + len(raw)) or log.record(log.min_offset)
        return beside is not None and is_closed(beside)

    def _store_time(self, physical: int, raw: bytes, claim: QueueReference | None) -> Mended | None:
        """Return the true store time where a unit has it; for a time of zero, which harms recovery, that of a
        neighbour.
        """
        fields: dict[str, Any] = decode_record(raw)[0]
        if claim is not None and claim.store_timestamp is not None:
            if claim.store_timestamp == fields["store_timestamp"]:
                return None
            record = with_store_time(raw, claim.store_timestamp)
            return Mended(record, "put the store time right", f"{claim.source} has it", is_exact=True)
        if fields["store_timestamp"]:
            return None
        following = self.repair.log.store_timestamp(physical + len(raw))
        time = following or self.repair.damage.last_time or fields["born_timestamp"]
        why = "zero makes recovery pass over the file; the true time lies between those of the records beside it"
        return Mended(with_store_time(raw, time), f"set the store time to {time}", why, is_exact=False)

    # --- bodies -----------------------------------------------------------------------------------

    def _bad_body(self, physical: int, raw: bytes, findings: list[Finding]) -> Iterator[Step]:
        bad = next((f for f in findings if f.kind is LOG_BODY_CRC), None)
        if bad is None:
            return
        restored = self.repair.restored(physical, physical + len(raw))
        if restored is not None:
            what = f"restore the record at {physical} from the replica"
            yield self._step(bad.kind.id, physical, raw, Mended(restored.data, what, restored.proof, is_exact=True))
        else:
            yield self._given_up(bad, physical, raw)

    def _given_up(self, bad: Finding, physical: int, raw: bytes) -> Step:
        """Plan what becomes of a body that nothing heals: kept with a new CRC, or replaced."""
        why = f"{bad.message}: no single correction explains it"
        if self.repair.body_damage is BodyDamage.ACCEPT:
            right = (crc32(decode_record(raw)[0]["body"]) & MASK).to_bytes(4, "big")
            record: bytes | None = raw[: CRC_SPAN.start] + right + raw[CRC_SPAN.stop :]
            what = f"accept the body at {physical} as it is: new CRC"
        else:
            record, what = _bodiless(physical, raw), f"replace the body of the record at {physical} by a placeholder"
        if record is None:
            return left(bad, why)
        edits = self.repair.edits(physical, raw, record)
        return Step(bad.kind.id, bad.file, what, why, edits, loses=1)


def _place_of(raw: bytes) -> Place:
    """Topic, queue and queue offset of a whole record, as it says them."""
    fields: dict[str, Any] = decode_record(raw)[0]
    return fields["topic"].decode("utf-8", "surrogateescape"), fields["queue_id"], fields["queue_offset"]


def _base_of(raw: bytes) -> int:
    """Return the queue offset that the properties of an inner batch say."""
    return inner_batch(dict(split_properties(decode_record(raw)[0]["properties"])))[0]


def _is_first(claim: QueueReference) -> bool:
    return claim.queue_offset == 0


def _bodiless(physical: int, raw: bytes) -> bytes | None:
    """Return the record with a body that says that the true one is gone; an inner batch keeps its number of
    messages.
    """
    fields: dict[str, Any] = decode_record(raw)[0]
    setting = setting_of(raw)
    properties = fields["properties"][:-SIZE] if setting.property_crc else fields["properties"]
    if fields["sys_flag"] & SysFlag.INNER_BATCH:
        base, count = inner_batch(dict(split_properties(properties)))
        topic = fields["topic"].decode("utf-8", "surrogateescape")
        return placeholder(
            QueueReference(topic, fields["queue_id"], base, physical, len(raw), batch=count), len(raw), setting
        )
    return bodiless(fields, len(raw), properties, setting)
