"""Every question by key and by id in the oracles of the golden stores, answered element by element as the broker did.

The answers for crashed stores are those after the broker's own recovery. The raw files give the same ones: what the
recovery deletes from the index it builds again from the log, and every key asked for is older than the kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fixtures import golden
from rmqctl.explain import Trace
from rmqctl.rocketmq.index import IndexFile, index_files
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.query.ids import by_id, parse_message_id
from rmqctl.rocketmq.query.key import KeyAnswer, KeyQuery, by_key, by_key_in
from rmqctl.rocketmq.query.log_search import Search, search_log
from rmqctl.rocketmq.query.records import KEYS, Record
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import index_geometry
from rmqctl.rocketmq.store.locate import open_store_at

Question = dict[str, Any]


def questions(name: str, part: str, kind: str) -> list[Question]:
    found = [q for q in golden.oracle(name)[part]["answers"] if q.get("q") == kind]
    assert found
    return found


def store_of(name: str) -> StoreFiles:
    return open_store_at(str(golden.pristine(name)))


@contextmanager
def opened(store: StoreFiles) -> Iterator[tuple[list[IndexFile], LogReader]]:
    files = index_files(store, index_geometry(store))
    with LogReader(store.log_files) as log:
        yield files, log
    for file in files:
        file.close()


def asked(question: Question) -> KeyQuery:
    return KeyQuery(
        question["topic"], question["key"], begin=question["begin"], end=question["end"], max=question["max"]
    )


def offsets(records: list[Record]) -> list[int]:
    return [record.physical_offset for record in records]


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_index_and_store_answers(name: str) -> None:
    with opened(store_of(name)) as (files, log):
        for question in questions(name, "embedded", "byKey"):
            answer: KeyAnswer = by_key_in(files, log, asked(question), Trace(on=False))
            assert answer.walk.offsets == question["indexQueryOffset"], question
            assert offsets(answer.raw) == question["storeQueryMessage"], question


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_what_the_admin_client_shows(name: str) -> None:
    with opened(store_of(name)) as (files, log):
        for question in questions(name, "admin", "adminQueryMessage"):
            answer = by_key_in(files, log, asked(question), Trace(on=False))
            assert offsets(answer.messages) == question["phy"], question


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_messages_by_both_kinds_of_id(name: str) -> None:
    store = store_of(name)
    for question in questions(name, "admin", "viewMessage"):
        for topics in ((question["topic"],), ()):
            message = by_id(store, parse_message_id(question["id"]), topics).messages[0]
            assert message.physical_offset == question["phy"], question
            assert message.fields["queue_id"] == question["queueId"]
            assert message.fields["queue_offset"] == question["queueOffset"]


@pytest.mark.parametrize("name", ["4.5.2-clean", "5.1.4-crash", "5.5.0-clean"])
def test_a_scan_finds_every_message_with_a_key(name: str) -> None:
    store, records = store_of(name), [t for t in golden.truth(name) if t["kind"] == "msg"]
    for topic, key in {(t["topic"], k) for t in records[::9] for k in (t["keys"] or "").split(" ") if k}:
        wanted = Search(Filter((topic,), key=key), (KEYS,))
        found = [r.physical_offset for part in search_log(store, wanted) for r in part.records]
        true = [t["commitLogOffset"] for t in records if t["topic"] == topic and key in (t["keys"] or "").split(" ")]
        # the messages of an inner batch have keys of their own, which the decoder of the truth does not see
        assert [o for o in found if o in true] == true
        assert all(t["sysFlag"] & 0x80 for t in records if t["commitLogOffset"] in set(found) - set(true))


@pytest.mark.parametrize("name", ["5.5.0-clean", "5.5.0-crash"])
def test_tags_are_indexed_from_5_4_on(name: str) -> None:
    store, records = store_of(name), [t for t in golden.truth(name) if t["kind"] == "msg"]
    tagged = [t["commitLogOffset"] for t in records if t["topic"] == "LabOrders" and t["tags"] == "TagA"]
    assert offsets(by_key(store, KeyQuery("LabOrders", None, tag="TagA")).messages) == tagged[-64:]


def test_before_5_4_tags_are_not_indexed() -> None:
    assert not by_key(store_of("5.3.3-clean"), KeyQuery("LabOrders", None, tag="TagA")).walk.candidates


@pytest.mark.parametrize("name", ["5.5.0-propcrc-clean", "5.5.0-multipath-clean", "5.5.0-rocksdb-clean"])
def test_stores_of_other_kinds(name: str) -> None:
    store, records = store_of(name), [t for t in golden.truth(name) if t["kind"] == "msg"]
    for true in records[::20]:
        by_place = by_id(store, parse_message_id(true["offsetMsgId"])).messages
        assert offsets(by_place) == [true["commitLogOffset"]]
        keys = (true["keys"] or "").split(" ")
        if keys[0]:
            found = by_key(store, KeyQuery(true["topic"], keys[0])).messages
            assert true["commitLogOffset"] in offsets(found) or len(found) == 64


def test_keys_with_one_hash_are_told_apart() -> None:
    store = store_of("5.5.0-clean")
    for key in ("AaAa", "BBBB", "AaBB", "tbaekxa"):
        answer = by_key(store, KeyQuery("LabOne", key))
        assert len(answer.messages) == 1
        assert answer.messages[0].has_key(key)
    assert len(by_key(store, KeyQuery("LabOne", "AaAa")).raw) == 3
