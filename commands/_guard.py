"""From exceptions to exit codes: one line for what a user can act on, a traceback for bugs.

Only `RmqctlError` and the system's own refusals (`OSError`) become a sentence. A closed pipe ends
quietly: the reader had enough. Anything else is a bug and leaves as it came.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator

import click

from commands import _signals
from commands._cells import printable
from rmqctl.errors import INTERRUPTED, TERMINATED, IOFailure, RmqctlError

BUG = 70
"""Exit status after a traceback; 1 would read as "damage found"."""

TYPED = "rmqctl.typed"
"""Key of `click.Context.meta`: the words of the command line after the first."""

INCOMPLETE = "rmqctl.incomplete"
"""Key of `click.Context.meta`: the answer cannot be whole, so that the exit status is never 0."""

_COMMAND = re.compile(r"(.*: )((?:rmqctl|kafka-[a-z-]+\.sh) .+)")
"""A sentence that ends in a command to type."""
_OUTPUT_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def exit_code_of(work: Callable[[], object]) -> int:
    """Run ``work``, flush stdout, and say on stderr what stopped it; returns the exit status."""
    with _signals.handled():
        code = _attempt(work)
        _signals.settle()
        flushed = _attempt(_flush, silent=code != 0)
        return code or flushed


def complain(message: str) -> None:
    """One line on stderr, on a terminal as many as it needs, without control characters.

    A stderr that is closed or full is no reason to fail.
    """
    lines = [printable(line) for line in f"rmqctl: {message}".split("\n")]
    try:
        if sys.stderr.isatty():
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            lines = [part for line in lines for part in on_screen(line, width)]
        click.echo("\n".join(lines), err=True)
    except (OSError, ValueError):
        pass


def on_screen(line: str, width: int) -> Iterator[str]:
    """Yield a sentence on lines of ``width`` cells, broken at spaces; a command to type at its end stays whole."""
    from commands._screen import cells_of, fold  # few commands have anything to say

    command = _COMMAND.fullmatch(line) if cells_of(line) > width > 0 else None
    first, *rest = fold(command[1].rstrip() if command else line, width - 2) if cells_of(line) > width > 0 else [line]
    yield first
    yield from (f"  {part}" for part in rest)
    if command:
        yield f"  {command[2]}"


def report_bug() -> None:
    """Print the traceback of the exception being handled and exit with :data:`BUG`."""
    import traceback

    traceback.print_exc()
    complain("this is a bug in rmqctl; please report it with the lines above")
    sys.exit(BUG)


def _attempt(work: Callable[[], object], *, silent: bool = False) -> int:
    try:
        work()
    except (click.exceptions.Exit, SystemExit) as end:
        return _status(end)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as end:
        return _interrupted(TERMINATED if isinstance(end, _signals.Terminated) else INTERRUPTED)
    except (RmqctlError, OSError, MemoryError) as error:
        return _failure(error, silent)
    except Exception:
        if (code := _signals.exit_code()) is None:
            raise
        return _interrupted(code)  # code of others made something else of it, such as a failed import
    return 0


def _interrupted(code: int) -> int:
    _signals.settle()
    complain("ended by SIGTERM" if code == TERMINATED else "interrupted")
    return code


def _failure(error: RmqctlError | OSError | MemoryError, silent: bool) -> int:
    if isinstance(error, MemoryError):
        advice = "run again with --processes 1 if the command has it, or where more memory is free"
        error = IOFailure("cannot go on", "memory ran out", advice)
    elif isinstance(error, OSError):
        if error.errno == errno.EPIPE:
            _abandon_stdout()
            return 0
        error = _as_failure(error)
    if not silent:
        complain(str(error))
    return error.exit_code


def _as_failure(error: OSError) -> IOFailure:
    if error.errno in _OUTPUT_FULL and _is_of_stdout(error):
        return output_failure(error)
    return IOFailure.of(error)


def _is_of_stdout(error: OSError) -> bool:
    """Whether it came while click wrote a help text or a version; all else on stdout goes through `commands._sink`."""
    from traceback import walk_tb

    frames = (frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code is click.echo.__code__)
    return any(not frame.f_locals["err"] for frame in frames)


def output_failure(error: OSError) -> IOFailure:
    """Return what to raise when stdout takes no more bytes; a closed pipe stays what it is."""
    return IOFailure(
        "cannot write the results to standard output", error, "free space there, or send the output elsewhere"
    )


def _status(end: SystemExit | click.exceptions.Exit) -> int:
    if isinstance(end, click.exceptions.Exit):
        return end.exit_code
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    complain(str(end.code))
    return IOFailure.exit_code


def _flush() -> None:
    """Write what stdout still holds, now, where a failure can be reported; the interpreter would print a traceback."""
    if sys.stdout is None or sys.stdout.closed:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        _abandon_stdout()
        if error.errno == errno.EPIPE:
            return
        raise output_failure(error) from error


def _abandon_stdout() -> None:
    """Let what is left in stdout's buffers go nowhere, or the flush at exit fails once more and says so."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
