"""Splitting a segment whose offsets do not fit its indexes, as brokers do with those of before 2.0 (KAFKA-6264)."""

from __future__ import annotations

from rmqctl.kafka.block import INT_MAX
from rmqctl.kafka.recovery.files import StartFails
from rmqctl.kafka.recovery.segment import BrokerSegment, Frame


def split(segment: BrokerSegment) -> list[BrokerSegment]:
    """Replace a segment by several, each of which holds batches less than 2^31 above its first offset.

    The indexes are left out: whoever recovers the segments makes them.

    Raises:
        StartFails: the file does not end with a whole batch.
        OSError: the log cannot be read.
    """
    files, data = segment.files, segment.files.read(segment.log)
    groups = list[tuple[int, list[Frame]]]()
    end = 0
    for frame in segment.frames(0):
        first = int.from_bytes(data[frame.position : frame.position + 8], "big", signed=True)
        if not groups or not 0 <= frame.last_offset - groups[-1][0] <= INT_MAX:
            groups.append((first, []))
        groups[-1][1].append(frame)
        end = frame.position + frame.size
    if end != segment.size:
        raise StartFails(f"{segment.log} cannot be split: after byte {end} there is no whole batch")
    for ending in (".log", ".index", ".timeindex", ".txnindex"):
        files.delete(segment.name(ending))
    made = list[BrokerSegment]()
    for base, frames in groups:
        new = BrokerSegment(files, base, segment.room)
        files.put(new.log, data[frames[0].position : frames[-1].position + frames[-1].size])
        made.append(new)
    return made
