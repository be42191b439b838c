"""The small control files: abort and lock (spec 12; DefaultMessageStore.createTempFile, start)."""

from __future__ import annotations

LOCK_TEXT = b"lock"
"""What a broker writes into ``lock`` once it holds the record lock on byte 0."""


def abort_pid(data: bytes) -> int | None:
    """The process id a 5.x broker wrote into ``abort``; None for the empty file of 4.x."""
    text = data.strip()
    return int(text) if text.isdigit() else None
