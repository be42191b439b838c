"""Sound records in destroyed ranges of the log that belong elsewhere: bytes put in or taken out, swapped blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from formats.errors import DecodeError
from formats.rocketmq.message import Magic, decode_record
from rmqctl.repair.edits import Step
from rmqctl.rocketmq.crc import MASK, crc32
from rmqctl.rocketmq.mend.damage import Gap
from rmqctl.rocketmq.mend.heal import SMALLEST
from rmqctl.rocketmq.mend.mending import Mending
from rmqctl.text import number_of

_MAGICS = tuple(int(m).to_bytes(4, "big", signed=True) for m in (Magic.MESSAGE_V1, Magic.MESSAGE_V2))
_MOST = 256 << 20
"""Bytes of destroyed ranges that are searched."""
_PLACE = slice(28, 36)


def displaced_steps(mending: Mending) -> tuple[list[Step], set[int]]:
    """Steps that put such records back where they say they were, and the begins of the ranges that these fill.

    The bytes of each are sound, and the place that it states lies in a destroyed range: nothing sound is written over.

    Raises:
        OSError: the log cannot be read.
    """
    gaps = [gap for gap in mending.damage.gaps if not gap.file.lead]
    if sum(_limit(gap) - gap.begin for gap in gaps) > _MOST:
        return [], set()
    data = {gap.begin: mending.log.read(gap.begin, _limit(gap) - gap.begin) for gap in gaps}
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
            edits = mending.edits(gap.begin, data[gap.begin], bytes(after))
            steps.append(Step(gap.finding.kind.id, gap.file.name, what, why, edits))
    return steps, {gap.begin for gap in gaps if found[gap.begin]}


def _limit(gap: Gap) -> int:
    """Where the range ends in which records may have been; at the end of the log that is the end of the file."""
    return gap.file.base + gap.file.size if gap.is_tail else gap.end


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Sound records with a body, anywhere in some bytes, each with its place in them; none overlaps another."""
    at = 0
    while (at := _next_magic(data, at)) >= 0:
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if SMALLEST <= size <= len(data) - at and _is_sound(data[at : at + size]):
            yield at, data[at : at + size]
            at += size
        else:
            at += 1


def _next_magic(data: bytes, start: int) -> int:
    """Where the next record may begin; -1 if nowhere."""
    found = [at - 4 for at in (data.find(magic, start + 4) for magic in _MAGICS) if at >= 0]
    return min(found, default=-1)


def _is_sound(raw: bytes) -> bool:
    """Whether the bytes are exactly one record, and its body has the CRC that it states."""
    try:
        fields, end = decode_record(raw)
    except DecodeError:
        return False
    return bool(end == len(raw) and fields["body"] and fields["body_crc"] == crc32(fields["body"]) & MASK)


def _apart(records: dict[int, bytes]) -> Sequence[tuple[int, bytes]]:
    """Records by place, without those that overlap the one in front."""
    kept: list[tuple[int, bytes]] = []
    for place, raw in sorted(records.items()):
        if not kept or kept[-1][0] + len(kept[-1][1]) <= place:
            kept.append((place, raw))
    return kept
