"""Stores in which files of all kinds are damaged, gone, or something else: whatever is asked of them ends with an answer.

No traceback, no file of the store written, no more than 500 MB, and an end in time. `tests.mutations` has the damage.
``python -m tests.test_fuzzed_stores FAMILY SECONDS SEED`` goes on from a seed for so long and prints what is wrong; each
store is asked in a process of its own, which is killed when it takes too much or does not end.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from tests.conftest import Rmqctl, run
from tests.mutations import fuzz

LONGEST = 300
"""Seconds after which a command counts as hanging."""
CODES = {0, 1, 2, 10, 11, 12, 13, 14, 15}
"""Exit codes of the contract, but for that of a bug."""
MOST = 500_000
"""KiB that a command may take beside what the tests themselves hold."""
READING = {
    "rocketmq": (
        "doctor @", "info @", "info @ --segments", "info %", "topics @", "lag @", "verify @ -o jsonl", "verify @ --level quick",
        "verify %", "recover @ -o json", "recover @ --compare", "repair @", "rebuild @ --check", "dump @ -o jsonl -n 3000",
        "dump @ --damaged", "dump % -n 3000", "dump % -o hex -n 300", "dump @ --pending timer", "query-key @ LabOrders k1", "query-offset @ LabOrders 0 0",
        "query-time @ LabOrders 0 2026-11-21T01:40:00Z", "query-id @ AC110001002A18B4AAC2716E3B4D0000", "trace @ LabOrders/0@3",
        "offsets @", "offsets @ export", "offsets @ clamp", "diff @ ~", "elect @ ~", "preflight @ --to 5.5.0", "stats @ --engine local",
        "report @ OUT.json", "salvage @ OUT", "bundle @ OUT.tar.zst", "rebuild @ --into OUT", "convert @ OUT", "export @ OUT --engine local",
        "sql @ --engine local", "sql @ select*from(findings)", "topics @ --as-release 4.5.2",
    ),
    "kafka": (
        "doctor @", "info @", "info @ --segments", "info %", "topics @", "lag @", "verify @ -o jsonl", "verify @ --level quick",
        "verify %", "recover @ -o json", "repair @", "rebuild @ --check", "dump @ --records -o jsonl -n 3000", "dump @ --damaged", "dump % -n 3000",
        "dump % -o hex -n 300", "producers @", "transactions @", "metadata @", "query-offset @ plain-none 0 0", "query-key @ compacted k1",
        "query-time @ plain-none 0 2026-11-21T01:40:00Z", "trace @ plain-none/0@3", "offsets @", "offsets @ export", "diff @ ~", "elect @ ~",
        "preflight @ --to 4.4.0", "stats @ --engine local", "report @ OUT.json", "salvage @ OUT", "bundle @ OUT.tar.zst",
        "rebuild @ --into OUT", "convert @ OUT", "export @ OUT --engine local", "sql @ --engine local", "sql @ select*from(findings)",
        "lag @ --at 2026-11-21T01:40:00Z",
    ),
}  # fmt: skip
"""Commands with the store (@), the damaged file (%), the store before the damage (~) and a name for what is made (OUT)."""
STORES = {
    "rocketmq": (
        "5.1.4-crash",
        "4.9.8-clean",
        "5.5.0-clean",
        "3.2.6-crash",
        "5.5.0-rdbcq-crash",
        "5.5.0-propcrc-clean",
    ),
    "kafka": ("4.3.1-clean", "3.9.2-crash", "4.4.0-crash", "2.8.2-clean"),
}


def state(root: Path) -> dict[str, Any]:
    """All that a write would change of a store."""
    found = {}
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            status = os.lstat(os.path.join(directory, name))
            found[os.path.join(directory, name)] = status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino
    return found


@contextmanager
def watched(what: str) -> Iterator[None]:
    """Fail where the block takes too long."""

    def ring(number: int, frame: object) -> None:
        pytest.fail(f"{what}: no end after {LONGEST} s", pytrace=True)

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def kibibytes(name: str) -> int:
    """A figure of this process: VmRSS, what it holds; VmHWM, the most it has held; 0 where no system says so."""
    lines = Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def forget_the_most() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def problems(family: str, seed: int, commands: int, room: Path, rmqctl: Rmqctl) -> Iterator[str]:
    """Damage a store by a seed, ask for some of the answers, and say what is wrong with how they came."""
    rng = random.Random(f"{family} {seed}")
    name = rng.choice(STORES[family])
    root, sound = golden.unpack(name, room), golden.pristine(name)
    done = fuzz(root, rng)
    words_for = {"@": str(root), "~": str(sound), "%": str(root / done[-1].rpartition(": ")[0])}
    before = state(root)
    for number, words in enumerate(rng.sample(READING[family], commands)):
        what = f"{family} {seed}, {name} with {'; '.join(done)}: {words}"
        line = [words_for.get(word, word.replace("OUT", str(room / f"out-{number}"))) for word in words.split()]
        for problem in asked(line, rmqctl):
            yield f"{what}: {problem}"
        if state(root) != before:
            yield f"{what}: writes into the store"
            before = state(root)


def asked(line: list[str], rmqctl: Rmqctl) -> Iterator[str]:
    """Run a command, and say what is wrong with its end, the room or the time it took."""
    forget_the_most()
    held = kibibytes("VmRSS")
    try:
        with watched("it"):
            done = rmqctl(*line)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 (whatever it is, it is what is looked for)
        yield traceback.format_exc()
        return
    if (took := kibibytes("VmHWM") - held) > MOST:
        yield f"takes {took >> 10} MiB"
    if done.exit_code not in CODES:
        yield f"exits {done.exit_code}: {done.output[-2000:]}"
    if "Traceback" in done.output:
        yield done.output[-2000:]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", ["rocketmq", "kafka"])
def test_a_damaged_store_gets_answers(family: str, seed: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    assert list(problems(family, seed, 3, tmp_path, rmqctl)) == []


@pytest.mark.parametrize(
    ("name", "file", "words"),
    [
        ("4.9.8-clean", "lock", "dump %"),
        ("5.5.0-rdbcq-crash", "config/delayOffset.json", "salvage @ OUT"),
        ("4.3.1-clean", "meta.properties", "dump % -n 10"),
        ("4.3.1-clean", "txn-a-0/00000000000000000000.txnindex", "dump % -o jsonl -n 10"),
    ],
)
def test_a_giant_in_the_place_of_a_small_file(name: str, file: str, words: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    os.truncate(root / file, 3 << 30)
    words_for = {"@": str(root), "%": str(root / file), "OUT": str(tmp_path / "out")}
    assert list(asked([words_for.get(word, word) for word in words.split()], rmqctl)) == []


@pytest.mark.slow
@pytest.mark.interop  # for hours of a machine, not for each change
@pytest.mark.parametrize("seed", range(100, 160))
@pytest.mark.parametrize("family", ["rocketmq", "kafka"])
def test_many_damaged_stores_get_answers(family: str, seed: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    assert list(problems(family, seed, 8, tmp_path, rmqctl)) == []


def main(family: str, seconds: int, seed: int) -> None:
    """Damage store after store, each in a process that dies above 8 GiB of addresses."""
    for name in STORES[family]:
        golden.pristine(name)
    until = time.monotonic() + seconds
    commands = 0
    while time.monotonic() < until:
        if (child := os.fork()) == 0:
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
            with tempfile.TemporaryDirectory() as room:
                for problem in problems(family, seed, len(READING[family]), Path(room), run):
                    sys.stdout.write(problem + "\n\n")
                    sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.stdout.write(f"{family} {seed}: the process ended with {status}\n")
        seed, commands = seed + 1, commands + len(READING[family])
        sys.stdout.flush()
    sys.stdout.write(f"{commands} commands, up to seed {seed - 1}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
