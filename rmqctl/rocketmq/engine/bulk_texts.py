"""Properties texts of many messages of one template: as bytes one by one, or as columns of a matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

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
        return sum(size for _, _, size in self._places(digits))

    def _places(self, digits: int) -> Iterator[tuple[bytes, int, int]]:
        """Each piece with where it begins in a text whose number has so many digits, and its bytes."""
        sizes, at = {_NUMBER: digits, _MARK.encode(): sum(_KEY_NIBBLES)}, 0
        for piece in self.pieces:
            size = sizes.get(piece) or len(piece)
            yield piece, at, size
            at += size

    def fill_constant(self, digits: int, out: Bytes8) -> None:
        """What is the same in all texts whose number has so many digits, into ``out``, shape (n, size)."""
        for piece, at, size in self._places(digits):
            if piece not in (_NUMBER, _MARK.encode()):
                out[:, at : at + size] = np.frombuffer(piece, np.uint8)

    def fill_columns(self, numbers: Ints, times: Ints, out: Bytes8) -> None:
        """The rest of the texts of messages whose numbers have as many digits as the first, shape (n, size)."""
        digits, key = decimal(numbers), None
        for piece, at, size in self._places(digits.shape[1]):
            if piece == _NUMBER:
                out[:, at : at + size] = digits
            elif piece == _MARK.encode():
                key = self._keys(numbers, times) if key is None else key
                out[:, at : at + size] = key

    def _keys(self, numbers: Ints, times: Ints) -> Bytes8:
        found, at = np.empty((len(numbers), sum(_KEY_NIBBLES)), np.uint8), 0
        for values, size in zip(self.client.key_columns(numbers, times), _KEY_NIBBLES, strict=True):
            found[:, at : at + size] = hexadecimal(values, size)
            at += size
        return found


def decimal(numbers: Ints) -> Bytes8:
    """Decimal digits of numbers of one length, shape (n, digits)."""
    digits = len(str(int(numbers[0])))
    fours = np.empty((len(numbers), -(-digits // 4)), np.uint32)
    for at in range(fours.shape[1] - 1, -1, -1):
        numbers, rest = np.divmod(numbers, 10_000) if at else (numbers, numbers)
        fours[:, at] = _decimals()[rest]
    return fours.view(np.uint8)[:, 4 * fours.shape[1] - digits :]


def hexadecimal(numbers: Ints, size: int) -> Bytes8:
    """Hexadecimal digits of numbers, upper case, shape (n, size), or (1, size) where all are equal; size is even."""
    if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        numbers = numbers[:1]
    raw = numbers.astype(">i8").view(np.uint8).reshape(len(numbers), 8)[:, 8 - size // 2 :]
    return _hexadecimals()[raw].view(np.uint8)


@cache
def _decimals() -> npt.NDArray[np.uint32]:
    """Four decimal digits of each number below 10,000."""
    return np.frombuffer(b"".join(b"%04d" % n for n in range(10_000)), np.uint32)


@cache
def _hexadecimals() -> npt.NDArray[np.uint16]:
    """Two hexadecimal digits of each byte."""
    return np.frombuffer(b"".join(b"%02X" % n for n in range(256)), np.uint16)


__all__ = ["BulkText"]
