"""A plan looks again only at partitions that it changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqctl.files.local import LocalFile
from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.kafka.verify.driver import Verification
from rmqctl.release import Release
from tests.conftest import Rmqctl
from tests.kafka.repair.judged import opened


def test_a_plan_reads_sound_partitions_once(rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, room, count = tmp_path / "logs", tmp_path / "room", Counter[str]()
    made = ["--format", "kafka", "--topic", "T", "--partitions", "4", "--count", "4000", "--size", "500"]
    assert rmqctl("produce", root, *made, "--seed", 1).exit_code == 0
    log = root / "T-2" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:2000] + bytes(3000) + log.read_bytes()[5000:])
    room.mkdir()
    for name in ("read_at", "read_into"):
        read = getattr(LocalFile, name)

        def counted(file: LocalFile, *arguments: Any, read: Any = read) -> Any:
            found = read(file, *arguments)
            if file.path.endswith(".log"):
                count[Path(file.path).parent.name] += found if isinstance(found, int) else len(found)
            return found

        monkeypatch.setattr(LocalFile, name, counted)
    list(Verification(opened(root)).findings())
    once = dict(count)
    count.clear()
    found = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), room)
    assert found.plan.steps
    for partition in ("T-0", "T-1", "T-3"):
        assert count[partition] < 2.1 * once[partition]  # by the first verification, and by the start on the result
    assert count["T-2"] < 11 * once["T-2"]  # two of them are for the books: before the plan, and after it
