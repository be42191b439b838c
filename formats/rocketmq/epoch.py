"""Controller-mode text files: epochFileCheckpoint and brokerIdentity (spec 1.5; CheckpointFile, EpochEntry)."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass

from construct import ConstructError, GreedyBytes, GreedyRange, Struct

from formats.errors import DecodeError
from formats.text import decimal_until, until

LINE_END = b"\n"

EpochFileHead = Struct(
    "count" / decimal_until(LINE_END) * "entries",
    "crc" / decimal_until(LINE_END) * "CRC-32 of all bytes after this line, top bit cleared; 0 is not checked",
)
EpochLine = Struct(
    "epoch" / decimal_until(b"-") * "number of the master epoch",
    "start_offset" / decimal_until(LINE_END, required=False) * "physical offset at which it began, bytes",
)
EpochFile = Struct(*EpochFileHead.subcons, "entries" / GreedyRange(EpochLine) * "one line each")

BrokerIdentity = Struct(
    "cluster" / until(b"#") * "name of the cluster",
    "broker_name" / until(b"#") * "name that master and slaves share",
    "broker_id" / GreedyBytes * "number the controller gave",
)
BrokerIdentityTemp = Struct(
    "cluster" / until(b"#") * "name of the cluster",
    "broker_name" / until(b"#") * "name that master and slaves share",
    "broker_id" / until(b"#") * "number the broker wants",
    "register_check_code" / GreedyBytes * "proves to the controller who asked for the number",
)

_LONGEST_LINE = 64


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """A master epoch and the physical offset at which it began, bytes."""

    epoch: int
    start_offset: int


def parse_epochs(data: bytes) -> list[EpochEntry]:
    """Entries of an epochFileCheckpoint.

    Raises:
        DecodeError: the count, the CRC or a line is wrong; a broker then reads the ``.bak``.
    """
    try:
        head = EpochFileHead.parse(data[:_LONGEST_LINE])
    except ConstructError as error:
        raise DecodeError("no count and CRC in the first two lines", field="epoch_file") from error
    lines = data.splitlines(keepends=True)
    at = len(lines[0]) + len(lines[1])
    if head.crc and zlib.crc32(data[at:]) & 0x7FFFFFFF != head.crc:
        raise DecodeError(f"CRC {head.crc} does not match the entries", field="epoch_file", offset=len(lines[0]))
    entries = []
    for line in lines[2:]:
        if line.strip():
            entries.append(_entry(line, at))
        at += len(line)
    if len(entries) != head.count:
        raise DecodeError(f"{head.count} entries announced, {len(entries)} there", field="epoch_file")
    return entries


def format_epochs(entries: list[EpochEntry]) -> bytes:
    """Return the file's bytes."""
    lines = b"".join(EpochLine.build(asdict(entry)) for entry in entries)
    head: bytes = EpochFileHead.build({"count": len(entries), "crc": zlib.crc32(lines) & 0x7FFFFFFF})
    return head + lines


def _entry(line: bytes, offset: int) -> EpochEntry:
    try:
        fields = EpochLine.parse(line[:_LONGEST_LINE])
    except ConstructError as error:
        shown = line[:_LONGEST_LINE].strip().decode("utf-8", "replace")
        raise DecodeError(f"line {shown!r} is not epoch-offset", field="epoch_file", offset=offset) from error
    return EpochEntry(fields.epoch, fields.start_offset)


def parse_identity(text: str) -> dict[str, str]:
    """Cluster, broker name, broker id (and register check code) of brokerIdentity, as far as they are there."""
    names = [str(field.name) for field in BrokerIdentityTemp.subcons]
    return dict(zip(names, text.strip().split("#"), strict=False))
