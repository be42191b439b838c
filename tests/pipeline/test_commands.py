"""`stats`, `sql` and `export` on golden stores, against plain Python over the truth."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from fixtures import golden
from rmqctl import __version__
from tests.pipeline import truths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

STORE = "5.5.0-clean"


def output(result: Any, code: int = 0) -> Any:
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout)


def test_stats_are_those_of_plain_python(rmqctl: Any) -> None:
    found = output(rmqctl("stats", golden.pristine(STORE), "--split-size", "64K", "-o", "json"))
    true = truths.expected(STORE)
    by_topic = Counter(row["topic"] for row in true)
    size = defaultdict(int)
    for row in true:
        size[row["topic"]] += row["size"]
    (everything,) = found["all"]
    assert everything["records"] == len(true)
    assert everything["messages"] == sum(map(truths.messages_of, true))
    assert everything["bytes"] == sum(row["size"] for row in true)
    assert everything["body_bytes"] == sum(row["body_size"] for row in true)
    assert everything["body_bytes_decompressed"] == sum(row["body_size_decompressed"] for row in true)
    assert everything["bad_crc"] == 0
    assert {row["topic"]: (row["records"], row["bytes"]) for row in found["topic"]} == {
        topic: (count, size[topic]) for topic, count in by_topic.items()
    }
    queues = Counter((row["topic"], row["queue_id"]) for row in true)
    assert {(row["topic"], row["queue_id"]): row["records"] for row in found["queue"]} == queues
    assert {(r["topic"], r["tags"]): r["records"] for r in found["tag"]} == Counter(
        (r["topic"], r["tags"]) for r in true
    )
    assert {r["born_host"]: r["records"] for r in found["host"]} == Counter(r["born_host"] for r in true)
    hours = Counter(round(r["store_timestamp"].timestamp() * 1000) // 3_600_000 * 3_600_000 for r in true)
    assert {r["hour_timestamp"]: r["records"] for r in found["hour"]} == hours
    sizes = sorted(row["size"] for row in true)
    assert abs(everything["size_p50"] - sizes[len(sizes) // 2]) <= sizes[len(sizes) // 2] * 0.01 + 2
    assert sum(b["records"] for b in everything["size_histogram"]) == len(true)
    assert sum(b["records"] for b in everything["latency_histogram_ms"]) == len(true)


def test_stats_of_keys(rmqctl: Any, tmp_path: Path) -> None:
    page = tmp_path / "stats.html"
    found = output(rmqctl("stats", golden.pristine(STORE), "-o", "json", "--html", page))
    true = truths.expected(STORE)
    unique = Counter((row["topic"], row["unique_key"]) for row in true if row["unique_key"] is not None)
    twice: dict[str, list[int]] = defaultdict(list)
    for (topic, _), count in unique.items():
        if count > 1:
            twice[topic].append(count)
    assert {r["topic"]: (r["keys"], r["records"]) for r in found["duplicates"]} == {
        topic: (len(counts), sum(counts) - len(counts)) for topic, counts in twice.items()
    }
    keys = Counter((row["topic"], key) for row in true for key in row["keys"])
    best = sorted(keys.items(), key=lambda item: (-item[1], item[0]))[:20]
    assert [((r["topic"], r["key"]), r["records"]) for r in found["top_keys"]] == best
    text = page.read_text("utf-8")
    assert text.count('role="img"') == 3
    assert "http" not in text
    assert f" UTC by rmqctl {__version__} (in this process) of " in text
    assert str(golden.pristine(STORE)) in text


def test_stats_of_nothing(rmqctl: Any) -> None:
    result = rmqctl("stats", golden.pristine(STORE), "--topic", "nowhere", "--no-keys")
    assert result.exit_code == 1, result.stderr


def test_sql(rmqctl: Any) -> None:
    query = "select topic, count(*) n, sum(size) bytes, max(store_timestamp) last from messages group by topic order by topic"
    result = rmqctl("sql", golden.pristine(STORE), query, "-o", "jsonl")
    assert result.exit_code == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    expected: dict[str, list[int]] = {}
    for row in truths.expected(STORE):
        own = expected.setdefault(row["topic"], [0, 0, 0])
        own[0] += 1
        own[1] += row["size"]
        own[2] = max(own[2], round(row["store_timestamp"].timestamp() * 1000))
    assert [[r["topic"], r["n"], r["bytes"], r["last"]] for r in found] == [[t, *expected[t]] for t in sorted(expected)]


def test_findings_in_sql_are_those_of_verify(rmqctl: Any, golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.rocketmq.tables.tables.SPLIT_SIZE", 50_000)
    root = golden(STORE)
    log = max((root / "commitlog").iterdir())
    log.write_bytes(log.read_bytes()[:300] + bytes(500) + log.read_bytes()[800:])
    expected = output(rmqctl("verify", root, "-o", "json"), 1)["findings"]
    rows = output(rmqctl("sql", root, "select * from findings where size >= 0", "-o", "json"))
    assert [{k: v for k, v in row.items() if v is not None} for row in rows] == [
        {k: v for k, v in found.items() if k != "kind"} for found in expected
    ]
    assert len(expected) > 1


def test_sql_over_two_stores(rmqctl: Any) -> None:
    a, b = golden.pristine(STORE), golden.pristine("5.3.3-clean")
    query = "select (select count(*) from old_messages) o, (select count(*) from new_messages) n"
    assert output(rmqctl("sql", f"new={a}", f"old={b}", query, "-o", "json")) == [
        {"o": len(truths.expected("5.3.3-clean")), "n": len(truths.expected(STORE))}
    ]


def test_bad_sql_is_one_sentence(rmqctl: Any) -> None:
    for query, word in (
        ("selec 1", "selec"),
        ("select nothing from messages", "nothing"),
        ("select * from no_table", "no_table"),
    ):
        result = rmqctl("sql", golden.pristine(STORE), query)
        assert result.exit_code == 2, result.stderr
        assert word in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert "org.apache" not in result.stderr


def test_a_view_that_is_named_twice_is_not_narrowed_by_one_of_its_uses(rmqctl: Any) -> None:
    query = "select (select count(*) from messages where topic = 'LabLog') a, (select count(*) from messages) b"
    true = truths.expected(STORE)
    expected = [{"a": sum(row["topic"] == "LabLog" for row in true), "b": len(true)}]
    assert output(rmqctl("sql", golden.pristine(STORE), query, "-o", "json")) == expected


def contents(out: Path) -> dict[str, bytes]:
    """The files of an export by their paths in it."""
    data = (out / "data").resolve()
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*.parquet")}


def read_back(directory: Path, kind: str = "parquet") -> list[dict[str, Any]]:
    return ds.dataset(directory, format=kind, partitioning="hive").to_table().to_pylist()


def test_export_to_parquet_equals_truth(rmqctl: Any, spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = rmqctl("export", golden.pristine(STORE), out, "--split-size", "64K", "--engine", "spark")
    assert result.exit_code == 0, result.stderr
    rows = sorted(read_back(out), key=lambda row: row["physical_offset"])
    days = {row.pop("day") for row in rows}
    true = truths.expected(STORE)
    assert truths.comparable(rows) == [{k: row[k] for k in row} for row in true]
    assert days == {f"{row['store_timestamp']:%Y-%m-%d}" for row in true}
    assert not [path for path in out.iterdir() if path.name.startswith("_") and path.name != "_manifest.json"]
    manifest = json.loads((out / "_manifest.json").read_text())
    assert manifest["rows"] == len(true)
    assert {file["path"] for file in manifest["files"]} == {
        str(path.relative_to(out)) for path in out.rglob("*.parquet")
    }
    assert sorted(path.name for path in out.iterdir()) == ["_manifest.json", "data"]
    assert len(spark.read.parquet(str(out)).collect()) == len(true)


@pytest.mark.parametrize("to", ["orc", "csv", "jsonl"])
def test_other_formats(to: str, rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = rmqctl(
        "export", golden.pristine(STORE), out, "--to", to, "--partition-by", "none", "--columns",
        "topic,queue_id,queue_offset,properties,store_timestamp,body", *(() if to == "orc" else ("--compression", "none")),
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    true = truths.expected(STORE)
    assert len([p for p in out.rglob("*") if p.suffix == f".{to}"]) > 0
    if to == "orc":
        rows = read_back(out, "orc")
        assert sorted((r["topic"], r["queue_offset"]) for r in rows) == sorted(
            (r["topic"], r["queue_offset"]) for r in true
        )
    elif to == "jsonl":
        lines = [
            json.loads(line)
            for path in sorted(out.glob("data/*.jsonl"))
            for line in path.read_text("utf-8").splitlines()
        ]
        assert [(r["topic"], r["queue_offset"], r["properties"]) for r in lines] == [
            (r["topic"], r["queue_offset"], r["properties"]) for r in true
        ]
    else:
        csv.field_size_limit(1 << 30)
        texts = [path.read_bytes().decode("utf-8") for path in sorted(out.glob("data/*.csv"))]
        cells = [row for text in texts for row in csv.DictReader(io.StringIO(text, newline=""))]
        assert [(r["topic"], int(r["queue_offset"]), json.loads(r["properties"])) for r in cells] == [
            (r["topic"], r["queue_offset"], r["properties"]) for r in true
        ]


def test_an_export_that_exists_is_refused(rmqctl: Any, tmp_path: Path) -> None:
    out, store = tmp_path / "out", golden.pristine(STORE)
    assert rmqctl("export", store, out, "--body", "none").exit_code == 0
    refused = rmqctl("export", store, out, "--body", "none")
    assert (refused.exit_code, "--overwrite" in refused.stderr) == (13, True)
    assert rmqctl("export", store, out, "--body", "none", "--overwrite", "--topic", "LabLog").exit_code == 0
    assert {row["topic"] for row in read_back(out)} == {"LabLog"}
    refused = rmqctl("export", store, out, "--incremental")
    assert (refused.exit_code, "other options" in refused.stderr) == (13, True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("x")
    for options in ((), ("--overwrite",), ("--incremental",)):
        assert rmqctl("export", store, other, *options).exit_code == 13
    assert (other / "mine").read_text() == "x"


def test_incremental_export_adds_what_came_since(rmqctl: Any, tmp_path: Path) -> None:
    root, out = golden.unpack(STORE, tmp_path), tmp_path / "out"
    logs = sorted((root / "commitlog").iterdir())
    held = {path: path.read_bytes() for path in logs[2:]}
    for path in held:
        path.unlink()
    assert rmqctl("export", root, out, "--engine", "spark").exit_code == 0
    before = contents(out)
    for path, data in held.items():
        path.write_bytes(data)
    assert rmqctl("export", root, out, "--incremental").exit_code == 0
    assert before.items() < contents(out).items()
    rows = sorted(read_back(out), key=lambda row: row["physical_offset"])
    assert [row["physical_offset"] for row in rows] == [row["physical_offset"] for row in truths.expected(STORE)]
    result = rmqctl("export", root, out, "--incremental")
    assert result.exit_code == 1
    assert len(read_back(out)) == len(rows)


def test_an_export_goes_on_where_it_was_broken_off(
    rmqctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqctl.pipeline.export import Export

    out, whole = tmp_path / "out", tmp_path / "whole"
    store = golden.pristine(STORE)
    monkeypatch.setattr(Export, "_commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert rmqctl("export", store, out, "--split-size", "64K").exit_code == 130
    monkeypatch.undo()
    assert sorted(path.name[:6] for path in out.iterdir()) == [".data-", "_pendi"]
    notes = sorted(out.glob(".data-*/_done/*"))
    for note in notes[1:]:
        note.unlink()
    kept = {path.stat().st_ino for path in out.rglob(f"{notes[0].stem}.parquet.staged")}
    assert rmqctl("export", store, out, "--split-size", "64K").exit_code == 0
    assert rmqctl("export", store, whole, "--split-size", "64K").exit_code == 0
    assert kept <= {path.stat().st_ino for path in out.rglob("*.parquet")}
    assert contents(out) == contents(whole)


def test_a_job_tells_how_far_it_is(spark: SparkSession) -> None:
    from rmqctl.pipeline.jobs import Status, job
    from rmqctl.rocketmq.tables.columns import table_options
    from tests.benchmarks.topic_counts import topic_counts

    root, told = golden.pristine(STORE), list[Status]()
    options = table_options({"path": str(root), "splitSize": "64K"})
    with job(spark, "counting", told.append):
        rows = topic_counts(spark, options).collect()
    true = truths.expected(STORE)
    assert told[-1].messages == len(true)
    assert sum(row.messages for row in rows) == sum(map(truths.messages_of, true))
    assert sum(row.bytes for row in rows) <= told[-1].bytes <= sum(f.size for f in options.store().log_files)
    assert told[-1].done == told[-1].tasks > 1
