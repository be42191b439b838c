"""The code of this project as one zip that executors can import."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rmqctl import __version__

PACKAGES = ("formats", "rmqctl", "commands", "construct")
"""What the zip holds: this project, and the one package it needs everywhere that is nothing but Python."""
_DATE = (1980, 1, 1, 0, 0, 0)


@cache
def code_zip(directory: Path | None = None) -> Path:
    """The packages that are installed here as a zip; made anew where its content has changed.

    Args:
        directory: where to put it; default: the system's directory for temporary files.
    """
    content = {name: path.read_bytes() for name, path in sorted(_modules())}
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" + data for name, data in content.items())).hexdigest()
    target = (directory or Path(tempfile.gettempdir())) / f"rmqctl-{__version__}-{digest[:12]}.zip"
    if not target.is_file():
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".zip", delete=False) as file:
            _write(file.name, content)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(target)
    return target


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


def _write(path: str, content: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)


def _modules() -> list[tuple[str, Path]]:
    found = []
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        found += [(f"{package}/{file.relative_to(root).as_posix()}", file) for file in root.rglob("*.py")]
    return found
