"""The properties of a block's records as JSON text, all at once.

Most properties texts are plain: names and values in turn, none empty, no name twice, valid UTF-8.
For those JSON comes from replacing bytes in the texts joined end to end, and what a row shows is a
slice of the result. The others are named in ``odd`` and left to the record-by-record code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqctl.rocketmq.block import Bytes8, Ints
from rmqctl.rocketmq.columns import Texts

Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_PAIR, _END = 1, 2
_SHORT = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_ESCAPES = {byte: _SHORT.get(byte, b"\\u%04x" % byte) for byte in (92, 34, 0, *range(3, 32))}
_LONGER = np.zeros(256, np.int64)
_LONGER[list(_ESCAPES)] = [len(text) - 1 for text in _ESCAPES.values()]
_LONGER[[_PAIR, _END]] = 2
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
_MIX_A, _MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_NAMES_KEPT = 4096


@dataclass(frozen=True, slots=True)
class PropertyJson:
    """JSON of the properties of n records.

    Attributes:
        odd: records that are left to other code; their slices below are empty, shape (n,).
        pairs: ``"name":"value",...`` of each record, without the braces.
        named: for each name asked for, the quoted value, empty where the record has none.
        has: for each name asked for, which records have it, shape (n,).
    """

    odd: Flags
    pairs: Any
    named: list[Any]
    has: list[Flags]


class PropertyTexts:
    """Makes :class:`PropertyJson`; remembers which sets of names hold no name twice."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        """
        Args:
            names: properties whose values are wanted by themselves; at most eight bytes each.
        """
        self.names = [(len(name), np.uint64(int.from_bytes(name, "little"))) for name in names]
        self._known: dict[bool, Words] = {False: np.zeros(0, np.uint64), True: np.zeros(0, np.uint64)}

    def json(self, texts: Texts) -> PropertyJson:
        """The properties texts of a block as JSON."""
        closed = _close(texts)
        marks = _Marks.of(closed)
        odd = _not_text(closed)
        odd[marks.bad] = True
        words, sizes = _names(closed.data, marks)
        odd |= self._repeats(marks, words, sizes)
        text = pa.py_buffer(_escaped(closed.data, marks.kinds))
        found, has = [], []
        for size, word in self.names:
            rows = np.flatnonzero((words == word) & (sizes == size))
            values, there = _values(text, marks, rows, odd)
            found.append(values)
            has.append(there)
        return PropertyJson(odd, _slices(text, *marks.row_slices(odd)), found, has)

    def _repeats(self, marks: _Marks, words: Words, sizes: Ints) -> Flags:
        """Which records may have a name twice."""
