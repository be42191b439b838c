"""Installed beside the packages under this name, so that every Spark finds the format ``rocketmq`` by itself.

Spark looks for modules whose names begin with ``pyspark_`` and takes their ``DefaultSource``. A
session of its own hands down no filters unless it is told to; :func:`rmqctl.pipeline.session` is.
"""

from __future__ import annotations

from rmqctl.pipeline.data_source import PlainRocketMQSource


class DefaultSource(PlainRocketMQSource):
    """The format ``rocketmq``."""
