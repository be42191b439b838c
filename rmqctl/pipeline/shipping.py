"""The code of this project as one zip that executors can import."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rmqctl import __version__
from rmqctl.pipeline.own_files import keep, own_directory

PACKAGES = ("formats", "rmqctl", "commands", "construct")
"""What the zip holds: this project, and the one package it needs everywhere that is nothing but Python."""
_DATE = (1980, 1, 1, 0, 0, 0)


@cache
def code_zip(directory: Path | None = None) -> Path:
    """The packages that are installed here as a zip. One that is there is taken only if it is the same, byte for byte.

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
    """Write what `spark-submit` needs into a directory, which is made.

    Raises:
        OSError: it cannot be written.
    """
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
