"""Kafka's tables on Spark: the format ``kafkalog``, SQL over both families, streams, statistics, exports, verification."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from fixtures import golden
from rmqctl import pipeline
from rmqctl.errors import Refused
from rmqctl.opening import open_store
from rmqctl.pipeline import stats
from rmqctl.pipeline.data_source import Following, places_of
from rmqctl.pipeline.export import Export, ExportChoices
from rmqctl.pipeline.export_task import ExportTask
from rmqctl.pipeline.local_sql import LocalQueries
from rmqctl.pipeline.mounted import Mounted
from rmqctl.pipeline.outputs import output_at
from rmqctl.tables import LostMessages, Places, StreamStart, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA, ROCKETMQ = "4.3.1-clean", "5.5.0-clean"
Key = tuple[str, int, int]

QUERIES = [
    "select topic, partition, count(*) n, sum(batch_size) b, max(timestamp) t from k_records group by 1, 2 order by 1, 2",
    "select * from k_records order by topic, partition, offset",
    "select * from k_batches order by file, position",
    "select * from k_topics order by topic, partition",
    "select * from k_findings order by id, file, offset, message",
    "select * from k_consumer_offsets order by 1, 2, 3",
    "select transactional_id, state, partitions from k_transactions order by 1, producer_id",
    "select offset, key, value, headers from k_records where file like 'z-zstd-0%' and offset < 20 order by 1",
    "select count(*) from k_records where timestamp >= '2020-01-01' and topic in ('idem', 'z-gzip')",
    "select compression, count(distinct producer_id), sum(size) from k_records group by 1 order by 1",
    "select topic, 'rocketmq' f from r_topics union select topic, 'kafka' from k_topics order by 1, 2",
    "select (select count(*) from r_messages) a, (select count(*) from k_records) b",
    "select r.topic, k.topic from r_topics r join k_topics k on r.queue_id = k.partition order by 1, 2 limit 50",
]


def rows_of(store: str, path: Path, table: str, **options: str) -> list[dict[str, Any]]:
    source = tables_of(store, {"path": str(path), **options}).table(table)
    return [row for part in source.parts() for batch in source.read(part) for row in batch.to_pylist()]


@pytest.mark.spark
def test_both_engines_give_the_same_over_both_families(spark: SparkSession) -> None:
    from rmqctl.pipeline.queries import SparkQueries, rows

    mounted = [
        Mounted("r_", {"path": str(golden.pristine(ROCKETMQ))}),
        Mounted("k_", {"path": str(golden.pristine(KAFKA))}, "kafkalog"),
    ]
    local, on_spark = LocalQueries(mounted), SparkQueries(spark, mounted)
    for text in QUERIES:
        expected = list(rows(on_spark.query(text)))
        assert list(local.rows(text)) == expected, text
        assert expected or "findings" in text, text


@pytest.mark.spark
def test_the_format_by_its_name(spark: SparkSession, rmqctl: Any, tmp_path: Path) -> None:
    root = golden.pristine(KAFKA)
    true = rows_of("kafkalog", root, "records", columns="topic,partition,offset,value")
    loaded = spark.read.format("kafkalog").option("splitSize", "3000").load(str(root))
    found = [row.asDict() for row in loaded.select("topic", "partition", "offset", "value").collect()]
    assert sorted(found, key=str) == sorted(
        ({**r, "value": r["value"] and bytearray(r["value"])} for r in true), key=str
    )
    committed = spark.read.format("kafkalog").options(read_committed="true", columns="offset").load(str(root)).count()
    assert committed == len(rows_of("kafkalog", root, "records", read_committed="true"))
    disks = [str(tmp_path / name) for name in ("disk1", "disk2")]
    for number, disk in enumerate(disks):
        made = ("--format", "kafka", "--topic", f"t{number}", "--count", number + 5)
        assert rmqctl("produce", disk, *made).exit_code == 0
    assert spark.read.format("kafkalog").options(topic="t0,t1", columns="offset").load(disks).count() == 11
    few = pipeline.rows(
        spark,
        str(root),
        format="kafkalog",
        where="topic = 'z-zstd' and offset >= 10",
        columns="offset",
        split_size="2K",
    )
    wanted = [row["offset"] for row in true if row["topic"] == "z-zstd" and row["offset"] >= 10]
    assert sorted(row.offset for row in few.collect()) == sorted(wanted)
    assert pipeline.table(spark, str(root), "topics", format="kafkalog").count() == len(
        rows_of("kafkalog", root, "topics")
    )


@pytest.mark.spark
@pytest.mark.parametrize("options", [{}, {"splitSize": "4K", "topic": "z-zstd,idem"}], ids=str)
def test_stats_are_the_same_on_both_engines(options: dict[str, str], spark: SparkSession) -> None:
    given = tables_of("kafkalog", {"path": str(golden.pristine("3.9.2-crash")), **options})
    found = stats.collect_here(given)
    assert found == stats.collect(spark, given)
    assert found.groups["all"][0]["messages"] == len(
        rows_of("kafkalog", golden.pristine("3.9.2-crash"), "records", **options)
    )


@pytest.mark.spark
def test_verify_on_spark_finds_what_verify_finds(spark: SparkSession, tmp_path: Path, rmqctl: Any) -> None:
    root = golden.unpack("4.3.1-crash", tmp_path)
    log = max(root.glob("*/*.log"), key=lambda file: file.stat().st_size)
    data = bytearray(log.read_bytes())
    data[300:340] = bytes(40)
    log.write_bytes(data)
    local, spread = (
        json.loads(rmqctl("verify", root, "-o", "json", *more).stdout) for more in ((), ("--engine", "spark"))
    )
    assert spread["findings"] == local["findings"]
    assert len(local["findings"]) > 1
    assert {k: v for k, v in spread["summary"].items() if k != "seconds"} == {
        k: v for k, v in local["summary"].items() if k != "seconds"
    }


def differing(into: Path) -> tuple[Path, Path]:
    """Two copies of a log directory: one lacks a partition and the end of another, and has a changed record."""
    a, b = golden.unpack(KAFKA, into / "a"), golden.unpack(KAFKA, into / "b")
    shutil.rmtree(b / "x-delete-0", ignore_errors=True)
    log = b / "z-gzip-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    log = b / "plain-none-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[100:110] = bytes(10)
    log.write_bytes(data)
    return a, b


def without_seconds(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "summary": {k: v for k, v in document["summary"].items() if k != "seconds"}}


def test_diff_shares_the_reading_of_copies(tmp_path: Path) -> None:
    a, b = (open_store(str(root)) for root in differing(tmp_path))
    asked: list[int] = []

    def share(do: Any, items: Any) -> list[Any]:
        asked.append(max(len(pickle.dumps(item)) for item in items))
        return [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(do))(item))) for item in items]

    found, spread = a.diff(b).document(), a.diff(b, share=share).document()
    assert without_seconds(spread) == without_seconds(found)
    assert len(found["findings"]) >= 3
    assert asked[0] < 20_000


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_diff_on_spark_finds_what_diff_finds(tmp_path: Path, rmqctl: Any) -> None:
    a, b = differing(tmp_path)
    local, spread = (
        json.loads(rmqctl("diff", a, b, "-o", "json", *more).stdout) for more in ((), ("--engine", "spark"))
    )
    assert without_seconds(spread) == without_seconds(local)


# --- a log that grows ---------------------------------------------------------------------------------


class Growing:
    """A copy of a log directory whose segments are written little by little, as many bytes at a time as one says."""

    def __init__(self, root: Path, into: Path, topics: tuple[str, ...]) -> None:
        self.root = into / "growing"
        self._left: list[tuple[Path, bytes]] = []
        for directory in sorted(root.iterdir()):
            if directory.is_dir() and directory.name.rpartition("-")[0] in topics:
                for log in sorted(directory.glob("*.log")):
                    target = self.root / directory.name / log.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if target.name.startswith("00000000000000000000"):
                        target.touch()
                    self._left.append((target, log.read_bytes()))
        shutil.copy(root / "meta.properties", self.root)
        self.is_over = False

    def grow(self, size: int, chance: random.Random) -> None:
        """Add bytes to the first unfinished segment of a partition chosen by chance."""
        firsts: dict[Path, int] = {}
        for number, (target, data) in enumerate(self._left):
            if data:
                firsts.setdefault(target.parent, number)
        if not firsts:
            self.is_over = True
            return
        number = chance.choice(sorted(firsts.values()))
        target, data = self._left[number]
        with target.open("ab") as file:
            file.write(data[:size])
        self._left[number] = (target, data[size:])


TOPICS = ("z-zstd", "idem", "txn-a")


def following(root: Path, start: StreamStart | None = None, **options: str) -> Following:
    found = tables_of("kafkalog", {"path": str(root), "splitSize": "2K", **options})
    return Following(found.path, found.log(), start or StreamStart())


def keys(stream: Following, start: Places, end: Places) -> list[Key]:
    batches = [batch for part in stream.parts(start, end) for batch in stream.read(part)]
    return [(r["topic"], r["partition"], r["offset"]) for batch in batches for r in batch.to_pylist()]


@pytest.mark.parametrize("read_committed", ["false", "true"])
def test_every_record_comes_once(read_committed: str, tmp_path: Path) -> None:
    chance = random.Random(read_committed)
    growing = Growing(golden.pristine(KAFKA), tmp_path, TOPICS)
    stream = following(growing.root, read_committed=read_committed)
    at, found, batches = stream.first(), list[Key](), list[tuple[Places, Places]]()
    while not growing.is_over:
        growing.grow(chance.choice([1, 61, 300, 3000]), chance)
        if growing.is_over or chance.random() < 0.1:
            latest = stream.latest(at, chance.choice([None, 2000]))
            found += keys(stream, at, latest)
            batches.append((at, latest))
            at = latest
    while (latest := stream.latest(at)) != at:
        found += keys(stream, at, latest)
        at = latest
    shown = rows_of("kafkalog", growing.root, "records", read_committed=read_committed)
    true = [(r["topic"], r["partition"], r["offset"]) for r in shown]
    assert sorted(found) == sorted(true)
    assert len(found) == len(set(found)) > 500
    again = [key for low, high in batches for key in keys(stream, low, high)]
    assert again == found[: len(again)]


def test_where_a_stream_begins_and_what_it_misses(tmp_path: Path) -> None:
    root = golden.unpack(KAFKA, tmp_path)
    whole = following(root, topic="z-zstd")
    end = whole.latest(whole.first())
    assert following(root, StreamStart("latest"), topic="z-zstd").first() == end
    some = following(root, StreamStart({"z-zstd-1": 5}), topic="z-zstd").first()
    assert places_of(some) == places_of(whole.first()) | {"z-zstd-1": 5}
    assert next(key for key in keys(whole, some, end) if key[1] == 1)[2] == 5
    small = whole.latest(some, 1024)
    assert any(some[name] < small[name] < end[name] for name in places_of(end))
    many = max(
        (d for d in root.iterdir() if d.is_dir() and d.name.rpartition("-")[2].isdigit()),
        key=lambda d: len(list(d.glob("*.log"))),
    )
    first, second = sorted(many.glob("*.log"))[:2]
    first.unlink()
    stream = following(root, topic=many.name.rpartition("-")[0])
    with pytest.raises(LostMessages, match="failOnDataLoss"):
        stream.parts({many.name: 0}, stream.latest({many.name: 0}))
    on = following(root, StreamStart(fail_on_loss=False), topic=many.name.rpartition("-")[0])
    assert min(key[2] for key in keys(on, {many.name: 0}, on.latest({many.name: 0})) if True) >= 0
    assert stream.first()[many.name] == int(second.stem)


@pytest.mark.spark
@pytest.mark.parametrize("restarts", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_query_that_is_restarted_sees_every_record_once(spark: SparkSession, tmp_path: Path, restarts: int) -> None:
    chance = random.Random(restarts)
    growing, seen = Growing(golden.pristine(KAFKA), tmp_path, TOPICS), dict[int, list[Key]]()

    def keep(batch: DataFrame, number: int) -> None:
        seen[number] = [
            (r.topic, r.partition, r.offset) for r in batch.select("topic", "partition", "offset").collect()
        ]

    def follow(**options: str) -> Any:
        reader = spark.readStream.format("kafkalog").options(columns="topic,partition,offset", **options)
        rows = reader.load(str(growing.root))
        return rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    for number in range(restarts):
        growing.grow(1 << 10, chance)
        query = follow(maxBytesPerTrigger="8K")
        for _ in range(80 // restarts):
            growing.grow(chance.randrange(4000), chance)
        if number % 2 == 0:
            query.processAllAvailable()
        query.stop()
    while not growing.is_over:
        growing.grow(1 << 20, chance)
    query = follow()
    query.processAllAvailable()
    query.stop()
    found = [key for number in sorted(seen) for key in seen[number]]
    true = [(r["topic"], r["partition"], r["offset"]) for r in rows_of("kafkalog", growing.root, "records")]
    assert sorted(found) == sorted(true)


# --- exports ------------------------------------------------------------------------------------------


def work(task: ExportTask, parts: list[Any]) -> None:
    for part in parts:
        list(task.run(part))


def test_exports_hold_every_record_once_and_go_on(tmp_path: Path) -> None:
    chance = random.Random(4)
    growing = Growing(golden.pristine(KAFKA), tmp_path, TOPICS)
    out = tmp_path / "out"
    for _ in range(12):
        growing.grow(3000, chance)
    kinds: list[dict[str, bool]] = [{}, {"incremental": True}, {"incremental": True}, {"overwrite": True}]
    for number, kind in enumerate(kinds):
        store = tables_of("kafkalog", {"path": str(growing.root)})
        made = Export(store, output_at(str(out)), ExportChoices(split_size=4000 + number, **kind))
        manifest = made.run(made.plan(2), work)
        true = rows_of("kafkalog", growing.root, "records")
        found = []
        document = json.loads((out / "_manifest.json").read_text())
        for file in document["files"]:
            table = pq.ParquetFile(out / file["path"]).read()
            assert {"topic", "day"} & set(table.column_names) == set()
            offsets = table.column("offset").to_pylist()
            assert offsets == sorted(offsets)
            assert (file["first_offset"], file["last_offset"], file["rows"]) == (offsets[0], offsets[-1], len(offsets))
            topic = file["path"].partition("topic=")[2].partition("/")[0]
            found += [(topic, row["partition"], row["offset"], row["key"], row["value"]) for row in table.to_pylist()]
            assert table.schema.field("key").type == table.schema.field("value").type == "binary"
        names = ("topic", "partition", "offset", "key", "value")
        assert sorted(found, key=str) == sorted((tuple(row[n] for n in names) for row in true), key=str)
        assert manifest.rows == len(true) == document["rows"]
        while number == 0 and not growing.is_over:
            growing.grow(1 << 20, chance)
    assert document["end"] == {f"{p.name}": document["end"][p.name] for p in growing.root.iterdir() if p.is_dir()}


@pytest.mark.spark
def test_export_by_the_command(rmqctl: Any, tmp_path: Path) -> None:
    root, out = golden.pristine(KAFKA), tmp_path / "out"
    options = ("--topic", "bigrec", "--to", "jsonl", "--compression", "none", "--partition-by", "partition")
    done = rmqctl("export", root, out, *options, "-o", "json")
    assert done.exit_code == 0, done.stderr
    rows = [json.loads(line) for file in (out / "data").rglob("*.jsonl") for line in file.read_text().splitlines()]
    true = rows_of("kafkalog", root, "records", topic="bigrec")
    assert sorted(row["offset"] for row in rows) == sorted(row["offset"] for row in true)
    assert all(isinstance(row["headers"], list) for row in rows)
    assert json.loads(done.stdout)["rows"] == len(true)
    for wrong, said in (
        (("--partition-by", "tags"), "partition"),
        (("--columns", "body"), "no column 'body'"),
        (("--body", "stored"), "RocketMQ"),
        (("--tag", "a"), "RocketMQ"),
    ):
        refused = rmqctl("export", root, tmp_path / "other", *wrong)
        assert refused.exit_code == 2
        assert said in refused.stderr


def test_a_partition_that_is_away_for_a_while_is_not_exported_again(tmp_path: Path) -> None:
    root, out = golden.unpack(KAFKA, tmp_path), str(tmp_path / "out")

    def export(**kind: bool) -> int:
        store = tables_of("kafkalog", {"path": str(root), "topic": "idem,z-zstd"})
        made = Export(store, output_at(out), ExportChoices(columns=("offset",), partition_by=(), **kind))
        return made.run(made.plan(1), work).rows

    rows = export()
    shutil.move(root / "idem-0", tmp_path / "idem-0")
    assert export(incremental=True) == rows
    shutil.move(tmp_path / "idem-0", root / "idem-0")
    assert export(incremental=True) == rows
    with max((root / "idem-0").glob("*.log"), key=lambda file: file.name).open("r+b") as log:
        log.truncate(200)
    with pytest.raises(Refused, match="idem-0"):
        export(incremental=True)
