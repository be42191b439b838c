"""What a broker leaves unread at the end of a log that was stopped in order (spec 13.4): it stays in the file."""

from __future__ import annotations

from rmqctl.findings import Finding
from rmqctl.kafka.block import Gap, GapKind
from rmqctl.kafka.dump.segments import gap_finding
from rmqctl.kafka.recovery.segment import BrokerSegment

LOST = "the last entry of the offset index leads to no batch, so the segment counts as empty"


def unread_tail(segment: BrokerSegment) -> Finding | None:
    """Return the bytes of the last segment after the last batch that a broker finds; None where there are none.

    Raises:
        StartFails: a size there is less than any batch has.
        OSError: the log cannot be read.
    """
    offsets = segment.entries[0]
    first = segment.find(segment.base + (offsets[-1] if offsets else 0))
    if first is None:
        end, why = 0, LOST
    else:
        *_, last = segment.frames(first.position)
        end, why = last.position + last.size, f"{segment.size - last.position - last.size} bytes are no whole batch"
    if end == segment.size:
        return None
    name = "/".join(filter(None, (segment.files.partition.directory, segment.log)))
    return gap_finding(name, Gap(end, segment.size, GapKind.CUT, why), segment.files.partition)
