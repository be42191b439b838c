"""The filters of a command line as the library takes them."""

from __future__ import annotations

from commands._options import FilterOptions
from rmqctl.rocketmq.log.filters import Filter


def filter_of(filters: FilterOptions, *, strict: bool = False) -> Filter:
    """The same restrictions as a `rmqctl.rocketmq.log.filters.Filter`."""
    return Filter.of(filters, strict=strict)
