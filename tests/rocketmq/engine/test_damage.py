"""Every kind of damage is found by verify, is the same for the same seed, and is where it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from fixtures.damaged import ALL_KINDS, damaged_store, sound_store
from rmqctl.errors import Refused
from rmqctl.rocketmq.producer.damage import damage
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

Rmqctl = Callable[..., Result]
AREAS = ("log", "queue", "index", "checkpoint", "config")


def area(kind: str) -> str:
    """Where verify must find something."""
    first = kind.partition("-")[0]
    if first in AREAS:
        return first
    return {"topic": "", "abort": "store"}.get(first, "log")


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_store(tmp_path_factory.mktemp("sound") / "s")


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_verify_finds_it(kind: str, sound: Path, tmp_path: Path) -> None:
    golden.copy_tree(sound, tmp_path / "a")
    golden.copy_tree(sound, tmp_path / "b")
    said = damage(tmp_path / "a", kind, 3)
    assert said.startswith(f"{kind}: ")
    assert damage(tmp_path / "b", kind, 3) == said
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert tree(tmp_path / "a") != tree(sound)
    ids = [f.kind.id for f in Verification(open_store_at(str(tmp_path / "a")), VerifyOptions()).findings()]
    assert any(i.startswith(area(kind)) for i in ids), ids


def test_where(sound: Path, tmp_path: Path) -> None:
    golden.copy_tree(sound, tmp_path / "s")
    assert "commitlog/00000000000000000000, 4 bytes at 0" in damage(tmp_path / "s", "size-flip@0")
    with pytest.raises(Refused, match="names no record"):
        damage(tmp_path / "s", "body-flip@9999")
    with pytest.raises(Refused, match="--damage list"):
        damage(tmp_path / "s", "nonsense")


def test_the_builder(tmp_path: Path) -> None:
    assert "body-flip" in damaged_store(tmp_path / "s", "body-flip@50%", messages=50)
    assert (sound_store(tmp_path / "c", 300, "4.9.8", crash=True) / "abort").read_bytes() == b""


def test_on_the_command_line(rmqctl: Rmqctl, tmp_path: Path) -> None:
    listed = rmqctl("produce", "--damage", "list", "-o", "csv").stdout
    assert all(kind in listed for kind in ALL_KINDS)
    args = ("--topic", "T", "--count", "300", "--small", "--damage", "body-flip@10", "--damage", "queue-lost")
    made = rmqctl("produce", tmp_path / "s", *args)
    assert made.exit_code == 0
    assert made.stderr.count("damaged on purpose") == 2
    assert "300 messages" in made.stdout
    assert rmqctl("verify", tmp_path / "s").exit_code == 1
    assert rmqctl("produce", "--topic", "T").exit_code == 2
    assert rmqctl("produce", tmp_path / "s", "--damage", "nonsense").exit_code != 0
    assert rmqctl("produce", tmp_path / "t", "--topic", "T", "--small").exit_code == 0
    assert "rmqctl verify " in (start := rmqctl("recover", tmp_path / "t").stdout) and "removes" not in start
    alone = rmqctl("produce", tmp_path / "t", "--damage", "body-flip", "--damage", "checkpoint-lost")
    assert alone.stdout == f"damaged 2 places; next: rmqctl verify {tmp_path / 't'}\n"
