"""Kafka logs for benchmarks: large segments with batches of one shape, and many small partitions."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.engine.cluster_files import Cluster, ClusterTopic, new_id, partition_metadata, write_cluster
from rmqctl.kafka.rebuild.rebuild import RebuildOptions, rebuild
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from tests.kafka.batches import TIME, batch, record

WORDS = b"alpha beta gamma delta order price user lorem ipsum null zero 0123456789 ".split()


def value(rng: random.Random, size: int) -> bytes:
    return b" ".join(rng.choices(WORDS, k=size // 4))[:size]


def make_segment(path: Path, size: int, records: int, body: int) -> int:
    """Write batches of ``records`` records with values of ``body`` bytes; returns the number of records."""
    rng = random.Random(1)
    batches = []
    for _ in range(64):
        sizes = [rng.randint(body * 4 // 5, body * 6 // 5) for _ in range(records)]
        batches.append(
            batch(0, [record(i, b"key%04d" % rng.randrange(10000), value(rng, n)) for i, n in enumerate(sizes)])
        )
    written = offset = number = 0
    with open(path, "wb") as file:
        while written < size:
            one = batches[number % len(batches)]
            file.write(struct.pack(">q", offset) + one[8:])
            written += len(one)
            offset += records
            number += 1
    return offset


def make_partitions(root: Path, count: int, segments: int = 3, batches: int = 5) -> None:
    """Write a log directory of many small partitions of one producer each, as a broker leaves it when it stops in order.

    Args:
        segments, batches: of each partition, and of each segment.
    """
    topics = [f"topic{number}" for number in range(-(-count // 100))]
    ids = {topic: new_id() for topic in topics}
    template = root.with_name(f"{root.name}-template")
    directory = template / "t-0"
    directory.mkdir(parents=True)
    offset = 0
    for segment in range(segments):
        data = b""
        for number in range(batches):
            records = [record(i, b"key%d" % i, b"value %d of %d" % (number, segment) * 8) for i in range(3)]
            ids_of = {"producer_id": 1000, "producer_epoch": 0, "base_sequence": offset}
            data += batch(offset, records, **ids_of, base_timestamp=TIME + offset, max_timestamp=TIME + offset)
            offset += 3
        (directory / f"{offset - 3 * batches:020d}.log").write_bytes(data)
    (template / ".kafka_cleanshutdown").write_bytes(b'{"version":0}')
    (template / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    files = {path.name: path.read_bytes() for path in directory.iterdir()} | derived_files(template, ["t"])
    root.mkdir()
    cluster = [ClusterTopic(topic, ids[topic], dict.fromkeys(range(100), 0)) for topic in topics]
    write_cluster(root, Cluster(new_id(), 1, Release(4, 1, 0), cluster))
    names = [f"topic{number // 100} {number % 100} {offset}\n" for number in range(count)]
    for kind in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / kind).write_text(f"0\n{count}\n" + "".join(names))
    (root / ".kafka_cleanshutdown").write_bytes(b'{"version":0}')
    for number in range(count):
        topic = f"topic{number // 100}"
        place = root / f"{topic}-{number % 100}"
        place.mkdir()
        for name, data in {**files, "partition.metadata": partition_metadata(ids[topic])}.items():
            (place / name).write_bytes(data)
    shutil.rmtree(template)


def derived_files(root: Path, topics: list[str]) -> dict[str, bytes]:
    """Return what the logs of topics of one partition give, by name."""
    replicas = Replicas(LogDirectories([read_directory(LocalTree(root))]))
    found = rebuild(replicas, replicas.directories[0], RebuildOptions(topics=topics, fresh=True))
    return {change.name.rpartition("/")[2]: change.content for change in found.changes if "/" in change.name}
