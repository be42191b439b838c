"""Walks through large stores while they are read; `pytest -s` shows what each key costs the thread that draws."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

import pytest

from fixtures.bulk import Bulk, make
from tests.browse.walking import Walk, walk

pytestmark = pytest.mark.slow
KEYS = 30 + 5 + 2 + 20 + 2 + 40 + 5 + 50
"""That are measured, beside those of the topic's name."""


class Measured:
    """Keys pressed while the store is being read, and the work that each made for the thread that draws."""

    def __init__(self, w: Walk) -> None:
        self._walk = w
        self.took: list[tuple[float, str]] = []

    async def press(self, *keys: str) -> None:
        for key in keys:
            begin = time.thread_time()
            await self._walk.pilot.press(key)
            await asyncio.sleep(0)
            self.took.append((time.thread_time() - begin, key))


def _walked(root: Path, topic: str) -> list[tuple[float, str]]:
    took: list[tuple[float, str]] = []

    async def steps(w: Walk) -> None:
        measured = Measured(w)
        await w.choose("overview")
        await w.pilot.press("r")  # reads all of it while keys are pressed
        await measured.press(*["down", "up", "tab"] * 10)
        await w.settle(300)
        await w.choose("findings")
        await w.press("tab")
        await measured.press("f", *topic, "enter", "down", "up", "escape")
        await w.settle(300)
        await w.choose(topic, "0")
        await measured.press("end", "home", *["pagedown"] * 20, "enter", "b", *["pagedown"] * 20, *["pageup"] * 20)
        await measured.press("escape", "escape", "f", *"order", "escape", "escape", *["down"] * 50)
        await w.settle(300)
        took.extend(measured.took)

    walk(root, steps)
    worst, key = max(took)
    print(f"a key: {median(seconds for seconds, _ in took) * 1000:.0f} ms, the worst, {key}: {worst * 1000:.0f} ms")
    return took


def test_a_store_of_1_gib_with_20_topics(tmp_path: Path) -> None:
    make(tmp_path / "store", Bulk())
    assert len(_walked(tmp_path / "store", "Topic007")) == KEYS + len("Topic007") + len("order")


def test_a_store_of_5000_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fixtures.bulk._topic", lambda number: b"Topic%04d" % number)
    make(tmp_path / "store", Bulk(1 << 26, 1 << 26, topics=5000, queues=1, queue_file_units=100))
    assert len(_walked(tmp_path / "store", "Topic0777")) == KEYS + len("Topic0777") + len("order")
