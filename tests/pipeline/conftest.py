"""One Spark session for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from rmqctl.pipeline import Cluster
    from rmqctl.pipeline.cluster import start
    from rmqctl.pipeline.data_source import register

    made = start(Cluster("local[2]", {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}, log_bytes=0))
    register(made)
    yield made
    made.stop()
