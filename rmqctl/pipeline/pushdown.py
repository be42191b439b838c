"""Filters that Spark hands down, as the filter of messages. Spark applies them again to what passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource as spark

from rmqctl.rocketmq.filters import Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def narrowed(wanted: Filter, filters: Sequence[spark.Filter]) -> Filter:
    """A filter that passes what the given one and all of Spark's pass; those it has no words for are left out."""
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        handle = _COLUMNS.get(attribute[0]) if len(attribute) == 1 else None
        if handle is not None:
            wanted = handle(wanted, one)
    return wanted


def _topic(wanted: Filter, one: spark.Filter) -> Filter:
    values = _values(one)
    if values is None or any(not isinstance(v, str) or v.startswith("base64:") for v in values):
        return wanted
    kept = tuple(v for v in values if not wanted.topics or v in wanted.topics)
    return replace(wanted, topics=kept) if kept else wanted


def _queue(wanted: Filter, one: spark.Filter) -> Filter:
    values = _values(one)
    if values is None or len(values) != 1 or wanted.queue_id is not None:
        return wanted
    return replace(wanted, queue_id=int(values[0]))


def _values(one: spark.Filter) -> tuple[Any, ...] | None:
    if isinstance(one, spark.EqualTo):
        return (one.value,)
    return tuple(one.value) if isinstance(one, spark.In) else None


def _time(wanted: Filter, one: spark.Filter) -> Filter:
    value = getattr(one, "value", None)
    if not isinstance(value, datetime):
        return wanted
    # a value without a zone is in the session's; a day on both sides covers every zone
    slack = timedelta(0) if value.tzinfo else timedelta(days=1)
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    low, high = (_milliseconds(moment + shift) for shift in (-slack, slack))
    return _bounded(wanted, one, "after", "before", low, high)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _offset(wanted: Filter, one: spark.Filter) -> Filter:
    value = getattr(one, "value", None)
    return _bounded(wanted, one, "from_offset", "to_offset", value, value) if isinstance(value, int) else wanted


def _bounded(wanted: Filter, one: spark.Filter, lower: str, upper: str, low: int, high: int) -> Filter:
    """The bounds drawn closer; ``lower`` is inclusive, ``upper`` exclusive."""
    changes: dict[str, Any] = {}
    if isinstance(one, (spark.GreaterThan, spark.GreaterThanOrEqual, spark.EqualTo)):
        known = getattr(wanted, lower)
        changes[lower] = low if known is None else max(known, low)
    if isinstance(one, (spark.LessThan, spark.LessThanOrEqual, spark.EqualTo)):
        known = getattr(wanted, upper)
        changes[upper] = high + 1 if known is None else min(known, high + 1)
    return replace(wanted, **changes)


_COLUMNS: dict[str, Callable[[Filter, spark.Filter], Filter]] = {
    "topic": _topic,
    "queue_id": _queue,
    "store_timestamp": _time,
    "physical_offset": _offset,
}
