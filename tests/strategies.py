"""Hypothesis strategies: records of all eight layouts, and damage to bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from formats.rocketmq.message import Magic, SysFlag, encode_record

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def record_fields(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of a record of any layout, as long as it says."""
    v2 = draw(st.booleans())
    hosts = draw(st.sampled_from([0, 0x10, 0x20, 0x30]))
    body, properties = draw(st.binary(max_size=60)), draw(st.binary(max_size=60))
    topic = draw(st.binary(max_size=200 if v2 else 40))
    born, store = (16 if hosts & bit else 4 for bit in (SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6))
    size = 82 + born + store + len(body) + (2 if v2 else 1) + len(topic) + len(properties)
    return {
        "total_size": size,
        "magic": int(Magic.MESSAGE_V2 if v2 else Magic.MESSAGE_V1),
        "body_crc": draw(i32),
        "queue_id": draw(i32),
        "flag": draw(i32),
        "queue_offset": draw(i64),
        "physical_offset": draw(i64),
        "sys_flag": hosts | draw(st.sampled_from([0, 1, 8, 0x80, 0x301])),
        "born_timestamp": draw(i64),
        "born_ip": draw(st.binary(min_size=born, max_size=born)),
        "born_port": draw(i32),
        "store_timestamp": draw(i64),
        "store_ip": draw(st.binary(min_size=store, max_size=store)),
        "store_port": draw(i32),
        "reconsume_times": draw(i32),
        "prepared_transaction_offset": draw(i64),
        "body": body,
        "topic": topic,
        "properties": properties,
    }


def records() -> st.SearchStrategy[bytes]:
    """Records as bytes."""
    return record_fields().map(encode_record)


@st.composite
def damaged_records(draw: st.DrawFn) -> bytes:
    """Records cut anywhere, or with a byte changed."""
    raw = draw(records())
    if draw(st.booleans()):
        return raw[: draw(st.integers(0, len(raw)))]
    at = draw(st.integers(0, len(raw) - 1))
    return raw[:at] + bytes([raw[at] ^ draw(st.integers(1, 255))]) + raw[at + 1 :]
