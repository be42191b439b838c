"""Stores of formats that brokers write rarely, made with released classes: V2, IPv6, extension, DLedger, compaction."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.rocketmq.rare_stores_helpers import KINDS, truth


def shown_host(text: str) -> str:
    """Java's ``ip|port`` as rmqctl shows it."""
    ip, _, port = text.partition("|")
    address = ip_address(ip)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


@pytest.mark.parametrize("kind", KINDS)
def test_dump_equals_what_was_put(kind: str, rare: Callable[[str], Path], rmqctl: Callable[..., Any]) -> None:
    result = rmqctl("dump", rare(kind), "-o", "jsonl", "--body")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    messages = [r for r in rows if r["kind"] == "message"]
    assert {r["kind"] for r in rows} <= {"message", "blank", "dledger_entry", "dledger_blank"}
    expected = truth(kind)
    assert len(messages) == len(expected) == 60
    for row, true in zip(messages, expected, strict=True):
        assert row["body_crc_ok"]
        for name in ("topic", "queue_id", "queue_offset", "physical_offset", "size", "tags", "body"):
            assert row[name] == true[name], name
        assert row["keys"] == [true["keys"]]
        assert row["magic"] == ("V2" if len(true["topic"]) > 127 else "V1")
        assert (row["born_host"], row["store_host"]) == (shown_host(true["born_host"]), shown_host(true["store_host"]))


@pytest.mark.parametrize("kind", KINDS)
def test_verify_finds_nothing(kind: str, rare: Callable[[str], Path], rmqctl: Callable[..., Any]) -> None:
    result = rmqctl("verify", rare(kind), "-o", "json")
    document = json.loads(result.stdout)
    assert [f for f in document["findings"] if f["severity"] != "note"] == []
    assert document["summary"]["messages"] == 60
    assert result.exit_code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_topics_count_every_message(kind: str, rare: Callable[[str], Path], rmqctl: Callable[..., Any]) -> None:
    rows = [json.loads(line) for line in rmqctl("topics", rare(kind), "-o", "jsonl").stdout.splitlines()]
    put = Counter((t["topic"], t["queue_id"]) for t in truth(kind))
    size: Counter[tuple[str, int]] = Counter()
    for true in truth(kind):
        size[true["topic"], true["queue_id"]] += true["size"]
    assert {
        (r["topic"], r["queue_id"]): (r["min_offset"], r["max_offset"], r["messages"], r["bytes"]) for r in rows
    } == {queue: (0, count, count, size[queue]) for queue, count in put.items()}
    assert all(r["first_store_timestamp"] <= r["last_store_timestamp"] for r in rows)


def test_extension_units_give_the_real_tags(rare: Callable[[str], Path], rmqctl: Callable[..., Any]) -> None:
    root = rare("ext")
    rows = [
        json.loads(line) for line in rmqctl("dump", root / "consumequeue/Plain/1", "-o", "jsonl").stdout.splitlines()
    ]
    units = [r for r in rows if r["kind"] == "queue_unit"]
    assert units
    assert all(u["tags_code"] < -(1 << 31) for u in units)


def test_a_changed_extension_address_is_found(rare: Callable[[str], Path], rmqctl: Callable[..., Any]) -> None:
    root = rare("ext")
    path = root / "consumequeue" / "Plain" / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[19] ^= 7
    path.write_bytes(data)
    found = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    assert [(f["id"], f["offset"]) for f in found if f["severity"] != "note"] == [("queue.unit-mismatch", 0)]


def changed(data: bytearray, at: int, value: bytes) -> None:
    data[at : at + len(value)] = value


EXT_DAMAGE: dict[str, tuple[Callable[[bytearray], object], int, int]] = {
    "size": (lambda data: changed(data, 0, b"\x00\x40"), 0, 20),
    "tags code": (lambda data: changed(data, 2, bytes(8)), 2, 8),
    "store time": (lambda data: changed(data, 10, bytes(8)), 10, 8),
    "bitmap size": (lambda data: changed(data, 18, b"\x00\x07"), 0, 20),
    "whole unit": (lambda data: changed(data, 0, bytes(20)), 0, 20),
}


@pytest.mark.parametrize("what", EXT_DAMAGE)
def test_a_damaged_extension_unit_is_found(what: str, rare: Callable[[str], Path], rmqctl: Callable[..., Any]) -> None:
    change, offset, size = EXT_DAMAGE[what]
    root = rare("ext")
    path = root / "consumequeue_ext" / "Plain" / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    found = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    loud = [(f["id"], f["file"], f["offset"], f["size"]) for f in found if f["severity"] != "note"]
    assert loud == [("queue.extension", str(path.relative_to(root)), offset, size)]


@pytest.mark.parametrize("remove", ["Plain/1/00000000000000000000", "Plain/1", ""])
def test_a_deleted_extension_file_is_found(
    remove: str, rare: Callable[[str], Path], rmqctl: Callable[..., Any]
) -> None:
    root = rare("ext")
    gone = root / "consumequeue_ext" / remove
    gone.unlink() if gone.is_file() else shutil.rmtree(gone)
    found = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    loud = {(f["id"], f["file"]) for f in found if f["severity"] != "note"}
    assert ("queue.extension", "consumequeue_ext/Plain/1") in loud
    assert {kind for kind, _ in loud} == {"queue.extension"}


@pytest.mark.parametrize("at", [0, 3, 6, 31], ids=["magic", "magic, low", "size", "position"])
def test_a_changed_dledger_entry_is_found(at: int, rare: Callable[[str], Path], rmqctl: Callable[..., Any]) -> None:
    root = rare("dledger")
    path = root / "dledger-n0" / "data" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[at] ^= 16
    path.write_bytes(data)
    found = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    assert [(f["id"], f["offset"]) for f in found if f["severity"] != "note"] == [("log.dledger-entry", 0)]


def test_compacted_records_lie_where_their_log_says(rare: Callable[[str], Path], rmqctl: Callable[..., Any]) -> None:
    directory = rare("compaction") / "compaction" / "compactionLog" / "Plain" / "0"
    rows = [json.loads(line) for line in rmqctl("dump", directory, "-o", "jsonl").stdout.splitlines()]
    messages = [r for r in rows if r["kind"] == "message"]
    assert len(messages) == sum(t["topic"] == "Plain" and t["queue_id"] == 0 for t in truth("compaction"))
    assert not [r for r in rows if r["kind"] == "finding"]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_mended_in_a_sound_store(
    kind: str, killed: bool, rare: Callable[[str], Path], rmqctl: Callable[..., Any]
) -> None:
    """Of a DLedger log no start is replayed: its group decides where it ends, and nothing is called damage."""
    root = rare(kind)
    if killed:
        (root / "abort").touch()
    found = rmqctl("repair", root)
    assert (found.exit_code, found.stdout) == (0, "nothing is wrong\n")
    started = rmqctl("recover", root)
    if kind == "dledger":
        assert started.exit_code == 13
        assert f"rmqctl verify {root} says what is damaged" in started.stderr
    else:
        assert started.exit_code == 0


def test_the_log_of_a_group_goes_on_from_the_one_that_the_settings_name(
    tmp_path: Path, rare: Callable[[str], Path], rmqctl: Callable[..., Any]
) -> None:
    """A member of a DLedger group keeps the log of before beside that of the group."""
    root, conf = rare("dledger"), tmp_path / "broker.conf"
    (root / "commitlog").mkdir()
    conf.write_text(f"storePathCommitLog={root / 'commitlog'}\nenableDLegerCommitLog=true\n", "utf-8")
    found = json.loads(rmqctl("verify", root, "--broker-conf", conf, "-o", "json").stdout)
    assert ([f["id"] for f in found["findings"] if f["severity"] != "note"], found["summary"]["messages"]) == ([], 60)
    assert rmqctl("repair", root, "--broker-conf", conf).stdout == "nothing is wrong\n"
    shutil.rmtree(root / "dledger-n0")
    assert rmqctl("recover", root, "--broker-conf", conf).exit_code == 13


def test_a_damaged_dledger_log_is_mended(rare: Callable[[str], Path], rmqctl: Callable[..., Any]) -> None:
    root = rare("dledger")
    file = root / "dledger-n0/data" / f"{0:020d}"
    whole = file.read_bytes()
    at = whole.index(b"body 7 ")
    file.write_bytes(whole[:at] + b"bodY" + whole[at + 4 :])
    assert rmqctl("verify", root).exit_code == 1
    done = rmqctl("repair", root, "--apply", "--yes")
    assert done.exit_code == 0, done.output
    assert file.read_bytes() == whole
    assert rmqctl("verify", root).exit_code == 0
