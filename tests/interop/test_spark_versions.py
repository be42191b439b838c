"""Other releases of Spark give the same rows: as many as the environments that ``RMQCTL_PYSPARK_PYTHON`` names.

That is one path of a Python, or several with colons between them; each has pyspark and what rmqctl needs, not rmqctl.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.pipeline.local_sql import LocalQueries
from rmqctl.pipeline.mounted import Mounted
from rmqctl.pipeline.settings import find_java
from rmqctl.tables import tables_of
from tests.interop.spark_versions import plain

PYTHONS = [one for one in os.environ.get("RMQCTL_PYSPARK_PYTHON", "").split(":") if one]
STORES = {"rocketmq": "5.3.3-clean", "kafkalog": "4.3.1-clean"}
pytestmark = [pytest.mark.interop, pytest.mark.spark]


def expected(format: str, table: str, **options: str) -> list[str]:
    tables = tables_of(format, {"path": str(golden.pristine(STORES[format])), **options})
    found = tables.table(table)
    names = sorted(found.schema().names)
    rows = [row for part in found.parts() for batch in found.read(part) for row in batch.to_pylist()]
    return sorted(repr([shown(row[name], name) for name in names]) for row in rows)


def shown(value: Any, name: str) -> Any:
    """A value of Arrow as Spark's Python has it."""
    if name == "properties":
        return plain(dict(value))
    if name in {"headers", "inner"} and value is not None:
        return plain([tuple(dict(v) if k == "properties" else v for k, v in one.items()) for one in value])
    return plain(value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value)


@pytest.mark.parametrize("python", PYTHONS or [None])
def test_the_same_rows(python: str | None, tmp_path: Path) -> None:
    if python is None:
        pytest.skip("RMQCTL_PYSPARK_PYTHON names no Python with another release of PySpark")
    root = Path(__file__).parents[2]
    environment = {
        **os.environ, "PYTHONPATH": str(root), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "TZ": "UTC",
        "JAVA_HOME": os.fspath(find_java().home),
    }  # fmt: skip
    paths = [str(golden.pristine(name)) for name in STORES.values()]
    program = [python, str(root / "tests" / "interop" / "spark_versions.py"), *paths, str(tmp_path)]
    done = subprocess.run(program, check=False, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(
        next(line for line in done.stdout.splitlines() if line.startswith("FOUND")).removeprefix("FOUND")
    )
    messages, records = expected("rocketmq", "messages"), expected("kafkalog", "records")
    assert found["messages"] == messages
    assert found["records"] == records
    assert found["topics"] == expected("kafkalog", "topics")
    assert found["filtered"] == expected("rocketmq", "messages", topic="LabOne", queue="0")
    assert found["counts"]["given"] == found["counts"]["records"] == len(messages)
    assert found["has_formats"] == (not found["version"].startswith("3."))
    if not found["has_formats"]:
        return
    assert found["read rocketmq"] == messages
    assert found["read kafkalog"] == records
    for format, rows in (("rocketmq", messages), ("kafkalog", records)):
        assert sum(found[f"followed {format}"]) == len(rows)
    queries = LocalQueries([Mounted("", {"path": paths[0]})])
    sums = [list(row.values()) for row in queries.rows("select topic, sum(size) from messages group by 1 order by 1")]
    assert found["view"] == sums
    assert found["table"] == sums
