"""Filters on columns choose the same records as a look at every row."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from formats.rocketmq.index import key_hash
from formats.text import java_hash
from rmqctl.files.local import BytesSource
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.dump.record import RowOptions, raw
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.store.locate import open_store
from tests.rocketmq.log_files import item, log_of, record

STORE = "5.5.0-clean"
Row = dict[str, Any]


@cache
def every() -> list[Row]:
    """All messages of a store, with bodies."""
    request = Request(show=RowOptions(body=True))
    return [row for row in Dump.of_store(_store(), request).rows() if row["kind"] == "message"]


def _store() -> Any:
    return open_store(LocalTree(golden.pristine(STORE)))


def chosen(**wanted: Any) -> list[int]:
    """Physical offsets of the messages that a dump shows."""
    rows = Dump.of_store(_store(), Request(Filter(**wanted))).rows()
    return [row["physical_offset"] for row in rows if row["kind"] == "message"]


def _keeps(row: Row, wanted: dict[str, Any]) -> bool:
    """What the filters say, by the row alone."""
    messages = [row, *row.get("inner", [])]
    either = {"topics", "topic_like"} & wanted.keys()
    if either and not any(_is_one(row["topic"], name, wanted[name]) for name in either):
        return False
    either = {"keys", "key_like"} & wanted.keys()
    parts = [part for m in messages for part in (*m["keys"], m["unique_key"]) if part]
    if either and not any(_is_one(part, name, wanted[name]) for name in either for part in parts):
        return False
    wanted = {name: value for name, value in wanted.items() if not name.startswith(("topic", "keys", "key_like"))}
    tests = {
        "queue_id": lambda value: row["queue_id"] == value,
        "key": lambda value: any(value in [*m["keys"], m["unique_key"]] for m in messages),
        "tag": lambda value: any(m["tags"] == value for m in messages),
        "properties": lambda value: any(all(m["properties"].get(n) == v for n, v in value) for m in messages),
        "after": lambda value: row["store_timestamp"] >= value,
        "before": lambda value: row["store_timestamp"] < value,
        "from_offset": lambda value: row["physical_offset"] >= value,
        "to_offset": lambda value: row["physical_offset"] < value,
        "grep": lambda value: value.search(raw(row["body"])) is not None,
    }
    return all(tests[name](value) for name, value in wanted.items())


def _is_one(text: str, kind: str, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, name) if kind.endswith("_like") else text == name for name in names)


def patterns(names: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Patterns that match some of the names: a beginning, an end, one character left open."""
    one = st.sampled_from(names).flatmap(
        lambda name: st.sampled_from([f"{name[:3]}*", f"*{name[-2:]}", f"?{name[1:]}", f"[{name[0]}]*", "*", "none*"])
    )
    return st.lists(one, min_size=1, max_size=2).map(tuple)


def some(name: str) -> st.SearchStrategy[Any]:
    """Values that occur in the store, and one that does not."""
    values = sorted({row[name] for row in every() if row[name] is not None})
    return st.sampled_from([*values, values[-1] + type(values[-1])(1) if isinstance(values[-1], int) else "none"])


def wishes() -> st.SearchStrategy[dict[str, Any]]:
    keys = sorted({key for row in every() for key in row["keys"]})
    pairs = sorted({pair for row in every() for pair in row["properties"].items()})
    return st.fixed_dictionaries(
        {},
        optional={
            "topics": st.lists(some("topic"), min_size=1, max_size=3).map(tuple),
            "queue_id": some("queue_id"),
            "topic_like": patterns(sorted({row["topic"] for row in every()})),
            "keys": st.lists(st.sampled_from([*keys, "none"]) | some("unique_key"), min_size=1, max_size=3).map(tuple),
            "key_like": patterns(keys),
            "key": st.sampled_from([*keys, "none", "k"]) | some("unique_key"),
            "tag": some("tags"),
            "properties": st.lists(st.sampled_from(pairs), min_size=1, max_size=2).map(tuple),
            "after": some("store_timestamp"),
            "before": some("store_timestamp"),
            "from_offset": some("physical_offset"),
            "to_offset": some("physical_offset"),
            "grep": st.sampled_from([b"user9", b"[0-9]{6}", b"^$", "退款".encode(), b"(?i)ORDER"]).map(re.compile),
        },
    )


@given(st.data())
def test_filters_agree_with_a_look_at_every_row(data: st.DataObject) -> None:
    wanted = data.draw(wishes())
    assert chosen(**wanted) == [row["physical_offset"] for row in every() if _keeps(row, wanted)]


def select(records: list[dict[str, Any]], **wanted: Any) -> list[int]:
    (block,) = scan(BytesSource(log_of(records)), Extent("log", 0))
    rows = Filter(**wanted).select(block)
    return list(range(len(block))) if rows is None else rows.tolist()


def test_a_key_is_one_whole_part_of_keys() -> None:
    texts = [b"KEYS\x01ab", b"KEYS\x01a b", b"KEYS\x01x a", b"a\x01a\x02KEYS\x01b", b"KEYS\x01", b"UNIQ_KEY\x01a", b""]
    assert select([record(properties=text) for text in texts], key="a") == [1, 2, 5]
    assert select([record(properties=text) for text in texts], key="") == []


def test_of_repeated_properties_the_last_counts() -> None:
    assert select([record(properties=b"TAGS\x01a\x02TAGS\x01b\x02")], tag="a") == []
    assert select([record(properties=b"TAGS\x01a\x02TAGS\x01b\x02")], tag="b") == [0]


def test_properties_as_old_brokers_read_them() -> None:
    log = [record(properties=b"p\x01a\x01b\x02")]
    assert select(log, properties=(("p", "a\x01b"),)) == [0]
    assert select(log, properties=(("p", "a\x01b"),), strict=True) == []


def test_inner_messages_are_looked_at() -> None:
    batch = record(sys_flag=0xC0, body=item(b"one", b"KEYS\x01k1\x02") + item(b"two", b"TAGS\x01t\x02"))
    broken = record(sys_flag=0xC0, body=b"no batch")
    assert select([batch, broken, record()], key="k1") == [0]
    assert select([batch, broken, record()], tag="t") == [0]


def test_a_body_that_cannot_be_opened_matches_nothing() -> None:
    assert select([record(sys_flag=1), record()], grep=re.compile(b"hello")) == [1]


@pytest.mark.parametrize("text", ["é", "\udcff"])
def test_text_that_is_not_ascii_or_not_even_utf8(text: str) -> None:
    raw_text = text.encode("utf-8", "surrogateescape")
    log = [record(topic=raw_text, properties=b"KEYS\x01" + raw_text), record()]
    assert select(log, topics=(text,)) == select(log, key=text) == [0]


def test_other_rows_pass_by_what_they_have() -> None:
    unit = {"kind": "queue_unit", "topic": "T", "queue_id": 1, "physical_offset": 100, "tags_code": java_hash("TagA")}
    entry = {"kind": "index_entry", "key_hash": key_hash("T#k"), "physical_offset": 100, "store_timestamp": 5}
    assert Filter(topics=("T",), queue_id=1, tag="TagA", from_offset=100).includes_row(unit)
    assert not Filter(tag="TagB").includes_row(unit)
    assert not Filter(after=1).includes_row(unit)
    assert Filter(topics=("T",), key="k", after=5).includes_row(entry)
    assert not Filter(topics=("U",), key="k").includes_row(entry)
    assert not Filter(topics=("T",)).includes_row(entry)
    assert not Filter(damaged=True).includes_row(unit)
