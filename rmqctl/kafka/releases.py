"""Which releases of Kafka may have written a directory, by what lies in it (spec 1, 18)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.kafka.directory import LogDirectory
from rmqctl.kafka.file_names import DirectoryState, FileKind
from rmqctl.release import Release

METADATA_VERSIONS: tuple[str, ...] = (
    "", "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1",
    "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0",
    "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0",
)  # fmt: skip
"""Level of the feature ``metadata.version`` -> its name."""
NEWEST = "4.3.1"
"""The newest release this tool knows."""
COMPARED = (Release(2, 8, 2), Release(3, 9, 2), Release(4, 3, 1))
"""One release of each family whose starts differ."""

_SINCE = {
    FileKind.OFFSET_INDEX: ("0.8.0", "offset indexes"),
    FileKind.TIME_INDEX: ("0.10.1", "time indexes"),
    FileKind.TXN_INDEX: ("0.11.0", "transaction indexes"),
    FileKind.PRODUCER_SNAPSHOT: ("0.11.0", "producer snapshots"),
    FileKind.LEADER_EPOCHS: ("0.11.0", "leader epochs"),
    FileKind.PARTITION_METADATA: ("2.8.0", "partition.metadata"),
    FileKind.KRAFT_SNAPSHOT: ("3.0.0", "snapshots of the metadata log"),
}


class Evidence(NamedTuple):
    """One fact about the release.

    Attributes:
        fact: what was seen, one phrase.
        lowest: the earliest release that leaves it; "" for any.
        highest: the latest; "" for any.
    """

    fact: str
    lowest: str = ""
    highest: str = ""

    def row(self) -> dict[str, str | None]:
        """Return the fact as a row."""
        return {"fact": self.fact, "lowest": self.lowest or None, "highest": self.highest or None}


def metadata_version_name(level: int) -> str:
    """Return the name of a level of ``metadata.version``; the number where it is later than all known."""
    return METADATA_VERSIONS[level] if 0 < level < len(METADATA_VERSIONS) else str(level)


def evidence(directory: LogDirectory, features: dict[str, int] | None, marker: bytes | None) -> Iterator[Evidence]:
    """Yield what a directory says about the release that wrote it last.

    Args:
        features: of the metadata image; None where there is none.
        marker: bytes of the clean shutdown marker; None where it is not there.
    """
    kinds = {file.kind for partition in directory.partitions for file in partition.files}
    for kind, (release, what) in _SINCE.items():
        if kind in kinds:
            yield Evidence(f"it has {what}", release)
    if any(partition.is_metadata_log for partition in directory.partitions):
        yield Evidence("it has a metadata log", "2.8.0")
    states = {partition.state for partition in directory.partitions}
    if DirectoryState.STRAY in states:
        yield Evidence("it has stray directories", "3.7.0")
    level = (features or {}).get("metadata.version")
    if level:
        name = metadata_version_name(level)
        yield Evidence(f"metadata.version is {name}", f"{name.partition('-')[0]}.0" if "-" in name else NEWEST)
    if marker is not None:
        if marker:
            yield Evidence("the clean shutdown marker has a body", "3.7.0")
        else:
            yield Evidence("the clean shutdown marker is empty", "", "3.6.9")


def release_range(found: list[Evidence]) -> list[str]:
    """Return the earliest and the latest release that fit all facts."""
    lowest = max((e.lowest for e in found if e.lowest), key=_number, default="0.8.0")
    highest = min((e.highest for e in found if e.highest), key=_number, default=NEWEST)
    return [lowest, highest] if _number(lowest) <= _number(highest) else [lowest, lowest]


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
