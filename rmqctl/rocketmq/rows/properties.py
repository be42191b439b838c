"""The properties of messages as JSON-ready values, with the three that have keys of their own."""

from __future__ import annotations

from dataclasses import dataclass

from formats.rocketmq.properties import split_properties
from rmqctl.rocketmq.rows.show import Show
from rmqctl.rocketmq.rows.text import Text, name_of

TAGS, KEYS, UNIQUE_KEY = b"TAGS", b"KEYS", b"UNIQ_KEY"


@dataclass(frozen=True, slots=True)
class Properties:
    """What the properties text of one message says.

    Attributes:
        tags: the TAGS property, None when absent.
        keys: the parts of KEYS between single spaces, empty ones dropped.
        unique_key: the UNIQ_KEY property, None when absent.
        all: every property by name; of repeated names the last value.
    """

    tags: Text | None
    keys: list[Text]
    unique_key: Text | None
    all: dict[str, Text]


def show_properties(raw: bytes, show: Show) -> Properties:
    """Decode a properties text as the wanted release does and show its values as wanted; never raises on bytes."""
    found = dict(split_properties(raw, strict=show.strict))
    value = show.value
    tags, unique_key = found.get(TAGS), found.get(UNIQUE_KEY)
    return Properties(
        None if tags is None else value(tags),
        [value(key) for key in split_keys(found.get(KEYS, b""))],
        None if unique_key is None else value(unique_key),
        {name_of(name): value(text) for name, text in found.items()},
    )


def split_keys(keys: bytes) -> list[bytes]:
    """The parts of a KEYS property between single spaces, without the empty ones."""
    return [key for key in keys.split(b" ") if key]
