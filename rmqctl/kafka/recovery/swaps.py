"""The files that a clean-up or a split left half done, finished or thrown away (spec 13.1)."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.kafka.recovery.files import PartitionFiles
from rmqctl.kafka.recovery.producers import offset_of
from rmqctl.kafka.recovery.segment import BrokerSegment
from rmqctl.release import Release

SWAP, CLEANED, DELETED = ".swap", ".cleaned", ".deleted"
_RENAMES = Release(2, 8, 2)
"""The last release that recovers each ``.swap`` segment and then puts it in; later ones rename all files."""


def finish_swaps(
    files: PartitionFiles,
    segment_of: Callable[[int, str], BrokerSegment],
    recover: Callable[[BrokerSegment], int],
    release: Release,
) -> None:
    """Delete what is temporary, and put the segments in that were ready to be.

    Raises:
        StartFails: a temporary file has no offset in its name.
    """
    swaps = _delete_temporary(files)
    if release <= _RENAMES:
        _swap_one_by_one(files, swaps, segment_of, recover)
        return
    low, high = 1 << 63, -1 << 63
    for name in swaps:
        if name.endswith(f".log{SWAP}"):
            segment = segment_of(offset_of(name), SWAP)
            low, high = min(low, segment.base), max(high, segment.next_offset())
    for name in files.names():
        text = name.partition(".")[0]
        if not name.endswith(SWAP) and text.isascii() and text.isdigit() and low <= int(text) < high:
            files.delete(name)
    for name in files.names():
        if name.endswith(SWAP):
            files.rename(name, name.removesuffix(SWAP))


def _delete_temporary(files: PartitionFiles) -> list[str]:
    """Remove ``.deleted`` and ``.cleaned`` files, and swaps of a split that was not complete; the other swaps."""
    cleaned, swaps = list[str](), list[str]()
    for name in files.names():
        if name.endswith(DELETED) and not name.endswith(f".checkpoint{DELETED}"):
            files.delete(name)
        elif name.endswith(CLEANED):
            cleaned.append(name)
        elif name.endswith(SWAP):
            swaps.append(name)
    least = min((offset_of(name) for name in cleaned), default=1 << 63)
    dropped = [name for name in swaps if offset_of(name) >= least]
    for name in (*dropped, *cleaned):
        files.delete(name)
    return [name for name in swaps if name not in dropped]


def _swap_one_by_one(
    files: PartitionFiles,
    swaps: list[str],
    segment_of: Callable[[int, str], BrokerSegment],
    recover: Callable[[BrokerSegment], int],
) -> None:
    """Make the indexes of each swapped log again, and remove the segments that it stands for, as 2.8 does."""
    for name in swaps:
        for ending in (".index", ".timeindex", ".txnindex"):
            files.delete(f"{offset_of(name):020d}{ending}")
        if not name.endswith(f".log{SWAP}"):
            files.delete(name)
    for name in sorted(n for n in swaps if n.endswith(f".log{SWAP}")):
        segment = segment_of(offset_of(name), SWAP)
        recover(segment)
        end = segment.next_offset()
        for old in files.names():
            text = old.partition(".")[0]
            if old.endswith(".log") and text.isdigit() and segment.base <= int(text) < end:
                for ending in (".log", ".index", ".timeindex", ".txnindex"):
                    files.delete(f"{text}{ending}")
        for made in files.names():
            if made.startswith(f"{segment.base:020d}.") and made.endswith(SWAP):
                files.rename(made, made.removesuffix(SWAP))
