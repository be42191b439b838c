"""Forty stores of two families on the disks of two workers, executors killed in the middle: what single runs say."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from tests.pipeline import fleets
from tests.pipeline.clusters import Cluster, cluster
from tests.pipeline.test_cluster import _SETTINGS, start

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOSTS = {"a": "127.0.0.2", "b": "127.0.0.3"}
STORES = ("5.5.0-crash", "4.9.8-clean", "5.3.3-clean", "4.3.1-clean", "3.9.2-crash")
EACH = 20
DAMAGED = {("a", 3), ("a", 4), ("a", 8), ("a", 10), ("a", 16), ("b", 0), ("b", 6), ("b", 9), ("b", 13), ("b", 17)}
UNREADABLE = ("b", 5)


def _mounts() -> bool:
    """Whether a process may have mounts of its own, which is what makes a disk its own here."""
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories a and b with stores of the same names, and an empty one where each worker sees its own."""
    root = tmp_path_factory.mktemp("disks")
    (root / "disk").mkdir()
    kinds = {name: golden.pristine(name) for name in STORES}
    for letter in HOSTS:
        for number in range(EACH):
            place = root / letter / f"s{number:02d}"
            golden.copy_tree(kinds[STORES[(number + (letter == "b")) % len(STORES)]], place)
            if (letter, number) in DAMAGED:
                fleets.damage(place, number, 5)
    shutil.rmtree(root / UNREADABLE[0] / f"s{UNREADABLE[1]:02d}")
    return root


def inventory(disks: Path, file: Path, *, seen: str | None, own: bool) -> Path:
    """Write an inventory of all stores.

    Args:
        seen: the directory that all paths go through; None: each that of its disk.
    """
    rows = []
    for letter, host in HOSTS.items():
        for number in range(EACH):
            path = disks / (seen or letter) / f"s{number:02d}"
            row = f'[[store]]\npath = "{path}"\nname = "{letter}{number}"\nhost = "{host}"\n'
            rows.append(row + ("own_disk = true\n" if own else ""))
    file.write_text("\n".join(rows), "utf-8")
    return file


@pytest.fixture(scope="module")
def alone(disks: Path) -> str:
    """What runs without Spark say of all stores."""
    return run("verify", f"@{inventory(disks, disks / 'alone.toml', seen=None, own=False)}")


def run(*arguments: object) -> str:
    process = start(*arguments, "-o", "json")
    out, error = process.communicate(timeout=900)
    assert process.returncode == 1, error.decode()
    return fleets.timeless(out.decode())


@pytest.fixture
def machines(disks: Path, tmp_path: Path) -> Iterator[Cluster]:
    """A worker a disk, which sees it, and no other, in the directory ``disk``."""
    if not _mounts():
        pytest.skip("needs leave for mounts of its own (unshare -m), as root has it")
    with cluster(tmp_path, workers=0) as made:
        for letter, host in HOSTS.items():
            bind = f'mount --bind "{disks / letter}" "{disks / "disk"}" && exec "$@"'
            made.workers.append(made.add_worker(host, ("unshare", "-m", "sh", "-c", bind, "sh")))
        yield made


def killed(machines: Cluster, process: subprocess.Popen[bytes], times: int) -> int:
    """Kill the executors of the workers in turn while a command runs; returns how many were killed at work."""
    done, until = 0, time.monotonic() + 600
    while done < times and process.poll() is None and time.monotonic() < until:
        if machines.kill_executor(machines.workers[done % len(machines.workers)]):
            done += 1
            time.sleep(4)
        time.sleep(0.5)
    return done


@pytest.mark.parametrize("own", [True, False])
def test_executors_are_killed_in_the_middle(
    disks: Path, machines: Cluster, alone: str, tmp_path: Path, own: bool
) -> None:
    """Where both workers see all disks the stores are divided, where each has its own they are looked at there."""
    file = inventory(disks, tmp_path / "fleet.toml", seen="disk" if own else None, own=own)
    where = ("--master", machines.url, *_SETTINGS, "--spark-conf", "spark.rmqctl.taskBytes=200k")
    process = start("verify", f"@{file}", "-o", "json", *where)
    count = killed(machines, process, 3)
    out, error = process.communicate(timeout=900)
    assert process.returncode == 1, error.decode()
    assert count == 3
    found = fleets.timeless(out.decode()).replace(f"{disks}/disk/", f"{disks}/b/")
    assert found == alone
    rows: list[dict[str, Any]] = json.loads(alone)["stores"]
    assert [row["store"] for row in rows if "error" in row] == [f"{UNREADABLE[0]}{UNREADABLE[1]}"]
    wrong = {row["store"] for row in rows if any(one["severity"] != "note" for one in row.get("findings", ()))}
    assert len(wrong) >= len(DAMAGED)


def test_a_disk_that_nobody_reaches_is_a_row_with_host_and_path(disks: Path, machines: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    rows = [("here", HOSTS["a"]), ("afar", "192.0.2.7")]
    text = (f'[[store]]\npath = "{disks}/disk/s00"\nname = "{n}"\nhost = "{h}"\nown_disk = true\n' for n, h in rows)
    file.write_text("\n".join(text), "utf-8")
    process = start("verify", f"@{file}", "-o", "json", "--master", machines.url, *_SETTINGS)
    out, error = process.communicate(timeout=600)
    assert process.returncode == 1, error.decode()
    here, afar = json.loads(out)["stores"]
    assert here["sound"]
    says = f"{disks}/disk/s00 lies on a disk of 192.0.2.7, where no executor works; executors work on {HOSTS['a']}, "
    assert says in afar["error"]
