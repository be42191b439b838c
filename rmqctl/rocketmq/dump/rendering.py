"""What a dump shows of a message beside its header, and in which form.

Bytes as JSON shows them: text where they are UTF-8, else base64; or only their hash.

Messages in a form of the user's own, by a format string in the manner of kcat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rmqctl.filters import DEFAULT_MAX_BODY
from rmqctl.release import Release
from rmqctl.text import Fields, Text, compile_form, raw, text_or_base64

Shown = Callable[[bytes], Text]
"""How the bytes of a value are shown: :func:`text_or_base64` or :func:`redacted`."""

HASH_DIGITS = 12


def redacted(data: bytes) -> str:
    """The first digits of a hash: equal values stay equal, the value itself is gone."""
    import hashlib

    return f"sha256:{hashlib.sha256(data).hexdigest()[:HASH_DIGITS]}"


def head_of(data: bytes, limit: int | None) -> bytes:
    """The first ``limit`` bytes; of UTF-8 text only whole characters."""
    if limit is None or len(data) <= limit:
        return data
    cut = data[:limit]
    for end in range(limit, max(limit - 4, -1), -1):
        try:
            cut[:end].decode()
        except UnicodeDecodeError:
            continue
        return cut[:end]
    return cut


# --- what a dump shows of a message beside its header -----------------------------------------------


STRICT_PROPERTIES_UNTIL = Release(4, 9, 0)
"""Last release whose decoder wants exactly one 0x01 in a pair (spec 2.6)."""


@dataclass(frozen=True, slots=True)
class Show:
    """Choices of the user.

    Attributes:
        body, raw_body: add the body decompressed, or as stored.
        body_limit: show at most so many bytes of it.
        max_body: bytes that a compressed body may grow to.
        redact: bodies, keys and property values become hashes.
        release: the broker release whose decoder reads the properties; None: the present one.
    """

    body: bool = False
    raw_body: bool = False
    body_limit: int | None = None
    redact: bool = False
    release: Release | None = None
    max_body: int = DEFAULT_MAX_BODY

    @property
    def value(self) -> Shown:
        """How property values, keys and bodies are shown."""
        return redacted if self.redact else text_or_base64

    @property
    def strict(self) -> bool:
        """Whether properties are read as brokers up to 4.9.0 read them."""
        return self.release is not None and self.release <= STRICT_PROPERTIES_UNTIL

    @property
    def is_plain(self) -> bool:
        """Nothing but the header and the properties as they are."""
        return not (self.body or self.raw_body or self.redact)


# --- messages in a form of the user's own -----------------------------------------------------------


Row = Mapping[str, Any]

FIELDS: Fields = {
    "t": ("topic", lambda row: row["topic"]),
    "p": ("queue id", lambda row: row["queue_id"]),
    "o": ("queue offset", lambda row: row["queue_offset"]),
    "O": ("physical offset", lambda row: row["physical_offset"]),
    "k": ("keys", lambda row: b" ".join(map(raw, row["keys"]))),
    "T": ("store time (ms)", lambda row: row["store_timestamp"]),
    "s": ("body", lambda row: row["body"]),
    "S": ("body size (bytes)", lambda row: row["body_size_decompressed"]),
    "h": ("properties", lambda row: b",".join(b"%s=%s" % (n.encode(), raw(v)) for n, v in row["properties"].items())),
    "i": ("message id", lambda row: row["message_id"]),
}
"""What stands behind a percent sign: its meaning, and how it is read from a message's row with its body."""


def compile_format(text: str) -> Callable[[Row], bytes]:
    """A function from a message's row (made with ``Show(body=True)``) to bytes.

    Raises:
        ValueError: a ``%`` or ``\\`` is followed by nothing that has a meaning.
    """
    return compile_form(text, FIELDS)
