"""A packed environment, made as docs/clusters.md says, on workers that have nothing but a Python without packages and Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import golden
from tests.pipeline import fleets, truths
from tests.pipeline.clusters import Cluster, cluster
from tests.pipeline.test_cluster import _SETTINGS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
STORE = "5.5.0-clean"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``env`` and ``env.tar.gz``; packages come from where pip gets them."""
    made = tmp_path_factory.mktemp("packed")
    pip = ("env/bin/pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", ROOT, "venv-pack")
    pack = ("env/bin/venv-pack", "--quiet", "--prefix", "env", "--output", "env.tar.gz")
    for command in ((sys.executable, "-m", "venv", "--copies", "env"), pip, pack):
        subprocess.run([os.fspath(word) for word in command], check=True, cwd=made)
    return made


@pytest.fixture(scope="module")
def machines(place: Path) -> Iterator[Cluster]:
    with cluster(place, workers=0) as made:
        made.environment = {
            "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8",
            "JAVA_HOME": made.environment["JAVA_HOME"], "SPARK_LOCAL_IP": "127.0.0.1",
        }  # fmt: skip
        made.workers += [made.add_worker() for _ in range(2)]
        yield made


@pytest.fixture
def where(machines: Cluster) -> tuple[str, ...]:
    packed = ("spark.archives=env.tar.gz#env", "spark.pyspark.python=./env/bin/python")
    return "--master", machines.url, *_SETTINGS, *(word for one in packed for word in ("--spark-conf", one))


def run(place: Path, *arguments: object, code: int) -> str:
    """What a command says; it runs where ``./env`` is."""
    command = [sys.executable, "-m", "rmqctl", *map(str, arguments)]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = os.fspath(ROOT)
    done = subprocess.run(command, capture_output=True, cwd=place, env=environment, timeout=600, check=False)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode()


def test_sql(place: Path, where: tuple[str, ...]) -> None:
    query = "select topic, count(*) n from messages group by topic"
    lines = run(place, "sql", golden.pristine(STORE), query, "-o", "jsonl", *where, code=0).splitlines()
    true = [row["topic"] for row in truths.expected(STORE)]
    assert {row["topic"]: row["n"] for row in map(json.loads, lines)} == {t: true.count(t) for t in set(true)}


def test_a_fleet_is_verified(place: Path, where: tuple[str, ...]) -> None:
    for number, name in enumerate((STORE, "4.9.8-crash", "4.3.1-clean")):
        fleets.damage(golden.unpack(name, place / "stores"), number)
    words = ("verify", place / "stores" / "*", "-o", "json")
    alone = run(place, *words, code=1)
    assert all(store["findings"] for store in json.loads(alone)["stores"])
    together = run(place, *words, *where, "--spark-conf", "spark.rmqctl.taskBytes=200k", code=1)
    assert fleets.timeless(together) == fleets.timeless(alone)
    assert len(list(place.glob("work-*/app-*/*/env/bin/python"))) >= 2  # both workers unpacked it
