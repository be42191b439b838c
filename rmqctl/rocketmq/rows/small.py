"""Small files as rows: checkpoint, abort, lock, epochs, identity, configuration (spec 1.5, 5, 9, 12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from formats.errors import DecodeError
from formats.layout import plan_of
from formats.rocketmq.abort_lock import abort_pid
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.dledger import parse_text
from formats.rocketmq.epoch import parse_epochs, parse_identity
from rmqctl.findings import Finding, FindingKind
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.rows.text import text_or_base64
from rmqctl.rocketmq.rows.units import Row

_CHECKPOINT = plan_of(Checkpoint).runs[0]


def checkpoint_rows(data: bytes, file: str) -> Iterator[Row]:
    """The checkpoint; a file too short for its fields is read as zeros behind its end."""
    size = _CHECKPOINT.packer.size
    values = _CHECKPOINT.packer.unpack(data[:size].ljust(size, b"\0"))
    yield {"kind": "checkpoint", **dict(zip(_CHECKPOINT.names, values, strict=True))}
    if len(data) < size:
        yield _finding(kinds.CHECKPOINT_LENGTH, file, len(data), f"{len(data)} bytes, the fields take {size}")


def abort_rows(data: bytes, file: str) -> Iterator[Row]:
    """The mark of an unclean exit, with the process id of a 5.x broker."""
    yield {"kind": "abort", "file": file, "size": len(data), "pid": abort_pid(data)}


def lock_rows(data: bytes, file: str, *, held: bool | None) -> Iterator[Row]:
    """The lock file.

    Args:
        held: a broker holds it now; None where nobody can tell.
    """
    yield {"kind": "lock", "file": file, "size": len(data), "text": text_or_base64(data), "held": held}


def epoch_rows(data: bytes, file: str) -> Iterator[Row]:
    """Entries of an epoch file; if they cannot be read, a finding."""
    try:
        for entry in parse_epochs(data):
            yield {"kind": "epoch", "file": file, "epoch": entry.epoch, "start_offset": entry.start_offset}
    except DecodeError as error:
        yield _finding(kinds.FILE_STRAY, file, len(data), f"no epoch file: {error}", error.offset)


def identity_rows(data: bytes, file: str) -> Iterator[Row]:
    """Names a broker in controller mode goes by."""
    yield {"kind": "broker_identity", "file": file, **parse_identity(data.decode("utf-8", "replace"))}


def config_rows(data: bytes, file: str) -> Iterator[Row]:
    """A JSON configuration file, parsed as fastjson parses it; if it cannot be read, a finding."""
    try:
        yield {"kind": "config", "file": file, "content": parse_config(data)}
    except DecodeError as error:
        yield _finding(kinds.CONFIG_UNREADABLE, file, len(data), str(error), error.offset)


def text_rows(data: bytes, file: str, kind: str) -> Iterator[Row]:
    """A file of ``name=value`` lines; whole numbers become integers."""
    pairs = parse_text(data.decode("utf-8", "replace"))
    yield {"kind": kind, "file": file, "content": {name: _number(value) for name, value in pairs.items()}}


def unknown_rows(data: bytes, size: int, file: str) -> Iterator[Row]:
    """A file that belongs to no format: its size and how it begins."""
    yield {"kind": "file", "file": file, "size": size, "head": text_or_base64(data[:64])}


def _number(text: str) -> Any:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else text


def _finding(kind: FindingKind, file: str, size: int, message: str, offset: int = 0) -> Row:
    return Finding(kind, file, offset, max(size - offset, 0), message).row()
