"""Logs in several paths, queue extensions, hosts of IPv6; what a broker of any release would make of the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.damaged import sound_store
from rmqctl.rocketmq.engine.config import Host, MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.recovery.rules import FAMILIES
from rmqctl.rocketmq.store.files import QUEUES_EXT
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.engine.engine_helpers import START, complaints, put_some, small


@pytest.mark.parametrize("ends", ["clean", "crash"])
def test_a_log_in_three_paths(ends: str, tmp_path: Path) -> None:
    paths = ("commitlog-a", "commitlog-b", "commitlog-c")
    engine = StoreEngine.open(tmp_path, small(commit_log_paths=paths))
    put_some(engine, 2000)
    engine.crash() if ends == "crash" else engine.close()
    for number, path in enumerate(sorted(p for d in paths for p in (tmp_path / d).iterdir() if p.name)):
        assert path.parent.name == paths[int(path.name) // 65536 % 3], number
    with StoreEngine.open(tmp_path) as engine:
        assert engine.config.commit_log_paths == paths
        put_some(engine, 500)
        assert engine.offsets("Orders", 0) == (0, 834)
    assert complaints(tmp_path) == []


def test_a_log_outside(tmp_path: Path) -> None:
    config = small(commit_log_paths=(str(tmp_path / "elsewhere"),))
    for _ in range(2):
        with StoreEngine.open(tmp_path / "s", config) as engine:
            put_some(engine, 300)
    assert engine.log.wrote > 0
    assert not (tmp_path / "s" / "commitlog").exists()
    assert len(list((tmp_path / "elsewhere").iterdir())) == engine.log.wrote // 65536 + 1


def test_the_extension_goes_on(tmp_path: Path) -> None:
    for turn in range(3):
        clock = MadeUpClock(START + turn * 10_000)
        with StoreEngine.open(tmp_path, StoreConfig.small(clock=clock, services=False, queue_ext=turn == 0)) as engine:
            put_some(engine, 400)
    assert len(list((tmp_path / QUEUES_EXT / "Orders" / "0").iterdir())) == 2
    assert complaints(tmp_path) == []


def test_hosts_of_ipv6(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small(store_host=Host.parse("[2001:db8::1]:10911"))) as engine:
        result = engine.put(Message("T", b"x", born_host=Host.parse("[2001:db8::2]:4")))
        engine.put(Message("T", b"x", born_host=Host.parse("10.0.0.1:4")))
        assert result.message_id == "20010DB800000000000000000000000100002A9F0000000000000000"
        flags = [m.fields["sys_flag"] for m in engine.get("T", 0, 0).messages]
        assert flags == [0x30, 0x20]
    assert complaints(tmp_path) == []


@pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_broker_of_any_release_starts_and_loses_nothing(family: object, crash: bool, tmp_path: Path) -> None:
    store = open_store_at(str(sound_store(tmp_path / "s", 720, str(family), crash=crash)))
    found = recover(store, family)  # type: ignore[arg-type]
    assert found.is_harmless
    assert {(t, q): n for t, q, _, n in found.ranges()} == {(f"Topic{n % 3}", n % 2): 120 for n in range(6)}
