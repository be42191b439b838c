"""Small stores for tests of the repair mechanism, and what there is to know of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rmqctl.repair.edits import Create, Cut, Extend, Overwrite, Plan, Quarantine, SetTimes, Step

LOG, QUEUE, INDEX = "commitlog/00000000000000000000", "consumequeue/T/0/00000000000000000000", "index/20260101000000000"
OLD = 1_700_000_000_123_456_789


def make_store(root: Path) -> Path:
    """A store of a few small files with old times."""
    put(root, LOG, bytes(range(256)) * 40)
    put(root, QUEUE, b"q" * 600)
    put(root, INDEX, b"i" * 100 + bytes(5000) + b"j" * 100)
    put(root, "consumequeue/T/1/00000000000000000000", b"")
    put(root, "consumequeue/U/0/00000000000000000000", b"u" * 20)
    put(root, "checkpoint", bytes(4096))
    put(root, "lock", b"lock")
    put(root, "abort", b"")
    for number, (directory, _, _) in enumerate(os.walk(root, topdown=False)):
        os.utime(directory, ns=(OLD, OLD + 1000 * number))
    return root


def put(root: Path, name: str, data: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(OLD, OLD + len(data)))


def state_of(root: Path, *, directories: bool = True) -> dict[str, object]:
    """Every file with hash, size and time, every directory with its time."""
    found: dict[str, object] = {}
    for directory, inner_directories, files in os.walk(root):
        inner = os.path.relpath(directory, root)
        found[inner + "/"] = os.stat(directory).st_mtime_ns if directories else None
        for name in [*files, *inner_directories]:
            path = Path(directory, name)
            if path.is_symlink():
                found[f"{inner}/{name}"] = os.readlink(path)
            if path.is_symlink() or path.is_dir():
                continue
            stat = path.stat()
            found[f"{inner}/{name}"] = (
                hashlib.sha256(path.read_bytes()).hexdigest()[:16],
                stat.st_size,
                stat.st_mtime_ns,
                stat.st_mode,
            )
    return found


def plan_of(root: Path, *edits: object, title: str = "a test") -> Plan:
    step = Step("test.step", LOG, "what is wrong", "why it is right", tuple(edits), 0)  # type: ignore[arg-type]
    return Plan(root, title, (step,))


def rich_plan(root: Path) -> Plan:
    """Every kind of edit, some of them over each other."""
    log = (root / LOG).read_bytes()
    return plan_of(
        root,
        Overwrite(LOG, 100, log[100:110], b"0123456789"),
        Overwrite(LOG, 105, b"56789" + log[110:115], b"abcdefghij"),
        Overwrite(LOG, 9000, log[9000:9500], b"x" * 500),
        Cut(LOG, 10240, 9200),
        Extend(LOG, 9200, 10240),
        Overwrite(LOG, 10000, bytes(4), b"tail"),
        Cut(QUEUE, 600, 0),
        Extend(QUEUE, 0, 800),
        Quarantine(INDEX),
        Create(INDEX, b"new index" * 20, size=6000),
        Overwrite(INDEX, 0, b"new", b"NEW"),
        Create("index/20270101000000000", b"second", size=50),
        Create("consumequeue/V/7/00000000000000000000", b"v" * 20, size=600),
        SetTimes("consumequeue/V/7/00000000000000000000", OLD - 5),
        Quarantine("consumequeue/U"),
        Overwrite("checkpoint", 8, bytes(8), b"\1" * 8),
        SetTimes("consumequeue/T/1/00000000000000000000", OLD + 77),
        Quarantine("abort"),
    )
