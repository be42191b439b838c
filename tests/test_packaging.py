"""What gets installed: three typed packages, one console script, pinned dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout."""
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (file,) = target.glob("*.whl")
    return zipfile.ZipFile(file)


def test_wheel_holds_every_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    expected = {
        str(file.relative_to(ROOT))
        for package in ("formats", "rmqctl", "commands")
        for file in (ROOT / package).rglob("*")
        if file.suffix in {".py", ".typed"} and "__pycache__" not in file.parts
    }
    plugins = {"pyspark_kafkalog.py", "pyspark_rocketmq.py"}  # lie at the top, where Spark looks for them
    assert packed == expected - {f"rmqctl/pipeline/{plugin}" for plugin in plugins} | plugins
    assert {"formats/py.typed", "rmqctl/py.typed", "commands/py.typed"} <= packed


def test_wheel_metadata(wheel: zipfile.ZipFile) -> None:
    from rmqctl import __version__

    (entry,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "rmqctl = rmqctl.__main__:main" in wheel.read(entry).decode()
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    lines = wheel.read(metadata).decode().splitlines()
    assert f"Version: {__version__}" in lines
    assert "License-Expression: Apache-2.0" in lines
    assert "Requires-Python: >=3.11" in lines
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_every_dependency_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.+!]+", line) for line in lines)
    assert lines == sorted(lines)
    pinned = {line.partition("==")[0] for line in lines}
    wanted = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]
    names = {normal(re.split(r"[\[<>=~! ]", requirement)[0]) for requirement in wanted}
    assert names - {"rmqctl"} <= pinned
    assert {"pip", "hatchling"} <= pinned


def test_version_is_at_the_top_of_the_changelog() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
