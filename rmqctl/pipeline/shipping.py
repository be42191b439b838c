"""The code of this project as one zip that executors can import, and the directory that such files are kept in.

Files that are made once and run or read again later lie where only this user can change them.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import shutil
import stat
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rmqctl import __version__

_MINE = 0o700


@cache
def own_directory(name: str) -> Path:
    """Return a directory of this user's alone, below the user's cache; one for this process only where none can be had
    there.

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
    """Have a file with exactly this content; what lies there is compared, and replaced as a whole where it differs."""
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


# --- the code of this project as one zip that executors can import ----------------------------------


PACKAGES = ("formats", "rmqctl", "commands", "construct")
"""What the zip holds: this project, and the one package it needs everywhere that is nothing but Python."""
_DATE = (1980, 1, 1, 0, 0, 0)


@cache
def code_zip(directory: Path | None = None) -> Path:
    """Return the packages that are installed here as a zip. One that is there is taken only if it is the same, byte for
    byte.

    Args:
        directory: where to put it; default: a directory of the user's own.
    """
    made = _zipped({name: path.read_bytes() for name, path in sorted(_modules())})
    name = f"rmqctl-{__version__}-{hashlib.sha256(made).hexdigest()[:12]}.zip"
    return keep((directory or own_directory("code")) / name, made)


@dataclass(frozen=True, slots=True)
class SubmitPackage:
    """What `spark-submit` needs.

    Attributes:
        code: the packages as a zip.
        main: a program that is the command line of this project.
        line: how to start it.
    """

    code: Path
    main: Path
    line: str


_MAIN = """from commands import main

main()
"""


def submit_package(directory: Path) -> SubmitPackage:
    """Write what `spark-submit` needs into a directory, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    code, main = code_zip(directory), directory / "rmqctl_main.py"
    main.write_text(_MAIN, "utf-8")
    arguments = "export STORE OUT"
    line = f"spark-submit --master MASTER --py-files {code} {main} {arguments}"
    return SubmitPackage(code, main, line)


def _zipped(content: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _modules() -> list[tuple[str, Path]]:
    found = []
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        found += [(f"{package}/{file.relative_to(root).as_posix()}", file) for file in root.rglob("*.py")]
    return found
