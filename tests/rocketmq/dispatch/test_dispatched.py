"""Blocks dispatch what their records do one by one, and both what the broker made of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from formats.rocketmq.index import key_hash
from formats.rocketmq.message import ROLLBACK, TRANSACTION, decode_record
from formats.rocketmq.tags_code import tags_code
from formats.text import java_hash
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, Dispatcher, Wanted
from rmqctl.rocketmq.dispatch.keys import hash_codes
from rmqctl.rocketmq.dispatch.rules import UNQUEUED, DispatchRequest, DispatchRules, request_of_fields
from rmqctl.rocketmq.dispatch.units import units_of
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.log_files import log_of, record

OLD, NEW = DispatchRules(Release(4, 9, 8)), DispatchRules(Release(5, 5, 0))


def store_of(tmp_path: Path, *records: dict[str, Any]) -> StoreFiles:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log_of(records).ljust(1 << 16, b"\0"))
    return open_store_at(str(tmp_path))


def dispatched(store: StoreFiles, rules: DispatchRules, wanted: Wanted | None = None) -> Dispatched:
    dispatcher = Dispatcher(rules, wanted)
    for found in CommitLog(store.log_files).walk():
        dispatcher.add(found)
    return dispatcher.take()


def requests(store: StoreFiles, rules: DispatchRules) -> list[DispatchRequest]:
    return [
        request_of_fields(decode_record(found.block.raw(i))[0], rules)
        for found in CommitLog(store.log_files).walk()
        for i in range(len(found.block))
    ]


def is_queued(request: DispatchRequest) -> bool:
    """Whether queues get a unit: transaction type none or commit."""
    return request.sys_flag & TRANSACTION not in UNQUEUED


def is_indexed(request: DispatchRequest) -> bool:
    """Whether the index gets its keys: any transaction type but rollback."""
    return request.sys_flag & TRANSACTION != ROLLBACK


def units_by_queue(found: list[DispatchRequest], rules: DispatchRules) -> dict[Any, list[Any]]:
    units: dict[Any, list[Any]] = defaultdict(list)
    for r in found:
        if is_queued(r) and not rules.is_batch_topic(r.topic):
            units[r.topic, r.queue_id].append((r.queue_offset, r.physical_offset, r.size, r.tags_code))
            for extra in r.extra:
                row = extra.queue_offset, r.physical_offset, r.size, r.tags_code
                units[extra.topic, extra.queue_id].append(row)
    return units


@pytest.mark.parametrize("name", golden.NAMES)
def test_columns_equal_requests(name: str) -> None:
    store = open_store_at(str(golden.pristine(name)))
    rules = DispatchRules.of(store)
    found, single = dispatched(store, rules), requests(store, rules)
    by_queue = {}
    for piece in found.pieces:
        offsets = piece.first + np.arange(len(piece.units)) if piece.offsets is None else piece.offsets
        assert piece.units.dtype == units_of(offsets, offsets, offsets).dtype
        by_queue[piece.key] = [(o, *u) for o, u in zip(offsets.tolist(), piece.units.tolist(), strict=True)]
    assert by_queue == units_by_queue(single, rules)
    assert found.batches == [r for r in single if is_queued(r) and rules.is_batch_topic(r.topic)]
    assert found.index is not None
    assert found.index.hashes.tolist() == [h for r in single if is_indexed(r) for h in r.key_hashes]
    assert found.index.keys.tolist() == [len(r.key_hashes) if is_indexed(r) else 0 for r in single]
    assert found.records == len(single)


def multi(topic: bytes = b"T", names: str = "%LMQ%a,Other", offsets: str = "5,6", **more: Any) -> dict[str, Any]:
    text = f"INNER_MULTI_DISPATCH\x01{names}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02"
    return record(topic=topic, properties=text.encode(), **more)


def extras(fields: dict[str, Any], rules: DispatchRules) -> list[tuple[bytes, int, int]]:
    return [(e.topic, e.queue_id, e.queue_offset) for e in request_of_fields(fields, rules).extra]


def test_one_record_in_several_queues(tmp_path: Path) -> None:
    store = store_of(tmp_path, multi(queue_id=3), record(topic=b"Other", queue_id=3, queue_offset=7))
    found = {p.key: (p.first, p.units["physical_offset"].tolist()) for p in dispatched(store, NEW).pieces}
    size = multi()["total_size"]
    assert found == {(b"T", 3): (0, [0]), (b"%LMQ%a", 0): (5, [0]), (b"Other", 3): (6, [0, size])}


def test_extra_queues_by_release_and_settings() -> None:
    both = [(b"%LMQ%a", 0, 5), (b"Other", 1, 6)]
    assert extras(multi(), NEW) == extras(multi(), OLD) == both
    assert extras(multi(), replace(NEW, lmq=False)) == [(b"%LMQ%a", 1, 5), (b"Other", 1, 6)]
    assert extras(multi(), replace(NEW, multi_dispatch=False)) == []
    assert extras(multi(), DispatchRules(Release(4, 9, 2))) == []
    for topic in (b"%RETRY%g", b"rmq_sys_x", b"SCHEDULE_TOPIC_XXXX"):
        assert extras(multi(topic), NEW) == []
        assert extras(multi(topic), OLD) == both
    assert extras(multi(names="a/b,c"), NEW) == [(b"c", 1, 6)]
    assert extras(multi(names="a,b,c"), NEW) == extras(multi(offsets="5,x"), NEW) == []


def test_transactions(tmp_path: Path) -> None:
    kinds = [record(sys_flag=flag, queue_offset=i) for i, flag in enumerate((0, 4, 8, 0xC))]
    found = dispatched(store_of(tmp_path, *kinds), OLD)
    (piece,) = found.pieces
    assert piece.offsets is not None
    assert piece.offsets.tolist() == [0, 2]
    assert found.index is not None
    assert found.index.keys.tolist() == [1, 1, 1, 0]


def test_keys_in_the_order_of_their_entries() -> None:
    text = b"KEYS\x01b  a b\x02TAGS\x01t u\x02UNIQ_KEY\x01a\x02"
    fields = record(topic="Tö".encode(), properties=text)
    expected = [key_hash(f"Tö#{key}") for key in ("a", "b", "a", "b")]
    assert request_of_fields(fields, OLD).key_hashes == tuple(expected)
    assert request_of_fields(fields, NEW).key_hashes == (*expected, key_hash("Tö#T#t u"))


@given(
    st.lists(st.lists(st.sampled_from([b"KEYS", b"TAGS", b"a", b"\x01", b"\x02"]), max_size=12), min_size=1, max_size=4)
)
def test_properties_as_each_release_reads_them(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[bytes]]
) -> None:
    """Up to 4.9.0 a value with 0x01 in it is dropped, and the value before it counts (spec 2.6)."""
    records = [record(properties=b"".join(parts)) for parts in [[b"TAGS\x01a\x02TAGS\x01b\x01c"], *texts]]
    store = store_of(tmp_path_factory.mktemp("s"), *records)
    for release, first in ((Release(4, 9, 0), b"a"), (Release(4, 9, 1), b"b\x01c")):
        rules = DispatchRules(release)
        found, single = dispatched(store, rules), requests(store, rules)
        codes = found.pieces[0].units["tags_code"].tolist()
        assert codes == [r.tags_code for r in single]
        assert codes[0] == tags_code(first.decode())
        assert found.index is not None
        assert found.index.hashes.tolist() == [h for r in single for h in r.key_hashes]


def test_delayed_messages_carry_their_delivery_time(tmp_path: Path) -> None:
    schedule = b"SCHEDULE_TOPIC_XXXX"
    texts = (b"DELAY\x013", b"DELAY\x0199", b"DELAY\x010\x02TAGS\x01a", b"TAGS\x01a")
    records = [record(topic=schedule, properties=t, store_timestamp=1000, queue_offset=i) for i, t in enumerate(texts)]
    store = store_of(tmp_path, *records)
    (piece,) = dispatched(store, OLD).pieces
    assert piece.units["tags_code"].tolist() == [11_000, 7_201_000, 97, 97]
    assert [r.tags_code for r in requests(store, OLD)] == [11_000, 7_201_000, 97, 97]


def test_topics_wanted(tmp_path: Path) -> None:
    store = store_of(tmp_path, record(), record(topic=b"Other"), multi(queue_offset=1))
    found = dispatched(store, NEW, Wanted(topics=frozenset([b"Other"]), index=False))
    assert [(p.key, len(p.units), p.offsets is None) for p in found.pieces] == [
        ((b"Other", 1), 2, False)
    ]  # queue offsets 0 and 6
    assert found.index is None


def test_stated_offsets_are_taken_when_wanted(tmp_path: Path) -> None:
    store = store_of(tmp_path, record(), record(queue_offset=1))
    path = tmp_path / "commitlog" / f"{0:020d}"
    data, at = bytearray(path.read_bytes()), record()["total_size"]
    data[at + 28 : at + 36] = (77).to_bytes(8, "big")
    path.write_bytes(data)
    places = [
        p.units["physical_offset"].tolist()
        for stated in (False, True)
        for p in dispatched(store, OLD, Wanted(stated=stated)).pieces
    ]
    assert places == [[0, at], [0, 77]]


@given(
    texts=st.lists(st.text(st.sampled_from("aZ0%é中\U0001f600"), max_size=20), min_size=1, max_size=8),
    between=st.sampled_from([b"", b"\xff", b"#########"]),
    repeat=st.sampled_from([1, 3]),
)
def test_hashes_of_many_texts_are_those_of_java(texts: list[str], between: bytes, repeat: int) -> None:
    """Texts of any sizes, in one row or apart; of one size and at even distances where there is one of them."""
    raw = [text.encode() for text in texts for _ in range(repeat)]
    data = np.frombuffer(between + between.join(raw) + between, np.uint8)
    size = np.array([len(one) for one in raw], np.int64)
    at = np.cumsum(size + len(between)) - size
    wanted = [java_hash(one.decode()) & 0xFFFFFFFF for one in raw]
    assert hash_codes(data, at, size).tolist() == wanted
    assert hash_codes(data, at[::-1], size[::-1]).tolist() == wanted[::-1]
    assert hash_codes(data, at[:1].repeat(3), size[:1].repeat(3)).tolist() == wanted[:1] * 3
