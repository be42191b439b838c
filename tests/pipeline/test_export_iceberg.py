"""Exports as Iceberg tables: killed at every step, on S3, in a catalog, with more columns, and as other readers see them."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.errors import IOFailure, Refused
from rmqctl.pipeline.export import Export, ExportChoices, here, on_spark
from rmqctl.pipeline.export_iceberg import iceberg_at
from rmqctl.pipeline.export_manifest import Bucket
from rmqctl.pipeline.outputs import LocalOutput
from rmqctl.tables import tables_of
from tests.pipeline import truths
from tests.pipeline.killing import killed
from tests.pipeline.test_export_commit import logs  # noqa: F401 - a fixture
from tests.pipeline.test_export_delta import bucket  # noqa: F401 - a fixture
from tests.power import Recorder

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install 'rmqctl[iceberg]'")
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform
from pyiceberg.types import IntegerType, NestedField, StringType, TimestamptzType

from rmqctl.pipeline import iceberg_catalog

STORE = "5.3.3-clean"
COLUMNS = ("physical_offset", "queue_id")
Logs = tuple[Path, Path, list[int], list[int]]


def export(root: Path, out: str, columns: tuple[str, ...] = COLUMNS, at: tuple[str, ...] = (), **choices: Any) -> int:
    asked = ExportChoices(columns=columns, split_size=200 << 10, **{"partition_by": ("topic", "day"), **choices})
    made = Export(tables_of("rocketmq", {"path": str(root)}), iceberg_at(out, *at), asked)
    return made.run(made.plan(1), here(1)).rows


def table(out: str, at: tuple[str, ...] = ()) -> Table | None:
    return iceberg_at(out, *at).place().table()


def rows(out: str, at: tuple[str, ...] = (), snapshot: int | None = None, where: Any = AlwaysTrue()) -> list[int]:  # noqa: B008
    """Places in a snapshot of the table; none where there is no table."""
    found = table(out, at)
    if found is None:
        return []
    id_ = None if snapshot is None else found.metadata.snapshots[snapshot].snapshot_id
    return sorted(found.scan(where, snapshot_id=id_).to_arrow().column("physical_offset").to_pylist())


def hinted(out: str) -> list[int]:
    """Places as a reader finds them that goes by the hint."""
    from pyiceberg.table import StaticTable

    if not (Path(out) / "metadata" / "version-hint.text").exists():
        return []
    found = StaticTable.from_metadata(out, {"py-io-impl": "rmqctl.pipeline.iceberg_catalog.Files"})
    return sorted(found.scan().to_arrow().column("physical_offset").to_pylist())


def killed_at(step: int) -> AbstractContextManager[list[int]]:
    """Nothing changes from a step on: neither files nor the table."""
    return killed(step, [
        (LocalOutput, "create"), (LocalOutput, "remove"), (LocalOutput, "claim"), (iceberg_catalog.Files, "new_output"),
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["first", "overwrite", "incremental"])
def test_a_kill_at_any_step_leaves_all_of_the_old_or_all_of_the_new(
    kind: str,
    logs: Logs,  # noqa: F811
    tmp_path: Path,
) -> None:
    short, grown, before, after = logs
    old = [] if kind == "first" else before
    choices = {} if kind == "first" else {kind: True}
    columns = (*COLUMNS, "size") if kind == "incremental" else COLUMNS
    step, is_over, seen = 0, False, set()
    while not is_over:
        out = str(tmp_path / f"out-{step}")
        if kind != "first":
            export(short, out)
        with killed_at(step) as tried:
            export(grown, out, columns, **choices)
        is_over = tried[0] <= step
        found = rows(out)
        assert found in (old, after), step
        assert hinted(out) in (old, found), step
        seen.add(len(found))
        if found:
            assert export(grown, out, columns, incremental=True) == len(after)
        else:
            export(grown, out, columns)
        assert rows(out) == hinted(out) == after, step
        made = table(out)
        assert made is not None
        used = {Path(task.file.file_path).relative_to(out).parts[0] for task in made.scan().plan_files()}
        kept = {path.name for path in Path(out).iterdir() if path.name.startswith("data-")}
        assert used <= kept <= used | {name for name in kept if name.startswith("data-1-") and kind == "overwrite"}
        assert not (Path(out) / "_pending.json").exists()
        shutil.rmtree(out)
        step += 1
    assert seen == {len(old), len(after)}


def test_what_readers_see(logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    short, grown, before, after = logs
    out = str(tmp_path / "out")
    export(short, out)
    more = (*COLUMNS, "size", "keys", "properties", "inner", "body")
    export(grown, out, more, incremental=True)
    assert (rows(out, snapshot=0), rows(out)) == (before, after)
    true = truths.expected(STORE)
    for found in (
        polars.scan_iceberg(table(out)).sort("physical_offset").collect().to_arrow().to_pylist(),
        polars.scan_iceberg(f"{out}/metadata/v2.metadata.json")
        .sort("physical_offset")
        .collect()
        .to_arrow()
        .to_pylist(),
        sorted(table(out).scan().to_arrow().to_pylist(), key=lambda row: row["physical_offset"]),
    ):
        assert [(row["physical_offset"], row["topic"], row["queue_id"]) for row in found] == [
            (row["physical_offset"], row["topic"], row["queue_id"]) for row in true
        ]
        assert [(row["size"], row["keys"]) for row in found] == [
            (row["size"], row["keys"]) if row["physical_offset"] not in before else (None, None) for row in true
        ]


def test_nested_columns_and_bodies(rmqctl: Any, tmp_path: Path) -> None:
    done = rmqctl("export", golden.pristine(STORE), tmp_path / "out", "--to", "iceberg")
    assert done.exit_code == 0, done.stderr
    found = table(str(tmp_path / "out")).scan().to_arrow().sort_by("physical_offset").to_pylist()
    assert truths.comparable(found) == truths.expected(STORE)


@pytest.mark.spark
def test_executors_write_the_files(spark: Any, logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    out = str(tmp_path / "out")
    for root, more in ((logs[0], {}), (logs[1], {"incremental": True})):
        asked = ExportChoices(columns=COLUMNS, split_size=200 << 10, partition_by=("bucket(topic,4)",), **more)
        made = Export(tables_of("rocketmq", {"path": str(root)}), iceberg_at(out), asked)
        made.run(made.plan(2), on_spark(spark))
    assert (rows(out), rows(out, snapshot=0)) == (logs[3], logs[2])


def test_conditions_leave_out_files_and_no_rows(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    out, true = str(tmp_path / "out"), truths.expected(STORE)
    export(logs[1], out, partition_by=("bucket(topic,8)", "hour"))
    whole = list(table(out).scan().plan_files())
    for topic in {row["topic"] for row in true}:
        wanted = [row["physical_offset"] for row in true if row["topic"] == topic]
        assert rows(out, where=EqualTo("topic", topic)) == wanted
        assert len(list(table(out).scan(EqualTo("topic", topic)).plan_files())) < len(whole)


def test_divisions_are_those_that_the_format_defines() -> None:
    from datetime import UTC, datetime

    from rmqctl.pipeline.export_iceberg import _value

    for text in ("", "orders", "%RETRY%g", "日本語", "🚀"):
        assert Bucket("topic", 64).number(text, in_iceberg=True) == BucketTransform(64).transform(StringType())(text)
    for number in (0, 3, -1, 1 << 30):
        assert Bucket("q", 7).number(number, in_iceberg=True) == BucketTransform(7).transform(IntegerType())(number)
    for at in (datetime(2026, 11, 21, 1, 59, tzinfo=UTC), datetime(1969, 12, 31, 23, 1, tzinfo=UTC)):
        moment = int(at.timestamp()) * 1_000_000
        for name, how in (("day", DayTransform()), ("hour", HourTransform())):
            text = at.strftime("%Y-%m-%d" if name == "day" else "%Y-%m-%dT%H")
            assert _value(name, text) == how.transform(TimestamptzType())(moment)


def test_all_is_on_the_disk_when_it_is_done(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    for root, columns, incremental in ((logs[0], COLUMNS, False), (logs[1], (*COLUMNS, "size"), True)):
        recorder = Recorder(tmp_path)
        with recorder.recording():
            export(root, str(tmp_path / "deep" / "out"), columns, incremental=incremental)
        assert recorder.unsafe() == []


def test_others_may_work_on_the_table(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    """The next export goes on from the last one: after commits of others, a rollback, and the end of old snapshots."""
    short, grown, before, after = logs
    out = str(tmp_path / "out")
    export(short, out)
    with table(out).update_schema() as change:
        change.add_column("noted_by_others", StringType())
    table(out).append(table(out).scan().to_arrow().slice(0, 0))  # a snapshot without our note
    export(grown, out, incremental=True)
    assert rows(out) == after
    made = table(out)
    first = made.metadata.snapshots[0].snapshot_id
    with made.manage_snapshots() as change:
        change.rollback_to_snapshot(first)
    assert rows(out) == before
    export(grown, out, incremental=True)
    assert rows(out) == after
    made = table(out)
    old = [one.snapshot_id for one in made.metadata.snapshots if one.snapshot_id != made.metadata.current_snapshot_id]
    made.append(made.scan().to_arrow().slice(0, 0))
    made.maintenance.expire_snapshots().by_ids([*old, made.metadata.snapshots[-2].snapshot_id]).commit()
    assert len(table(out).metadata.snapshots) == 1
    export(grown, out, incremental=True)
    assert rows(out) == after
    export(grown, out, overwrite=True)
    assert rows(out) == after


def test_what_others_rolled_back_and_let_expire_is_not_gone_on_from(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    """The property of the table tells of an export whose rows are gone, and no snapshot tells of the one before."""
    short, grown, before, after = logs
    out = str(tmp_path / "out")
    export(short, out)
    export(grown, out, incremental=True)
    first = min(table(out).metadata.snapshots, key=lambda one: one.sequence_number or 0).snapshot_id
    with table(out).manage_snapshots() as change:
        change.rollback_to_snapshot(first)
    table(out).append(table(out).scan().to_arrow().slice(0, 0))
    made = table(out)
    old = [one.snapshot_id for one in made.metadata.snapshots if one.snapshot_id != made.metadata.current_snapshot_id]
    made.maintenance.expire_snapshots().by_ids(old).commit()
    assert (rows(out), len(table(out).metadata.snapshots)) == (before, 1)
    with pytest.raises(Refused, match=rf"has {len(before)} rows, and had {len(after)} then; add --overwrite"):
        export(grown, out, incremental=True)
    export(grown, out, overwrite=True)
    assert rows(out) == after


def test_what_others_wrote_into_files_of_their_own_is_gone_on_from(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    short, grown, _, after = logs
    out = str(tmp_path / "out")
    export(short, out, partition_by=())
    table(out).overwrite(table(out).scan().to_arrow())
    made = table(out)
    old = [one.snapshot_id for one in made.metadata.snapshots if one.snapshot_id != made.metadata.current_snapshot_id]
    made.maintenance.expire_snapshots().by_ids(old).commit()
    export(grown, out, incremental=True, partition_by=())
    assert rows(out) == after


def test_tables_of_others_are_left_alone(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    out = str(tmp_path / "out")
    with (
        iceberg_at(out)
        .place()
        .catalog.create_table_transaction(("rmqctl", "table"), Schema(NestedField(1, "a", StringType())), out) as made
    ):
        made.set_properties(a="b")
    for choices in ({}, {"overwrite": True}, {"incremental": True}):
        with pytest.raises(Refused):
            export(logs[0], out, **choices)
    other = str(tmp_path / "other")
    export(logs[0], other)
    asked = ExportChoices(columns=COLUMNS, partition_by=(), overwrite=True)
    refused = Export(tables_of("rocketmq", {"path": str(logs[0])}), iceberg_at(other), asked)
    with pytest.raises(Refused, match=r"divided by topic \(identity of topic\), day \(day of store_timestamp\)"):
        refused.plan(1)  # before a file is written
    assert rows(other) == logs[2]


def test_columns_that_another_added_meanwhile(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    """Files have numbers of columns that the table gives to others now: no commit."""
    short, grown, before, after = logs
    out = str(tmp_path / "out")
    export(short, out)

    def meanwhile(task: Any, parts: list[Any]) -> None:
        here(1)(task, parts)
        with table(out).update_schema() as change:
            change.add_column("added", StringType())

    asked = ExportChoices(columns=(*COLUMNS, "size"), split_size=200 << 10, incremental=True)
    made = Export(tables_of("rocketmq", {"path": str(grown)}), iceberg_at(out), asked)
    with pytest.raises(Refused, match=r"columns of .* were changed by another"):
        made.run(made.plan(1), meanwhile)
    assert rows(out) == before
    export(grown, out, (*COLUMNS, "size"), incremental=True)
    assert rows(out) == after


def test_a_file_that_is_gone_is_no_table(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"

    def clearing(task: Any, parts: list[Any]) -> None:
        here(1)(task, parts)
        next(out.rglob("*.parquet")).unlink()

    made = Export(tables_of("rocketmq", {"path": str(logs[0])}), iceberg_at(str(out)), ExportChoices(columns=COLUMNS))
    with pytest.raises(IOFailure, match="is gone"):
        made.run(made.plan(1), clearing)
    assert rows(str(out)) == []


def test_in_a_catalog(logs: Logs, tmp_path: Path, rmqctl: Any) -> None:  # noqa: F811
    pytest.importorskip("sqlalchemy", reason="no catalog in a database: pip install 'rmqctl[iceberg]'")
    short, grown, before, after = logs
    at = (f"sqlite:///{tmp_path}/catalog.db", "mq.messages")
    out = str(tmp_path / "out")
    export(short, out, at=at)
    export(grown, out, at=at, incremental=True)
    assert (rows(out, at), rows(out, at, snapshot=0)) == (after, before)
    options = ("--to", "iceberg", "--catalog", at[0], "--table", at[1])
    elsewhere = rmqctl("export", grown, tmp_path / "other", *options)
    assert elsewhere.exit_code == 13
    assert f"lies in {out}, not in" in elsewhere.stderr
    broken = rmqctl("export", grown, tmp_path / "other", "--to", "iceberg", "--catalog", "nowhere", "--table", "a.b")
    assert broken.exit_code == 10
    assert broken.stderr.startswith("rmqctl: cannot use the catalog nowhere: ")


@pytest.mark.slow
def test_on_s3(logs: Logs, bucket: str) -> None:  # noqa: F811
    short, grown, before, after = logs
    out = f"{bucket}/table"
    export(short, out)
    assert rows(out) == before

    def meanwhile(task: Any, parts: list[Any]) -> None:
        with pytest.raises(Refused, match="another export is at work"):
            export(grown, out, incremental=True)
        here(1)(task, parts)

    asked = ExportChoices(columns=COLUMNS, split_size=200 << 10, incremental=True)
    made = Export(tables_of("rocketmq", {"path": str(grown)}), iceberg_at(out), asked)
    made.run(made.plan(1), meanwhile)
    assert (rows(out), rows(out, snapshot=0)) == (after, before)


def test_the_command(rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = rmqctl("export", golden.pristine(STORE), out, "--to", "iceberg", "--partition-by", "bucket(topic,3)")
    assert done.exit_code == 0, done.stderr
    assert len(rows(str(out))) == len(truths.expected(STORE))
    assert rmqctl("export", golden.pristine(STORE), out, "--to", "iceberg").exit_code == 13
    assert rmqctl("export", golden.pristine(STORE), out).exit_code == 13
    for wrong in (["--catalog", "x"], ["--table", "a.b"], ["--catalog", "x", "--table", "b"]):
        assert rmqctl("export", golden.pristine(STORE), tmp_path / "n", "--to", "iceberg", *wrong).exit_code == 2
    assert rmqctl("export", golden.pristine(STORE), tmp_path / "n", "--catalog", "x", "--table", "a.b").exit_code == 2


def test_an_export_without_rows_leaves_room_for_another(rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    nothing = rmqctl("export", golden.pristine(STORE), out, "--to", "iceberg", "--topic", "Nowhere")
    assert (nothing.exit_code, list(out.iterdir())) == (1, [])
    assert rmqctl("export", golden.pristine(STORE), out, "--to", "iceberg").exit_code == 0
    assert len(rows(str(out))) == len(truths.expected(STORE))


def test_kafka(rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = rmqctl(
        "export", golden.pristine("4.3.1-clean"), out, "--to", "iceberg", "--partition-by", "topic,partition,day"
    )
    assert done.exit_code == 0, done.stderr
    plain = rmqctl("export", golden.pristine("4.3.1-clean"), tmp_path / "plain", "--partition-by", "none", "-o", "json")
    assert table(str(out)).scan().count() == int(plain.stdout.split('"rows": ')[1].split(",")[0])
