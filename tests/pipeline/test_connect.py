"""Spark Connect: a server of its own, the commands with ``--remote``, and a session that is only a client's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from fixtures import golden
from rmqctl.pipeline.settings import find_java
from tests.pipeline import fleets, truths
from tests.pipeline.clusters import QUICK
from tests.pipeline.test_cluster import run

pytest.importorskip("grpc", reason="no Spark Connect: pip install 'rmqctl[connect]'")
pytest.importorskip("grpc_status", reason="no Spark Connect: pip install 'rmqctl[connect]'")

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STORE, KAFKA = "5.5.0-clean", "4.3.1-clean"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose Python is this one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    conf = {
        "spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false", "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK, "spark.sql.shuffle.partitions": "2",
    }  # fmt: skip
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    environment = {
        **os.environ, "JAVA_HOME": os.fspath(find_java().home), "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with (tmp_path_factory.mktemp("connect") / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [submit, "--master", "local[2]", *words, "--class", name, "spark-internal"],
            stdout=log, stderr=log, env=environment,
        )  # fmt: skip
        try:
            while process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                except OSError:
                    time.sleep(0.2)
                else:
                    break
            assert process.poll() is None, Path(log.name).read_text()
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def test_commands(server: str, tmp_path: Path) -> None:
    root, where = golden.pristine(STORE), ("--remote", server)
    topics = Counter(row["topic"] for row in truths.expected(STORE))
    stats = json.loads(run("stats", root, "-o", "json", "--split-size", "64K", *where))
    assert {row["topic"]: row["records"] for row in stats["topic"]} == topics
    query = "select topic, count(*) n from messages group by topic"
    rows = map(json.loads, run("sql", root, query, "-o", "jsonl", *where).splitlines())
    assert {row["topic"]: row["n"] for row in rows} == topics
    damaged = golden.unpack(STORE, tmp_path)
    fleets.damage(damaged, 1)
    for words in (("verify", damaged, "-o", "json"), ("verify", damaged, golden.pristine(KAFKA), "-o", "json")):
        assert fleets.timeless(run(*words, *where, code=1)) == fleets.timeless(run(*words, code=1))


def test_the_formats_by_their_names(server: str) -> None:
    """In a session in which nothing of ours is imported: the server finds the format in its Python."""
    program = (
        "from pyspark.sql import SparkSession\n"
        f"spark = SparkSession.builder.remote({server!r}).getOrCreate()\n"
        f"print(spark.read.format('rocketmq').option('columns', 'topic').load({str(golden.pristine(STORE))!r}).count())\n"
        f"print(spark.read.format('kafkalog').option('columns', 'topic').load({str(golden.pristine(KAFKA))!r}).count())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd="/")
    kafka = json.loads(run("sql", golden.pristine(KAFKA), "select count(*) n from records", "-o", "jsonl"))
    assert list(map(int, done.stdout.split())) == [len(truths.expected(STORE)), kafka["n"]]
