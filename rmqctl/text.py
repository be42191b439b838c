"""Words for people, and bytes as JSON shows them: text where they are UTF-8, else base64."""

from __future__ import annotations

Text = str | dict[str, str]


def number_of(count: int, noun: str) -> str:
    """A number with its noun, which has an s but for one: ``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def text_or_base64(data: bytes) -> Text:
    """UTF-8 bytes as text; other bytes as ``{"base64": ...}``, which stands where text would."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(data).decode("ascii")}
