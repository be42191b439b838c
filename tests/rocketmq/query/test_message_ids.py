"""Ids of all shapes taken apart, and every id of the golden stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from rmqctl.rocketmq.query.ids import NotAMessageId, UniqueKey, parse_message_id


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_ids_of_golden_stores(name: str) -> None:
    for true in (t for t in golden.truth(name) if t["kind"] == "msg"):
        offset = parse_message_id(true["offsetMsgId"]).offset
        assert offset is not None
        assert (offset.host, offset.physical_offset) == (true["storeHost"].lstrip("/"), true["commitLogOffset"])
        assert offset.is_plausible
        if true["uniqKey"]:
            wanted = parse_message_id(true["uniqKey"])
            assert wanted.unique is not None
            made = wanted.unique.made_at(true["bornTimestamp"])
            if not true["topic"].startswith(
                ("%", "RMQ_SYS", "rmq_sys", "SCHEDULE", "TRANS", "LabTx", "LabDelay", "LabRetry")
            ):
                assert 0 <= true["bornTimestamp"] - made < 5000, true
            assert wanted.offset is None or not wanted.offset.is_plausible


def test_ids_of_grpc_clients() -> None:
    unique = parse_message_id("0156F7E71C361B21BC024CCDBE00000007").unique
    assert unique is not None
    assert unique.is_grpc
    assert (unique.maker, unique.pid, unique.counter) == ("56:F7:E7:1C:36:1B", 0x21BC, 7)
    assert unique.time == 1_609_459_200_000 + 0x024CCDBE * 1000
    assert unique.made_at(0) == unique.time
    assert "gRPC" in unique.describe()


def test_ids_with_ipv6_hosts() -> None:
    wanted = parse_message_id("20010DB8000000000000000000000001" + "00002A9F" + "0000000000000A00")
    assert wanted.offset is not None
    assert wanted.offset.host == "[2001:db8::1]:10911"
    assert wanted.offset.physical_offset == 0xA00


@pytest.mark.parametrize(
    "text", ["", "0A", "0" * 31, "0" * 33, "0" * 55, "02" + "0" * 32, "G" * 32, "0 " * 16, "01" + "x" * 32]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(NotAMessageId, match="offsetMsgId has 32 hex digits"):
        parse_message_id(text)


@given(st.text(max_size=60))
def test_no_text_is_a_bug(text: str) -> None:
    try:
        parse_message_id(text).describe()
    except NotAMessageId:
        pass


@given(
    near=st.integers(1_000_000_000_000, 2_000_000_000_000),
    zone=st.integers(-12 * 4, 14 * 4),
    late=st.integers(0, 300_000),
)
def test_the_time_of_a_key_is_found_in_any_zone(near: int, zone: int, late: int) -> None:
    local = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=near + zone * 900_000)
    month = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spent = round((local - month).total_seconds() * 1000)
    assert UniqueKey("10.0.0.1", 1, 2, spent, 3).made_at(near + late) == near
