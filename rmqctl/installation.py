"""How this rmqctl was installed, and the line that adds an extra or a package to just that installation."""

from __future__ import annotations

import re
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from zipimport import zipimporter

from rmqctl.text import shell_line

NAME = "rmqctl"
_FOR_DEVELOPERS = re.compile(r"extra == ['\"](test|dev|docs)['\"]")


def versions(own: str) -> dict[str, Any]:
    """Return what runs here, as a report of a fault needs it.

    The keys are rmqctl, python, implementation, platform and libraries; under libraries stands each distribution that
    rmqctl or one of its extras asks for, by name, with its version, or None where it is not installed.

    Args:
        own: version of rmqctl.
    """
    import platform

    wanted = [re.split(r"[^A-Za-z0-9._-]", line)[0] for line in _requirements() if not _FOR_DEVELOPERS.search(line)]
    return {
        NAME: own,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "libraries": {name: _version_of(name) for name in sorted({*wanted} - {NAME})},
    }


def _requirements() -> list[str]:
    try:
        return Distribution.from_name(NAME).requires or []
    except PackageNotFoundError:
        return []


def _version_of(name: str) -> str | None:
    try:
        return Distribution.from_name(name).version
    except PackageNotFoundError:
        return None


def line_for_extra(extra: str) -> str:
    """Return what to type to have an extra: ``pip install 'rmqctl[spark]'``, or the same for the checkout or the
    archive that it was installed from, by the tool and for the Python that it was installed with.
    """
    if _is_one_file():
        return _in_environment(f"{NAME}[{extra}]")
    origin, options = _origin()
    what = shell_line(f"{origin}[{extra}]")
    return f"pipx install --force {what}" if _is_pipx() else f"{_pip()} install {options}{what}"


def line_for_package(package: str) -> str:
    """Return what to type to have a package beside rmqctl."""
    if _is_one_file():
        return _in_environment(f"{NAME} {package}")
    return f"pipx inject {NAME} {package}" if _is_pipx() else f"{_pip()} install {package}"


def _origin() -> tuple[str, str]:
    """Return what pip is to be given for this rmqctl, and the options for it (PEP 610)."""
    import json

    try:
        noted = json.loads(Distribution.from_name(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return NAME, ""
    url = urlsplit(str(noted.get("url", "")))
    if url.scheme != "file":
        return NAME, ""
    return unquote(url.path), "--editable " if noted.get("dir_info", {}).get("editable") else ""


def _is_one_file() -> bool:
    """Whether this is the one file that `make dist` makes: nothing can be added to it."""
    return isinstance(getattr(sys.modules["__main__"], "__loader__", None), zipimporter)


def _in_environment(what: str) -> str:
    return f"python3 -m venv ~/{NAME} && ~/{NAME}/bin/pip install {shell_line(*what.split(' '))}"


def _is_pipx() -> bool:
    return (Path(sys.prefix) / "pipx_metadata.json").is_file()


def _pip() -> str:
    """Return the pip of this Python; by the Python's path where the one that a shell finds is another's."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "pip"
    return shell_line(sys.executable, "-m", "pip")
