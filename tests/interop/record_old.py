"""Make the golden stores of RocketMQ 3.2.6, and record its starts on damaged copies: ``python -m tests.interop.record_old``.

Writes ``fixtures/rocketmq/3.2.6-clean.*``, ``3.2.6-crash.*`` and ``3.2.6.recovery-oracle.json.xz``.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fixtures import damage, golden
from tests.interop.judge import class_path, java

RELEASE = "3.2.6"
SETTINGS = {
    "mapedFileSizeCommitLog": 32768, "mapedFileSizeConsumeQueue": 400, "maxHashSlotNum": 60, "maxIndexNum": 80,
    "flushDiskType": "ASYNC_FLUSH",
}  # fmt: skip
GEOMETRY = {"commitLogFileSize": 32768, "consumeQueueFileSize": 400, "indexHashSlots": 60, "indexMaxEntries": 80}
WORDS = [f"{name}={value}" for name, value in SETTINGS.items()]
PATIENCE = 300
Recipe = list[dict[str, Any]]


def command(work: Path, mode: str, *words: object) -> list[str]:
    """The command that runs a mode of ``OldBroker``."""
    classes, quiet = class_path(RELEASE, work, "OldBroker"), work / "quiet.xml"
    quiet.write_text('<configuration><root level="OFF"/></configuration>\n', "utf-8")
    options = ("-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", f"-Dlogback.configurationFile={quiet}")
    return java(classes, work / "home", "OldBroker", mode, *words, memory="512m", options=options)


def fill(root: Path, seed: int, work: Path, *, killed: bool) -> None:
    """Let a broker write; stopped in order, or killed while it writes."""
    with (work / f"fill-{seed}.log").open("wb") as log:
        process = subprocess.Popen(
            command(work, "fill", root, seed, *WORDS),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        if killed:
            process.stdin.write("\n")
            process.stdin.flush()
            while process.stdout.readline() != "40\n":
                pass
            process.kill()
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()


def judged(roots: list[Path], work: Path) -> dict[str, Any]:
    """What the store classes come to on each store, by its path."""
    done = subprocess.run(
        command(work, "judge", *WORDS),
        input="".join(f"{root}\n" for root in roots), capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["store"]: row["answer"] for row in rows}


def keep(root: Path, state: str, work: Path) -> None:
    """The files of one golden store."""
    name, into = root.name, golden.DIRECTORY
    with tarfile.open(into / f"{name}.tar.xz", "w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
        archive.add(root, name)
    done = subprocess.run(command(work, "truth", root), check=True, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    _pack(into / f"{name}.truth.jsonl.xz", "".join(f"{line}\n" for line in lines))
    copy = work / f"{name}-copy"
    golden.copy_tree(root, copy)
    _pack(
        into / f"{name}.oracle.json.xz",
        json.dumps({"name": name, "release": RELEASE, "store": judged([copy], work)[str(copy)]}),
    )
    end = next(row for line in lines if (row := json.loads(line))["kind"] == "end")
    document = {
        "name": name, "product": "RocketMQ (com.alibaba.rocketmq)", "release": RELEASE, "state": state,
        "provenance": "unmodified jars from Maven Central", "jvm": "OpenJDK 17", "timeZone": "UTC", "geometry": GEOMETRY,
        "madeBy": "name server, broker and clients of the release in one process", "brokerConfig": SETTINGS,
        "messages": sum(json.loads(line)["kind"] == "msg" for line in lines), "logEnd": end["phy"],
        "files": {
            str(path.relative_to(root)): {
                "size": path.stat().st_size, "mtime_ns": path.stat().st_mtime_ns,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in sorted(root.rglob("*")) if path.is_file()
        },
    }  # fmt: skip
    (into / f"{name}.manifest.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")


def _pack(file: Path, text: str) -> None:
    with lzma.open(file, "wt", encoding="utf-8", preset=9) as packed:
        packed.write(text)


# --- damage -------------------------------------------------------------------------------------------


def variants(name: str) -> Iterator[tuple[str, Recipe]]:
    """Names and recipes for a store."""
    rows = golden.truth(name)
    messages, (end,) = [r for r in rows if r["kind"] == "msg"], [r for r in rows if r["kind"] == "end"]
    files = sorted({row["file"] for row in messages})
    last = [row for row in messages if row["file"] == files[-1]]
    middle = [row for row in messages if row["file"] == files[-2]]
    yield "none", []
    for where, row in (
        ("mid", middle[len(middle) // 2]),
        ("first-file", messages[3]),
        ("last-file", last[len(last) // 2]),
        ("very-last-record", last[-1]),
    ):
        yield f"body-flip-{where}", [_write(row, 88 if row["storedBodyLen"] else 40, "ee")]
        yield f"totalsize-plus-64-{where}", [_write(row, 0, f"{row['storeSize'] + 64:08x}")]
        yield f"totalsize-minus-9-{where}", [_write(row, 0, f"{row['storeSize'] - 9:08x}")]
    row = last[len(last) // 2]
    for what, at, text in (
        ("totalsize-huge", 0, "7ffffff0"), ("totalsize-zero", 0, "00000000"), ("totalsize-minus-one", 0, "ffffffff"),
        ("totalsize-negative", 0, "80000010"), ("magic-flip", 7, "a3"), ("physicaloffset-wrong", 28, "00000000000004d2"),
        ("queueoffset-plus-5", 20, f"{row['queueOffset'] + 5:016x}"), ("queueoffset-zero", 20, f"{0:016x}"),
        ("bodylen-negative", 84, "ffffffff"), ("bodylen-huge", 84, "00100000"),
    ):  # fmt: skip
        yield f"{what}-last-file", [_write(row, at, text)]
    log = f"commitlog/{files[-1]}"
    yield "torn-tail", [{"op": "zero", "file": log, "offset": last[-1]["pos"] + 100, "length": 400}]
    yield "zero-page-last-file", [{"op": "zero", "file": log, "offset": 0, "length": 4096}]
    yield "garbage-behind-end", [{"op": "write", "file": log, "offset": end["pos"], "hex": "457c769f" * 30}]
    yield "delete-mid-file", [{"op": "delete", "file": f"commitlog/{files[-2]}"}]
    yield "delete-last-data-file", [{"op": "delete", "file": log}]
    yield "delete-commitlog-dir", [{"op": "rmtree", "path": "commitlog"}]
    yield "truncate-last-data-file", [{"op": "truncate", "file": log, "length": 5000}]
    yield "extra-file-in-commitlog", [{"op": "create", "file": "commitlog/notes.bak", "hex": "00" * 16}]
    yield "extra-file-right-size", [{"op": "create", "file": "commitlog/zz.bak", "hex": "", "length": 32768}]
    queue = "consumequeue/OldLog/0"
    queues = sorted(path.name for path in (golden.pristine(name) / queue).iterdir())
    yield "cq-one-queue-deleted", [{"op": "rmtree", "path": queue}]
    yield "cq-all-deleted", [{"op": "rmtree", "path": "consumequeue"}]
    yield "cq-last-file-deleted", [{"op": "delete", "file": f"{queue}/{queues[-1]}"}]
    yield "cq-first-file-deleted", [{"op": "delete", "file": f"{queue}/{queues[0]}"}]
    yield "cq-last-units-zeroed", [{"op": "zero", "file": f"{queue}/{queues[-1]}", "offset": 20, "length": 380}]
    yield "cq-file-wrong-length", [{"op": "truncate", "file": f"{queue}/{queues[-1]}", "length": 390}]
    yield "cq-queue-id-no-number", [{"op": "mkdir", "path": "consumequeue/OldLog/x"}]
    index = sorted(path.name for path in (golden.pristine(name) / "index").iterdir())
    yield "index-all-deleted", [{"op": "rmtree", "path": "index"}]
    yield "index-truncated", [{"op": "truncate", "file": f"index/{index[0]}", "length": 1000}]
    yield "checkpoint-deleted", [{"op": "delete", "file": "checkpoint"}]
    yield "checkpoint-zero+cq-all-deleted", [
        {"op": "zero", "file": "checkpoint", "offset": 0, "length": 4096}, {"op": "rmtree", "path": "consumequeue"}
    ]  # fmt: skip
    other: Recipe = (
        [{"op": "delete", "file": "abort"}]
        if name.endswith("crash")
        else [{"op": "create", "file": "abort", "hex": ""}]
    )
    yield "other-exit", other
    yield "other-exit+body-flip-last-file", [*other, _write(row, 88, "ee")]
    yield "other-exit+cq-all-deleted", [*other, {"op": "rmtree", "path": "consumequeue"}]


def _write(row: dict[str, Any], at: int, text: str) -> dict[str, Any]:
    return {"op": "write", "file": f"commitlog/{row['file']}", "offset": row["pos"] + at, "hex": text}


def recorded(work: Path) -> dict[str, Any]:
    """What the store classes did with every variant, twice; a difference between the two is said."""
    found: dict[str, Any] = {}
    for attempt in (1, 2):
        roots: dict[str, tuple[str, Recipe, Path]] = {}
        for state in ("crash", "clean"):
            for what, recipe in variants(f"{RELEASE}-{state}"):
                room = work / f"{attempt}-{state}-{what}"
                damage.apply(recipe, root := golden.unpack(f"{RELEASE}-{state}", room))
                roots[str(root)] = f"{state}/{what}", recipe, root
        before = {key: _files(root) for key, (_, _, root) in roots.items()}
        for key, answer in judged([root for _, _, root in roots.values()], work).items():
            name, recipe, root = roots[key]
            after = _files(root)
            answer["files"] = {
                "removed": sorted(before[key].keys() - after.keys()), "added": sorted(after.keys() - before[key].keys())
            }  # fmt: skip
            if attempt == 1:
                found[name] = {"base": f"{RELEASE}-{name.partition('/')[0]}", "recipe": recipe, "result": answer}
            elif (first := found[name]["result"]) != answer:
                found[name]["differsBetweenPasses"] = sorted(
                    k for k in {*first, *answer} if first.get(k) != answer.get(k)
                )
            shutil.rmtree(root.parent)
    return found


def _files(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}


def main() -> None:
    """Make and record everything."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as room:
        work = Path(room)
        root = work / f"{RELEASE}-clean"
        root.mkdir()
        fill(root, 1, work, killed=False)
        keep(root, "SIGTERM-like stop in order", work)
        root = root.rename(work / f"{RELEASE}-crash")
        fill(root, 2, work, killed=True)
        keep(root, "the clean store started again, about 200 more messages, SIGKILL while sending", work)
        document = {
            "product": "RocketMQ (com.alibaba.rocketmq)", "release": RELEASE, "geometry": GEOMETRY,
            "method": "DefaultMessageStore of the release: load, start without delivery of delayed messages, shutdown",
            "determinism": "two passes", "bases": [f"{RELEASE}-crash", f"{RELEASE}-clean"], "variants": recorded(work),
        }  # fmt: skip
        _pack(golden.DIRECTORY / f"{RELEASE}.recovery-oracle.json.xz", json.dumps(document))


if __name__ == "__main__":
    main()
