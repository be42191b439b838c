"""What stops the work, each kind with its exit code.

Damage in the data is never an error here: it is a finding (`rmqctl.findings`). Every message is a
sentence that says what was tried, on what, what was found, and what to type next.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, ClassVar


class RmqctlError(Exception):
    """Base of everything that the command line turns into one line on stderr.

    Attributes:
        exit_code: exit status of the process.
        meaning: the line of the documented table of exit codes.
    """

    exit_code: ClassVar[int] = 10
    meaning: ClassVar[str] = "unexpected I/O error"

    def __reduce__(self) -> tuple[Any, ...]:
        """Go from process to process as the sentence it is, whatever its class is made from."""
        return _received, (type(self), self.args), self.__dict__


def _received(kind: type[RmqctlError], words: tuple[object, ...]) -> RmqctlError:
    return kind.__new__(kind, *words)


class IOFailure(RmqctlError):
    """The system refused to read or write something that should have worked."""

    def __init__(self, what: str, error: OSError | str, next_step: str = "") -> None:
        """
        Args:
            what: what was tried, on what: ``cannot read store/checkpoint``.
            error: the system's answer.
            next_step: what to do; default: what usually helps for the error number.
        """
        reason = error if isinstance(error, str) else error.strerror or type(error).__name__
        advice = next_step or _advice(error)
        super().__init__(f"{what}: {reason}" + (f"; {advice}" if advice else ""))

    @classmethod
    def of(cls, error: OSError) -> IOFailure:
        """Return an `OSError` that nobody expected, with the path it carries."""
        path = error.filename
        if path is None:
            return cls("reading or writing failed", error)
        return cls(f"cannot use {os.fsdecode(path) if isinstance(path, (str, bytes)) else path}", error)


class NotAStore(RmqctlError):
    """The path holds neither a message store nor a file of one."""

    exit_code = 11
    meaning = "not a store"

    def __init__(self, path: object, found: str, next_step: str = "", *, wanted: str = "message store") -> None:
        """
        Args:
            path: where was looked.
            found: what was there or missing: ``no commitlog/ in it``.
            wanted: what the command works on.
        """
        advice = (
            next_step
            or "give the directory that holds commitlog/, or a directory of Kafka's log.dirs, or one of their files"
        )
        super().__init__(f"{path} is not a {wanted}: {found}; {advice}")
        self.path = path


class StoreInUse(RmqctlError):
    """A broker holds the lock of a store that was to be written."""

    exit_code = 12
    meaning = "in use by a broker"

    def __init__(self, path: object, next_step: str = "") -> None:
        advice = next_step or "stop the broker and run the command again; reading works while it runs"
        super().__init__(f"{path} is in use: a running broker holds its lock; {advice}")
        self.path = path


class Refused(RmqctlError):
    """Going on would lose data, or the plan no longer fits what is on disk."""

    exit_code = 13
    meaning = "refused: it would lose data without --force, or the plan no longer fits"


class Unbalanced(Refused):
    """A new store does not have all records of what it was made from; it stays, marked as unfinished."""

    def __init__(self, into: object, problems: str) -> None:
        """
        Args:
            problems: what does not balance.
        """
        super().__init__(
            f"the books of {into} do not balance: {problems}; it is marked as unfinished, and brokers ignore the "
            "mark; keep what it was made from, and report this"
        )


class MissingExtra(RmqctlError):
    """An optional part of the installation, or Java, is missing."""

    exit_code = 14
    meaning = "an optional extra or Java is missing"

    def __init__(self, purpose: str, extra: str, missing: str = "") -> None:
        """
        Args:
            purpose: what was to be done: ``reading RocksDB queues``.
            extra: the extra to install: ``rocksdb``.
            missing: the package that could not be imported, where it is not obvious.
        """
        from rmqctl.installation import line_for_extra

        needs = f"the package {missing}" if missing else f"the extra {extra}"
        super().__init__(f"{purpose} needs {needs}; type: {line_for_extra(extra)}")
        self.extra = extra


class TooDamaged(RmqctlError):
    """The damage leaves this command nothing to work on."""

    exit_code = 15
    meaning = "damaged beyond this command"

    def __init__(self, path: object, found: str, next_step: str = "") -> None:
        from rmqctl.text import typed

        advice = next_step or f"type: {typed('verify', str(path))}"
        super().__init__(f"{path} is too damaged for this: {found}; {advice}")
        self.path = path


class WrongUsage(RmqctlError):
    """What was asked contradicts itself, or has no meaning for what lies there."""

    exit_code = 2
    meaning = "wrong usage"

    def __init__(self, option: str, reason: str) -> None:
        """
        Args:
            option: the option or argument as it is typed: ``--follow``, ``PATH``.
            reason: a sentence that goes on after it.
        """
        super().__init__(f"{option} {reason}")
        self.option, self.reason = option, reason


INTERRUPTED = 130
"""Exit status after Ctrl-C."""
TERMINATED = 143
"""Exit status after SIGTERM."""

FAMILY: tuple[type[RmqctlError], ...] = (IOFailure, NotAStore, StoreInUse, Refused, MissingExtra, TooDamaged)
"""Every kind, by exit code."""


_ADVICE = {
    errno.ELOOP: "a link there leads back to itself; remove it, or give the real path",
    errno.EISDIR: "give a file, not a directory",
    errno.ENOTDIR: "give a directory, not a file",
    errno.EIO: "the disk fails there; copy what can still be read to another disk and work on the copy",
    errno.ENOSPC: "free space on that disk and run the command again",
    errno.EDQUOT: "free space within the quota and run the command again",
    errno.ENAMETOOLONG: "the path is longer than this system allows",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def _advice(error: OSError | str) -> str:
    if isinstance(error, FileNotFoundError):
        if isinstance(error.filename, str) and Path(error.filename).is_symlink():
            return "it is a link that leads nowhere; mount what it leads to, or put the file in its place"
        return "check the spelling of the path"
    if isinstance(error, PermissionError):
        return "run as the user that owns the files, or let this user read them"
    return _ADVICE.get(error.errno or 0, "") if isinstance(error, OSError) else ""
