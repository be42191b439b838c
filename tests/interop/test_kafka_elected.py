"""A cluster of three released brokers, killed at random under writes, one disk damaged: nothing acknowledged is lost.

What was acknowledged (``acks=all``, ``min.insync.replicas=2``) is in the choice of `elect` that loses nothing, else in
the salvaged union of the disks, and a broker serves it.
"""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from commands import cli
from tests.interop.judge import has_java
from tests.interop.kafka_node import Brokers, class_path, free_port, java, partner, rounds, write_properties
from tests.interop.kafka_produced_helpers import expected
from tests.kafka.repair.markers_helpers import damaged

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
RELEASE, TOPIC, NODES = "4.3.1", "storm", (1, 2, 3)
ROUNDS = rounds(2, 50)
_PATIENCE = 180
SETTINGS: dict[str, object] = {
    "offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3, "num.network.threads": 2,
    "num.io.threads": 2, "background.threads": 2, "num.recovery.threads.per.data.dir": 1, "log.cleaner.enable": "false",
    "broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500, "replica.lag.time.max.ms": 2500,
    "controller.quorum.election.timeout.ms": 800, "controller.quorum.fetch.timeout.ms": 2500,
    "replica.high.watermark.checkpoint.interval.ms": 700, "log.flush.offset.checkpoint.interval.ms": 900,
}  # fmt: skip
Record = tuple[int, int, str]


class Cluster:
    """Three nodes, each a process, on directories of one room.

    Attributes:
        disks: the log directory of each node.
    """

    def __init__(self, classes: str, room: Path, ports: dict[int, tuple[int, int]]) -> None:
        self.room, self.classes, self.ports = room, classes, ports
        self.disks = {node: room / f"disk-{node}" for node in NODES}
        self.alive = dict[int, subprocess.Popen[bytes]]()
        room.mkdir(exist_ok=True)
        for node in NODES:
            write_properties(room / f"{node}.properties", self.disks[node], ports, node, **SETTINGS)

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port, _ in self.ports.values())

    def form(self, cluster: str) -> None:
        """Make the directories of a new cluster."""
        for node in NODES:
            words = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.room / f"{node}.properties"))
            subprocess.run(java(self.classes, *words, memory="128m"), check=True, capture_output=True)

    def start(self, node: int) -> None:
        with (self.room / f"{node}.log").open("ab") as said:
            command = java(self.classes, "kafka.Kafka", str(self.room / f"{node}.properties"), memory="256m")
            self.alive[node] = subprocess.Popen(command, cwd=self.room, stdout=said, stderr=subprocess.STDOUT)

    def wait(self) -> None:
        """Until all nodes serve."""
        end = time.monotonic() + _PATIENCE
        for node in NODES:
            while "Kafka Server started" not in self.said(node):
                assert time.monotonic() < end and self.alive[node].poll() is None, self.said(node)[-3000:]
                time.sleep(0.2)

    def said(self, node: int) -> str:
        return (self.room / f"{node}.log").read_text("utf-8", "replace")

    def kill(self, node: int) -> None:
        process = self.alive.pop(node, None)
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Stop all in order."""
        for process in self.alive.values():
            process.terminate()
        for node, process in list(self.alive.items()):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill(node)
        self.alive.clear()


@contextmanager
def ending(cluster: Cluster) -> Iterator[Cluster]:
    try:
        yield cluster
    finally:
        for node in NODES:
            cluster.kill(node)


def disturb(cluster: Cluster, draw: random.Random) -> list[str]:
    """Kill, pause and start nodes under writes, and kill all that are left; what was done."""
    done = []
    for _ in range(draw.randrange(4)):
        time.sleep(draw.uniform(0.2, 2.5))
        what, node = draw.choice(["kill", "kill", "pause", "start"]), draw.choice(NODES)
        if what == "kill" and len(cluster.alive) > 1:
            cluster.kill(node)
        elif what == "pause" and node in cluster.alive:
            os.kill(cluster.alive[node].pid, signal.SIGSTOP)
            time.sleep(draw.uniform(1, 4))
            os.kill(cluster.alive[node].pid, signal.SIGCONT)
        elif what == "start" and len(cluster.alive) < len(NODES):
            node = next(n for n in NODES if n not in cluster.alive)
            cluster.start(node)
            time.sleep(draw.uniform(0, 6))
        else:
            continue
        done.append(f"{what} {node}")
    time.sleep(draw.uniform(0.2, 2))
    for node in draw.sample(NODES, len(NODES)):
        cluster.kill(node)
        time.sleep(draw.choice([0, 0, draw.uniform(0, 1)]))
    return done


def damage_disk(disk: Path, draw: random.Random) -> str:
    """Damage one disk somewhere, or lose it; what was done."""
    partitions = sorted(disk.glob(f"{TOPIC}-*"))
    logs = [path for path in sorted(disk.glob(f"{TOPIC}-*/*.log")) if path.stat().st_size]
    kind = draw.choice(["disk", "partition", "segment", "epochs", "indexes", "all logs", *["logs"] * 4])
    if kind == "disk":
        shutil.rmtree(disk)
        disk.mkdir()
    elif kind == "partition":
        shutil.rmtree(draw.choice(partitions))
    elif kind == "segment":
        draw.choice(logs).unlink()
    elif kind == "epochs":
        (draw.choice(partitions) / "leader-epoch-checkpoint").write_text(draw.choice(["", "0\n1\n9 5\n", "garbage\n"]))
    elif kind == "indexes":
        for path in disk.glob(f"{TOPIC}-*/*.*index"):
            path.write_bytes(draw.randbytes(37))
    else:
        for path in logs if kind == "all logs" else draw.sample(logs, min(2, len(logs))):
            path.write_bytes(damaged(path.read_bytes(), draw))
    return kind


@dataclass
class Round:
    """One round.

    Attributes:
        missing: records that were acknowledged and that nothing gives back, and those that a broker does not serve.
    """

    done: str
    damage: str
    acknowledged: int
    one_choice: bool
    salvaged: bool
    missing: list[Record]


def play(
    seed: int, formed: Path, room: Path, ports: dict[int, tuple[int, int]], brokers: Brokers, client: Any
) -> Round:
    """Start a cluster on copies, write, kill, damage, elect, salvage, serve."""
    draw, classes = random.Random(seed), brokers.classes
    shutil.copytree(formed, room, ignore=shutil.ignore_patterns("*.log.old"))
    with ending(Cluster(classes, room, ports)) as cluster:
        for node in NODES:
            (room / f"{node}.log").unlink(missing_ok=True)
            cluster.start(node)
        cluster.wait()
        client.ask("storm", TOPIC, room / "acknowledged")
        time.sleep(draw.uniform(1, 3))
        done = disturb(cluster, draw)
    client.ask("calm")
    acknowledged = read_acknowledged(room / "acknowledged")
    disks = [str(disk) for disk in cluster.disks.values()]
    node = draw.choice(NODES)
    damage = damage_disk(cluster.disks[node], draw)
    disks = [disk for disk in disks if any(Path(disk).iterdir())]
    answer = CliRunner().invoke(cli, ["elect", *disks, "-o", "json"])
    assert answer.exit_code in {0, 1}, answer.output
    logs = {log["log"]: log for log in json.loads(answer.stdout)["logs"] if log["log"].startswith(f"{TOPIC}-")}
    missing = set[Record]()
    for name, log in logs.items():
        wanted = {record for record in acknowledged if f"{TOPIC}-{record[0]}" == name}
        if log["no_loss"]:
            missing |= wanted - records_of(log["best"])
    best = {log["best"] for log in logs.values() if log["no_loss"]}
    is_one = len(best) == 1 and all(log["no_loss"] for log in logs.values()) and len(logs) == 3
    sources = [best.pop()] if is_one else disks
    saved = CliRunner().invoke(cli, ["salvage", *sources, str(room / "into"), "-o", "json"])
    assert saved.exit_code in {0, 1}, saved.output
    assert brokers.start(room / "into") == "started", brokers.log[-3000:]
    served = {(row[0], row[1], text_of(row[4])) for row in brokers.ask("read", "read_uncommitted", TOPIC)}
    brokers.stop()
    missing |= acknowledged - served
    salvaged = any(not log["no_loss"] for log in logs.values())
    return Round(f"{done}, disk {node}", damage, len(acknowledged), is_one, salvaged, sorted(missing))


def read_acknowledged(path: Path) -> set[Record]:
    found = set[Record]()
    for line in path.read_text().splitlines():
        partition, offset, text = line.split(" ")
        found.add((int(partition), int(offset), text))
    return found


def text_of(value: str | None) -> str:
    return base64.b64decode(value or "").decode()


def records_of(disk: str) -> set[Record]:
    """The records of the topic that a broker started on a disk serves."""
    return {(row[0], row[1], text_of(row[4])) for row in expected(Path(disk), TOPIC, committed=False)}


def form(classes: str, formed: Path, ports: dict[int, tuple[int, int]], client: Any) -> None:
    """Make a cluster with the topic, and stop it."""
    with ending(Cluster(classes, formed, ports)) as cluster:
        cluster.form("MkU3OEVBNTcwNTJENDM2Qg")
        for node in NODES:
            cluster.start(node)
        cluster.wait()
        client.ask("create", TOPIC, 3, 3, "min.insync.replicas=2", "internal.segment.bytes=20000")
        time.sleep(2)
        cluster.stop()


def test_what_was_acknowledged_is_in_the_best_choice_or_in_the_union(tmp_path: Path, compiled: Path) -> None:
    classes = class_path(RELEASE, compiled)
    ports = {node: (free_port(), free_port()) for node in NODES}
    client = partner(classes, tmp_path, "Client", ",".join(f"127.0.0.1:{port}" for port, _ in ports.values()))
    with Brokers(RELEASE, compiled) as brokers:
        form(classes, tmp_path / "formed", ports, client)
        for seed in range(ROUNDS):
            found = play(seed, tmp_path / "formed", tmp_path / str(seed), ports, brokers, client)
            assert found.missing == [], found
            assert found.acknowledged
            shutil.rmtree(tmp_path / str(seed))
    client.close()
