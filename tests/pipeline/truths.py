"""What the broker's own decoder read of a golden store, in the columns of the table ``messages``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fixtures import golden

_MAGIC = {"DAA320A7": "V1", "DAA320AB": "V2"}
_TRANSACTION = {0x0: "none", 0x4: "prepared", 0x8: "commit", 0xC: "rollback"}
_COMPRESSION = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def expected(name: str) -> list[dict[str, Any]]:
    """One row a message, in log order; the body as its SHA-256."""
    return [_row(true) for true in golden.truth(name) if true["kind"] == "msg"]


def messages_of(row: dict[str, Any]) -> int:
    """How many messages a record stands for."""
    return int(dict(row["properties"]).get("INNER_NUM", 1))


def _row(true: dict[str, Any]) -> dict[str, Any]:
    # decoders from 5.2 on clear this bit after decompressing; the file still has it
    flag = true["sysFlag"] | (1 if true["bodySha256"] != true["storedBodySha256"] else 0)
    return {
        "file": true["file"],
        "position": true["pos"],
        "physical_offset": true["commitLogOffset"],
        "size": true["storeSize"],
        "magic": _MAGIC[true["magic"]],
        "body_crc": true["bodyCRC"],
        "body_crc_ok": True,
        "queue_id": true["queueId"],
        "flag": true["flag"],
        "queue_offset": true["queueOffset"],
        "sys_flag": flag,
        "born_timestamp": _EPOCH + timedelta(milliseconds=true["bornTimestamp"]),
        "born_host": true["bornHost"].removeprefix("/"),
        "store_timestamp": _EPOCH + timedelta(milliseconds=true["storeTimestamp"]),
        "store_host": true["storeHost"].removeprefix("/"),
        "reconsume_times": true["reconsumeTimes"],
        "prepared_transaction_offset": true["preparedTransactionOffset"],
        "topic": true["topic"],
        "tags": true["tags"],
        "keys": [key for key in (true["keys"] or "").split(" ") if key],
        "unique_key": true["uniqKey"],
        "message_id": true["offsetMsgId"],
        "properties": true["properties"],
        "transaction": _TRANSACTION[flag & 0xC],
        "compression": _COMPRESSION[flag >> 8 & 7] if flag & 1 else "none",
        "body_size": true["storedBodyLen"],
        "body_size_decompressed": true["bodyLen"],
        "body": true["bodySha256"],
    }


def comparable(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the table as :func:`expected` gives them."""
    return [_comparable(row) for row in rows]


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    row = {**row, "file": Path(row["file"]).name, "properties": dict(row["properties"])}
    row.pop("inner")
    row["body"] = hashlib.sha256(row["body"]).hexdigest()
    for name in ("born_timestamp", "store_timestamp"):
        row[name] = row[name].replace(tzinfo=UTC)
    return row
