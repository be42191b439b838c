"""The last entry of an active offset index, with a bit too many: a broker that was stopped in order believes it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqctl.kafka.directory.directory import LogDirectories
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.repair.plan import RepairOptions, overlaid, plan_repair
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.verify.driver import Verification
from rmqctl.release import Release
from tests.kafka.repair.judged import opened
from tests.kafka.repair.markers_helpers import alone

_ENTRY = struct.Struct(">ii")


@pytest.mark.parametrize(
    "partition", ["plain-none-1", "append_time-0", "z-gzip-0", "z-gzip-1", "txn-a-0", "compacted-1"]
)
@pytest.mark.parametrize("release", ["3.9.2", "4.3.1"])
def test_verify_and_topics_say_what_a_start_does(release: str, partition: str, tmp_path: Path) -> None:
    root = alone(f"{release}-clean", partition, tmp_path)
    (root / ".kafka_cleanshutdown").touch()
    (found,) = opened(root).partitions
    last = found.segments[-1]
    assert last.offset_index is not None
    path = root / last.offset_index.name
    data = path.read_bytes()
    if not data:
        pytest.skip("its active index has no entry")
    end = _ends(root, release)[1]
    relative, position = _ENTRY.unpack(data[-8:])
    for bit in (n for n in range(31) if not relative & 1 << n):
        path.write_bytes(data[:-8] + _ENTRY.pack(relative | 1 << bit, position))
        foreseen, told = _ends(root, release)
        assert foreseen == told
        is_lost = foreseen < end
        assert is_lost == (last.base + (relative | 1 << bit) >= end)
        kinds = {finding.kind.id for finding in Verification(opened(root)).findings()}
        assert ("offset-index.entry" in kinds) == is_lost
    staged = tmp_path / "staged"
    staged.mkdir()
    before = opened(root)
    plan = plan_repair(before, RepairOptions(Release.parse(release)), staged)
    (after,) = Replicas(LogDirectories([overlaid(before, plan.plan.steps)])).served
    assert (after.replayed.log_end_offset, plan.refusal) == (end, "")


def _ends(root: Path, release: str) -> tuple[int, int]:
    """Where a start ends the log, and where `topics` says that it ends."""
    replicas = Replicas(LogDirectories([opened(root)]))
    (partition,) = recover(replicas, Release.parse(release)).partitions
    (log,) = replicas.served
    return partition.loaded.log_end_offset, log.replayed.log_end_offset
