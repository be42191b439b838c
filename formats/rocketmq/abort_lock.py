"""The small control files: abort and lock (spec 12; DefaultMessageStore.createTempFile, start)."""

from __future__ import annotations

from construct import Const, GreedyBytes, Struct

LOCK_TEXT = b"lock"
"""What a broker writes into ``lock`` once it holds the record lock on byte 0."""

LockFile = Struct("text" / Const(LOCK_TEXT) * "the broker that runs holds a POSIX record lock on byte 0")

AbortFile = Struct("pid" / GreedyBytes * "5.0.0 and later: process id of the broker in decimal; before, nothing")

_MAX_DIGITS = 19


def abort_pid(data: bytes) -> int | None:
    """Return the process id a 5.x broker wrote into ``abort``; None for the empty file of 4.x and for anything else."""
    text = AbortFile.parse(data).pid.strip()
    return int(text) if text.isdigit() and len(text) <= _MAX_DIGITS else None
