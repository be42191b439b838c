"""Every command on a real cluster of two workers, and one of them killed in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import bulk, golden
from tests.pipeline import truths
from tests.pipeline.clusters import Cluster, cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STORE = "5.5.0-clean"
_SETTINGS = ("--spark-conf", "spark.executor.memory=512m", "--spark-conf", "spark.driver.host=127.0.0.1")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def start(*arguments: object, **more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "rmqctl", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **more},
    )  # fmt: skip


def run(*arguments: object, code: int = 0) -> str:
    process = start(*arguments)
    out, error = process.communicate(timeout=600)
    assert process.returncode == code, error.decode()
    return out.decode()


def test_stats_sql_and_verify(machines: Cluster) -> None:
    root, where = golden.pristine(STORE), ("--master", machines.url, *_SETTINGS)
    true = truths.expected(STORE)
    stats = json.loads(run("stats", root, "-o", "json", "--split-size", "64K", *where))
    assert {r["topic"]: r["messages"] for r in stats["topic"]} == Counter(r["topic"] for r in true)
    rows = json.loads(run("sql", root, "select count(*) n, sum(size) bytes from messages", "-o", "json", *where))
    assert rows == [{"n": len(true), "bytes": sum(r["size"] for r in true)}]
    found = json.loads(run("verify", root, "--engine", "spark", "-o", "json", *where))
    assert found["findings"] == json.loads(run("verify", root, "-o", "json"))["findings"]


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*.parquet")}


def test_a_worker_is_killed_during_an_export(machines: Cluster, tmp_path: Path) -> None:
    root, out, undisturbed = tmp_path / "store", tmp_path / "out", tmp_path / "undisturbed"
    bulk.make(root, bulk.Bulk(log_bytes=32 << 20, file_size=8 << 20))
    where = ("--master", machines.url, *_SETTINGS, "--split-size", "512K")
    run("export", root, undisturbed, *where)
    process = start("export", root, out, *where)
    done = out / "_staging" / "done"
    until = time.monotonic() + 400
    while process.poll() is None and not (done.is_dir() and len(list(done.iterdir())) >= 10):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert process.poll() is None
    assert [path.name for path in out.iterdir()] == ["_staging"]
    machines.kill_worker()
    try:
        _, error = process.communicate(timeout=600)
    finally:
        machines.workers.append(machines.add_worker())
    assert process.returncode == 0, error.decode()
    assert tree(out) == tree(undisturbed)
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in undisturbed.iterdir())


def test_a_worker_is_killed_during_a_rebuild(machines: Cluster, tmp_path: Path) -> None:
    root, out, undisturbed = tmp_path / "store", tmp_path / "out", tmp_path / "undisturbed"
    bulk.make(root, bulk.Bulk(log_bytes=128 << 20, file_size=8 << 20, body=100))
    run("rebuild", root, "--into", undisturbed)
    process = start("rebuild", root, "--into", out, "--engine", "spark", "--master", machines.url, *_SETTINGS)
    until = time.monotonic() + 400
    while process.poll() is None and not list(out.glob(".build-*")):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert process.poll() is None
    assert [path.name for path in out.iterdir() if not path.name.startswith(".build-")] == []
    machines.kill_worker()
    try:
        _, error = process.communicate(timeout=600)
    finally:
        machines.workers.append(machines.add_worker())
    assert process.returncode == 0, error.decode()
    made, expected = (
        {str(p.relative_to(d)): p for d in (one,) for p in d.rglob("*") if p.is_file()} for one in (out, undisturbed)
    )
    assert made.keys() == expected.keys()
    assert all(made[name].read_bytes() == expected[name].read_bytes() for name in expected)


def test_a_cluster_without_workers_is_given_up(tmp_path: Path) -> None:
    with cluster(tmp_path, workers=0) as empty:
        process = start(
            "stats", golden.pristine(STORE), "--master", empty.url, *_SETTINGS, "--spark-conf",
            "spark.rmqctl.executorWaitSeconds=3",
        )  # fmt: skip
        _, error = process.communicate(timeout=120)
    assert process.returncode == 10
    assert b"no executor came within 3 s" in error
