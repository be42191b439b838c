"""No bytes in any file of a log directory make a verb fail otherwise than with a sentence."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.errors import RmqctlError
from rmqctl.filters import Filters
from rmqctl.opening import open_store

NAMES = ("4.3.1-clean", "3.9.2-clean", "2.8.2-crash")


def _damage(root: Path, rnd: random.Random) -> None:
    files = sorted(f for f in root.rglob("*") if f.is_file() and f.stat().st_size)
    telling = [f for f in files if f.parent == root or f.parent.name.startswith("__")]
    for _ in range(rnd.choice([1, 3, 10, 40])):
        file = rnd.choice(telling if rnd.random() < 0.6 else files)
        os.chmod(file, 0o644)
        data = bytearray(file.read_bytes())
        kind, at = rnd.random(), rnd.randrange(len(data) + 1)
        if kind < 0.5:
            for _ in range(rnd.choice([1, 1, 4, 30])):
                data[at : at + 1] = rnd.randbytes(1)
                at = rnd.randrange(len(data) + 1)
        elif kind < 0.7:
            data = data[:at]
        elif kind < 0.85:
            data[at : at + rnd.randrange(2000)] = bytes(rnd.randrange(2000))
        elif kind < 0.93:
            data = bytearray(rnd.randbytes(rnd.randrange(300)))
        else:
            data = bytearray(rnd.choice(files).read_bytes())
        file.write_bytes(data)


def _questions(store: Any, topic: str, at: int) -> list[Callable[[], Any]]:
    return [
        lambda: store.info().document(),
        lambda: list(store.info(explain=True)),
        lambda: list(store.topics()),
        lambda: list(store.topics(by_topic=True)),
        lambda: list(store.lag()),
        lambda: list(store.producers()),
        lambda: list(store.transactions()),
        lambda: list(store.metadata()),
        lambda: store.metadata(at=at).document(),
        lambda: list(store.query_offset(topic, 0, at, Filters(limit=5), read_committed=True, explain=True)),
        lambda: list(store.query_time(topic, None, 1700000010000, explain=True)),
        lambda: list(store.query_time(topic, None, "max-timestamp")),
        lambda: list(store.query_key(topic, "k1", explain=True)),
    ]


def _check(seed: int, tmp_path: Path) -> None:
    rnd = random.Random(seed)
    root = golden.unpack(rnd.choice(NAMES), tmp_path)
    _damage(root, rnd)
    store: Any = open_store(str(root))
    for ask in _questions(store, rnd.choice(store.replicas.topics), rnd.randrange(500)):
        with suppress(RmqctlError):
            ask()


@pytest.mark.parametrize("seed", range(8))
def test_damaged_anywhere(seed: int, tmp_path: Path) -> None:
    _check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_damaged_anywhere_many_times(seed: int, tmp_path: Path) -> None:
    _check(seed, tmp_path)
