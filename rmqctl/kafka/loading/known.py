"""Logs that somebody has read already, so that a replay of a start does not read them again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy.typing as npt

from rmqctl.kafka.directory.directory import LogDirectory, Partition, Segment
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.loading.files import Content
from rmqctl.kafka.loading.producers import Marker
from rmqctl.kafka.log.block import Batches, Gap

_MOST = 1 << 19
"""Batches that are kept at most, each about 120 bytes."""


class Headers(Batches, Protocol):
    """Batches with what lies between them, and what their markers say, by row; their bytes are gone."""

    @property
    def gaps(self) -> list[Gap]: ...
    @property
    def markers(self) -> dict[int, Marker]: ...
    def take(self, keep: npt.NDArray[Any], /) -> Headers: ...


class KnownLogs:
    """Headers of the logs of one directory that a start reads: of those not flushed, and of the last ones.

    Kept is a log in which batch follows batch from its first byte to its last, each with the right CRC: whoever reads
    it stops nowhere. All others are left to the replay.
    """

    def __init__(self, directory: LogDirectory) -> None:
        self.directory, self._points = directory, Checkpoints(directory)
        self._headers: dict[str, list[Headers]] = {}
        self._kept = 0

    def watch(self, partition: Partition, segment: Segment, found: Headers | OSError) -> None:
        """Take the next split of a log, as a verification reads it."""
        log = segment.log
        if log is None or not self._is_wanted(partition, segment):
            return
        headers = self._headers.setdefault(log.name, [])
        if isinstance(found, OSError) or found.gaps or not found.crc_ok.all() or self._kept + len(found) > _MOST:
            del headers[:]
            return
        headers.append(found)
        self._kept += len(found)

    def _is_wanted(self, partition: Partition, segment: Segment) -> bool:
        later = [other.base for other in partition.segments if other.base > segment.base]
        if not later:
            return True
        if self.directory.is_clean and not partition.is_metadata_log:
            return False
        point = 0 if partition.is_metadata_log else self._points.offset(FileKind.RECOVERY_POINTS, partition) or 0
        return min(later) > point

    def __len__(self) -> int:
        return sum(map(bool, self._headers.values()))

    def of(self, content: Content) -> Sequence[Headers] | None:
        """Return the headers of all batches of a log that stands as it is on disk; None where they are not known."""
        log = content.stored
        if log is None or not content.kept == content.size == log.size or log.tree is not self.directory.tree:
            return None
        found = self._headers.get(log.name)
        return found if found and _is_whole(found, log.size) else None


def _is_whole(found: Sequence[Headers], size: int) -> bool:
    """Whether batches cover a log from its first byte to its last."""
    parts = [part for part in found if len(part)]
    if not parts:
        return False
    ends = [int(part.position[-1] + part.size[-1]) for part in parts]
    joined = all(end == int(after.position[0]) for end, (_, after) in zip(ends, pairwise(parts), strict=False))
    inside = all((part.position[1:] == (part.position + part.size)[:-1]).all() for part in parts)
    return joined and inside and int(parts[0].position[0]) == 0 and ends[-1] == size
