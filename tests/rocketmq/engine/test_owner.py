"""What root writes into a broker's store belongs to the broker."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message

BROKER, GROUP = 4321, 4322


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
@pytest.mark.parametrize("end", ["close", "abandon", "crash"])
def test_every_file_belongs_to_whom_the_store_belongs(release: str, end: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(0o750)
    os.chown(root, BROKER, GROUP)
    config = StoreConfig.small(release=Release.parse(release), timer=release > "5", multi_dispatch=True, services=False)
    for turn in range(2):
        engine = StoreEngine.open(root, config)
        for n in range(300):
            engine.put(Message(f"T{turn}", bytes(300), n % 2, {"KEYS": f"k{n}"}))
        engine.put(Message("T", b"late", 0, {"DELAY": "3"}))
        getattr(engine, end)()
    found = [Path(directory, name) for directory, names, files in os.walk(root) for name in (*names, *files)]
    assert len(found) > 15
    for path in found:
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (BROKER, GROUP), path
        if end == "close":  # else recovery made some of them
            assert stat.S_IMODE(status.st_mode) == (0o750 if path.is_dir() else 0o640), path
