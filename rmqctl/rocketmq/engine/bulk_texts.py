"""Properties texts of many messages of one template: as bytes one by one, or as columns of a matrix."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.drafts import Template
from rmqctl.rocketmq.engine.property_text import property_text
from rmqctl.rocketmq.engine.stamping import Client, broker_properties, client_properties

Ints = npt.NDArray[np.int64]
Bytes8 = npt.NDArray[np.uint8]
_MARK, _NUMBER = "\x00", b"{n}"
_PIECES = re.compile(rb"(\x00|\{n\})")
_KEY_FORM, _KEY_NIBBLES = b"%08X%08X%04X", (8, 8, 4)
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


@dataclass(frozen=True, slots=True)
class BulkText:
    """The texts of messages with one tag.

    Attributes:
        pieces: constant bytes, ``{n}`` for the number of the message, 0x00 for what changes in its unique key.
        form: the same with ``%``.
    """

    pieces: tuple[bytes, ...]
    form: bytes
    client: Client

    @classmethod
    def of(cls, template: Template, tag: str | None, client: Client, config: StoreConfig) -> BulkText:
        """The texts of a template's messages with a tag.

        Raises:
            MessageRefused: a name or value contains a separator.
        """
        sent = client_properties(template.texts(tag), _MARK)
        text = property_text(broker_properties(sent, config), config.release)
        text = text.replace(_MARK.encode(), client.key_prefix.encode() + _MARK.encode(), 1)
        pieces = tuple(p for p in _PIECES.split(text) if p)
        forms = {_NUMBER: b"%d", _MARK.encode(): _KEY_FORM}
        return cls(pieces, b"".join(forms.get(p) or p.replace(b"%", b"%%") for p in pieces), client)

    def fill(self, number: int, time: int) -> bytes:
        """The text of one message."""
        values: list[int] = []
        for piece in self.pieces:
            if piece == _NUMBER:
                values.append(number)
            elif piece == _MARK.encode():
                values += self.client.key_parts(number, time)
        return self.form % tuple(values)

    def size(self, digits: int) -> int:
        """Bytes of a text whose number has so many digits."""
        sizes = {_NUMBER: digits, _MARK.encode(): sum(_KEY_NIBBLES)}
        return sum(sizes.get(piece) or len(piece) for piece in self.pieces)

    def fill_columns(self, numbers: Ints, times: Ints, out: Bytes8) -> None:
        """The texts of messages whose numbers have as many digits as the first, into ``out``, shape (n, size)."""
        digits, key, at = decimal(numbers), None, 0
        for piece in self.pieces:
            if piece == _NUMBER:
                part: Bytes8 = digits
            elif piece == _MARK.encode():
                key = self._keys(numbers, times) if key is None else key
                part = key
            else:
                part = np.frombuffer(piece, np.uint8)[None]
            out[:, at : at + part.shape[1]] = part
            at += part.shape[1]

    def _keys(self, numbers: Ints, times: Ints) -> Bytes8:
        parts = zip(self.client.key_columns(numbers, times), _KEY_NIBBLES, strict=True)
        return np.concatenate([hexadecimal(values, size) for values, size in parts], axis=1)


def decimal(numbers: Ints) -> Bytes8:
    """Decimal digits of numbers of one length, shape (n, digits)."""
    places = 10 ** np.arange(len(str(int(numbers[0]))) - 1, -1, -1)
    return (numbers[:, None] // places % 10 + ord("0")).astype(np.uint8)


def hexadecimal(numbers: Ints, size: int) -> Bytes8:
    """Hexadecimal digits of numbers, upper case, shape (n, size)."""
    found: Bytes8 = _HEX[numbers[:, None] >> np.arange(4 * (size - 1), -1, -4) & 0xF]
    return found


__all__ = ["BulkText"]
