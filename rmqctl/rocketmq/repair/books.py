"""What the judge of plans asks of a RocketMQ log: its whole records wherever they lie, and what proves a mended one.

A record is whole where its lengths add up and its body has the CRC that it states. It is at home where the file says
what the record says: at its PHYSICALOFFSET. Nothing here asks those who make plans; queues, findings of `verify` and
the replay of a start are witnesses, and only for bytes that no CRC covers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from operator import itemgetter
from typing import Any

import numpy as np

from formats.rocketmq.message import TRANSACTION, decode_record
from formats.rocketmq.properties import NAME_END, PAIR_END, split_properties
from formats.rocketmq.property_crc import SIZE, property_crc, stored_property_crc
from rmqctl.files.local import ByteSource
from rmqctl.files.tree import Tree
from rmqctl.findings import Finding
from rmqctl.repair.books import Books, Stretches, WholeRecord, balance, outermost
from rmqctl.repair.crc_correction import LONGEST_BURST, span_of
from rmqctl.repair.edits import Plan
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.findings.log import LOG_STALE_TAIL
from rmqctl.rocketmq.index import index_entries
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.measure import is_whole_record, records_anywhere
from rmqctl.rocketmq.log.record import (
    CRC_SPAN,
    FLAGS_SPAN,
    PHYSICAL_AT,
    QUEUE_OFFSET_AT,
    LogReader,
    body_size_of,
    flags_of,
    head_offset,
    head_size,
    is_inner_batch,
    magic_of,
    names_place,
    physical_of,
    record_name,
    total_size_of,
    variant_of,
)
from rmqctl.rocketmq.log.stand_ins import is_filler, is_marked
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.recovery.plan import overlaid
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.queue_references import leads_to, place_of, references_into, stands_for
from rmqctl.rocketmq.repair.served import hidden, indexed
from rmqctl.rocketmq.store.files import COMMIT_LOG, StoreFiles, is_offset
from rmqctl.text import number_of


class LogLedger:
    """The records of a store before a plan and after it.

    Args:
        before, after: the store on both sides.
        found: errors and warnings of `verify` before.
        replicas: other stores of the group that bytes may come from.
        start: of a broker of the store's release on the result; None: no start is held against the books.
        accepts: how many bodies that nothing heals are kept under a new CRC, as was asked for; None: any number.

    Attributes:
        accepted: messages that were.
    """

    def __init__(
        self,
        before: StoreFiles,
        after: StoreFiles,
        found: Iterable[Finding] = (),
        *,
        replicas: Sequence[StoreFiles] = (),
        start: Recovery | None = None,
        accepts: int | None = 0,
    ) -> None:
        self.stores, self._before = {id(before.tree): before, id(after.tree): after}, before.tree
        self.replicas, self._start, self.accepts, self.accepted = replicas, start, accepts, 0
        found = list(found)
        self._suspects = {f.physical_offset for f in found if f.physical_offset is not None}
        self._stale = [(f.file, f.offset) for f in found if f.kind is LOG_STALE_TAIL]
        self._logs: dict[int, LogReader] = {}
        self._torn: dict[tuple[int, str], tuple[Stretches | None, list[int]]] = {}
        self._without_body = set[bytes]()

    # --- records ------------------------------------------------------------------------------------------

    def files(self, tree: Tree) -> Iterable[str]:
        store = self.stores[id(tree)]
        yield from (file.name for file in store.log_files)
        yield from (entry.path for entry in store.log_strays if not entry.is_directory)

    def whole(self, tree: Tree, file: str, stretches: Stretches | None) -> Iterator[WholeRecord]:
        name, source = file.rpartition("/")[2], self._open(tree, file)
        if source is None:
            return
        base, torn, end = int(name) if is_offset(name) else -1, list[int](), 0
        self._torn[id(tree), file] = stretches, torn
        with closing(source):
            for found in records_anywhere(source, base, stretches):
                if not found.is_whole:
                    stated = physical_of(found.raw) if len(found.raw) >= PHYSICAL_AT + 8 else 0
                    if found.at >= end and stated in (base + found.at, 0) and _begins(stretches, found.at):
                        torn.append(found.at)
                    continue
                record = _record(found.raw, file, found.at, base)
                end = max(end, record.end)
                if record.is_at_home or body_size_of(found.raw, _variant(found.raw)):
                    yield record
                elif tree is self._before:  # lengths alone prove no place; but these bytes may go where they say
                    self._without_body.add(record.identity)

    def at_home(self, tree: Tree, record: WholeRecord) -> bool:
        return any(_digest(raw) == record.identity for raw in self._at(self.stores[id(tree)], record.home, record.size))

    def garbage(self, before: Tree, after: Tree, record: WholeRecord) -> str:
        if record.is_placeholder and self._is_covered(after, record):
            return "a placeholder, in whose place there is a record"
        if record.is_at_home and any(f == record.file and at <= record.position for f, at in self._stale):
            return "older than the end of the log: a broker has cut it off"
        twin, source = self._log(self.stores[id(after)]).record(record.home), self._open(before, record.file)
        if twin is not None and source is not None:
            with closing(source):
                own = source.read_at(record.position, record.size)
            if stands_for(self.stores[id(before)], twin, own):
                return "the message is at home, and no less of it; only bytes that no CRC covers differ"
        return ""

    def torn(self, tree: Tree, file: str, stretches: Stretches | None) -> Iterator[tuple[int, int]]:
        if self._torn.get((id(tree), file), (None, []))[0] is not stretches:
            for _ in self.whole(tree, file, stretches):  # notes what is torn on the way
                pass
        for at in self._torn.get((id(tree), file), (None, []))[1]:
            yield at, 1

    def outcomes(self, tree: Tree, files: Sequence[str]) -> Mapping[str, str]:
        return {}

    # --- what proves a record that was not there ----------------------------------------------------------

    def made(self, before: Tree, after: Tree, record: WholeRecord, origin: str) -> str:
        now = next((raw for raw in self._at(self.stores[id(after)], record.home, record.size)), b"")
        for replica in self.replicas:
            if any(raw == now for raw in self._at(replica, record.home, record.size)):
                return f"{replica.root} has it"
        if record.identity in self._without_body:
            return "the same bytes lay elsewhere, and say that they belong here"
        source = self._open(before, origin) if origin else None
        if source is None or not now:
            return ""
        with closing(source):
            if _is_cut_off(source, now):
                return "its body and its lengths stand where its file ends"
            was = source.read_at(record.position, record.size)
        at = record.position
        whole = (r.size for r in self.whole(before, origin, [(at, at + 1)]) if r.position == at)
        if len(was) != len(now) or (total_size_of(was) != len(now) and next(whole, len(now)) != len(now)):
            return ""  # a whole record has the length that it says
        return self._own_proof(was, now, record.home, self.stores[id(before)])

    def _own_proof(self, was: bytes, now: bytes, home: int, before: StoreFiles) -> str:
        """What the bytes that are left of a damaged record prove of the mended one, "" where they do not."""
        wrong, body = _wrong_claims(was, now), _body_span(now)
        proof = _body_proof(was, now)
        may_accept = self.accepts is None or self.accepted < self.accepts
        if not proof and may_accept and was[body] == now[body]:
            self.accepted += 1
            proof = "its body was to be kept as it is"
        if not proof or (wrong and body.start == body.stop):
            return ""
        if "PHYSICALOFFSET" in wrong and len(wrong) > 1 and names_place(physical_of(was)):
            return ""  # the body is that of another place, and its CRC proves it there
        if not is_whole_record(was):
            return proof if not (wrong and self._had_unit(was, now, home, before)) else ""
        return proof if self._is_wrong(was, now, home, wrong, before) else ""

    def _had_unit(self, was: bytes, now: bytes, home: int, before: StoreFiles) -> bool:
        """Whether a unit leads to a damaged record from the place that it says, and the mended one says another."""
        said = place_of(decode_record(_with_claims(now, was, now))[0])
        return said != place_of(decode_record(now)[0]) and leads_to(before, said) == home

    def _is_wrong(self, was: bytes, now: bytes, home: int, wrong: Sequence[str], before: StoreFiles) -> bool:
        """Whether something is the matter with a whole record, beside what its CRC proves."""
        claimed = _with_claims(was, now, now)
        if len(wrong) > 1 or (claimed != now and not self._may_change(claimed, now, home)):
            return False
        is_borne_out = bool(wrong) and self._is_borne_out(was, home, before)
        if wrong == ["PHYSICALOFFSET"]:
            return is_borne_out or self._is_impossible(was, before)
        return not wrong or not (is_borne_out or self._is_contradicted(now, home, before))

    def _is_borne_out(self, was: bytes, home: int, before: StoreFiles) -> bool:
        """Whether a unit leads to a record from the place in a queue that it names: nothing is wrong with that."""
        fields = decode_record(was)[0]
        topic = fields["topic"].decode("utf-8", "surrogateescape")
        place = topic, fields["queue_id"], fields["queue_offset"]
        claims = references_into(before, [(home, home + 1)]).at(home)
        return any(claim.place == place and claim.size == len(was) for claim in claims)

    def _is_contradicted(self, now: bytes, home: int, before: StoreFiles) -> bool:
        """Whether the unit at the place in a queue that a record names leads elsewhere."""
        return leads_to(before, place_of(decode_record(now)[0])) not in (None, home)

    def _is_impossible(self, was: bytes, before: StoreFiles) -> bool:
        """Whether a record cannot lie where it says: after the end of the log, or where other sound records lie."""
        stated, log = physical_of(was), self._log(before)
        file = log.file_of(stated)
        if file is None:
            return not 0 <= stated < log.max_offset
        at = stated - file.base
        found = self.whole(before.tree, file.name, [(at, at + 1)])
        return any(r.is_at_home and r.position <= at < r.end and r.identity != _digest(was) for r in found)

    def _may_change(self, was: bytes, now: bytes, home: int) -> bool:
        """Whether bytes that no CRC covers may change as they do: the CRC of the whole record says so, or they are of a
        kind that shows by itself that it is wrong, and `verify` has found something wrong with the record.
        """
        stored = stored_property_crc(now)
        is_sealed = stored is not None and stored == property_crc(now)
        if is_sealed and stored_property_crc(was) != property_crc(was) and _is_burst(was, now):
            return True
        is_queued = flags_of(was) & TRANSACTION in UNQUEUED and flags_of(now) & TRANSACTION not in UNQUEUED
        spans = [FLAGS_SPAN] if is_queued else []
        if home in self._suspects:
            spans = [FLAGS_SPAN, *_shown_wrong(was, now)]
        changed = bytearray(was)
        for span in [*spans, slice(len(now) - SIZE, len(now))] if is_sealed else spans:
            changed[span] = now[span]
        return changed == now

    # --- a start on the result ----------------------------------------------------------------------------

    def start(self, before: Tree, after: Tree) -> Sequence[str]:
        found = self._start
        if found is None:
            return []
        release = found.release
        if found.is_harmless and not found.index_deleted:
            return []
        earlier = recover(self.stores[id(before)], release)
        if earlier.error is not None:  # whatever comes of it, without the plan there is no start at all
            return []
        if found.error is not None:
            return [f"a broker of {release} starts on the store as it is, and not on the result: {found.error}"]
        said = list(_cut_more(earlier, found))
        emptied = sorted(set(found.emptied) - set(earlier.emptied))
        said += [f"a start of {release} would empty the database {name}" for name in emptied]
        if found.index_deleted:
            kept, _ = _index_after(self.stores[id(before)], earlier)
            made = [name for name in found.index_deleted if before.stat(name) is None]
            kept = np.union1d(kept, indexed(self.stores[id(after)], made))
            left, gone = _index_after(self.stores[id(after)], found)
            log = self._log(self.stores[id(after)])
            taken = np.intersect1d(kept, np.setdiff1d(gone, left))
            if hidden := sum(log.head(int(at)) is not None for at in taken):
                said.append(f"a start of {release} would delete index files with the keys of {hidden:,} messages")
        if (count := found.undispatched.messages - earlier.undispatched.messages) > 0:
            said.append(f"a start of {release} would keep {number_of(count, 'message')} from consumers")
        return said

    # --- bytes --------------------------------------------------------------------------------------------

    def knows(self, file: str) -> bool:
        """Whether a file lies in a directory of the log before."""
        source = self._open(self._before, file)
        if source is not None:
            source.close()
        return source is not None

    def _open(self, tree: Tree, file: str) -> ByteSource | None:
        """Return a file in a directory of the log; None for every other, and for one that is not there."""
        store = self.stores[id(tree)]
        for name, log in store.log_trees:
            if file.startswith(f"{name}/"):
                inner = file[len(name) + 1 :]
                entry = log.stat(inner)
                return log.open(inner) if entry is not None and not entry.is_directory else None
        entry = tree.stat(file) if file.startswith(f"{COMMIT_LOG}/") else None
        return tree.open(file) if entry is not None and not entry.is_directory else None

    def _at(self, store: StoreFiles, home: int, size: int) -> Iterator[bytes]:
        """Yield the bytes at a place of the log, of every file whose name claims it."""
        log = self._log(store)
        for number, file in enumerate(log.files):
            if file.base <= home < file.base + file.size:
                yield log.read_from(number, home, size)

    def _log(self, store: StoreFiles) -> LogReader:
        log = self._logs.get(id(store))
        if log is None:
            log = self._logs[id(store)] = LogReader(store.log_files)
        return log

    def _is_covered(self, tree: Tree, record: WholeRecord) -> bool:
        """Whether whole records, or the end of the log, are where a placeholder was."""
        found = self.whole(tree, record.file, [(record.position, record.end)])
        return any(other.position <= record.position < other.end for other in found)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()


def _cut_more(earlier: Recovery, found: Recovery) -> Iterator[str]:
    """What a start, or the one after it, cuts that it would not have cut without a plan."""
    known = {message.physical for message in earlier.lost}
    if lost := [message for message in found.lost if message.physical not in known]:
        cut = number_of(len(lost), "message")
        yield f"a start of {found.release} would cut {cut}, the first at {lost[0].physical}"
    known |= {message.physical for message in (earlier.second.lost if earlier.second is not None else ())}
    later = found.second.lost if found.second is not None else ()
    if count := sum(message.physical not in known for message in later):
        yield f"a second start of {found.release} would cut {number_of(count, 'message')}"


def _index_after(store: StoreFiles, start: Recovery) -> tuple[Ints, Ints]:
    """Return the physical offsets of messages that the index has after a start, and of those that it has no more, both
    ascending.

    What the start dispatches again gets its entries again.
    """
    begin = next((file.base for file in start.log_files if file.name == start.start_file), 0)
    deleted = indexed(store, start.index_deleted)
    stays = indexed(store, [entry.path for entry in index_entries(store) if entry.path not in start.index_deleted])
    return np.union1d(stays, deleted[deleted >= begin]), deleted[deleted < begin]


def books_of(
    store: StoreFiles,
    plan: Plan,
    found: Iterable[Finding] = (),
    *,
    whole_before: int | None = None,
    replicas: Sequence[StoreFiles] = (),
    start: Recovery | None = None,
    accepts: int | None = 0,
    is_start: bool = False,
) -> Books:
    """Hold a plan for a store to its books.

    Args:
        is_start: the plan does what the start of a broker does, which deletes index files and takes units away.
        found, replicas, start, accepts: of :class:`LogLedger`.
        whole_before: whole records of the log, where they have been counted.
    """
    after = overlaid(store, plan.edits)
    ledger = LogLedger(store, after, found, replicas=replicas, start=start, accepts=accepts)
    with closing(ledger):
        books = balance(plan, store.tree, ledger, whole_before=whole_before, after=after.tree)
    books.healed -= ledger.accepted
    books.destroyed += ledger.accepted
    if not is_start:
        books.problems += hidden(store, after, plan)
    return books


def whole_records(store: StoreFiles, file: str, stretches: Stretches | None) -> int | None:
    """Count the whole records of a file of the log, or beside it, that have a byte in some parts of it.

    None for every other file, and for one that is not there.
    """
    ledger = LogLedger(store, store)
    with closing(ledger):
        return None if not ledger.knows(file) else sum(1 for _ in outermost(ledger.whole(store.tree, file, stretches)))


def names_in(store: StoreFiles, file: str, stretches: Stretches | None = None) -> tuple[str, ...]:
    """Return the names of whole records of a file of the log, or beside it, that are nowhere at home but perhaps here:
    what is given up with it.

    Args:
        stretches: only those that overlap these parts.
    """
    ledger = LogLedger(store, store)
    with closing(ledger):
        found = ledger.whole(store.tree, file, stretches)
        return tuple(r.name for r in found if r.is_at_home or not ledger.at_home(store.tree, r))


# --- one record ---------------------------------------------------------------------------------------


def _record(raw: bytes, file: str, at: int, base: int) -> WholeRecord:
    fields = decode_record(raw)[0]
    home, topic = fields["physical_offset"], fields["topic"].decode("utf-8", "backslashreplace")
    count = _messages(fields)
    is_queued = fields["sys_flag"] & TRANSACTION not in UNQUEUED
    return WholeRecord(
        _digest(raw), record_name(fields), file, at, len(raw), home, count,
        is_at_home=base >= 0 and home == base + at, is_placeholder=is_marked(fields),
        queue=f"{topic}/{fields['queue_id']}" if is_queued else "", offset=fields["queue_offset"],
        span=count if is_queued else 0, open=len(fields["properties"]),
    )  # fmt: skip


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


def _messages(fields: Mapping[str, Any]) -> int:
    """Messages that a record has, or stands for; a filler stands for none."""
    if is_filler(fields):
        return 0
    if not is_inner_batch(fields["sys_flag"]):
        return 1
    number = dict(split_properties(fields["properties"])).get(b"INNER_NUM", b"")
    return int(number) if number.isdigit() else 1


def _variant(raw: bytes) -> int:
    variant = variant_of(magic_of(raw), flags_of(raw))
    assert variant is not None, "a whole record has the magic of a message"
    return variant


def _body_span(raw: bytes) -> slice:
    variant = _variant(raw)
    return slice(head_size(variant), head_size(variant) + body_size_of(raw, variant))


def _begins(stretches: Stretches | None, at: int) -> bool:
    if stretches is None:
        return True
    number = bisect_right(stretches, at, key=itemgetter(0))
    return number > 0 and at < stretches[number - 1][1]


def _body_proof(was: bytes, now: bytes) -> str:
    """What proves that a body is the one that was damaged: one of both, body and CRC, is as it was, but for a burst."""
    body = _body_span(now)
    if was[CRC_SPAN] == now[CRC_SPAN]:
        if was[body] == now[body]:
            return "the CRC of the body fits"
        return "a burst in the body" if _is_burst(was[body], now[body]) else ""
    return "a burst in the CRC" if was[body] == now[body] and _is_burst(was[CRC_SPAN], now[CRC_SPAN]) else ""


def _is_burst(was: bytes, now: bytes) -> bool:
    pattern = int.from_bytes(was, "big") ^ int.from_bytes(now, "big")
    return span_of(pattern.to_bytes(len(was), "big")) <= LONGEST_BURST


def _shown_wrong(was: bytes, now: bytes) -> Iterator[slice]:
    """Yield parts of a whole record that show by themselves that they are wrong, where they are put right: store time,
    ports of more than 16 bits, and zeros in properties, for which separators stand.
    """
    variant = _variant(now)
    time = head_offset("store_timestamp", variant)
    yield slice(time, time + 8)
    for at in (head_offset(name, variant) for name in ("born_port", "store_port")):
        if not any(now[at : at + 2]):
            yield slice(at, at + 2)
    at = len(now) - len(decode_record(now)[0]["properties"])
    for piece in was[at:].split(PAIR_END):
        after = now[at : at + len(piece)]
        changed = {new for old, new in zip(piece, after, strict=True) if old != new}
        if b"\0" in piece and changed <= {*NAME_END, *PAIR_END}:
            yield slice(at, at + len(piece))
        at += len(piece) + 1


def _is_cut_off(source: ByteSource, now: bytes) -> bool:
    """Whether a file ends in the properties of a record, wherever that belongs: what is gone of them became nothing."""
    size, properties = source.size(), decode_record(now)[0]["properties"]
    rest, head = source.read_at(max(size - len(now), 0), min(size, len(now))), len(now) - len(properties)
    at = rest.find(now[:head])
    if at < 0 or at + len(now) <= len(rest):
        return False
    was = rest[at + head :].ljust(len(properties), b"\0")
    return {new for old, new in zip(was, properties, strict=True) if old != new} <= {0, *NAME_END, *PAIR_END}


def _with_claims(raw: bytes, other: bytes, layout: bytes) -> bytes:
    """Return a record with what another says of its place, where ``layout`` has it."""
    record = bytearray(raw)
    for span in _claims(layout).values():
        record[span] = other[span]
    return bytes(record)


def _wrong_claims(was: bytes, now: bytes) -> list[str]:
    """Return what damaged bytes say otherwise of their place than the mended record."""
    return [name for name, span in _claims(now).items() if was[span] != now[span]]


def _claims(now: bytes) -> dict[str, slice]:
    """Where a record says what its place is."""
    body = _body_span(now)
    fields = decode_record(now)[0]
    topic_at = body.stop + (2 if _variant(now) >> 2 else 1)
    return {
        "QUEUEID": slice(head_offset("queue_id", 0), head_offset("queue_id", 0) + 4),
        "QUEUEOFFSET": slice(QUEUE_OFFSET_AT, QUEUE_OFFSET_AT + 8),
        "PHYSICALOFFSET": slice(PHYSICAL_AT, PHYSICAL_AT + 8),
        "TOPIC": slice(topic_at, topic_at + len(fields["topic"])),
    }
