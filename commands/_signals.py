"""Ctrl-C and SIGTERM: both unwind the work as `KeyboardInterrupt` does, and neither is lost.

Python raises an exception wherever it is when the signal comes. Some places swallow it: code of extension modules
that imports others, and callbacks. A command that only reads is therefore interrupted again until it ends; one that
writes is not, as it may be taking back what it did. While an extension module comes up, an exception would find it half
made, which some end in a segmentation fault: a signal waits for that.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rmqctl.errors import INTERRUPTED, TERMINATED

AGAIN_SECONDS = 0.5
IMPORT_SECONDS, IMPORT_TRIES = 0.02, 500
"""How often a signal asks whether an extension module has come up, and how many times before it waits no more."""

_received: list[int] = []
_insists = [True]


class Terminated(KeyboardInterrupt):
    """SIGTERM came: everything that cleans up after Ctrl-C does so now, too."""


@contextmanager
def handled() -> Iterator[None]:
    """Handle both signals while the block runs; what is ignored, as under nohup, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received.clear()
    _insists[0] = True
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    for number, before in kept.items():
        if before is not signal.SIG_IGN:
            signal.signal(number, _again if number == signal.SIGALRM else _raise)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, before in kept.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)


def be_patient() -> None:
    """Interrupt the work once only: it writes, and takes its time to clean up."""
    _insists[0] = False


def exit_code() -> int | None:
    """Return the exit status that a signal asks for; None while none has come."""
    if not _received:
        return None
    return TERMINATED if signal.SIGTERM in _received else INTERRUPTED


def settle() -> None:
    """Interrupt no more: the work has ended."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def _raise(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    if len(_received) < IMPORT_TRIES and _makes_extension(frame):
        signal.setitimer(signal.ITIMER_REAL, IMPORT_SECONDS)
        return
    if _insists[0]:
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _again(_number: int, frame: FrameType | None) -> None:
    """Interrupt once more; an alarm that somebody else has set ends the work as SIGTERM does."""
    _raise(_received[-1] if _received else signal.SIGTERM, frame)


def _makes_extension(frame: FrameType | None) -> bool:
    """Return whether what runs was called, however indirectly, by an extension module that is being made."""
    while frame is not None:
        if frame.f_code.co_qualname.startswith("ExtensionFileLoader."):
            return True
        frame = frame.f_back
    return False
