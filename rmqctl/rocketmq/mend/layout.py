"""Ways in which the bytes of one record may be laid out when some of its lengths are wrong.

The record's begin and end are known. Each way corrects some of magic, host flags, BODYLEN, TOPICLEN and
PROPLEN, so that everything adds up; which of them is right is for a CRC to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from formats.rocketmq.message import Magic, SysFlag
from rmqctl.rocketmq.block import head_sizes
from rmqctl.rocketmq.variants import HOST_SHIFT

_HOSTS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_TOPIC = re.compile(rb"[%|a-zA-Z0-9_\-+.]+")
_MOST_PLACES = 64
_MOST_PROPERTIES = 32767


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a record lie.

    Attributes:
        variant: number of the layout variant (V2 and host bits).
        body_size, topic_size, properties_size: bytes.
        changed: names of the fields that are not as stated.
    """

    variant: int
    body_size: int
    topic_size: int
    properties_size: int
    changed: tuple[str, ...]

    @property
    def body_at(self) -> int:
        return int(head_sizes()[self.variant])

    @property
    def text(self) -> int:
        """Bytes of the TOPICLEN field."""
        return 1 + (self.variant >> 2)

    @property
    def topic_at(self) -> int:
        return self.body_at + self.body_size + self.text

    @property
    def properties_at(self) -> int:
        return self.topic_at + self.topic_size + 2


def layouts(raw: bytes, topic: bytes | None) -> Iterator[Layout]:
    """Layouts that fill ``raw`` exactly, those with fewer corrections first.

    Args:
        topic: the topic that a queue unit gives, None where nothing does.
    """
    found: dict[tuple[int, int, int, int], Layout] = {}
    for variant, named in _variants(raw, topic):
        head, text = int(head_sizes()[variant]), 1 + (variant >> 2)
        for body in _body_sizes(raw, head, text, topic):
            for layout in _texts(raw, variant, body, named, topic):
                found.setdefault((variant, body, layout.topic_size, layout.properties_size), layout)
    yield from sorted(found.values(), key=lambda layout: len(layout.changed))


def _variants(raw: bytes, topic: bytes | None) -> Iterator[tuple[int, tuple[str, ...]]]:
    """All layout variants with the fields that would have to be corrected for them."""
    magic, flags = int.from_bytes(raw[4:8], "big", signed=True), int.from_bytes(raw[36:40], "big")
    for v2 in (0, 4):
        if topic is not None and (len(topic) > 127) != bool(v2):
            continue
        right = magic == (Magic.MESSAGE_V2 if v2 else Magic.MESSAGE_V1)
        for hosts in range(4):
            changed = (() if right else ("MAGICCODE",)) + (
                () if (flags & _HOSTS) >> HOST_SHIFT == hosts else ("SYSFLAG",)
            )
            yield v2 | hosts, changed


def _body_sizes(raw: bytes, head: int, text: int, topic: bytes | None) -> Iterator[int]:
    """The stated BODYLEN, those that put the known topic in its place, and those that the other lengths allow."""
    most = len(raw) - head - text - 2
    stated = int.from_bytes(raw[head - 4 : head], "big", signed=True)
    if 0 <= stated <= most:
        yield stated
    if topic:
        mark, at = len(topic).to_bytes(text, "big") + topic, head
        for _ in range(_MOST_PLACES):
            at = raw.find(mark, at)
            if at < 0:
                return
            yield at - head
            at += 1
        return
    yield from _fitting(raw, head, text)


def _fitting(raw: bytes, head: int, text: int) -> Iterator[int]:
    """Places where TOPICLEN, a topic and PROPLEN reach exactly to the end; looked for in the last 32 KiB or so."""
    low, count = max(head, len(raw) - _MOST_PROPERTIES - 260), 0
    for at in range(len(raw) - text - 3, low - 1, -1):
        size = int.from_bytes(raw[at : at + text], "big")
        end = at + text + size
        if not 0 < size <= 255 or end + 2 > len(raw):
            continue
        if end + 2 + int.from_bytes(raw[end : end + 2], "big") == len(raw) and _TOPIC.fullmatch(raw, at + text, end):
            yield at - head
            count += 1
            if count >= _MOST_PLACES:
                return


def _texts(raw: bytes, variant: int, body: int, changed: tuple[str, ...], topic: bytes | None) -> Iterator[Layout]:
    """Layouts for one body: topic and properties as stated, or corrected to fill the rest."""
    head, text = int(head_sizes()[variant]), 1 + (variant >> 2)
    stated_body = int.from_bytes(raw[head - 4 : head], "big", signed=True)
    if body != stated_body:
        changed = (*changed, "BODYLEN")
    at = head + body
    stated = int.from_bytes(raw[at : at + text], "big", signed=True)
    for size in _topic_sizes(raw, at + text, stated, topic):
        rest = len(raw) - at - text - size - 2
        if not 0 <= rest <= _MOST_PROPERTIES:
            continue
        named = changed if size == stated else (*changed, "TOPICLEN")
        if int.from_bytes(raw[at + text + size : at + text + size + 2], "big", signed=True) != rest:
            named = (*named, "PROPLEN")
        yield Layout(variant, body, size, rest, named)


def _topic_sizes(raw: bytes, at: int, stated: int, topic: bytes | None) -> Iterator[int]:
    """The known length, or the stated one, or any that puts a fitting PROPLEN behind a valid topic."""
    if topic is not None:
        yield len(topic)
        return
    if 0 < stated <= 255:
        yield stated
    for size in range(1, 256):
        end = at + size
        if end + 2 > len(raw):
            return
        if int.from_bytes(raw[end : end + 2], "big") == len(raw) - end - 2 and _TOPIC.fullmatch(raw, at, end):
            yield size
