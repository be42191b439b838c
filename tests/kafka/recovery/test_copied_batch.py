"""A copy of an earlier batch at the end of the last segment: where a broker of each release ends the log.

The ends are those that real brokers of 3.9.2 and 4.3.1 logged. Both read on from the last entry of the offset index;
they differ in how they look for its offset.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.recovery.replay import RecoveredPartition, recover
from rmqctl.kafka.repair.survey import Survey
from rmqctl.kafka.state import parts
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release

ENDS = {
    "4.3.1": {
        ("bigrec-0", 10): 0, ("x-delete-0", 2): 8, ("txn-a-0", 171): 172, ("plain-none-2", 155): 156,
        ("compacted-1", 339): 324, ("ooo-ts-1", 31): 0, ("z-snappy-0", 145): 149, ("z-lz4-0", 124): 100,
        ("default-geom-0", 164): 166, ("append_time-0", 111): 90, ("append_time-1", 78): 82,
    },
    "3.9.2": {
        ("bigrec-0", 16): 18, ("x-delete-0", 1): 7, ("txn-a-0", 171): 172, ("plain-none-2", 153): 155,
        ("compacted-1", 349): 329, ("ooo-ts-1", 21): 25, ("z-snappy-0", 121): 123, ("z-lz4-0", 167): 174,
        ("default-geom-0", 166): 172, ("append_time-0", 137): 99, ("append_time-1", 78): 67,
    },
}  # fmt: skip
"""By release: partition of the crashed directory, base offset of the batch, and the end that the broker logged."""


def started(name: str, copies: dict[str, int], release: str, room: Path) -> dict[str, RecoveredPartition]:
    """Partitions after a batch was written once more at the end of each, and a broker has started."""
    root = golden.unpack(name, room)
    for partition in read_directory(LocalTree(str(root))).partitions:
        if partition.directory in copies:
            survey = Survey(partition)
            row = survey.columns["base_offset"].tolist().index(copies[partition.directory])
            with (root / survey.files[-1].name).open("ab") as log:
                log.write(survey.bytes_of(survey.batch(row)))
    place = LogDirectories([read_directory(LocalTree(str(root)))])
    start = recover(Replicas(place), Release.parse(release), {"log.index.size.max.bytes": "65536"})
    return {one.key: one for one in start.partitions}


@pytest.mark.parametrize("release", ENDS)
def test_log_ends_where_brokers_end_it(release: str, tmp_path: Path) -> None:
    found = started(f"{release}-crash", dict(ENDS[release].keys()), release, tmp_path)
    assert {key: found[key[0]].loaded.log_end_offset for key in ENDS[release]} == ENDS[release]


@pytest.mark.parametrize(("release", "end"), [("4.0.1", 130), ("4.1.0", 100)])
def test_search_by_base_offsets_begins_with_4_1(
    release: str, end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a log of 4.3.1: its cluster's level of features, with which these releases do not start, is left aside."""
    monkeypatch.setattr(parts, "unsupported", lambda features, asked: "")
    found = started("4.3.1-crash", {"z-lz4-0": 124}, release, tmp_path)
    assert found["z-lz4-0"].loaded.log_end_offset == end


def test_records_after_the_end_count_as_lost_though_their_bytes_stay(tmp_path: Path) -> None:
    found = started("4.3.1-crash", {"z-lz4-0": 124}, "4.3.1", tmp_path)["z-lz4-0"]
    log = found.loaded.partition.logs[-1]
    assert found.loaded.files.size(f"{log.base:020d}.log") == log.size
    assert found.lost.records == 45 + 6  # 100 to 144, and the copy


def test_indexes_of_a_segment_that_is_given_up_keep_what_stands_in_them(tmp_path: Path) -> None:
    loaded = started("4.3.1-crash", {"append_time-0": 111}, "4.3.1", tmp_path)["append_time-0"].loaded
    index = loaded.files.read("00000000000000000090.index")
    assert (loaded.files.size("00000000000000000090.log"), len(index)) == (0, 65536)
    assert index.rstrip(b"\0")
