"""Which bits of a body are wrong, read off the difference between the stored and the computed CRC.

A CRC is linear: a body that differs from the true one by an error pattern has a CRC that differs by the
CRC of that pattern alone, whatever the body is. For every place of the body there is exactly one pattern of
four bytes with a given difference, so all places are computed at once and the short patterns picked out.
Where a format keeps 31 of the 32 bits, each difference is tried with the lost bit both ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

MOST_CANDIDATES = 1 << 20
"""Patterns that may be tried for one body: a wrong one fits by chance once in 2**31 tries."""
MOST_RIVALS = 1 << 26
"""Longer bursts fit a large body by chance alone, several at once: they say nothing against a short one."""
LONGEST_BURST = 16
_BY_TABLE = 4
"""Powers of two in steps back below which single steps are quicker than their tables."""
CRC32 = 0xEDB88320
CRC32C = 0x82F63B78
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Crc:
    """A checksum as a format uses it.

    Attributes:
        polynomial: reflected: :data:`CRC32` or :data:`CRC32C`.
        compute: gives all 32 bits for some bytes.
        mask: the bits that are stored: all, or all but the highest.
    """

    polynomial: int
    compute: Callable[[Any], int]
    mask: int = 0xFFFFFFFF

    @property
    def bits(self) -> int:
        """Bits that are stored."""
        return self.mask.bit_length()


@dataclass(frozen=True, slots=True)
class Correction:
    """Bytes to be exclusive-ored.

    Attributes:
        at: offset in the body; -1 for the CRC field itself.
        pattern: the bytes.
        span: bits from the first wrong one to the last.
    """

    at: int
    pattern: bytes
    span: int


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the CRC says of a body.

    Attributes:
        tried: patterns that were candidates.
        fits: how many of them explain the difference.
        correction: the one that is accepted; None if there is none, or more than one.
        bits: that the format keeps of the CRC.
    """

    tried: int
    fits: int
    correction: Correction | None
    bits: int = 31

    @property
    def odds(self) -> str:
        """The chance that an accepted correction is a wrong one."""
        return f"{self.tried:,} candidates tried, 1 fits; chance of a wrong one {self.tried:,} / 2^{self.bits}"


def diagnose(body: bytes, stored: int, crc: Crc) -> Diagnosis:
    """Find the wrong bits of a body, or of its CRC field.

    A single bit is accepted if no other single bit fits; a burst if it is as short as the limit of candidates allows
    and no other of up to 16 bits fits, those left out that are so long that some would fit any body of this size.

    Args:
        stored: the CRC field as it stands, unsigned.
    """
    stored &= 0xFFFFFFFF
    difference = stored ^ (crc.compute(body) & crc.mask)
    if not difference or not body:
        return Diagnosis(0, 0, None, crc.bits)
    count = 8 * len(body) + 32
    all_of_them = (*_in_field(difference), *_in_body(len(body), difference, crc))
    found = [c for c in all_of_them if _rivals(c, count) <= MOST_RIVALS]
    singles = [c for c in found if c.span == 1]
    if singles or len(found) != 1:
        accepted = singles[0] if len(singles) == 1 and count <= MOST_CANDIDATES else None
        return Diagnosis(count, len(singles), accepted, crc.bits)
    tried = _rivals(found[0], count)
    return Diagnosis(tried, 1, found[0] if tried <= MOST_CANDIDATES else None, crc.bits)


def _rivals(one: Correction, count: int) -> int:
    """Corrections as short as this one or shorter, among which it was found."""
    return (32 if one.at < 0 else count) << (one.span - 1)


def _in_field(difference: int) -> list[Correction]:
    """Return the correction of the CRC field itself."""
    pattern = difference.to_bytes(4, "big")
    span = span_of(pattern)
    return [Correction(-1, pattern, span)] if span <= LONGEST_BURST else []


def _in_body(size: int, difference: int, crc: Crc) -> list[Correction]:
    """Every burst of the body that explains the difference, each once."""
    if difference & ~crc.mask:  # a bit that is always zero: only the field itself can be wrong
        return []
    found = []
    for syndrome in sorted({difference, difference | crc.mask ^ 0xFFFFFFFF}):
        words = _windows(crc.polynomial, syndrome, size)
        rows = np.flatnonzero((words < 1 << 24) & (words & 0xFF != 0))
        for row in rows.tolist():
            at, pattern = size - 1 - row, int(words[row]).to_bytes(4, "little").rstrip(b"\0")
            if at + len(pattern) <= size and span_of(pattern) <= LONGEST_BURST:
                found.append(Correction(at, pattern, span_of(pattern)))
    return found


def pattern_at(after: int, difference: int, crc: Crc) -> bytes:
    """Return the four bytes to be exclusive-ored in some place so that the CRC changes by a difference.

    Args:
        after: bytes under the CRC from the first of the four to the end.
        difference: of all 32 bits.
    """
    for power in range(_BY_TABLE, after.bit_length()):
        if after >> power & 1:
            word = np.array([difference], np.uint32)
            difference = int(_apply(_back_tables(crc.polynomial, power), word)[0])
    for _ in range(after & (1 << _BY_TABLE) - 1):
        difference = _step_back(crc.polynomial, difference)
    return difference.to_bytes(4, "little")


def span_of(pattern: bytes) -> int:
    """Bits from the first to the last wrong one, counted from either end of the bytes: the smaller of both."""
    spans = []
    orders: tuple[Literal["big", "little"], ...] = ("big", "little")
    for order in orders:
        number = int.from_bytes(pattern, order)
        spans.append(number.bit_length() - ((number & -number).bit_length() - 1))
    return min(spans)


def _windows(polynomial: int, syndrome: int, size: int) -> Words:
    """Return the four bytes (little-endian) from place ``size - 1 - row`` on that have this syndrome, shape (size,)."""
    words = np.empty(size, np.uint32)
    words[0] = _step_back(polynomial, syndrome)
    done = 1
    for power in range(size.bit_length()):
        take = min(done, size - done)
        words[done : done + take] = _apply(_back_tables(polynomial, power), words[:take])
        done += take
    return words


@cache
def _table(polynomial: int) -> tuple[int, ...]:
    """Return the CRC of each byte value, register starting at zero."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table.append(value)
    return tuple(table)


def _step_back(polynomial: int, register: int) -> int:
    """Return the register before one zero byte went through it."""
    low = _high_bytes(polynomial)[register >> 24]
    return (register ^ _table(polynomial)[low]) << 8 & 0xFFFFFFFF | low


@cache
def _high_bytes(polynomial: int) -> tuple[int, ...]:
    """Return for each high byte of a register the byte value whose CRC has it."""
    found = [0] * 256
    for value, crc in enumerate(_table(polynomial)):
        found[crc >> 24] = value
    return tuple(found)


@cache
def _back_tables(polynomial: int, power: int) -> Words:
    """``2 ** power`` steps back as four tables of 256, one a byte of the register; shape (4, 256)."""
    if power:
        half = _back_tables(polynomial, power - 1)
        return np.stack([_apply(half, row) for row in half])
    rows = [[_step_back(polynomial, value << shift) for value in range(256)] for shift in (0, 8, 16, 24)]
    return np.array(rows, np.uint32)


def _apply(tables: Words, words: Words) -> Words:
    """Return a linear map, given by its tables, on every word."""
    low: Words = tables[0][words & 0xFF] ^ tables[1][words >> 8 & 0xFF]
    return low ^ tables[2][words >> 16 & 0xFF] ^ tables[3][words >> 24]
