"""What a start leaves for the next one: damage in front of the place where it reads the log."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from fixtures import damage, golden
from fixtures.random_damage import BATCH_UNIT, UNIT, Damager
from fixtures.worse_damage import WorseDamager
from rmqctl.rocketmq.recovery import replay
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.recovery.plan import overlaid, recovery_plan
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from tests.conftest import Rmqctl

NOW = datetime(2026, 1, 1)  # noqa: DTZ001 -- names of files only


def _one_after_the_other(store: StoreFiles) -> tuple[Recovery, Recovery | None]:
    """The start, and the replay of another on what it leaves; None where there can be no second."""
    first = recover(store, index=True)
    if first.error is not None or first.emptied:
        return first, None
    plan = recovery_plan(store, first, NOW)
    return first, recover(overlaid(store, plan.edits), first.release)


def _compared(name: str, kind: type[Damager], seeds: range, room: Path) -> int:
    """Hold what the first start says of the second against the second; how many of them lose something."""
    root, damager, losing = golden.unpack(name, room), kind(name), 0
    conf = golden.write_broker_conf(name, room / f"{name}.conf")
    for seed in seeds:
        recipe = damager.recipe(seed)
        damage.apply(recipe, root)
        first, second = _one_after_the_other(open_store_at(str(root), broker_conf=str(conf)))
        if second is not None and first.log_cut is not None:
            gone = {message.physical for message in first.lost}
            lost = [m.physical for m in second.lost if m.physical < first.log_cut and m.physical not in gone]
            said = first.second
            assert ([m.physical for m in said.lost] if said is not None else []) == lost, seed
            if said is not None:
                assert said.cut == second.log_cut, seed
                assert not first.is_harmless, seed
            losing += said is not None
        damage.undo(recipe, damager.root, root)
    return losing


@pytest.mark.parametrize(
    ("name", "kind", "seeds", "losing"),
    [
        ("5.1.4-clean", Damager, range(27, 31), 1),
        ("5.1.4-crash", Damager, range(2, 5), 1),
        ("4.9.8-crash", WorseDamager, range(14, 17), 1),
        ("4.5.2-crash", WorseDamager, range(22, 25), 1),
        ("4.9.8-crash", Damager, range(89, 90), 1),  # a unit that leads beyond the log, in a queue that is cut then
    ],
)
def test_it_is_what_the_replay_of_a_second_start_finds(
    name: str, kind: type[Damager], seeds: range, losing: int, tmp_path: Path
) -> None:
    assert _compared(name, kind, seeds, tmp_path) >= losing


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Damager, WorseDamager])
@pytest.mark.parametrize("state", ["clean", "crash"])
@pytest.mark.parametrize("release", golden.RELEASES)
def test_many_second_starts(release: str, state: str, kind: type[Damager], tmp_path: Path) -> None:
    losing = _compared(f"{release}-{state}", kind, range(60), tmp_path)
    # the newest begin both times at the same file, and what kills leave of these is seldom hit by single bytes
    assert losing or state == "clean" or release in ("5.3.3", "5.5.0") or (release, kind) == ("4.9.8", Damager)


@pytest.fixture
def flipped(tmp_path: Path) -> tuple[Path, Path]:
    """A store after a kill with a wrong CRC in the third-last file of its log, and its broker's configuration."""
    root = golden.unpack("5.1.4-clean", tmp_path)
    damager = Damager("5.1.4-clean")
    damage.apply(damager.recipe(29), root)
    return root, golden.write_broker_conf("5.1.4-clean", tmp_path / "broker.conf")


def test_a_queue_that_the_next_start_cuts_is_named(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, damager = golden.unpack("4.9.8-crash", tmp_path), Damager("4.9.8-crash")
    damage.apply(damager.recipe(89), root)
    done = rmqctl("recover", root, "--broker-conf", golden.write_broker_conf("4.9.8-crash", tmp_path / "broker.conf"))
    assert done.exit_code == 1
    assert "loses no message yet" in done.stdout
    assert "it cuts queues, the first at byte 120 of consumequeue/LabOne/0/" in " ".join(done.stdout.split())


def test_a_batch_queue_that_the_next_start_cuts_is_named(tmp_path: Path) -> None:
    """A unit of a batch queue leads beyond a log whose last message was not dispatched; what follows it is cut."""
    name = "5.1.4-crash"
    root = golden.unpack(name, tmp_path)
    conf = golden.write_broker_conf(name, tmp_path / "broker.conf")
    batch = next((root / "batchconsumequeue").rglob("0000*"))
    damage.overwrite(batch, BATCH_UNIT, (1 << 24).to_bytes(8, "big"))
    last = golden.truth(name)[-2]
    place, size = UNIT * last["queueOffset"], int(golden.broker_conf(name)["mappedFileSizeConsumeQueue"])
    queue = root / "consumequeue" / last["topic"] / str(last["queueId"]) / f"{place // size * size:020d}"
    damage.overwrite(queue, place % size, bytes(UNIT))
    first, second = _one_after_the_other(open_store_at(str(root), broker_conf=str(conf)))
    assert first.second is not None
    assert (first.second.file, first.second.position) == (str(batch.relative_to(root)), BATCH_UNIT)
    assert first.lost == []
    assert second is not None
    assert second.lost == first.second.lost
    assert len(second.lost) == 1


def test_every_headline_says_it(rmqctl: Rmqctl, flipped: tuple[Path, Path]) -> None:
    root, conf = flipped
    options = ("--broker-conf", conf)
    done = rmqctl("recover", root, *options, "-o", "json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert found["lost"]["messages"] == 0
    second = found["second_start"]
    assert (second["file"], second["offset"]) == ("commitlog/00000000000000262144", 0)
    assert (second["lost"]["messages"], second["log_end"]) == (661, 262144)
    said = rmqctl("recover", root, *options).stdout
    assert "loses no message yet" in said
    assert "LOSES 661 messages, 272,436 bytes, at the start after that" in said
    assert "661 messages" in rmqctl("doctor", root, *options).stdout
    checked = rmqctl("verify", root, *options, "-o", "json")
    assert json.loads(checked.stdout)["start"]["second_start"] == second
    assert "when it is started once more" in json.loads(checked.stdout)["start"]["harm"]
    rows = [
        json.loads(line) for line in rmqctl("recover", root, *options, "--compare", "-o", "jsonl").stdout.splitlines()
    ]
    assert {row["release"]: row["lost_later"] for row in rows if row["release"].startswith("5.1")} == {
        row["release"]: 661 for row in rows if row["release"].startswith("5.1")
    }


def test_a_repaired_store_stands_the_second_start(rmqctl: Rmqctl, flipped: tuple[Path, Path]) -> None:
    root, conf = flipped
    rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes")
    first, second = _one_after_the_other(open_store_at(str(root), broker_conf=str(conf)))
    assert first.is_harmless
    assert second is not None
    assert second.is_harmless


def test_processes_that_share_it_change_nothing(flipped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root, conf = flipped
    alone = recover(open_store_at(str(root), broker_conf=str(conf)))
    monkeypatch.setattr(replay, "LEAST", 0)
    assert recover(open_store_at(str(root), broker_conf=str(conf)), processes=2).second == alone.second
