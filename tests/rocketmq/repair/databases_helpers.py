"""What tests share with test_databases: CFG, CQ, DAMAGES, LITE, MESSAGES, MIX, MSG, POP, QUEUES, SEPARATE, content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from formats.rocketmq.rocksdb import QueueUnitValue, queue_prefix
from rmqctl.rocketmq.store.databases import open_database
from rmqctl.rocketmq.store.locate import open_store_at

Damage = Callable[[Any], None]


CQ, MIX, CFG, LITE, MSG, POP = (
    f"5.5.0-{n}-clean" for n in ("rdbcq", "rdbcqmix", "rdbcfg", "rdblite", "rdbmsg", "rdbpop")
)


SEPARATE, QUEUES, MESSAGES = "consumequeue_rocksdb", "consumequeue", "rocksdbstore"


def content(root: Path, path: str) -> dict[str, dict[bytes, bytes]]:
    with open_database(open_store_at(str(root)), path, "comparing") as database:
        return {family: rows for family in database.families if (rows := dict(database.rows(family)))}


def key_where(rows: Any, test: Callable[[bytes], bool], skip: int = 0) -> bytes:
    return [key for key in list(rows.keys()) if test(key)][skip]


def wrong_unit(database: Any) -> None:
    database[key_where(database, lambda k: True, 5)] = QueueUnitValue.build(
        {"physical_offset": 5, "size": 100, "tags_code": 0, "store_timestamp": 1}
    )


def no_units(database: Any) -> None:
    for key in list(database.keys())[10:30]:
        del database[key]


def wrong_end(database: Any) -> None:
    rows = database.get_column_family("offset")
    rows[key_where(rows, lambda k: b"\x01max\x01" in k and b"CHECKPOINT" not in k)] = bytes(8) + (999).to_bytes(
        8, "big"
    )


def checkpoint_beyond(database: Any) -> None:
    rows = database.get_column_family("offset")
    rows[key_where(rows, lambda k: b"CHECKPOINT" in k)] = (1 << 40).to_bytes(8, "big")


def strange_units(database: Any) -> None:
    database[b"\xff" * 7] = b"?"
    database[queue_prefix(b"%LMQ%nobody", 3) + bytes(8)] = QueueUnitValue.build(
        {"physical_offset": 77, "size": 1, "tags_code": 0, "store_timestamp": 1}
    )
    wrong_unit(database)


def index_rows(database: Any) -> None:
    keys = [key for key in list(database.keys()) if b"@K@" in key]
    for key in keys[3:9]:
        del database[key]
    database[keys[1][:-8] + (7).to_bytes(8, "big")] = database[keys[1]]


def timer_rows(database: Any) -> None:
    rows = database.get_column_family("timer")
    keys = [key for key in list(rows.keys()) if len(key) > 40]
    rows[keys[-1]] = rows[keys[-1]][::-1]
    rows[keys[-2]] = bytes(3)


def half_rows(database: Any) -> None:
    rows = database.get_column_family("trans")
    key = key_where(rows, lambda k: len(k) > 40)
    checks = rows[key][:4]
    rows[key] = checks + bytes(4)
    rows[b"\xff" * 5] = b""


DAMAGES: list[tuple[str, str, Damage]] = [
    (CQ, SEPARATE, wrong_unit),
    (CQ, SEPARATE, strange_units),
    (LITE, SEPARATE, no_units),
    (MIX, QUEUES, wrong_unit),
    (CFG, QUEUES, no_units),
    (CFG, QUEUES, wrong_end),
    (CFG, QUEUES, checkpoint_beyond),
    (MSG, MESSAGES, index_rows),
    (MSG, MESSAGES, timer_rows),
    (MSG, MESSAGES, half_rows),
]
