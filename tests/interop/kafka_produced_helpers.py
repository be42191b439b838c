"""What tests of Kafka brokers share: what consumers should get, settings, and damage."""

from __future__ import annotations

import base64
import hashlib
import random
from pathlib import Path
from typing import Any

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.filters import Filters
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.repair.survey import Survey
from rmqctl.opening import open_store
from rmqctl.store import Store
from tests.kafka.repair.markers_helpers import damaged


def raw(value: Any) -> str | None:
    """What a row shows, as base64."""
    if value is None:
        return None
    if isinstance(value, dict):
        return str(value["base64"])
    return base64.b64encode(value.encode()).decode()


def expected(logs: Path, topic: str, *, committed: bool) -> list[Any]:
    """The records of a topic that a consumer should get."""
    store = open_store(str(logs))
    firsts = sorted((row["partition"], row["log_start_offset"]) for row in store.topics(topic=topic))
    return [row for number, first in firsts for row in served(store, topic, number, first, committed=committed)]


def served(store: Store, topic: str, number: int, first: int, *, committed: bool) -> list[Any]:
    """The records of a partition that a consumer should get from an offset on."""
    found = []
    for row in store.query_offset(topic, number, first, Filters(limit=1 << 30), read_committed=committed):
        if row["kind"] == "record":
            headers = [[raw(name), raw(value)] for name, value in row["headers"]]
            found.append([number, row["offset"], row["timestamp"], raw(row["key"]), raw(row["value"]), headers])
    return found


SETTINGS: dict[str, object] = {
    "log.index.size.max.bytes": 65536, "num.recovery.threads.per.data.dir": 1, "log.cleaner.enable": "false",
    "producer.id.expiration.ms": 2**31 - 1, "transactional.id.expiration.ms": 2**31 - 1,
    "log.initial.task.delay.ms": 3_600_000, "log.segment.delete.delay.ms": 3_600_000,
}  # fmt: skip
"""Those of the brokers that wrote the golden directories; nothing runs in the background."""


def damage_partition(directory: Path, draw: random.Random) -> list[str]:
    """Damage one to three files of a partition; what was done."""
    done = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        files = [path for path in sorted(directory.iterdir()) if path.is_file()]
        logs = [path for path in files if path.suffix == ".log" and path.stat().st_size]
        derived = [path for path in files if path.suffix in {".index", ".timeindex", ".txnindex", ".snapshot"}]
        kind = draw.choice(["log"] * 6 + ["derived"] * 4 + ["delete"] * 2 + ["leftover"] * 2 + ["epochs"])
        if kind == "log" and logs:
            path = draw.choice(logs)
            path.write_bytes(damaged(path.read_bytes(), draw))
        elif kind == "derived" and derived:
            path = draw.choice(derived)
            data = path.read_bytes()
            used = len(data.rstrip(b"\0")) + draw.choice([0, 8, 12, 40])
            if data:
                path.write_bytes(damaged(data[:used] or b"\0", draw) + data[used:])
        elif kind == "delete" and logs + derived:
            path = draw.choice(logs + derived)
            path.unlink()
        elif kind == "leftover" and logs:
            source = draw.choice(logs)
            path = source.with_name(source.name + draw.choice([".swap", ".cleaned", ".deleted"]))
            path.write_bytes(source.read_bytes())
        elif kind == "epochs" and (directory / "leader-epoch-checkpoint").exists():
            path = directory / "leader-epoch-checkpoint"
            version, _, *entries = path.read_text().splitlines()
            entries = [f"{number + draw.randrange(3)} {draw.randrange(200)}" for number in range(len(entries) + 1)]
            path.write_text("\n".join([version, str(len(entries)), *entries, ""]))
        else:
            continue
        done.append(f"{kind} {path.name}")
    return done


def content(data: bytes) -> tuple[int, str]:
    """What a file holds: its size, and a hash."""
    return len(data), hashlib.sha256(data).hexdigest()[:16]


def is_lasting(name: str) -> bool:
    return not name.endswith((".deleted", ".tmp"))


def damage_randomly(release: str, seed: int, room: Path) -> tuple[Path, str, dict[str, list[str]]]:
    """A golden directory with a dozen partitions damaged: where, which one, and what was done to which partition."""
    draw, name = random.Random(f"{release} {seed}"), f"{release}-{'crash' if seed % 3 else 'clean'}"
    root = golden.unpack(name, room)
    partitions = [path.name for path in sorted(root.iterdir()) if (path / "partition.metadata").exists()]
    served = [p for p in partitions if not p.startswith("__cluster") and not p.endswith("-delete")]
    return root, name, {p: done for p in draw.sample(served, 12) if (done := damage_partition(root / p, draw))}


def damage(root: Path, draw: random.Random) -> int:
    """Destroy three places in every partition of users: bodies of two batches, and two whole batches; how many."""
    count = 0
    for partition in read_directory(LocalTree(str(root))).partitions:
        if not partition.is_plain or partition.topic.startswith("__"):
            continue
        survey = Survey(partition)
        if len(survey) < 6:
            continue
        for row in draw.sample(range(1, len(survey) - 1), 2):
            batch = survey.batch(row)
            _overwrite(root / survey.files[batch.segment].name, batch.position + 61, bytes(batch.size - 61))
            count += 1
        first = survey.batch(row := draw.randrange(1, len(survey) - 3))
        second = survey.batch(row + 1)
        if first.segment == second.segment:
            size = second.end - first.position
            _overwrite(root / survey.files[first.segment].name, first.position, draw.randbytes(size))
            count += 1
    return count


def _overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
