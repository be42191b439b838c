"""What a conversion is asked for, and what became of it: queue by queue, what has no twin, and what was damaged."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.errors import Refused
from rmqctl.files.new_files import Ownership
from rmqctl.findings import Finding
from rmqctl.release import Release
from rmqctl.repair.books import Books

Advance = Callable[[int], object]
_CHOICE = re.compile(r"\[([^|\]]*)\|([^\]]*)\]")
_SPARE = 1.5
"""Bytes that are written for each byte read, about: what one side has no place for gets headers or properties."""


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """What to make.

    Attributes:
        release: of the brokers that are to start on it; None: the newest that is known.
        codec: what batches are compressed with, a number of ``formats.kafka.record_batch.Codec``.
        offsets_partitions: partitions of ``__consumer_offsets``.
        small: small files, so that they roll soon.
        renumber: queues of RocketMQ count from 0, without placeholders; groups go on at the same message.
        owner: to whom it is given; None: as the directory above.
    """

    release: Release | None = None
    codec: int = 0
    offsets_partitions: int = 50
    small: bool = False
    renumber: bool = False
    owner: Ownership | None = None


@dataclass(slots=True)
class ConvertedQueue:
    """A queue and the partition made of it, or the other way round.

    Attributes:
        start, end: first and next offset, the same on both sides but for a queue that is numbered again.
        messages: what was written.
        gaps: offsets between them that no message has; aborted: those of them whose transaction was aborted.
    """

    topic: str
    number: int
    target: str
    start: int = 0
    end: int = 0
    messages: int = 0
    gaps: int = 0
    aborted: int = 0

    def row(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "kind": "queue", "topic": self.topic, "queue_id": self.number, "target_topic": self.target,
            "from_offset": self.start, "to_offset": self.end, "messages": self.messages, "gaps": self.gaps,
            "aborted": self.aborted,
        }  # fmt: skip


@dataclass(slots=True)
class Conversion:
    """What became of it.

    Attributes:
        kind: of what was made: ``rocketmq-store`` or ``kafka-log-directory``.
        groups: consumer groups whose offsets were taken along.
        no_twin: what the other side has no place for: how many by a short name, with a sentence.
        lost: messages that could not be written, each with its place and the reason.
        findings: what could not be read.
        books: the messages of the source, and those of what was made.
    """

    kind: str
    source: str
    into: Path
    queues: list[ConvertedQueue] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)
    no_twin: dict[str, tuple[int, str]] = field(default_factory=dict)
    lost: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    books: Books = field(default_factory=Books)

    def count(self, what: str, number: int, sentence: str) -> None:
        """Note something that has no twin; nothing for none of it.

        Args:
            sentence: what follows the number, with words for one and for several as ``[queue stays|queues stay]``.
        """
        if number:
            self.no_twin[what] = self.no_twin.get(what, (0, ""))[0] + number, sentence

    def lose(self, topic: str, number: int, offset: int, why: str) -> None:
        """Note a message that cannot be written."""
        row = {"kind": "left_out", "topic": topic, "queue_id": number, "queue_offset": offset, "message": why}
        self.lost.append(row)

    def without_twin(self) -> Iterator[tuple[str, int, str]]:
        """Yield what has no twin: its short name, how many, and the sentence that follows the number."""
        for what, (count, sentence) in self.no_twin.items():
            yield what, count, _CHOICE.sub(r"\1" if count == 1 else r"\2", sentence)

    @property
    def is_whole(self) -> bool:
        """Whether everything that both sides know was read and written."""
        return not self.lost and not self.findings

    def rows(self) -> list[dict[str, Any]]:
        """Return the queues, what has no twin, what is lost, what was damaged."""
        notes = [
            {"kind": "no_twin", "what": what, "count": count, "message": sentence}
            for what, count, sentence in self.without_twin()
        ]
        return [*(q.row() for q in self.queues), *notes, *self.lost, *(finding.row() for finding in self.findings)]

    def summary(self) -> dict[str, Any]:
        """Return the object that ends the answer."""
        return {
            "kind": "summary",
            "source": self.source,
            "into": str(self.into),
            "into_kind": self.kind,
            "topics": len({queue.topic for queue in self.queues}),
            "queues": len(self.queues),
            "messages": sum(queue.messages for queue in self.queues),
            "gaps": sum(queue.gaps for queue in self.queues),
            "aborted": sum(queue.aborted for queue in self.queues),
            "groups": len(self.groups),
            "no_twin": {what: count for what, (count, _) in self.no_twin.items()},
            "left_out": len(self.lost),
            "findings": len(self.findings),
            "gives_up": self.books.gives_up,
            "books": self.books.document(),
        }


def check_room(into: Path, size: int) -> None:
    """Hold the bytes that are converted to the room there is.

    Raises:
        Refused: too little is free.
    """
    needed, free = int(size * _SPARE), shutil.disk_usage(into).free
    if free < needed:
        raise Refused(f"{into} needs about {needed:,} bytes, but {free:,} are free on that disk; give another place")
