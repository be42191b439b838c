"""What a repair may do to a store: six kinds of edit, each of which can be taken back.

A plan is a list of these. Whoever knows what is wrong with a store (recovery replay, rebuild, repair) makes
the list; `rmqctl.repair` alone carries it out. File names are relative to the root of the store, with `/`.

Edits for the bytes that differ, and for bytes that are to be zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Put `after` in the place of `before`, both of one length, at byte `offset`."""

    file: str
    offset: int
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class Extend:
    """Make a file longer, from `from_size` to `to_size` bytes, with zeros (sparse where possible)."""

    file: str
    from_size: int
    to_size: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Make a file shorter, from `from_size` to `to_size` bytes."""

    file: str
    from_size: int
    to_size: int


@dataclass(frozen=True, slots=True)
class Create:
    """Make a file that is not there, with the bytes of `content` or those of the file `source`.

    `size` is its length; bytes behind the content are zeros. A large file is built beside the store first
    and named by `source`.
    """

    file: str
    content: bytes = b""
    source: Path | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Move a file out of the broker's sight, into the quarantine beside the journal. Nothing is deleted."""

    file: str


@dataclass(frozen=True, slots=True)
class SetTimes:
    """Set the modification time of a file, in nanoseconds since the epoch (brokers expire files by it)."""

    file: str
    mtime_ns: int


Edit = Overwrite | Extend | Cut | Create | Quarantine | SetTimes


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of a plan: what is wrong where, what is done, and what proves that it is right.

    `id` is the finding's id (or the step's own name), `loses` the number of messages given up by it.
    """

    id: str
    file: str
    what: str
    why: str
    edits: tuple[Edit, ...] = ()
    loses: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order in which they are carried out, for the store at `root`."""

    root: Path
    title: str
    steps: tuple[Step, ...]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Every edit of every step, in order."""
        return tuple(edit for step in self.steps for edit in step.edits)


# --- edits for the bytes that differ ----------------------------------------------------------------


_APART = 16
_PIECE = 1 << 20
_PAGE = 4096


def changes(file: str, offset: int, before: bytes, after: bytes) -> Iterator[Overwrite]:
    """Overwrites for the bytes that differ; runs at most 16 bytes apart are one.

    Args:
        offset: of both in the file; they have one length.
    """
    import numpy as np  # not where plans are only carried out

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
