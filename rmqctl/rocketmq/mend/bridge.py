"""A destroyed range of the log filled exactly with records that every release walks over (spec 6.2, 2.9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rmqctl.rocketmq.mend.claims import Claim
from rmqctl.rocketmq.mend.heal import SMALLEST
from rmqctl.rocketmq.mend.loose import Loose
from rmqctl.rocketmq.mend.placeholder import Setting, blank, filler, placeholder
from rmqctl.rocketmq.verify.property_crc import SIZE

LARGEST_FILLER = 1 << 20
_LEAST_TEXT = 24
"""Bytes of the shortest property that marks a placeholder, with some to spare."""
_TEXT = 160
"""Bytes for all that a placeholder says where there is room, properties of the broker's own topics included."""
Light = Callable[[int], Sequence[Claim]]


@dataclass(slots=True)
class Bridge:
    """The bytes for a range, and what they stand for.

    Attributes:
        data: as many bytes as the range has; fewer where the rest is behind the blank record that ends the file.
        placed: the claims that have a placeholder now, with the place and size they have now.
        unplaced: claims for which there was no room.
        ends_file: the range ends with the blank record of its file.
    """

    data: bytes
    placed: list[Claim] = field(default_factory=list)
    unplaced: list[Claim] = field(default_factory=list)
    ends_file: bool = False


def bridge(
    begin: int,
    end: int,
    claims: Sequence[Claim],
    loose: Sequence[Claim],
    setting: Setting,
    *,
    at_end: bool,
    light: Light,
    known: Sequence[Claim] = (),
) -> Bridge | None:
    """Fill ``[begin, end)`` of the log; None if it is too small for any record.

    Args:
        claims: records known by place, ascending, inside the range, none overlapping.
        loose: messages known to be missing here, but not where.
        at_end: the range reaches to the end of its file, where a blank record may stand.
        light: further places of the record at an offset in light queues.
        known: more records whose places in log and queue are known; what is loose goes where its queue's order allows.
    """
    spans = _spans(begin, end, claims, at_end=at_end)
    rest, made = Loose(loose, [*claims, *known] if loose else ()), Bridge(b"")
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
            record = _free(at, stop, rest, made, setting, is_end=at_end and stop == end)
        if record is None:
            return None
        pieces.append(record)
    made.data, made.unplaced = b"".join(pieces), made.unplaced + rest.unplaced()
    return made


def _spans(begin: int, end: int, claims: Sequence[Claim], *, at_end: bool) -> list[tuple[int, int, Claim | None]]:
    """The range divided: claimed records where they are, free stretches between; those too small go to a neighbour."""
    spans: list[tuple[int, int, Claim | None]] = []
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


def _free(at: int, end: int, loose: Loose, made: Bridge, setting: Setting, *, is_end: bool) -> bytes | None:
    """Records for a stretch that nothing points to: placeholders of missing messages, then filler or blank."""
    pieces: list[bytes] = []
    while (claim := loose.first(at, end)) is not None:
        size = _size_of(claim, end - at, loose.ready, setting, is_end=is_end)
        record = placeholder(replace(claim, physical=at), size, setting) if size else None
        if record is None:
            break
        made.placed.append(replace(loose.take(), physical=at, size=size))
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


def _size_of(claim: Claim, room: int, count: int, setting: Setting, *, is_end: bool) -> int:
    """Bytes for the next of ``count`` placeholders; 0 where there is no room.

    Enough for what it says, less where the room must do for many; the rest of the stretch where less could not be
    filled.
    """
    least = SMALLEST + len(claim.topic_bytes) + (22 * claim.batch if claim.batch else 0)
    wanted = least + _TEXT
    if room < count * wanted:
        wanted = max(room // count, least + _LEAST_TEXT + SIZE * setting.property_crc)
    if is_end:
        return wanted if room >= wanted + 8 else 0
    if (count == 1 and room < LARGEST_FILLER) or room < wanted + SMALLEST:
        return room
    return wanted
