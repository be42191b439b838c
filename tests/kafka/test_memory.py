"""Small files that grow: what commands keep in memory of batches that inflate to very much, or hold very many records."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.kafka.record_batch import Codec
from rmqctl.kafka import columns
from rmqctl.kafka.dump import lines
from rmqctl.kafka.log import records as decoding
from rmqctl.kafka.log.codecs import INFLATE_LIMIT, deflate, inflate
from rmqctl.kafka.log.records import records_in
from rmqctl.kafka.log.reference import records_of_batch
from tests.conftest import Rmqctl
from tests.kafka.batches import batch, message, record

MOST = 500_000
"""KiB that a command may take."""
ZEROS = 120 << 20
_MANY = 16_000_000
_RUN = """
import resource, sys
from commands import cli
try:
    cli(sys.argv[1:])
finally:
    print(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1], file=sys.stderr)
"""


def log_directory(root: Path, data: bytes) -> Path:
    (root / "t-0").mkdir(parents=True)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n")
    (root / "t-0" / f"{0:020}.log").write_bytes(data)
    return root


def compressed(base: int, codec: Codec, payload: bytes, count: int) -> bytes:
    fields = {"attributes": int(codec), "records_count": count, "last_offset_delta": max(count - 1, 0)}
    return batch(base, [], deflate(codec, payload), **fields)


def kept(*arguments: str) -> int:
    """The most memory that a command in a process of its own had, KiB; the kernel's mark of it alone."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    assert b"Traceback" not in done.stderr, done.stderr
    return int(done.stderr.split()[-1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing says how much memory a process has used")
@pytest.mark.parametrize(
    "command",
    ["verify", "dump --records -o jsonl", "dump --records", "repair", "recover", "stats", "rebuild", "topics"],
)
@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP, Codec.LZ4, Codec.SNAPPY], ids=lambda codec: codec.name)
def test_batches_of_zeros(codec: Codec, command: str, tmp_path: Path) -> None:
    one = record(0, None, bytes(ZEROS))
    root = log_directory(tmp_path / "logs", b"".join(compressed(base, codec, one, 1) for base in range(4)))
    assert kept(*command.split(), str(root)) < MOST


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing says how much memory a process has used")
@pytest.mark.parametrize(
    "command", ["verify", "dump --records -n 5", "dump --records -o jsonl", "repair", "stats", "topics"]
)
def test_a_batch_of_millions_of_records(command: str, tmp_path: Path) -> None:
    root = log_directory(tmp_path / "logs", compressed(0, Codec.ZSTD, record(0, None, None) * _MANY, _MANY))
    assert kept(*command.split(), str(root)) < MOST


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD])
@pytest.mark.parametrize("damage", ["", "cut", "more", "long"])
def test_large_batches_are_read_some_records_at_a_time(
    codec: Codec, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "GROUP_RECORDS", 10)
    each = [record(i, b"k%d" % i, None if i % 3 else b"value" * i, headers=[(b"h", b"%d" % i)]) for i in range(64)]
    payload, count = b"".join(each), len(each)
    if damage == "cut":
        payload = payload[:-3]
    elif damage == "more":
        payload += b"\0\0"
    elif damage == "long":  # a length in more bytes than it needs
        at = sum(map(len, each[:34]))
        payload = payload[:at] + bytes([payload[at] | 0x80, 0]) + payload[at + 1 :]
    raw = compressed(5, codec, payload, count)
    expected: list[Any] = []
    error = ""
    try:
        expected.extend(records_of_batch(raw))
    except ValueError as failure:
        error = str(failure)
    groups = list(records_in(raw))
    found = [
        (int(g.offset[i]), int(g.timestamp[i]), int(g.sequence[i]), g.key(i), g.value(i), tuple(g.headers_of(i)))
        for g in groups
        for i in range(len(g))
    ]
    assert found == [tuple(one) for one in expected]
    assert [str(e) for g in groups for e in g.failures.values()] == ([error] if error else [])
    assert max(map(len, groups)) <= 10
    assert len(expected) >= 60


def test_a_large_wrapper_is_read_some_messages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "GROUP_RECORDS", 10)
    monkeypatch.setattr(decoding, "GROUP_BYTES", 100)
    inner = b"".join(message(i, b"k%d" % i, b"value %d" % i) for i in range(64))
    raw = message(163, None, deflate(Codec.GZIP, inner), attributes=int(Codec.GZIP))
    groups = list(records_in(raw))
    found = [(int(g.offset[i]), g.key(i), g.value(i)) for g in groups for i in range(len(g))]
    assert found == [(one.offset, one.key, one.value) for one in records_of_batch(raw)]
    assert found[0][0] == 100
    assert max(map(len, groups)) <= 10


def test_rows_of_a_large_batch_are_those_of_small_ones(
    rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = [record(i, b"k%d" % (i % 7), b"value %d" % i) for i in range(64)]
    data = batch(0, each) + compressed(64, Codec.ZSTD, b"".join(each), 64) + compressed(128, Codec.ZSTD, b"junk", 64)
    root = str(log_directory(tmp_path / "logs", data + batch(192, each[:3])))
    asked = (
        ["--records"], ["--records", "--key", "k3"], ["--key", "k3"], ["--records", "-n", "70"],
        ["--records", "--redact"], ["--records", "--damaged"],
    )  # fmt: skip
    forms = ("jsonl", "json", "csv", "kafka-dump-log")
    calls = [[*one, "-o", form] for one in asked for form in forms[:3]] + [["--deep-iteration", "-o", forms[3]]]
    expected = [rmqctl("dump", root, *call).stdout for call in calls]
    checked = rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()[:-1]
    monkeypatch.setattr(decoding, "GROUP_RECORDS", 10)
    assert [rmqctl("dump", root, *call).stdout for call in calls] == expected
    assert rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()[:-1] == checked
    assert len(checked) > 1
    shown = [json.loads(line) for line in expected[0].splitlines()]
    assert [row["kind"] for row in shown].count("record") == 131
    assert {row["id"] for row in shown if row["kind"] == "finding"} == {"record.unreadable"}


def test_what_is_too_large_to_be_shown_is_a_hash(
    rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "LARGEST_SHOWN", 20)
    monkeypatch.setattr(lines, "_LONG", 20)
    value = b"x" * 21
    root = str(log_directory(tmp_path / "logs", batch(0, [record(0, b"k", value), record(1, b"k", value[:-1])])))
    shown = json.loads(rmqctl("dump", root, "--records", "-o", "json").stdout)[1:]
    assert [row["value"] for row in shown] == [{"sha256": hashlib.sha256(value).hexdigest()}, "x" * 20]
    assert shown[0]["value_size"] == 21
    text = rmqctl("dump", root, "--records", "--format-string", "%s\\n").stdout
    assert text.splitlines() == [f"sha256:{hashlib.sha256(value).hexdigest()}", "x" * 20]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD])
@pytest.mark.parametrize("size", [0, 1, 1 << 20, (3 << 20) + 5])
def test_inflated_in_pieces(codec: Codec, size: int) -> None:
    data = np.random.default_rng(1).integers(0, 4, size, np.uint8).tobytes() + bytes(size)
    stored = deflate(codec, data)
    assert bytes(inflate(codec, stored)) == data
    if data:
        assert bytes(inflate(codec, stored, limit=len(data))) == data
        with pytest.raises(ValueError, match="inflates to more than"):
            inflate(codec, stored, limit=len(data) - 1)
        with pytest.raises(ValueError, match=r"cut|snappy|lz4"):
            inflate(codec, stored[:-9])
    assert INFLATE_LIMIT >= ZEROS


def one_record_batches(count: int) -> bytes:
    """Batches of one record each; a CRC does not cover their offsets."""
    one = np.frombuffer(batch(0, [record(0, None, b"v")]), np.uint8)
    found = np.repeat(one[np.newaxis], count, 0)
    found[:, :8] = np.arange(count, dtype=">i8").view(np.uint8).reshape(-1, 8)
    return found.tobytes()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing says how much memory a process has used")
@pytest.mark.parametrize("moves", [False, True])
def test_a_repair_among_millions_of_batches(moves: bool, tmp_path: Path) -> None:
    data = bytearray(one_record_batches(2_500_000))
    data[-50_000] ^= 0x55
    if moves:  # what was put in is taken out, and a file of another length made
        data[-100_000:-100_000] = bytes(3000)
    root = log_directory(tmp_path / "logs", bytes(data))
    assert kept("repair", str(root), "-o", "json") < MOST
