"""Installed beside the packages under this name, so that every Spark finds the format ``kafkalog`` by itself.

Spark looks for modules whose names begin with ``pyspark_`` and takes their ``DefaultSource``.
"""

from __future__ import annotations

from rmqctl.pipeline.data_source import TableSource


class DefaultSource(TableSource):
    """The format ``kafkalog``."""

    format = "kafkalog"
