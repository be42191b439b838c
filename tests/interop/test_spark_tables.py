"""Spark reads exported Delta and Iceberg tables with its own readers as the broker wrote the messages.

``RMQCTL_PYSPARK_PYTHON`` names Pythons with PySpark, as for the other releases of Spark; Maven fetches the readers.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.pipeline.settings import find_java
from tests.interop.judge import has_java
from tests.interop.test_spark_versions import PYTHONS
from tests.pipeline import truths

PACKAGES = {
    "4.0": {"delta": "io.delta:delta-spark_2.13:4.0.0", "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"},
    "4.1": {"delta": "io.delta:delta-spark_4.1_2.13:4.4.0", "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
    "4.2": {"delta": "io.delta:delta-spark_4.2_2.13:4.4.0"},
}  # fmt: skip
pytestmark = [
    pytest.mark.interop,
    pytest.mark.spark,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]


def jars_of(packages: Iterable[str], project: Path) -> list[str]:
    """The readers and what they need; what Spark brings itself is found there first."""
    project.mkdir()
    needed = ""
    for package in packages:
        group, name, version = package.split(":")
        needed += (
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    (project / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>rmqctl</groupId><artifactId>readers</artifactId>"
        f"<version>1</version><dependencies>{needed}</dependencies></project>"
    )
    goal = ["dependency:build-classpath", "-DincludeScope=runtime", "-Dmdep.outputFile=cp.txt"]
    subprocess.run(["mvn", "-q", "-B", *goal], cwd=project, check=True)
    return (project / "cp.txt").read_text("utf-8").strip().split(os.pathsep)


@pytest.mark.parametrize("python", PYTHONS or [None])
def test_tables_as_spark_reads_them(python: str | None, rmqctl: Any, tmp_path: Path) -> None:
    if python is None:
        pytest.skip("RMQCTL_PYSPARK_PYTHON names no Python with another release of PySpark")
    asked = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, check=True
    )
    packages = PACKAGES.get(".".join(asked.stdout.decode().split(".")[:2]), {})
    if not packages:
        pytest.skip("no reader is known for this release of Spark")
    tables = list[str]()
    for form in packages:
        done = rmqctl("export", golden.pristine("5.3.3-clean"), tmp_path / form, "--to", form)
        assert done.exit_code == 0, done.stderr
        tables += [form, str(tmp_path / form)]
    environment = {**os.environ, "PYSPARK_PYTHON": python, "TZ": "UTC", "JAVA_HOME": os.fspath(find_java().home)}
    environment.pop("PYTHONPATH", None)
    jars = ",".join(jars_of(packages.values(), tmp_path / "jars"))
    program = [python, str(Path(__file__).with_name("spark_tables.py")), jars, *tables]
    read = subprocess.run(program, check=False, env=environment, capture_output=True, text=True)
    assert read.returncode == 0, read.stderr[-3000:]
    found = [json.loads(line.removeprefix("FOUND")) for line in read.stdout.splitlines() if line.startswith("FOUND")]
    true = truths.expected("5.3.3-clean")
    expected = [[row[name] for name in ("physical_offset", "topic", "queue_id", "size", "body")] for row in true]
    assert {one["format"]: one["rows"] for one in found} == dict.fromkeys(packages, expected)
    assert {one["orders"] for one in found} == {sum(row["topic"] == "LabOrders" for row in true)}
