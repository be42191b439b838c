"""A table of a store as a stream of Arrow batches, for whatever takes the Arrow C stream interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from rmqctl.errors import WrongUsage


class ArrowTable:
    """A table that is read while it is consumed, and may be consumed again.

    DuckDB, Polars, pandas and pyarrow take it as it is; memory is bounded by one batch unless they keep all.

    Attributes:
        schema: the columns.
    """

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.schema, self._batches = schema, batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches in order.

        Raises:
            OSError: a file cannot be read.
        """
        return self._batches()

    def reader(self) -> pa.RecordBatchReader:
        """The batches as pyarrow reads them."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def read(self) -> pa.Table:
        """All of it in memory."""
        return self.reader().read_all()

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)


def epoch_ms(moment: datetime | str | int | None) -> int | None:
    """A bound of time in epoch ms; text is ISO 8601, and a time without a zone is UTC.

    Raises:
        WrongUsage: the text is no time.
    """
    if moment is None or isinstance(moment, int):
        return moment
    try:
        found = moment if isinstance(moment, datetime) else datetime.fromisoformat(moment)
    except ValueError:
        raise WrongUsage("after, before", f"take a datetime, ISO 8601 or epoch ms, not {moment!r}.") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
