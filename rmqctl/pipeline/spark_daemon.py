"""What forks Spark's Python workers on this machine: ``pyspark.daemon``, with PySpark from where it is installed.

Spark puts archives of PySpark and Py4J, and one of its own jars, in front of all else on the path of its workers. From
them every worker compiles PySpark again, and every task reads the directories of all three again. The same modules lie
compiled beside them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder

MODULE = "rmqctl.pipeline.spark_daemon"


def without_archives(paths: Sequence[str]) -> list[str]:
    """Return a path without Spark's archives, if what they hold is found after them, and belongs to the same Spark."""
    rest = [path for path in paths if not _is_archive(path)]
    spark, py4j = (PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j"))
    if spark is None or spark.origin is None or py4j is None:
        return list(paths)
    home = os.path.realpath(os.path.dirname(spark.origin))
    archives = (os.path.realpath(path) for path in paths if _is_archive(path))
    return rest if all(path.startswith(home + os.sep) for path in archives) else list(paths)


def _is_archive(path: str) -> bool:
    name = os.path.basename(path)
    return name.startswith(("pyspark", "py4j-", "spark-core_")) and name.endswith((".zip", ".jar"))


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)

    from pyspark.daemon import manager

    manager()
