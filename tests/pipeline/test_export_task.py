"""One task of an export, without Spark: its files hold the rows of their partitions, in log order."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fixtures import golden
from rmqctl.pipeline import export_task
from rmqctl.pipeline.export import Export, ExportChoices, here
from rmqctl.pipeline.export_manifest import ExportLayout
from rmqctl.pipeline.outputs import output_at
from rmqctl.rocketmq.tables.columns import table_options
from rmqctl.rocketmq.tables.message_table import MessageLog, MessageTable
from rmqctl.tables import tables_of
from tests.pipeline import truths

LAYOUTS = ((), ("topic",), ("topic", "day"), ("queue_id", "tags", "hour"))


def exported(name: str, out: Path, partition_by: tuple[str, ...]) -> Path:
    """Export a small store; the directory of its files."""
    work = Export(
        tables_of("rocketmq", {"path": str(golden.pristine(name))}),
        output_at(str(out)),
        ExportChoices(partition_by=partition_by),
    )
    work.run(work.plan(1), here(1))
    return out / "data"


def sorted_rows(table: Any) -> list[dict[str, Any]]:
    found = table.select(["physical_offset", "unique_key", "body", "properties"]).to_pylist()
    return sorted(found, key=lambda row: row["physical_offset"])


@pytest.mark.parametrize("partition_by", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("most", [1, 20_000, 1 << 30])
@pytest.mark.parametrize("name", ["5.3.3-clean", "4.9.8-crash"])
def test_files_hold_the_messages_of_their_partitions(
    name: str, most: int, partition_by: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_task, "MOST_BYTES", most)
    monkeypatch.setattr(export_task, "ROW_GROUP", 8 << 10)
    staged = exported(name, tmp_path / "out", partition_by)
    table = MessageTable(table_options({"path": str(golden.pristine(name))}))
    messages = [row for part in table.parts() for batch in table.read(part) for row in batch.to_pylist()]
    keys = ("physical_offset", "unique_key", "body", "properties")
    assert sorted_rows(ds.dataset(staged, format="parquet", exclude_invalid_files=True).to_table()) == [
        {key: row[key] for key in keys} for row in messages
    ]
    by_offset = {row["physical_offset"]: row for row in messages}
    for file in staged.rglob("*.parquet"):
        offsets = pq.read_table(file, columns=["physical_offset"], partitioning=None)["physical_offset"].to_pylist()
        assert offsets == sorted(offsets)
        values = {tuple(_value(by_offset[offset], column) for column in partition_by) for offset in offsets}
        assert len(values) == 1


def _value(row: dict[str, Any], column: str) -> Any:
    forms = {"day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}
    return row["store_timestamp"].strftime(forms[column]) if column in forms else row[column]


def test_many_partitions_make_no_small_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows wait in a file of their own when those of all partitions take too much memory."""
    monkeypatch.setattr(export_task, "ROW_GROUP", 20_000)
    monkeypatch.setattr(export_task, "MOST_BYTES", 10_000)
    staged = exported("5.5.0-clean", tmp_path / "out", ("topic", "queue_id"))
    files = list(staged.rglob("*.parquet"))
    assert len(files) > 10
    for file in files:
        groups = pq.ParquetFile(file).metadata
        sizes = [pq.ParquetFile(file).read_row_group(i).nbytes for i in range(groups.num_row_groups)]
        assert len(sizes) <= max(sum(sizes) // 20_000, 1)
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in files) == len(truths.expected("5.5.0-clean"))
    rows = [row for file in files for row in pq.ParquetFile(file).read(["physical_offset"]).column(0).to_pylist()]
    assert len(set(rows)) == len(rows)


@pytest.fixture
def tags_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other message has an empty tag, the rest none."""
    real = MessageLog.read

    def read(self: MessageLog, part: Any) -> Any:
        for batch in real(self, part):
            tags = pa.array(["" if n % 2 else None for n in range(batch.num_rows)], pa.string())
            yield batch.set_column(batch.schema.names.index("tags"), "tags", tags)

    monkeypatch.setattr(MessageLog, "read", read)


@pytest.mark.usefixtures("tags_of_nothing")
def test_what_is_null_and_what_is_empty_lie_in_one_directory_and_none_is_lost(tmp_path: Path) -> None:
    data = exported("5.3.3-clean", tmp_path / "out", ("tags",))
    assert [path.name for path in data.iterdir() if path.is_dir()] == ["tags=__HIVE_DEFAULT_PARTITION__"]
    assert ds.dataset(data, format="parquet", exclude_invalid_files=True).count_rows() == 951


@pytest.mark.usefixtures("tags_of_nothing")
def test_in_iceberg_they_are_two(tmp_path: Path) -> None:
    from rmqctl.pipeline.export_iceberg import iceberg_at

    output = iceberg_at(str(tmp_path / "out"))
    work = Export(
        tables_of("rocketmq", {"path": str(golden.pristine("5.3.3-clean"))}), output,
        ExportChoices(columns=("physical_offset", "tags"), partition_by=("tags",)),
    )  # fmt: skip
    work.run(work.plan(1), here(1))
    tags = output.place().table().scan().to_arrow().column("tags").to_pylist()  # type: ignore[attr-defined]
    log = tables_of("rocketmq", {"path": str(golden.pristine("5.3.3-clean"))}).log()
    parts = log.parts(log.begin(), log.end(growing=False))
    expected = [tag for part in parts for batch in log.read(part) for tag in batch.column("tags").to_pylist()]
    assert len(expected) == 951
    assert (tags.count(None), tags.count("")) == (expected.count(None), expected.count(""))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_is_made_of_a_few_rows_at_a_time(kind: str) -> None:
    """As objects of Python a row group takes several times its bytes."""
    rows = pa.table({f"column_{n}": pa.array(range(50_000)) for n in range(10)})
    layout = ExportLayout(kind, tuple(rows.column_names), "none", (), "zstd", 1 << 20)
    stream = io.BytesIO()
    tracemalloc.start()
    try:
        out = export_task.writer(layout, stream, rows.schema)
        out.write(rows)
        out.close()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 << 20, peak
    text = pa.input_stream(pa.BufferReader(stream.getvalue()), compression="zstd").read()
    assert text.count(b"\n") == len(rows) + (kind == "csv")
