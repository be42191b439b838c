"""`rmqctl query-key` and `query-id` as people type them."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden as stores
from formats.rocketmq.index import index_key, key_hash
from rmqctl.rocketmq.query.key import KeyQuery

NAME = "5.5.0-clean"


def rows(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def offsets(result: Any) -> list[int]:
    return [row["physical_offset"] for row in rows(result) if row["kind"] == "message"]


@pytest.fixture
def store() -> Path:
    return stores.pristine(NAME)


def question(kind: str, part: str = "admin") -> dict[str, Any]:
    answers: list[dict[str, Any]] = stores.oracle(NAME)[part]["answers"]
    return next(q for q in answers if q.get("q") == kind and len(q.get("phy", q.get("storeQueryMessage", [1]))) > 2)


def test_prints_what_dump_prints(store: Path, rmqctl: Any) -> None:
    asked = question("adminQueryMessage")
    result = rmqctl("query-key", store, asked["topic"], asked["key"], "-o", "jsonl", "--body")
    assert result.exit_code == 0
    dumped = rows(rmqctl("dump", store, "--topic", asked["topic"], "--key", asked["key"], "-o", "jsonl", "--body"))
    assert rows(result) == dumped
    assert offsets(result) == asked["phy"]


def test_all_messages_by_id_print_what_dump_prints(store: Path, rmqctl: Any) -> None:
    for row in rows(rmqctl("dump", store, "-o", "jsonl"))[::37]:
        if row["kind"] == "message":
            assert rows(rmqctl("query-id", store, row["message_id"], "-o", "jsonl")) == [row]


def test_raw_candidates_and_their_limit(store: Path, rmqctl: Any) -> None:
    asked = question("byKey", "embedded")
    result = rmqctl("query-key", store, asked["topic"], asked["key"], "--raw", "-o", "jsonl")
    assert offsets(result) == asked["storeQueryMessage"]
    assert offsets(rmqctl("query-key", store, "LabOne", "AaAa", "--raw", "-o", "jsonl")) != offsets(
        rmqctl("query-key", store, "LabOne", "AaAa", "-o", "jsonl")
    )
    few = rmqctl("query-key", store, asked["topic"], asked["key"], "--max", 2, "-o", "jsonl")
    assert offsets(few) == asked["storeQueryMessage"][-2:]


def test_scan_with_and_without_a_topic(store: Path, rmqctl: Any) -> None:
    asked = question("adminQueryMessage")
    for words in (
        [asked["topic"], asked["key"], "--scan"],
        [asked["key"], "--scan", "--topic", asked["topic"]],
        [asked["key"], "--scan", "--topic", asked["topic"], "--processes", 2],
    ):
        assert offsets(rmqctl("query-key", store, *words, "-o", "jsonl")) == asked["phy"]
    everywhere = offsets(rmqctl("query-key", store, asked["key"], "--scan", "-o", "jsonl"))
    assert set(asked["phy"]) <= set(everywhere)


def test_filters_narrow_what_was_found(store: Path, rmqctl: Any) -> None:
    found = rows(rmqctl("query-key", store, "LabOrders", "BB2", "-o", "jsonl"))
    for words, keep in (
        (["--queue", "0"], lambda row: row["queue_id"] == 0),
        (["--tag", "BB"], lambda row: row["tags"] == "BB"),
        (["--after", str(found[3]["store_timestamp"])], lambda row: row["store_timestamp"] >= found[3]["store_timestamp"]),
        (["--from-offset", str(found[2]["physical_offset"])], lambda row: row["physical_offset"] >= found[2]["physical_offset"]),
        (["--property", "TAGS=TagA"], lambda row: row["tags"] == "TagA"),
    ):  # fmt: skip
        narrowed = rows(rmqctl("query-key", store, "LabOrders", "BB2", *words, "-o", "jsonl"))
        assert narrowed == [row for row in found if keep(row)], words
        assert narrowed
    assert rows(rmqctl("query-key", store, "LabOrders", "BB2", "-n", 2, "-o", "jsonl")) == found[:2]


def test_unknown_topic_names_the_nearest(store: Path, rmqctl: Any) -> None:
    result = rmqctl("query-key", store, "LabOrdes", "BB2")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "no topic LabOrdes; did you mean LabOrders" in result.stderr
    explained = rows(rmqctl("query-key", store, "LabOrdes", "nothing", "--explain", "-o", "jsonl"))
    assert explained[-1]["id"] == "miss.unknown-topic"


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (["LabOrders", "BB2"], "miss.none"),
        (["LabOrders", "BB2", "--end", "2020-01-01T00:00:00Z"], "miss.entry-outside-time"),
        (["LabOrders", "a", "--max", "3"], "miss.limit"),
        (["LabOrders", "no such key"], "miss.key-nowhere"),
        (["LabLog", "zip3"], "miss.other-topic"),
        (["LabOrders", "BB2", "--begin", "2040-01-01T00:00:00Z"], "miss.entry-outside-time"),
    ],
)
def test_explanations(words: list[str], last: str, store: Path, rmqctl: Any) -> None:
    result = rmqctl("query-key", store, *words, "--explain", "-o", "jsonl")
    steps = [row for row in rows(result) if row["kind"] == "step"]
    assert all({"file", "what", "result"} <= row.keys() for row in steps)
    assert steps[-1]["id"] == last, steps[-1]
    assert [row for row in steps if "id" in row] == steps[-1:]
    assert steps[-1]["result"] in rmqctl("query-key", store, *words, "--explain").stdout


def test_a_pending_delayed_message_is_named_by_its_system_topic(store: Path, rmqctl: Any) -> None:
    truth = [
        t for t in stores.truth(NAME) if t["kind"] == "msg" and t["topic"] == "rmq_sys_wheel_timer" and t["uniqKey"]
    ]
    delivered = {t["uniqKey"] for t in stores.truth(NAME) if t["kind"] == "msg" and t["topic"] == "LabDelay"}
    pending = next(t for t in truth if t["uniqKey"] not in delivered)
    result = rmqctl("query-key", store, "LabDelay", pending["uniqKey"], "--unique", "--explain", "-o", "jsonl")
    assert result.exit_code == 1
    assert rows(result)[-1]["id"] == "miss.system-topic"
    assert "rmq_sys_wheel_timer" in rows(result)[-1]["result"]


@pytest.mark.parametrize(
    "words",
    [
        [], ["LabOrders"], ["LabOrders", ""], ["BB2", "--scan", "--raw"], ["BB2", "--scan", "--explain"],
        ["LabOrders", "BB2", "--topic", "LabLog"], ["LabOrders", "BB2", "--begin", "tomorrow"], ["--tag", "TagA"],
    ],
)  # fmt: skip
def test_wrong_usage(words: list[str], store: Path, rmqctl: Any) -> None:
    assert rmqctl("query-key", store, *words).exit_code == 2


def test_a_circle_in_the_index_ends_and_is_told(golden: Callable[[str], Path], rmqctl: Any) -> None:
    root = golden(NAME)
    newest = max((root / "index").iterdir())
    with open(newest, "r+b") as file:
        file.seek(40 + 4 * (key_hash("LabOrders#round") % 500))
        file.write(struct.pack(">i", 3))
        for number, previous in ((3, 2), (2, 3)):
            file.seek(40 + 4 * 500 + 20 * number)
            file.write(struct.pack(">iqii", 1, 0, 0, previous))
    result = rmqctl("query-key", root, "LabOrders", "round", "--explain", "-o", "jsonl")
    assert result.exit_code == 1
    assert "runs in a circle" in result.stderr
    assert any("comes back to an entry" in row["result"] for row in rows(result))


def test_id_of_another_broker_is_said_and_still_tried(store: Path, rmqctl: Any) -> None:
    row = rows(rmqctl("query-key", store, "LabOrders", "zip3", "-o", "jsonl"))[0]
    foreign = "C0A80001" + row["message_id"][8:]
    result = rmqctl("query-id", store, foreign, "-o", "jsonl")
    assert rows(result) == [row]
    assert "names broker 192.168.0.1:10911" in result.stderr
    explained = rows(rmqctl("query-id", store, foreign, "--explain", "-o", "jsonl"))
    assert explained[-1]["id"] == "miss.foreign-host"


def test_first_of_several_messages_with_one_unique_key(rmqctl: Any) -> None:
    store = stores.pristine("5.3.3-clean")
    asked = [q for q in stores.oracle("5.3.3-clean")["admin"]["answers"] if q.get("q") == "viewMessage"]
    batch = next(q for q in asked if q["id"].startswith("FD") and q["phy"] == 312999)
    one = rmqctl("query-id", store, batch["id"].lower(), "--topic", "LabLog", "-o", "jsonl")
    assert offsets(one) == [312999]
    assert "11 more messages have this unique key" in one.stderr
    for words in ([], ["--scan"]):
        every = offsets(rmqctl("query-id", store, batch["id"], "--all", *words, "-o", "jsonl"))
        assert len(every) == 12


def test_unknown_and_impossible_ids(store: Path, rmqctl: Any) -> None:
    wrong = rmqctl("query-id", store, "7F0000010000")
    assert wrong.exit_code == 2
    assert "12 characters" in wrong.stderr
    nothing = rmqctl("query-id", store, "7F00000100002A9F0000000000FFFFFF")
    assert nothing.exit_code == 1
    assert "broker 127.0.0.1:10911, offset 16777215" in nothing.stderr
    explained = rmqctl("query-id", store, "7F00000100002A9F0000000000FFFFFF", "--explain", "-o", "jsonl")
    assert rows(explained)[-1]["id"] == "miss.beyond-log"
    middle = rmqctl("query-id", store, "7F00000100002A9F0000000000000001", "--explain", "-o", "jsonl")
    assert rows(middle)[-1]["id"] == "miss.no-record-at-id"


def test_a_clock_ahead_of_the_broker_is_told(golden: Callable[[str], Path], rmqctl: Any) -> None:
    root = golden(NAME)
    row = rows(rmqctl("query-key", root, "LabOrders", "zip3", "-o", "jsonl"))[0]
    with open(root / row["file"], "r+b") as file:
        file.seek(row["position"] + 40)
        file.write(struct.pack(">q", row["born_timestamp"] + 3 * 3_600_000))
        data = bytes.fromhex(row["unique_key"])
    ahead = (int.from_bytes(data[-6:-2], "big") + 3 * 3_600_000).to_bytes(4, "big")
    key = (data[:-6] + ahead + data[-2:]).hex().upper()
    _rename(root, row, key)
    for words in (["query-id", root, key], ["query-key", root, "LabOrders", key, "--unique"]):
        result = rmqctl(*words, "--explain", "-o", "jsonl")
        assert result.exit_code == 0
        assert rows(result)[-1]["id"] == "miss.unique-key-clock", rows(result)[-1]
    assert "CODE 208" in rmqctl("query-id", root, key).stderr


def _rename(root: Path, row: dict[str, Any], key: str) -> None:
    """Give a record another unique key of the same length, and its index entry the hash of it, first in its chain."""
    with open(root / row["file"], "r+b") as file:
        file.seek(row["position"])
        data = file.read(row["size"])
        file.seek(row["position"])
        file.write(data.replace(row["unique_key"].encode(), key.encode()))
    old, new = (key_hash(index_key("LabOrders", k)) for k in (row["unique_key"], key))
    for path in (root / "index").iterdir():
        index = bytearray(path.read_bytes())
        for number in range(1, 1000):
            at = 40 + 4 * 500 + 20 * number
            hashed, physical, time, _ = struct.unpack_from(">iqii", index, at)
            if (hashed, physical) == (old, row["physical_offset"]):
                struct.pack_into(">iqii", index, at, new, physical, time, 0)
                struct.pack_into(">i", index, 40 + 4 * (new % 500), number)
        path.write_bytes(index)


def test_filters_that_leave_nothing_are_named(store: Path, rmqctl: Any) -> None:
    result = rmqctl("query-key", store, "LabOrders", "BB2", "--queue", 99, "--explain", "-o", "jsonl")
    assert result.exit_code == 1
    assert rows(result)[-1]["id"] == "miss.filtered"


def test_the_brokers_limit_is_told(store: Path, rmqctl: Any) -> None:
    tagged = Counter((t["topic"], t["tags"]) for t in stores.truth(NAME) if t["kind"] == "msg" and t["tags"])
    (topic, tag), count = tagged.most_common(1)[0]
    assert count > 64
    many = rmqctl("query-key", store, topic, "--tag", tag, "-o", "jsonl")
    assert len(rows(many)) == 64
    assert "the newest 64 candidates" in many.stderr
    few = rmqctl("query-key", store, topic, "--tag", tag, "--max", 5, "-o", "jsonl")
    assert len(rows(few)) == 5
    assert few.stderr == ""


@pytest.mark.parametrize("words", [["query-key", "LabOrders", "BB2"], ["query-id", "7F00000100002A9F0000000000005C76"]])
@pytest.mark.parametrize("kind", ["jsonl", "table"])
def test_a_lookup_does_not_wait_for_numpy(words: list[str], kind: str, store: Path) -> None:
    code = (
        "import sys\nfrom commands import cli\n"
        f"cli.main({[words[0], str(store), *words[1:], '-o', kind]!r}, standalone_mode=False)\n"
        "sys.exit('numpy' in sys.modules or 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_key_that_is_no_utf_8_has_the_hash_that_java_gives_it() -> None:
    assert KeyQuery("T", "a\udcff").text == "T#a\ufffd"
    assert KeyQuery("T", "多键😀").text == "T#多键😀"
