"""`repair` of RocksDB databases: after it they hold what they held before the damage, and `undo` brings the damage back."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden as stores
from formats.rocketmq.rocksdb_messages import TIMER_DELIVERED, TIMER_SCANNED
from rmqctl.rocketmq.rebuild.databases import message_database, open_old
from rmqctl.rocketmq.store.databases import DatabaseDamaged
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.repair.databases_helpers import (
    CFG,
    CQ,
    DAMAGES,
    LITE,
    MESSAGES,
    MIX,
    MSG,
    POP,
    QUEUES,
    SEPARATE,
    Damage,
    content,
    key_where,
)
from tests.rocketmq.verify.databases_helpers import edit

rocksdict = pytest.importorskip("rocksdict")
Golden = Callable[[str], Path]
V2 = "5.5.0-rdbcfgv2-clean"


def hashes(root: Path) -> dict[str, str]:
    files = (p for p in root.rglob("*") if p.is_file())
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def long_mark(database: Any) -> None:
    rows = database.get_column_family("timer")
    rows[TIMER_SCANNED] = b"\x01" * 20


def test_a_record_that_was_stored_at_the_end_of_all_time(golden: Golden, tmp_path: Path) -> None:
    root = golden(MSG)
    file = next((root / "commitlog").iterdir())
    with open(file, "r+b") as log:
        log.seek(56)
        log.write(((1 << 63) - 5).to_bytes(8, "big"))
    before = content(root, MESSAGES)["timer"]
    assert timers_made_new(root, tmp_path)[TIMER_DELIVERED] == before[TIMER_DELIVERED]


def test_a_mark_that_is_too_long_is_not_taken_over(golden: Golden, tmp_path: Path) -> None:
    root = golden(MSG)
    for file in (root / "commitlog").iterdir():
        file.unlink()
    edit(root / MESSAGES, long_mark)
    assert timers_made_new(root, tmp_path)[TIMER_SCANNED] == bytes(8)


def timers_made_new(root: Path, room: Path) -> dict[bytes, bytes]:
    store = open_store_at(str(root))
    with open_old(store, MESSAGES, room) as old:
        made = message_database(store, old, room)
    shutil.rmtree(root / MESSAGES)
    made.place(root)
    return content(root, MESSAGES)["timer"]


@pytest.mark.parametrize(("name", "path", "damage"), DAMAGES, ids=lambda value: getattr(value, "__name__", value))
def test_rows_are_as_before(name: str, path: str, damage: Damage, golden: Golden, rmqctl: Any) -> None:
    root = golden(name)
    before = content(root, path)
    edit(root / path, damage)
    for file in (root / path).glob("rocksdict-config.json"):
        file.unlink()
    damaged = hashes(root)
    assert content(root, path) != before
    result = rmqctl("repair", root, "--apply", "--yes")
    assert result.exit_code == 0, result.stdout + result.stderr
    after = content(root, path)
    assert after == before
    assert rmqctl("verify", root).exit_code == 0
    assert rmqctl("undo", root, "--yes").exit_code == 0
    assert hashes(root) == damaged


@pytest.mark.parametrize(
    ("name", "path"), [(CQ, SEPARATE), (MIX, QUEUES), (CFG, QUEUES), (LITE, SEPARATE), ("5.5.0-rocksdb-clean", QUEUES)]
)
@pytest.mark.parametrize("gone", ["MANIFEST-*", "*.sst", "CURRENT"])
def test_queues_of_a_database_that_cannot_be_opened(
    name: str, path: str, gone: str, golden: Golden, rmqctl: Any
) -> None:
    root = golden(name)
    before = content(root, path)
    for file in (root / path).glob(gone):
        file.write_bytes(b"\xa5" * file.stat().st_size)
    conf = stores.write_broker_conf(name, root.with_name("broker.conf"))
    result = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes")
    assert result.exit_code == 0, result.stdout + result.stderr
    after = content(root, path)
    assert after["default"] == before["default"]
    ends = {key: value for key, value in before["offset"].items() if b"\x01min\x01" not in key}
    assert {key: value for key, value in after["offset"].items() if b"\x01min\x01" not in key} == ends
    assert rmqctl("verify", root).exit_code == 0


@pytest.mark.parametrize(("name", "path"), [(CQ, SEPARATE), (CFG, QUEUES), (MSG, MESSAGES), (CFG, "config/metadata")])
def test_a_block_that_is_damaged(name: str, path: str, golden: Golden, rmqctl: Any) -> None:
    """The library opens the database, and ends at the block as if no rows followed; nothing takes that for the end."""
    root = golden(name)
    before = content(root, path)
    for file in (root / path).glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[30] ^= 16
        file.write_bytes(data)
    findings = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    named = {f["id"] for f in findings if f["severity"] != "note" and f["file"] == path}
    assert named & {"queue.database", "database.unreadable"}
    for command in ("topics", "lag", "info", "dump"):
        assert rmqctl(command, root).exit_code in (0, 1, 10)
    conf = stores.write_broker_conf(name, root.with_name("broker.conf"))
    result = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes")
    if path == "config/metadata":  # one block is all there is of each table
        assert result.exit_code == 1
        assert content_error(root, path)
        return
    assert result.exit_code == 0, result.stdout + result.stderr
    assert content(root, path)["default"] == before["default"]
    assert rmqctl("verify", root).exit_code == 0


def content_error(root: Path, path: str) -> bool:
    """Whether a database cannot be read to its end."""
    try:
        content(root, path)
    except DatabaseDamaged:
        return True
    return False


@pytest.mark.parametrize("told", [True, False], ids=["with broker.conf", "without"])
def test_messages_of_a_database_that_cannot_be_opened(told: bool, golden: Golden, rmqctl: Any) -> None:
    root = golden(MSG)
    conf = stores.write_broker_conf(MSG, root.with_name("broker.conf"))
    before = content(root, MESSAGES)
    for file in (root / MESSAGES).glob("*"):
        file.write_bytes(b"\xa5" * file.stat().st_size)
    result = rmqctl("repair", root, *(["--broker-conf", conf] if told else []), "--apply", "--yes")
    assert result.exit_code == 0, result.stdout + result.stderr
    after = content(root, MESSAGES)
    assert after["default"] == before["default"]
    delivered = int.from_bytes(after["timer"][b"timeline_checkpoint"], "big")
    marks = b"timeline_checkpoint", b"sys_topic_scan_offset_checkpoint"
    rows = [
        {k: v for k, v in some["timer"].items() if k not in marks and k[:8] >= delivered.to_bytes(8, "big")}
        for some in (before, after)
    ]
    assert rows[0] == rows[1]
    assert delivered >= int.from_bytes(before["timer"][b"timeline_checkpoint"], "big")
    assert after["trans"].keys() == before["trans"].keys()


def test_of_two_databases_the_one_that_lags_goes(golden: Golden, rmqctl: Any) -> None:
    root = golden(CQ)
    for file in (root / SEPARATE).iterdir():
        shutil.copyfile(file, root / QUEUES / file.name)

    def lag(database: Any) -> None:
        rows = database.get_column_family("offset")
        rows[key_where(rows, lambda k: b"CHECKPOINT" in k)] = (5).to_bytes(8, "big")

    edit(root / QUEUES, lag)
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert not (root / QUEUES / "CURRENT").exists()
    assert rmqctl("verify", root).exit_code == 0


@pytest.mark.parametrize("name", stores.DATABASE_STORES)
def test_sound_stores_are_left_alone(name: str, rmqctl: Any) -> None:
    found = json.loads(rmqctl("repair", stores.pristine(name), "-o", "json").stdout)
    assert (found["steps"], found["left"]) == ([], [])


def test_delay_levels_that_nothing_shows_are_named(golden: Golden, rmqctl: Any) -> None:
    """Units of delayed messages depend on them; with broker.conf, or a database that can be read, nothing is assumed."""
    root, conf = golden(CFG), stores.write_broker_conf(CFG, golden(MIX).with_name("broker.conf"))
    words = "nothing shows how long delay level"
    assert words not in rmqctl("rebuild", root).stderr
    for file in (root / QUEUES).glob("*.sst"):
        file.write_bytes(bytes(file.stat().st_size))
    assert words in rmqctl("rebuild", root).stderr
    assert words in rmqctl("repair", root, "-o", "json").stdout
    conf.write_text(conf.read_text() + "messageDelayLevel=1s 5s 10s\n")
    assert words not in rmqctl("repair", root, "--broker-conf", conf, "-o", "json").stdout


# --- what no log holds ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"), [(POP, "kvStore"), (CFG, "config/metadata"), ("5.5.0-rdbcfgv2-crash", "config/rdb")]
)
@pytest.mark.parametrize("gone", ["MANIFEST-*", "CURRENT"])
def test_rows_that_only_the_database_has(name: str, path: str, gone: str, golden: Golden, rmqctl: Any) -> None:
    root = golden(name)
    before = content(root, path)
    for file in (root / path).glob(gone):
        file.write_bytes(b"\xa5" * file.stat().st_size)
    result = rmqctl("repair", root, "--apply", "--yes")
    assert result.exit_code == 0, result.stdout + result.stderr
    after = content(root, path)
    assert {family: before[family].items() - after[family].items() for family in before} == {f: set() for f in before}
    assert rmqctl("verify", root).exit_code == 0
    assert rmqctl("undo", root, "--yes").exit_code == 0


@pytest.mark.parametrize(
    ("name", "path"),
    [(CQ, SEPARATE), (CFG, QUEUES), (CFG, "config/metadata"), (MSG, MESSAGES), (POP, "kvStore"), (V2, "config/rdb")],
)
@pytest.mark.parametrize("tried", [False, True])
def test_without_current(name: str, path: str, tried: bool, golden: Golden, rmqctl: Any) -> None:
    """A broker would make an empty database there, and no file of a queue is one; also after a start that failed."""
    root = golden(name)
    before = content(root, path)
    (root / path / "CURRENT").unlink()
    if tried:
        (root / path / "CURRENT").write_bytes(b"MANIFEST-000001\n")
        (root / path / "MANIFEST-000001").write_bytes(bytes.fromhex("c4c19f5b060001020003020400"))
    findings = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    named = {(f["id"], f["file"]) for f in findings if f["severity"] != "note" and f["id"] != "checkpoint.zero"}
    assert named & {("database.unreadable", path), ("queue.database", path)}
    conf = stores.write_broker_conf(name, root.with_name("broker.conf"))
    assert rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes").exit_code == 0
    after = content(root, path)
    family = "default" if path in (QUEUES, SEPARATE, MESSAGES) else max(before, key=lambda f: len(before[f]))
    assert after[family] == before[family]
    assert rmqctl("verify", root).exit_code == 0


def strange_config(database: Any) -> None:
    rows = database.get_column_family("topic")
    rows[b"CfgOrders"] = b"\xff{"
    rows[b"nobody"] = b"[]"
    offsets = database.get_column_family("consumerOffset")
    offsets[b"no separator"] = b"{}"


def test_strange_rows_of_configuration(golden: Golden, rmqctl: Any) -> None:
    """They go, and a topic that has queues gets settings, as a broker would delete the queues of one without."""
    root = golden(CFG)
    before = content(root, "config/metadata")
    edit(root / "config" / "metadata", strange_config)
    found = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    assert [(f["id"], f["file"]) for f in found if f["severity"] != "note"] == [("database.row", "config/metadata")] * 2
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    after = content(root, "config/metadata")
    assert json.loads(after["topic"].pop(b"CfgOrders"))["writeQueueNums"] == 4
    assert before["topic"].pop(b"CfgOrders")
    assert after == before


def test_nothing_can_be_read(golden: Golden, rmqctl: Any) -> None:
    root = golden(POP)
    for file in (root / "kvStore").iterdir():
        file.write_bytes(b"\xa5" * file.stat().st_size)
    found = json.loads(rmqctl("repair", root, "-o", "json").stdout)
    assert found["steps"] == []
    assert "from a copy" in found["left"][0]["why"]


# --- rebuild ----------------------------------------------------------------------------------------


def changes(rmqctl: Any, root: Path, *words: object) -> dict[str, str]:
    found = json.loads(rmqctl("rebuild", root, "-o", "json", *words).stdout)["changes"]
    return {change["file"]: change["change"] for change in found}


@pytest.mark.parametrize("name", [CQ, MIX, CFG, LITE, MSG, POP])
def test_rebuild_of_a_sound_store_finds_nothing(name: str, rmqctl: Any) -> None:
    assert changes(rmqctl, stores.pristine(name)) == {}


def test_rebuild_makes_what_a_kill_kept_from_the_databases(golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbcq-crash")
    assert changes(rmqctl, root, "--queues")[SEPARATE] == "replace"
    assert rmqctl("rebuild", root, "--queues", "--apply", "--yes").exit_code == 0
    assert changes(rmqctl, root, "--queues") == {}
    root = golden("5.5.0-rdbmsg-crash")
    assert changes(rmqctl, root, "--index") == {MESSAGES: "replace"}
    assert rmqctl("rebuild", root, "--index", "--apply", "--yes").exit_code == 0
    broker, rows = stores.oracle("5.5.0-rdbmsg-crash")["broker"], content(root, MESSAGES)
    assert len(rows["default"]) - 2 == 1397
    assert sum(len(key) > 40 for key in rows["timer"]) == len(broker["timerPending"])
    halves = {int.from_bytes(key[:8], "big") for key in rows["trans"] if len(key) > 40}
    assert halves == {half["phy"] for half in broker["halfPending"]}


def test_rebuild_into_a_directory_has_the_databases_beside_files(tmp_path: Path, rmqctl: Any) -> None:
    into = tmp_path / "into"
    assert rmqctl("rebuild", stores.pristine(LITE), "--queues", "--into", into).exit_code == 0
    assert not [entry for entry in (into / QUEUES).iterdir() if entry.name.startswith("%LMQ%")]
    assert content(into, SEPARATE)["default"] == content(stores.pristine(LITE), SEPARATE)["default"]


def test_rebuild_without_the_extra(rmqctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert rmqctl("rebuild", stores.pristine(CQ)).exit_code == 14
    assert rmqctl("rebuild", stores.pristine(MSG), "--index").exit_code == 14


# --- anything ---------------------------------------------------------------------------------------


def any_rows(database: Any, families: list[str], rng: random.Random) -> None:
    """Bits, cuts, other bytes and deletions in keys and values of every family."""
    for family in families:
        rows = database if family == "default" else database.get_column_family(family)
        there = [(bytes(key), bytes(value)) for key, value in rows.items()]
        for key, value in rng.sample(there, min(len(there), 4)):
            left = (rng.randbytes(len(key)), key[: rng.randint(1, len(key))], flipped(key, rng), key)
            right = (rng.randbytes(len(value)), value[: rng.randint(0, len(value))], flipped(value, rng), value)
            if rng.random() < 0.3:
                del rows[key]
            rows[rng.choice(left)] = rng.choice(right)


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data or b"\0")
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def any_file(directory: Path, rng: random.Random) -> None:
    """A file that is gone, cut, or holds other bytes."""
    file = rng.choice([f for f in sorted(directory.iterdir()) if f.is_file() and f.stat().st_size])
    data = file.read_bytes()
    made = (None, data[: rng.randrange(len(data))], flipped(data, rng), rng.randbytes(len(data)))[rng.randrange(4)]
    file.unlink() if made is None else file.write_bytes(made)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 40))])
def test_any_damage_is_found_and_mended_without_a_traceback(seed: int, golden: Golden, rmqctl: Any) -> None:
    rng = random.Random(seed)
    name, path = rng.choice([
        (CQ, SEPARATE), (CFG, QUEUES), (CFG, "config/metadata"), (MSG, MESSAGES), (POP, "kvStore"), (LITE, SEPARATE),
        ("5.5.0-rdbcfgv2-crash", "config/rdb"),
    ])  # fmt: skip
    root = golden(name)
    if rng.random() < 0.6:
        families = rocksdict.Rdict.list_cf(str(root / path), rocksdict.Options(raw_mode=True))
        edit(root / path, lambda database: any_rows(database, list(families), rng))
        (root / path / "rocksdict-config.json").unlink()
    else:
        any_file(root / path, rng)
    for command in ("verify", "recover", "lag"):
        assert rmqctl(command, root, "-o", "json").exit_code in (0, 1, 10, 11)
    rmqctl("repair", root, "--apply", "--yes")
    left = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    assert [f for f in left if f["severity"] != "note" and f["id"] != "database.unreadable"] == []
