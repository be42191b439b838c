"""Record what brokers of each release do with the stores of others: ``python -m tests.interop.record_matrix rocketmq``.

Writes ``fixtures/interop/FAMILY.matrix.json.xz``, one cell a store, release and kind of settings: whether it started,
why not, and what it had then. Cells that are there already are kept. ``test_other_releases.py`` of both families hold
`preflight` and the replay to them.
"""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fixtures import golden
from tests.interop.judge import class_path, java
from tests.interop.kafka_node import Brokers, Node, format_directory
from tests.interop.started_helpers import broker_settings

INTO = golden.DIRECTORY.parent / "interop"
RELEASES = {
    "rocketmq": ("3.2.6", "4.9.7", "5.1.4", "5.3.3", "5.5.0"),
    "kafka": ("2.8.2", "3.3.2", "3.9.2", "4.0.0", "4.3.1", "4.4.0"),
}
PATIENCE = 300


def recorded(family: str) -> list[dict[str, Any]]:
    """The cells that were recorded, in order."""
    file = INTO / f"{family}.matrix.json.xz"
    return json.loads(lzma.decompress(file.read_bytes())) if file.exists() else []


def _key(cell: Mapping[str, Any]) -> tuple[str, str, str]:
    return cell["store"], cell["settings"], cell["release"]


def _keep(family: str, found: list[dict[str, Any]], cell: dict[str, Any]) -> None:
    """Add a cell, and write all: a run may be ended at any time."""
    found.append(cell)
    with lzma.open(INTO / f"{family}.matrix.json.xz", "wt", encoding="utf-8", preset=9) as packed:
        packed.write(json.dumps(sorted(found, key=_key), separators=(",", ":"), sort_keys=True))
    print(*(cell.get(key) for key in ("store", "settings", "release", "starts", "error")), file=sys.stderr, flush=True)


def cells() -> Iterator[tuple[str, str, str]]:
    """Store, kind of settings and release of each start of a RocketMQ broker."""
    for store in (*golden.OLD_STORES, *golden.NAMES, *golden.DATABASE_STORES):
        for release in RELEASES["rocketmq"]:
            yield store, "own", release
    for store in (*golden.DATABASE_STORES, "5.5.0-clean", "5.5.0-rocksdb-clean", "5.5.0-rocksdb-crash"):
        for release in ("5.1.4", "5.3.3", "5.5.0"):
            yield store, "plain", release


def rocketmq(work: Path) -> None:
    """Start a broker of each release on a copy of each store."""
    found = recorded("rocketmq")
    done = {_key(cell) for cell in found}
    for store, kind, release in cells():
        if (store, kind, release) in done:
            continue
        room = work / f"{store}-{kind}-{release}"
        root = golden.unpack(store, room)
        given = broker_settings(store, kind, release)
        if paths := golden.manifest(store).get("storeConfig", {}).get("storePathCommitLog"):
            given["storePathCommitLog"] = paths.replace("<root>", str(root))
        words = [f"{name}={value}" for name, value in given.items()]
        command = java(class_path(release, work, "StartedBroker"), room / "home", "StartedBroker", root, *words)
        ended = subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE, cwd=room)
        answer = json.loads(ended.stdout.splitlines()[-1])
        for timed in ("milliseconds", "processor"):
            answer.pop(timed, None)
        _keep("rocketmq", found, {"store": store, "release": release, "settings": kind, **answer})
        shutil.rmtree(room, ignore_errors=True)


LEVELS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "2.8.2-kraft": ("2.8.2", ()),
    "3.3.2-kraft": ("3.3.2", ()),
    "3.9.2-level-3.3": ("3.9.2", ("--release-version", "3.3-IV3")),
    "3.9.2-transactions-2": ("3.9.2", ("--feature", "transaction.version=2")),
    "4.0.0-level-3.3": ("4.0.0", ("--release-version", "3.3-IV3")),
    "4.0.0-kraft": ("4.0.0", ()),
    "4.0.0-elr": ("4.0.0", ("--feature", "eligible.leader.replicas.version=1")),
    "4.3.1-level-3.3": ("4.3.1", ("--release-version", "3.3-IV3")),
    "4.3.1-features-0": (
        "4.3.1",
        tuple(
            word
            for name in ("transaction", "group", "share", "streams", "eligible.leader.replicas")
            for word in ("--feature", f"{name}.version=0")
        ),
    ),
    "4.3.1-streams": ("4.3.1", ("--feature", "streams.version=1", "--feature", "share.version=1")),
    "4.4.0-level-4.0": ("4.4.0", ("--release-version", "4.0-IV3")),
    "4.4.0-kraft": ("4.4.0", ()),
}
"""Log directories with features at other levels: the release that made each, and how it was told to."""
LEVEL_STORES = INTO / "kafka-levels.tar.xz"
KEEP: dict[str, object] = {"offsets.retention.minutes": 2147483647, "log.cleaner.enable": "false"}


def make_levels(work: Path) -> None:
    """Make the log directories of `LEVELS`, each with a topic, a transaction and a group."""
    room = work / "kafka-levels"
    room.mkdir()
    for name, (release, words) in LEVELS.items():
        logs = room / name
        try:
            format_directory(release, logs, work, words=words)
        except subprocess.CalledProcessError as why:
            print(name, why.stdout[-600:], why.stderr[-600:], file=sys.stderr, flush=True)
            continue
        with Node(release, logs, work, KEEP) as node:
            node.ask("create", "some", 2, 1)
            node.ask("write", "some", 20)
            if release != "2.8.2":  # which has no transactions with KRaft
                node.ask("write", "some", 6, "tx")
            node.ask("commit", "group", "some", 7)
        print(name, "made", file=sys.stderr, flush=True)
    with tarfile.open(LEVEL_STORES, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
        archive.add(room, room.name)


def kafka(work: Path) -> None:
    """Start a broker of each release on a copy of each log directory."""
    if not LEVEL_STORES.exists():
        make_levels(work)
    stores = {name: golden.pristine(name) for name in (*golden.KAFKA_NAMES, *golden.KAFKA_UNPRINTED)}
    levels = golden.extract(LEVEL_STORES, work / "unpacked")
    stores |= {path.name: path for path in sorted(levels.iterdir())}
    found = recorded("kafka")
    done = {_key(cell) for cell in found}
    for release in RELEASES["kafka"]:
        with Brokers(release, work, **KEEP) as brokers:
            for store, pristine in stores.items():
                is_zookeeper = not any((pristine / name).exists() for name in ("__cluster_metadata-0", "@metadata-0"))
                if (is_zookeeper and release < "4") or store == f"{release}-kraft" == "2.8.2-kraft":
                    continue  # ZooKeeper is not there; of 2.8 a node of KRaft ends when it is started here again
                if (store, "own", release) in done:
                    continue
                logs = work / f"{release}-{store}"
                golden.copy_tree(pristine, logs)
                _keep(
                    "kafka", found, {"store": store, "release": release, "settings": "own", **_started(brokers, logs)}
                )
                shutil.rmtree(logs, ignore_errors=True)


def _started(brokers: Brokers, logs: Path) -> dict[str, Any]:
    outcome = brokers.start(logs)
    if outcome != "started":
        return {"starts": False, "error": _why(brokers.log)}
    try:
        ends, groups = brokers.ask("ends")
    finally:
        brokers.stop()
    names = sorted(path.name for path in logs.iterdir() if path.is_dir())
    return {"starts": True, "ends": sorted(ends), "groups": sorted(groups), "directories": names}


def _why(log: str) -> str:
    """What ended a broker, in its own words: what it calls fatal, else the last thing that it said."""
    said = [line for line in log.splitlines() if ("Exception" in line or "ERROR" in line) and "\tat " not in line]
    fatal = next((at for at, line in enumerate(said) if "fatal fault" in line), len(said) - 3)
    return "\n".join(line[:400] for line in said[max(fatal, 0) :][:3])


def main(family: str) -> None:
    """Record a family."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        {"rocketmq": rocketmq, "kafka": kafka}[family](Path(work))


if __name__ == "__main__":
    main(sys.argv[1])
