"""Keys and ids in stores that brokers write rarely: long topics, IPv6 hosts, DLedger logs; and in one read remotely."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.explain import Trace
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.query.explain import explain_key
from rmqctl.rocketmq.query.ids import by_id, parse_message_id
from rmqctl.rocketmq.query.key import KeyQuery, by_key
from rmqctl.rocketmq.query.log_search import Search, search_log
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at

RARE = Path(__file__).parents[3] / "fixtures" / "rare"


@pytest.fixture(params=["ipv6-v2", "ext", "dledger", "compaction"])
def rare(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[StoreFiles, list[dict[str, Any]]]:
    golden.extract(RARE / f"5.3.3-{request.param}.tar.xz", tmp_path)
    with lzma.open(RARE / f"5.3.3-{request.param}.truth.jsonl.xz", "rt", encoding="utf-8") as lines:
        return open_store_at(str(tmp_path / f"5.3.3-{request.param}")), [json.loads(line) for line in lines]


def test_every_message_by_key_by_scan_and_by_id(rare: tuple[StoreFiles, list[dict[str, Any]]]) -> None:
    store, truth = rare
    kept = [t for t in truth if t["status"] == "PUT_OK" and t.get("keys")]
    assert kept
    for true in kept[:: max(len(kept) // 30, 1)]:
        at, key = true["physical_offset"], true["keys"].split(" ")[0]
        query = KeyQuery(true["topic"], key)
        answer = by_key(store, query)
        assert at in [r.physical_offset for r in answer.messages] or len(answer.walk.candidates) == 64, true
        wanted = Search(Filter((true["topic"],), key=key))
        assert at in [r.physical_offset for part in search_log(store, wanted) for r in part.records]
        record = next(r for part in search_log(store, wanted) for r in part.records if r.physical_offset == at)
        text = (
            record.fields["store_ip"] + record.fields["store_port"].to_bytes(4, "big") + at.to_bytes(8, "big")
        ).hex()
        found = by_id(store, parse_message_id(text))
        assert [r.physical_offset for r in found.messages] == [at]
        assert not found.foreign_host
    assert explain_key(store, query, answer, Trace()).id in {"miss.none", "miss.limit"}


def test_a_remote_store_answers_the_same() -> None:
    pytest.importorskip("fsspec")
    path = golden.pristine("5.5.0-clean")
    here, there = open_store_at(str(path)), open_store_at(f"file://{path}")
    for key in ("BB2", "zip3", "emoji😀47", "no such key"):
        local, remote = (by_key(store, KeyQuery("LabOrders", key)).messages for store in (here, there))
        assert [r.raw for r in local] == [r.raw for r in remote]
