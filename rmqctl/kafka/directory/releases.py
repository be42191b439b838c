"""Which releases of Kafka may have written a directory, by what lies in it (spec 1, 18)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rmqctl.kafka.directory.directory import LogDirectory
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind
from rmqctl.release import Release

METADATA_VERSIONS: tuple[str, ...] = (
    "", "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1",
    "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0",
    "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0",
    "4.4-IV0", "4.4-IV1", "4.4-IV2",
)  # fmt: skip
"""Level of the feature ``metadata.version`` -> its name."""
NEWEST = "4.4.0"
"""The newest release this tool knows."""
COMPARED = (Release(2, 8, 2), Release(3, 9, 2), Release(4, 3, 1))
"""One release of each family whose starts differ."""
KNOWN: Mapping[tuple[int, int], int] = {
    (0, 8): 2, (0, 9): 0, (0, 10): 2, (0, 11): 0, (1, 0): 2, (1, 1): 1, (2, 0): 1, (2, 1): 1, (2, 2): 2, (2, 3): 1,
    (2, 4): 1, (2, 5): 1, (2, 6): 3, (2, 7): 2, (2, 8): 2, (3, 0): 2, (3, 1): 2, (3, 2): 3, (3, 3): 2, (3, 4): 1,
    (3, 5): 2, (3, 6): 2, (3, 7): 2, (3, 8): 1, (3, 9): 2, (4, 0): 2, (4, 1): 2, (4, 2): 2, (4, 3): 1, (4, 4): 0,
}  # fmt: skip
"""The newest patch of each series whose rules are known; of a release with four numbers the first three count."""
METADATA_VERSION = "metadata.version"
FEATURES: Mapping[Release, Mapping[str, tuple[int, int]]] = {
    Release(3, 3, 2): {METADATA_VERSION: (1, 7)},
    Release(3, 9, 2): {METADATA_VERSION: (1, 21), "kraft.version": (0, 1)},
    Release(4, 0, 0): {
        METADATA_VERSION: (7, 25), "eligible.leader.replicas.version": (0, 1), "group.version": (0, 1),
        "kraft.version": (0, 1), "transaction.version": (0, 2),
    },
    Release(4, 3, 1): {
        METADATA_VERSION: (7, 30), "eligible.leader.replicas.version": (0, 1), "group.version": (0, 1),
        "kraft.version": (0, 1), "share.version": (0, 1), "streams.version": (0, 1), "transaction.version": (0, 2),
    },
    Release(4, 4, 0): {
        METADATA_VERSION: (7, 33), "eligible.leader.replicas.version": (0, 1), "group.version": (0, 1),
        "kraft.version": (0, 1), "share.version": (0, 2), "streams.version": (0, 1), "transaction.version": (0, 2),
    },
}  # fmt: skip
"""Lowest and highest level of each feature that a release supports (``QuorumFeatures``), where its jars were asked."""
_WITHOUT_EARLY_LEVELS = Release(4, 0, 0), 7
"""The first release that reads no metadata of before 3.3-IV3, and the level of that."""


def known_release(release: Release | None) -> Release | None:
    """Return a release that was asked for as one whose rules are known.

    Raises:
        WrongUsage: it is none.
    """
    return None if release is None else release.among(KNOWN, "Kafka")


def features_of_release(release: Release) -> Mapping[str, tuple[int, int]]:
    """Return lowest and highest level of each feature that a release supports: of the one whose jars were asked in its
    series, else of ``metadata.version`` alone.
    """
    asked = [known for known in FEATURES if known[:2] == release[:2]]
    return FEATURES[asked[0]] if asked else {METADATA_VERSION: _metadata_versions(release)}


def unsupported(features: Mapping[str, int], release: Release) -> str:
    """Return why a release does not start with levels of features, one phrase; "" where it does, or nobody knows.

    A broker that reads a level which it does not support ends (``FeaturesPublisher``, ``MetadataVersion``).
    """
    asked = features_of_release(release)
    for name, level in features.items():
        if name not in asked:
            if level and any(known[:2] == release[:2] for known in FEATURES):
                return f"feature {name} has level {level}, and {release} does not know it"
            continue
        lowest, highest = asked[name]
        if level and highest < lowest:
            return f"feature {name} has level {level}, and {release} does not know it"
        if level and not lowest <= level <= highest:
            return f"feature {name} has level {level}, and {release} supports {lowest} to {highest}"
    return ""


def _metadata_versions(release: Release) -> tuple[int, int]:
    """Lowest and highest level of ``metadata.version`` of a release, by the names of the levels."""
    since, first = _WITHOUT_EARLY_LEVELS
    named = [(level, name.partition("-")[0].split(".")) for level, name in enumerate(METADATA_VERSIONS) if name]
    highest = max((level for level, (major, minor) in named if (int(major), int(minor)) <= release[:2]), default=0)
    return (first if release >= since else 1), highest


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


def evidence(
    directory: LogDirectory, features: Mapping[str, int], formatted: Mapping[str, int], marker: bytes | None
) -> Iterator[Evidence]:
    """Yield what a directory says about the release that wrote it last.

    Args:
        features: of the metadata image; empty where there is none.
        formatted: of ``bootstrap.checkpoint``, which has those of the day when the directory was formatted. They
            count where the image has none: a release since then is not below them.
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
    known, when = (features, "is") if features.get(METADATA_VERSION) else (formatted, "was formatted as")
    if level := known.get(METADATA_VERSION):
        name = metadata_version_name(level)
        yield Evidence(f"{METADATA_VERSION} {when} {name}", f"{name.partition('-')[0]}.0" if "-" in name else NEWEST)
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
