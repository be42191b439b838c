"""Edits for the bytes that differ, and for bytes that are to be zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqctl.repair.edits import Overwrite

_APART = 16
_PIECE = 1 << 20
_PAGE = 4096


def changes(file: str, offset: int, before: bytes, after: bytes) -> Iterator[Overwrite]:
    """Overwrites for the bytes that differ; runs at most 16 bytes apart are one.

    Args:
        offset: of both in the file; they have one length.
    """
    rows = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8))
    if not len(rows):
        return
    breaks = np.flatnonzero(np.diff(rows) > _APART)
    firsts, lasts = rows[np.r_[0, breaks + 1]].tolist(), rows[np.r_[breaks, len(rows) - 1]].tolist()
    for first, last in zip(firsts, lasts, strict=True):
        for at in range(first, last + 1, _PIECE):
            stop = min(at + _PIECE, last + 1)
            yield Overwrite(file, offset + at, before[at:stop], after[at:stop])


def zeroed(file: str, offset: int, raw: bytes) -> Iterator[Overwrite]:
    """Zeros over all of ``raw`` that is not zero; page by page, so that holes stay holes."""
    for at in range(0, len(raw), _PAGE):
        piece = raw[at : at + _PAGE].rstrip(b"\0")
        if piece:
            yield Overwrite(file, offset + at, piece, bytes(len(piece)))
