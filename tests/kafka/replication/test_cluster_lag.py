"""The lag of groups over the brokers of a cluster: what one broker that had everything says, wherever things lie."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import rmqctl as library
from fixtures import golden
from rmqctl import questions
from tests.conftest import Rmqctl
from tests.kafka.salvage.salvage_helpers import one, partition

NODES = (1, 2, 3)
META = "version=1\ncluster.id=AAEfGhQxSTU-V_wXyZ9901\nnode.id={}\n"


def spread(root: Path, into: Path) -> list[Path]:
    """Make a cluster of three brokers of the log directory of one: each partition lies on two, the metadata on one."""
    found = []
    names = sorted(path.name for path in root.iterdir() if path.is_dir() and re.search(r"-\d+$", path.name))
    for node in NODES:
        own = into / f"b{node}"
        shutil.copytree(root, own)
        for number, name in enumerate(names):
            if node > 1 if name.startswith("__cluster_metadata") else number % 3 == node - 1:
                shutil.rmtree(own / name)
        meta = own / "meta.properties"
        text = re.sub(r"(?m)^(node|broker)\.id=.*", rf"\1.id={node}", meta.read_text("utf-8"))
        meta.write_text(re.sub(r"(?m)^directory\.id=.*\n", "", text), "utf-8")
        found.append(own)
    return found


def rows(answer: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in answer]


@pytest.mark.parametrize("name", ["4.3.1-clean", "3.9.2-crash"])
def test_it_is_the_lag_of_a_broker_that_has_all(tmp_path: Path, name: str) -> None:
    root = golden.unpack(name, tmp_path)
    alone = rows(library.open(str(root)).ask(questions.Lag()))
    assert len({row["group"] for row in alone}) > 2
    brokers = spread(root, tmp_path)
    answer = library.open_all([f"{tmp_path}/b*"]).ask(questions.Lag())
    found = rows(answer)
    assert [{k: v for k, v in row.items() if k not in {"store", "coordinator"}} for row in found] == alone
    for row in found:
        place = f"{row['topic']}-{row['partition']}"
        assert row["store"] is None or (Path(row["store"]) / place).is_dir()
        assert row["store"] is not None or not any((broker / place).is_dir() for broker in brokers)
        assert Path(row["coordinator"]) in brokers
    assert not [remark for remark in answer.remarks if "on none of these" in remark]


def test_the_end_is_that_of_the_replica_that_elect_would_have_lead(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path / "x")
    alone = rows(library.open(str(root)).ask(questions.Lag()))
    brokers = spread(root, tmp_path)
    wanted = next(row for row in alone if row["lag"] and row["lag"] > 2 and row["anomaly"] is None)
    place = f"{wanted['topic']}-{wanted['partition']}"
    behind = next(broker for broker in brokers if (broker / place).is_dir())
    last = max((behind / place).glob("*.log"))
    os.truncate(last, last.stat().st_size // 2)
    found = rows(library.open_all([str(b) for b in brokers]).ask(questions.Lag(wanted["group"], wanted["topic"])))
    row = next(row for row in found if row["partition"] == wanted["partition"])
    assert row["log_end_offset"] == wanted["log_end_offset"]
    assert row["store"] != str(behind)
    logs = {log["log"]: log["best"] for log in json.loads(rmqctl("elect", *brokers, "-o", "json").stdout)["logs"]}
    assert logs[place] == row["store"]


def test_a_later_epoch_counts_before_a_longer_log(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    partition(old, "t-0", [one(0), one(2), one(4), one(6)], "0\n1\n0 0\n")
    partition(new, "t-0", [one(0), one(2), one(4, epoch=3, text=b"n")], "0\n2\n0 0\n3 4\n")
    for node, place in enumerate((old, new), 1):
        (place / "meta.properties").write_text(META.format(node), "utf-8")
    fleet = library.open_all([str(old), str(new)])
    from rmqctl.kafka.replication.cluster import ClusterReplicas

    replicas = ClusterReplicas(["old", "new"], [store.replicas for _, store in fleet.stores], {"t"})  # type: ignore[union-attr]
    (log,) = replicas.all
    assert (replicas.store_of(log), log.end) == ("new", 6)


def test_what_no_store_has_is_said(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    brokers = spread(root, tmp_path)
    alone = rows(library.open(str(root)).ask(questions.Lag()))
    lost = next(row for row in alone if row["log_end_offset"] is not None)
    place = f"{lost['topic']}-{lost['partition']}"
    offsets = next((broker, path) for broker in brokers for path in broker.glob("__consumer_offsets-*"))[1].name
    for broker in brokers:
        shutil.rmtree(broker / place, ignore_errors=True)
    result = rmqctl("lag", *brokers, "-o", "jsonl")
    found = next(
        row
        for row in map(json.loads, result.stdout.splitlines())
        if (row["group"], row["topic"], row["partition"]) == (lost["group"], lost["topic"], lost["partition"])
    )
    assert (found["log_end_offset"], found["lag"], found["store"], found["anomaly"]) == (None, None, None, None)
    assert f"their lag is unknown: {place}" in result.stderr
    for broker in brokers:
        shutil.rmtree(broker / offsets, ignore_errors=True)
    assert "of __consumer_offsets on none of these stores" in rmqctl("lag", *brokers).stderr


def test_two_copies_of_one_broker_answer_for_themselves(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    shutil.copytree(root, tmp_path / "copy")
    result = rmqctl("lag", root, tmp_path / "copy", "-o", "jsonl")
    assert "are of node 1 of cluster" in result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert {row["store"] for row in found} == {str(root), str(tmp_path / "copy")}
    assert not any("coordinator" in row for row in found)
