"""Files that are made once and run or read again later: in a directory that only this user can change."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path

_MINE = 0o700


@cache
def own_directory(name: str) -> Path:
    """A directory of this user's alone, below the user's cache; one for this process only where none can be had there.

    What lies in it is run by Spark's workers, so nobody else may have put it there.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    home = (Path(base) if base else Path.home() / ".cache") / "rmqctl"
    if _is_own(home) and _is_own(home / name):
        return home / name
    made = Path(tempfile.mkdtemp(prefix="rmqctl-"))  # of mode 0700
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _is_own(directory: Path) -> bool:
    """Make a directory, and take from others what they may do there; False where it is not this user's."""
    try:
        directory.mkdir(_MINE, parents=True, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(found.st_mode) != _MINE:
            directory.chmod(_MINE)
        return os.access(directory, os.W_OK | os.X_OK)
    except OSError:
        return False


def keep(target: Path, content: bytes, mode: int = 0o644) -> Path:
    """Have a file with exactly this content; what lies there is compared, and replaced as a whole where it differs.

    Raises:
        OSError: it cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if _content(target) == content:
        return target
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}-", delete=False) as file:
        file.write(content)
    partial = Path(file.name)
    partial.chmod(mode)
    partial.replace(target)
    return target


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else None
    except OSError:
        return None
