"""Walks through what is damaged, hostile, empty, growing or gone, by people in a hurry; and the ways it ends."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from commands._browse.columns import Columns
from fixtures.damaged import ALL_KINDS, damaged_store, sound_store
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from tests.browse.walking import Walk, walk
from tests.conftest import Rmqctl

VIEWS = ("overview", "findings", "groups", "transactions", "segments", "recovery", "plan", "files", "topics")


@pytest.mark.parametrize("kind", [kind if n == 0 else pytest.param(kind, marks=pytest.mark.slow) for n, kind in enumerate(ALL_KINDS)])  # fmt: skip
def test_each_view_of_a_damaged_store(kind: str, tmp_path: Path) -> None:
    damaged_store(tmp_path / "store", kind)

    async def steps(w: Walk) -> None:
        for name in VIEWS:
            await w.choose(name)
            assert len(w.lines) == 24 and not any(len(line) > 80 for line in w.lines)
        await w.choose("findings")
        for _ in range(3):
            await w.press("b", "pagedown", "pageup", "escape", "down")

    walk(tmp_path / "store", steps)


def test_hostile_names_keys_and_bodies(tmp_path: Path) -> None:
    names = ["消息" * 20, "😀" * 10, "T" * 127, "[red]x[/red]", "a\x1b]0;owned\x07b", "rtl\u202eb"]
    engine = StoreEngine.open(tmp_path / "store", StoreConfig.small())
    plain = {name: f"x{n}" + "y" * (len(name.encode()) - 2) for n, name in enumerate(names)}
    for name in plain.values():  # the engine makes no such names; bytes of the same length do
        properties = {"KEYS": "[bold]k\x1b[31m", "TAGS": "[link=x]t"}
        engine.put(Message(name, b"\x1b[2J\x1b]52;c;eA==\x07[red]\x00\xff", 0, properties))
        engine.put(Message(name, "\x1b[2J[/] 消息 😀 \u202e".encode(), 0, properties))
    engine.close()
    for file in (tmp_path / "store" / "commitlog").iterdir():
        data = file.read_bytes()
        for name, before in plain.items():
            data = data.replace(before.encode(), name.encode())
        file.write_bytes(data)
    for name, before in plain.items():
        if "/" not in name:
            (tmp_path / "store" / "consumequeue" / before).rename(tmp_path / "store" / "consumequeue" / name)

    async def steps(w: Walk) -> None:
        await w.choose("topics")
        for number in range(len(names)):
            await w.press("home")
            outline = w.app._outline
            assert outline is not None
            places = [n for n, (_, node) in enumerate(outline._lines) if node.topic == sorted(names)[number]]
            if not places:
                continue
            await w.choose(outline._lines[places[0]][1].label, "0")
            for keys in (("down", "enter"), ("b", "escape"), ("t", "escape"), ("y", "escape"), ("escape",)):
                await w.press(*keys)
                assert all(char.isprintable() or char == "\n" for char in w.screen)
            await w.press("f")
            await w.type("[/]")
            assert "1 message found" in w.screen

    walk(tmp_path / "store", steps)


def test_a_name_that_is_no_text_is_not_copied(tmp_path: Path) -> None:
    sound_store(tmp_path / "store", 6)
    (tmp_path / "store" / os.fsdecode(b"odd\xff")).write_bytes(b"x")

    async def steps(w: Walk) -> None:
        await w.choose("files", r"odd\udcff")
        await w.press("y", "p")
        assert "copy the command" in w.screen
        await w.press("y", "c")
        assert "copied: rmqctl dump" in w.screen

    walk(tmp_path / "store", steps, (160, 24))


def test_columns_show_no_control_characters() -> None:
    columns = Columns(["topic", "key"])
    assert columns.shown({"topic": "a\x1b[2J", "key": {"base64": "GwA="}}).cells == ("a\\x1b[2J", "base64:GwA=")


def test_a_queue_that_grows_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands._browse.app.FOLLOW_SECONDS", 0.1)
    sound_store(tmp_path / "store", 60)

    async def steps(w: Walk) -> None:
        await w.choose("Topic0", "0")
        await w.press("end")
        assert w.state == "offsets 0 to 9"
        config = StoreConfig.small()
        engine = StoreEngine.open(tmp_path / "store", config)
        for n in range(5):
            engine.put(Message("Topic0", b"new %d" % n, 0))
        engine.close()
        await w.pilot.press("F")
        end = time.monotonic() + 20
        while "offsets 0 to 14" not in w.screen and time.monotonic() < end:
            await w.pilot.pause(0.05)
        await w.pilot.press("F")
        await w.settle()
        assert "new 4" in w.screen or w.app._path[-1].cursor == 14

    walk(tmp_path / "store", steps, (120, 24))


def test_a_store_that_vanishes(tmp_path: Path) -> None:
    sound_store(tmp_path / "store", 60)

    async def steps(w: Walk) -> None:
        await w.choose("Topic0", "0")
        shutil.rmtree(tmp_path / "store")
        for keys in (("b",), ("escape", "enter"), ("r",), ("t",), ("escape", "escape", "r")):
            await w.press(*keys)
        for name in VIEWS:
            await w.choose(name)
            await w.press("r")
        assert w.app.is_running

    walk(tmp_path / "store", steps)


def test_keys_in_a_hurry_and_other_sizes(tmp_path: Path) -> None:
    sound_store(tmp_path / "store", 60)
    keys = [
        "enter",
        "down",
        "tab",
        "b",
        "escape",
        "t",
        "pagedown",
        "f",
        "x",
        "escape",
        "r",
        "end",
        "y",
        "escape",
        "w",
        "up",
        "F",
    ]

    async def steps(w: Walk) -> None:
        for number in range(6 * len(keys)):
            await w.pilot.press(keys[number * 7 % len(keys)])
            if number % 20 == 0:
                await w.pilot.resize_terminal(*((20, 5), (200, 50), (80, 24), (1, 1), (80, 24))[number // 20 % 5])
        await w.pilot.resize_terminal(80, 24)
        await w.settle()
        assert w.app.is_running and len(w.lines) == 24

    walk(tmp_path / "store", steps)


def test_an_empty_store_a_lone_file_and_several_stores(tmp_path: Path) -> None:
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    sound_store(tmp_path / "store", 20)
    lone = tmp_path / "00000000000000000000"
    shutil.copy(next((tmp_path / "store" / "commitlog").iterdir()), lone)

    async def all_views(w: Walk) -> None:
        for name in VIEWS:
            await w.choose(name)

    async def of_a_file(w: Walk) -> None:
        assert "message Topic0/0 queue offset 0" in w.screen
        await w.find("0x100")
        await w.press("escape")

    async def two(w: Walk) -> None:
        outline = w.app._outline
        assert outline is not None
        assert [node.label for depth, node in outline._lines if not depth] == ["empty", "store"]

    walk(tmp_path / "empty", all_views)
    walk(lone, of_a_file)
    walk([str(tmp_path / "empty"), str(tmp_path / "store")], two)


def test_without_a_terminal_and_without_the_extra(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sound_store(tmp_path / "store", 5)
    done = rmqctl("browse", store)
    assert done.exit_code == 2 and "needs a terminal" in done.stderr

    monkeypatch.setattr("commands.browse._is_terminal", lambda: True)
    for name in [name for name in sys.modules if name.startswith("commands._browse.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    done = rmqctl("browse", store)
    assert done.exit_code == 14, done.stderr
    assert "needs the extra tui" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("how", "code"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 143)], ids=["q", "ctrl-c", "term"])
def test_the_ways_it_ends(how: str | signal.Signals, code: int, tmp_path: Path) -> None:
    store = sound_store(tmp_path / "store", 20)
    pid, terminal = pty.fork()
    if not pid:
        os.environ.update(TERM="xterm", COLUMNS="80", LINES="24")
        os.execv(sys.executable, [sys.executable, "-m", "rmqctl", "browse", str(store)])
    seen, end = b"", time.monotonic() + 60
    while b"overview" not in seen and time.monotonic() < end:
        seen += os.read(terminal, 65536)
    if isinstance(how, str):
        os.write(terminal, how.encode())
    else:
        os.kill(pid, how)
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == code
    assert b"Traceback" not in seen and b"\x1b[?1049l" in seen, "the terminal is as it was"


def test_a_bundle_shows_what_is_in_it(tmp_path: Path, rmqctl: Rmqctl) -> None:
    damaged_store(tmp_path / "store", "body-flip")
    assert rmqctl("bundle", tmp_path / "store", tmp_path / "b.tar.zst").exit_code == 0

    async def steps(w: Walk) -> None:
        await w.choose("findings")
        await w.press("b")
        assert "body: 216 bytes" in w.screen
        shown = rmqctl(*shlex.split(w.command)[1:])
        assert shown.stdout.startswith("commitlog/") and shown.exit_code == 0, w.command
        await w.press("escape")
        await w.find("key-7")
        assert w.state == "keys are not in this bundle; search an offset, a time or an id"
        await w.find("Topic2/1@42")
        await w.press("enter")
        assert "no body" in w.screen

    walk(tmp_path / "b.tar.zst", steps, (250, 24))
