"""Every command on a real cluster of two workers, and one of them killed in the middle."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from fixtures import bulk, golden
from tests.pipeline import truths
from tests.pipeline.clusters import QUICK, Cluster, cluster

pytestmark = pytest.mark.spark

STORE = "5.5.0-clean"
_CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
}
_SETTINGS = tuple(word for key, value in _CONF.items() for word in ("--spark-conf", f"{key}={value}"))


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
    assert {r["topic"]: r["records"] for r in stats["topic"]} == Counter(r["topic"] for r in true)
    rows = json.loads(run("sql", root, "select count(*) n, sum(size) bytes from messages", "-o", "json", *where))
    assert rows == [{"n": len(true), "bytes": sum(r["size"] for r in true)}]
    found = json.loads(run("verify", root, "--engine", "spark", "-o", "json", *where))
    assert found["findings"] == json.loads(run("verify", root, "-o", "json"))["findings"]


def test_export(machines: Cluster, tmp_path: Path) -> None:
    root, out = golden.pristine(STORE), tmp_path / "out"
    run("export", root, out, "--master", machines.url, *_SETTINGS, "--split-size", "64K")
    assert exported(out) == [(row["topic"], row["physical_offset"]) for row in truths.expected(STORE)]


def exported(out: Path) -> list[tuple[str, int]]:
    """Topic and physical offset of each message of an export, in log order."""
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table(columns=["topic", "physical_offset"])
    return sorted(((row["topic"], row["physical_offset"]) for row in table.to_pylist()), key=lambda row: row[1])


def test_rebuild(machines: Cluster, tmp_path: Path) -> None:
    root, here, there = golden.pristine(STORE), tmp_path / "here", tmp_path / "there"
    run("rebuild", root, "--into", here)
    run("rebuild", root, "--into", there, "--engine", "spark", "--master", machines.url, *_SETTINGS)
    assert contents(there) == contents(here)
    assert contents(here)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_diff(machines: Cluster) -> None:
    stores = golden.pristine(STORE), golden.pristine("5.3.3-clean")
    local, spread = (
        json.loads(run("diff", *stores, "-o", "json", *more, code=1))
        for more in ((), ("--engine", "spark", "--master", machines.url, *_SETTINGS))
    )
    assert local["summary"].pop("seconds") >= 0
    assert spread["summary"].pop("seconds") >= 0
    assert spread == local


def test_the_line_of_submit_package(machines: Cluster, tmp_path: Path) -> None:
    """Typed as printed, but for the names in capitals; the code on the driver too is that of the zip."""
    line, out = run("pipeline", "submit-package", tmp_path / "deploy").strip(), tmp_path / "out"
    for name, value in (("MASTER", machines.url), ("STORE", golden.pristine(STORE)), ("OUT", out)):
        assert line.count(f" {name}") == 1
        line = line.replace(f" {name}", f" {value}")
    settings = [word for key, value in _CONF.items() for word in ("--conf", f"{key}={value}")]
    program, *words = shlex.split(line)
    home = Path(pyspark.__file__).parent
    done = subprocess.run(
        [home / "bin" / program, *settings, *words], cwd=tmp_path, capture_output=True, timeout=600, check=False,
        env={**{k: v for k, v in machines.environment.items() if k != "PYTHONPATH"}, "SPARK_HOME": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert b"messages in" in done.stdout
    assert exported(out) == [(row["topic"], row["physical_offset"]) for row in truths.expected(STORE)]


def tree(directory: Path) -> dict[str, bytes]:
    data = (directory / "data").resolve()
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*.parquet")}


def test_a_worker_is_killed_during_an_export(machines: Cluster, tmp_path: Path) -> None:
    root, out, undisturbed = tmp_path / "store", tmp_path / "out", tmp_path / "undisturbed"
    bulk.make(root, bulk.Bulk(log_bytes=32 << 20, file_size=8 << 20))
    where = ("--master", machines.url, *_SETTINGS, "--split-size", "512K")
    run("export", root, undisturbed, *where)
    process = start("export", root, out, *where)
    until = time.monotonic() + 400
    while process.poll() is None and len(list(out.glob(".data-*/_done/*.json"))) < 10:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert process.poll() is None
    assert not [path for path in out.iterdir() if path.name[0] not in "._" or path.name == "_manifest.json"]
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
    assert [path.name for path in out.iterdir() if not path.name.startswith(".build-")] == ["UNFINISHED"]
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
            "spark.rmqctl.executorWaitSeconds=15",
        )  # fmt: skip
        _, error = process.communicate(timeout=120)
    assert process.returncode == 10
    assert b"no executor came within 15 s" in error
    assert b"executorWaitSeconds" in error


def test_an_executor_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    with cluster(tmp_path, workers=0) as empty:
        process = start("stats", golden.pristine(STORE), "-o", "json", "--no-keys", "--master", empty.url, *_SETTINGS)
        assert process.stderr is not None
        said = process.stderr.readline()
        assert b"no executor of " + empty.url.encode() in said
        assert process.poll() is None
        empty.workers.append(empty.add_worker())
        out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error.decode()
    assert json.loads(out)["all"][0]["records"] == len(truths.expected(STORE))
