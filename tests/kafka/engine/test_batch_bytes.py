"""Batches built from the truth of the golden log directories equal the golden bytes."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from formats.kafka import record_batch
from formats.kafka.record_batch import HEADER_SIZE, Codec, header_plan
from rmqctl.files.local import BytesSource
from rmqctl.kafka.engine.batch import (
    BatchHead,
    Ending,
    build_batch,
    encode_records,
    end_marker,
    placed,
    sequence_after,
    stamped,
    varint,
)
from rmqctl.kafka.log import reference
from rmqctl.kafka.log.codecs import LEVELS, deflate, inflate
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.log.scan import Extent, scan
from tests.kafka import batches

MODERN = [name for name in golden.KAFKA_NAMES if not name.startswith("2.8.2")]


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def golden_batches(name: str) -> Iterator[tuple[dict[str, Any], list[Record], bytes]]:
    """The truth of each batch, its records, and its bytes."""
    lines, data, file = golden.truth(name), b"", ""
    found: list[tuple[dict[str, Any], list[Record]]] = []
    for line in lines:
        if line["t"] == "batch":
            found.append((line, []))
        else:
            headers = tuple((n.encode(), decoded(v)) for n, v in line["headers"])
            record = Record(
                line["offset"], line["timestamp"], -1, decoded(line["key"]), decoded(line["value"]), headers
            )
            found[-1][1].append(record)
    for line, records in found:
        if line["file"] != file:
            file = line["file"]
            data = (golden.pristine(name) / file).read_bytes()
        yield line, records, data[line["position"] : line["position"] + line["size"]]


def head_of(line: dict[str, Any], golden_head: dict[str, Any]) -> BatchHead:
    """What the truth says; the base time only where no record has it: of the producer's clock, or kept by a clean-up."""
    stamp = line["maxTimestamp"] if line["timestampType"] == "LogAppendTime" else None
    return BatchHead(
        line["baseOffset"], line["lastOffset"], line["partitionLeaderEpoch"], Codec[line["compression"].upper()],
        append_time=stamp, base_timestamp=golden_head["base_timestamp"] if stamp is not None else None,
        max_timestamp=line["maxTimestamp"] if not line["count"] else None, producer_id=line["producerId"],
        producer_epoch=line["producerEpoch"], base_sequence=line["baseSequence"],
        transactional=line["isTransactional"], control=line["isControl"], delete_horizon=line.get("deleteHorizonMs"),
    )  # fmt: skip


@pytest.mark.parametrize("name", MODERN)
def test_batches_made_from_the_truth_equal_the_golden_bytes(name: str) -> None:
    seen = 0
    for line, records, wanted in golden_batches(name):
        stored = header_plan().unpack_from(wanted)[0]
        if line["timestampType"] == "LogAppendTime":  # the truth has the append time only
            records = [
                record._replace(timestamp=stored["base_timestamp"] + place.timestamp_delta)
                for record, place in zip(records, _places(wanted, stored), strict=True)
            ]
        made = build_batch(head_of(line, stored), records)
        if line["compression"] == "none" or not records:
            assert made == wanted, line
        else:
            ours = header_plan().unpack_from(made)[0]
            assert inflate(line_codec(line), made[HEADER_SIZE:]) == inflate(line_codec(line), wanted[HEADER_SIZE:])
            assert {**ours, "crc": 0, "batch_length": 0} == {**stored, "crc": 0, "batch_length": 0}
            assert ours["crc"] == crc32c(made[record_batch.CRC_FROM :])
        seen += 1
    assert seen > 400


def line_codec(line: dict[str, Any]) -> int:
    return int(Codec[line["compression"].upper()])


def _places(batch: bytes, stored: dict[str, Any]) -> list[reference.Places]:
    payload = bytes(inflate(stored["attributes"] & 7, batch[HEADER_SIZE:]))
    return list(reference.places(payload, 0, len(payload), stored["records_count"]))


def test_the_worked_examples_of_the_specification() -> None:
    time = 1610500000000
    records = [
        Record(129, time, -1, b"k1", b"hello", ((b"h", b"v"),)),
        Record(130, time + 300, -1, None, None, ((b"x", None),)),
    ]
    batch = build_batch(BatchHead(129, leader_epoch=5), records)
    assert len(batch) == 90
    assert batch[17:21].hex() == "21c8bf32"
    marker = end_marker(Ending(4000, 3, commit=False, coordinator_epoch=7, timestamp=time + 400), 131, 5)
    assert (len(marker), marker[17:21].hex()) == (78, "4a382a76")
    emptied = BatchHead(129, 130, 5, max_timestamp=time + 300, producer_id=4000, producer_epoch=3, base_sequence=8)
    assert build_batch(emptied, [])[17:21].hex() == "50b4b9ee"
    tombstone = BatchHead(129, 130, 5, delete_horizon=time + 86_400_000)
    found = build_batch(tombstone, [Record(129, time, -1, b"k1", None)])
    assert found[17:21].hex() == "f466acbb"
    assert build_batch(replace(emptied, codec=Codec.ZSTD), []) == build_batch(emptied, [])


texts = st.one_of(st.none(), st.binary(max_size=300))
times = st.integers(0, 1 << 45)
some_records = st.lists(
    st.tuples(times, texts, texts, st.lists(st.tuples(st.binary(max_size=9), texts), max_size=3)),
    min_size=1,
    max_size=9,
)


@given(some_records, st.integers(0, 1 << 40), st.sampled_from(list(Codec)))
def test_every_batch_reads_back_as_the_records_it_was_made_of(rows: Any, base: int, codec: Codec) -> None:
    records = [Record(base + i, t, -1, k, v, tuple(h)) for i, (t, k, v, h) in enumerate(rows)]
    batch = build_batch(BatchHead(base, codec=codec), records)
    assert list(reference.records_of_batch(batch)) == records
    block = next(iter(scan(BytesSource(batch), Extent("f"))))
    assert block.crc_ok.all()
    assert not block.gaps
    by_schema = [
        batches.record(r.offset - base, r.key, r.value, r.timestamp - records[0].timestamp, r.headers) for r in records
    ]
    assert encode_records(records, base, records[0].timestamp) == b"".join(by_schema)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_read_back(value: int) -> None:
    data = varint(value)
    assert reference.varint(data, 0, len(data), 10) == (value, len(data))


@pytest.mark.parametrize("codec", list(LEVELS))
def test_levels(codec: int) -> None:
    low, high = LEVELS[codec]
    data = b"some text that repeats, " * 50
    for level in (low, high):
        assert inflate(codec, deflate(codec, data, level)) == data
    with pytest.raises(ValueError, match="has no level"):
        deflate(codec, data, high + 1)
    with pytest.raises(ValueError, match="snappy has no level 3"):
        deflate(Codec.SNAPPY, data, 3)
    with pytest.raises(ValueError, match="codec 5 is unknown"):
        deflate(5, data)


def test_a_batch_moves_in_a_log_and_takes_the_time_of_the_leader() -> None:
    records = [Record(i, 100 + i, -1, None, b"v%d" % i) for i in range(3)]
    there = placed(build_batch(BatchHead(), records), 77, 4)
    assert there == build_batch(BatchHead(77, leader_epoch=4), [r._replace(offset=77 + r.offset) for r in records])
    now = list(reference.records_of_batch(stamped(there, 5000)))
    assert [(r.offset, r.timestamp) for r in now] == [(77, 5000), (78, 5000), (79, 5000)]
    assert stamped(there, 5000)[17:21] == crc32c(stamped(there, 5000)[21:]).to_bytes(4, "big")


def test_sequences_wrap() -> None:
    assert sequence_after(5, 3) == 8
    assert sequence_after(2147483647, 1) == 0
