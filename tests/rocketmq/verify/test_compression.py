"""Bodies against the compression bits of SYSFLAG, and how far a body is inflated."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lz4.frame import compress as lz4_compress
from zstandard import ZstdCompressor

from rmqctl.files.local import BytesSource
from rmqctl.filters import DEFAULT_MAX_BODY
from rmqctl.findings import Finding
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.record import open_body, why_not_inflated
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.verify.log import LogChecker, LogJoin
from tests.rocketmq.verify.compression_helpers import record

TEXT = b"compressed bodies are longer than four kilobytes " * 100
BODIES = {"none": TEXT, "zlib": zlib.compress(TEXT), "lz4": lz4_compress(TEXT), "zstd": ZstdCompressor().compress(TEXT)}
COMPRESSED, LZ4, ZSTD, ZLIB = 1, 0x100, 0x200, 0x300


def findings(*records: tuple[bytes, int, bytes]) -> list[Finding]:
    data = bytearray()
    for body, flags, topic in records:
        data += record(body, flags, topic, len(data))
    checker, join = LogChecker(), LogJoin()
    found: list[Finding] = []
    for block in scan(BytesSource(bytes(data)), Extent("log", 0)):
        found += checker.block(LogBlock(block))
    join.add(checker.finish())
    found += join.findings()
    return [f for f in found if f.kind.id == "log.compression"]


@pytest.mark.parametrize(
    ("codec", "flags"),
    [("none", 0), ("zlib", 1), ("zlib", 1 | ZLIB), ("lz4", 1 | LZ4), ("zstd", 1 | ZSTD), ("none", ZLIB), ("none", LZ4)],
)
def test_a_body_that_is_what_its_flag_says(codec: str, flags: int) -> None:
    """A type without the flag is what a broker leaves that has inflated the body."""
    assert findings((BODIES[codec], flags, b"T")) == []


@pytest.mark.parametrize(
    ("codec", "flags"),
    [
        ("none", 1), ("none", 1 | ZLIB), ("lz4", 1), ("zlib", 1 | LZ4), ("zstd", 1 | ZLIB), ("zlib", 1 | 0x400),
        ("zlib", ZLIB), ("lz4", LZ4), ("zstd", ZSTD),
    ],
)  # fmt: skip
def test_a_body_that_is_not(codec: str, flags: int) -> None:
    assert [f.level for f in findings((BODIES[codec], flags, b"T"))] == ["error"]


@pytest.mark.parametrize(("codec", "flags"), [("zlib", 1), ("lz4", 1 | LZ4), ("zstd", 1 | ZSTD)])
def test_a_body_that_ends_early_or_is_damaged_inside(codec: str, flags: int) -> None:
    """Its CRC is right, as it was damaged before it was stored."""
    body = BODIES[codec]
    assert [f.level for f in findings((body[:-3], flags, b"T"))] == ["error"]
    if codec != "zstd":  # its frames carry no check sum here
        assert [f.level for f in findings((body[:12] + b"\0\xff\0" + body[15:], flags, b"T"))] == ["error"]


def test_a_lost_flag_without_a_type() -> None:
    """A warning where the topic's other messages are compressed and say so; else the producer's own work."""
    one = BODIES["zlib"], 0, b"T"
    assert [f.level for f in findings(one, (BODIES["zlib"], 1, b"T"))] == ["warning"]
    assert [f.level for f in findings(one, (BODIES["zlib"], 1, b"U"))] == ["note"]
    three = findings(one, one, one)
    assert [f.level for f in three] == ["note"]
    assert "3 such messages" in three[0].message
    assert findings((b"x\x9c no stream at all", 0, b"T")) == []


# --- memory -----------------------------------------------------------------------------------------


def bomb(codec: str, size: int) -> bytes:
    text = bytes(size)
    return {"zlib": zlib.compress, "lz4": lz4_compress, "zstd": ZstdCompressor().compress}[codec](text)


FLAGS = {"zlib": 1, "lz4": 1 | LZ4, "zstd": 1 | ZSTD}


@pytest.mark.parametrize("codec", FLAGS)
@pytest.mark.parametrize(("size", "fits"), [(999, True), (1000, True), (1001, False), (5000, False)])
def test_the_limit_is_exact(codec: str, size: int, fits: bool) -> None:
    opened = open_body(bomb(codec, size), FLAGS[codec], 1000)
    assert (opened.data == bytes(size)) is fits
    assert ("beyond 1000 bytes" in opened.error) is not fits
    assert why_not_inflated(bomb(codec, size), FLAGS[codec]) == ""


@pytest.mark.parametrize("codec", ["zlib", "lz4"])
def test_nobody_looks_behind_the_limit(codec: str) -> None:
    """Where a body is too long for a broker anyway, how it ends does not matter."""
    ends_early = bomb(codec, 12 << 20)[:-8]
    assert why_not_inflated(ends_early, FLAGS[codec], 1 << 20) == ""
    assert "ends early" in why_not_inflated(ends_early, FLAGS[codec], 16 << 20)


@pytest.mark.parametrize("codec", ["zlib", "lz4"])
def test_memory_stays_near_the_limit(codec: str) -> None:
    stored = bomb(codec, 100 << 20)
    work: list[Callable[[], object]] = [
        lambda: open_body(stored, FLAGS[codec]).data,
        lambda: why_not_inflated(stored, FLAGS[codec]),
    ]
    for once in work:
        tracemalloc.start()
        assert not once()
        assert tracemalloc.get_traced_memory()[1] < 4 * DEFAULT_MAX_BODY
        tracemalloc.stop()


def test_dump_says_which_body_is_too_long(tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    (tmp_path / "log").mkdir()
    path = tmp_path / "log" / f"{0:020d}"
    path.write_bytes(record(bomb("zlib", 5 << 20), 1).ljust(1 << 16, b"\0"))
    row = json.loads(rmqctl("dump", path, "--body", "-o", "jsonl").stdout)
    assert row["body"] is None
    assert "--max-body" in row["body_error"]
    row = json.loads(rmqctl("dump", path, "--body", "--body-limit", "10", "--max-body", "6M", "-o", "jsonl").stdout)
    assert row["body_size_decompressed"] == 5 << 20
    assert rmqctl("dump", path, "--grep", "\\x00\\x00").exit_code == 1
    assert rmqctl("dump", path, "--grep", "\\x00\\x00", "--max-body", "6M").exit_code == 0
