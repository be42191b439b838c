"""Make the golden log directories of a Kafka release, and record its starts on damaged copies.

``python -m tests.interop.record_kafka 4.4.0`` writes ``fixtures/kafka/4.4.0-clean.*`` and ``-crash.*``, and
``4.4.0.recovery-oracle.json.xz``: the variants of 4.3.1, each edit moved to the batch, segment or file that has the same
place in the directory of the other release.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fixtures import golden, kafka_damage
from formats.kafka.record_batch import FRAME_HEAD
from tests.interop.kafka_node import Brokers, Node, class_path, format_directory
from tests.interop.kafka_produced_helpers import SETTINGS as QUIET

SOURCE = "4.3.1"
"""The release whose variants are taken over."""
AT_ONCE = 12
WATCHED = ("plain-none-0", "txn-a-0")
BUSY: dict[str, Any] = {
    **QUIET, "log.cleaner.enable": "true", "log.cleaner.backoff.ms": 500, "log.cleaner.dedupe.buffer.size": 4194304,
    "log.initial.task.delay.ms": 500, "replica.high.watermark.checkpoint.interval.ms": 1000,
    "metadata.log.max.record.bytes.between.snapshots": 9000, "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2, "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1, "share.coordinator.state.topic.min.isr": 1,
    "num.io.threads": 2, "num.network.threads": 2, "background.threads": 2,
}  # fmt: skip
"""Settings of the broker that writes."""


def make(release: str, work: Path) -> None:
    """Both directories: stopped in order after a restart, and killed after another."""
    logs = work / f"{release}-clean"
    format_directory(release, logs, work)
    with Node(release, logs, work, BUSY) as node:
        node.ask("make", "fill", 1)
    with Node(release, logs, work, BUSY) as node:
        node.ask("make", "more", 2)
        node.ask("make", "oracle", work / "clean.json")
    keep(release, logs, work / "clean.json", "orderly stop", work)
    logs = logs.rename(work / f"{release}-crash")
    with Node(release, logs, work, BUSY) as node:
        node.ask("make", "more", 3)
        node.ask("make", "oracle", work / "crash.json")
        node.kill()
    keep(release, logs, work / "crash.json", "kill -9 after another start", work)


def keep(release: str, logs: Path, answers: Path, state: str, work: Path) -> None:
    """The files of one golden directory."""
    name, into = logs.name, golden.KAFKA_DIRECTORY
    with tarfile.open(into / f"{name}.tar.xz", "w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
        archive.add(logs, name, filter=_without_owner)
    done = subprocess.run(
        ["java", "-cp", class_path(release, work), "Truth", str(logs)], check=True, capture_output=True, text=True
    )
    _pack(into / f"{name}.truth.jsonl.xz", done.stdout)
    _pack(into / f"{name}.oracle.json.xz", answers.read_text("utf-8"))
    files = {
        str(path.relative_to(logs)): {
            "size": path.stat().st_size,
            "mtime_ns": path.stat().st_mtime_ns,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(logs.rglob("*"))
        if path.is_file()
    }
    document = {
        "name": name, "kafka": release, "jdk": "17", "state": state, "seed": 1,
        "made_by": "single KRaft node (kafka.Kafka), StorageTool format, Java client of the same version",
        "config": {key: str(value) for key, value in BUSY.items()}, "truth_lines": done.stdout.count("\n"), "files": files,
    }  # fmt: skip
    (into / f"{name}.manifest.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def _pack(file: Path, text: str) -> None:
    with lzma.open(file, "wt", encoding="utf-8", preset=9) as packed:
        packed.write(text)


# --- damage, moved to another directory ---------------------------------------------------------------


def moved(variant: dict[str, Any], old: Path, new: Path) -> list[dict[str, Any]] | None:
    """The edits of a variant for another directory; None where it has nothing of that kind."""
    recipe: list[dict[str, Any]] = []
    if "-all-" in variant["variant"] and "snapshot" in variant["variant"]:
        first = variant["recipe"][0]
        names = sorted(path.name for path in (new / Path(first["file"]).parent).glob("*.snapshot"))
        return [{**first, "file": f"{Path(first['file']).parent}/{name}"} for name in names]
    for edit in variant["recipe"]:
        found = _moved(edit, old, new)
        if found is None:
            return None
        recipe.append(found)
    return recipe


def _moved(edit: dict[str, Any], old: Path, new: Path) -> dict[str, Any] | None:
    found = dict(edit)
    for key in ("file", "to", "from"):
        if key in edit:
            found[key] = _renamed(edit[key], old, new)
    before, after = old / edit.get("from", edit["file"]), new / found.get("from", found["file"])
    if before.exists() and not after.exists():
        return None
    if before.suffix != ".log" or not before.is_file():
        size = after.stat().st_size if after.is_file() else 0
        at = edit.get("offset", edit["size"] - 1 if edit["op"] == "truncate" else -1)
        return found if at < size or edit["op"] not in {"set", "xor", "truncate"} else None
    if edit["op"] == "append_copy":
        position, size = _batch_like(before, after, edit["start"])[1]
        return {**found, "start": position, "count": size}
    for key in ("offset", "size"):
        if edit.get(key):
            (began, length), (position, size) = _batch_like(before, after, edit[key] - (key == "size"))
            delta = edit[key] - began
            found[key] = position + (delta if delta < 61 else max(61, size - (length - delta)))
            if key == "offset" and edit["op"] == "set" and delta in {0, 8}:
                found["hex"] = _number_like(
                    edit["hex"], before.read_bytes()[edit[key] :], after.read_bytes()[found[key] :]
                )
    return found


def _number_like(hexed: str, before: bytes, after: bytes) -> str:
    """The number that is written over another: as far from it as it was."""
    width = len(hexed) // 2
    value, was, now = (int.from_bytes(data[:width], "big") for data in (bytes.fromhex(hexed), before, after))
    return (
        hexed
        if abs(value - was) > 1 << 20 or (width == 4 and abs(value - was) > 16)
        else (value - was + now).to_bytes(width, "big").hex()
    )


def _renamed(file: str, old: Path, new: Path) -> str:
    directory, _, name = file.rpartition("/")
    stem, _, ending = name.partition(".")
    if not re.fullmatch(r"\d{20}", stem):
        return file
    kind = ending if ending in {"snapshot", "txnindex"} else "log"
    mine, theirs = (sorted(path.name[:20] for path in (root / directory).glob(f"*.{kind}")) for root in (old, new))
    if stem not in mine:
        return file
    place = mine.index(stem)
    back = len(mine) - place
    return f"{directory}/{theirs[-back] if back <= 2 else theirs[max(min(place, len(theirs) - 3), 0)]}.{ending}"


def _batch_like(before: Path, after: Path, offset: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Position and size of the batch at an offset of a log, and of that with the same place in another log."""
    mine, theirs = list(_batches(before)), list(_batches(after))
    number = next(number for number, (at, size) in enumerate(mine) if at <= offset < at + size)
    back = len(mine) - number
    return mine[number], theirs[-back] if back <= 2 else theirs[max(min(number, len(theirs) - 3), 0)]


def _batches(log: Path) -> Iterator[tuple[int, int]]:
    data, at = log.read_bytes(), 0
    while at + FRAME_HEAD <= len(data):
        size = FRAME_HEAD + int.from_bytes(data[at + 8 : at + 12], "big")
        yield at, size
        at += size


# --- starts -------------------------------------------------------------------------------------------


def starts(release: str, work: Path, done: Path) -> list[dict[str, Any]]:
    """What a broker did with every variant; a virtual machine for a few of them, as failed starts leave threads.

    Args:
        done: a file of answers, a line each, that is gone on with.
    """
    found = [json.loads(line) for line in done.read_text("utf-8").splitlines()] if done.exists() else []
    known, wanted = {answer["variant"] for answer in found}, list(variants(release))
    left = [pair for pair in wanted if pair[0]["variant"] not in known]
    for first in range(0, len(left), AT_ONCE):
        with Brokers(release, work, **QUIET) as brokers, done.open("a") as file:
            for variant, recipe in left[first : first + AT_ONCE]:
                answer = {
                    "variant": variant["variant"],
                    "recipe": recipe,
                    **judged(brokers, release, variant, recipe, work),
                }
                file.write(json.dumps(answer) + "\n")
                file.flush()
                found.append(answer)
                print(answer["outcome"], variant["outcome"], variant["variant"], flush=True)
    return found


def judged(
    brokers: Brokers, release: str, variant: dict[str, Any], recipe: list[dict[str, Any]], work: Path
) -> dict[str, Any]:
    """What a broker did with one variant; tried again where it is not what the other release did."""
    answer: dict[str, Any] = {}
    for attempt in (1, 2):  # threads that an earlier start left may disturb the first
        room = work / f"{time.monotonic_ns()}-{attempt}"
        root = golden.unpack(f"{release}-{variant['variant'].partition('/')[0]}", room)
        kafka_damage.apply(recipe, root)
        answer = _start(brokers, root, until_started=variant["outcome"] != "all logs loaded")
        if answer["started"] == variant["started"]:
            break
    return answer


def variants(release: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The variants of the other release, with the recipes for the directories of this one."""
    for variant in golden.recovery_oracle(SOURCE)["variants"]:
        base = variant["variant"].partition("/")[0]
        recipe = moved(variant, golden.pristine(f"{SOURCE}-{base}"), golden.pristine(f"{release}-{base}"))
        if recipe is None:
            print("nothing of the kind:", variant["variant"], flush=True)
            continue
        yield variant, recipe


def _start(brokers: Brokers, root: Path, *, until_started: bool) -> dict[str, Any]:
    before, after = root.with_name("before"), root.with_name("after")
    golden.copy_tree(root, before)
    if until_started:
        outcome = brokers.start(root)
        if outcome == "started":
            time.sleep(0.5)  # it writes its first files, a leader epoch among them
            shutil.copytree(root, after, ignore=shutil.ignore_patterns("*.tmp"))
            brokers.stop()
    else:
        outcome = brokers.load(root, after)
    document: dict[str, Any] = {"outcome": outcome, "started": outcome in {"started", "loaded"}}
    if not document["started"]:
        return document
    loads = re.finditer(
        r"Completed load of Log\(dir=[^,]*/([^,/]+), .* with (\d+) segments, .*log-start-offset (\d+) and log-end-offset (\d+)"
        r"|Completed load of Log\(dir=[^,]*/([^,/]+), .*logStartOffset=(\d+), logEndOffset=(\d+)\) with (\d+) segments",
        brokers.log,
    )
    document["loaded"] = {
        load[5]: {"logStartOffset": int(load[6]), "logEndOffset": int(load[7]), "segments": int(load[8])}
        for load in loads
        if load[5] in WATCHED
    }
    document["changes"] = {name: _changes(before / name, after / name) for name in WATCHED if (before / name).is_dir()}
    mine, theirs = ({path.name for path in place.iterdir() if path.is_dir()} for place in (before, after))
    document |= {"logdir_entries_added": sorted(theirs - mine), "logdir_entries_removed": sorted(mine - theirs)}
    return document


def _changes(before: Path, after: Path) -> dict[str, Any]:
    mine, theirs = (_contents(place) for place in (before, after))
    return {
        "deleted": sorted(mine.keys() - theirs.keys()),
        "created": {name: theirs[name] for name in sorted(theirs.keys() - mine.keys())},
        "changed": {n: {"after": theirs[n]} for n in sorted(mine.keys() & theirs.keys()) if mine[n] != theirs[n]},
    }


def _contents(directory: Path) -> dict[str, Any]:
    return {path.name: _content(path) for path in directory.iterdir()} if directory.is_dir() else {}


def _content(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    found: dict[str, Any] = {"size": len(data)}
    if path.suffix in {".index", ".timeindex"}:
        entry = 8 if path.suffix == ".index" else 12
        used = min(-(-len(data.rstrip(b"\0")) // entry), len(data) // entry)
        return {**found, "entries": used, "sha256_entries": hashlib.sha256(data[: used * entry]).hexdigest()[:24]}
    if path.name == "leader-epoch-checkpoint":
        found["text"] = data.decode("utf-8", "replace")
    return {**found, "sha256": hashlib.sha256(data).hexdigest()[:24]}


def main(release: str) -> None:
    """Make and record everything."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        if not (golden.KAFKA_DIRECTORY / f"{release}-crash.tar.xz").exists():
            make(release, Path(work))
        document = {
            "kafka": release, "jdk": "17", "watched_partitions": WATCHED,
            "variants": starts(release, Path(work), Path(tempfile.gettempdir()) / f"starts-{release}.jsonl"),
            "base": {state: f"{release}-{state}.tar.xz" for state in ("crash", "clean")},
        }  # fmt: skip
        _pack(golden.KAFKA_DIRECTORY / f"{release}.recovery-oracle.json.xz", json.dumps(document))


if __name__ == "__main__":
    main(sys.argv[1])
