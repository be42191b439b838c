"""Parts of a large file worked on by several processes; their results in order.

The arrays of a result are not sent through a pipe: a worker copies them into memory that it shares with this process,
which reads them there. That halves what handing over costs, most of which is fresh pages on both sides.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from mmap import mmap
from multiprocessing import get_context
from typing import Any, Generic, TypeVar

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")
SLOT = 32 << 20
"""Bytes of shared memory for one result; a larger one goes through the pipe. Pages that stay unused cost nothing."""
_LINE = 64
"""Arrays begin at multiples of this many bytes."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A result on its way: pickled, but for the arrays at these places of the slot.

    Attributes:
        slot: its number; None where everything is in the pickle.
        places: begin and end of each array, bytes from the begin of the slot.
    """

    pickled: bytes
    slot: int | None = None
    places: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Ordered(Generic[PartT, ResultT]):
    """Works on parts in several processes.

    Attributes:
        make: called once in each process, returns what works on a part; can be pickled.
        ahead: how many parts are worked on, or done, before the first of them is taken.
        idle: called while the next result is waited for.
    """

    make: Callable[[], Callable[[PartT], ResultT]]
    processes: int
    ahead: int
    idle: Callable[[], object] = bool
    _memory: mmap | None = field(default=None, init=False)
    _waiting: deque[tuple[int, Future[Sent]]] = field(default_factory=deque, init=False)

    def results(self, parts: Iterable[PartT]) -> Iterator[ResultT]:
        """The results in the order of the parts; arrays in one are valid until the next is asked for.

        Raises:
            Exception: what a worker raised.
        """
        context = get_context()
        slots = range(self.ahead)
        if context.get_start_method() == "fork":  # only forked processes see the same memory
            self._memory = mmap(-1, len(slots) * SLOT)
        with ProcessPoolExecutor(self.processes, context, _enter, (self.make, self._memory)) as pool:
            free = deque(slots)
            try:
                for part in parts:
                    slot = free.popleft()
                    self._waiting.append((slot, pool.submit(_work, part, slot)))
                    if len(self._waiting) == self.ahead:
                        yield self._next(free)
                while self._waiting:
                    yield self._next(free)
            finally:
                for _, future in self._waiting:
                    future.cancel()

    def _next(self, free: deque[int]) -> Any:
        """The next result; its slot is given to the part that is begun after the next call for one."""
        slot, future = self._waiting.popleft()
        if not future.done():
            self.idle()
        sent = future.result()
        free.append(slot)
        if sent.slot is None or self._memory is None:
            return pickle.loads(sent.pickled)  # noqa: S301 -- made by our own child
        begin, memory = sent.slot * SLOT, memoryview(self._memory)
        return pickle.loads(sent.pickled, buffers=[memory[begin + a : begin + b] for a, b in sent.places])  # noqa: S301


_workers: list[tuple[Callable[[Any], Any], mmap | None]] = []  # of a worker process: the one thing it was started for


def _enter(make: Callable[[], Callable[[Any], Any]], memory: mmap | None) -> None:
    _workers[:] = [(make(), memory)]


def _work(part: object, slot: int) -> Sent:
    work, memory = _workers[0]
    result = work(part)
    if memory is None:
        return Sent(pickle.dumps(result, 5))
    arrays: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(result, 5, buffer_callback=arrays.append)
    places = _put([array.raw() for array in arrays], memory, slot * SLOT)
    return Sent(pickle.dumps(result, 5)) if places is None else Sent(pickled, slot, tuple(places))


def _put(arrays: list[memoryview], memory: mmap, begin: int) -> list[tuple[int, int]] | None:
    """Copy arrays into a slot; where they lie in it, None where they do not fit."""
    places, end = [], 0
    for array in arrays:
        start = -(-end // _LINE) * _LINE
        end = start + array.nbytes
        places.append((start, end))
    if end > SLOT:
        return None
    for (start, stop), array in zip(places, arrays, strict=True):
        memory[begin + start : begin + stop] = array
    return places
