"""Whole records that lie elsewhere than they say: which are at home all the same, and where the others go.

A record that is whole by structure and body CRC is believed over its place. One whose message is due where it lies has
a damaged PHYSICALOFFSET; every other one lies in a foreign place. It goes back where it says, if nothing sound is
there, and what it lay over is a destroyed range of the log like any other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from formats.rocketmq.message import TRANSACTION, Magic, decode_record
from rmqctl.files.local import BytesSource
from rmqctl.findings import Finding, FindingKind
from rmqctl.repair.edits import Create, Cut, Overwrite, Quarantine, Step
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.findings.log import (
    LOG_BODY_CRC,
    LOG_GAP,
    LOG_PROPERTIES_LOST,
    LOG_PROPERTY_CRC,
    LOG_QUEUE_OFFSET,
    LOG_STORE_TIME,
)
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.commitlog import log_file_at
from rmqctl.rocketmq.log.measure import lie_in, merged, whole_among, whole_records
from rmqctl.rocketmq.log.record import (
    HEAD_SEEN,
    SMALLEST,
    LogReader,
    is_same_message,
    magic_of,
    names_place,
    physical_of,
    record_name,
    shows_damage,
)
from rmqctl.rocketmq.repair.damage import SOURCE, Break, Key, LogDamage, LogGap, setting_of
from rmqctl.rocketmq.repair.log_repair import LogRepair
from rmqctl.rocketmq.repair.placeholder import Setting, blank
from rmqctl.rocketmq.repair.queue_references import (
    LIGHT_QUEUE,
    Place,
    QueueReference,
    QueueReferences,
    Range,
    has_tags_of,
    leads_to,
    messages_of,
    place_of,
    references_into,
    stands_for,
)
from rmqctl.rocketmq.store.files import OFFSET_DIGITS, StoreFile, StoreFiles
from rmqctl.text import number_of

_MOST = 256 << 20
"""Bytes of destroyed ranges that are searched."""
_MOST_FILES = 4
"""Files after the last one that records in other places may have been in."""
_NEAR = 1 << 18
"""Bytes between two gaps that a page of another log may have filled."""
_MAGICS = tuple(magic.to_bytes(4, "big", signed=True) for magic in (Magic.MESSAGE_V1, Magic.MESSAGE_V2))
_LONGEST_PROPERTIES = 1 << 15
_FEW_BITS = 2
"""Bits in which a PHYSICALOFFSET that was damaged differs from the right one, where little else proves that it was."""


@dataclass(frozen=True, slots=True)
class Displaced:
    """A whole record that lies at one place and says that it lies at another."""

    lies_at: int
    home: int
    raw: bytes

    @property
    def end(self) -> int:
        """Physical offset after it, at home."""
        return self.home + len(self.raw)

    @property
    def properties(self) -> bytes:
        """Those it has, which no CRC covers; zeros among them show that they are not all its own."""
        return bytes(decode_record(self.raw)[0]["properties"])


class Whereabouts:
    """Where records belong, by what they say themselves and what bears them out.

    Args:
        repair: of the log; the damage has the runs of misplaced records.
        aside: files that are no part of the log any more, from which records may come home.
        moved: physical offsets to which earlier steps have moved records.

    Attributes:
        homes: physical offsets to which :meth:`steps` moves records.
    """

    def __init__(self, repair: LogRepair, aside: Sequence[StoreFile] = (), moved: Collection[int] = ()) -> None:
        self.repair, self.damage, self.log = repair, repair.damage, repair.log
        self.claims, self.aside, self.moved = repair.claims, aside, sorted(moved)
        self.homes = set[int]()

    # --- records that the chain leads to --------------------------------------------------------------

    @cached_property
    def own(self) -> dict[int, QueueReference | None]:
        """Misplaced records of the chain that belong where they lie, with the unit that says so, by physical offset."""
        found = {}
        for run in self.damage.misplaced:
            for at, raw in self._records_of(run):
                is_own, claim = self._own(run, at, raw)
                if is_own:
                    found[at] = claim
        return found

    def _records_of(self, run: LogGap) -> Iterator[tuple[int, bytes]]:
        at = run.begin
        while at < run.end and (raw := self.log.record(at)) is not None:
            yield at, raw
            at += len(raw)

    def _own(self, run: LogGap, at: int, raw: bytes) -> tuple[bool, QueueReference | None]:
        """Whether a record belongs where it lies, and only says otherwise; with the unit that bears it out.

        Its own remaining fields must prove it: topic, queue and queue offset, of which one may be damaged, too, where
        the offset stated names no place; and its store time.
        """
        fields, stated = decode_record(raw)[0], physical_of(raw)
        if self.log.read(stated, len(raw)) == raw:
            return False, None  # a copy
        place, is_timely = place_of(fields), self._is_timely(fields["store_timestamp"], run, run.end)
        units = [c for c in self.claims.at(at) if not c.topic.startswith(LIGHT_QUEUE) and c.size in (0, len(raw))]
        is_near = not names_place(stated) or (stated ^ at).bit_count() <= _FEW_BITS
        is_claimed = any(c.place == place for c in self.claims.at(stated))
        if (is_claimed or not is_near) and self._is_free(stated, len(raw)) and not any(u.place == place for u in units):
            return False, None  # nothing sound is where it says
        for unit in units:
            if unit.place == place:
                return is_timely, unit
        if fields["sys_flag"] & TRANSACTION in UNQUEUED:
            return is_timely and not names_place(stated), None
        if units:
            near = [u for u in units if sum(a != b for a, b in zip(u.place, place, strict=True)) == 1]
            is_one = len(near) == 1 and is_timely and not names_place(stated)
            return is_one, near[0] if is_one else None
        is_near = is_near and self._shifts[stated - at] == 1  # many that moved alike are of another place
        is_due = is_timely and (self._is_missing(place, at) or (is_near and self._is_due(place, at)))
        return is_due, QueueReference(*place, at, len(raw), source=SOURCE) if is_due else None

    def _is_free(self, begin: int, size: int) -> bool:
        """Whether a place in the log holds only destroyed ranges and misplaced records."""
        at = bisect_right(self._ranges, begin, key=lambda found: found[0]) - 1
        return at >= 0 and begin + size <= self._ranges[at][1]

    @cached_property
    def _ranges(self) -> list[Range]:
        """Those, ascending; what touches is one."""
        return merged((gap.begin, gap.end) for gap in (*self.damage.gaps, *self.damage.misplaced))

    def _is_timely(self, time: int, around: LogGap, end: int) -> bool:
        """Whether a store time lies between those of the records in front of a range and after it; true where these are
        no bounds themselves.

        Args:
            end: physical offset after the range.
        """
        low = around.setting.store_timestamp if around.begin > self.log.min_offset else 0
        high = self._time_from(end)
        return not time or (high is not None and high < low) or low <= time <= (high or time)

    def _time_from(self, physical: int) -> int | None:
        """Return the store time of the record at an offset, or else of the first of a later file; None without one."""
        for at in (physical, *(file.base for file in self.log.files if file.base > physical)):
            time = self.log.store_timestamp(at)
            if time and at not in self._misplaced:
                return time
        return None

    @cached_property
    def _shifts(self) -> Counter[int]:
        """How many misplaced records say that they lie so many bytes away."""
        return Counter(physical_of(raw) - at for run in self.damage.misplaced for at, raw in self._records_of(run))

    @cached_property
    def _misplaced(self) -> frozenset[int]:
        return frozenset(at for run in self.damage.misplaced for at, _ in self._records_of(run))

    @cached_property
    def _holes(self) -> dict[Key, list[Break]]:
        """Places of each queue with queue offsets that no record carries."""
        found: dict[Key, list[Break]] = defaultdict(list)
        for hole in self.damage.order.holes:
            found[hole.topic, hole.queue_id].append(hole)
        return found

    def _is_missing(self, place: Place, physical: int) -> bool:
        """Whether two records of a queue leave room for a message between them, in the queue and in the log."""
        holes = self._holes.get(place[:2], ())
        return any(h.expected <= place[2] < h.offset and h.after < physical < h.before for h in holes)

    def _is_due(self, place: Place, physical: int) -> bool:
        """Whether the records in place of a queue lack this message, and lack it there."""
        key, offset = place[:2], place[2]
        run = self.damage.order.runs.get(key)
        if run is None or self._is_missing(place, physical):
            return run is not None
        if physical > run.last:
            return 0 <= offset - run.next <= self._room(run.last, physical)
        return physical < run.first and 0 < run.first_offset - offset <= 1 + self._room(physical, run.first)

    def _room(self, begin: int, end: int) -> int:
        """How many messages may have been destroyed between two records."""
        parts = (min(g.end, end) - max(g.begin, begin) for g in (*self.damage.gaps, *self.damage.misplaced))
        return sum(max(part, 0) for part in parts) // SMALLEST

    # --- the log without them ---------------------------------------------------------------------------

    def without_foreign(self) -> LogDamage:
        """Return the damage with all that lies in a foreign place as destroyed ranges; ranges that touch are one."""
        gaps = [replace(gap) for gap in self.damage.gaps]
        for run in self.damage.misplaced:
            gaps += self._foreign(run)
        gaps = _joined(gaps) if len(gaps) > len(self.damage.gaps) else gaps
        gaps = [part for gap in gaps for part in self._around_moved(self._over_blank(gap))]
        if gaps == self.damage.gaps:
            return self.damage
        last = gaps[-1]
        if last.end == self.damage.end and not last.file.lead:
            last.is_tail = True

        def is_kept(physical: int) -> bool:
            at = bisect_right(gaps, physical, key=lambda gap: gap.begin) - 1
            return at < 0 or physical >= gaps[at].end

        records = {at: found for at, found in self.damage.records.items() if at in self.own or is_kept(at)}
        physical = self.damage.missing.physical
        is_lost = lie_in(physical, ((gap.begin, gap.end) for gap in gaps)) & ~np.isin(physical, list(self.own))
        missing = self.damage.missing.where(~is_lost)
        return replace(self.damage, gaps=gaps, records=records, missing=missing)

    def _around_moved(self, gap: LogGap) -> Iterator[LogGap]:
        """Yield the parts of a range around the records that have come home into it: records of another place lie over
        them, through which the chain leads.
        """
        begin, setting = gap.begin, gap.setting
        first, last = bisect_left(self.moved, gap.begin), bisect_left(self.moved, gap.end)
        for home in self.moved[first:last] if not gap.is_tail else ():
            raw = self.log.record(home)
            if raw is not None and physical_of(raw) == home and begin <= home <= gap.end - len(raw):
                if begin < home:
                    yield replace(gap, begin=begin, end=home, ends_file=False, setting=setting)
                begin, setting = home + len(raw), setting_of(raw)
        if begin < gap.end or begin == gap.begin:
            yield replace(gap, begin=begin, setting=setting)

    def _over_blank(self, gap: LogGap) -> LogGap:
        """Return a range that reaches to the end of its file, or to the next record that lies where it says, where the
        blank record at its end is of another file: a unit leads over it, there is no room for a record in front of it,
        or such a record follows, and units say nothing.
        """
        file_end = self._after_blank(gap)
        if file_end == gap.end:
            return gap
        is_led = any(gap.begin <= unit.physical < gap.end < unit.end < file_end for unit in self.claims.every())
        is_small = gap.end - gap.begin < SMALLEST
        behind = whole_among(self.log.files, [(gap.end + len(blank(0)), file_end)])
        following = next((at for at, raw in behind if at == physical_of(raw) and at > gap.end), None)
        if following is not None and (is_led or is_small or not self.claims.over(gap.begin, file_end)):
            return replace(gap, end=following)
        return replace(gap, end=file_end, ends_file=True) if is_led or is_small else gap

    def _after_blank(self, gap: LogGap) -> int:
        """Return the end of the file where a blank record follows a range, and more of the log that; else its end."""
        file_end = gap.file.base + gap.file.size
        is_inner = not gap.file.lead and gap.end < file_end < self.damage.end
        is_blank = is_inner and magic_of(self.log.read(gap.end, HEAD_SEEN)) == Magic.BLANK
        return file_end if is_blank else gap.end

    def _foreign(self, run: LogGap) -> Iterator[LogGap]:
        """Parts of a run whose records do not belong where they lie."""
        if run.file.lead:
            return
        begin = at = run.begin
        for at, raw in self._records_of(run):
            if at in self.own:
                if begin < at:
                    yield replace(run, begin=begin, end=at)
                begin = at + len(raw)
        if begin < run.end:
            yield replace(run, begin=begin)

    # --- records that go home ---------------------------------------------------------------------------

    def steps(self, gaps: Iterable[LogGap]) -> list[Step]:
        """Return steps that put whole records back where they say they lie, into ranges that hold nothing sound; where
        files after the last one had some, steps that make these files: the next round fills them.

        Args:
            gaps: those ranges, misplaced records that do not belong where they lie included.
        """
        free = [gap for gap in gaps if not gap.file.lead]
        free = sorted([*free, *self._room_at_end(free)], key=lambda gap: gap.begin)
        sources = [(gap.begin, gap.limit) for gap in free]
        sources += [*self.damage.stale_ranges(), *self.damage.rooms, *self._bodies(), *self._properties()]
        if sum(end - begin for begin, end in sources) > _MOST:
            return []
        moved: dict[str, list[Displaced]] = defaultdict(list)
        self.homes.clear()
        found = list(self._strewn(sources))
        if made := list(self._files_after_the_last(found)):
            return made
        for one in self._chosen(found, free):
            file = self.log.file_of(one.home)
            assert file is not None
            moved[file.name].append(one)
            self.homes.add(one.home)
        return [self._step(name, found) for name, found in moved.items()]

    def _room_at_end(self, gaps: list[LogGap]) -> Iterator[LogGap]:
        """Yield the room after the last record that no range of the log has: in its file, and in those after it."""
        end, found = self.damage.end, (g.finding for g in (*gaps, *self.damage.misplaced))
        finding = next(chain(found, *self.damage.records.values()), None)
        if finding is None and self.aside:  # nothing else is wrong with the log
            finding = Finding(LOG_GAP, self.aside[0].name, 0, 0, "what lay in this file is aside")
        ended_by = next((g for g in gaps if g.end == end), None)  # what lies last is not of here
        setting = ended_by.setting if ended_by is not None else Setting(self.damage.last_time)
        for file in self.log.files:
            begin = max(file.base, end)
            is_room = begin < file.base + file.size and not file.lead and not any(g.limit > begin for g in gaps)
            if finding is not None and is_room:
                yield LogGap(finding, file, begin, begin, setting, is_tail=True)

    def _files_after_the_last(self, found: list[Displaced]) -> Iterator[Step]:
        """Yield steps that make the files after the last one to which units of the queues lead, and where records say
        that they belong to those units.
        """
        if not self.log.files:
            return
        last, end = self.log.files[-1], self.log.max_offset
        homeless = [one for one in found if end <= one.home < end + _MOST_FILES * last.size]
        if not homeless or last.lead:
            return
        claims = references_into(self.repair.store, [(end, max(one.end for one in homeless))])
        proven = [one for one in homeless if _is_led(one.home, one.raw, claims)]
        for base in range(end, max((one.home + 1 for one in proven), default=end), last.size):
            here = sum(base <= one.home < base + last.size for one in proven)
            name = f"{last.name.rpartition('/')[0]}/{base:0{OFFSET_DIGITS}d}"
            what = "make the file anew, without a record"
            count = number_of(here or len(proven), "record")
            why = f"{count} in other places, and units that lead to them, say that it was there"
            yield Step(self._kind(proven[0]), name, what, why, (Create(name, size=last.size),))

    def _bodies(self) -> Iterator[Range]:
        """Records whose body is destroyed: whole ones may lie in it."""
        for at, findings in self.damage.records.items():
            if any(f.kind is LOG_BODY_CRC for f in findings) and (raw := self.log.record(at)) is not None:
                yield at, at + len(raw)

    def _properties(self) -> Iterator[Range]:
        """Damaged properties of whole records, which no CRC covers."""
        for at, raw in self._marred.items():
            yield at + len(raw) - len(decode_record(raw)[0]["properties"]), at + len(raw)

    @cached_property
    def _marred(self) -> dict[int, bytes]:
        """Records whose body is sound and that show other damage, by physical offset."""
        kinds = {LOG_PROPERTIES_LOST, LOG_PROPERTY_CRC}
        found = (at for at, findings in self.damage.records.items() if any(f.kind in kinds for f in findings))
        return {at: raw for at in found if (raw := self.log.record(at)) is not None}

    def _strewn(self, sources: Iterable[Range]) -> Iterator[Displaced]:
        """Whole records in the ranges, and in files that are aside, that name another place than theirs."""
        for at, raw in whole_among(self.log.files, merged(sources)):
            if physical_of(raw) != at and at not in self.own and not _holds_another(raw):
                yield Displaced(at, physical_of(raw), raw)
        for file in self.aside:
            with closing(file.open()) as source:
                found = ((physical_of(raw), raw) for _, raw in whole_records(source) if not _holds_another(raw))
                yield from (Displaced(-1, home, raw) for home, raw in found if self.log.read(home, len(raw)) != raw)

    def _chosen(self, found: list[Displaced], free: list[LogGap]) -> list[Displaced]:
        """Those that go home, one for each place: what units bear out goes first."""
        bodies = dict(self._bodies())
        fits: list[tuple[bool, Displaced]] = []
        open_ones, claimed = dict[int, Displaced](), list[Displaced]()
        for one in found:
            fields = decode_record(one.raw)[0]
            place = place_of(fields)
            if self._is_sounder(fields, one):
                claimed.append(one)
                continue
            gap = self._range_of(one, free, bodies)
            if gap is None:
                continue
            if self._is_claimed(place, one):
                claimed.append(one)
            elif self._is_borne_out(fields, place, one, gap):
                fits.append((True, one))
            elif one.lies_at >= 0:
                open_ones[one.lies_at] = one
        fits += [(False, one) for one in claimed] + [(True, one) for one in _moved_with(claimed, open_ones)]
        fits += [(True, one) for gap in free if gap.is_tail for one in self._going_on(open_ones, gap)]
        kept: list[Displaced] = []
        for _, one in sorted(
            fits, key=lambda item: (item[0], item[1].home, b"\0" in item[1].properties, item[1].lies_at)
        ):
            at = bisect_left(kept, one.home, key=lambda other: other.home)
            if not any(other.home < one.end and one.home < other.end for other in kept[max(at - 1, 0) : at + 1]):
                kept.insert(at, one)
        return kept

    def _is_sounder(self, fields: dict[str, Any], one: Displaced) -> bool:
        """Whether the same message stands where a record says that it belongs, and only that one shows damage, or only
        this one has the tags that the unit of the message has.
        """
        there = self._marred.get(one.home)
        if there is None and one.home in self._retagged:
            there = self.log.record(one.home)
        if there is None or shows_damage(one.raw) or not is_same_message(fields, decode_record(there)[0]):
            return False
        return shows_damage(there) or has_tags_of(self.repair.store, one.raw, there)

    @cached_property
    def _retagged(self) -> frozenset[int]:
        """Physical offsets of records whose units have other tags than they have."""
        return frozenset(self.damage.missing.retagged.tolist())

    def _range_of(self, one: Displaced, free: list[LogGap], bodies: dict[int, int]) -> LogGap | None:
        """Return the range without anything sound that has the place of a record; None where it is not free."""
        at = bisect_right(free, one.home, key=lambda gap: gap.begin) - 1
        if at >= 0 and one.end <= free[at].limit:
            return free[at]
        if at >= 0 and one.home < free[at].end < one.end and one.end + len(blank(0)) <= self._after_blank(free[at]):
            return free[at]  # the blank record is that of another file
        if bodies.get(one.home) == one.end:  # the same record, but for its body
            file = self.log.file_of(one.home)
            finding = self.damage.records[one.home][0]
            assert file is not None
            return LogGap(finding, file, one.home, one.end, Setting())
        return None

    def _is_borne_out(self, fields: dict[str, Any], place: Place, one: Displaced, gap: LogGap) -> bool:
        """Whether a record without a unit belongs where it says: its time fits, and its queue lacks it there.

        After the end of the log it must be the very next record.
        """
        if not self._is_timely(fields["store_timestamp"], gap, gap.limit) or (gap.is_tail and one.home != gap.begin):
            return False
        if self._is_led_over(one):
            return False
        is_queued = fields["sys_flag"] & TRANSACTION not in UNQUEUED
        is_known = is_queued and place[:2] in self.damage.order.runs
        return self._is_due(place, one.home) if is_known else not gap.is_tail

    def _is_claimed(self, place: Place, one: Displaced) -> bool:
        """Whether the unit of a record leads to where the record says that it belongs.

        The unit must name its size, or another unit lead to what follows the record.
        """
        units = [unit for unit in self.claims.at(one.home) if unit.place == place]
        return any(unit.size in {0, len(one.raw)} for unit in units) or (bool(units) and bool(self.claims.at(one.end)))

    def _is_led_over(self, one: Displaced) -> bool:
        """Whether units lead to other records where one says that it belongs."""
        over = self.claims.over(one.home, one.end)
        return any((unit.physical, unit.end) != (one.home, one.end) for unit in over)

    def _going_on(self, others: Mapping[int, Displaced], tail: LogGap) -> Iterator[Displaced]:
        """Yield records without a unit that belong after the end of the log: runs of those that have moved alike.

        Each queue must go on where the log, or the run in front, ends it, but for as many messages as had room before,
        which destroyed ranges after the last record in its place had, too. Where no record lies in its place, and the
        first ones have expired, a queue goes on anywhere.

        Args:
            others: by physical offset.
        """
        runs = self.damage.order.runs
        end, due = tail.begin, {key: run.next for key, run in runs.items()}
        destroyed = self._room(max((run.last for run in runs.values()), default=0), tail.begin)
        is_anywhere = not runs and self.log.min_offset > 0
        for moved in sorted(_moved_alike(others), key=lambda moved: moved[0].home):
            room, following, queued = destroyed + (moved[0].home - end) // SMALLEST, dict[Key, int](), 0
            for fields in (decode_record(one.raw)[0] for one in moved):
                if not self._is_timely(fields["store_timestamp"], tail, tail.limit):
                    room = -1
                elif fields["sys_flag"] & TRANSACTION not in UNQUEUED:
                    topic, queue_id, offset = place_of(fields)
                    begin = due.get(key := (topic, queue_id), offset if is_anywhere else 0)
                    lacking = offset - following.get(key, begin)
                    room = -1 if lacking < 0 or (key in following and lacking) else room - lacking
                    following[key] = offset + messages_of(fields)
                    queued += 1
                if room < 0:
                    break
            if room >= 0 and queued > 1 and moved[-1].end <= tail.limit:
                yield from moved
                end, destroyed, is_anywhere = moved[-1].end, 0, False
                due.update(following)

    def _step(self, file: str, moved: list[Displaced]) -> Step:
        places = ((one.home, self.log.read(one.home, len(one.raw)), one.raw) for one in moved)
        edits = tuple(edit for place in places for edit in self.repair.edits(*place))
        what = f"move {number_of(len(moved), 'record')} back to where they say they were, from {moved[0].home} on"
        why = "their structure and CRCs are sound, and nothing else is in those places"
        kind = self._kind(moved[0])
        return Step(kind, file, what, why, edits)

    # --- records that are in the way of others -----------------------------------------------------------

    def uncovering(self) -> Iterator[Step]:
        """Yield steps that take records away whose properties are sound records: those that lie where they say.

        Such a record is the last of a page that lies in a foreign place, or of another broker's log. Its properties,
        which no CRC covers, are what lies after the page, and the chain through it ends in the middle of something.
        """
        broken = {gap.begin: gap for gap in self.damage.gaps if not gap.file.lead}
        for at, raw in self._cut_off(broken):
            size = len(raw) - len(decode_record(raw)[0]["properties"])
            behind = whole_among(self.log.files, [(at + size, at + len(raw))])
            home = next((place for place, found in behind if at + size <= place == physical_of(found)), None)
            if home is not None:
                why = f"a sound record lies where it says, at {home}, and would be its properties"
                yield self._away(broken[at + len(raw)].finding.kind, at, raw[:size], why)

    def _cut_off(self, broken: Mapping[int, LogGap]) -> Iterator[tuple[int, bytes]]:
        """Yield whole records that something contradicts, and after which the chain is broken."""
        for run in self.damage.misplaced:
            if run.end in broken:
                yield from ((at, raw) for at, raw in self._records_of(run) if at + len(raw) == run.end)
        for at, findings in self.damage.records.items():
            if any(f.kind is LOG_PROPERTIES_LOST for f in findings) and (raw := self.log.record(at)) is not None:
                yield from [(at, raw)] if at + len(raw) in broken and physical_of(raw) == at else ()

    def strangers(self) -> Iterator[Step]:
        """Yield steps that give up the records between two gaps that are not of here, though they lie where they say.

        Such are those of a page of another log at its own place; at the begin of a file there is no gap in front of it.
        No unit leads to any of them, and units lead all over the room that they and the gaps take, and to what follows;
        or all of them are older than what is in front, or newer than what follows.
        """
        gaps, last = list[LogGap](), ""
        for gap in (gap for gap in self.without_foreign().gaps if not gap.file.lead):
            if gap.file.name != last and gap.begin > gap.file.base:
                gaps.append(replace(gap, begin=gap.file.base, end=gap.file.base))
            gaps.append(gap)
            last = gap.file.name
        found = [run for run in map(self._between, gaps, gaps[1:]) if run is not None]
        if gaps:
            yield from self._after(gaps[-1])
        if not found:
            return
        claims = references_into(self.repair.store, [(one.begin, other.end + 1) for one, other, _ in found])
        for one, other, records in found:
            if any(_is_led(at, raw, claims) for at, raw in records):
                continue
            units = claims.inside(one.begin, other.end)
            if self._lies_under(units, one, other, claims) and all(
                _is_covered(at, len(raw), units) for at, raw in records
            ):
                led = number_of(len(units), "unit", "lead")
                why = f"it is of another log: no unit leads to it, and {led} into its place"
            elif self._is_of_another_time(one, other, records):
                why = "it is of another log: no unit leads to it, and all records beside it are of another time"
            else:
                continue
            yield from (self._away(one.finding.kind, at, raw, why) for at, raw in records)

    def _lies_under(self, units: list[QueueReference], one: LogGap, other: LogGap, claims: QueueReferences) -> bool:
        """Whether units lead all over the room of two gaps and of what lies between, and to the record after."""
        after = self.log.record(other.end)
        reach = bool(units) and (units[0].physical == one.begin or units[-1].end == other.end)
        is_most = sum(unit.size for unit in units) > (other.end - one.begin) // 2
        return reach and is_most and after is not None and _is_led(other.end, after, claims)

    def _is_of_another_time(self, one: LogGap, other: LogGap, records: list[tuple[int, bytes]]) -> bool:
        """Whether the store times of all of several records are not between those of the records around both gaps."""
        low, high = one.setting.store_timestamp, self._time_from(other.end)
        if one.begin in {one.end, self.log.min_offset} or high is None or low > high:
            return False
        times = [decode_record(raw)[0]["store_timestamp"] for _, raw in records]
        return len(times) > 1 and not any(low <= time <= high for time in times)

    def _after(self, gap: LogGap) -> Iterator[Step]:
        """Yield steps that give up what follows the last gap of the log, where others have its places in queues.

        No unit leads to any of it, and units lead to other records in half of these places, or more: a page of another
        log, or what a cut has left.
        """
        file_end, end = gap.file.base + gap.file.size, self.damage.end
        if gap.is_tail or gap.ends_file or not gap.end < end <= min(file_end, gap.end + _NEAR):
            return
        records, claims = list(self._apart(gap.end, end)), references_into(self.repair.store, [(gap.end, end)])
        if any(_is_led(at, raw, claims) for at, raw in records):
            return
        decoded = [(at, decode_record(raw)[0]) for at, raw in records]
        queued = [(at, fields) for at, fields in decoded if fields["sys_flag"] & TRANSACTION not in UNQUEUED]
        taken = sum(self._is_taken(place_of(fields), at) for at, fields in queued)
        if not taken or 2 * taken < len(queued):
            return
        why = f"it is of another log: no unit leads to it, and others have the places in queues of {taken}"
        head = self.log.read(end, len(blank(0)))
        records += [(end, head)] if magic_of(head) == Magic.BLANK else []
        yield from (self._away(gap.finding.kind, at, raw, why) for at, raw in records)

    def _is_taken(self, place: Place, physical: int) -> bool:
        """Whether the unit at a place in a queue leads to another record that says that this is its place."""
        led = leads_to(self.repair.store, place)
        fields = self.log.fields(led) if led not in {None, physical} else None
        return fields is not None and place_of(fields) == place and fields["physical_offset"] == led

    @cached_property
    def _doubted(self) -> Ints:
        """Physical offsets of records that have findings, or no unit, ascending."""
        return np.union1d(np.fromiter(self.damage.records, np.int64), self.damage.missing.physical)

    def _between(self, one: LogGap, other: LogGap) -> tuple[LogGap, LogGap, list[tuple[int, bytes]]] | None:
        """Return two gaps near each other and the whole records between them; None where nothing contradicts these."""
        is_near = one.end < other.begin <= one.end + _NEAR and one.file.name == other.file.name
        begin, end = np.searchsorted(self._doubted, (one.end, other.begin)).tolist()
        if not is_near or other.is_tail or begin == end:
            return None
        return one, other, list(self._apart(one.end, other.begin))

    def _apart(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield whole records of a range of the log without those that lie in another, as what its body says."""
        reached = begin
        for at, raw in whole_among(self.log.files, [(begin, end)]):
            if at >= reached:
                yield at, raw
                reached = at + len(raw)

    def giving_way(self, *, doubted: bool) -> Iterator[Step]:
        """Yield steps that give up a record beside each gap that is too small for any: one of the two is not of here.

        Brokers end the log at such a gap, or pass over to the next file. Given up is the one that more contradicts.

        Args:
            doubted: only where its queue or its time contradicts it.
        """
        for gap in self.without_foreign().gaps:
            if gap.end - gap.begin >= SMALLEST or gap.ends_file or gap.is_tail or gap.file.lead:
                continue
            around = whole_among(self.log.files, [(gap.begin - 1, gap.begin), (gap.end, gap.end + 1)])
            beside = [(at, raw) for at, raw in around if gap.end == at or at + len(raw) == gap.begin]
            if beside:
                at, raw = max(beside, key=lambda one: self._doubt(*one))
                if doubted and not self._doubt(at, raw)[1]:
                    continue
                room = number_of(gap.end - gap.begin, "byte")
                why = f"no record has room in the {room} beside it at {gap.begin}, so it is not of here"
                yield self._away(gap.finding.kind, at, raw, why)

    def _doubt(self, physical: int, raw: bytes) -> tuple[bool, int, bool]:
        """How much contradicts a whole record: no unit leads to it, its queue and its time, its properties."""
        place, kinds = place_of(decode_record(raw)[0]), [f.kind for f in self.damage.records.get(physical, ())]
        is_led = any(c.place == place and c.size == len(raw) for c in self.claims.at(physical))
        return not is_led, kinds.count(LOG_QUEUE_OFFSET) + kinds.count(LOG_STORE_TIME), LOG_PROPERTIES_LOST in kinds

    def _away(self, kind: FindingKind, at: int, head: bytes, why: str) -> Step:
        """Return a step that makes a record a destroyed range."""
        file = self.log.file_of(at)
        assert file is not None
        edits = self.repair.edits(at, head, bytes(len(head)))
        return Step(kind.id, file.name, f"give up the record at {at}", why, edits)

    def _kind(self, one: Displaced) -> str:
        """Return the finding that the first of some records answers."""
        for gap in (*self.damage.misplaced, *self.damage.gaps):
            if gap.begin <= one.home < gap.limit or gap.begin <= one.lies_at < gap.limit:
                return gap.finding.kind.id
        return LOG_BODY_CRC.id


def _holds_another(raw: bytes) -> bool:
    """Whether another lies in the properties of a record, which no CRC covers, with all in front of its own properties:
    at home that would be laid over what belongs there.
    """
    properties = bytes(decode_record(raw)[0]["properties"])
    if not any(magic in properties for magic in _MAGICS):
        return False
    rest = bytes(_LONGEST_PROPERTIES)  # those of the other may go on after them
    return any(at < len(properties) for at, _ in whole_records(BytesSource(properties + rest)))


def _moved_alike(others: Mapping[int, Displaced]) -> Iterator[list[Displaced]]:
    """Yield runs of records that touch each other and lie as far from home as each other, ascending.

    Args:
        others: by physical offset.
    """
    seen = set[int]()
    for at, one in sorted(others.items()):
        run, beside = list[Displaced](), one if at not in seen else None
        while beside is not None:
            run.append(beside)
            end, home = beside.lies_at + len(beside.raw), beside.end
            beside = others.get(end) if end not in seen else None
            beside = beside if beside is not None and beside.home == home else None
        seen.update(one.lies_at for one in run)
        if run:
            yield run


def _moved_with(proven: Iterable[Displaced], others: dict[int, Displaced]) -> Iterator[Displaced]:
    """Yield those of other records that touch proven ones, one through the other, and lie as far from home as they do.

    Args:
        others: by physical offset; taken out as they are found.
    """
    ends = {at + len(one.raw): at for at, one in others.items()}
    waiting = list(proven)
    while waiting:
        one = waiting.pop()
        for at in (one.lies_at + len(one.raw), ends.get(one.lies_at, -1)):
            beside = others.get(at)
            if beside is not None and beside.home - at == one.home - one.lies_at:
                waiting.append(others.pop(at))
                yield beside


def _is_covered(at: int, size: int, units: Iterable[QueueReference]) -> bool:
    """Whether units lead to places that a record at ``at`` overlaps."""
    return any(unit.physical < at + size and at < unit.end for unit in units)


def _is_led(at: int, raw: bytes, claims: QueueReferences) -> bool:
    """Whether a unit leads to a record that has its size, or its place in a queue: the other may be damaged."""
    place = place_of(decode_record(raw)[0])
    return any(unit.size == len(raw) or unit.place == place for unit in claims.at(at))


def _joined(gaps: list[LogGap]) -> list[LogGap]:
    """Ranges ascending, those that touch as one."""
    kept: list[LogGap] = []
    for gap in sorted(gaps, key=lambda gap: gap.begin):
        last = kept[-1] if kept else None
        if last is not None and last.end == gap.begin and last.file.name == gap.file.name and not last.ends_file:
            kept[-1] = replace(last, end=gap.end, ends_file=gap.ends_file, is_tail=gap.is_tail)
        else:
            kept.append(gap)
    return kept


# --- whole records that a plan gives up -------------------------------------------------------------------


def naming_losses(below: StoreFiles, after: StoreFiles, steps: Sequence[Step]) -> list[Step]:
    """Return the steps, each with the names of the whole records that it gives up.

    Args:
        below, after: the store as it is, and as all steps leave it.
    """
    bases = {file.name: file.base for file in below.log_files}
    touched = sorted((*span, number) for number, step in enumerate(steps) for span in _spans(step, bases))
    ranges, lost = merged((begin, end) for begin, end, _ in touched), dict[bytes, int]()
    with LogReader(after.log_files) as log:
        for file in below.log_files:  # one that is too long lies over the next one
            reached = -1
            first = bisect_right(ranges, file.base, key=lambda span: span[1])
            last = bisect_left(ranges, file.base + file.size, key=lambda span: span[0])
            for at, raw in whole_among([file], ranges[first:last]):
                is_inside = at + len(raw) <= reached  # of another whole one: what its message says
                reached = max(reached, at + len(raw) - len(decode_record(raw)[0]["properties"]))
                if not is_inside and _is_gone(below, log, at, raw):
                    first = bisect_right(touched, at, key=lambda span: span[1])
                    lost.setdefault(raw, touched[min(first, len(touched) - 1)][2])
        for number, step in enumerate(steps):
            moved = (edit.file for edit in step.edits if isinstance(edit, Quarantine))
            for file in filter(None, (log_file_at(below, name) for name in moved)):
                with closing(file.open()) as source:
                    gone = [raw for _, raw in whole_records(source) if _is_gone(below, log, -1, raw)]
                lost.update(dict.fromkeys(gone, number))
    named: dict[int, list[str]] = defaultdict(list)
    for raw, number in lost.items():
        named[number].append(record_name(decode_record(raw)[0]))
    return [_with_names(step, tuple(dict.fromkeys(named[n]))) if n in named else step for n, step in enumerate(steps)]


def _with_names(step: Step, names: tuple[str, ...]) -> Step:
    return replace(step, loses=max(step.loses, len(names)), gives_up=names)


def _spans(step: Step, bases: Mapping[str, int]) -> Iterator[Range]:
    """Ranges of the log that a step writes over or cuts off."""
    for edit in step.edits:
        base = bases.get(edit.file)
        if isinstance(edit, Overwrite) and base is not None:
            yield base + edit.offset, base + edit.offset + len(edit.before)
        elif isinstance(edit, Cut) and base is not None:
            yield base + edit.to_size, base + edit.from_size


def _is_gone(below: StoreFiles, log: LogReader, at: int, raw: bytes) -> bool:
    """Whether a record lies neither where it says nor where it lay, nor was put right at one of these places.

    Args:
        below: the store as it is; log: as all steps leave it.
    """
    fields, home = decode_record(raw)[0], physical_of(raw)
    if raw in (log.read(home, len(raw)), log.read(at, len(raw))):
        return False
    now, moved = log.fields(at), log.record(home)
    is_healed = now is not None and now["body"] == fields["body"]
    return not (is_healed or (moved is not None and stands_for(below, moved, raw)))
