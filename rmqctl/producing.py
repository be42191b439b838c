"""Messages to be produced, as every family is asked for them, and what became of them."""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from rmqctl.answer import Answer
from rmqctl.errors import Refused, WrongUsage
from rmqctl.text import number_of, typed

if TYPE_CHECKING:
    from rmqctl.release import Release

MOST_TOPICS = 10_000
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_SOURCES = ("body", "body_file", "lines", "jsonl", "size")


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """What is to be produced, and how.

    Attributes:
        topics: taken in turn; ``T{0..2}`` stands for T0, T1, T2. Objects of ``jsonl`` may name theirs.
        queues: of a topic, or its partitions, taken in turn; queue_id: put everything into this one.
        count: how many messages; None: one, or as many as ``lines`` or ``jsonl`` give.
        body, body_file, lines, jsonl, size: where bodies come from, at most one: a text in which ``{n}`` is the number
            of the message, a file, a message a line of a file, an object a line, or random bytes of least to most.
        keys: in which ``{n}`` is the number; properties: or headers.
        seed: same seed, same messages.
        batch: messages stored together; None: as the family does.
        codec: how bodies or batches are compressed; None or ``none``: not at all.
        transaction: ``commit``, ``rollback`` or ``pending``: send as transactions that end so.
        rate: messages a second at most.
        damage: what to damage afterwards, ``KIND[@WHERE]``; crash: end as after a kill.
        start_time, interval: made-up store times, ms.
        small: small files, so that they roll.
        release: write as a broker of this release does; None: the one that the store shows.
        lists: rows are the messages written; else there are none, which may be faster.
        more: options of one family only, by name, those that were given.
        TARGET: what a family calls what it writes.
    """

    TARGET: ClassVar[str] = "store"
    topics: tuple[str, ...] = ()
    queues: int | None = None
    queue_id: int | None = None
    count: int | None = None
    body: str | None = None
    body_file: IO[bytes] | None = None
    lines: IO[bytes] | None = None
    jsonl: IO[bytes] | None = None
    size: tuple[int, int] | None = None
    keys: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    seed: int = 0
    batch: int | None = None
    codec: str | None = None
    transaction: str | None = None
    rate: float | None = None
    damage: tuple[str, ...] = ()
    crash: bool = False
    start_time: int | None = None
    interval: int | None = None
    small: bool = False
    release: Release | None = None
    lists: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, request: ProduceRequest) -> Self:
        """Read the options of one family from a request, for a class that adds them.

        Raises:
            WrongUsage: they do not go together, or one means nothing to the family.
        """
        shared = {part.name: getattr(request, part.name) for part in fields(ProduceRequest)}
        for name in request.more.keys() - {part.name for part in fields(cls)}:
            raise WrongUsage(f"--{name.replace('_', '-')}", f"means nothing for a {cls.TARGET}.")
        return cls(**shared, **request.more)

    def check_there(self, path: Path) -> None:
        """Refuse work on a store, such as damage without messages, where no store is and none would be filled.

        Raises:
            Refused: see there.
        """
        if self.topics or self.jsonl is not None:
            return
        try:
            is_there = bool(os.listdir(path))
        except OSError as error:
            is_there = not isinstance(error, FileNotFoundError)
        if not is_there:
            raise Refused(f"no store is at {path}; give --topic, and messages are written into a new one first")

    def check_damage(self, parse: Callable[[str], object]) -> None:
        """Refuse damage that is not known, before anything is written.

        Raises:
            WrongUsage: see there.
        """
        try:
            for wish in self.damage:
                parse(wish)
        except Refused as error:
            raise WrongUsage("--damage", f"{error}.") from None

    @property
    def sources(self) -> list[str]:
        """The options that say where bodies come from."""
        return [f"--{name.replace('_', '-')}" for name in _SOURCES if getattr(self, name)]

    def __post_init__(self) -> None:
        sources = self.sources
        if len(sources) > 1:
            raise WrongUsage(sources[1], f"cannot be given together with {sources[0]}.")
        if self.queues is not None and self.queue_id is not None:
            raise WrongUsage("--queue-id", "cannot be given together with --queues.")
        if self.interval is not None and self.start_time is None:
            raise WrongUsage("--interval", "needs --start-time.")
        if _number_of_topics(self.topics) > MOST_TOPICS:
            raise WrongUsage("--topic", f"names {_number_of_topics(self.topics):,} topics, at most {MOST_TOPICS:,}.")
        if self.topics and not _number_of_topics(self.topics):
            raise WrongUsage(
                "--topic", f"{self.topics[0]!r} names no topic; give {{0..9}} with the smaller number first."
            )

    @property
    def expanded_topics(self) -> tuple[str, ...]:
        """Topics with number ranges written out."""
        return _expanded(self.topics)


def source_name(file: Any) -> str:
    """Return what to call a file that messages are read from."""
    name = getattr(file, "name", "-")
    return "standard input" if name in ("-", "<stdin>") or file is sys.stdin.buffer else str(name)


def _number_of_topics(topics: tuple[str, ...]) -> int:
    return sum(
        math.prod(max(int(last) - int(first) + 1, 0) for first, last in _BRACES.findall(topic)) for topic in topics
    )


def _expanded(topics: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for topic in topics:
        match = _BRACES.search(topic)
        if match is None:
            found.append(topic)
        else:
            numbers = range(int(match[1]), int(match[2]) + 1)
            found += _expanded(tuple(topic[: match.start()] + str(n) + topic[match.end() :] for n in numbers))
    return tuple(found)


class JsonObject:
    """One line that ``dump -o jsonl`` printed, or a hand wrote, as an object; says which of its fields is wrong."""

    def __init__(self, line: bytes, where: str) -> None:
        """Take a line.

        Args:
            where: what to call it in refusals.

        Raises:
            Refused: it is no JSON object.
        """
        self.where = where
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Refused(f"{where}: not JSON ({error}); nothing of this line was written") from error
        if not isinstance(document, dict):
            raise Refused(f"{where}: not a JSON object; nothing of this line was written")
        self.document: Mapping[str, Any] = document

    def wrong(self, name: str, why: str) -> Refused:
        """Return the refusal of a field."""
        return Refused(f"{self.where}, field {name}: {why}; nothing of this line was written")

    def is_row(self, kind: str, others: Collection[str]) -> bool:
        """Whether the object is a row of a kind, or says nothing of it, and not of another kind that `dump` shows."""
        found = self.document.get("kind", kind)
        if found != kind and not (isinstance(found, str) and found in others):
            raise self.wrong("kind", f"is {found!r}, no row of a dumped log")
        return bool(found == kind)

    def number(self, name: str, least: int, limit: int) -> int | None:
        """Return a whole number from ``least`` up to, and without, ``limit``; None where there is none."""
        value = self.document.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < limit:
            raise self.wrong(name, "not a whole number that fits")
        return value

    def raw(self, name: str, value: Any, neither: str = 'neither text nor {"base64": "..."}') -> bytes:
        """Return the bytes that a value of a field stands for: text, or base64 where they are none."""
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if isinstance(value, dict) and isinstance(value.get("base64"), str) and len(value) == 1:
            try:
                return base64.b64decode(value["base64"], validate=True)
            except (binascii.Error, ValueError) as error:
                raise self.wrong(name, f"is not base64 ({error})") from error
        raise self.wrong(name, neither)


D = TypeVar("D")


def paced(drafts: Iterable[D], rate: float | None) -> Iterator[D]:
    """Yield drafts, at most so many a second; None: as fast as they are wanted."""
    start = monotonic()
    for number, draft in enumerate(drafts):
        if rate:
            sleep(max(start + number / rate - monotonic(), 0))
        yield draft


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes needed, about, and free on the file system.

    Attributes:
        content: what they are needed for, such as ``messages``.
    """

    needed: int
    free: int
    content: str

    @classmethod
    def at(cls, path: str, needed: int, content: str) -> Self:
        """Return the room at a path, which need not be there yet."""
        place = Path(path).absolute()
        parent = next(p for p in (place, *place.parents) if p.exists())
        return cls(needed, shutil.disk_usage(parent).free, content)

    def check(self, path: str) -> None:
        """Hold what is needed to what is free.

        Raises:
            Refused: too little is free.
        """
        if self.needed > self.free:
            raise Refused(
                f"about {self.needed:,} bytes would be written to {path}, but {self.free:,} are free there; "
                f"free space, or produce fewer or smaller {self.content}"
            )


@dataclass
class Produced(Answer):
    """Messages as they are written; a context manager, for the store is open until the last row.

    Attributes:
        path: of the store.
        messages, bytes: written so far; topics: they went to.
        damaged: places that were damaged on purpose.
        close: closes the store where that was not done.
    """

    path: str = ""
    messages: int = 0
    bytes: int = 0
    topics: set[str] = field(default_factory=set)
    damaged: int = 0
    close: Callable[[], object] = lambda: None
    _begin: float = field(default_factory=monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(self.rows, Iterator) and hasattr(self.rows, "close"):
            self.rows.close()
        self.close()

    def count(self, topics: set[str], messages: int, size: int) -> None:
        """Count messages that were written, and move the bar."""
        self.topics |= topics
        self.messages += messages
        self.bytes += size
        self.advance(messages)

    def harm(self, request: ProduceRequest, damage: Callable[[Path, str, int], str]) -> None:
        """Do the damage that is wished for to the store, and say where."""
        for wish in request.damage:
            self.remark(f"damaged on purpose: {damage(Path(self.path), wish, request.seed)}")
            self.damaged += 1

    def sentence(self) -> str:
        """Return what was done, in one sentence with the next command to type."""
        if self.damaged and not self.messages:
            return f"damaged {number_of(self.damaged, 'place')}; next: {typed('verify', self.path)}"
        seconds = max(monotonic() - self._begin, 1e-9)
        rate = f"{self.messages / seconds:,.0f} a second" if self.messages else "nothing to do"
        messages, topics = number_of(self.messages, "message"), number_of(len(self.topics), "topic")
        return (
            f"{messages}, {self.bytes:,} bytes of log, {topics} in {self.path} "
            f"({seconds:.1f} s, {rate}); next: {typed('topics', self.path)}"
        )
