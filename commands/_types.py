"""Values with rules, as click types: each says in one sentence what it wants."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from commands import Command
from rmqctl.families import FAMILIES
from rmqctl.filters import Glob
from rmqctl.release import Release as ReleaseNumber
from rmqctl.text import SPANS, milliseconds_of, span_ms

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_POWERS = "_kmgtp"
_WILD = frozenset("*?[")
_OFFSET = re.compile(r"offset:[0-9]+|[0-9]{1,9}")

FAMILY = click.Choice(["auto", *reversed(FAMILIES)])
"""A family of stores by its name, or that of what is there."""


class Offset(click.IntRange):
    """A number of bytes or records from 0 on."""

    name = "offset"

    def __init__(self) -> None:
        super().__init__(min=0)


class Instant(click.ParamType[int]):
    """A moment, as epoch milliseconds; text without a zone is UTC, with ``--local-time`` of the local zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        local = ctx is not None and bool(ctx.params.get("local_time"))
        try:
            return milliseconds_of(str(value), local=local)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class TimeOrOffset(click.ParamType[int | str]):
    """A moment as epoch milliseconds, or an offset: a number below 1,000,000,000, or ``offset:N``."""

    name = "time|offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).strip()
        if _OFFSET.fullmatch(text):
            return text if text.startswith("offset:") else int(text)
        try:
            return Instant().convert(value, param, ctx)
        except click.BadParameter as error:
            number = text if text.isascii() and text.isdigit() else "1200"
            self.fail(f"{error.message.removesuffix('.')}; an offset is offset:{number}.", param, ctx)


class TimeOrWord(click.ParamType[int | str]):
    """A moment as epoch milliseconds, or a word that stands for one.

    Args:
        words: that are taken.
    """

    name = "time"

    def __init__(self, *words: str) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if isinstance(value, str) and value.strip().lower() in self.words:
            return value.strip().lower()
        return Instant().convert(value, param, ctx)


class SpanArguments(Command):
    """A command with a time among its arguments: ``-15m`` stands for a time, not for options -1, -5 and -m."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(
            ctx, [str(Instant().convert(a, None, ctx)) if SPANS.fullmatch(a) else a for a in args]
        )


class Size(click.ParamType[int]):
    """A number of bytes: 100, 64K, 64KiB, 1.5G; K is 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a size; give bytes, or 64K, 16MiB, 1G (binary units).", param, ctx)
        number, unit = match.groups()
        return round(float(number) * 1024 ** _POWERS.index(unit.lower())) if unit else round(float(number))


class Sizes(click.ParamType[tuple[int, int]]):
    """A number of bytes, or the smallest and largest: ``1K``, ``100-4K``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            low, high = value
            return low, high
        first, dash, last = str(value).partition("-")
        low = Size().convert(first, param, ctx)
        high = Size().convert(last, param, ctx) if dash else low
        if high < low:
            self.fail(f"{value!r}: the larger size comes first; give LOW-HIGH.", param, ctx)
        return low, high


class Span(click.ParamType[int]):
    """A length of time, as milliseconds: 250ms, 5s, 1h30m, or a number of milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if text.isascii() and text.isdigit():
            return int(text)
        try:
            return span_ms(text)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class Weighted(click.ParamType[list[tuple[str, float]]]):
    """One tag, or several with weights: ``TagA``, ``TagA=3,TagB=1``."""

    name = "tag"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[tuple[str, float]]:
        if isinstance(value, list):
            return value
        found = []
        for part in str(value).split(","):
            tag, _, weight = part.partition("=")
            try:
                found.append((tag, float(weight or 1)))
            except ValueError:
                self.fail(f"{weight!r} is not a weight; give TAG or TAG=3,OTHER=1.", param, ctx)
        if not all(tag and 0 < weight < math.inf for tag, weight in found):
            self.fail(f"{value!r}: every tag needs a name and a weight above 0; give TAG or TAG=3,OTHER=1.", param, ctx)
        return found


class QueueChoice(NamedTuple):
    """A topic, and one queue of it or all (None)."""

    topic: str
    queue_id: int | None


class QueueName(click.ParamType[QueueChoice]):
    """``TOPIC/QUEUE``, or ``TOPIC`` for all its queues.

    Args:
        needs_queue: a bare topic is not enough.
    """

    name = "topic[/queue]"

    def __init__(self, *, needs_queue: bool = False) -> None:
        self.needs_queue = needs_queue
        if needs_queue:
            self.name = "topic/queue"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> QueueChoice:
        if isinstance(value, QueueChoice):
            return value
        topic, slash, number = str(value).rpartition("/")
        if not slash and number and not self.needs_queue:
            return QueueChoice(number, None)
        if topic and number.isascii() and number.isdigit():
            return QueueChoice(topic, int(number))
        label, _, last = str(value).rpartition("-")
        is_label = label and not slash and last.isascii() and last.isdigit()
        example = (
            f"TOPIC/QUEUE, of Kafka TOPIC/PARTITION: {label}/{last}" if is_label else "TOPIC/QUEUE, such as TopicTest/0"
        )
        wanted = example + ("" if self.needs_queue else ", or TOPIC")
        self.fail(f"{value!r} does not name a queue; give {wanted}.", param, ctx)


class PropertyFilter(click.ParamType[tuple[str, str]]):
    """``NAME=VALUE``, as a pair; the value may hold more ``=``."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            name, content = value
            return name, content
        name, sign, content = str(value).partition("=")
        if not (name and sign):
            self.fail(f"{value!r} is not of the form NAME=VALUE.", param, ctx)
        return name, content


class Name(click.ParamType[str]):
    """A name, or a pattern of names: ``Orders``, ``'Orders*'``, ``'Orders[12]'``; ``[*]`` is a star."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        return Glob(text) if _WILD & set(text) else text


class Regex(click.ParamType[re.Pattern[bytes]]):
    """A regular expression in Python's syntax, matched against bytes (text is taken as UTF-8)."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[bytes]:
        if isinstance(value, re.Pattern):
            return value
        try:
            return re.compile(str(value).encode("utf-8", "surrogateescape"))
        except re.error as error:
            self.fail(f"{value!r} is not a regular expression: {error}.", param, ctx)


class Release(click.ParamType[ReleaseNumber]):
    """A broker release: 5.3.3."""

    name = "release"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ReleaseNumber:
        if isinstance(value, ReleaseNumber):
            return value
        try:
            return ReleaseNumber.parse(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class LocalPath(click.Path):
    """A path of this machine, also as ``file://``; other URLs would become directories called ``s3:`` here."""

    name = "path"

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from rmqctl.files.remote import is_url, protocol_of

        text = os.fspath(value)
        if is_url(text):
            from rmqctl.files.remote import local_path

            if protocol_of(text) not in ("file", "local") or "::" in text:
                self.fail(
                    f"{text} is not on this machine, and stores and journals are written to local directories only; "
                    "give a local one, and copy it to where it belongs afterwards.",
                    param,
                    ctx,
                )
            text = local_path(text)
        return Path(os.fsdecode(super().convert(text, param, ctx)))


def refuse(option: str, reason: str) -> NoReturn:
    """End with wrong usage (exit 2): ``option`` contradicts something else on the line."""
    if reason.startswith("is needed"):  # no value is wrong: there is none
        raise click.UsageError(f"{option} {reason}")
    raise click.BadParameter(reason, param_hint=f"'{option}'")


def refuse_id(option: str, given: str, near: Sequence[str]) -> NoReturn:
    """End with wrong usage because of an id that no finding has, and name the nearest ones."""
    hint = f"did you mean {' or '.join(near)}?" if near else "`rmqctl formats findings` lists them."
    refuse(option, f"{given!r} is the id of no finding; {hint}")
