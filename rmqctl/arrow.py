"""A table of a store as a stream of Arrow batches, and what the columns of such tables are made of: text, times, values
that recur.

The stream is for whatever takes the Arrow C stream interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqctl.text import bytes_of, listed_names, name_of

TIME = pa.timestamp("us", tz="UTC")
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999
_ROWS = 4096


def batched(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as batches; keys that are no column are left out, numbers that a column cannot hold are null.

    Names that are not UTF-8 stand as ``base64:...``, as they do where a key of a JSON object can be nothing else.
    """
    left = iter(rows)
    while some := list(islice(left, _ROWS)):
        try:
            yield pa.RecordBatch.from_pylist(some, schema=schema)
        except (UnicodeEncodeError, OverflowError, pa.ArrowInvalid):
            yield pa.RecordBatch.from_pylist([_that_fits(row, schema) for row in some], schema=schema)


def _that_fits(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    return {field.name: _fitting(row.get(field.name), field.type) for field in schema}


def _fitting(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else name_of(bytes_of(value))
    if isinstance(value, int) and pa.types.is_integer(kind):
        return value if -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1 else None
    return value


class ArrowTable:
    """A table that is read while it is consumed, and may be consumed again.

    DuckDB, Polars, pandas and pyarrow take it as it is; memory is bounded by one batch unless they keep all.

    Attributes:
        schema: the columns.
    """

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.schema, self._batches = schema, batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the batches in order."""
        return self._batches()

    def reader(self) -> pa.RecordBatchReader:
        """Return the batches as pyarrow reads them."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def read(self) -> pa.Table:
        """All of it in memory."""
        return self.reader().read_all()

    def to_arrow(self) -> pa.Table:
        """All of it in memory, as answers have it."""
        return self.read()

    def to_pandas(self) -> Any:
        """All of it in memory, as a DataFrame."""
        return self.read().to_pandas()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: columns {listed_names(self.schema.names)}; read it, or hand it on>"

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook."""
        from rmqctl.notebook import HEAD, html_of

        head = list(islice((row for batch in self.batches() for row in batch.slice(0, HEAD + 1).to_pylist()), HEAD + 1))
        return html_of(head[:HEAD], self.schema.names, repr(self), more=len(head) > HEAD)

    def narrowed(self, columns: Sequence[str] | None, where: Any, limit: int | None) -> ArrowTable:
        """Return the table with some rows only.

        Args:
            columns: those that are left; None: all.
            where: an expression of `pyarrow.compute` on any column; None: every row.
            limit: rows at most, the first ones; None: all.
        """

        def batches() -> Iterator[pa.RecordBatch]:
            left = limit
            for batch in self.batches():
                kept = batch if where is None else batch.filter(where)
                kept = kept if columns is None else kept.select(list(columns))
                kept = kept if left is None else kept.slice(0, left)
                if len(kept):
                    yield kept
                left = left if left is None else left - len(kept)
                if left == 0:
                    return

        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return ArrowTable(schema, batches)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)


# --- columns ------------------------------------------------------------------------------------------


def strings(raw: Any) -> Any:
    """Return an Arrow array of bytes as text; what is not UTF-8 becomes ``base64:...``."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if text is None else name_of(text) for text in raw.to_pylist()], pa.string())


def times(milliseconds: npt.NDArray[np.int64], lacking: npt.NDArray[np.bool_] | None = None) -> Any:
    """Epoch milliseconds as timestamps; null where they are lacking, and for what no calendar holds."""
    wrong = (milliseconds < _FIRST_MS) | (milliseconds > _LAST_MS)
    if lacking is not None:
        wrong |= lacking
    if wrong.any():
        return pa.array(np.where(wrong, 0, milliseconds) * 1000, TIME, mask=wrong)
    return pa.array(milliseconds * 1000, TIME)


def in_calendar(milliseconds: int) -> bool:
    """Whether a time lies in the years 1 to 9999."""
    return _FIRST_MS <= milliseconds <= _LAST_MS


def group_codes(columns: Sequence[Any], count: int) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """Number the combinations of values in ``count`` rows, shape (n,), and return what the numbers stand for, too.

    Args:
        columns: those that are dictionaries already have null, if at all, among their values.
    """
    codes: npt.NDArray[np.int64] = np.zeros(count, np.int64)
    values: list[tuple[Any, ...]] = [()]
    for column in columns:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode(null_encoding="encode")
        size = len(encoded.dictionary)
        codes = codes * size + encoded.indices.to_numpy(zero_copy_only=False)
        few, codes = np.unique(codes, return_inverse=True)
        texts = encoded.dictionary.to_pylist()
        values = [(*values[code // size], texts[code % size]) for code in few.tolist()]
    return codes, values
