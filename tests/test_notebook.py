"""Stores, answers and tables say what they are, and become Arrow, pandas and HTML without losing a row."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rmqctl
from fixtures import golden
from rmqctl.answer import Answer
from rmqctl.errors import WrongUsage
from rmqctl.filters import Filters
from rmqctl.store import Store

NAMES = ("5.5.0-crash", "4.3.1-clean")


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest) -> Store:
    found = rmqctl.open(golden.pristine(request.param))
    assert isinstance(found, Store)
    return found


def test_a_store_says_what_it_is(store: Store) -> None:
    assert re.fullmatch(r"<\w+ \S+: (crashed|clean), [0-9,]+ bytes of log>", repr(store))
    assert store.root in repr(store)


@pytest.mark.parametrize("verb", ["topics", "lag", "dump", "verify"])
def test_an_answer_becomes_a_table_and_stays_what_it_is(store: Store, verb: str) -> None:
    rows = list(getattr(store, verb)())
    answer = getattr(store, verb)()
    assert repr(answer).startswith("<Answer")
    html = answer._repr_html_()
    assert html.count("<tr>") == min(len(rows), 20) + 1
    assert ("more rows" in html) == (len(rows) > 20)
    table = answer.to_arrow()
    assert table.num_rows == len(rows)
    assert list(answer) == rows
    assert {key for row in rows for key in row} <= set(table.column_names)
    topics = [row.get("topic") for row in rows]
    if any(topics):
        assert table["topic"].to_pylist() == topics
    assert len(answer.to_pandas()) == len(rows)


def test_times_are_timestamps(store: Store) -> None:
    row = next(iter(store.topics()))
    name = next(key for key in row if key.endswith("timestamp"))
    table = store.topics().to_arrow()
    assert table.schema.field(name).type == pa.timestamp("ms", "UTC")
    assert table[name].cast(pa.int64())[0].as_py() == row[name]


def test_html_cannot_be_broken_out_of() -> None:
    assert "<script>" not in Answer([{"topic": "<script>alert(1)</script>"}])._repr_html_()


def test_showing_an_answer_does_none_of_its_work(store: Store, tmp_path: Path) -> None:
    into = tmp_path / "saved"
    answer = store.salvage(into)
    assert "its work begins" in answer._repr_html_()
    assert not into.exists()


def test_a_table_takes_where_and_limit(store: Store) -> None:
    name = store.tables()[0]
    sizes = [row["size"] for row in pa.table(store.table(name)).to_pylist()]
    over = sorted(sizes)[len(sizes) // 2]
    table = store.table(name, columns=["topic"], where=pc.field("size") > over)
    assert table.schema.names == ["topic"]
    assert table.to_arrow().num_rows == sum(size > over for size in sizes)
    assert [row["size"] for row in pa.table(store.table(name, limit=7)).to_pylist()] == sizes[:7]
    assert len(store.table(name, limit=3, columns=["topic"]).to_pandas()) == 3
    assert "columns topic" in repr(table) and table._repr_html_().count("<tr>") == 21


def test_an_unknown_topic_is_named_with_the_nearest(store: Store) -> None:
    known = next(name for name in store.topic_names() if name[0].isalpha() and len(name) > 4)
    with pytest.raises(WrongUsage, match=rf"{known}x is no topic of .*; did you mean .*{known}"):
        store.table(store.tables()[0], topic=f"{known}x")


def test_a_topic_that_only_the_log_knows_is_one() -> None:
    store = rmqctl.open(golden.pristine("5.5.0-crash"))
    assert isinstance(store, Store)
    store.topic_names = list  # type: ignore[method-assign,assignment]
    assert (
        len(list(store.dump(Filters(topic="LabOrders")))) == store.table("messages", topic="LabOrders").read().num_rows
    )
