"""Records that are whole but wrong: fields that contradict their place or their unit, bodies, and what no CRC covers.

One message can be made harmless: its place in log and queue stays taken, what it said is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from formats.rocketmq.message import Magic, SysFlag, decode_record
from formats.rocketmq.properties import is_closed, split_properties
from formats.rocketmq.property_crc import SIZE
from rmqctl.errors import Refused
from rmqctl.findings import Finding, Severity
from rmqctl.repair.edits import Edit, Step, changes
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
from rmqctl.rocketmq.log.record import CRC_SPAN, HEAD_SEEN, LogReader, magic_of, record_name
from rmqctl.rocketmq.log.stand_ins import is_marked
from rmqctl.rocketmq.repair.damage import SOURCE, Break, setting_of
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
from rmqctl.rocketmq.repair.queue_references import (
    LIGHT_QUEUE,
    Place,
    QueueReference,
    leads_to,
    place_of,
    references_into,
)
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.text import instant, typed


def neutralize_step(store: StoreFiles, physical: int) -> Step:
    """Replace the message at a physical offset by a placeholder.

    Raises:
        Refused: no whole record begins there, or there is no room for a placeholder.
    """
    with LogReader(store.log_files) as log:
        raw, file = log.record(physical), log.file_of(physical)
    if raw is None or file is None:
        raise Refused(
            f"no record begins at offset {physical}; what is there: "
            + typed("dump", store.root, "--from-offset", str(physical))
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
    why = "asked for with --neutralize"
    return Step("message.neutralize", file.name, what, why, edits, loses=1, gives_up=(record_name(fields),))


# --- records that are whole -------------------------------------------------------------------------


_MOST_MOVED = 64
_MOST_CONTRADICTED = 1024


class RecordMender:
    """Decides for each record that something contradicts.

    Args:
        own: misplaced records that belong where they lie, with the unit that says so, by physical offset.
        suspects: physical offsets of records that an index entry contradicts.
        moved: physical offsets to which this plan has moved records: they stay as they were.
        taken: places in queues that records have which gaps held: no other record belongs there, whatever units say.
    """

    def __init__(
        self,
        repair: LogRepair,
        own: Mapping[int, QueueReference | None],
        suspects: frozenset[int] = frozenset(),
        moved: Collection[int] = (),
        taken: Collection[Place] = (),
    ) -> None:
        self.repair, self.own, self.suspects, self.moved, self.taken = repair, own, suspects, moved, taken

    def steps(self) -> Iterator[Step]:
        """Yield what to do, by offset."""
        damage = self.repair.damage
        moved = {**self._strayed(), **self._moved(), **self._flagged()}
        contradicted = {*damage.missing.retagged.tolist(), *self.suspects}
        contradicted = contradicted if len(contradicted) <= _MOST_CONTRADICTED else set()
        for physical in sorted({*damage.records, *moved, *contradicted}):
            yield from self._record(physical, damage.records.get(physical, []), moved.get(physical))

    def _strayed(self) -> dict[int, QueueReference]:
        """Return records that the ones around prove to belong elsewhere in a queue, where no unit says otherwise."""
        found = {
            b.before: QueueReference(b.topic, b.queue_id, b.expected, b.before, source=SOURCE)
            for b in self._in_whole_log(self.repair.damage.order.overshot[:_MOST_MOVED])
        }
        found |= self.repair.damage.strayed
        return {at: due for at, due in found.items() if leads_to(self.repair.store, due.place) in (None, at)}

    def _in_whole_log(self, breaks: Iterable[Break]) -> Iterator[Break]:
        """Yield those between whose two records the log has nothing but messages of clients and blank records; no part
        of it is read twice.
        """
        at = lacking = -1
        for one in sorted(breaks, key=lambda one: one.after):
            at = max(at, one.after)
            while at < one.before and lacking < one.after:
                end = self._end_of_message(at)
                at, lacking = (end, lacking) if end is not None else (at, at)
            if not one.after <= lacking < one.before:
                yield one

    def _end_of_message(self, physical: int) -> int | None:
        """Return where a message of a client, or a blank record, ends; None where something else is."""
        log = self.repair.log
        raw, file = log.record(physical), log.file_of(physical)
        if raw is not None:
            return physical + len(raw) if not is_marked(decode_record(raw)[0]) else None
        is_blank = file is not None and magic_of(log.read(physical, HEAD_SEEN)) == Magic.BLANK
        return file.base + file.size if is_blank and file is not None else None

    def _moved(self) -> dict[int, QueueReference]:
        """Return records that the others of their queue do not bear out, and for which their unit says another
        place.
        """
        found = {}
        for physical in sorted(self.repair.damage.doubtful)[:_MOST_CONTRADICTED]:
            raw, fields = self.repair.log.record(physical), self.repair.log.fields(physical)
            own = self._own_claim(physical, raw) if raw is not None else None
            if own is None or fields is None:
                continue
            if own.place != place_of(fields) or own.queue_offset != fields["queue_offset"]:
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
        damage, place, stated = self.repair.damage, own[0].place, place_of(decode_record(raw)[0])
        if place == stated:
            return own[0]
        is_due = own[0].queue_offset == 0 or (place in damage.beside and not self._is_beside_stand_ins(place))
        is_due &= place not in self.taken
        proves = physical in damage.doubtful and is_due and (not own[0].batch or own[0].queue_offset == stated[2])
        return own[0] if proves else None

    def _is_beside_stand_ins(self, place: Place) -> bool:
        """Whether only stand-ins are beside a place in a queue: they prove no more than units, from which they come."""
        topic, queue_id, offset = place
        led = (leads_to(self.repair.store, (topic, queue_id, near)) for near in (offset - 1, offset + 1))
        found = [fields for at in led if at is not None and (fields := self.repair.log.fields(at)) is not None]
        return bool(found) and all(map(is_marked, found))

    def _record(self, physical: int, findings: list[Finding], moved: QueueReference | None) -> Iterator[Step]:
        raw, file = self.repair.log.record(physical), self.repair.log.file_of(physical)
        if raw is None or file is None:
            return
        if physical in self.moved:
            yield from (left(f, "it has only now come home: repair once more") for f in findings)
            return
        claim = self.own.get(physical) or self._own_claim(physical, raw)
        if claim is None or (moved is not None and moved.source == SOURCE):
            claim = moved or claim
        first = findings[0] if findings else None
        if first is not None and first.kind is LOG_PHYSICAL_OFFSET and physical not in self.own:
            yield left(first, "the record belongs elsewhere, and DLedger keeps its entries where they are")
            return
        kind = first.kind.id if first else QUEUE_UNIT_MISMATCH.id
        healed = heal(raw, physical, claim) if self.repair.heals(physical) else None
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
        return Mended(with_store_time(raw, time), f"set the store time to {instant(time)}", why, is_exact=False)

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
        kept = f"accept the body at {physical} as it is: new CRC"
        replaced = f"replace the body of the record at {physical} by a placeholder"
        accepts = (bad.kind.id, bad.file, replaced) in self.repair.accepted
        if accepts or self.repair.body_damage is BodyDamage.ACCEPT:
            right = (crc32(decode_record(raw)[0]["body"]) & MASK).to_bytes(4, "big")
            record: bytes | None = raw[: CRC_SPAN.start] + right + raw[CRC_SPAN.stop :]
            what, instead = kept, ""
        else:
            record, what, instead = _bodiless(physical, raw), replaced, kept
        if record is None:
            return left(bad, why)
        edits = self.repair.edits(physical, raw, record)
        return Step(bad.kind.id, bad.file, what, why, edits, loses=1, instead=instead)


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
        base, count = inner_batch(dict(split_properties(properties)), fields["queue_offset"])
        topic = fields["topic"].decode("utf-8", "surrogateescape")
        return placeholder(
            QueueReference(topic, fields["queue_id"], base, physical, len(raw), batch=count), len(raw), setting
        )
    return bodiless(fields, len(raw), properties, setting)
