"""Light queues are what the store shows, whether the given broker.conf mentions them or not."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message

NAME = "5.1.4-clean"
QUEUE = "consumequeue/%LMQ%one/0"


@pytest.fixture(params=["", "enableMultiDispatch=true\n", "enableLmq=false\nenableMultiDispatch=false\n"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A store with light queues, and a broker.conf that does not say so."""
    conf = {k: v for k, v in golden.broker_conf(NAME).items() if k not in ("enableLmq", "enableMultiDispatch")}
    (tmp_path / "broker.conf").write_text("".join(f"{k}={v}\n" for k, v in conf.items()) + request.param)
    return golden.unpack(NAME, tmp_path), tmp_path / "broker.conf"


def test_noise_in_a_light_queue(stored: tuple[Path, Path], rmqctl: Callable[..., Any]) -> None:
    root, conf = stored
    file = min((root / QUEUE).iterdir())
    before = file.read_bytes()
    file.write_bytes(random.Random(5).randbytes(100) + before[100:])
    done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes")
    assert done.exit_code == 0, done.output
    assert file.read_bytes() == before


def test_a_lost_light_queue(stored: tuple[Path, Path], rmqctl: Callable[..., Any]) -> None:
    root, conf = stored
    before = {p.name: p.read_bytes() for p in (root / QUEUE).iterdir()}
    shutil.rmtree(root / QUEUE)
    assert rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes").exit_code == 0
    assert {p.name: p.read_bytes() for p in (root / QUEUE).iterdir()} == before


def test_a_light_queue_beside_one_of_another_name(rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    """5.3.2 and later give only light queues an offset, and dispatch takes none where names and offsets differ in number."""
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%one,other", "INNER_MULTI_QUEUE_OFFSET": "0,"}
    with StoreEngine.open(tmp_path / "s", StoreConfig.small(services=False)) as engine:
        engine.put(Message("T", b"x", 0, properties))
    assert rmqctl("verify", tmp_path / "s").exit_code == 0
    assert rmqctl("rebuild", tmp_path / "s", "--queues").exit_code == 0
