"""``dump -o jsonl`` of every golden store equals what the broker's own decoder read, message by message, field by field."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden

_MAGIC = {"DAA320A7": "V1", "DAA320AB": "V2"}
_TRANSACTION = {0x0: "none", 0x4: "prepared", 0x8: "commit", 0xC: "rollback"}
_COMPRESSION = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
_COMPRESSED, _TRANSACTION_BITS, _INNER_BATCH = 0x001, 0x00C, 0x080


@pytest.mark.parametrize("name", golden.NAMES)
def test_dump_equals_truth(name: str, rmqctl: Any) -> None:
    result = rmqctl("dump", golden.pristine(name), "--body", "-o", "jsonl")
    assert result.exit_code == 0, result.stderr
    dumped = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row for row in dumped if row["kind"] == "finding" and row["severity"] != "note"] == []
    records = [row for row in dumped if row["kind"] != "finding"]
    expected = [_expected(true) for true in golden.truth(name) if true["kind"] != "end"]
    for row, true in zip(records, expected, strict=True):
        assert _comparable(row) == true


@pytest.mark.parametrize("name", golden.NAMES)
def test_file_names_are_those_of_the_store(name: str, rmqctl: Any) -> None:
    root = golden.pristine(name)
    rows = [json.loads(line) for line in rmqctl("dump", root, "-o", "jsonl").stdout.splitlines()]
    assert all((root / row["file"]).is_file() for row in rows)


def test_inner_batches_open_up(rmqctl: Any) -> None:
    rows = [
        row
        for line in rmqctl("dump", golden.pristine("5.5.0-clean"), "--body", "-o", "jsonl").stdout.splitlines()
        if (row := json.loads(line))["kind"] == "message" and row["sys_flag"] & _INNER_BATCH
    ]
    assert rows
    for row in rows:
        assert len(row["inner"]) == int(row["properties"]["INNER_NUM"])
        first = int(row["properties"]["INNER_BASE"])
        assert [inner["queue_offset"] for inner in row["inner"]] == list(range(first, first + len(row["inner"])))


def _expected(true: dict[str, Any]) -> dict[str, Any]:
    """A truth line in the words of the dump."""
    if true["kind"] == "blank":
        return {"kind": "blank", "file": true["file"], "position": true["pos"], "size": true["size"]}
    # decoders from 5.2 on clear this bit after decompressing; the file still has it
    flag = true["sysFlag"] | (_COMPRESSED if true["bodySha256"] != true["storedBodySha256"] else 0)
    return {
        "kind": "message",
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
        "born_timestamp": true["bornTimestamp"],
        "born_host": true["bornHost"].removeprefix("/"),
        "store_timestamp": true["storeTimestamp"],
        "store_host": true["storeHost"].removeprefix("/"),
        "reconsume_times": true["reconsumeTimes"],
        "prepared_transaction_offset": true["preparedTransactionOffset"],
        "topic": true["topic"],
        "tags": true["tags"],
        "keys": [key for key in (true["keys"] or "").split(" ") if key],
        "unique_key": true["uniqKey"],
        "message_id": true["offsetMsgId"],
        "properties": true["properties"],
        "transaction": _TRANSACTION[flag & _TRANSACTION_BITS],
        "compression": _COMPRESSION[flag >> 8 & 7] if flag & _COMPRESSED else "none",
        "body_size": true["storedBodyLen"],
        "body_size_decompressed": true["bodyLen"],
        "body": true["bodySha256"],
    }


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A dumped row as :func:`_expected` gives it: the file without its directory, the body as its hash."""
    row = {**row, "file": Path(row["file"]).name}
    if row["kind"] == "blank":
        assert row.pop("physical_offset") == int(row["file"]) + row["position"]
        return row
    row.pop("inner", None)
    row["body"] = hashlib.sha256(_bytes_of(row["body"])).hexdigest()
    return row


def _bytes_of(body: str | dict[str, str]) -> bytes:
    return base64.b64decode(body["base64"]) if isinstance(body, dict) else body.encode("utf-8")
