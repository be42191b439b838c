"""Controller-mode text files: epochFileCheckpoint and brokerIdentity (spec 1.5; CheckpointFile, EpochEntry)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from formats.errors import DecodeError


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
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    if len(lines) < 2 or not (lines[0].strip().isdigit() and lines[1].strip().isdigit()):
        raise DecodeError("no count and CRC in the first two lines", field="epoch_file")
    count, crc, rest = int(lines[0]), int(lines[1]), "".join(lines[2:])
    if crc and zlib.crc32(rest.encode()) & 0x7FFFFFFF != crc:
        raise DecodeError(f"CRC {crc} does not match the entries", field="epoch_file", offset=len(lines[0]))
    entries = [_entry(line) for line in lines[2:] if line.strip()]
    if len(entries) != count:
        raise DecodeError(f"{count} entries announced, {len(entries)} there", field="epoch_file")
    return entries


def format_epochs(entries: list[EpochEntry]) -> bytes:
    """The file's bytes."""
    text = "".join(f"{e.epoch}-{e.start_offset}\n" for e in entries)
    return f"{len(entries)}\n{zlib.crc32(text.encode()) & 0x7FFFFFFF}\n{text}".encode()


def _entry(line: str) -> EpochEntry:
    epoch, dash, start = line.strip().partition("-")
    if not (dash and epoch.isdigit() and start.isdigit()):
        raise DecodeError(f"line {line.strip()!r} is not epoch-offset", field="epoch_file")
    return EpochEntry(int(epoch), int(start))


def parse_identity(text: str) -> dict[str, str]:
    """Cluster, broker name, broker id (and register check code) of brokerIdentity."""
    names = ("cluster", "broker_name", "broker_id", "register_check_code")
    return dict(zip(names, text.strip().split("#"), strict=False))
