"""The common filters on records that were read one by one."""

from __future__ import annotations

from collections.abc import Iterable

from rmqctl.files.source import BytesSource
from rmqctl.rocketmq.filters import Filter
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.scan import Extent, scan


def passing(records: Iterable[Record], wanted: Filter) -> list[Record]:
    """The records that pass every filter, in order."""
    return [record for record in records if _passes(record, wanted)]


def _passes(record: Record, wanted: Filter) -> bool:
    """The record as a block of its own, at the place where it lies: one set of rules for every command."""
    for block in scan(BytesSource(record.raw, record.file), Extent(record.file, record.physical_offset)):
        chosen = wanted.select(block)
        if len(block):
            return chosen is None or len(chosen) > 0
    return False


__all__ = ["passing"]
