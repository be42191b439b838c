"""Damage to the files of a store that follows their structure, for tests that ask whether an answer comes at all.

Numbers are changed where schemas have numbers, and checksums over them are made right again, so that readers believe what they
read. Files are cut, exchanged, renamed, and pipes, sockets, links, directories and sparse giants stand in their places.
"""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import socket
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

from crc32c import crc32c

import rmqctl
from formats.errors import DecodeError
from formats.kafka import message_set, producer_snapshot, record_batch
from formats.rocketmq import property_crc
from rmqctl.errors import RmqctlError
from rmqctl.hexview.annotation import Annotation
from rmqctl.kafka.log.codecs import inflate
from rmqctl.kafka.log.reference import varint
from tests.kafka.batches import batch, record

GIANT = 3 << 30
NUMBERS = (0, 1, -1, 0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000, 40, 1 << 24, 0xDAA320A7)
_MOST_FIELDS, _LARGEST = 3000, 64 << 20
_BOMB = 300 << 20
"""Bytes that a few kilobytes of a log unfold to."""
_BODY_CRC, _SYS_FLAG, _BODY_SIZE = 8, 36, 84
"""Where a record of RocketMQ with IPv4 addresses has its CRC, its flags and the size of its body."""

Damage = Callable[[Path, random.Random], None]


# --- by fields ------------------------------------------------------------------------------------------


def by_schema(path: Path, rng: random.Random) -> None:
    """One to three fields of one file, each with other values that its kind can have; mostly with checksums that are right."""
    for _ in range(rng.choice((1, 1, 1, 3))):
        fields = fields_of(path)
        if not fields:
            return
        # Fields of one name count as one: bodies and units outnumber what is in a head.
        names = sorted({_name_of(field) for field in fields})
        name = rng.choice(names)
        field = rng.choice([field for field in fields if _name_of(field) == name])
        data = bytearray(path.read_bytes())
        if field.path[-1] == "records" and field.path[0] == "batch":
            _records(data, field, rng)
        else:
            data[field.offset : field.end] = _another(field, fields, len(data), rng)
            if field.group is not None and rng.random() < 0.8:
                _stamp(data, field.group.offset, field.group.size, field.path[0])
        if field.path[0] in {"snapshot", "producer"} and len(data) > producer_snapshot.CRC_FROM:
            data[2:6] = struct.pack(">I", crc32c(bytes(data[producer_snapshot.CRC_FROM :])))
        path.write_bytes(data)


def fields_of(path: Path) -> list[Annotation]:
    """The first fields of a file, as the tool shows its bytes; none where it shows none."""
    found: list[Annotation] = []
    if path.stat().st_size > _LARGEST:
        return found
    try:
        for stretch in rmqctl.open(str(path)).hex().stretches:
            for note in stretch.notes:
                if note.size and note.path[-1] not in {"zeros", "zero_tail", "gap"}:
                    found.append(note)
                if len(found) == _MOST_FIELDS:
                    return found
    except RmqctlError:
        return found
    return found


def _name_of(field: Annotation) -> str:
    return ".".join(re.sub(r"\d+", "", part) for part in field.path)


def _another(field: Annotation, fields: list[Annotation], size: int, rng: random.Random) -> bytes:
    """Other bytes for a field: mostly as many."""
    if isinstance(field.value, int) and field.size in {1, 2, 4, 8} and "record[" not in ".".join(field.path):
        like = [f.value for f in fields if _name_of(f) == _name_of(field) and isinstance(f.value, int)]
        value = rng.choice(
            (
                *NUMBERS,
                field.value + 1,
                field.value - 1,
                field.value * 2,
                -field.value,
                size,
                size + 1,
                rng.choice(like),
            )
        )
        return (value & ((1 << 8 * field.size) - 1)).to_bytes(field.size, "big")
    if isinstance(field.value, int):
        return _varint(rng.choice((*NUMBERS, field.value + 1, field.value - 1, field.size)), field.size)
    raw = bytes(field.raw)
    if field.path[-1].startswith("line"):
        return _line(raw, rng)
    return rng.choice(
        (
            rng.randbytes(len(raw)), bytes(len(raw)), b"\xff" * len(raw), (b"\x1b[2J\x1b]0;x\x07" * len(raw))[: len(raw)],
            (b"../" * len(raw))[: len(raw)], ("０" * len(raw)).encode()[: len(raw)], raw[::-1],
        )
    )  # fmt: skip


def _line(raw: bytes, rng: random.Random) -> bytes:
    """A line of text with another number, value or sign."""
    numbers = list(re.finditer(rb"-?\d+", raw))
    if numbers and rng.random() < 0.7:
        found = rng.choice(numbers)
        new = rng.choice(
            (*(str(n).encode() for n in NUMBERS), b"1e400", b"NaN", b"9" * 5000, b"", b"0x10", b"null", b'"1"')
        )
        return raw[: found.start()] + new + raw[found.end() :]
    return rng.choice(
        (b"", raw * 2, b"[" * 3000 + raw, raw.replace(b":", b"=").replace(b"=", b":"), raw[: len(raw) // 2], b"\0" * len(raw),
         raw + b"\x1b[2J", b"\xff\xfe" + raw, raw.replace(b'"', b"'"), raw.replace(b"{", b"["), b"null,\n" + raw)
    )  # fmt: skip


def _varint(value: int, size: int) -> bytes:
    """A zigzag varint of so many bytes, cut to what fits."""
    left = (value << 1) ^ (value >> 63)
    left &= (1 << 64) - 1
    groups = [(left >> 7 * n) & 0x7F for n in range(size)]
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


def _records(data: bytearray, field: Annotation, rng: random.Random) -> None:
    """Compressed records: unfolded, a number in them changed, and folded again, or left as they are."""
    assert field.group is not None
    start, size = field.group.offset, field.group.size
    raw = bytes(data[start : start + size])
    attributes = int.from_bytes(raw[21:23], "big")
    try:
        records = bytearray(inflate(attributes & 7, raw[record_batch.HEADER_SIZE :]))
        at = 0
        for _ in range(rng.randrange(1, 9)):
            _, at = varint(records, at, len(records))
    except DecodeError:
        return
    records[at : at + 1] = rng.choice(
        (b"\xff\xff\xff\xff\x0f", b"\x01", b"\xfe\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"")
    )
    codec = rng.choice((0, 1))
    payload = gzip.compress(bytes(records)) if codec else bytes(records)
    new = bytearray(raw[: record_batch.HEADER_SIZE]) + payload
    new[21:23] = (attributes & ~7 | codec).to_bytes(2, "big")
    new[record_batch.LENGTH_AT : record_batch.LENGTH_AT + 4] = struct.pack(">i", len(new) - record_batch.FRAME_HEAD)
    data[start : start + size] = new
    _stamp(data, start, len(new), "batch")


def _stamp(data: bytearray, start: int, size: int, kind: str) -> None:
    """Make the checksum of what begins at ``start`` right."""
    raw = bytes(data[start : start + size])
    if kind == "batch" and size > record_batch.CRC_FROM:
        data[start + record_batch.CRC_AT : start + record_batch.CRC_FROM] = struct.pack(
            ">I", crc32c(raw[record_batch.CRC_FROM :])
        )
    elif kind == "message" and raw[16:17] in {b"\0", b"\1"} and raw[4:5] != b"\xda":
        data[start + message_set.CRC_AT : start + message_set.CRC_FROM] = struct.pack(
            ">I", zlib.crc32(raw[message_set.CRC_FROM :])
        )
    elif kind == "message" and size > _BODY_SIZE + 4:
        body = int.from_bytes(raw[_BODY_SIZE : _BODY_SIZE + 4], "big", signed=True)
        if 0 <= body <= size - _BODY_SIZE - 4:
            crc = zlib.crc32(raw[_BODY_SIZE + 4 : _BODY_SIZE + 4 + body]) & 0x7FFFFFFF
            data[start + _BODY_CRC : start + _BODY_CRC + 4] = struct.pack(">I", crc)
        if property_crc.stored_property_crc(bytes(data[start : start + size])) is not None:
            whole = bytes(data[start : start + size])
            data[start + size - 20 : start + size] = property_crc.property_crc_bytes(property_crc.property_crc(whole))


# --- little that unfolds to much ------------------------------------------------------------------------


@cache
def _zeros(level: int) -> bytes:
    made = zlib.compressobj(level)
    return b"".join((*(made.compress(bytes(1 << 20)) for _ in range(_BOMB >> 20)), made.flush()))


@cache
def _zipped(unit: bytes, times: int) -> bytes:
    made = zlib.compressobj(6, zlib.DEFLATED, 31)
    return b"".join((*(made.compress(unit * 10_000) for _ in range(times // 10_000)), made.flush()))


def bomb(path: Path, rng: random.Random) -> None:
    """A log in which one batch or body is hundreds of megabytes once it is unfolded; other files are left alone."""
    data = path.read_bytes()
    fields = fields_of(path)
    groups = sorted(
        {(f.group.offset, f.group.size) for f in fields if f.group is not None and f.path[0] in {"batch", "message"}}
    )
    if not groups:
        return
    start, size = rng.choice(groups)
    if fields[0].path[0] == "batch":
        base = int.from_bytes(data[start : start + 8], "big")
        one, count = record(0, None, b""), 4_000_000
        payload, records = rng.choice(
            ((_zipped(bytes(100), _BOMB // 100), 1), (_zipped(one, count), count), (_zipped(one, count), 0x7FFFFFFF),
             (_zipped(record(0, b"k", bytes(300_000)), 1000 * 10), 10_000))
        )  # fmt: skip
        last = max(int.from_bytes(data[start + 23 : start + 27], "big", signed=True), 0)
        new = batch(
            base, [], payload, attributes=1, records_count=records, last_offset_delta=rng.choice((last, records - 1))
        )
        path.write_bytes(data[:start] + new + data[start + size :])
    elif data[start + 4 : start + 5] == b"\xda":
        body = int.from_bytes(data[start + _BODY_SIZE : start + _BODY_SIZE + 4], "big")
        unfolded = _zeros(9)
        new = bytearray(data[start : start + size])
        new[_BODY_SIZE + 4 : _BODY_SIZE + 4 + body] = unfolded
        new[_BODY_SIZE : _BODY_SIZE + 4] = struct.pack(">i", len(unfolded))
        new[:4] = struct.pack(">i", len(new))
        new[_SYS_FLAG + 3] |= 0x01
        grown = bytearray(data[:start] + bytes(new) + data[start + size :])[: max(len(data), start + len(new))]
        _stamp(grown, start, len(new), "message")
        path.write_bytes(grown)


# --- by bytes -------------------------------------------------------------------------------------------


def number(path: Path, rng: random.Random) -> None:
    """A number at a place where numbers lie: the begins of files, multiples of 4."""
    size = path.stat().st_size
    if size < 8:
        return
    at = rng.choice((rng.randrange(min(size, 128)), rng.randrange(size))) // 4 * 4
    width = rng.choice((1, 2, 4, 8))
    mask = (1 << 8 * width) - 1
    with path.open("r+b") as file:
        file.seek(min(at, size - width))
        file.write((rng.choice(NUMBERS) & mask).to_bytes(width, "big"))


def flip(path: Path, rng: random.Random) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        for _ in range(rng.choice((1, 1, 8, 200))):
            file.seek(rng.randrange(max(size, 1)))
            file.write(rng.randbytes(rng.choice((1, 1, 16))))


def part(path: Path, rng: random.Random) -> None:
    """A part of the file over another, or zeros."""
    size = path.stat().st_size
    if size > 64:
        with path.open("r+b") as file:
            file.seek(rng.randrange(size))
            data = file.read(rng.choice((20, 61, 512, 4096)))
            file.seek(rng.randrange(size))
            file.write(rng.choice((data, bytes(len(data)))))


def length(path: Path, rng: random.Random) -> None:
    size = path.stat().st_size
    os.truncate(path, rng.choice((0, 1, size // 2, max(size - 1, 0), size + 1, size + 4096, rng.randrange(size + 1))))


def boundary(path: Path, rng: random.Random) -> None:
    """Cut at the begin or the end of a field, or one byte beside it."""
    fields = fields_of(path)
    if fields:
        field = rng.choice(fields)
        os.truncate(path, max(rng.choice((field.offset, field.end)) + rng.choice((-1, 0, 1)), 0))


def giant(path: Path, rng: random.Random) -> None:
    del rng
    os.truncate(path, GIANT)


# --- by kinds and names ---------------------------------------------------------------------------------


def name(path: Path, rng: random.Random) -> None:
    old = path.name
    digits = f"{rng.choice((1, 47, 1 << 40, 10**19, (1 << 63) - 1)):020d}"
    new = rng.choice(
        (old + ".bak", digits + path.suffix, "-1", old[:-1] or "x", old + "\x1b]0;x\x07", "\udcff", "０" * 20)
    )
    if not (path.parent / new).exists():
        path.rename(path.with_name(new))


def directory_name(path: Path, rng: random.Random) -> None:
    """Another name for the directory of the file: a queue or a partition that cannot be."""
    directory = path.parent
    if (directory / ".fuzzed").exists():
        return
    new = rng.choice(
        (
            "-1",
            "2147483648",
            "x-99999999999",
            "a-0-0",
            "0",
            "\udcff-0",
            "a\x1b[2J-0",
            "x" * 255,
            "-stray",
            "a.0-delete",
            "０",
        )
    )
    if not (directory.parent / new).exists():
        directory.rename(directory.with_name(new))


def gone(path: Path, rng: random.Random) -> None:
    del rng
    path.unlink()


def other(path: Path, rng: random.Random) -> None:
    """The bytes of another file of the store."""
    root = next(parent for parent in path.parents if (parent / ".fuzzed").exists())
    files = [file for file in sorted(root.rglob("*")) if file.is_file() and file.stat().st_size < 1 << 20]
    path.write_bytes(rng.choice(files).read_bytes())


def text(path: Path, rng: random.Random) -> None:
    path.write_bytes(
        rng.choice((b"{", b"null", b"[]", b'{"a":' * 5000, b"\xff\xfe", b"0\n1\nx 1 1\n", b'{"offsetTable":[1]}'))
    )


def thing(path: Path, rng: random.Random) -> None:
    """Something else in the place of a file."""
    path.unlink()
    match rng.choice(("pipe", "socket", "directory", "circle", "nowhere", "up", "null")):
        case "pipe":
            os.mkfifo(path)
        case "socket":
            here = os.open(path.parent, os.O_RDONLY)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{here}/{path.name}")
            os.close(here)
        case "directory":
            path.mkdir()
        case "circle":
            path.symlink_to(path.name)
        case "nowhere":
            path.symlink_to("/nonexistent/file")
        case "up":
            path.symlink_to("..")
        case _:
            path.symlink_to("/dev/null")


def directory(path: Path, rng: random.Random) -> None:
    """The directory of the file is a file, a pipe, a circle, or away; the root of the store stays."""
    where = path.parent
    if (where / ".fuzzed").exists():
        return
    shutil.rmtree(where)
    match rng.choice(("file", "pipe", "circle", "away", "empty")):
        case "file":
            where.write_bytes(b"x" * 30)
        case "pipe":
            os.mkfifo(where)
        case "circle":
            where.symlink_to(where.name)
        case "empty":
            where.mkdir()


KINDS: tuple[Damage, ...] = (
    *(by_schema,) * 8, boundary, bomb, number, flip, part, length, giant, name, directory_name, gone, other, text,
    thing, thing, directory,
)  # fmt: skip


def fuzz(root: Path, rng: random.Random) -> list[str]:
    """Damage one to four files, each chosen by its directory first, as most files of a store are of one kind.

    Returns the files, relative to the root, with what was done to each.
    """
    (root / ".fuzzed").touch()
    done = []
    for _ in range(rng.choice((1, 1, 2, 4))):
        files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
        kinds = sorted({(path.relative_to(root).parts[0], path.suffix) for path in files if path.name != ".fuzzed"})
        if kinds:
            top, suffix = rng.choice(kinds)
            path = rng.choice([p for p in files if p.relative_to(root).parts[0] == top and p.suffix == suffix])
            kind = rng.choice(KINDS)
            kind(path, rng)
            done.append(f"{path.relative_to(root)}: {kind.__name__}")
    (root / ".fuzzed").unlink(missing_ok=True)
    return done
