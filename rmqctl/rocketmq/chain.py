"""Following the chain of records through one window, and finding it again behind damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from formats.rocketmq.message import Magic
from rmqctl.rocketmq.block import Blank, Block, Bytes8, Gap, GapKind, Ints
from rmqctl.rocketmq.measure import (
    PEEK,
    Flags,
    Measured,
    describe,
    is_message_magic,
    measure,
    records_at,
)

_BLANK = int(Magic.BLANK) & 0xFFFFFFFF
_BLANK_BYTES = _BLANK.to_bytes(4, "big")
_HEADER = 8
_SHIFTS_TRIED = 8
_DLEDGER_BLANK = -1
_ENTRY_POS = 24
_DLEDGER_MAGICS = (1, 2, 3)


@dataclass(slots=True)
class Step:
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
        """The records as a block over ``data``."""
        m = Measured.concatenate(self.parts)
        return Block(
            file, base, start, data, m.at, m.variant, m.total_size, m.body_size, m.topic_size, m.properties_size
        )


class Chain:
    """The chain's state from window to window.

    Attributes:
        gap: damage whose end has not been found yet, or None while records follow each other.
        size: bytes in the file.
        shifts: accepted differences between PHYSICALOFFSET and position, bytes.
    """

    def __init__(self, base: int, size: int, lead: int = 0) -> None:
        self.base, self.size, self.lead = base, size, lead
        self.gap: Gap | None = None
        self.shifts: tuple[int, ...] = (0,)

    def follow(self, data: Bytes8, position: int, stop: int) -> Step:
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
        self.step = Step()
        self.at = 0
        self._blanks: list[int] | None = None
        self._empty: list[int] | None = None
        self._tries = 0
        self._search()

    def _search(self) -> None:
        """Find the records of the window and where they stop following each other."""
        found = records_at(self.data, self.position, self.chain.base, self.limit, self.lead, self.chain.shifts)
        self.undecided = found.take(np.flatnonzero(found.needs))
        self.sound = found.take(_slice_or(found.whole))
        starts = self.sound.at - self.lead
        self.starts = starts
        self.breaks = np.flatnonzero(starts[:-1] + (self.sound.total_size[:-1] + self.lead) != starts[1:])

    def advance(self) -> bool:
        """Take one step; False when the window has given what it can."""
        if self.chain.gap is not None:
            return self._resume()
        if self.at >= self.limit or self.position + self.at >= self.stop:
            return self._leave(self.at)
        k = int(np.searchsorted(self.starts, self.at))
        if k < len(self.starts) and self.starts[k] == self.at:
            self._take_run(k)
            return True
        return self._examine()

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
            return self._open(GapKind.CUT, f"{left} bytes are left, too few for a record")
        size, magic = self._word(at), self._word(at + 4)
        if self.lead:
            return self._examine_entry(size, magic)
        if magic == _BLANK:
            return self._end_file(size)
        return self._examine_record(at)

    def _examine_record(self, at: int) -> bool:
        size, magic = self._word(at), self._word(at + 4) if at + 8 <= len(self.data) else 0
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
        if need and len(self.data) < self.limit and len(self.data) - at < need:
            return self._leave(self.at, need + self.lead)
        return self._open(GapKind.STRUCTURE, describe(self.data, one, self.limit), _signed(size))

    def _measured(self, at: int) -> Measured:
        """Lengths of the one record at ``at``; those of the window's last record, not whole yet, are known."""
        if len(self.undecided.at) and self.undecided.at[-1] == at:
            return self.undecided.take(slice(-1, None))
        return measure(self.data, np.array([at], np.int64), self.limit)

    def _examine_entry(self, magic: int, size: int) -> bool:
        """A DLedger entry (spec 2.14): header, then a record, nothing, or a blank to the end of the file."""
        if _signed(magic) == _DLEDGER_BLANK:
            return self._end_file(size)
        if magic in _DLEDGER_MAGICS and size == self.lead and self.at + self.lead <= self.limit:
            self.at += self.lead
            return True
        if magic in _DLEDGER_MAGICS and size > self.lead:
            return self._examine_record(self.at + self.lead)
        if magic == size == 0:
            return self._open(GapKind.ZEROS, "zeros where an entry was expected")
        return self._open(GapKind.MAGIC, f"entry magic {_signed(magic)} is none that is known")

    def _end_file(self, size: int) -> bool:
        at = self.position + self.at
        self.step.blanks.append(Blank(at, _signed(size), self.chain.size))
        return self._leave(self.limit)

    def _take_foreign(self, one: Measured) -> bool:
        """A whole record whose PHYSICALOFFSET is not its position: the chain goes through it, as a broker's does."""
        shift = one.physical_shift(self.data, self.position + self.chain.base)
        self.at = int(one.at[0] + one.total_size[0])
        self.step.parts.append(one)
        if shift not in self.chain.shifts and self._tries < _SHIFTS_TRIED:
            self._tries += 1
            self.chain.shifts = (0, shift)
            self._search()
        return True

    def _open(self, why: GapKind, detail: str, total_size: int | None = None) -> bool:
        here = self.position + self.at
        self.chain.gap = Gap(here, here, why, detail, total_size=total_size)
        self.at += 1
        return True

    # --- behind damage ------------------------------------------------------------------------

    def _resume(self) -> bool:
        """Find the next sound record or the file's own blank; or move the search on."""
        place = self._next_sound()
        wait = self.undecided.at[self.undecided.at - self.lead >= self.at]
        if len(wait) and (place is None or wait[0] - self.lead < place):
            start = int(wait[0]) - self.lead
            need = int(self.undecided.needs[len(self.undecided.at) - len(wait)]) + self.lead
            if len(self.data) - start < min(need, self.limit - start):
                return self._leave(start, need)
        if place is None:
            return self._leave(
                max(len(self.data) - PEEK - self.lead, self.at) if len(self.data) < self.limit else self.limit
            )
        self._close_gap(place)
        return True

    def _close_gap(self, place: int) -> None:
        gap = self.chain.gap
        assert gap is not None
        gap.end, gap.resumed = self.position + place, True
        if gap.position >= 0:
            self.step.gaps.append(gap)
        self.chain.gap, self.at = None, place

    def _next_sound(self) -> int | None:
        """The first place from ``at`` on where a record proves itself, or a blank that fits the file exactly."""
        k = int(np.searchsorted(self.starts, self.at))
        places = [
            int(s) for s in self.starts[k : k + 64] if self._is_exact(k + int(np.searchsorted(self.starts[k:], s)))
        ][:1]
        places += [b for b in self._exact_blanks() if b >= self.at][:1]
        if self.lead:
            places += [e for e in self._empty_entries() if e >= self.at][:1]
        return min(places, default=None)

    def _is_exact(self, k: int) -> bool:
        return self.sound.take(slice(k, k + 1)).physical_shift(self.data, self.position + self.chain.base) == 0

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
            if self._word(start) in _DLEDGER_MAGICS and stated == (here + start).to_bytes(8, "big"):
                yield start

    def _find_blanks(self) -> list[int]:
        text, found, at = self.data.tobytes(), [], 3
        pattern = b"\xff\xff\xff\xff" if self.lead else _BLANK_BYTES
        while (at := text.find(pattern, at + 1)) >= 0:
            start, size_at = (at, at + 4) if self.lead else (at - 4, at - 4)
            if size_at + 4 <= len(text) and self._word(size_at) == self.limit - start:
                found.append(start)
        return found

    def _word(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 4].tobytes(), "big")


def _slice_or(flags: Flags) -> Flags | slice:
    """A slice where only the last flags are false, which costs no copy; else the flags."""
    count = int(np.count_nonzero(flags))
    return slice(count) if flags[:count].all() else flags


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


__all__ = ["Chain", "Ints", "Step"]
