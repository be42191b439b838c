"""The verbs of golden log directories as commands print them, against what the brokers answered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.families import FAMILIES
from rmqctl.opening import open_path, open_store
from rmqctl.questions import Transactions
from tests.conftest import Rmqctl
from tests.kafka.state.golden_state_helpers import WRITTEN_LATER

TOPIC_KEYS = [
    "topic",
    "partition",
    "topic_id",
    "log_start_offset",
    "log_end_offset",
    "high_watermark",
    "last_stable_offset",
    "records",
    "bytes",
    "segments",
    "first_timestamp",
    "last_timestamp",
]
KRAFT = [name for name in golden.KAFKA_NAMES if not name.startswith("2.8.2")]


@pytest.fixture
def path(golden_name: str) -> str:
    return str(golden.pristine(golden_name))


def _rows(rmqctl: Rmqctl, *line: str, exit_code: int = 0) -> list[dict[str, Any]]:
    done = rmqctl(*line, "-o", "jsonl")
    assert done.exit_code == exit_code, done.output
    return [json.loads(row) for row in done.stdout.splitlines()]


def test_topics(golden_name: str, path: str, rmqctl: Rmqctl) -> None:
    rows = {f"{row['topic']}-{row['partition']}": row for row in _rows(rmqctl, "topics", path)}
    truth: dict[str, list[dict[str, Any]]] = {}
    for line in golden.truth(golden_name):
        if line["t"] == "batch" and line["file"].endswith(".log"):
            truth.setdefault(line["file"].split("/")[0], []).append(line)
    oracle = golden.oracle(golden_name)
    for label, answer in oracle["partitions"].items():
        row = rows[label]
        assert list(row) == TOPIC_KEYS
        assert row["log_start_offset"] == answer["beginningOffset"]
        if (golden_name, label) not in WRITTEN_LATER:
            assert (row["log_end_offset"], row["last_stable_offset"]) == (
                answer["endOffset"],
                answer["lastStableOffset"],
            )
        known = None if golden_name.startswith("2.8.2") else oracle["topics"][row["topic"]]["topicId"]
        assert row["topic_id"] == known  # files of this time do not hold it
        assert row["bytes"] == sum(file.stat().st_size for file in Path(path, label).glob("*.log"))
        assert row["segments"] == len(list(Path(path, label).glob("*.log")))
        assert row["records"] == sum(batch["count"] or 1 for batch in truth.get(label, ())) or row["records"] > 0
    assert "__cluster_metadata-0" not in rows
    assert not any(row["topic"].startswith("goner") for row in rows.values())


def test_topics_added_up(path: str, rmqctl: Rmqctl) -> None:
    single, added = _rows(rmqctl, "topics", path), _rows(rmqctl, "topics", path, "--by-topic")
    assert sum(row["records"] for row in single) == sum(row["records"] for row in added)
    assert sum(row["partitions"] for row in added) == len(single)


@pytest.mark.parametrize("name", golden.KAFKA_NAMES)
def test_info(name: str, rmqctl: Rmqctl) -> None:
    info = json.loads(rmqctl("info", str(golden.pristine(name)), "-o", "json").stdout)
    assert (info["kind"], info["state"]) == ("kafka-log-directory", "clean" if name.endswith("clean") else "crashed")
    assert info["mode"] == ("zookeeper" if name.startswith("2.8.2") else "kraft")
    expected = {"2.8.2": (0, None), "3.9.2": (1, "3.9-IV0"), "4.3.1": (1, "4.3-IV0")}[name[:5]]
    assert (info["node_id"], info["metadata_version"]) == expected
    low, high = (tuple(map(int, release.split("."))) for release in info["releases"])
    assert low <= tuple(map(int, name[:5].split("."))) <= high
    assert info["partitions"] == sum(p.is_plain for p in open_store(str(golden.pristine(name))).logs.partitions)  # type: ignore[attr-defined]
    assert (info["directory_id"] is None) == name.startswith("2.8.2")


def test_lag(golden_name: str, path: str, rmqctl: Rmqctl) -> None:
    if golden_name.startswith("2.8.2"):
        assert _rows(rmqctl, "lag", path, exit_code=1) == []
        return
    rows = _rows(rmqctl, "lag", path)
    told: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["consumer_offset"] is not None and row["group"] != "g-share":
            found = {"offset": row["consumer_offset"], "metadata": row["metadata"]}
            found |= {"leaderEpoch": row["leader_epoch"]} if row["leader_epoch"] >= 0 else {}
            told.setdefault(row["group"], {})[f"{row['topic']}-{row['partition']}"] = found | {"lag": row["lag"]}
    groups = golden.oracle(golden_name)["groups"]
    assert told == {group: answer["offsets"] for group, answer in groups.items() if answer["offsets"]}
    pending = [row for row in rows if row["anomaly"]]
    assert [(row["group"], row["anomaly"], row["pending_offset"]) for row in pending] == [
        ("g-txn-open", "open-transaction", 9)
    ]
    assert {row["topic"] for row in rows if row["group"] == "g-share"} == (
        {"idem", "x-delete"} if golden_name.startswith("4.3") else set()
    )


def test_producers_and_transactions(golden_name: str, path: str, rmqctl: Rmqctl) -> None:
    if golden_name.startswith("2.8.2"):
        assert _rows(rmqctl, "producers", path, exit_code=1) == []
        assert _rows(rmqctl, "transactions", path, exit_code=1) == []
        return
    every = _rows(rmqctl, "producers", path)
    chosen = _rows(rmqctl, "producers", path, "txn-a/1")
    assert chosen == [row for row in every if (row["topic"], row["partition"]) == ("txn-a", 1)] != []
    rows = _rows(rmqctl, "transactions", path)
    assert [(row["transactional_id"], row["state"], row["partitions"]) for row in rows] == [
        (t["transactionalId"], t["state"], t["partitions"]) for t in golden.oracle(golden_name)["transactions"]
    ]
    assert [row["transactional_id"] for row in rows if row["hanging"]] == [
        t["transactionalId"] for t in golden.oracle(golden_name)["transactions"] if t["state"] == "Ongoing"
    ]


def test_a_transaction_within_its_time_does_not_hang() -> None:
    from rmqctl.kafka.verbs.looking import transaction_states

    store = open_store(str(golden.pristine("4.3.1-crash")))
    first = next(t for t in golden.oracle("4.3.1-crash")["transactions"] if t["state"] == "Ongoing")
    for late, hangs in ((-1, False), (1, True)):
        now = first["startTimeMs"] + first["timeoutMs"] + late
        answer = transaction_states(store.replicas, Transactions(), now=now)  # type: ignore[attr-defined]
        row = next(row for row in answer if row["transactional_id"] == first["transactionalId"])
        assert row["hanging"] is hangs
        assert any("kafka-transactions.sh" in remark for remark in answer.remarks) is hangs


@pytest.mark.parametrize("name", KRAFT)
def test_metadata(name: str, rmqctl: Rmqctl) -> None:
    path = str(golden.pristine(name))
    document = json.loads(rmqctl("metadata", path, "-o", "json").stdout)
    assert {row["topic"]: row["topic_id"] for row in document["topics"]} == {
        topic: facts["topicId"] for topic, facts in golden.oracle(name)["topics"].items()
    }
    rows = _rows(rmqctl, "metadata", path)
    assert rows[0]["offset"] == document["offset"]
    assert len([row for row in rows if row["kind"] == "partition"]) == len(document["partitions"])
    snapshot = max(Path(path, "__cluster_metadata-0").glob("*.checkpoint"))
    from_snapshot = json.loads(rmqctl("metadata", str(snapshot), "-o", "json").stdout)
    assert from_snapshot["offset"] == int(snapshot.name[:20]) - 1
    assert from_snapshot["topics"] == document["topics"]
    assert "no __cluster_metadata-0" in rmqctl("metadata", str(golden.pristine("2.8.2-clean"))).stderr


def test_lookups_as_commands(rmqctl: Rmqctl) -> None:
    path = str(golden.pristine("4.3.1-clean"))
    status, *rows = _rows(rmqctl, "query-offset", path, "txn-a/0", "3", "-n", "3", "--read-committed")
    assert status == {
        "kind": "status",
        "status": "FOUND",
        "next_offset": 9,
        "log_start_offset": 0,
        "log_end_offset": 113,
        "last_stable_offset": 106,
    }
    assert [row["offset"] for row in rows] == [4, 7, 8]
    assert _rows(rmqctl, "query-offset", path, "txn-a/0", "999", exit_code=1)[0]["status"] == "OUT_OF_RANGE"
    assert _rows(rmqctl, "query-offset", path, "txn-a/0", "113", exit_code=1)[0]["status"] == "END"
    assert _rows(rmqctl, "query-time", path, "empty-topic/0", "0", exit_code=1)[0]["offset"] == -1
    answer, record = _rows(rmqctl, "query-time", path, "idem/0", "max-timestamp")
    assert (answer["time"], answer["offset"], record["offset"]) == (-3, 131, 131)
    latest = _rows(rmqctl, "query-key", path, "compacted", "k1", "--latest")
    every = _rows(rmqctl, "query-key", path, "compacted", "k1")
    assert [row["offset"] for row in latest] == [
        max(row["offset"] for row in every if row["partition"] == number) for number in (0, 1)
    ]
    assert "partitioner puts the key into" in rmqctl("query-key", path, "compacted", "nobody").stderr


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["query-key", "PATH", "idem", "k", "--unique"], "--unique"),
        (["query-key", "PATH", "k", "--scan"], "TOPIC"),
        (["query-key", "PATH", "idem", "k", "--tag", "T"], "--tag"),
        (["query-time", "PATH", "idem", "0", "--boundary", "upper"], "--boundary"),
        (["query-time", "PATH", "idem", "soonest"], "is not a time"),
    ],
)
def test_what_means_nothing_here_is_refused(line: list[str], sentence: str, rmqctl: Rmqctl) -> None:
    path = str(golden.pristine("4.3.1-clean"))
    done = rmqctl(*(path if word == "PATH" else word for word in line))
    assert (done.exit_code, sentence in done.stderr) == (2, True)


def test_a_topic_that_is_not_here_is_named_with_a_hint(rmqctl: Rmqctl) -> None:
    path = str(golden.pristine("4.3.1-clean"))
    for line in (
        ["topics", path, "--topic", "idemm"],
        ["query-offset", path, "idemm/0", "1"],
        ["producers", path, "idemm"],
    ):
        done = rmqctl(*line)
        assert (done.exit_code, "did you mean idem?" in done.stderr) == (1, True)
    assert "partition 9 of topic idem is not here, only 0, 1" in rmqctl("query-time", path, "idem/9", "0").stderr


def test_a_log_directory_is_opened_by_looking() -> None:
    assert "kafka" in FAMILIES
    assert open_path(str(golden.pristine("3.9.2-crash"))).kind == "kafka-log-directory"  # type: ignore[union-attr]


def test_several_directories_are_one_store(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """As with two log.dirs: half of the partitions lie in each."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    second = tmp_path / "second"
    second.mkdir()
    for name in ("meta.properties", "replication-offset-checkpoint", ".kafka_cleanshutdown"):
        (second / name).write_bytes((root / name).read_bytes())
    for name in ("__consumer_offsets-1", "idem-0", "txn-a-1"):
        (root / name).rename(second / name)
    whole = _rows(rmqctl, "topics", str(golden.pristine("4.3.1-clean")))
    assert _rows(rmqctl, "topics", f"{root},{second}") == whole
    assert _rows(rmqctl, "lag", f"{root},{second}") == _rows(rmqctl, "lag", str(golden.pristine("4.3.1-clean")))
    info = json.loads(rmqctl("info", f"{root},{second}", "-o", "json").stdout)
    assert [row["partitions"] for row in info["directories"]] == [36, 3]
    assert rmqctl("topics", f"{root},{tmp_path / 'nowhere'}").exit_code == 11
    assert rmqctl("topics", f"{root},{second / 'meta.properties'}").exit_code == 11


def test_several_log_directories_and_parts_of_one(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """PATH repeated is what a list with commas is; verify, topics and producers keep to a partition."""
    source = golden.pristine("4.3.1-clean")
    for number, names in enumerate((["txn-a-0"], ["idem-0", "plain-none-0"])):
        for name in names:
            shutil.copytree(source / name, tmp_path / f"d{number}" / name)
        for name in ("meta.properties", ".kafka_cleanshutdown"):
            shutil.copy(source / name, tmp_path / f"d{number}" / name)
    both = [str(tmp_path / "d0"), str(tmp_path / "d1")]
    repeated = _rows(rmqctl, "topics", *both)
    assert [row["topic"] for row in repeated] == ["idem", "plain-none", "txn-a"]
    assert repeated == _rows(rmqctl, "topics", ",".join(both))
    comma = ",".join(both)
    for command, *words in (
        ("producers",), ("producers", "txn-a/0"), ("producers", "txn-a"), ("query-offset", "idem/0", "3"),
        ("query-time", "idem", "earliest"), ("query-key", "idem", "k1"), ("transactions",), ("verify",),
    ):  # fmt: skip
        done, wanted = (rmqctl(command, *paths, *words, "-o", "jsonl") for paths in (both, [comma]))
        assert (done.exit_code, done.stderr) == (wanted.exit_code, wanted.stderr)
        rows, same = ([json.loads(line) for line in x.stdout.splitlines()] for x in (done, wanted))
        assert [{**row, "seconds": 0} for row in rows] == [{**row, "seconds": 0} for row in same]
    assert rmqctl("query-key", *both, "idem", "k1").exit_code == 0
    part = str(tmp_path / "d1" / "idem-0")
    assert [row["topic"] for row in _rows(rmqctl, "topics", part)] == ["idem"]
    assert {row["topic"] for row in _rows(rmqctl, "producers", part)} == {"idem"}
    for command in ("topics", "verify"):
        assert "the whole store" not in rmqctl(command, part).stderr
    assert "the whole store" in rmqctl("lag", part).stderr


def test_tables_of_sound_directories_are_short(rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of notes that say the same of many files the first is shown, with the number of the others; JSON has all."""
    monkeypatch.setenv("COLUMNS", "80")
    root = str(golden.pristine("4.3.1-clean"))
    notes = [row for row in _rows(rmqctl, "verify", root) if row["kind"] == "finding"]
    lines = rmqctl("verify", root).stdout.splitlines()
    ids = {row["id"] for row in notes}
    assert sum(any(name in line.split() for name in ids) for line in lines) == len(ids) < len(notes)
    most = max(sum(row["id"] == name for row in notes) for name in {row["id"] for row in notes})
    assert f"and {most - 1} more in {most} files" in " ".join(" ".join(lines).split())
    info = rmqctl("info", root).stdout.splitlines()
    assert sum(line.split() == ["partitions", "39"] for line in info) == 2
    assert all(len(line) <= 80 for line in info if root not in line)


def test_a_transaction_that_hangs_without_a_known_id(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    for file in root.glob("__transaction_state-*/*.log"):
        file.write_bytes(b"")
    done = rmqctl("doctor", root)
    assert done.exit_code == 1
    assert "Transaction of producer 1008 never ended: readers of committed records wait at " in done.stdout
