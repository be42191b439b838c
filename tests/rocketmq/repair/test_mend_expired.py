"""Queue files of an expired part of the log, damaged: what is left must serve every offset from the smallest on."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.findings import Severity
from rmqctl.release import Release
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

SIZE, UNIT, PER_FILE = 131072, 20, 50


def first_live(base: str, begin: int) -> dict[str, int]:
    """Queue offset of the first message that the log still has, by queue."""
    found: dict[str, int] = {}
    for record in (r for r in golden.truth(base) if r["kind"] == "msg" and not r["sysFlag"] & 0x4):
        if record["commitLogOffset"] >= begin:
            found.setdefault(f"{record['topic']}/{record['queueId']}", record["queueOffset"])
    return found


def garbage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(UNIT * (PER_FILE - 1))
        file.write(struct.pack(">qiq", 4 * SIZE + 5, 1, -1))


def zeros(path: Path) -> None:
    path.write_bytes(bytes(UNIT * PER_FILE))


def zeros_in_front(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(UNIT * 7))


def zeros_within(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(UNIT * 2)
        file.write(bytes(UNIT * 3))


@pytest.mark.parametrize("damage", [garbage, zeros, zeros_in_front, zeros_within])
@pytest.mark.parametrize("files", [1, 2, 3])
@pytest.mark.parametrize("base", ["4.9.8-clean", "5.5.0-clean"])
def test_damaged_files_of_what_has_expired_go_too(base: str, files: int, damage: Any, tmp_path: Path) -> None:
    root = golden.unpack(base, tmp_path)
    names = sorted(p.name for p in (root / "commitlog").iterdir())
    for name in names[:files]:
        (root / "commitlog" / name).unlink()
    begin, hit = int(names[files]), []
    for queue in (p for p in (root / "consumequeue").glob("*/*") if p.is_dir()):
        first = min(queue.iterdir())
        if struct.unpack_from(">q", first.read_bytes(), 7 * UNIT)[0] < begin and len(list(queue.iterdir())) > 1:
            hit.append(f"{queue.parent.name}/{queue.name}")
            damage(first)
    assert hit
    settings = golden.broker_conf(base)
    store = open_store_at(str(root))
    store.settings = settings
    apply(plan_repair(store, RepairOptions(), tmp_path).plan, journal_dir=tmp_path / "journal")
    again = open_store_at(str(root))
    again.settings = settings
    assert [f for f in Verification(again, VerifyOptions()).findings() if f.level is not Severity.NOTE] == []
    live = first_live(base, begin)
    for release in ("4.9.8", "5.5.0"):
        low = {f"{t}/{q}": least for t, q, least, _ in recover(again, Release.parse(release)).ranges()}
        assert {queue: low[queue] for queue in hit if queue in live} == {q: live[q] for q in hit if q in live}
