"""Where something new may be written: a directory with nothing in it, apart from what is only read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rmqctl.errors import Refused


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
        raise Refused(f"{into} is there already and not empty; give a new or empty directory")


__all__ = ["check_new_directory"]
