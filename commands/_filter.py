"""The filters of a command line as the library takes them."""

from __future__ import annotations

from commands._options import FilterOptions
from rmqctl.rocketmq.filters import Filter


def filter_of(filters: FilterOptions, *, strict: bool = False) -> Filter:
    """The same restrictions as a `rmqctl.rocketmq.filters.Filter`.

    Args:
        strict: read properties as brokers up to 4.9.0 do.
    """
    return Filter(
        (filters.topic,) if filters.topic is not None else (),
        filters.queue,
        filters.key,
        filters.tag,
        filters.properties,
        filters.after,
        filters.before,
        filters.from_offset,
        filters.to_offset,
        filters.grep,
        filters.damaged,
        strict,
    )
