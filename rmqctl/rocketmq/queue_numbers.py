"""Small numbers for the queues that records belong to, so that columns of queues sort fast."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.block import Ints


class KeyNumbers:
    """Small numbers for (topic number, queue id) pairs packed as ``topic << 32 | queue``, as first seen."""

    _WIDTH = 1024

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}
        self._table = np.full((0, self._WIDTH), -1, np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self) -> list[int]:
        """The keys by number."""
        return list(self._keys)

    def numbers(self, keys: Ints) -> npt.NDArray[Any]:
        """The number of each key, in the smallest unsigned type that sorts fast."""
        topic, queue = keys >> 32, keys & 0xFFFFFFFF
        if int(queue.max()) < self._WIDTH:
            self._widen(int(topic.max()) + 1)
            found = self._table[topic, queue]
            if (found < 0).any():
                for key in keys[np.sort(np.unique(keys, return_index=True)[1])].tolist():
                    self._table[key >> 32, key & 0xFFFFFFFF] = self._keys.setdefault(key, len(self._keys))
                found = self._table[topic, queue]
        else:
            found = np.array([self._keys.setdefault(key, len(self._keys)) for key in keys.tolist()])
        return found.astype(np.uint16) if len(self._keys) <= 1 << 16 else found

    def _widen(self, topics: int) -> None:
        missing = topics - len(self._table)
        if missing > 0:
            more = np.full((max(missing, len(self._table)), self._WIDTH), -1, np.int64)
            self._table = np.concatenate([self._table, more])


def signed(value: int) -> int:
    """A 32-bit pattern as Java's int."""
    return value - (1 << 32) if value >= 1 << 31 else value


def run_starts(values: npt.NDArray[Any]) -> Ints:
    """Where each run of equal values begins; ``values`` is not empty."""
    return np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])


__all__ = ["KeyNumbers", "run_starts", "signed"]
