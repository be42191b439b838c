"""What ``verify`` must say about every damaged variant of the golden stores, and how a row is held against it.

The table itself is data: ``damage/<release>.toml``, one TOML table a variant of that release's recovery oracle::

    ["clean/totalsize-flip-mid"]
    expect = ["log.bad-record commitlog/00000000000000262144 70439..70850"]
    follow = ["lost 332583..332994"]

``expect`` names the planted damage; each entry must be matched by a finding:

* ``ID FILE START..END``: a finding of that id in that file which begins at or after START and ends at or before END,
* ``ID FILE``: about the file, wherever in it; ``ID FILE xN``: exactly N such findings,
* ``ID|ID``: either id says it; ``note`` at the end: a note is enough, because the store is in order. Else it must be a
  warning or an error.

``follow`` lists what may follow from the damage; nothing else above a note may be reported:

* entries of the form above,
* ``lost START..END``: the log's records in this physical range cannot be read any more as what they were. Units and
  index entries that point there no longer fit, and the next record of each queue they were in does not continue it.

``*`` in ids and files matches anything. Offsets are bytes, END is exclusive.
"""

from __future__ import annotations

import struct
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from fixtures import golden

Found = Mapping[str, Any]
"""A finding as ``verify -o json`` prints it."""

NORMAL_NOTES = {
    "clean": {"checkpoint.zero", "checkpoint.behind", "config.unknown-topic"},
    "crash": {
        "store.abort",
        "queue.undispatched",
        "index.coverage",
        "index.newer-than-checkpoint",
        "log.zero-file",
        "database.reach",
        "checkpoint.zero",
        "checkpoint.behind",
        "config.unknown-topic",
    },
}
"""Notes that are no damage: in a store that was stopped cleanly, and in one with ``abort``."""

_POINTING = {
    "queue.unit-mismatch",
    "queue.ahead",
    "queue.min-offset",
    "index.entry-mismatch",
    "index.beyond-log",
    "timer.log",
}


@dataclass(frozen=True)
class Place:
    """One ``ID FILE [START..END] [xN] [note]`` entry of the table."""

    text: str
    ids: tuple[str, ...]
    file: str
    start: int | None = None
    end: int | None = None
    count: int | None = None
    note: bool = False

    def names(self, found: Found) -> bool:
        """Whether the finding names this damage loudly enough."""
        return self.matches(found) and (self.note or found["severity"] != "note")

    def matches(self, found: Found) -> bool:
        """Whether the finding is of this kind and at this place."""
        start, size = int(found["offset"]), int(found["size"])
        named = any(fnmatchcase(found["id"], pattern) for pattern in self.ids) and fnmatchcase(found["file"], self.file)
        if not named or self.start is None or self.end is None:
            return named
        return self.start <= start and start + max(size, 1) <= self.end


@dataclass(frozen=True)
class Lost:
    """One ``lost START..END`` entry: what pointed into, or continued from, these records of the log."""

    start: int
    end: int

    def explains(self, found: Found, root: Path, name: str) -> bool:
        """Whether the finding, in the store ``name`` damaged at ``root``, comes from the loss of these records."""
        if found["id"] == "log.queue-offset":
            position = int(found["file"].rpartition("/")[2]) + found["offset"]
            return self.start <= _predecessors(name).get(position, -1) < self.end
        if found["id"] not in _POINTING:
            return False
        return all(self.start <= target < self.end for target in _targets(found, root))


@dataclass(frozen=True)
class Variant:
    """One row of the table."""

    release: str
    name: str
    expect: tuple[Place, ...]
    follow: tuple[Place | Lost, ...]

    @property
    def base(self) -> str:
        """Name of the golden store that was damaged."""
        return f"{self.release}-{self.name.partition('/')[0]}"

    def objections(self, findings: Iterable[Found], root: Path) -> list[str]:
        """What is wrong with these findings about the variant at ``root``: damage not named, and things unrelated."""
        findings = list(findings)
        return [*self._unnamed(findings), *self._unrelated(findings, root)]

    def _unnamed(self, findings: list[Found]) -> Iterator[str]:
        for place in self.expect:
            count = sum(place.names(found) for found in findings)
            if not count or place.count not in (None, count):
                yield f"expected {place.text}, found {count}"

    def _unrelated(self, findings: list[Found], root: Path) -> Iterator[str]:
        state = "crash" if (root / "abort").exists() or self.name.startswith("crash/") else "clean"
        for found in findings:
            note = found["severity"] == "note" and found["id"] in NORMAL_NOTES[state]
            if not note and not self._explained(found, root):
                yield "unrelated {severity} {id} {file} {offset}+{size}: {message}".format_map(found)

    def _explained(self, found: Found, root: Path) -> bool:
        return any(place.matches(found) for place in self.expect) or any(
            cause.matches(found) if isinstance(cause, Place) else cause.explains(found, root, self.base)
            for cause in self.follow
        )


def variants(release: str) -> list[Variant]:
    """All rows of a release, in the order of its recovery oracle."""
    document = tomllib.loads((Path(__file__).parent / "damage" / f"{release}.toml").read_text("utf-8"))
    return [
        Variant(
            release,
            name,
            tuple(_place(text) for text in row["expect"]),
            tuple(_cause(text) for text in row.get("follow", ())),
        )
        for name, row in document.items()
    ]


def _cause(text: str) -> Place | Lost:
    word, _, rest = text.partition(" ")
    return Lost(*_range(rest)) if word == "lost" else _place(text)


def _place(text: str) -> Place:
    ids, file, *rest = text.split(" ")
    facts: dict[str, int] = {}
    for word in rest:
        if word == "note":
            facts["note"] = True
        elif word.startswith("x"):
            facts["count"] = int(word[1:])
        else:
            facts["start"], facts["end"] = _range(word)
    return Place(text, tuple(ids.split("|")), file, **facts)


def _range(text: str) -> tuple[int, int]:
    start, _, end = text.partition("..")
    return int(start), int(end)


@cache
def _predecessors(name: str) -> dict[int, int]:
    """Physical offset of each record -> that of the record before it in its queue."""
    last: dict[tuple[str, int], int] = {}
    before: dict[int, int] = {}
    for record in golden.truth(name):
        if record["kind"] == "msg":
            queue, position = (record["topic"], record["queueId"]), record["commitLogOffset"]
            before[position] = last.get(queue, -1)
            last[queue] = position
    return before


# area of a file -> (size of a unit, where in it the physical offset is)
_UNITS = {"consumequeue": (20, 0), "batchconsumequeue": (46, 0), "index": (20, 4), "timerlog": (52, 28)}


def _targets(found: Found, root: Path) -> Iterator[int]:
    """Physical offsets that the units a finding covers point at; that of the finding itself if it covers no unit."""
    size, field = _UNITS[found["file"].partition("/")[0]]
    if found["size"] < size:
        yield found.get("physical_offset", -1)
        return
    with open(root / found["file"], "rb") as file:
        file.seek(found["offset"])
        content = file.read(found["size"])
    for position in range(0, len(content) - size + 1, size):
        yield struct.unpack_from(">q", content, position + field)[0]
