"""Every batch and record of the golden log directories equals what Kafka's own classes read."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fixtures import golden
from formats.kafka.record_batch import Attributes, ControlRecordKey, ControlType
from rmqctl.files.local import LocalFile
from rmqctl.kafka.log import reference
from rmqctl.kafka.log.block import Block
from rmqctl.kafka.log.codecs import codec_name
from rmqctl.kafka.log.records import records_of
from rmqctl.kafka.log.scan import WINDOW, Extent, scan
from rmqctl.kafka.tables.columns import RECORD_SCHEMA, Place, chosen_schema, rows_of
from tests.kafka.golden_records_helpers import truth_by_file


@pytest.fixture(params=[*golden.KAFKA_NAMES, *golden.KAFKA_UNPRINTED])
def golden_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def blocks(name: str, file: str, window: int = WINDOW) -> list[Block]:
    found = [block.copy() for block in scan(LocalFile(golden.pristine(name) / file, file), Extent(file), window)]
    assert all(gap.why == "zero-tail" for block in found for gap in block.gaps)
    return found


def batch_rows(block: Block) -> list[dict[str, Any]]:
    columns = {
        "position": block.position,
        "size": block.size,
        "magic": block.magic,
        "baseOffset": block["base_offset"],
        "lastOffset": block["last_offset"],
        "count": block["records_count"],
        "maxTimestamp": block["max_timestamp"],
        "producerId": block["producer_id"],
        "producerEpoch": block["producer_epoch"],
        "baseSequence": block["base_sequence"],
        "lastSequence": block["last_sequence"],
        "partitionLeaderEpoch": block["partition_leader_epoch"],
        "isTransactional": block.flag(Attributes.TRANSACTIONAL),
        "isControl": block.flag(Attributes.CONTROL),
        "crc": block["crc"],
        "isvalid": block.crc_ok,
        "compression": block["codec"],
        "stamped": block.flag(Attributes.LOG_APPEND_TIME),
        "horizon": block.flag(Attributes.DELETE_HORIZON),
        "base": block["base_timestamp"],
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
    for row in rows:
        row["compression"] = codec_name(row["compression"])
        row["timestampType"] = "LogAppendTime" if row.pop("stamped") else "CreateTime"
        if row["magic"] == 0:
            row["timestampType"] = "NoTimestampType"
        base = row.pop("base")
        if row.pop("horizon"):
            row["deleteHorizonMs"] = base
    return rows


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def wanted_record(line: dict[str, Any]) -> tuple[Any, ...]:
    headers = tuple((name.encode(), decoded(value)) for name, value in line["headers"])
    key, value = decoded(line["key"]), decoded(line["value"])
    return line["offset"], line["timestamp"], line.get("sequence", -1), key, value, headers


@pytest.mark.parametrize("window", [WINDOW, 1000])
def test_batches_equal_the_truth(golden_name: str, window: int) -> None:
    truth = truth_by_file(golden_name)
    assert truth
    for file, wanted in truth.items():
        rows = [row for block in blocks(golden_name, file, window) for row in batch_rows(block)]
        for row, (line, inside) in zip(rows, wanted, strict=True):
            assert row == {"count": len(inside)} | {
                k: v for k, v in line.items() if k not in {"t", "file"} and v is not None
            }


SCHEMA = chosen_schema(RECORD_SCHEMA, ("offset", "timestamp", "sequence", "key", "value", "headers"))


def test_records_equal_the_truth(golden_name: str) -> None:
    for file, wanted in truth_by_file(golden_name).items():
        lines = [wanted_record(line) for _, inside in wanted for line in inside]
        columns, tables, singly = [], [], []
        for block in blocks(golden_name, file):
            for found in records_of(block):
                assert not found.failures
                for i in range(len(found)):
                    head = int(found.offset[i]), int(found.timestamp[i]), int(found.sequence[i])
                    columns.append((*head, found.key(i), found.value(i), tuple(found.headers_of(i))))
                table = rows_of(found, Place(None, None), SCHEMA)
                table.validate(full=True)
                for row in table.set_column(1, "timestamp", table["timestamp"].cast("int64")).to_pylist():
                    time = -1 if row["timestamp"] is None else row["timestamp"] // 1000
                    sequence = -1 if row["sequence"] is None else row["sequence"]
                    headers = tuple((h["name"].encode(), h["value"]) for h in row["headers"])
                    tables.append((row["offset"], time, sequence, row["key"], row["value"], headers))
            singly += [tuple(r) for i in range(len(block)) for r in reference.records_of_batch(block.raw(i))]
        assert columns == lines
        assert tables == lines
        assert singly == lines


def test_control_records_say_what_they_are(golden_name: str) -> None:
    for file, wanted in truth_by_file(golden_name).items():
        types = [line.get("controlType") for batch, inside in wanted if batch["isControl"] for line in inside]
        found = []
        for block in blocks(golden_name, file):
            for records in records_of(block.take(block.flag(Attributes.CONTROL))):
                keys = [records.key(i) or b"" for i in range(len(records))]
                found += [ControlType(ControlRecordKey.parse(key).type).name for key in keys]
        assert found == types
