"""What a dump shows of a message beside its header, and in which form."""

from __future__ import annotations

from dataclasses import dataclass

from rmqctl.filters import DEFAULT_MAX_BODY
from rmqctl.release import Release
from rmqctl.rocketmq.rows.text import Shown, redacted, text_or_base64

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
