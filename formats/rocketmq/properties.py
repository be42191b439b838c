"""The properties text of a message: ``name 0x01 value 0x02 ...`` in UTF-8, without escapes (spec 2.6)."""

from __future__ import annotations

from collections.abc import Iterable

from construct import Struct

from formats.text import marks_of, until

PropertyPair = Struct(
    "name" / until(b"\x01") * "KEYS, TAGS, UNIQ_KEY, WAIT, DELAY, ... or the user's own",
    "value" / until(b"\x02", required=False) * "from 4.9.1 to 5.1.4 the last one has no 0x02 after it",
)
NAME_END, PAIR_END = marks_of(PropertyPair)
_MIN_PIECE = 3


def split_properties(text: bytes, *, strict: bool = False) -> list[tuple[bytes, bytes]]:
    """Name-value pairs in order, repeats included.

    Args:
        strict: as brokers up to 4.9.0 read: a piece must split on 0x01 into exactly two parts, so a
            value with 0x01 in it is dropped and an empty name is not; Java's ``String.split`` forgets
            empty parts at the end, so a 0x01 after the value does no harm. Later brokers
            (MessageDecoder.string2messageProperties) want three characters and a 0x01 inside.
    """
    pieces = text.split(PAIR_END)
    if strict:
        parts = (piece.rstrip(NAME_END).split(NAME_END) for piece in pieces)
        return [(p[0], p[1]) for p in parts if len(p) == 2]
    found = []
    for piece in pieces:
        name, mark, value = piece.partition(NAME_END)
        if mark and name and value and len(piece) >= _MIN_PIECE:
            found.append((name, value))
    return found


def join_properties(pairs: Iterable[tuple[bytes, bytes]], *, closed: bool = True) -> bytes:
    """Return the stored text; ``closed`` ends it with 0x02 (up to 4.9.0 and from 5.2.0 on)."""
    text = PAIR_END.join(name + NAME_END + value for name, value in pairs)
    return text + PAIR_END if closed and text else text


def is_closed(text: bytes) -> bool:
    """Whether the text ends with 0x02, which is how the release families differ."""
    return text.endswith(PAIR_END)


def is_clean(text: bytes) -> bool:
    """Whether the text is as encoders write it: no zero bytes, every piece a name, 0x01 and a value."""
    pieces = text.removesuffix(PAIR_END).split(PAIR_END) if text else []
    return b"\0" not in text and all(piece.find(NAME_END) > 0 for piece in pieces)
