"""The commonest walks through stores of both families, screen by screen, as texts that are kept beside this file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread

import pytest

from commands._browse import reading
from fixtures.damaged import damaged_store
from rmqctl.opening import open_store
from tests.browse.walking import Walk, walk

SCREENS = Path(__file__).parent / "screens"
Golden = Callable[[str], Path]


class Book:
    """Screens of one walk: compared with those that are kept, or kept."""

    def __init__(self, name: str, update: bool) -> None:
        self._file, self._update, self._pages = SCREENS / f"{name}.txt", update, list[str]()

    def add(self, taken: Walk, title: str) -> None:
        self._pages.append(f"##### {title}\n{taken.screen}")

    def close(self) -> None:
        text = "\n".join(self._pages)
        if self._update:
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_text(text, "utf-8")
        assert text.splitlines() == self._file.read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    "size", [(80, 24), pytest.param((200, 50), marks=pytest.mark.slow)], ids=lambda size: f"{size[0]}x{size[1]}"
)
@pytest.mark.parametrize("name", ["5.3.3-crash", "4.3.1-crash"])
def test_the_ten_commonest_walks(
    name: str, size: tuple[int, int], golden: Golden, monkeypatch: pytest.MonkeyPatch, update_golden: bool
) -> None:
    monkeypatch.chdir(golden(name).parent)
    book = Book(f"{name}-{size[0]}x{size[1]}", update_golden)
    topic, queue, key = ("LabLog", "0", "Aa1") if name.startswith("5") else ("txn-a", "0", "k19")

    async def steps(w: Walk) -> None:
        book.add(w, "1 the first look")
        await w.choose("findings")
        book.add(w, "2 findings")
        await w.press("enter")
        book.add(w, "2 a finding")
        await w.choose(topic, queue)
        await w.press("pagedown")
        book.add(w, "3 messages of a queue")
        await w.find("@14")
        await w.press("enter")
        book.add(w, "4 a message")
        await w.press("b")
        book.add(w, "5 its bytes")
        await w.press("escape", "t")
        book.add(w, "6 its life")
        await w.press("escape", "escape")
        await w.find("@100")
        assert w.app._path[-1].title == f"{topic}/{queue}"
        book.add(w, "7 an offset")
        await w.find("2026-11-21 01:47:31" if name.startswith("5") else "2026-11-21 01:20:00")
        book.add(w, "7 a time")
        await w.find(key)
        book.add(w, "7 a key")
        await w.press("enter")
        book.add(w, "7 the message with the key")
        await w.choose("groups")
        await w.press("f")
        await w.type("lag" if name.startswith("5") else "classic")
        book.add(w, "8 groups, filtered")
        await w.press("enter")
        book.add(w, "8 where a group reads")
        await w.choose("segments")
        await w.press("down", "enter")
        book.add(w, "9 bytes of a segment")
        await w.choose("recovery")
        book.add(w, "10 what a start does")
        await w.choose("plan")
        book.add(w, "10 the plan of a repair")
        await w.press("y")
        book.add(w, "10 what can be copied")
        await w.press("c")
        assert w.app.clipboard == f"rmqctl repair {name}"

    walk(name, steps, size)
    book.close()


def test_a_finding_leads_to_its_byte_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged_store(tmp_path / "store", "body-flip")
    monkeypatch.chdir(tmp_path)

    async def steps(w: Walk) -> None:
        await w.choose("findings")
        assert "log.body-crc" in w.screen and w.state.startswith("stored 1360784195")
        await w.press("b")
        assert "body: " in w.screen and 'topic: "Topic2"' in w.screen
        assert w.command == "rmqctl dump store/commitlog/00000000000000065536 -o hex --bytes 24544-24800"
        await w.press("up", "pageup", "pageup", "pageup")
        assert "bytes 20," in w.state, "what lies before it was read, too"
        await w.press("escape")
        assert "log.body-crc" in w.screen and w.command == "rmqctl verify store"

    walk("store", steps)


def test_how_much_was_read_is_said_while_a_text_is_made(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_EVERY_SECONDS", 0)
    root = str(golden("5.3.3-crash"))
    ours, theirs = Pipe()
    Thread(target=reading.serve, args=(theirs,), daemon=True).start()
    ours.send((0, partial(open_store, root), partial(reading.text, partial(reading.doctor, "store"), 80)))
    said = []
    while not said or said[-1][0] != "end":
        said.append(ours.recv())
    ours.close()
    words = [word for word, _ in said]
    assert words[-2:] == ["here", "end"]
    read = [value for word, value in said if word == "far"]
    assert 0 < read[0] <= read[-1]
    assert read == sorted(read)


def test_a_view_says_how_much_was_read(golden: Golden) -> None:
    async def steps(w: Walk) -> None:
        view = w.app._path[-1]
        view.state = ""
        view._read_so_far(3 << 19)
        await w.pilot.pause()
        assert w.state == "reading ... 1.5 MiB"

    walk(golden("5.3.3-crash"), steps)
