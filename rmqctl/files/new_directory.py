"""A directory for something new: empty, apart from what is only read, and marked until all of it is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.files.ownership import Ownership, make_directories

MARK = "UNFINISHED"
"""A file in a directory whose making was broken off; brokers pay no heed to it."""
_TEXT = "rmqctl was ended before it had written all of this directory. Delete it and run the command again.\n"


def check_new_directory(into: Path, only_read: Iterable[str]) -> None:
    """Hold a directory to be written to what is there.

    Args:
        only_read: roots on this machine that it must not lie in.

    Raises:
        Refused: it lies in one of them, is no directory, or has something in it.
    """
    for root in only_read:
        if into.resolve().is_relative_to(Path(root).resolve()):
            raise Refused(f"{into} lies in {root}, which is only read; give a directory outside of it")
    refuse_unfinished(into)
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise Refused(f"{into} is there already and not empty; give a new or empty directory")


def refuse_unfinished(path: Path) -> None:
    """Hold commands that write off what a command that was broken off has left.

    Raises:
        Refused: it is unfinished.
    """
    if os.path.lexists(path / MARK):
        raise Refused(
            f"{path} was left unfinished by an earlier run; delete it and run that command again, "
            "or give a new directory"
        )


@contextmanager
def making(into: Path, owner: Ownership | None) -> Iterator[None]:
    """Make a directory and what the block puts into it, marked as unfinished until the block ends.

    Where it fails or is interrupted everything is removed; what a kill leaves keeps its mark.

    Args:
        into: not there yet, or empty.
        owner: to whom all of it is given; None: as the directory above.

    Raises:
        OSError: the system refuses.
    """
    is_new = not into.exists()
    make_directories(into)
    mark = into / MARK
    mark.write_text(_TEXT, encoding="utf-8")
    try:
        yield
        if owner is not None:
            owner.give_all(into)
    except BaseException:
        _clear(into, is_new=is_new)
        raise
    mark.unlink()


def _clear(into: Path, *, is_new: bool) -> None:
    """Remove what was made, the mark last."""
    with suppress(OSError):
        for path in into.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != MARK:
                path.unlink()
        (into / MARK).unlink(missing_ok=True)
        if is_new:
            into.rmdir()


__all__ = ["MARK", "check_new_directory", "making", "refuse_unfinished"]
