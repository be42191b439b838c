"""Bytes as JSON shows them: text where they are UTF-8, else base64; or only their hash."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.text import Text, text_or_base64

Shown = Callable[[bytes], Text]
"""How the bytes of a value are shown: :func:`text_or_base64` or :func:`redacted`."""

HASH_DIGITS = 12


def redacted(data: bytes) -> str:
    """The first digits of a hash: equal values stay equal, the value itself is gone."""
    import hashlib

    return f"sha256:{hashlib.sha256(data).hexdigest()[:HASH_DIGITS]}"


def name_of(data: bytes) -> str:
    """Bytes as the key of a JSON object, which has no room for anything but text."""
    text = text_or_base64(data)
    return text if isinstance(text, str) else f"base64:{text['base64']}"


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


__all__ = ["HASH_DIGITS", "Shown", "Text", "head_of", "name_of", "redacted", "text_or_base64"]
