"""Checkpoint text files: offsets per partition, and leader epochs (spec 1.2, 9.3; CheckpointFile).

Line 1 is the version 0, line 2 the number of entries, then an entry a line. An empty file, and one with the version
alone, has no entries. A broker refuses a whole file for one bad line; the readers here keep what is right and name what
is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from construct import Struct

from formats.text import decimal_until, until

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"

CheckpointHead = Struct(
    "version" / decimal_until(b"\n") * "0",
    "count" / decimal_until(b"\n") * "entries",
)
OffsetLine = Struct(
    "topic" / until(b" "),
    "partition" / decimal_until(b" "),
    "offset" / decimal_until(b"\n"),
)
LeaderEpochLine = Struct(
    "epoch" / decimal_until(b" "),
    "start_offset" / decimal_until(b"\n") * "first offset written in the epoch",
)

_VERSION = 0
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a small file: where it stands, bytes, and one sentence about it."""

    offset: int
    size: int
    message: str


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """An entry of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LeaderEpoch:
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


@dataclass(frozen=True)
class OffsetCheckpoint:
    """An offset checkpoint as far as it can be read; a broker reads none of it when there is a problem."""

    entries: tuple[PartitionOffset, ...] = ()
    problems: tuple[Problem, ...] = ()

    @cached_property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        """Offset by topic and partition; of several entries for one the last counts."""
        return {(entry.topic, entry.partition): entry.offset for entry in self.entries}


@dataclass(frozen=True, slots=True)
class EpochCheckpoint:
    """A leader-epoch-checkpoint as far as it can be read, entries as they stand."""

    entries: tuple[LeaderEpoch, ...] = ()
    problems: tuple[Problem, ...] = ()


def parse_offsets(data: bytes) -> OffsetCheckpoint:
    """Read an offset checkpoint."""
    entries, problems = [], list[Problem]()
    for offset, line, tokens in _entries(data, problems):
        numbers = [_integer(token, bits) for token, bits in zip(tokens[1:], (32, 64), strict=False)]
        if len(tokens) == 3 and numbers[0] is not None and numbers[1] is not None:
            entries.append(PartitionOffset(tokens[0], numbers[0], numbers[1]))
        else:
            problems.append(Problem(offset, len(line), f"{_shown(line)} is not a topic, a partition and an offset"))
    return OffsetCheckpoint(tuple(entries), tuple(problems))


@lru_cache(maxsize=64)
def parse_leader_epochs(data: bytes) -> EpochCheckpoint:
    """Read a leader-epoch-checkpoint. Entries out of order are kept: what a broker makes of them is another matter."""
    entries, problems = [], list[Problem]()
    for offset, line, tokens in _entries(data, problems):
        numbers = [_integer(token, bits) for token, bits in zip(tokens, (32, 64), strict=False)]
        if len(tokens) == 2 and numbers[0] is not None and numbers[1] is not None:
            entries.append(LeaderEpoch(numbers[0], numbers[1]))
        else:
            problems.append(Problem(offset, len(line), f"{_shown(line)} is not an epoch and an offset"))
    return EpochCheckpoint(tuple(entries), tuple(problems))


def format_offsets(entries: Iterable[PartitionOffset]) -> bytes:
    """Return the bytes of an offset checkpoint."""
    return _file([f"{entry.topic} {entry.partition} {entry.offset}" for entry in entries])


def format_leader_epochs(entries: Iterable[LeaderEpoch]) -> bytes:
    """Return the bytes of a leader-epoch-checkpoint."""
    return _file([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def _file(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(lines)), *lines)).encode("utf-8")


def _entries(data: bytes, problems: list[Problem]) -> list[tuple[int, bytes, list[str]]]:
    """Where each entry stands, its line and its tokens; adds what is wrong with the head to ``problems``."""
    lines = [(m.start(), m[0].rstrip(b"\r\n")) for m in _LINE.finditer(data) if m[0]]
    if not lines:
        return []
    offset, first = lines[0]
    version = _integer(_text(first), 32)
    if version is None:
        problems.append(Problem(offset, len(first), f"{_shown(first)} is not a version"))
    elif version != _VERSION:
        problems.append(Problem(offset, len(first), f"version {version} is not known, only {_VERSION}"))
    if len(lines) == 1:
        return []
    offset, second = lines[1]
    count = _integer(_text(second), 32)
    found = [(at, line, re.split(r"\s+", _text(line).rstrip())) for at, line in lines[2:]]
    if count is None:
        problems.append(Problem(offset, len(second), f"{_shown(second)} is not a number of entries"))
    elif count != len(found):
        problems.append(Problem(offset, len(second), f"{count} entries announced, {len(found)} lines there"))
    return found


def _integer(text: str, bits: int) -> int | None:
    if not _INTEGER.fullmatch(text) or len(text) > 20:
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _shown(line: bytes) -> str:
    return repr(_text(line[:60]))
