"""What a replica has comes from it, however the damage lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import golden

PAGE = 4096


@pytest.fixture
def pair(tmp_path: Path, rmqctl: Any) -> tuple[Path, Path]:
    """A store and its equal."""
    rmqctl(
        "produce",
        tmp_path / "whole",
        "--topic",
        "Orders",
        "--topic",
        "Pay",
        "--count",
        400,
        "--key",
        "k-{n}",
        "--small",
    )
    golden.copy_tree(tmp_path / "whole", tmp_path / "hurt")
    return tmp_path / "whole", tmp_path / "hurt"


@pytest.mark.parametrize("page", [2, 4, 5])
def test_a_page_of_zeros_comes_back_from_a_replica(page: int, pair: tuple[Path, Path], rmqctl: Any) -> None:
    whole, hurt = pair
    log = Path("commitlog", "00000000000000065536")
    data = bytearray((hurt / log).read_bytes())
    data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    (hurt / log).write_bytes(data)
    assert rmqctl("repair", hurt, "--from", whole, "--apply", "--yes").exit_code == 0
    assert (hurt / log).read_bytes() == (whole / log).read_bytes()


def test_neighbours_that_are_all_damaged_come_back_from_a_replica(pair: tuple[Path, Path], rmqctl: Any) -> None:
    whole, hurt = pair
    log = Path("commitlog", "00000000000000000000")
    data = bytearray((hurt / log).read_bytes())
    at = 0
    for number in range(24):
        size = int.from_bytes(data[at : at + 4], "big")
        if number >= 20:
            data[at + 88 : at + 96] = b"\xff" * 8  # of the body
        at += size
    (hurt / log).write_bytes(data)
    assert rmqctl("repair", hurt, "--from", whole, "--apply", "--yes").exit_code == 0
    assert (hurt / log).read_bytes() == (whole / log).read_bytes()
