"""Salvaged Kafka log directories under released brokers: all is served, nothing is cut, producers go on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.opening import open_store
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Node
from tests.interop.kafka_produced_helpers import damage, expected

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
Rmqctl = Callable[..., Result]
_CLEANED = ("__", "compacted")
"""Directories whose logs a broker compacts."""
_CUTS = ("Truncating", "corrupt", "Deleting segment", "Rebuilding", "Loading producer state from snapshot file failed")


@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_serves_the_salvaged_union_of_two_damaged_disks(
    release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    name = f"{release}-crash"
    roots = [golden.unpack(name, tmp_path / letter) for letter in "ab"]
    for number, root in enumerate(roots):
        assert damage(root, random.Random(f"{release} {number}")) > 50
    sound = Path(golden.pristine(name))
    done = rmqctl("salvage", *roots, tmp_path / "into", "--deleted", "-o", "json")
    assert done.exit_code == 1
    holes = {(hole["topic"], hole["partition"]) for hole in json.loads(done.stdout)["summary"]["holes"]}
    into = tmp_path / "into"
    topics = sorted({row["topic"] for row in open_store(str(into)).topics() if not row["topic"].startswith("__")})
    assert "goner" in topics
    logs = {path: path.read_bytes() for path in into.glob("*/*.log") if not path.parent.name.startswith(_CLEANED)}
    with Node(release, into, compiled) as node:
        for topic in topics:
            served = sorted(node.ask("read", "read_uncommitted", topic))
            assert served == expected(into, topic, committed=False), topic
            if topic != "goner" and not any(hole[0] == topic for hole in holes):
                assert served == expected(sound, topic, committed=False), topic
            committed = sorted(node.ask("read", "read_committed", topic))
            assert committed == expected(into, topic, committed=True), topic
        assert node.errors == []
        assert not [line for line in node.log.splitlines() if any(cut in line for cut in _CUTS)]
        assert len(node.ask("write", "plain-none", 20)) == 20
    for path, data in logs.items():
        assert path.read_bytes().startswith(data), f"{path} was cut"
