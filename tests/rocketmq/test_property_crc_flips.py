"""A record with ``__CRC32#``: whichever of its bytes changes, verify names that record and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden

NAME = "5.5.0-propcrc-clean"
Rmqctl = Callable[..., Result]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack(NAME, tmp_path_factory.mktemp("propcrc"))


def test_every_flipped_byte_is_proven(store: Path, rmqctl: Rmqctl) -> None:
    record = next(true for true in golden.truth(NAME) if true["kind"] == "msg" and true["n"] == 100)
    start, end = record["pos"], record["pos"] + record["storeSize"]
    file = store / "commitlog" / record["file"]
    content = file.read_bytes()
    silent, strange = [], []
    for position in range(start, end):
        file.write_bytes(content[:position] + bytes([content[position] ^ 0x04]) + content[position + 1 :])
        findings = [
            found
            for found in json.loads(rmqctl("verify", store, "-o", "json", "--level", "full").stdout)["findings"]
            if found["severity"] != "note" and found["file"] == f"commitlog/{record['file']}"
        ]
        if not any(start <= found["offset"] < end for found in findings):
            silent.append(position - start)
        strange += [(position - start, found) for found in findings if not start <= found["offset"] < end]
    file.write_bytes(content)
    # without its name or an end the property is not the CRC any more, and nothing says that there ever was one
    size = record["storeSize"]
    assert set(silent) <= {*range(size - 20, size - 11), size - 1}
    assert [row for row in strange if row[1]["id"] != "log.queue-offset"] == []
