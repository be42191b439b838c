"""Tables of `rmqctl dump`: of each kind of file the columns that tell most, with a remark on what is unusual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from commands._app import Output, Row
from commands._rows import take

_HEAD_ROWS = 100
_BODIES = ("body", "raw_body")
_LOG = ("physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "tags", "keys", "remark")
_QUEUE = ("kind", "topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code", "remark")
_INDEX = ("kind", "number", "slot", "key_hash", "physical_offset", "store_timestamp", "previous", "remark")
_COLUMNS = {
    "message": _LOG,
    "blank": _LOG,
    "dledger_entry": _LOG,
    "queue_unit": _QUEUE,
    "pre_blank": _QUEUE,
    "index_header": _INDEX,
    "index_slot": _INDEX,
    "index_entry": _INDEX,
}
_NESTED = {"config", "dledger_checkpoint", "dledger_term"}


def write_table(rows: Iterator[Row | None], out: Output) -> None:
    """Write a table with the columns for what comes first; nested objects as text."""
    head, _ = take(rows, _HEAD_ROWS, patient=False)
    every: Iterator[Row | None] = chain(head, rows)
    kinds = {row["kind"] for row in head} - {"finding"}
    columns = _LOG if head and not kinds else next((_COLUMNS[kind] for kind in kinds if kind in _COLUMNS), None)
    if kinds & _NESTED:
        from commands._text import text_lines

        out.text(text_lines(every, local_time=out.local_time))
    elif columns is None:
        out.show(row and {key: value for key, value in row.items() if key != "remedy"} for row in every)
    else:
        bodies = [key for key in _BODIES if any(key in row for row in head)]
        out.show((row and {**row, "remark": _remark(row)} for row in every), columns=[*columns, *bodies])


def _remark(row: Row) -> str | None:
    """What is unusual about a row, None when nothing is."""
    remark = _REMARKS.get(row["kind"])
    return (remark(row) if remark else None) or None


def _of_message(row: Row) -> str:
    return ", ".join(_facts(row))


def _facts(row: Row) -> Iterator[str]:
    if not row["body_crc_ok"]:
        yield "body CRC is wrong"
    if row["magic"] != "V1":
        yield str(row["magic"])
    for key in ("transaction", "compression"):
        if row[key] != "none":
            yield str(row[key])
    if "inner" in row:
        yield f"batch of {len(row['inner'])}"


def _of_unit(row: Row) -> str:
    return f"tags code {row['ext']['tags_code']} in the extension" if row.get("ext") else ""


def _of_header(row: Row) -> str:
    return f"{max(row['index_count'] - 1, 0)} entries, room for {row['entries']} in {row['slots']} slots"


_REMARKS: dict[str, Callable[[Row], str]] = {
    "finding": lambda row: f"{row['severity']} {row['id']}: {row['message']}",
    "message": _of_message,
    "blank": lambda row: f"blank, {row['size']} bytes to the end of the file",
    "dledger_entry": lambda row: f"entry {row['index']} of term {row['term']}",
    "queue_unit": _of_unit,
    "index_header": _of_header,
    "index_slot": lambda row: f"entries {', '.join(map(str, row['chain']))}",
}
