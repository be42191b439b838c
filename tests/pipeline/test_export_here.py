"""`export` without Spark: the command, many topics, several stores, and patterns that readers use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from fixtures import golden
from rmqctl.errors import IOFailure
from rmqctl.pipeline.export import Export, ExportChoices, here
from rmqctl.pipeline.outputs import output_at
from rmqctl.tables import tables_of
from tests.pipeline import truths

STORE, OTHER = "5.3.3-clean", "5.5.0-clean"


def counted(pattern: str) -> tuple[int, int]:
    """Rows and different places that DuckDB finds by a pattern, which looks into hidden directories."""
    query = f"select count(*), count(distinct physical_offset) from read_parquet('{pattern}')"
    return duckdb.sql(query).fetchall()[0]


def test_any_pattern_counts_each_row_once(rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert rmqctl("export", golden.pristine(STORE), out, "--split-size", "200K").exit_code == 0
    true = len(truths.expected(STORE))
    for pattern in ("**/*.parquet", "*/*/*/*.parquet", "data/**/*.parquet"):
        assert counted(f"{out}/{pattern}") == (true, true), pattern
    assert len(list(out.rglob("*.parquet"))) == len(list(out.glob("*/*/*/*.parquet")))
    assert rmqctl("export", golden.pristine(STORE), out, "--overwrite", "--topic", "LabLog").exit_code == 0
    few = sum(row["topic"] == "LabLog" for row in truths.expected(STORE))
    assert counted(f"{out}/**/*.parquet") == (few, few)


@pytest.mark.parametrize("compression", ["zstd", "none"])
@pytest.mark.parametrize("to", ["csv", "jsonl"])
def test_text(to: str, compression: str, rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--to", to, "--compression", compression, "-o", "json")
    done = rmqctl("export", golden.pristine(STORE), out, *options)
    assert done.exit_code == 0, done.stderr
    files = {out / file["path"]: file["size"] for file in json.loads(done.stdout)["files"]}
    assert {path: path.stat().st_size for path in files} == files
    reader = "read_csv" if to == "csv" else "read_json"
    places = duckdb.sql(f"select physical_offset from {reader}({[str(path) for path in files]})").fetchall()
    assert sorted(place for (place,) in places) == sorted(row["physical_offset"] for row in truths.expected(STORE))


def test_buckets_and_compaction(rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--partition-by", "bucket(topic,3)", "--split-size", "64K", "--body", "none")
    assert rmqctl("export", golden.pristine(STORE), out, *options).exit_code == 0
    many = list(out.rglob("*.parquet"))
    assert {path.parent.name for path in many} <= {f"topic_bucket={number}" for number in range(3)}
    for path in many:
        topics = pq.ParquetFile(path).read(["topic"]).column(0).to_pylist()
        assert topics == sorted(topics)
    nothing_new = rmqctl("export", golden.pristine(STORE), out, *options, "--incremental", "--compact", "-o", "json")
    assert nothing_new.exit_code == 0, nothing_new.stderr
    manifest = json.loads(nothing_new.stdout)
    few = list(out.rglob("*.parquet"))
    assert len(few) == len({path.parent for path in few}) < len(many)
    assert {file["path"] for file in manifest["files"]} == {str(path.relative_to(out)) for path in few}
    true = truths.expected(STORE)
    assert counted(f"{out}/**/*.parquet") == (len(true), len(true))
    assert manifest["rows"] == len(true)
    rows = [row for path in few for row in pq.ParquetFile(path).read(["physical_offset", "topic"]).to_pylist()]
    assert {row["physical_offset"]: row["topic"] for row in rows} == {r["physical_offset"]: r["topic"] for r in true}
    again = rmqctl("export", golden.pristine(STORE), out, *options, "--incremental", "--compact")
    assert again.exit_code == 1


def test_several_stores_in_one_export(rmqctl: Any, tmp_path: Path) -> None:
    out, gone = tmp_path / "out", tmp_path / "gone"
    gone.mkdir()
    stores = (golden.pristine(STORE), golden.pristine(OTHER))
    done = rmqctl("export", *stores, gone, out, "--partition-by", "store")
    assert done.exit_code == 1, done.stderr
    assert "gone" in done.stderr
    query = f"select store, count(*) from read_parquet('{out}/**/*.parquet', hive_partitioning=true) group by all"
    expected = {name: len(truths.expected(name)) for name in (STORE, OTHER)}
    assert {Path(store).name: count for store, count in duckdb.sql(query).fetchall()} == expected
    assert rmqctl("export", *stores, out, "--incremental", "--partition-by", "store").exit_code == 1  # nothing new


@pytest.mark.parametrize("family", ["rocketmq", "kafkalog"])
def test_a_file_that_retention_deletes_meanwhile_is_an_error(family: str, rmqctl: Any, tmp_path: Path) -> None:
    root, out = tmp_path / "store", tmp_path / "out"
    made = rmqctl(
        "produce", root, "--topic", "T", "--count", "900", "--size", "200", "--small", "--yes", "--format",
        family.removesuffix("log"),
    )  # fmt: skip
    assert made.exit_code == 0, made.stderr

    def work(task: Any, parts: list[Any]) -> None:
        min(path for path in root.glob("*/*") if path.name.strip("0") in {"", ".log"} and path.stat().st_size).unlink()
        here(1)(task, parts)

    export = Export(tables_of(family, {"path": str(root)}), output_at(str(out)), ExportChoices())
    with pytest.raises(IOFailure, match="deleted after the work was planned"):
        export.run(export.plan(1), work)
    assert not list(out.rglob("*.parquet"))


@pytest.mark.parametrize("how", ["--overwrite", "--incremental"])
def test_files_of_others_among_those_of_an_export_are_not_deleted(how: str, rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert rmqctl("export", golden.pristine(STORE), out, "--topic", "LabLog").exit_code == 0
    mine = out / "data" / "topic=LabLog" / "mine.txt"
    mine.write_text("mine")
    refused = rmqctl("export", golden.pristine(STORE), out, "--topic", "LabLog", how)
    assert (refused.exit_code, str(mine) in refused.stderr, mine.read_text()) == (13, True, "mine")
    mine.unlink()
    assert rmqctl("export", golden.pristine(STORE), out, "--topic", "LabLog", "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--to", "orc", "--compact"), "--compact"),
        (("--partition-by", "bucket(size,3)"), "bucket(topic,64)"),
        (("--partition-by", "bucket(topic,99999999999)"), "bucket(topic,64)"),
        (("--partition-by", "bucket(topic,\N{SUPERSCRIPT TWO})"), "bucket(topic,64)"),
        (("--partition-by", "topic,day,topic"), "names topic more than once"),
        (("--partition-by", "bucket(topic,3),bucket(topic,4)"), "names topic_bucket more than once"),
        (("--engine", "local", "--master", "local[2]"), "--engine"),
    ],
)
def test_wrong_options_are_one_sentence(options: tuple[str, ...], words: str, rmqctl: Any, tmp_path: Path) -> None:
    refused = rmqctl("export", golden.pristine(STORE), tmp_path / "out", *options)
    assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr
