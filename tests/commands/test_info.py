"""``rmqctl info``: what the manifests and the truth say, from a few reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden

Rmqctl = Callable[..., Result]


def _info(rmqctl: Rmqctl, name: str) -> dict[str, Any]:
    result = rmqctl("info", golden.pristine(name), "-o", "json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("name", golden.NAMES)
def test_the_log_is_that_of_the_truth(name: str, rmqctl: Rmqctl) -> None:
    info, truth = _info(rmqctl, name), golden.truth(name)
    records = [t for t in truth if t["kind"] == "msg"]
    last = records[-1]
    assert info["kind"] == "rocketmq-store"
    assert info["state"] == ("crashed" if name.endswith("-crash") else "clean")
    assert info["commit_log"]["min_offset"] == records[0]["commitLogOffset"]
    assert info["commit_log"]["max_offset"] == last["commitLogOffset"] + last["storeSize"]
    assert info["commit_log"]["first_store_timestamp"] == records[0]["storeTimestamp"]
    assert info["commit_log"]["last_store_timestamp"] == last["storeTimestamp"]


@pytest.mark.parametrize("name", golden.NAMES)
def test_files_are_counted(name: str, rmqctl: Rmqctl) -> None:
    info, root = _info(rmqctl, name), golden.pristine(name)
    logs = [p for d in root.glob("commitlog*") for p in d.iterdir()]
    assert info["commit_log"]["files"] == len(logs)
    assert info["commit_log"]["bytes"] == sum(p.stat().st_size for p in logs)
    assert info["commit_log"]["bytes_allocated"] == sum(p.stat().st_blocks * 512 for p in logs)
    assert info["index_files"] == len(list((root / "index").iterdir()))
    if "rocksdb" not in name:  # tests/rocketmq/test_rocksdb.py counts those
        queues = [q for kind in ("consumequeue", "batchconsumequeue") for q in root.glob(f"{kind}/*/*")]
        assert (info["topics"], info["queues"]) == (len({q.parent.name for q in queues}), len(queues))


def test_explain_lists_facts_with_their_bounds(rmqctl: Rmqctl) -> None:
    result = rmqctl("info", golden.pristine("5.1.4-crash"), "--explain", "-o", "json")
    facts = {row["fact"]: (row["lowest"], row["highest"]) for row in json.loads(result.stdout)}
    assert facts["properties do not end with 0x02"] == ("4.9.1", "5.1.4")


def test_a_partition_without_a_segment_has_none(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    before = [json.loads(line) for line in rmqctl("info", root, "--segments", "-o", "jsonl").stdout.splitlines()]
    topic, number = before[-1]["topic"], before[-1]["partition"]
    for file in (root / f"{topic}-{number}").glob("*.*index"):
        file.unlink()
    for file in (root / f"{topic}-{number}").glob("*.log"):
        file.unlink()
    done = rmqctl("info", root, "--segments", "-o", "jsonl")
    wanted = [row for row in before if (row["topic"], row["partition"]) != (topic, number)]
    assert [json.loads(line) for line in done.stdout.splitlines()] == wanted
