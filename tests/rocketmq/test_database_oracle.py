"""Stores of 5.5.0 with parts in RocksDB: every recorded answer of a real broker is given without one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fixtures import golden
from rmqctl.explain import Trace
from rmqctl.release import Release
from rmqctl.rocketmq.query.ids import by_id, parse_message_id
from rmqctl.rocketmq.query.index_walk import FOREVER, open_index
from rmqctl.rocketmq.query.key import KeyQuery, by_key
from rmqctl.rocketmq.query.lag import progress_of
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.query.time import Boundary, offset_by_time
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.state.config import offsets_of
from rmqctl.rocketmq.store.locate import open_store_at

pytest.importorskip("rocksdict")
STORES = golden.DATABASE_STORES
REVIVED = "%RETRY%Pk_grpPop_PkPop"
"""The broker that was asked had revived messages into this topic, which are in no log of the fixture."""


def asked(name: str, kind: str) -> Iterator[dict[str, Any]]:
    for answer in golden.oracle(name)["answers"]:
        if answer.get("q") == kind and answer["topic"] != REVIVED:
            yield answer


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest) -> Iterator[RecoveredStore]:
    with RecoveredStore(open_store_at(str(golden.pristine(request.param))), Release(5, 5, 0)) as opened:
        yield opened


def stores() -> Any:
    return pytest.mark.parametrize(("started", "name"), [(s, s) for s in STORES], indirect=["started"], ids=STORES)


@stores()
def test_ranges(started: RecoveredStore, name: str) -> None:
    wrong = []
    for answer in asked(name, "range"):
        with open_queue(started, answer["topic"], answer["queueId"]) as view:
            if (view.min_offset, view.max_offset) != (answer["min"], answer["max"]):
                wrong.append((answer, view.min_offset, view.max_offset))
    assert wrong == []


@stores()
def test_offsets_by_time(started: RecoveredStore, name: str) -> None:
    wrong = []
    for answer in asked(name, "offsetByTime"):
        with open_queue(started, answer["topic"], answer["queueId"]) as view:
            found = [offset_by_time(view, answer["timestamp"], b) for b in (Boundary.LOWER, Boundary.UPPER)]
        if found != [answer["lower"], answer["upper"]]:
            wrong.append((answer, found))
    assert wrong == []


@stores()
def test_messages_by_offset(started: RecoveredStore, name: str) -> None:
    wrong = []
    for answer in asked(name, "getMessage"):
        with open_queue(started, answer["topic"], answer["queueId"]) as view:
            places = [(o, view.at(o)) for o in range(answer["offset"], answer["offset"] + len(answer["phy"]))]
            found = [place[0].unit(place[1]).physical_offset for _, place in places if place is not None]
        if found != answer["phy"]:
            wrong.append((answer, found))
    assert wrong == []


@stores()
def test_group_offsets(started: RecoveredStore, name: str) -> None:
    recorded = golden.oracle(name)["broker"]
    wanted = {
        (o.group, o.topic, o.queue_id, o.offset)
        for key, queues in recorded["consumerOffsets"].items()
        for o in offsets_of("", key, queues)
    }
    for key, offset in recorded.get("lmqConsumerOffsets", {}).items():
        wanted |= {(o.group, o.topic, o.queue_id, o.offset) for o in offsets_of("", key, {"0": offset})}
    found = {
        (o.group, o.topic, o.queue_id, o.offset)
        for queues in progress_of(started).offsets.values()
        for o in queues.values()
    }
    assert found - _reached_later(name) == wanted - _reached_later(name)


def _reached_later(name: str) -> set[Any]:
    return set()


@stores()
def test_consumer_lag(started: RecoveredStore, name: str, rmqctl: Any) -> None:
    rows = [json.loads(line) for line in rmqctl("lag", golden.pristine(name), "-o", "jsonl").stdout.splitlines()]
    found = {(r["group"], r["topic"], r["queue_id"]): (r["consumer_offset"], r["max_offset"]) for r in rows}
    for answer in golden.oracle(name)["answers"]:
        if answer.get("q") == "consumeStats":
            for queue in answer["queues"]:
                if queue["topic"] != REVIVED:
                    key = answer["group"], queue["topic"], queue["queueId"]
                    assert found[key] == (queue["consumerOffset"], queue["brokerOffset"]), key


@pytest.mark.parametrize("name", [name for name in STORES if name.endswith("-clean")])
def test_clean_stores_are_clean(name: str, rmqctl: Any) -> None:
    checked = rmqctl("verify", golden.pristine(name), "-o", "json")
    found = json.loads(checked.stdout)["findings"]
    assert Counter(f["severity"] for f in found if f["severity"] != "note") == {}, found
    assert checked.exit_code == 0


@pytest.mark.parametrize("name", STORES)
def test_there_is_nothing_to_repair(name: str, rmqctl: Any) -> None:
    result = rmqctl("repair", golden.pristine(name), "-o", "json")
    document = json.loads(result.stdout)
    assert (document["steps"], document["left"], result.exit_code) == ([], [], 0)


@pytest.mark.parametrize("name", ["5.5.0-rdbmsg-clean", "5.5.0-rdbmsg-crash"])
def test_keys(name: str) -> None:
    """What the index in RocksDB gives, in its order; after a crash with the rows that a start makes again."""
    store = open_store_at(str(golden.pristine(name)))
    wrong = []
    with open_index(store) as index:
        for answer in asked(name, "byKey"):
            kinds = (answer["type"],) if answer["type"] else ("K", "U")
            times = answer["begin"], (1 << 63) - 1 if answer["begin"] == 0 else answer["end"]
            walk = index.walk(answer["topic"], answer["key"], kinds, times, answer["max"], Trace(on=False))
            if walk.offsets != (answer["rocksdbIndex"] or []):
                wrong.append((answer, walk.offsets))
    assert wrong == []


def test_both_ends_of_the_time_asked_for_count() -> None:
    store = open_store_at(str(golden.pristine("5.5.0-rdbmsg-clean")))
    with open_index(store) as index:
        for answer in asked("5.5.0-rdbmsg-clean", "byKey"):
            wide = answer["begin"] or 1, answer["end"]
            found = index.walk(answer["topic"], answer["key"], ("K",), wide, 1, Trace(on=False)).candidates
            for time in [candidate.time for candidate in found]:
                for begin, end, there in ((time, time, True), (time + 1, time + 9, False), (time - 9, time - 1, False)):
                    walk = index.walk(answer["topic"], answer["key"], ("K",), (begin, end), 32, Trace(on=False))
                    assert (time in [candidate.time for candidate in walk.candidates]) == there
                return
    pytest.fail("no key has an entry")


def test_the_largest_time_is_no_end() -> None:
    """As the tools ask where nobody gives an end: the last days before the end of the log, not a span that is too long."""
    store = open_store_at(str(golden.pristine("5.5.0-rdbmsg-clean")))
    with open_index(store) as index:
        answer = next(answer for answer in asked("5.5.0-rdbmsg-clean", "byKey") if answer["rocksdbIndex"])
        for begin, end, there in ((0, 1, True), (1, FOREVER, True), (1, FOREVER - 1, False)):
            walk = index.walk(answer["topic"], answer["key"], ("K", "U"), (begin, end), 1, Trace(on=False))
            assert (bool(walk.candidates), bool(walk.refused)) == (there, not there)


@pytest.mark.parametrize("name", STORES)
def test_messages_by_key(name: str) -> None:
    """What the store and an administrator's client get, from files or from RocksDB."""
    store = open_store_at(str(golden.pristine(name)))
    wrong = []
    for kind in ("byKey", "adminQueryMessage"):
        for answer in asked(name, kind):
            if answer.get("type") is None and answer["begin"] and answer.get("error") is None:
                query = KeyQuery(
                    answer["topic"], answer["key"], begin=answer["begin"], end=answer["end"], max=answer["max"]
                )
                found = by_key(store, query)
                records = found.raw if kind == "byKey" else found.messages
                wanted = answer["storeQueryMessage"] if kind == "byKey" else answer["phy"]
                if [r.physical_offset for r in records] != (wanted if kind == "byKey" else sorted(set(wanted))):
                    wrong.append((answer, [r.physical_offset for r in records]))
    assert wrong == []


@pytest.mark.parametrize("name", STORES)
def test_messages_by_id(name: str, rmqctl: Any) -> None:
    store = open_store_at(str(golden.pristine(name)))
    for answer in asked(name, "viewMessage"):
        found = by_id(store, parse_message_id(answer["id"]), (answer["topic"],))
        assert answer["phy"] in [r.physical_offset for r in found.messages], answer


def conclusion(rmqctl: Any, *args: object) -> tuple[str, list[int]]:
    rows = [json.loads(line) for line in rmqctl("query-key", *args, "--explain", "-o", "jsonl").stdout.splitlines()]
    return rows[-1].get("id", ""), [r["physical_offset"] for r in rows if r["kind"] == "message"]


def test_why_the_index_in_rocksdb_gives_nothing(rmqctl: Any) -> None:
    root = golden.pristine("5.5.0-rdbmsg-clean")
    times = ("--begin", "1795315537286", "--end", "1795315551782")
    assert conclusion(rmqctl, root, "MsgOrders", "k41", *times) == ("miss.none", [14440])
    assert conclusion(rmqctl, root, "MsgOrders", "k41") == ("miss.none", [14440])
    assert conclusion(rmqctl, root, "MsgLog", "mail0", *times) == ("miss.index-prefix", [])
    assert conclusion(rmqctl, root, "MsgOrders", "k41", "--begin", "1", *times[2:]) == ("miss.index-span", [])
    early = ("--begin", "1795315530000", "--end", "1795315537300")
    assert conclusion(rmqctl, root, "MsgOrders", "k41", *early) == ("miss.entry-outside-time", [])


def test_a_row_that_is_not_there(tmp_path: Any, rmqctl: Any) -> None:
    root = golden.unpack("5.5.0-rdbmsg-clean", tmp_path)
    with open_index(open_store_at(str(root))) as index:
        walk = index.walk("MsgOrders", "k41", ("K",), (1795315537286, 1795315551782), 32, Trace(on=False))
    assert walk.offsets == [14440]
    rocksdict = pytest.importorskip("rocksdict")
    database = rocksdict.Rdict(
        str(root / "rocksdbstore"),
        options=rocksdict.Options(raw_mode=True),
        column_families={name: rocksdict.Options(raw_mode=True) for name in ("timer", "trans")},
    )
    for key in filter(lambda k: b"@k41@" in k, list(database.keys())):
        del database[key]
    database.close()
    assert conclusion(rmqctl, root, "MsgOrders", "k41")[0] == "miss.index-row-missing"
