"""The one exception that decoding raises."""

from __future__ import annotations


class DecodeError(ValueError):
    """Bytes are not what a schema demands.

    Attributes:
        field: the field that could not be read, "" when it is not about one.
        offset: where it begins, in bytes into the buffer given.
    """

    def __init__(self, message: str, *, field: str = "", offset: int = 0) -> None:
        super().__init__(message)
        self.field, self.offset = field, offset
