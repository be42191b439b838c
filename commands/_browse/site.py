"""A store that is walked through, the processes that read it, and how its parts are typed on a command line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from threading import BoundedSemaphore, Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from commands._cells import printable
from rmqctl.errors import IOFailure
from rmqctl.files.archives import UNPACKED, Unpacked
from rmqctl.opening import open_path
from rmqctl.store import LoneFile, Store
from rmqctl.text import typed

if TYPE_CHECKING:
    from commands._browse.reading import Reader
    from commands._options import StoreOptions

Ui = Callable[..., object]
"""Calls a function with its arguments in the thread that draws."""
_HELPERS = 4
"""Processes that read at once, of all stores."""
_PATIENCE = 1.0
"""Seconds that a process has to notice that nobody wants what it reads; then it is ended."""
_BEGIN = (
    "import sys; from multiprocessing.connection import Connection; from commands._browse.reading import serve; "
    "serve(Connection(int(sys.argv[1])))"
)


class Site:
    """One store, or one file of none.

    Attributes:
        options: how it was named.
        first: as it was when the walk began; for what does not change, nothing is read from it.
        ui: see :data:`Ui`.
        roots: prefix and root of its directories, see :class:`rmqctl.store.StoreDirectory`.
        moment: counts how often it is to be opened again.
    """

    def __init__(self, options: StoreOptions, first: Store | LoneFile, ui: Ui) -> None:
        self.options, self.first, self.ui = options, first, ui
        self.moment = 0
        directories = () if isinstance(first, LoneFile) else first.directories()
        self.roots = [(one.prefix, one.tree.root.rstrip("/")) for one in directories]
        self.opener = partial(
            _opened, dict(UNPACKED), options.path, format=options.format, commit_log=options.commit_log,
            broker_conf=options.broker_conf,
        )  # fmt: skip
        self._idle: list[Helper] = []
        self._busy: set[Helper] = set()
        self._lock = Lock()

    @property
    def name(self) -> str:
        """Its path as typed, fit for a terminal."""
        return printable(self.options.path)

    @property
    def is_redacted(self) -> bool:
        return self.first.bundle is not None and bool(self.first.bundle["redacted"])

    @property
    def is_rocketmq(self) -> bool:
        return self.first.family == "rocketmq"

    def place_of(self, file: str) -> str:
        """Return the path of a file that a finding or a record names."""
        return self.options.path if isinstance(self.first, LoneFile) else self.first.path_of(file)

    def command(self, verb: str, *words: str, path: str | None = None) -> str:
        """Return the command that shows the same, as it is typed into a shell."""
        options = self.options
        given: list[str] = []
        if path is None:
            given += ["--commitlog", ",".join(options.commit_log)] if options.commit_log else []
            given += ["--broker-conf", options.broker_conf] if options.broker_conf else []
        given += ["--format", options.format] if options.format != "auto" else []
        return typed(verb, options.path if path is None else path, *words, *given)

    # --- processes --------------------------------------------------------------------------------------

    def take(self) -> Helper:
        """Return a process that reads nothing now."""
        with self._lock:
            helper = self._idle.pop() if self._idle else Helper()
            self._busy.add(helper)
        return helper

    def give_back(self, helper: Helper) -> None:
        """Let others read with a process."""
        with self._lock:
            self._busy.discard(helper)
            self._idle.append(helper)

    def lose(self, helper: Helper) -> None:
        """End a process."""
        helper.end()
        with self._lock:
            self._busy.discard(helper)

    def warm(self, count: int) -> None:
        """Start processes before they are needed."""
        with self._lock:
            self._idle += [Helper() for _ in range(count)]

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            helpers = [*self._idle, *self._busy]
            self._idle.clear()
        for helper in helpers:
            helper.end()


def _opened(unpacked: Unpacked, path: str, **options: Any) -> Store | LoneFile:
    """Open a path in a process of its own, which unpacks no bundle that is unpacked already."""
    UNPACKED.update(unpacked)
    return open_path(path, **options)


# --- reading beside the drawing -----------------------------------------------------------------------


class Helper:
    """A process that reads (:func:`commands._browse.reading.serve`)."""

    def __init__(self) -> None:
        self._closing = Lock()
        ours, theirs = socket.socketpair()
        with theirs:
            paths = os.pathsep.join(path for path in sys.path if path)
            self._process = subprocess.Popen(  # noqa: S603 -- this Python
                [sys.executable, "-c", _BEGIN, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": paths},
            )
        self.connection = Connection(ours.detach())

    def end(self) -> None:
        """End it, whatever it does; who draws and who waits for it may both say so."""
        self._process.kill()
        self._process.wait()
        with self._closing:
            self.connection.close()


_SLOTS = BoundedSemaphore(_HELPERS)


class Job:
    """One piece of reading: a thread that waits for a process.

    Args:
        took: called in the thread that draws with each piece.
        failed: called there with what stopped the work, a bug too.
        far: called there with the bytes that were read so far, now and then.
        ended: called there after all.
    """

    def __init__(
        self,
        site: Site,
        reader: Reader,
        took: Callable[[Any], object],
        failed: Callable[[Exception], object],
        far: Callable[[int], object],
        ended: Callable[[], object],
    ) -> None:
        self._site, self._reader, self._took, self._failed, self._ended = site, reader, took, failed, ended
        self._far = far
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True, name="browse")
        self._thread.start()

    def stop(self) -> None:
        """Let it end as soon as it can; nothing more is handed over."""
        self._stop.set()

    def _run(self) -> None:
        while not _SLOTS.acquire(timeout=0.1):
            if self._stop.is_set():
                break
        else:
            try:
                for word, value in self._answers():
                    self._hand_over(word, value)
            finally:
                _SLOTS.release()
        self._site.ui(self._ended)

    def _hand_over(self, word: str, value: Any) -> None:
        if self._stop.is_set():
            return
        if word == "here":
            self._site.ui(self._took, value)
        elif word == "far":
            self._site.ui(self._far, value)
        else:
            self._site.ui(self._failed, value if word == "failed" else RuntimeError(value))

    def _answers(self) -> Iterator[tuple[str, Any]]:
        """Yield what a process says until it has read all, or nobody wants it."""
        helper, due = self._site.take(), 0.0
        try:
            helper.connection.send((self._site.moment, self._site.opener, self._reader))
            while True:
                while not helper.connection.poll(0.05):
                    if not self._stop.is_set():
                        continue
                    if not due:
                        due = monotonic() + _PATIENCE
                        helper.connection.send(None)
                    elif monotonic() > due:
                        self._site.lose(helper)
                        return
                word, value = helper.connection.recv()
                if word == "end":
                    self._site.give_back(helper)
                    return
                yield word, value
        except (EOFError, OSError, ValueError):  # it was ended, by us or by the system
            self._site.lose(helper)
            if not self._stop.is_set():
                yield "failed", IOFailure("cannot read the store", "the process that reads it was ended", "press r")
