"""Ranges of the log that hold no record: healed, taken from a replica, bridged, or cut where nothing sound follows.

A bridge fills a range exactly with records that every release walks over (spec 6.2, 2.9). It also takes up messages
that are known to be missing, but not where they lay: their queue says between which records.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from formats.layout import plan_of
from formats.rocketmq.dledger import DLedgerEntry
from formats.rocketmq.message import Magic, decode_record
from formats.rocketmq.property_crc import SIZE
from rmqctl.notices import about_messages
from rmqctl.repair.edits import Step
from rmqctl.rocketmq.log.measure import is_whole_record
from rmqctl.rocketmq.log.record import MAGIC_AT, SMALLEST, total_size_of
from rmqctl.rocketmq.repair.damage import LogGap
from rmqctl.rocketmq.repair.heal import Healed, heal
from rmqctl.rocketmq.repair.log_repair import LogRepair, left
from rmqctl.rocketmq.repair.placeholder import Setting, blank, filler, placeholder
from rmqctl.rocketmq.repair.queue_references import LIGHT_QUEUE, Place, QueueReference, place_of
from rmqctl.text import number_of

_ENTRY = plan_of(DLedgerEntry)


class Unplaced:
    """Each message waits for free room after its predecessor in the queue and in front of its successor.

    A placeholder anywhere else would be dispatched out of order, and brokers then shift the queue.

    Args:
        messages: in the order of each queue.
        known: messages whose places in the log are known, at least those of the same queues.
    """

    def __init__(self, messages: Sequence[QueueReference], known: Iterable[QueueReference]) -> None:
        places = _places(messages, known)
        bounds = [(*_bounds(m, places[m.topic, m.queue_id]), m) for m in messages]
        self._waiting = deque(sorted(bounds, key=lambda bound: bound[0]))
        self._ready: deque[tuple[int, QueueReference]] = deque()
        self._late: list[QueueReference] = []

    def __len__(self) -> int:
        """How many may still be placed here or later."""
        return len(self._waiting) + len(self._ready)

    def first(self, begin: int, end: int) -> QueueReference | None:
        """Return the next message whose place may be the free range; None where no message fits there."""
        while self._waiting and self._waiting[0][0] < begin:
            _, after, message = self._waiting.popleft()
            self._ready.append((after, message))
        while self._ready and self._ready[0][0] < end:
            self._late.append(self._ready.popleft()[1])
        return self._ready[0][1] if self._ready else None

    @property
    def ready(self) -> int:
        """How many wait for room where :meth:`first` looked last."""
        return len(self._ready)

    def take(self) -> QueueReference:
        """Return the message that :meth:`first` gave: it has a place now."""
        return self._ready.popleft()[1]

    def unplaced(self) -> list[QueueReference]:
        """Those without a place."""
        return [*self._late, *(m for _, m in self._ready), *(m for _, _, m in self._waiting)]


Places = dict[tuple[str, int], list[tuple[int, int]]]


def _places(messages: Sequence[QueueReference], known: Iterable[QueueReference]) -> Places:
    """Queue offsets and physical offsets of what is known of the queues of the messages, ascending."""
    queues = {(m.topic, m.queue_id) for m in messages}
    found: Places = defaultdict(list)
    for claim in known:
        if (claim.topic, claim.queue_id) in queues:
            found[claim.topic, claim.queue_id].append((claim.queue_offset, claim.physical))
    for places in found.values():
        places.sort()
    return found


def _bounds(message: QueueReference, places: list[tuple[int, int]]) -> tuple[int, int]:
    """Where the known records in front of a message and after it begin."""
    at = bisect_left(places, (message.queue_offset, -1))
    return places[at - 1][1] if at else -1, places[at][1] if at < len(places) else sys.maxsize


# --- a destroyed range of the log filled exactly with records that every re -------------------------


LARGEST_FILLER = 1 << 20
_LEAST_TEXT = 24
"""Bytes of the shortest property that marks a placeholder, with some to spare."""
_TEXT = 160
"""Bytes for all that a placeholder says where there is room, properties of the broker's own topics included."""
Light = Callable[[int], Sequence[QueueReference]]


@dataclass(slots=True)
class Bridge:
    """The bytes for a range, and what they stand for.

    Attributes:
        data: as many bytes as the range has; fewer where the rest is after the blank record that ends the file.
        placed: the claims that have a placeholder now, with the place and size they have now.
        unplaced: claims for which there was no room.
        ends_file: the range ends with the blank record of its file.
    """

    data: bytes
    placed: list[QueueReference] = field(default_factory=list)
    unplaced: list[QueueReference] = field(default_factory=list)
    ends_file: bool = False


def bridge(
    begin: int,
    end: int,
    claims: Sequence[QueueReference],
    unplaced: Sequence[QueueReference],
    setting: Setting,
    *,
    at_end: bool,
    light: Light,
    known: Sequence[QueueReference] = (),
) -> Bridge | None:
    """Fill ``[begin, end)`` of the log; None if it is too small for any record.

    Args:
        claims: records known by place, ascending, inside the range, none overlapping.
        unplaced: messages known to be missing here, but not where.
        at_end: the range reaches to the end of its file, where a blank record may stand.
        light: further places of the record at an offset in light queues.
        known: more records whose places in log and queue are known; an unplaced one goes where its queue allows.
    """
    spans = _spans(begin, end, claims, at_end=at_end)
    waiting, made = Unplaced(unplaced, [*claims, *known] if unplaced else ()), Bridge(b"")
    pieces: list[bytes] = []
    for at, stop, claim in spans:
        if claim is not None:
            record = placeholder(replace(claim, physical=at), stop - at, setting, light(claim.physical))
            if record is None:
                made.unplaced.append(claim)
                record = filler(at, stop - at, setting)
            else:
                made.placed.append(replace(claim, physical=at, size=stop - at))
        else:
            record = _free(at, stop, waiting, made, setting, is_end=at_end and stop == end)
        if record is None:
            return None
        pieces.append(record)
    made.data, made.unplaced = b"".join(pieces), made.unplaced + waiting.unplaced()
    return made


def _spans(
    begin: int, end: int, claims: Sequence[QueueReference], *, at_end: bool
) -> list[tuple[int, int, QueueReference | None]]:
    """Return the range divided: claimed records where they are, free stretches between; those too small go to a
    neighbour.
    """
    spans: list[tuple[int, int, QueueReference | None]] = []
    at = begin
    for claim in claims:
        if 0 < claim.physical - at < SMALLEST:
            if spans:  # the placeholder in front takes the room
                spans[-1] = spans[-1][0], claim.physical, spans[-1][2]
                at = claim.physical
        elif claim.physical > at:
            spans.append((at, claim.physical, None))
            at = claim.physical
        spans.append((at, claim.end, claim))
        at = claim.end
    left = end - at
    if left and (left >= SMALLEST or (at_end and left >= len(blank(0))) or not spans):
        spans.append((at, end, None))
    elif left:
        spans[-1] = spans[-1][0], end, spans[-1][2]
    return spans


def _free(at: int, end: int, unplaced: Unplaced, made: Bridge, setting: Setting, *, is_end: bool) -> bytes | None:
    """Return records for a stretch that nothing points to: placeholders of missing messages, then filler or blank."""
    pieces: list[bytes] = []
    while (claim := unplaced.first(at, end)) is not None:
        size = _size_of(claim, end - at, unplaced.ready, setting, is_end=is_end, is_first=not pieces)
        record = placeholder(replace(claim, physical=at), size, setting) if size else None
        if record is None:
            break
        made.placed.append(replace(unplaced.take(), physical=at, size=size))
        pieces.append(record)
        at += size
    if at == end:
        return b"".join(pieces)
    if is_end:
        made.ends_file = True
        return b"".join([*pieces, blank(end - at)])
    while at < end:
        size = end - at if end - at < LARGEST_FILLER + SMALLEST else LARGEST_FILLER
        piece = filler(at, size, setting)
        if piece is None:
            return None
        pieces.append(piece)
        at += size
    return b"".join(pieces)


def _size_of(claim: QueueReference, room: int, count: int, setting: Setting, *, is_end: bool, is_first: bool) -> int:
    """Bytes for the next of ``count`` placeholders; 0 where there is no room.

    Enough for what it says, less where the room must do for many; the rest of the stretch where less could not be
    filled. Only where it is all that a stretch holds it may have no room for its mark: so small may a message be.
    """
    least = SMALLEST + len(claim.topic_bytes) + (22 * claim.batch if claim.batch else 0)
    marked = least + _LEAST_TEXT + SIZE * setting.property_crc
    if room < marked and not is_first:
        return 0
    wanted = least + _TEXT
    if room < count * wanted:
        wanted = max(room // count, marked)
    if is_end:
        return wanted if room >= wanted + 8 else 0
    if (count == 1 and room < LARGEST_FILLER) or room <= wanted + SMALLEST:
        return room
    return wanted


# --- ranges of the log that hold no record ----------------------------------------------------------


_MAGICS = tuple(int(m).to_bytes(4, "big", signed=True) for m in (Magic.MESSAGE_V1, Magic.MESSAGE_V2))


@dataclass(frozen=True, slots=True)
class GapPiece:
    """A part of a gap: a record's place, claimed or not."""

    begin: int
    end: int
    claim: QueueReference | None


class GapMender:
    """Decides for each gap, and for each record that it held, which way is taken.

    Args:
        own: physical offsets of records that lie in their place and say another.

    Attributes:
        taken: places in queues that healed records say: they are as good as any that was whole.
    """

    def __init__(self, repair: LogRepair, own: Iterable[int] = ()) -> None:
        self.repair, self.own = repair, own
        self.taken = set[Place]()
        self._placed: set[tuple[str, int, int]] = set()

    def steps(self, gap: LogGap) -> Iterator[Step]:
        """Yield what to do about one gap."""
        pieces = self._entries(gap) if gap.file.lead else self._pieces(gap)
        if gap.file.lead and (gap.is_tail or not pieces):
            yield left(
                gap.finding, "DLedger itself mends its last entries, and entry headers come from another member only"
            )
            return
        healed = {piece: self._healed(gap, piece) for piece in pieces}
        yield from (step for step in healed.values() if step is not None)
        last = max((i for i, piece in enumerate(pieces) if healed[piece]), default=-1)
        lost = [piece for i, piece in enumerate(pieces) if not healed[piece] and not (gap.is_tail and i > last)]
        for run in _runs(lost):
            yield from self._lost(gap, run)
        if gap.is_tail:
            cut_at = pieces[last].end if last >= 0 else gap.begin
            yield from self._cut(gap, cut_at, [p.claim for p in pieces[last + 1 :] if p.claim])

    def _pieces(self, gap: LogGap) -> list[GapPiece]:
        """Return the gap divided into the records that it held, as far as anything says it."""
        found: list[GapPiece] = []
        at = gap.begin
        for claim in self.repair.claims.inside(gap.begin, gap.limit):
            found += self._unclaimed(at, claim.physical)
            found.append(GapPiece(claim.physical, claim.end, claim))
            at = claim.end
        return found + self._unclaimed(at, gap.end)

    def _entries(self, gap: LogGap) -> list[GapPiece]:
        """Return the records of DLedger entries whose headers are sound; none if the headers do not lead through the
        gap.
        """
        found: list[GapPiece] = []
        at, lead = gap.begin, gap.file.lead
        while at < gap.end:
            header = self.repair.log.read(at, lead)
            entry = _ENTRY.unpack_from(header)[0] if len(header) == lead else {"size": 0, "position": -1}
            size, place = entry["size"], entry["position"]
            if place != at or not lead + SMALLEST <= size <= gap.end - at:
                return []
            own = [c for c in self.repair.claims.at(at + lead) if c.size == size - lead]
            found.append(GapPiece(at + lead, at + size, own[0] if own else None))
            at += size
        return found

    def _unclaimed(self, begin: int, end: int) -> list[GapPiece]:
        """Divide a stretch that no unit points to where a healed record ends."""
        found = []
        while begin < end:
            stated = total_size_of(self.repair.log.read(begin, MAGIC_AT))
            inner = SMALLEST <= stated < end - begin and self._heal(begin, stated, None) is not None
            stop = begin + stated if inner else end
            found.append(GapPiece(begin, stop, None))
            begin = stop
        return found

    def _heal(self, begin: int, size: int, claim: QueueReference | None) -> Healed | None:
        """Return what a record was; one that is whole as it lies here is another's."""
        raw = self.repair.log.read(begin, size)
        return heal(raw, begin, claim) if not is_whole_record(raw) else None

    def _healed(self, gap: LogGap, piece: GapPiece) -> Step | None:
        raw = self.repair.log.read(piece.begin, piece.end - piece.begin)
        for claim in (piece.claim, *self._only_missing(gap, piece)) if self.repair.heals(piece.begin) else ():
            healed = self._heal(piece.begin, len(raw), claim)
            if healed is not None:
                self.taken.add(place_of(decode_record(healed.record)[0]))
                edits = self.repair.edits(piece.begin, raw, healed.record)
                return Step(gap.finding.kind.id, gap.file.name, healed.what(piece.begin), healed.proof, edits)
        return None

    def _only_missing(self, gap: LogGap, piece: GapPiece) -> list[QueueReference]:
        """Return the one message that the queue offsets around a gap say is missing, if the gap is one record."""
        if piece.claim is not None or (piece.begin, piece.end) != (gap.begin, gap.end) or gap.file.lead:
            return []
        found = self._missing_in(gap.begin, gap.end, ())
        return found if len(found) == 1 else []

    def _lost(self, gap: LogGap, run: Sequence[GapPiece]) -> Iterator[Step]:
        """Fill a run of pieces that nothing heals: from a replica, else bridged."""
        begin, end = run[0].begin, run[-1].end
        restored = self.repair.restored(begin, end)
        if restored is not None:
            edits = self.repair.edits(begin, self.repair.log.read(begin, end - begin), restored.data)
            what = f"restore {number_of(end - begin, 'byte')} at {begin} from the replica"
            yield Step(gap.finding.kind.id, gap.file.name, what, restored.proof, edits)
            return
        claims = [piece.claim for piece in run if piece.claim]
        unplaced = self._missing_in(begin, end, claims)
        at_end = gap.ends_file and end == gap.end
        setting = replace(gap.setting, keeps_tags_code=self.repair.store.is_rocksdb)
        known = self.repair.claims.every() if unplaced else ()
        made = bridge(begin, end, claims, unplaced, setting, at_end=at_end, light=self._light, known=known)
        if made is None:
            yield left(gap.finding, f"{end - begin} bytes at {begin} are too few for any record")
            return
        self._placed |= {(c.topic, c.queue_id, c.queue_offset) for c in made.placed}
        yield self._bridged(gap, begin, end, made)

    def _missing_in(self, begin: int, end: int, claims: Sequence[QueueReference]) -> list[QueueReference]:
        """Missing messages of holes that span the range and that no claim of it accounts for."""
        known = {(c.topic, c.queue_id, c.queue_offset) for c in claims} | self._claimed
        taken = []
        for hole in self.repair.damage.holes:
            if hole.after < begin and hole.before >= end:
                for offset in range(hole.expected, hole.expected + min(hole.missing, (end - begin) // SMALLEST)):
                    key = hole.topic, hole.queue_id, offset
                    if key not in known and key not in self._placed:
                        taken.append(QueueReference(*key, physical=-1, source="hole in the queue offsets of the log"))
        return taken

    @cached_property
    def _claimed(self) -> set[tuple[str, int, int]]:
        """Places in queues of all messages whose place in a gap is known."""
        damage, claims = self.repair.damage, self.repair.claims
        inside = (claim for gap in damage.gaps for claim in claims.inside(gap.begin, gap.end))
        healed = (place_of(found) for at in self.own if (found := self.repair.log.fields(at)) is not None)
        return {*(c.place for c in inside), *healed}

    def _bridged(self, gap: LogGap, begin: int, end: int, made: Bridge) -> Step:
        raw = self.repair.log.read(begin, len(made.data))
        edits = self.repair.edits(begin, raw, made.data)
        if made.ends_file and not made.placed and len(made.data) == len(blank(0)):
            why = f"a later file has data, no queue unit points into the {end - begin} bytes that are left"
            return Step(gap.finding.kind.id, gap.file.name, f"restore the blank record at {begin}", why, edits)
        count = len(made.placed)
        what = f"bridge {number_of(end - begin, 'byte')} at {begin} with {number_of(count, 'placeholder')}"
        what += "" if made.placed else " (records that brokers walk over)"
        why = "nothing proves what the bytes were; every other record stays where it is"
        if made.placed:
            why += "; topic, queue and queue offset from " + "; ".join(_sources(made.placed))
        loses, about = max(count + len(made.unplaced), 1), _about(made.placed)
        return Step(gap.finding.kind.id, gap.file.name, what, why, edits, loses=loses, about=about)

    def _light(self, physical: int) -> list[QueueReference]:
        return [c for c in self.repair.claims.at(physical) if c.topic.startswith(LIGHT_QUEUE)]

    def _cut(self, gap: LogGap, at: int, claims: list[QueueReference]) -> Iterator[Step]:
        edits = tuple(self.repair.zeroed(gap.file, at - gap.file.base))
        if edits:
            what, why = f"end the log at {at}: zero what follows", f"nothing sound follows: {gap.finding.message}"
            is_message = self.repair.log.read(at + MAGIC_AT, 4) in _MAGICS  # torn, and dispatched to no queue yet
            yield Step(gap.finding.kind.id, gap.file.name, what, why, edits, loses=max(len(claims), int(is_message)))


def _runs(pieces: Sequence[GapPiece]) -> Iterator[list[GapPiece]]:
    """Pieces that follow each other without anything between."""
    run: list[GapPiece] = []
    for piece in pieces:
        if run and piece.begin != run[-1].end:
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _about(claims: Sequence[QueueReference]) -> str:
    """Return the queues and offsets of messages that placeholders stand for, as a notice names them; "" for none."""
    offsets = dict[tuple[str, int], list[int]]()
    for claim in claims:
        offsets.setdefault((claim.topic, claim.queue_id), []).append(claim.queue_offset)
    rows = [
        {"topic": topic, "queue_id": queue_id, "messages": len(own), "first_offset": min(own), "last_offset": max(own)}
        for (topic, queue_id), own in offsets.items()
    ]
    return about_messages(rows) if rows else ""


def _sources(claims: Sequence[QueueReference]) -> list[str]:
    """Where placeholders have their places from, the first few."""
    named = [c.source for c in claims[:3]]
    return [*named, f"and {len(claims) - 3} more"] if len(claims) > 3 else named
