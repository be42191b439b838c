"""Records without what their users put into them, in files that keep their shape: what families share.

What is left out becomes filler of the same length, chosen so that sizes, CRCs and hash codes stay what they were: the
file is damaged, or sound, as before, at the same bytes. Where a CRC is wrong it stays wrong by the same bits, since
CRCs are linear; so what heals a record heals it without its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import eq

from formats.text import java_hash
from rmqctl.files.local import ByteSource
from rmqctl.repair.crc_correction import Crc, pattern_at

Kept = Iterator[tuple[int, bytes]]
"""Offsets in a file with the bytes that are to stand there; what is not named is zeros, and the later one counts."""
MOST_HEALED = 16
"""Bytes of a record that may differ from what heals it; where more do, nothing says which of them are content."""
_WINDOW = 1 << 20
_WORD = 4
_MASK = bytes([0]) + b"." * 255


def masked(source: ByteSource, begin: int, end: int) -> Kept:
    """Yield a stretch that is no record, with a dot for each byte that is not zero."""
    for low, high in source.data_ranges(begin, end):
        for at in range(low, high, _WINDOW):
            data = source.read_at(at, min(_WINDOW, high - at)).translate(_MASK)
            if data.strip(b"\0"):
                yield at, data


def mask(data: bytes) -> bytes:
    """Return bytes with a dot for each that is not zero."""
    return data.translate(_MASK)


def with_crc(data: bytearray, at: int, wanted: int, crc: Crc) -> bool:
    """Give bytes a CRC by four of them.

    Args:
        data: all that is under the CRC; changed in place.
        at: the first of the four.
        wanted: all 32 bits.

    Returns whether any of the four was changed.
    """
    difference = crc.compute(data) ^ wanted
    if not difference:
        return False
    for place, byte in enumerate(pattern_at(len(data) - at, difference, crc), at):
        data[place] ^= byte
    return True


def healed_over(source: ByteSource, at: int, healed: bytes, redacted: bytes) -> bytes | None:
    """Return what a damaged record becomes, where what heals it is known: the healed one redacted, damaged again.

    Args:
        at: where it lies in ``source``, which has it damaged.
        healed: the record as it was.

    None where so much of it differs that the difference is content.
    """
    raw = source.read_at(at, len(healed))
    wrong = [place for place, (a, b) in enumerate(zip(raw, healed, strict=False)) if a != b]
    if len(raw) < len(healed) or not wrong or len(wrong) > MOST_HEALED:
        return None
    found = bytearray(redacted)
    for place in wrong:
        found[place] ^= raw[place] ^ healed[place]
    return bytes(found)


def healed_records(
    source: ByteSource, healed: Iterable[tuple[int, bytes]], redact: Callable[[int, bytes], bytes]
) -> Kept:
    """Yield damaged records for which it is known what heals them, see :func:`healed_over`.

    Args:
        healed: where each lies, and what it was.
        redact: gives what a bundle keeps of one, from both.
    """
    for at, raw in healed:
        found = healed_over(source, at, raw, redact(at, raw))
        if found is not None:
            yield at, found


# --- texts of the same hash code ------------------------------------------------------------------------


_LOW, _HIGH = 33, 126
_FREE = 8
"""UTF-16 units that are chosen: seven of 31 values each have more texts than there are hash codes."""
_BASE, _WRAP = 31, 1 << 32
_RANGES = {1: (_LOW, _HIGH), 2: (0xA1, 0x7FF), 3: (0x800, 0xD7FF)}
"""Units that take as many bytes of UTF-8; those of four bytes are two."""
_SURROGATES = ((0xD800, 0xDBFF), (0xDC00, 0xDFFF))


@lru_cache(1 << 16)
def same_hash(value: bytes) -> bytes:
    """Return another text in UTF-8 of as many bytes and the same hash code, as Java computes it.

    The value itself where there is no other: texts of one character. Texts that are no UTF-8, which have no one hash
    code, are masked. Zeros stay where a page was lost: findings quote them.
    """
    if 0 in value and len(texts := value.split(b"\0")) - texts.count(b"") <= _AROUND_A_PAGE:
        return b"\0".join(map(same_hash, texts))
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return bytes(ord(".") if _LOW <= byte <= _HIGH else byte for byte in value)
    if len(text) < 2:
        return value
    sizes = tuple([len(value)] if len(text) == len(value) else (-len(character.encode()) for character in text))
    shape = _shape(sizes)
    found = [made for lowest in (True, False) if (made := shape.made(java_hash(text), lowest=lowest)) is not None]
    return min(found, key=lambda one: sum(map(eq, one, value)), default=mask(value))


_AROUND_A_PAGE = 2
"""Texts with zeros between them: before a page and after it."""


class _Shape:
    """Texts whose UTF-16 units lie in given ranges, of which the last ones give the text its hash code."""

    def __init__(self, units: Sequence[tuple[int, int]]) -> None:
        self.free = units[-_FREE:]
        fixed = "".join(chr(low) for low, _ in units[:-_FREE])
        self.front = fixed.encode("utf-16-be", "surrogatepass")
        self.weights = [_BASE**power for power in range(len(self.free) - 1, -1, -1)]
        self.least = sum(low * weight for (low, _), weight in zip(self.free, self.weights, strict=True))
        self.most = sum(high * weight for (_, high), weight in zip(self.free, self.weights, strict=True))
        self.before = java_hash(fixed) * _BASE ** len(self.free)

    def made(self, wanted: int, *, lowest: bool) -> bytes | None:
        """Return the text with a hash code whose first units are as low, or as high, as they can be; None without."""
        total = (wanted - self.before) % _WRAP
        total += max(-(-(self.least - total) // _WRAP), 0) * _WRAP
        if total > self.most:
            return None
        least, most, raw = self.least, self.most, bytearray(self.front)
        for (low, high), weight in zip(self.free, self.weights, strict=True):
            least, most = least - low * weight, most - high * weight
            unit = max(low, -(-(total - most) // weight)) if lowest else min(high, (total - least) // weight)
            raw += unit.to_bytes(2, "big")
            total -= unit * weight
        return raw.decode("utf-16-be").encode()


@lru_cache(4096)
def _shape(sizes: tuple[int, ...]) -> _Shape:
    """Return the shape of texts by the bytes of their characters, negative; one number is a text of so many of one."""
    if sizes[0] > 0:
        return _Shape([_RANGES[1]] * sizes[0])
    return _Shape([unit for size in sizes for unit in (_SURROGATES if size == -_WORD else (_RANGES[-size],))])
