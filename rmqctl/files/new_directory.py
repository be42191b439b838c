"""Where something new may be written: a directory with nothing in it, apart from what is only read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqctl.errors import Refused

MARK = "UNFINISHED"
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
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        if into.is_dir() and (into / MARK).exists():
            raise Refused(f"{into} was left unfinished by an earlier run; delete it, or give a new directory")
        raise Refused(f"{into} is there already and not empty; give a new or empty directory")


@contextmanager
def unfinished(directory: Path) -> Iterator[None]:
    """Mark a new directory as unfinished until the block has ended well, so that nobody takes half of it for all.

    Raises:
        OSError: the mark cannot be made or removed.
    """
    mark = directory / MARK
    mark.write_text(_TEXT, encoding="utf-8")
    yield
    mark.unlink()


__all__ = ["MARK", "check_new_directory", "unfinished"]
