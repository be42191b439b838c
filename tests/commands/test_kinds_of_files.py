"""What kind a file is has one answer: rows, annotated bytes and `verify` agree on files with odd names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.local import LocalFile
from rmqctl.kafka.directory.file_names import meaning_of
from rmqctl.rocketmq.dump.kinds import kind_of
from tests.conftest import Rmqctl

OFFSET, LOG, UNITS = f"{0:020d}", "commitlog/00000000000000131072", "consumequeue/LabOrders/0/00000000000000000000"
QUEUE = UNITS.rpartition("/")[0]

ODD = [
    ("config/foo.txt", b"hello world\n", None, "gap", None),
    ("config/bar", "config/topics.json", "config", "config", None),
    ("config/x.json.bak", "config/topics.json", "config", "config", None),
    ("config/readme.json", b"not at all", "finding", "config", "config.unreadable"),
    ("config/timermetrics", b"{}", "config", "config", None),
    ("index/readme", b"hello world, this is no index\n" * 3, "index_header", "header", "index.file-name"),
    ("index/copy", "index", "index_header", "header", "index.file-name"),
    ("index/20240101000000000.bak", "index", "index_header", "header", "index.file-name"),
    ("index/20240101000000000", b"text", "finding", "header", "index.file-length"),
    (f"{QUEUE}/x", b"hello world", None, "gap", "queue.file-name"),
    (f"{QUEUE}/copy", UNITS, "queue_unit", "unit", "queue.file-name"),
    (f"{QUEUE}/{OFFSET}.bak", UNITS, "queue_unit", "unit", "queue.file-name"),
    (f"consumequeue/T/x/{OFFSET}", UNITS, "queue_unit", "unit", None),
    ("consumequeue/T/y", b"text", None, "gap", "file.stray"),
    ("commitlog/abc", b"hello", None, "gap", "log.file-name"),
    ("commitlog/copy", LOG, "message", "message", "log.file-name"),
    (f"{LOG}.bak", LOG, "message", "message", "log.file-name"),
    ("timerlog/abc", b"x" * 60, None, "gap", "file.stray"),
    ("dledger-x/checkpoint", b"no numbers", "checkpoint", "checkpoint", None),
    (f"compaction/compactionLog/T/0/{OFFSET}.bak", LOG, "message", "message", None),
    ("checkpoint.bak", "checkpoint", "checkpoint", "checkpoint", None),
    ("notes.txt", b"hi", None, "gap", None),
]
"""Where a file lies, what it holds (bytes, or those of a file of the store), the first row of `dump`, the first group of
its annotated bytes, and what `verify` finds."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = golden.unpack("4.9.8-crash", tmp_path_factory.mktemp("store"))
    index = min((root / "index").iterdir()).read_bytes()
    contents = {
        name: content if isinstance(content, bytes) else index if content == "index" else (root / content).read_bytes()
        for name, content, *_ in ODD
    }
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "index" / "20250101000000000").mkdir()
    return root


@pytest.mark.parametrize(("name", "content", "row", "group", "finding"), ODD, ids=[name for name, *_ in ODD])
def test_rows_and_annotated_bytes_agree(
    name: str, content: object, row: str | None, group: str, finding: str | None, store: Path, rmqctl: Rmqctl
) -> None:
    rows, annotated = rmqctl("dump", store / name, "-o", "jsonl"), rmqctl("dump", store / name, "-o", "hex")
    kinds = [json.loads(line)["kind"] for line in rows.stdout.splitlines()]
    assert (rows.exit_code, kinds[:1]) == ((11, []) if row is None else (int("finding" in kinds), [row]))
    notes = annotated.stdout.splitlines()[1]
    assert group in notes.split("|")[2].split() + notes.split("|")[2].split("(")
    assert (kind_of(name, LocalFile(store / name)) is None) == (group == "gap") == (row is None)


def test_verify_says_so_too(store: Path, rmqctl: Rmqctl) -> None:
    found = json.loads(rmqctl("verify", store, "-o", "json").stdout)["findings"]
    said = {f["file"]: f["id"] for f in found}
    assert {name: said.get(name) for name, *_ in ODD} == {name: finding for name, *_, finding in ODD}
    assert "index/20250101000000000" in said


def test_a_directory_in_the_place_of_a_file_holds_no_rows(store: Path, rmqctl: Rmqctl) -> None:
    for form in ("jsonl", "hex"):
        result = rmqctl("dump", store / "index" / "20250101000000000", "-o", form)
        assert (result.exit_code, result.stdout) == (0, "")


KAFKA = [
    ("T-0/x.log", "log", "batch", "batch"),
    ("T-0/000.log.swp", "other", "batch", "batch"),  # by its content
    (f"T-0/{OFFSET}.log.swap", "log", "batch", "batch"),
    (f"T-0/{OFFSET}.timeindex.deleted", "timeindex", "time_index_entry", "entry"),
    (f"T-0/{10**19}.log", "log", "batch", "batch"),
    ("T-0/z.index", "index", "finding", "entry"),
    ("T-0/copy", "other", "batch", "batch"),
    ("T-0/notes.txt", "other", None, "gap"),
    ("meta.properties.bak", "other", None, "gap"),
]


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from click.testing import CliRunner

    from commands import cli

    root = tmp_path_factory.mktemp("kafka") / "logs"
    words = ["--format", "kafka", "--topic", "T", "--count", "50", "--small"]
    assert CliRunner().invoke(cli, ["produce", str(root), *words]).exit_code == 0
    contents = {
        "batch": (root / "T-0" / f"{OFFSET}.log").read_bytes(),
        "time_index_entry": (root / "T-0" / f"{OFFSET}.timeindex").read_bytes(),
    }
    for name, _, row, _ in KAFKA:
        (root / name).write_bytes(contents.get(row or "", b"abc"))
    return root


@pytest.mark.parametrize(("name", "kind", "row", "group"), KAFKA, ids=[name for name, *_ in KAFKA])
def test_rows_and_annotated_bytes_of_kafka_agree(
    name: str, kind: str, row: str | None, group: str, log_directory: Path, rmqctl: Rmqctl
) -> None:
    assert meaning_of(name.rpartition("/")[2]).kind == kind
    rows, annotated = (rmqctl("dump", log_directory / name, "-o", form) for form in ("jsonl", "hex"))
    kinds = [json.loads(line)["kind"] for line in rows.stdout.splitlines()]
    assert (rows.exit_code, kinds[:1]) == ((11, []) if row is None else (int("finding" in kinds), [row]))
    assert annotated.stdout.splitlines()[1].split("|")[2].split("(")[0].split()[0] == group
