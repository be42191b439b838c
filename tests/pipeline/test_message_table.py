"""The table ``messages`` without Spark: whatever the splits, the same rows as the truth and as ``dump``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from rmqctl.arrow import times
from rmqctl.rocketmq.dump.properties import PropertyColumns
from rmqctl.rocketmq.dump.record import RowOptions, show_properties
from rmqctl.rocketmq.log.columns import Texts, pairs_of
from rmqctl.rocketmq.tables import columns
from rmqctl.rocketmq.tables.columns import BodyOption, split_size, table_options
from rmqctl.rocketmq.tables.message_table import MessageTable
from rmqctl.rocketmq.tables.messages import MessageBatches, message_schema
from rmqctl.tables import BadOption
from rmqctl.text import name_of, text_or_base64
from tests.pipeline import truths

SIZES = ("1KiB", "10000", "64K", "1G")


def rows(path: Path, **options: str) -> list[dict[str, Any]]:
    """All rows of the table, split by split."""
    table = MessageTable(table_options({"path": str(path), **options}))
    return [row for part in table.parts() for batch in table.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", golden.NAMES)
def test_messages_equal_truth_at_any_split_size(name: str, size: str) -> None:
    assert truths.comparable(rows(golden.pristine(name), splitSize=size)) == truths.expected(name)


@pytest.mark.parametrize("name", ["5.5.0-clean"])
def test_inner_batches(name: str, rmqctl: Any) -> None:
    dumped = [
        json.loads(line) for line in rmqctl("dump", golden.pristine(name), "--body", "-o", "jsonl").stdout.splitlines()
    ]
    expected = [row["inner"] for row in dumped if "inner" in row]
    found = [row["inner"] for row in rows(golden.pristine(name)) if row["inner"] is not None]
    for message in (m for inner in found for m in inner):
        message["properties"], message["body"] = dict(message["properties"]), text_or_base64(message["body"])
    assert found == expected
    assert found


def test_columns_and_bodies_are_chosen() -> None:
    root = golden.pristine("5.3.3-clean")
    (first, *_) = rows(root, columns="topic,body", body="stored")
    assert list(first) == ["topic", "body"]
    assert "body" not in rows(root, body="none")[0]
    with pytest.raises(BadOption, match="no column 'bodily'"):
        rows(root, columns="bodily")


def test_filters_choose_messages() -> None:
    root = golden.pristine("5.3.3-clean")
    everything = rows(root)
    topic, middle = everything[0]["topic"], everything[len(everything) // 2]
    assert rows(root, topic=topic) == [row for row in everything if row["topic"] == topic]
    low = middle["physical_offset"]
    assert rows(root, fromOffset=str(low)) == [row for row in everything if row["physical_offset"] >= low]
    time = middle["store_timestamp"]
    after = str(round(time.timestamp() * 1000))
    assert rows(root, after=after, splitSize="1KiB") == [row for row in everything if row["store_timestamp"] >= time]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"splitsize": "10"}, "at least 1024"),
        ({"splitsize": "x"}, "give bytes"),
        ({"body": "half"}, "half"),
        ({"queue": "a"}, "queue"),
        ({"colour": "red"}, "no option 'colour'"),
    ],
)
def test_bad_options(options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        table_options({"path": "x", **options})


def test_sizes() -> None:
    assert [split_size(text) for text in ("4096", "4K", "4KiB", "128m", "1 GiB")] == [
        4096,
        4096,
        4096,
        1 << 27,
        1 << 30,
    ]


def test_times_no_calendar_holds_are_null() -> None:
    found = times(np.array([0, 253_402_300_799_999, 253_402_300_800_000, -(1 << 63), (1 << 63) - 1], np.int64))
    assert found.is_null().to_pylist() == [False, False, True, True, True]


_PIECE = st.binary(max_size=6).map(lambda raw: raw.replace(b"\x03", b"\x01").replace(b"\x04", b"\x02"))
_NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\xff", b""])
_PAIRS = st.lists(
    st.tuples(_NAMES, st.one_of(_PIECE, st.sampled_from([b"k1 k2", b" k", b"  ", b"\xfe \xff"]))), max_size=5
)
_TEXT = st.one_of(_PIECE, _PAIRS.map(lambda pairs: b"".join(n + b"\x01" + v + b"\x02" for n, v in pairs)))


class _Texts(RowOptions):
    @property
    def value(self) -> Any:
        return name_of


@given(st.lists(_TEXT, max_size=8))
def test_properties_are_those_of_the_rows(texts: list[bytes]) -> None:
    data = np.frombuffer(b"".join(texts), np.uint8)
    start = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int64)
    columns = PropertyColumns(pairs_of(Texts(data, start)), len(texts))
    found = zip(
        columns.tags.to_pylist(), columns.keys.to_pylist(), columns.unique_key.to_pylist(), columns.properties.to_pylist(),
        strict=True,
    )  # fmt: skip
    expected = [show_properties(text, _Texts()) for text in texts]
    assert [(t, k, u, dict(a)) for t, k, u, a in found] == [
        (p.tags, p.keys, p.unique_key, p.properties) for p in expected
    ]


def test_large_bodies_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST_BYTES", 5000)
    table = MessageTable(table_options({"path": str(golden.pristine("5.5.0-clean"))}))
    found = [batch for part in table.parts() for batch in table.read(part)]
    assert len(found) > len(table.parts())
    everything = pa.Table.from_batches(found).to_pylist()
    assert truths.comparable(everything) == truths.expected("5.5.0-clean")


def test_schema_of_no_bodies() -> None:
    names = message_schema(None, BodyOption.NONE).names
    assert names[-1] == "body_size"
    assert list(MessageBatches(message_schema(["topic"])).schema.names) == ["topic"]
