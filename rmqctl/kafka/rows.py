"""Batches and records as JSON-ready rows, the same in every command that shows them."""

from __future__ import annotations

import numpy as np

from formats.kafka.internal_records import INTERNAL_TOPICS, decode_control, decode_record
from formats.kafka.record_batch import control_type
from rmqctl.columns import Row, rows_of
from rmqctl.kafka.columns import RECORD, RECORD_KEYS, RecordColumns, Shown, batch_columns, shown_text
from rmqctl.kafka.directory.directory import Partition, place_of
from rmqctl.kafka.log.block import Block
from rmqctl.kafka.log.records import Records
from rmqctl.text import Fields, raw


def batch_rows(block: Block, partition: Partition | None) -> list[Row]:
    """Return a row for each batch of a block, in order."""
    return rows_of(batch_columns(block, partition))


def record_row(records: Records, index: int, partition: Partition | None, show: Shown = shown_text) -> Row:
    """Return the row of one record; see :func:`record_rows`."""
    return record_rows(records.take(np.array([index])), partition, show)[0]


def record_rows(records: Records, partition: Partition | None, show: Shown = shown_text) -> list[Row]:
    """Return the rows of records, in order; ``decoded`` has what those of internal topics and control records say.

    Args:
        partition: where they lie.
        show: how keys, values and headers are shown; other than as they are, nothing is taken apart.
    """
    made = RecordColumns(records, *place_of(partition), show)
    rows = rows_of({name: RECORD[name](made) for name in RECORD_KEYS})
    if show is shown_text:
        control = set(made.control.tolist())
        for index in range(len(rows)) if has_decoder(made.topic) else control:
            key, value = made.key.listed[index], made.value.listed[index]
            decoded = decoded_row(made.topic, key, value, is_control=index in control)
            if decoded is not None:
                rows[index]["decoded"] = decoded
    return rows


FORM: Fields = {
    "t": ("topic", lambda row: row["topic"]),
    "p": ("partition", lambda row: row["partition"]),
    "o": ("offset", lambda row: row["offset"]),
    "k": ("key", lambda row: row["key"]),
    "K": ("key size (bytes, -1 for null)", lambda row: row["key_size"]),
    "T": ("timestamp (ms)", lambda row: row["timestamp"]),
    "s": ("value", lambda row: row["value"]),
    "S": ("value size (bytes, -1 for null)", lambda row: row["value_size"]),
    "h": ("headers", lambda row: b",".join(b"%s=%s" % (raw(name), raw(value)) for name, value in row["headers"])),
}
"""What stands after a percent sign of ``--format-string``."""


def has_decoder(topic: str | None) -> bool:
    """Whether records of a topic are taken apart."""
    return topic in INTERNAL_TOPICS


def decoded_row(topic: str | None, key: bytes | None, value: bytes | None, *, is_control: bool) -> Row | None:
    """Return a record of an internal topic or a control record taken apart; None for others."""
    if is_control:
        found = decode_control(control_type(key), value)
    elif topic is not None and has_decoder(topic):
        found = decode_record(topic, key, value)
    else:
        return None
    return None if found is None else found.row()
