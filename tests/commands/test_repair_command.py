"""`rmqctl repair` through the command line: plans, choices, replicas, and what is carried out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden as golden_stores
from formats.rocketmq.message import body_crc, decode_record

Rmqctl = Callable[..., Result]
FILE = "commitlog/00000000000000131072"


@pytest.fixture
def store(golden: Callable[[str], Path]) -> Path:
    return golden("4.9.8-clean")


def record_in(name: str, *, smallest: int = 0) -> dict[str, Any]:
    """A plain record of the second file."""
    return next(
        r for r in golden_stores.truth("4.9.8-clean")
        if r["kind"] == "msg" and r["commitLogOffset"] > 160_000 and r["topic"] == name and r["bodyLen"] >= smallest
    )  # fmt: skip


def overwrite(root: Path, physical: int, data: bytes) -> None:
    with open(root / f"commitlog/{physical // 131072 * 131072:020d}", "r+b") as file:
        file.seek(physical % 131072)
        file.write(data)


def raw(root: Path, record: dict[str, Any]) -> bytes:
    data = (root / f"commitlog/{record['commitLogOffset'] // 131072 * 131072:020d}").read_bytes()
    return data[record["commitLogOffset"] % 131072 :][: record["storeSize"]]


def plan_of(rmqctl: Rmqctl, *args: object) -> dict[str, Any]:
    result = rmqctl("repair", *args, "-o", "json")
    assert result.exit_code in (0, 1), result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_a_sound_store(rmqctl: Rmqctl, store: Path) -> None:
    result = rmqctl("repair", store)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "nothing is wrong")


def test_a_plan_is_shown_and_nothing_is_written(rmqctl: Rmqctl, store: Path) -> None:
    record = record_in("LabOrders")
    overwrite(store, record["commitLogOffset"] + 4, b"\0")
    before = raw(store, record)
    result = rmqctl("repair", store)
    assert result.exit_code == 1
    assert "heal the record" in " ".join(result.stdout.split())
    assert "1 step for 1 error; no message is given up; none would be left" in result.stdout
    assert raw(store, record) == before


def test_the_plan_as_hex(rmqctl: Rmqctl, store: Path) -> None:
    record = record_in("LabOrders")
    overwrite(store, record["commitLogOffset"] + 4, b"\0")
    out = rmqctl("repair", store, "-o", "hex").stdout
    assert out.index("--- before") < out.index("--- after") < out.index("MESSAGE_V1")


def test_apply_and_undo(rmqctl: Rmqctl, store: Path) -> None:
    record = record_in("LabOrders")
    true = raw(store, record)
    overwrite(store, record["commitLogOffset"] + 4, b"\0")
    result = rmqctl("repair", store, "--apply")
    assert result.exit_code == 0, result.stderr
    assert "to take it back, type: rmqctl undo" in result.stderr
    assert raw(store, record) == true
    assert rmqctl("verify", store, "--no-notes").exit_code == 0
    assert rmqctl("repair", store).exit_code == 0


def test_only_and_skip(rmqctl: Rmqctl, store: Path) -> None:
    overwrite(store, record_in("LabOrders")["commitLogOffset"] + 4, b"\0")
    (store / "commitlog/notes.bak").write_bytes(b"x")
    assert {s["id"] for s in plan_of(rmqctl, store)["steps"]} == {"log.bad-record", "log.file-name"}
    assert {s["id"] for s in plan_of(rmqctl, store, "--only", "log.bad-record")["steps"]} == {"log.bad-record"}
    assert {s["id"] for s in plan_of(rmqctl, store, "--skip", "log.bad-record")["steps"]} == {"log.file-name"}
    result = rmqctl("repair", store, "--only", "log.nonsense")
    assert (result.exit_code, "is the id of no finding" in result.stderr) == (2, True)
    near = rmqctl("repair", store, "--only", "queue.file-gab")
    assert (near.exit_code, "did you mean queue.file-gap" in near.stderr) == (2, True)


def test_a_destroyed_range_comes_from_a_replica(rmqctl: Rmqctl, store: Path, tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    shutil.copytree(golden_stores.pristine("4.9.8-clean"), replica)
    record = record_in("LabOrders", smallest=50)
    true = raw(store, record)
    overwrite(store, record["commitLogOffset"], bytes(record["storeSize"] // 2))
    bridged = plan_of(rmqctl, store)
    assert bridged["summary"]["loses"] == 1
    assert "bridge" in bridged["steps"][0]["what"]
    found = plan_of(rmqctl, store, "--from", replica, "--apply")
    assert (found["summary"]["loses"], found["summary"]["after"]) == (0, 0)
    assert "replica" in found["steps"][0]["what"]
    assert raw(store, record) == true


def test_a_replica_of_another_log_is_not_believed(rmqctl: Rmqctl, store: Path) -> None:
    record = record_in("LabOrders", smallest=50)
    overwrite(store, record["commitLogOffset"], bytes(record["storeSize"] // 2))
    found = plan_of(rmqctl, store, "--from", golden_stores.pristine("5.5.0-clean"))
    assert "bridge" in found["steps"][0]["what"]


def test_a_missing_file_comes_from_a_replica(rmqctl: Rmqctl, store: Path) -> None:
    pristine = golden_stores.pristine("4.9.8-clean")
    (store / FILE).unlink()
    found = plan_of(rmqctl, store, "--from", pristine, "--apply")
    assert found["summary"]["loses"] == 0
    assert (store / FILE).read_bytes() == (pristine / FILE).read_bytes()


@pytest.mark.parametrize("policy", ["placeholder", "accept"])
def test_a_body_that_nothing_heals(rmqctl: Rmqctl, store: Path, policy: str) -> None:
    record = record_in("LabOrders", smallest=200)
    body_at = record["commitLogOffset"] + 88
    overwrite(store, body_at + 10, b"garbage over thirty bytes long")
    found = plan_of(rmqctl, store, "--body-damage", policy, "--apply")
    assert found["summary"]["loses"] == 1
    assert found["summary"]["after"] == 0
    fields, size = decode_record(raw(store, record))
    assert size == record["storeSize"]
    assert fields["body_crc"] == body_crc(fields["body"])
    assert (b"garbage" in fields["body"]) == (policy == "accept")
    assert (b"RMQCTL_PLACEHOLDER" in fields["properties"]) == (policy == "placeholder")
    for name, value in record["properties"].items():
        assert f"{name}\x01{value}".encode() in fields["properties"]


def test_neutralize(rmqctl: Rmqctl, store: Path) -> None:
    record = record_in("LabOrders")
    found = plan_of(rmqctl, store, "--neutralize", record["commitLogOffset"], "--apply")
    assert found["steps"][0]["id"] == "message.neutralize"
    fields, _ = decode_record(raw(store, record))
    assert (fields["queue_id"], fields["queue_offset"]) == (record["queueId"], record["queueOffset"])
    assert b"RMQCTL_PLACEHOLDER" in fields["properties"]
    assert rmqctl("verify", store, "--no-notes").exit_code == 0


def test_neutralize_where_no_record_begins(rmqctl: Rmqctl, store: Path) -> None:
    result = rmqctl("repair", store, "--neutralize", 17)
    assert (result.exit_code, "no record begins at offset 17" in result.stderr) == (13, True)


def test_configuration(rmqctl: Rmqctl, store: Path) -> None:
    backup = (store / "config/topics.json.bak").read_bytes()
    (store / "config/topics.json").write_bytes(backup[:40])
    offsets = store / "config/consumerOffset.json"
    text = offsets.read_text()
    damaged = text.replace('"LabOrders@Lab_grpFull":{0:', '"LabOrders@Lab_grpFull":{0:9', 1)
    assert damaged != text
    offsets.write_text(damaged)
    found = plan_of(rmqctl, store, "--apply")
    assert {s["id"] for s in found["steps"]} == {"config.fallback", "config.consumer-offset"}
    assert found["summary"]["after"] == 0
    known, before = json.loads((store / "config/topics.json").read_bytes()), json.loads(backup)
    made = known["topicConfigTable"].pop("TRANS_CHECK_MAX_TIME_TOPIC")  # which the backup is too old to have
    assert (made["readQueueNums"], known) == (1, before)


def test_tables_made_anew(rmqctl: Rmqctl, store: Path) -> None:
    for name in ("topics.json", "delayOffset.json"):
        (store / "config" / name).write_bytes(b"{")
        (store / "config" / f"{name}.bak").unlink()
    found = plan_of(rmqctl, store, "--apply")
    assert found["summary"]["after"] == 0
    topics = json.loads((store / "config/topics.json").read_text())["topicConfigTable"]
    assert topics["LabOrders"]["readQueueNums"] == 4
    before = json.loads(
        (golden_stores.pristine("4.9.8-clean") / "config/delayOffset.json")
        .read_text()
        .replace("{1:", '{"1":')
        .replace(",2:", ',"2":')
        .replace(",9:", ',"9":')
    )
    after = json.loads((store / "config/delayOffset.json").read_text())
    assert {k: v for k, v in before["offsetTable"].items() if k != "9"}.items() <= after["offsetTable"].items()
