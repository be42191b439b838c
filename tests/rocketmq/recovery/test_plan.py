"""`recover --apply` as a library: afterwards nothing is left to do, and queues hold the units of the broker."""

from __future__ import annotations

import errno
import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.repair.execute import apply, undo
from rmqctl.rocketmq.recovery.plan import recovery_plan
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
_SCHEDULE = "SCHEDULE_TOPIC_XXXX"  # the recording store of 4.9.8 had no table of delay levels
CHOSEN = (
    "crash/none",
    "crash/body-flip-last-file",
    "crash/cq-all-deleted",
    "crash/checkpoint-zero",
    "crash/delete-first-file",
    "clean/body-flip-last-file",
    "clean/cq-last-5-units-zeroed",
    "clean/torn-tail-only-header",
    "clean/abort-added+cq-one-queue-deleted",
    "clean/abort-added+checkpoint-zero+cq-all-deleted+index-all-deleted",
)


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("release", golden.RELEASES)
def test_nothing_is_left_to_do_and_undo_brings_everything_back(release: str, name: str, tmp_path: Path) -> None:
    variant = golden.recovery_oracle(release)["variants"][name]
    base = f"{release}-{name.partition('/')[0]}"
    root = golden.unpack(base, tmp_path)
    damage.apply(variant["recipe"], root)
    before = _state(root)
    found = recover(_store(root, base), Release.parse(release), index=True)
    done = apply(recovery_plan(_store(root, base), found, NOW))
    again = recover(_store(root, base), Release.parse(release))
    assert (again.end, again.deleted, again.index_deleted, again.lost) == (found.end, [], [], [])
    assert [again.normal, again.redispatched, again.index_keys] == [True, 0, 0]
    # the minimum of a queue that begins with fillers is found anew at each start, and differently (spec 3.9)
    assert [r[:2] + r[3:] for r in again.ranges()] == [r[:2] + r[3:] for r in found.ranges()]
    assert _units(root, variant["result"]) == _expected_units(variant["result"])
    heads = _index_headers(found)
    assert heads == _headers_of(variant["result"])[len(variant["result"]["indexAfter"]) - len(heads) :]
    if done.journal is not None:
        undo(done.journal)
    assert _state(root) == before


def _store(root: Path, base: str) -> StoreFiles:
    return open_store(LocalTree(root), settings=golden.broker_conf(base))


def _state(root: Path) -> dict[str, tuple[str, int]]:
    files = (p for p in sorted(root.rglob("*")) if p.is_file())
    return {str(p.relative_to(root)): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns) for p in files}


def _units(root: Path, result: dict[str, Any]) -> dict[str, str]:
    """The oracle's hash of the units from min to max of each queue."""
    found = {}
    for name in _expected_units(result):
        low, high = result["afterStart"]["queues"][name]
        data = {int(p.name): p.read_bytes() for p in (root / "consumequeue" / name).glob("0*")}
        raw = b"".join(
            data[o - o % 1000][o % 1000 : o % 1000 + 20] if o - o % 1000 in data else b""
            for o in range(low * 20, high * 20, 20)
        )
        found[name] = hashlib.sha256(raw).hexdigest()[:16]
    return found


def _expected_units(result: dict[str, Any]) -> dict[str, str]:
    return {name: units for name, units in result["cqSha256AfterStart"].items() if not name.startswith(_SCHEDULE)}


def _index_headers(found: Any) -> list[tuple[int, int, int, int]]:
    heads = found.index.heads
    return [(h.begin_timestamp, h.end_timestamp, h.end_phy_offset, h.index_count) for h in heads]


def _headers_of(result: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    heads = [result["indexAfter"][name] for name in sorted(result["indexAfter"], key=_age)]
    return [(h["beginTimestamp"], h["endTimestamp"], h["endPhy"], h["indexCount"]) for h in heads]


def _age(name: str) -> tuple[bool, str]:
    return name.startswith("<"), name


def test_a_file_of_the_log_that_may_not_be_read_is_named(
    tmp_path: Path, rmqctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk need not reach it: a broker maps every file when it loads."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    hidden, opens = str(sorted((root / "commitlog").iterdir())[1]), os.open

    def refused(path: str, *words: Any, **given: Any) -> int:
        if os.fspath(path) == hidden:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opens(path, *words, **given)

    monkeypatch.setattr(os, "open", refused)
    result = rmqctl("recover", root)
    assert result.exit_code == 10
    assert hidden in result.stderr


@pytest.mark.parametrize("length", [0, 10, 4096])
def test_a_checkpoint_that_is_too_short_becomes_whole(length: int, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-crash", tmp_path)
    sound = (root / "checkpoint").read_bytes()
    (root / "checkpoint").write_bytes(sound[:length])
    before = _state(root)
    found = recover(_store(root, "5.5.0-crash"), Release(5, 5, 0), index=True)
    done = apply(recovery_plan(_store(root, "5.5.0-crash"), found, NOW))
    after = (root / "checkpoint").read_bytes()
    assert len(after) == 4096
    assert any(after[:8])
    assert done.journal is not None
    undo(done.journal)
    assert _state(root) == before
