"""Parts of a large file worked on by several processes; their results in order.

The arrays of a result need not be sent through a pipe: a worker copies them into memory that it shares with this
process, which reads them there. That halves what handing over costs, most of which is fresh pages on both sides.

Every worker has a pipe of its own, and this process waits for nothing but those pipes: no thread and no lock is
shared that a killed worker could leave locked. A worker is ended by SIGKILL, which none can put off; one that dies
closes its pipe, and that is an error at once.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rmqctl.errors import IOFailure

if TYPE_CHECKING:  # small logs are read by this process alone, which then need not import it
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")
Share = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Does work on many items somewhere else; gives the results in the order of the items. All of it is pickled."""
SLOT = 32 << 20
"""Bytes of shared memory for one result; a larger one goes through the pipe. Pages that stay unused cost nothing."""
_LINE = 64
"""Arrays begin at multiples of this many bytes."""


def most_processes() -> int:
    """Return the processes that work is shared among where nobody says how many: one a processor that may be used."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, 8)


def processes_for(size: int) -> int:
    """Return one process for small logs, where starting more costs more than it gives.

    Args:
        size: bytes of log.
    """
    return most_processes() if size >= 512 << 20 else 1


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
        keeps: results may be kept, so their arrays are sent; else they are valid until the next is asked for.
    """

    make: Callable[[], Callable[[PartT], ResultT]]
    processes: int
    ahead: int
    idle: Callable[[], object] = bool
    keeps: bool = False

    def results(self, parts: Iterable[PartT]) -> Iterator[ResultT]:
        """Yield the results in the order of the parts.

        Raises:
            Exception: what a worker raised.
            IOFailure: a worker died, or had too little memory.
        """
        from multiprocessing import get_context

        memory = None
        if not self.keeps and get_context().get_start_method() == "fork":  # only forked processes see the same memory
            memory = mmap(-1, self.ahead * SLOT)
        crew, free = (
            _Crew(self.make, self.processes, -(-self.ahead // self.processes), memory),
            deque(range(self.ahead)),
        )
        waiting: deque[tuple[int, int]] = deque()
        try:
            for number, part in enumerate(parts):
                waiting.append((number, free.popleft()))
                crew.give(number, part, waiting[-1][1])
                if len(waiting) == self.ahead:
                    yield self._next(crew, waiting, free)
            while waiting:
                yield self._next(crew, waiting, free)
        finally:
            crew.end()

    def _next(self, crew: _Crew, waiting: deque[tuple[int, int]], free: deque[int]) -> Any:
        """Return the next result; its slot is given to the part that is begun after the next call for one."""
        number, slot = waiting.popleft()
        if not crew.has(number):
            self.idle()
        sent = crew.take(number)
        free.append(slot)
        if sent.slot is None or crew.memory is None:
            return pickle.loads(sent.pickled)  # noqa: S301 -- made by our own child
        begin, view = sent.slot * SLOT, memoryview(crew.memory)
        return pickle.loads(sent.pickled, buffers=[view[begin + a : begin + b] for a, b in sent.places])  # noqa: S301


_SMALL = 8 << 10
"""Bytes of a part that a pipe takes at once though nobody reads; only such parts are given to a busy worker."""
_PATIENCE = 10.0
"""Seconds for a killed process to be gone; one that hangs in the system itself goes when the system lets it."""


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    connection: Connection
    busy: int = 0


@dataclass(slots=True)
class _Crew:
    """The processes, started as parts come, and what they were given and have answered.

    Attributes:
        depth: parts that a worker is given at most, done or not.
    """

    make: Callable[[], Callable[[Any], Any]]
    most: int
    depth: int
    memory: mmap | None
    _workers: list[_Worker] = field(default_factory=list)
    _pending: deque[bytes] = field(default_factory=deque)
    _answers: dict[int, Sent | Exception] = field(default_factory=dict)

    def give(self, number: int, part: object, slot: int) -> None:
        """Have a part worked on, as soon as a worker is free for it."""
        self._pending.append(pickle.dumps((number, part, slot), 5))
        self._listen(0)
        self._share_out()

    def has(self, number: int) -> bool:
        self._listen(0)
        self._share_out()
        return number in self._answers

    def take(self, number: int) -> Sent:
        """Return the answer to a part, as soon as it is there.

        Raises:
            Exception: what the worker raised.
            IOFailure: a worker died.
        """
        while not self.has(number):
            self._listen(None)
        answer = self._answers.pop(number)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _share_out(self) -> None:
        while self._pending:
            if len(self._workers) < self.most and all(worker.busy for worker in self._workers):
                self._workers.append(self._start())
            worker = min(self._workers, key=lambda w: w.busy)
            if worker.busy and (worker.busy >= self.depth or len(self._pending[0]) > _SMALL):
                return
            try:
                worker.connection.send_bytes(self._pending.popleft())
            except OSError:
                raise _died(worker.process) from None
            worker.busy += 1

    def _listen(self, timeout: float | None) -> None:
        """Read the answers that are there; with a timeout of None wait for one."""
        from multiprocessing.connection import wait

        by_connection = {worker.connection: worker for worker in self._workers if worker.busy}
        for connection in wait(list(by_connection), timeout):
            worker = by_connection[connection]  # type: ignore[index]
            try:
                number, answer = pickle.loads(worker.connection.recv_bytes())  # noqa: S301 -- from our own child
            except (EOFError, OSError):
                raise _died(worker.process) from None
            worker.busy -= 1
            self._answers[number] = answer

    def _start(self) -> _Worker:
        from multiprocessing import get_context

        context = get_context()
        ours, theirs = context.Pipe()
        forks = context.get_start_method() == "fork"
        others = [ours, *(worker.connection for worker in self._workers)] if forks else []
        process = context.Process(target=_serve, args=(self.make, self.memory, theirs, others), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def end(self) -> None:
        """End all workers, whatever they are at; what they were given is not finished."""
        for worker in self._workers:
            worker.process.kill()
            worker.connection.close()
        for worker in self._workers:
            worker.process.join(_PATIENCE)
        self._workers.clear()


def _died(process: BaseProcess) -> IOFailure:
    process.join(_PATIENCE)
    code = process.exitcode
    if code is not None and code < 0:
        why = f"it was ended by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"by signal {-code}"
    else:
        why = f"it ended with status {code}"
    advice = "if memory ran out (dmesg shows it), run again with --processes 1, or where more memory is free"
    return IOFailure("a process that worked on a part of the log died", why, advice)


def _serve(
    make: Callable[[], Callable[[Any], Any]], memory: mmap | None, pipe: Connection, others: list[Connection]
) -> None:
    """Serve as a worker: parts in, answers out, until nobody is at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal's Ctrl-C the parent is the judge
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # or this process would keep the pipe of a dead parent open
        other.close()
    work: Callable[[Any], Any] | None = None
    while True:
        try:
            number, part, slot = pickle.loads(pipe.recv_bytes())  # noqa: S301 -- from our own parent
        except (EOFError, OSError):
            return
        answer: Sent | Exception
        try:
            work = work or make()
            answer = _work(work, part, slot, memory)
        except MemoryError:
            advice = "run again with --processes 1, or where more memory is free"
            answer = IOFailure("cannot work on a part of the log", "memory ran out", advice)
        except Exception as error:  # noqa: BLE001 -- raised again by the parent
            answer = _as_sent(error)
        try:
            pipe.send_bytes(pickle.dumps((number, answer), 5))
        except OSError:
            return


def _as_sent(error: Exception) -> Exception:
    """Return an exception that arrives, with where it comes from."""
    import traceback

    lines = traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own
    except Exception:  # noqa: BLE001 -- whatever its class does
        return RuntimeError(f"in a process that worked on a part of the log:\n{lines}")
    error.add_note(f"in process {os.getpid()}:\n{lines}")
    return error


def _work(work: Callable[[Any], Any], part: object, slot: int, memory: mmap | None) -> Sent:
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


# --- what tasks have gone through of a log, and what became of it ---------------------------------------


@dataclass(slots=True)
class Tally:
    """What was read of a log, and what of it was not given, and why.

    Readers of tables note all of it, so that records are those that were given and those passed over, and bytes of a
    log those that were read and those left out. Other work on logs notes records and bytes alone.

    Attributes:
        messages: records that were looked at; of Kafka's batches that were not decoded, as many as they state.
        bytes: of log that were read.
        given: records that passed all filters.
        passed_over: records that did not, by reason.
        left_out: bytes of log that nobody read, by reason.
        damaged: bytes that were read and should hold records, and do not.
    """

    messages: int = 0
    bytes: int = 0
    given: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    damaged: int = 0

    def plus(self, other: Tally, sign: int = 1) -> Tally:
        """Return the sum of two."""
        made = Tally()
        for name in _NUMBERS:
            setattr(made, name, getattr(self, name) + sign * getattr(other, name))
        for name in _BY_REASON:
            ours, theirs = getattr(self, name), getattr(other, name)
            sums = {reason: ours.get(reason, 0) + sign * theirs.get(reason, 0) for reason in sorted({*ours, *theirs})}
            setattr(made, name, {reason: count for reason, count in sums.items() if count})
        return made

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {_IN_JSON.get(name, name): getattr(self, name) for name in Tally.__slots__}

    def remarks(self, noun: str) -> list[str]:
        """Return what was not given, in sentences for people; none where all was.

        Args:
            noun: what records are called, such as ``messages``.
        """
        found = []
        passed = [f"{count:,} by {reason}" for reason, count in self.passed_over.items()]
        if passed:
            passed_over = ", ".join(passed)
            found.append(
                f"{self.given:,} of {self.messages:,} {noun} that were read are in it; left out: {passed_over}"
            )
        left = [f"{size:,} by {reason}" for reason, size in self.left_out.items()]
        if left:
            found.append(f"{self.bytes:,} bytes of the log were read; left out: {', '.join(left)}")
        return [*found, *self.losses(noun)]

    def losses(self, noun: str) -> list[str]:
        """Return what is not there and should be, in sentences for people."""
        lost = [(self.damaged, "are damaged"), (self.left_out.get("unreadable", 0), "cannot be read")]
        return [
            f"{size:,} bytes of the log {what}: {noun} in them are missing here; `rmqctl verify` says which"
            for size, what in lost
            if size
        ]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Tally:
        """Return what :meth:`document` gave.

        Raises:
            KeyError: something is missing.
        """
        return cls(**{name: document[_IN_JSON.get(name, name)] for name in cls.__slots__})


_NUMBERS, _BY_REASON = ("messages", "bytes", "given", "damaged"), ("passed_over", "left_out")
_IN_JSON = {"messages": "records", "damaged": "damaged_bytes"}


class _Here(threading.local):
    """What was noted in this thread since the last call of :func:`taken`."""

    def __init__(self) -> None:
        self.tally = Tally()


_here = _Here()


def note(messages: int, size: int, *, given: int = 0, damaged: int = 0) -> None:
    """Note that a task has read so many messages and bytes of log."""
    now = _here.tally
    now.messages += messages
    now.bytes += size
    now.given += given
    now.damaged += damaged


def pass_over(reason: str, messages: int) -> None:
    """Note that so many of the messages that were read are not given."""
    if messages:
        counts = _here.tally.passed_over
        counts[reason] = counts.get(reason, 0) + messages


def leave_out(reason: str, size: int) -> None:
    """Note that so many bytes of log are not read."""
    if size:
        sizes = _here.tally.left_out
        sizes[reason] = sizes.get(reason, 0) + size


def noted() -> Tally:
    """Return what was noted in this thread since the last call of :func:`taken`."""
    return _here.tally.plus(Tally())


def note_all(tally: Tally) -> None:
    """Note what was noted elsewhere."""
    _here.tally = _here.tally.plus(tally)


def taken() -> Tally:
    """Return what was noted in this thread since the last call."""
    found, _here.tally = _here.tally, Tally()
    return found
