"""How this rmqctl was installed, and the line that adds an extra or a package to just that installation."""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "rmqctl"


def line_for_extra(extra: str) -> str:
    """Return what to type to have an extra: ``pip install 'rmqctl[spark]'``, or the same for the checkout or the
    archive that it was installed from, by the tool and for the Python that it was installed with.
    """
    origin, options = _origin()
    what = shlex.quote(f"{origin}[{extra}]")
    return f"pipx install --force {what}" if _is_pipx() else f"{_pip()} install {options}{what}"


def line_for_package(package: str) -> str:
    """Return what to type to have a package beside rmqctl."""
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


def _is_pipx() -> bool:
    return (Path(sys.prefix) / "pipx_metadata.json").is_file()


def _pip() -> str:
    """Return the pip of this Python; by the Python's path where the one that a shell finds is another's."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "pip"
    return f"{shlex.quote(sys.executable)} -m pip"
