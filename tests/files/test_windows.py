"""Windows of a file: what is read of it, and where zeros end."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.files.local import BytesSource, LocalFile, without_room
from rmqctl.files.windows import Windows


class Counted(LocalFile):
    """Counts the bytes that were asked for."""

    asked = 0

    def read_into(self, offset: int, buffer: memoryview) -> int:
        self.asked += len(buffer)
        return super().read_into(offset, buffer)


def test_holes_of_damage_are_not_read(tmp_path: Path) -> None:
    path, end = tmp_path / "x", 1 << 30
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek(end - 3)
        file.write(b"end")
    source = Counted(path)
    windows = Windows(source, most=1 << 16, overlap=64)
    window = windows.read(0, 1 << 16)
    begin, need = windows.next(window, 0, 5, 0, in_damage=True)
    assert (begin, need) == (end - 3 - 64, 1 << 16)
    assert windows.last_data == 5
    assert source.asked <= 3 << 16


@pytest.mark.parametrize(("after", "need", "in_damage"), [(5, 0, False), (3, 0, True), (5, 200, True)])
def test_nothing_is_passed_over_where_something_follows_or_may_begin(after: int, need: int, in_damage: bool) -> None:
    windows = Windows(BytesSource(b"begin" + bytes(1000) + b"end"), stop=900, most=100, overlap=10)
    window = windows.read(0, 100)
    assert windows.next(window, 0, after, need, in_damage=in_damage) == (after, max(need, 100))


def test_a_window_has_room_after_it_and_little_is_read_beyond_the_split() -> None:
    data = bytes(range(256)) * 1024
    windows = Windows(BytesSource(data), start=10, stop=1000, most=1 << 20, overlap=0, slack=16)
    window = windows.read(10, windows.usual(10))
    assert window.tobytes() == data[10 : 1000 + (64 << 10)]
    assert len(windows.padded(window)) == len(window) + 16
    assert windows.read(len(data) - 4, 100).tobytes() == data[-4:]


def test_little_is_read_of_a_hole_at_the_end_of_a_window(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.write(b"begin" * 10_000)
        file.truncate(1 << 30)
    windows = Windows(LocalFile(path), most=4 << 20, overlap=64)
    assert 50_000 < windows.usual(0) < 128 << 10
    assert windows.usual(1 << 29) <= 32 << 10  # a hole alone
    with path.open("r+b") as file:
        file.seek(3 << 20)
        file.write(b"more")
    assert windows.usual(0) == 4 << 20  # with data after it, it is read as the zeros that it is


@pytest.mark.parametrize("held", [0, 1, 4095, 4096, 4097, 20_000])
@pytest.mark.parametrize("room", [0, 1, 4095, 4096, 10_000])
def test_bytes_without_the_room_after_them(held: int, room: int) -> None:
    data = (b"\0" * 5000 + b"x" * held)[-held:] if held else b""
    assert without_room(data + bytes(room)) == (data + bytes(room)).rstrip(b"\0")
