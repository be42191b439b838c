"""Exports as Delta tables: killed at every step, on S3, with more columns, and as other readers see them."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import fsspec
import pytest

from fixtures import golden
from rmqctl.errors import IOFailure, Refused
from rmqctl.pipeline.export import Export, ExportChoices, here
from rmqctl.pipeline.export_delta import _options, delta_at
from rmqctl.pipeline.outputs import LocalOutput
from rmqctl.tables import tables_of
from tests.pipeline import truths
from tests.pipeline.killing import killed
from tests.pipeline.test_export_commit import logs  # noqa: F401 - a fixture
from tests.power import Recorder

STORE = "5.3.3-clean"
COLUMNS = ("physical_offset", "queue_id")
Logs = tuple[Path, Path, list[int], list[int]]


def export(root: Path, out: str, columns: tuple[str, ...] = COLUMNS, **choices: Any) -> int:
    asked = ExportChoices(columns=columns, split_size=200 << 10, partition_by=("topic", "day"), **choices)
    made = Export(tables_of("rocketmq", {"path": str(root)}), delta_at(out), asked)
    return made.run(made.plan(1), here(1)).rows


def rows(out: str, version: int | None = None) -> list[int]:
    """Places as DuckDB finds them in a version of the table; none where there is no table."""
    options = _options(out)
    if not deltalake.DeltaTable.is_deltatable(out, options):
        return []
    table = deltalake.DeltaTable(out, version=version, storage_options=options)
    found = table.to_pyarrow_dataset()  # noqa: F841 - the query's
    return sorted(place for (place,) in duckdb.sql("select physical_offset from found").fetchall())


def killed_at(step: int) -> AbstractContextManager[list[int]]:
    """Nothing changes from a step on: neither files nor the table."""
    return killed(step, [
        (LocalOutput, "create"), (LocalOutput, "remove"), (deltalake.DeltaTable, "create_write_transaction"),
        (deltalake.transaction, "create_table_with_add_actions"), (deltalake.table.TableAlterer, "add_columns"),
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
        seen.add(len(found))
        if found:
            assert export(grown, out, columns, incremental=True) == len(after)
        else:
            export(grown, out, columns)
        assert rows(out) == after, step
        used = {Path(uri).relative_to(out).parts[0] for uri in deltalake.DeltaTable(out).file_uris()}
        kept = {path.name for path in Path(out).iterdir() if path.name.startswith("data-")}
        assert used <= kept <= used | {name for name in kept if name.startswith("data-1-") and kind == "overwrite"}
        assert not (Path(out) / "_pending.json").exists()
        shutil.rmtree(out)
        step += 1
    assert seen == {len(old), len(after)}


def test_what_other_readers_see(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    short, grown, before, after = logs
    out = str(tmp_path / "out")
    export(short, out)
    export(grown, out, (*COLUMNS, "size", "body"), incremental=True)
    assert (rows(out, version=0), rows(out)) == (before, after)
    true = truths.expected(STORE)
    found = polars.scan_delta(out).sort("physical_offset").collect().to_dicts()
    assert [(row["physical_offset"], row["topic"], row["queue_id"]) for row in found] == [
        (row["physical_offset"], row["topic"], row["queue_id"]) for row in true
    ]
    assert {str(row["day"]) for row in found} == {f"{row['store_timestamp']:%Y-%m-%d}" for row in true}
    assert [row["size"] for row in found] == [
        row["size"] if row["physical_offset"] not in before else None for row in true
    ]


def test_all_is_on_the_disk_when_it_is_done(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    for root, columns, incremental in ((logs[0], COLUMNS, False), (logs[1], (*COLUMNS, "size"), True)):
        recorder = Recorder(tmp_path)
        with recorder.recording():
            export(root, str(tmp_path / "deep" / "out"), columns, incremental=incremental)
        assert recorder.unsafe() == []


def test_others_may_work_on_the_table(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    """The next export goes on from the last one, whatever was committed since."""
    short, grown, before, after = logs
    out = str(tmp_path / "out")
    export(short, out)
    deltalake.DeltaTable(out).optimize.compact()
    deltalake.DeltaTable(out).create_checkpoint()
    assert rows(out) == before
    export(grown, out, incremental=True)
    assert rows(out) == after
    export(grown, out, overwrite=True)
    assert rows(out) == after


def test_what_was_restored_is_gone_on_from(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    """A version that others restored, by its number or by a time, lacks the exports after it."""
    short, grown, before, after = logs
    out = str(tmp_path / "out")
    export(short, out)
    export(grown, out, incremental=True)
    for number in range(2):
        history = deltalake.DeltaTable(out).history()
        first = min(history, key=lambda commit: commit["version"])
        when = datetime.fromtimestamp(first["timestamp"] / 1000, UTC)
        deltalake.DeltaTable(out).restore([first["version"], when][number])
        if number:  # and restored again, by a commit of another
            deltalake.DeltaTable(out).optimize.compact()
        assert rows(out) == before
        export(grown, out, incremental=True)
        assert rows(out) == after


def test_a_version_restored_by_an_unknown_time_is_not_gone_on_from(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    export(logs[0], str(out))
    commit = {"timestamp": 1, "operation": "RESTORE", "operationParameters": {"timestamp": "2026-11-21 10:00:00"}}
    (out / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"commitInfo": commit}))  # as Spark notes it
    with pytest.raises(Refused, match=r"version 1 restored an earlier one, and does not say which; add --overwrite"):
        export(logs[1], str(out), incremental=True)
    export(logs[1], str(out), overwrite=True)
    assert rows(str(out)) == logs[3]
    export(logs[1], str(out), incremental=True)


def test_tables_of_others_are_left_alone(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    import pyarrow as pa

    out = str(tmp_path / "out")
    deltalake.write_deltalake(out, pa.table({"a": [1]}))
    for choices in ({}, {"overwrite": True}, {"incremental": True}):
        with pytest.raises(Refused):
            export(logs[0], out, **choices)
    other = str(tmp_path / "other")
    export(logs[0], other)
    asked = ExportChoices(columns=COLUMNS, partition_by=(), overwrite=True)
    made = Export(tables_of("rocketmq", {"path": str(logs[0])}), delta_at(other), asked)
    with pytest.raises(Refused, match="divided by topic, day"):
        made.plan(1)  # before a file is written
    assert rows(other) == logs[2]


def test_a_file_that_is_gone_is_no_table(logs: Logs, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"

    def clearing(task: Any, parts: list[Any]) -> None:
        here(1)(task, parts)
        next(out.rglob("*.parquet")).unlink()

    made = Export(tables_of("rocketmq", {"path": str(logs[0])}), delta_at(str(out)), ExportChoices(columns=COLUMNS))
    with pytest.raises(IOFailure, match="is gone"):
        made.run(made.plan(1), clearing)
    assert rows(str(out)) == []


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of an emulator in a process of its own: the library holds Python's lock while it asks."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'rmqctl[s3]'")
    pytest.importorskip("moto.server", reason="no S3 emulator: pip install 'moto[server]'")
    pytest.importorskip("flask", reason="the S3 emulator is not whole: pip install 'moto[server]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        settings = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "test", "secret": "test"}
        monkeypatch.setitem(fsspec.config.conf, "s3", settings)
        s3fs.S3FileSystem(**settings).mkdir("bucket-of-tables")
        yield "s3://bucket-of-tables"
    finally:
        server.kill()
        server.wait()


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
    made = Export(tables_of("rocketmq", {"path": str(grown)}), delta_at(out), asked)
    made.run(made.plan(1), meanwhile)
    assert (rows(out), rows(out, version=0)) == (after, before)


def test_the_command(rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = rmqctl("export", golden.pristine(STORE), out, "--to", "delta", "--partition-by", "bucket(topic,3)")
    assert done.exit_code == 0, done.stderr
    assert len(rows(str(out))) == len(truths.expected(STORE))
    assert rmqctl("export", golden.pristine(STORE), out, "--to", "delta").exit_code == 13
    assert rmqctl("export", golden.pristine(STORE), out).exit_code == 13


def test_an_export_without_rows_leaves_room_for_another(rmqctl: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    nothing = rmqctl("export", golden.pristine(STORE), out, "--to", "delta", "--topic", "Nowhere")
    assert (nothing.exit_code, list(out.iterdir())) == (1, [])
    assert rmqctl("export", golden.pristine(STORE), out, "--to", "delta").exit_code == 0
    assert len(rows(str(out))) == len(truths.expected(STORE))
