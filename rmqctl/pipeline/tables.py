"""The tables of a store: what columns they have, how they are divided among tasks, how a part is read.

A table knows nothing of Spark; it travels to executors as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from rmqctl.pipeline.index_table import IndexTable
from rmqctl.pipeline.message_table import MessageTable
from rmqctl.pipeline.options import BadOption, TableOptions
from rmqctl.pipeline.small_tables import ConsumerTable, FindingTable, TopicTable
from rmqctl.pipeline.unit_table import UnitTable


class Table(Protocol):
    """One table of a store."""

    def schema(self) -> pa.Schema:
        """Its columns."""
        ...

    def parts(self) -> Sequence[Any]:
        """What the tasks read, in order; each can be pickled."""
        ...

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        ...


TABLES: dict[str, Callable[[TableOptions], Table]] = {
    "messages": MessageTable,
    "queue_units": UnitTable,
    "index_entries": IndexTable,
    "findings": FindingTable,
    "topics": TopicTable,
    "consumer_offsets": ConsumerTable,
}


def table(name: str, options: TableOptions) -> Table:
    """A table of a store.

    Raises:
        BadOption: there is no table of this name.
    """
    if name not in TABLES:
        raise BadOption(f"a store has no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name](options)
