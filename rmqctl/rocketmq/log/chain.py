"""Following the chain of records through one window, and finding it again after damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from formats.rocketmq.message import Magic
from rmqctl.rocketmq.log.block import Blank, Block, Bytes8, Gap, GapKind, Ints
from rmqctl.rocketmq.log.measure import (
    PEEK,
    Flags,
    Measured,
    describe,
    is_message_magic,
    is_whole,
    measure,
    records_at,
    records_from,
)
from rmqctl.rocketmq.log.record import MAGIC_AT, PHYSICAL_AT
from rmqctl.text import number_of

_BLANK = int(Magic.BLANK) & 0xFFFFFFFF
_BLANK_BYTES = _BLANK.to_bytes(4, "big")
_HEADER = 8
_SHIFTS_TRIED = 8
_DLEDGER_BLANK = -1
_ENTRY_POS = 24
DLEDGER_MAGICS = (1, 2, 3)
_USUAL = 1 << 10
_FOLLOWED = 128 << 10
"""Bytes of a window from which its records are first followed from size to size; a smaller one is searched at once."""


@dataclass(slots=True)
class WindowResult:
    """What one window gave.

    Attributes:
        parts: records picked, in order.
        after: where the chain (or the search) stands, in bytes from the start of the window.
        need: bytes the next window must hold from there; 0 for the usual size.
    """

    parts: list[Measured] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    blanks: list[Blank] = field(default_factory=list)
    after: int = 0
    need: int = 0

    def block(self, file: str, base: int, start: int, data: Bytes8) -> Block:
        """Return the records as a block over ``data``."""
        m = Measured.concatenate(self.parts)
        return Block(
            file, base, start, data, m.at, m.variant, m.total_size, m.body_size, m.topic_size, m.properties_size,
            heads=m.heads,
        )  # fmt: skip


class Chain:
    """The chain's state from window to window.

    Attributes:
        gap: damage whose end has not been found yet, or None while records follow each other.
        size: bytes in the file.
        shifts: accepted differences between PHYSICALOFFSET and position, bytes.
        usual: bytes that the records of the last window had on average.

    Args:
        read: some bytes at a place of the file. The lengths at the end of a long record are read alone, since the bytes
            between may claim to be the heads of many such records.
    """

    def __init__(self, base: int, size: int, lead: int, read: Callable[[int, int], bytes]) -> None:
        self.base, self.size, self.lead, self.read = base, size, lead, read
        self.gap: Gap | None = None
        self.shifts: tuple[int, ...] = (0,)
        self.usual = _USUAL

    def follow(self, data: Bytes8, position: int, stop: int) -> WindowResult:
        """Follow the chain through the window ``data`` that begins at ``position`` of the file."""
        window = _Window(data, position, self, stop)
        while window.advance():
            pass
        return window.step


class _Window:
    """One window: the records found in it, and the place the chain has reached."""

    def __init__(self, data: Bytes8, position: int, chain: Chain, stop: int) -> None:
        self.data, self.position, self.chain, self.stop = data, position, chain, stop
        self.limit = chain.size - position
        self.lead = chain.lead
        self.step = WindowResult()
        self.at = 0
        self._blanks: list[int] | None = None
        self._empty: list[int] | None = None
        self._tries = 0
        self._exact: Ints | None = None
        self._is_searched = self._is_followed = False

    def _follow(self) -> bool:
        """Take the records that follow each other from the start of the window; False where that is not tried."""
        self._is_followed = True
        chain = self.chain
        if chain.gap is not None or self.lead or chain.shifts != (0,) or len(self.data) < _FOLLOWED:
            return False
        found, self.undecided = records_from(self.data, self.at, self.position + chain.base, self.limit, chain.usual)
        if len(found.at):
            self.step.parts.append(found)
            self.at = int(found.at[-1] + found.total_size[-1])
            chain.usual = max(self.at // len(found.at), 1)
        return True

    def _search(self) -> None:
        """Find the records of the window and where they stop following each other."""
        self._is_searched = True
        found = records_at(self.data, self.position, self.chain.base, self.limit, self.lead, self.chain.shifts)
        self.undecided = found.take(np.flatnonzero(found.needs))
        self.sound = found.take(_slice_or(found.whole))
        starts = self.sound.at - self.lead
        self.starts, self._exact = starts, None
        self.breaks = np.flatnonzero(starts[:-1] + (self.sound.total_size[:-1] + self.lead) != starts[1:])

    def advance(self) -> bool:
        """Take one step; False when the window has given what it can."""
        if not self._is_followed and self._follow():
            return self._examine() if self._is_inside() else self._leave(self.at)
        if not self._is_searched:
            self._search()
        if self.chain.gap is not None:
            return self._resume()
        if not self._is_inside():
            return self._leave(self.at)
        k = int(np.searchsorted(self.starts, self.at))
        if k < len(self.starts) and self.starts[k] == self.at:
            self._take_run(k)
            return True
        return self._examine()

    def _is_inside(self) -> bool:
        """Whether the chain stands inside the file and the split."""
        return self.at < self.limit and self.position + self.at < self.stop

    def _leave(self, at: int, need: int = 0) -> bool:
        self.step.after, self.step.need = at, need
        return False

    def _take_run(self, first: int) -> None:
        """Take all records from ``first`` on that follow each other."""
        b = int(np.searchsorted(self.breaks, first))
        last = int(self.breaks[b]) if b < len(self.breaks) else len(self.starts) - 1
        self.step.parts.append(self.sound.take(slice(first, last + 1)))
        self.at = int(self.starts[last]) + self.lead + int(self.sound.total_size[last])

    # --- one place that the search did not settle ---------------------------------------------

    def _examine(self) -> bool:
        """Look at the bytes the chain stands on: a blank, unwritten room, a foreign record, or damage."""
        at, left = self.at, self.limit - self.at
        if len(self.data) - at < min(PEEK + self.lead, left):
            return self._leave(at)
        if left < _HEADER:
            return self._open(GapKind.CUT, f"{number_of(left, 'byte', 'are')} left, too few for a record")
        size, magic = self._word(at), self._word(at + MAGIC_AT)
        if self.lead:
            return self._examine_entry(size, magic)
        if magic == _BLANK:
            return self._end_file(size)
        return self._examine_record(at)

    def _examine_record(self, at: int) -> bool:
        size, magic = self._word(at), self._word(at + MAGIC_AT) if at + 8 <= len(self.data) else 0
        if not is_message_magic(np.array([magic], np.uint32))[0]:
            if size == magic == 0:
                return self._open(GapKind.ZEROS, "zeros where a record was expected")
            return self._open(GapKind.MAGIC, f"magic 0x{magic:08X} at the start of a record is none that is known")
        if at + PEEK > len(self.data):
            return self._open(GapKind.CUT, f"the file ends {self.limit - at} bytes into a record", size)
        one = self._measured(at)
        if one.whole[0]:
            return self._take_foreign(one)
        need = int(one.needs[0])
        if need and len(self.data) < self.limit and len(self.data) - at < need and self._is_whole(one):
            return self._leave(self.at, need + self.lead)
        return self._open(GapKind.STRUCTURE, describe(self._bytes, one, self.limit), _signed(size))

    def _bytes(self, at: int, size: int) -> bytes:
        """Bytes of the window, or of the file after it."""
        if at + size <= len(self.data):
            return self.data[at : at + size].tobytes()
        return self.chain.read(self.position + at, size)

    def _is_whole(self, one: Measured) -> bool:
        return is_whole(self._bytes, one, self.limit)

    def _measured(self, at: int) -> Measured:
        """Lengths of the one record at ``at``; those of the window's last record, not whole yet, are known."""
        if len(self.undecided.at) and self.undecided.at[-1] == at:
            return self.undecided.take(slice(-1, None))
        return measure(self.data, np.array([at], np.int64), self.limit)

    def _examine_entry(self, magic: int, size: int) -> bool:
        """Take a DLedger entry (spec 2.14): header, then a record, nothing, or a blank to the end of the file.

        A record that proves itself counts whatever its header says, also where the window does not hold all of it.
        """
        if self._leave_for(self._first_undecided(self.at + 1)):
            return False
        if _signed(magic) == _DLEDGER_BLANK:
            return self._end_file(size)
        if magic in DLEDGER_MAGICS and size == self.lead and self.at + self.lead <= self.limit:
            self.at += self.lead
            return True
        if magic in DLEDGER_MAGICS and size > self.lead:
            return self._examine_record(self.at + self.lead)
        if magic == size == 0:
            return self._open(GapKind.ZEROS, "zeros where an entry was expected")
        return self._open(GapKind.MAGIC, f"entry magic {_signed(magic)} is none that is known")

    def _end_file(self, size: int) -> bool:
        """Take the blank that ends the file; one of another size may be a damaged record, as what follows shows."""
        at, left = self.position + self.at, self.limit - self.at
        if size == left:
            self.step.blanks.append(Blank(at, size, self.chain.size))
            return self._leave(self.limit)
        detail = f"a blank record states {_signed(size)} bytes, but {left} are left in the file"
        is_record = not self.lead and self._is_own(self.at)
        return self._open(GapKind.MAGIC, detail, blank=None if is_record else _signed(size))

    def _is_own(self, at: int) -> bool:
        """Whether the PHYSICALOFFSET of a record that may begin at ``at`` is its place."""
        stated = self.data[at + PHYSICAL_AT : at + PHYSICAL_AT + 8].tobytes()
        return stated == (self.chain.base + self.position + at).to_bytes(8, "big")

    def _take_foreign(self, one: Measured) -> bool:
        """Take a whole record whose PHYSICALOFFSET is not its position: the chain goes through it, as brokers do."""
        shift = self._shift(one)
        self.at = int(one.at[0] + one.total_size[0])
        self.step.parts.append(one)
        if shift not in self.chain.shifts and self._tries < _SHIFTS_TRIED:
            self._tries += 1
            self.chain.shifts = (0, shift)
            self._search()
        return True

    def _open(self, why: GapKind, detail: str, total_size: int | None = None, blank: int | None = None) -> bool:
        here = self.position + self.at
        self.chain.gap = Gap(here, here, why, detail, total_size=total_size, blank=blank)
        self.at += 1
        return True

    # --- after damage ------------------------------------------------------------------------

    def _resume(self) -> bool:
        """Find the next sound record or the file's own blank; or move the search on."""
        place = self._next_sound()
        if self._leave_for(self._first_undecided(place)):
            return False
        if place is None:
            return self._leave(
                max(len(self.data) - PEEK - self.lead, self.at) if len(self.data) < self.limit else self.limit
            )
        self._close_gap(place)
        return True

    def _leave_for(self, one: Measured | None) -> bool:
        """Leave the window for one that holds a record to its end; False where there is none or it is held already."""
        if one is None:
            return False
        start, need = int(one.at[0]) - self.lead, int(one.needs[0]) + self.lead
        if len(self.data) - start >= min(need, self.limit - start):
            return False
        self._leave(start, need)
        return True

    def _first_undecided(self, place: int | None) -> Measured | None:
        """Return the first record in front of a place that the window does not hold to its end and the chain may go on
        at.

        Those that their last lengths disprove are left out for good.
        """
        starts = self.undecided.at - self.lead
        first = int(np.searchsorted(starts, self.at))
        stop = len(starts) if place is None else int(np.searchsorted(starts, place))
        for k in range(first, stop):
            one = self.undecided.take(slice(k, k + 1))
            if self._shift(one) == 0 and self._is_whole(one):
                return one
        self.undecided = self.undecided.take(slice(max(stop, first), None))
        return None

    def _close_gap(self, place: int) -> None:
        gap = self.chain.gap
        assert gap is not None
        gap.end, gap.resumed = self.position + place, True
        if gap.position >= 0:
            self.step.gaps.append(gap)
        self.chain.gap, self.at = None, place

    def _next_sound(self) -> int | None:
        """Return the first place from ``at`` on where a record proves itself, or a blank that fits the file exactly."""
        exact = self._exact_starts()
        places = exact[int(np.searchsorted(exact, self.at)) :][:1].tolist()
        places += [b for b in self._exact_blanks() if b >= self.at][:1]
        if self.lead:
            places += [e for e in self._empty_entries() if e >= self.at][:1]
        return min(places, default=None)

    def _exact_starts(self) -> Ints:
        """Where the records of the window begin that lie where they say."""
        if self._exact is None:
            shifts = self.sound.physical_shifts(self.data, self.position + self.chain.base)
            self._exact = self.starts[shifts == 0]
        return self._exact

    def _shift(self, one: Measured) -> int:
        return int(one.physical_shifts(self.data, self.position + self.chain.base)[0])

    def _exact_blanks(self) -> list[int]:
        """Blanks of the window whose size reaches exactly to the end of the file."""
        if self._blanks is None:
            self._blanks = list(self._find_blanks())
        return self._blanks

    def _empty_entries(self) -> list[int]:
        """DLedger entries of the window without a record; their own position proves them."""
        if self._empty is None:
            self._empty = list(self._find_empty_entries())
        return self._empty

    def _find_empty_entries(self) -> Iterator[int]:
        text, at = self.data.tobytes(), 3
        size, here = self.lead.to_bytes(4, "big"), self.position + self.chain.base
        while (at := text.find(size, at + 1)) >= 0:
            start = at - 4
            stated = text[start + _ENTRY_POS : start + _ENTRY_POS + 8]
            if self._word(start) in DLEDGER_MAGICS and stated == (here + start).to_bytes(8, "big"):
                yield start

    def _find_blanks(self) -> list[int]:
        text, found, at = self.data.tobytes(), [], 3
        pattern = b"\xff\xff\xff\xff" if self.lead else _BLANK_BYTES
        while (at := text.find(pattern, at + 1)) >= 0:
            start, size_at = (at, at + MAGIC_AT) if self.lead else (at - MAGIC_AT, at - MAGIC_AT)
            if size_at + 4 <= len(text) and self._word(size_at) == self.limit - start:
                found.append(start)
        return found

    def _word(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 4].tobytes(), "big")


def _slice_or(flags: Flags) -> Flags | slice:
    """Return a slice where only the last flags are false, which costs no copy; else the flags."""
    count = int(np.count_nonzero(flags))
    return slice(count) if flags[:count].all() else flags


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


__all__ = ["Chain", "Ints", "WindowResult"]
