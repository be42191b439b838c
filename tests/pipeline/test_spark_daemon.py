"""Workers take PySpark from where it is installed, unless another Spark's is meant."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pyspark = pytest.importorskip("pyspark")

from rmqctl.pipeline import Cluster  # noqa: E402
from rmqctl.pipeline.settings import settings  # noqa: E402
from rmqctl.pipeline.spark_daemon import MODULE, without_archives  # noqa: E402

HOME = os.path.dirname(pyspark.__file__)
ARCHIVES = [
    f"{HOME}/python/lib/pyspark.zip",
    f"{HOME}/python/lib/py4j-0.10.9.9-src.zip",
    f"{HOME}/jars/spark-core_2.13-4.0.0.jar",
]
SETTING = "spark.python.daemon.module"


def test_archives_of_the_installed_spark_are_left_out() -> None:
    assert without_archives(["", *ARCHIVES, *sys.path]) == ["", *sys.path]


def test_archives_of_another_spark_stay(tmp_path: Path) -> None:
    other = [str(tmp_path / "python/lib/pyspark.zip"), *sys.path]
    assert without_archives(other) == other


def test_archives_stay_where_nothing_is_installed(tmp_path: Path) -> None:
    bare = [*ARCHIVES, str(tmp_path)]
    assert without_archives(bare) == bare


def test_only_workers_of_this_python_get_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert settings(Cluster())[SETTING] == MODULE
    assert SETTING not in settings(Cluster("spark://host:7077"))
    assert SETTING not in settings(Cluster(conf={"spark.pyspark.python": "/opt/python"}))
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert SETTING not in settings(Cluster())


def test_the_python_that_is_set_is_what_executors_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark takes it from the environment, and is deaf to the setting."""
    from rmqctl.pipeline import settings as module

    monkeypatch.setattr(module, "find_java", lambda: SimpleNamespace(home=Path("/java")))
    for name in ("JAVA_HOME", "SPARK_LAUNCHER_OPTS", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    module.prepare_environment(Cluster("spark://host:7077"))
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    module.prepare_environment(Cluster("spark://host:7077", {"spark.pyspark.python": "./env/bin/python"}))
    assert os.environ["PYSPARK_PYTHON"] == "./env/bin/python"
