"""The properties text as each release writes it: order of a Java HashMap, closing 0x02 or not (spec 2.6).

A broker decodes the client's text into a HashMap, adds its own properties and writes them in the
map's order: buckets ascending, within a bucket as they were put. 4.x decodes into a map of 16
buckets, 5.x of 128 (MessageDecoder.string2messageProperties); a map doubles when it is filled to
more than three quarters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from formats.rocketmq.index import java_hash
from formats.rocketmq.properties import NAME_END, PAIR_END, join_properties
from rmqctl.release import Release
from rmqctl.rocketmq.engine.message import MessageRefused, PutStatus

Pairs = Mapping[str, str]
_FIRST_OPEN, _LAST_OPEN = Release(4, 9, 1), Release(5, 1, 4)
_LAST_BATCH_TEXT = Release(5, 3, 3)
CLIENT_BUCKETS = 16
_NAME_MARK, _PAIR_MARK = NAME_END.decode(), PAIR_END.decode()


def is_closed_by(release: Release) -> bool:
    """Whether a release ends the text with 0x02."""
    return not _FIRST_OPEN <= release <= _LAST_OPEN


def buckets_of(release: Release) -> int:
    """Buckets of the map a broker decodes properties into."""
    return 128 if release >= Release(5, 0, 0) else CLIENT_BUCKETS


def java_map_order(names: Iterable[str], buckets: int = CLIENT_BUCKETS) -> list[str]:
    """Names in the order in which a ``java.util.HashMap`` iterates over them, put in the given order."""
    wanted = list(names)
    while len(wanted) > buckets * 3 // 4:
        buckets *= 2
    return sorted(wanted, key=lambda name: _spread(name) & (buckets - 1))


@lru_cache(maxsize=4096)
def _spread(name: str) -> int:
    """HashMap.hash: the upper half of the hash mixed into the lower."""
    value = java_hash(name) & 0xFFFFFFFF
    return value ^ value >> 16


def property_text(pairs: Pairs, release: Release) -> bytes:
    """The stored text of a message's properties.

    Raises:
        MessageRefused: a name or value contains a separator.
    """
    return _text(pairs, None, release)


def client_text(pairs: Pairs, release: Release) -> bytes:
    """The text as the client of a release encodes it, for items of a batch."""
    return _text(pairs, CLIENT_BUCKETS, release)


def batch_item_text(item: Pairs, batch: Pairs, release: Release) -> bytes:
    """The stored text of a message that came in a client batch: its own as the client wrote it, then the batch's.

    Brokers up to 5.3.3 append the properties of the batch to those of each message (spec 2.11).

    Raises:
        MessageRefused: a name or value contains a separator.
    """
    own = client_text(item, release)
    if release > _LAST_BATCH_TEXT or not batch:
        return own
    return (own if not own or own.endswith(PAIR_END) else own + PAIR_END) + property_text(batch, release)


def _text(pairs: Pairs, buckets: int | None, release: Release) -> bytes:
    names, closed = _ordered(tuple(pairs), buckets, release)
    text = _PAIR_MARK.join([start + pairs[name] for name, start in names])
    count = len(names)
    if text.count(_PAIR_MARK) != max(count - 1, 0) or text.count(_NAME_MARK) != count:
        return _joined([(_utf8(name), _utf8(pairs[name])) for name, _ in names], closed=closed, release=release)
    return _utf8(text + _PAIR_MARK if closed and text else text)


def ordered_text(pairs: Pairs, release: Release) -> bytes:
    """The text with the properties in the order in which they are, as a record had them.

    Raises:
        MessageRefused: a name or value contains a separator.
    """
    raw = [(_utf8(name), _utf8(value)) for name, value in pairs.items()]
    return _joined(raw, closed=is_closed_by(release), release=release)


def _joined(pairs: list[tuple[bytes, bytes]], *, closed: bool, release: Release) -> bytes:
    text = join_properties(pairs, closed=closed)
    count = len(pairs)
    if text.count(PAIR_END) != count - (not closed and count > 0) or text.count(NAME_END) != count:
        _refuse_separators(pairs, release)
    return text


def _refuse_separators(pairs: list[tuple[bytes, bytes]], release: Release) -> None:
    """Refuse what would be read as other properties; readers from 4.9.1 on take 0x01 in a value as it is."""
    for name, value in pairs:
        bad = PAIR_END if PAIR_END in name + value else b""
        if NAME_END in name or (NAME_END in value and release < _FIRST_OPEN):
            bad = NAME_END
        if bad:
            shown = name.decode("utf-8", "surrogateescape")
            raise MessageRefused(
                PutStatus.MESSAGE_ILLEGAL,
                f"the property {shown!r} has the separator 0x{bad.hex()} in its name or value; "
                "leave that character out",
                f"properties.{shown}",
            )


@lru_cache(maxsize=4096)
def _ordered(names: tuple[str, ...], buckets: int | None, release: Release) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Names in the order of the map, each with how its pair begins; and whether the release closes the text.

    Args:
        buckets: None: as many as a broker of the release has.
    """
    order = java_map_order(names, buckets or buckets_of(release))
    return tuple((name, name + _NAME_MARK) for name in order), is_closed_by(release)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


__all__ = [
    "Pairs", "batch_item_text", "buckets_of", "client_text", "is_closed_by", "java_map_order", "ordered_text",
    "property_text",
]  # fmt: skip
