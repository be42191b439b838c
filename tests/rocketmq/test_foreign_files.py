"""Files of another kind in a store's places: always an answer, never a traceback."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden

Rmqctl = Callable[..., Result]

_NOISE = random.Random(7)
FOREIGN = {
    "empty": b"",
    "one byte": b"\x00",
    "text": b"not a store\n" * 300,
    "json": b'{"offsetTable":{"a@b":{0:',
    "xz": (golden.DIRECTORY / "5.5.0-rocksdb-crash.tar.xz").read_bytes()[:9000],
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 9,
    "noise": _NOISE.randbytes(7001),
    "ones": b"\xff" * 6000,
    "largest lengths": b"\x7f\xff\xff\xff\xda\xa3\x20\xa7" * 700,
    "negative lengths": b"\x80\x00\x00\x00\xda\xa3\x20\xab" * 700,
    "blanks": b"\x00\x00\x00\x08\xcb\xd4\x31\x94" * 700,
    "zip": b"PK\x03\x04" + _NOISE.randbytes(500),
}

PLACES = (
    "commitlog/00000000000000000000",
    "commitlog/00000000000000393216",
    "consumequeue/LabOrders/0/00000000000000000000",
    "consumequeue/LabOrders/0/00000000000000002000",
    "batchconsumequeue/LabBatchCq/0/00000000000000000000",
    "index/20261121014405104",
    "checkpoint",
    "abort",
    "lock",
    "timerwheel",
    "timerlog/00000000000000000000",
    "config/topics.json",
    "config/consumerOffset.json",
    "config/delayOffset.json",
    "config/timercheck",
)

COMMANDS = (("verify", "-o", "json"), ("topics", "-o", "jsonl"), ("info", "-o", "json"), ("dump", "-o", "jsonl"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack("5.5.0-clean", tmp_path_factory.mktemp("foreign"))


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, store: Path) -> Iterator[Path]:
    """A file of the store that may be overwritten; it is put back afterwards."""
    file = store / request.param
    yield file
    if (golden.pristine("5.5.0-clean") / request.param).exists():
        golden.copy_file(golden.pristine("5.5.0-clean") / request.param, file)
    else:
        file.unlink(missing_ok=True)


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_store_with_a_foreign_file_is_answered(content: bytes, place: Path, store: Path, rmqctl: Rmqctl) -> None:
    place.write_bytes(content)
    for command, *options in COMMANDS:
        result = rmqctl(command, store, *options)
        assert result.exit_code in (0, 1), (command, result.stderr)
        assert_readable(result)


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize(
    "place",
    ["commitlog/00000000000000000000", "consumequeue/LabOrders/0/00000000000000000000", "index/20261121014405104"],
)
def test_verify_names_the_file_that_was_replaced(content: bytes, place: str, store: Path, rmqctl: Rmqctl) -> None:
    (store / place).write_bytes(content)
    try:
        document = json.loads(rmqctl("verify", store, "-o", "json").stdout)
    finally:
        golden.copy_file(golden.pristine("5.5.0-clean") / place, store / place)
    assert place in {found["file"] for found in document["findings"] if found["severity"] != "note"}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize(
    "name", ["picture.png", "00000000000000000000", "checkpoint", "20261121014405104", "topics.json"]
)
def test_a_file_alone_is_answered(content: bytes, name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    for command, *options in COMMANDS:
        result = rmqctl(command, file, *options)
        assert result.exit_code in (0, 1, 2, 11, 15), (command, result.stderr)
        assert_readable(result)


def assert_readable(result: Result) -> None:
    """What is printed is whole JSON, and what is said is no traceback."""
    assert "Traceback" not in result.stderr
    documents: list[Any] = (
        [json.loads(line) for line in result.stdout.splitlines()] if result.stdout[:2] != "{\n" else []
    )
    assert all(isinstance(document, dict | list) for document in documents)
