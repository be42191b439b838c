"""Stores in which files of all kinds are damaged, gone, or something else: whatever is asked of them ends with an answer.

No traceback, no file of the store written, no more than 500 MB, and an end in time. What is damaged follows the structure: sizes and fields of
records, names, lengths, and links, pipes, sockets, directories and sparse giants in the place of files.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from tests.conftest import Rmqctl

LONGEST = 300
"""Seconds after which a command counts as hanging."""
CODES = {0, 1, 2, 10, 11, 12, 13, 14}
"""Exit codes of the contract, but for that of a bug."""
GIANT = 3 << 30
MOST = 500_000
"""KiB that a command may take beside what the tests themselves hold."""
READING = {
    "rocketmq": (
        "doctor @", "info @", "info @ --segments", "topics @", "lag @", "verify @ -o jsonl", "verify @ --level quick",
        "recover @ -o json", "recover @ --compare", "repair @", "rebuild @ --check", "dump @ -o jsonl -n 3000", "dump @ --damaged",
        "query-key @ LabOrders k1", "query-offset @ LabOrders 0 0", "query-time @ LabOrders 0 2026-11-21T01:40:00Z",
        "trace @ LabOrders/0@3", "offsets @", "diff @ ~", "elect @ ~",
    ),
    "kafka": (
        "doctor @", "info @", "info @ --segments", "topics @", "lag @", "verify @ -o jsonl", "verify @ --level quick",
        "recover @ -o json", "repair @", "rebuild @ --check", "dump @ --records -o jsonl -n 3000", "dump @ --damaged", "producers @",
        "transactions @", "metadata @", "query-offset @ plain-none 0 0",
        "query-time @ plain-none 0 2026-11-21T01:40:00Z", "trace @ plain-none/0@3", "offsets @", "diff @ ~", "elect @ ~",
    ),
}  # fmt: skip
STORES = {"rocketmq": ("5.1.4-crash", "4.9.8-clean", "5.5.0-clean"), "kafka": ("4.3.1-clean", "3.9.2-crash")}
NUMBERS = (0, 1, -1, 0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000, 40, 1 << 24, 0xDAA320A7)

Damage = Callable[[Path, random.Random], None]


def _field(path: Path, rng: random.Random) -> None:
    """A number at a place where numbers lie: the begins of files, multiples of 4, places of the last data."""
    data = bytearray(path.read_bytes()[: 1 << 20])
    if len(data) < 8:
        return
    at = rng.choice((rng.randrange(min(len(data), 128)), rng.randrange(len(data)))) // 4 * 4
    width = rng.choice((1, 2, 4, 8))
    mask = (1 << 8 * width) - 1
    value = (rng.choice(NUMBERS) & mask).to_bytes(width, "big")
    with path.open("r+b") as file:
        file.seek(min(at, len(data) - width))
        file.write(value)


def _flip(path: Path, rng: random.Random) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        for _ in range(rng.choice((1, 1, 8, 200))):
            file.seek(rng.randrange(max(size, 1)))
            file.write(rng.randbytes(rng.choice((1, 1, 16))))


def _part(path: Path, rng: random.Random) -> None:
    """A part of the file over another, or zeros."""
    size = path.stat().st_size
    if size > 64:
        with path.open("r+b") as file:
            file.seek(rng.randrange(size))
            data = file.read(rng.choice((20, 61, 512, 4096)))
            file.seek(rng.randrange(size))
            file.write(rng.choice((data, bytes(len(data)))))


def _length(path: Path, rng: random.Random) -> None:
    size = path.stat().st_size
    os.truncate(path, rng.choice((0, 1, size // 2, max(size - 1, 0), size + 1, size + 4096, rng.randrange(size + 1))))


def _giant(path: Path, rng: random.Random) -> None:
    del rng
    os.truncate(path, GIANT)


def _name(path: Path, rng: random.Random) -> None:
    name = path.name
    digits = f"{rng.choice((1, 47, 1 << 40, 10**19, (1 << 63) - 1)):020d}"
    new = rng.choice(
        (name + ".bak", digits + path.suffix, "-1", name[:-1] or "x", name + "\x1b]0;x\x07", "\udcff", "０" * 20)
    )
    if not (path.parent / new).exists():
        path.rename(path.with_name(new))


def _gone(path: Path, rng: random.Random) -> None:
    del rng
    path.unlink()


def _other(path: Path, rng: random.Random) -> None:
    """The bytes of another file of the store."""
    root = next(parent for parent in path.parents if (parent / ".fuzzed").exists())
    files = [file for file in sorted(root.rglob("*")) if file.is_file() and file.stat().st_size < 1 << 20]
    path.write_bytes(rng.choice(files).read_bytes())


def _text(path: Path, rng: random.Random) -> None:
    path.write_bytes(
        rng.choice((b"{", b"null", b"[]", b'{"a":' * 5000, b"\xff\xfe", b"0\n1\nx 1 1\n", b'{"offsetTable":[1]}'))
    )


def _thing(path: Path, rng: random.Random) -> None:
    """Something else in the place of a file."""
    path.unlink()
    match rng.choice(("pipe", "socket", "directory", "circle", "nowhere", "up", "null")):
        case "pipe":
            os.mkfifo(path)
        case "socket":
            here = os.open(path.parent, os.O_RDONLY)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{here}/{path.name}")
            os.close(here)
        case "directory":
            path.mkdir()
        case "circle":
            path.symlink_to(path.name)
        case "nowhere":
            path.symlink_to("/nonexistent/file")
        case "up":
            path.symlink_to("..")
        case _:
            path.symlink_to("/dev/null")


def _directory(path: Path, rng: random.Random) -> None:
    """The directory of the file is a file, a pipe, a circle, or away; the root of the store stays."""
    directory = path.parent
    if (directory / ".fuzzed").exists():
        return
    shutil.rmtree(directory)
    match rng.choice(("file", "pipe", "circle", "away", "empty")):
        case "file":
            directory.write_bytes(b"x" * 30)
        case "pipe":
            os.mkfifo(directory)
        case "circle":
            directory.symlink_to(directory.name)
        case "empty":
            directory.mkdir()


KINDS: tuple[Damage, ...] = (
    _field, _field, _field, _flip, _part, _length, _giant, _name, _gone, _other, _text, _thing, _thing, _directory
)  # fmt: skip


def fuzz(root: Path, rng: random.Random) -> None:
    """Damage one to four files, each chosen by its directory first, as most files of a store are of one kind."""
    (root / ".fuzzed").touch()
    for _ in range(rng.choice((1, 1, 2, 4))):
        files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
        kinds = sorted({(path.relative_to(root).parts[0], path.suffix) for path in files if path.name != ".fuzzed"})
        if kinds:
            top, suffix = rng.choice(kinds)
            path = rng.choice([p for p in files if p.relative_to(root).parts[0] == top and p.suffix == suffix])
            rng.choice(KINDS)(path, rng)
    (root / ".fuzzed").unlink(missing_ok=True)


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


def hold(family: str, seed: int, commands: int, room: Path, rmqctl: Rmqctl) -> None:
    """Damage a store by a seed, and ask for some of the answers."""
    rng = random.Random(f"{family} {seed}")
    name = rng.choice(STORES[family])
    root, sound = golden.unpack(name, room), golden.pristine(name)
    fuzz(root, rng)
    before = state(root)
    for words in rng.sample(READING[family], commands):
        line = [str(root) if word == "@" else str(sound) if word == "~" else word for word in words.split()]
        forget_the_most()
        held = kibibytes("VmRSS")
        with watched(f"{name} seed {seed}: {words}"):
            done = rmqctl(*line)
        assert kibibytes("VmHWM") - held < MOST, (seed, words)
        assert done.exit_code in CODES, (seed, words, done.exception, done.output[-2000:])
        assert "Traceback" not in done.output, (seed, words, done.output[-2000:])
        assert state(root) == before, (seed, words)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", ["rocketmq", "kafka"])
def test_a_damaged_store_gets_answers(family: str, seed: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    hold(family, seed, 4, tmp_path, rmqctl)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
@pytest.mark.parametrize("family", ["rocketmq", "kafka"])
def test_many_damaged_stores_get_answers(family: str, seed: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    hold(family, seed, len(READING[family]), tmp_path, rmqctl)
