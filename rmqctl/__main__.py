"""``python -m rmqctl`` and the console script: the one file of the library that imports the commands."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import atexit
import gc
import os
import sys

YOUNG_OBJECTS = 100_000
"""How many new objects make the garbage collector run: with 700, as Python has it, imports make it run all the time."""

FRAMES = 1 << 14
"""Values for which the frame of :func:`main` makes room, see below."""


def main() -> None:
    """Run the command line; Ctrl-C during the first imports ends the process as any other, without a traceback.

    `signal` itself imports much, to give its numbers names; so this asks what it wraps.
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    gc.set_threshold(YOUNG_OBJECTS, 50, 100)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no algebra here: NumPy need not start threads for it
    status: list[int] = []
    atexit.register(_leave, status)
    from commands import main as run

    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, int):
            status.append(end.code)
        raise


main.__code__ = main.__code__.replace(co_stacksize=FRAMES)
"""Python keeps the frames of calls in pieces of 16 KiB. A loop whose calls cross the end of a piece has the system map
and unmap the next one each time, wherever that happens to be; half of the import of NumPy was that. The frame of `main`
needs a piece of 256 KiB, and all that it calls finds room in the same."""


def _leave(status: list[int]) -> None:
    """End the process without taking the interpreter apart, which costs as much time as a small store takes to read.

    The first of the functions registered for the exit runs last: threads have ended, and all others have cleaned up.
    """
    if status:
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None and not stream.closed:
                    stream.flush()
        except (OSError, ValueError):
            return  # the interpreter says what it says of a stream that takes no more
        os._exit(status[0])


if __name__ == "__main__":
    main()
