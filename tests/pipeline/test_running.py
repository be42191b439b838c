"""Java is found or asked for, the code travels, and a master that is not there is told at once. Without Spark."""

from __future__ import annotations

import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.pipeline import settings
from rmqctl.pipeline.settings import MissingJava, find_java
from rmqctl.pipeline.shipping import code_zip, own_directory

_JAVA = """#!/bin/sh
for argument do
  case "$argument" in
    --add-modules=*) {module} ;;
    -version) echo 'openjdk version "{version}.0.1"' >&2 ;;
    *) echo "$argument" ;;
  esac
done
"""


def make_java(directory: Path, version: int, *, has_module: bool = True) -> Path:
    binary = directory / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(_JAVA.format(version=version, module=":" if has_module else "exit 1"))
    binary.chmod(0o755)
    return directory


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """No Java at all: none named, none on the path, no package with one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(settings, "find_spec", lambda _: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own_directory.cache_clear()
    yield monkeypatch
    own_directory.cache_clear()


def test_java_home_is_taken(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", 21)
    nowhere.setenv("JAVA_HOME", str(home))
    assert find_java() == settings.Java(home, 21, "JAVA_HOME")


def test_an_old_java_home_gives_way_to_the_path(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere.setenv("JAVA_HOME", str(make_java(tmp_path / "old", 11)))
    home = make_java(tmp_path / "new", 17)
    nowhere.setattr("shutil.which", lambda _: str(home / "bin" / "java"))
    assert find_java() == settings.Java(home, 17, "PATH")


def test_a_java_without_the_module_gets_a_home_that_leaves_the_argument_out(
    nowhere: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere.setenv("JAVA_HOME", str(make_java(tmp_path / "trimmed", 21, has_module=False)))
    found = find_java()
    assert found.home.is_relative_to(tmp_path / "cache")
    command = [found.home / "bin" / "java", "a b", "--add-modules=jdk.incubator.vector", "-cp x"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "a b\n-cp x\n"
    assert find_java() == found


@pytest.mark.parametrize("version", [None, 8, 11])
def test_no_java_is_exit_14_with_the_line_to_type(
    nowhere: pytest.MonkeyPatch, tmp_path: Path, version: int | None, rmqctl: Any
) -> None:
    if version is not None:
        nowhere.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", version)))
    with pytest.raises(MissingJava, match=r"\[spark-java\]") as caught:
        find_java()
    assert caught.value.exit_code == 14
    assert version is None or f"is Java {version}" in str(caught.value)


def test_the_zip_holds_all_that_executors_need_of_us(tmp_path: Path) -> None:
    archive = code_zip(tmp_path)
    assert code_zip(tmp_path) == archive
    site = next(path for path in sys.path if path.endswith("site-packages"))
    program = (
        f"import sys; sys.path[:0] = [{str(archive)!r}]; sys.path.append({site!r})\n"
        "import rmqctl, rmqctl.rocketmq.tables.tables, rmqctl.kafka.tables.tables, rmqctl.pipeline.export_task, construct\n"
        "print(rmqctl.__file__, construct.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path, env={}
    )
    assert done.stdout.count(str(archive)) == 2


def test_code_of_somebody_else_is_not_shipped(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither is a file taken for its name, nor a directory that others may write to."""
    code_zip.cache_clear()
    (tmp_path / "cache" / "rmqctl" / "code").mkdir(0o777, parents=True)
    archive = code_zip()
    sound = archive.read_bytes()
    assert archive.parent == tmp_path / "cache" / "rmqctl" / "code"
    assert [path.stat().st_mode & 0o777 for path in (archive.parent, archive.parent.parent)] == [0o700, 0o700]
    for planted in (b"PK planted", None):
        archive.unlink()
        if planted is not None:
            archive.write_bytes(planted)
        else:
            (tmp_path / "planted").write_bytes(sound)
            archive.symlink_to(tmp_path / "planted")
        code_zip.cache_clear()
        assert code_zip() == archive
        assert archive.read_bytes() == sound
        assert not archive.is_symlink()
    code_zip.cache_clear()


def test_a_cache_that_is_not_the_users_own_is_passed_over(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "rmqctl").symlink_to(tmp_path / "elsewhere")
    found = own_directory("code")
    assert not found.is_relative_to(tmp_path / "cache")
    assert found.stat().st_mode & 0o777 == 0o700
    assert not any((tmp_path / "elsewhere").iterdir())
    nowhere.setattr("os.geteuid", lambda: 12345)
    own_directory.cache_clear()
    assert not own_directory("code").is_relative_to(tmp_path)


def test_submit_package(rmqctl: Any, tmp_path: Path) -> None:
    result = rmqctl("pipeline", "submit-package", tmp_path / "deploy")
    assert result.exit_code == 0
    assert result.stdout.startswith("spark-submit --master MASTER --py-files ")
    (archive,) = (tmp_path / "deploy").glob("*.zip")
    assert {"rmqctl/rocketmq/tables/tables.py", "commands/stats.py"} <= set(zipfile.ZipFile(archive).namelist())
    assert (tmp_path / "deploy" / "rmqctl_main.py").is_file()


def test_a_master_that_does_not_answer(rmqctl: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for where in (("--master", f"spark://127.0.0.1:{port}"), ("--remote", f"sc://127.0.0.1:{port}")):
        result = rmqctl("stats", golden.pristine("5.3.3-clean"), *where)
        assert (result.exit_code, result.stdout) == (10, "")
        assert f"no answer from {where[1]}" in result.stderr


def test_names_of_the_library_stay_functions() -> None:
    """A module of the same name would take the place of a function once it is imported."""
    from importlib import import_module
    from pkgutil import iter_modules

    from rmqctl import pipeline

    assert not {module.name for module in iter_modules(pipeline.__path__)} & set(pipeline.__all__)
    import_module("rmqctl.pipeline.cluster")
    assert callable(pipeline.session)
