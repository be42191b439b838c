"""Several stores as one set of tables: what all together say is what each says alone, on both engines."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow.dataset import dataset

import rmqctl as library
from fixtures import golden
from rmqctl import fleet_tables, pipeline
from rmqctl.errors import NotAStore, RmqctlError, WrongUsage
from rmqctl.files.tree import LocalTree
from rmqctl.filters import Filters
from rmqctl.fleet_tables import STORES, FleetTables, tables_of
from rmqctl.pipeline import stats
from rmqctl.pipeline.local_sql import LocalQueries
from rmqctl.pipeline.mounted import Mounted
from rmqctl.tables import Table
from tests.pipeline import fleets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., Any]
ROCKETMQ = ("5.3.3-clean", "5.5.0-crash", "4.9.8-clean")
KAFKA = ("4.3.1-clean", "3.9.2-crash")


def messages(name: str) -> int:
    return sum(row["kind"] == "msg" for row in golden.truth(name))


def read(table: Table) -> pa.Table:
    return pa.Table.from_batches([b for part in table.parts() for b in table.read(part)], table.schema())


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three stores of RocketMQ, two of Kafka, one that is not there."""
    rows = [(f"r{n}", name, "rocketmq") for n, name in enumerate(ROCKETMQ)]
    rows += [(f"k{n}", name, "kafka") for n, name in enumerate(KAFKA)]
    text = [
        f'[[store]]\npath = "{golden.pristine(name)}"\nname = "{own}"\ncluster = "{family}-lab"\nfamily = "{family}"\n'
        for own, name, family in rows
    ]
    file = tmp_path_factory.mktemp("inventory") / "fleet.toml"
    file.write_text("\n".join([*text, '[[store]]\npath = "gone"\nrole = "slave"\n']), "utf-8")
    return file


@pytest.fixture(scope="module")
def both(inventory: Path) -> dict[str, FleetTables]:
    found = {f: tables_of(f, {"path": f"@{inventory}", "unreadable": "skip"}) for f in ("rocketmq", "kafkalog")}
    assert all(isinstance(tables, FleetTables) for tables in found.values())
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("format", ["rocketmq", "kafkalog"])
def test_every_table_has_the_rows_of_each_store_and_its_name(format: str, both: dict[str, FleetTables]) -> None:
    tables = both[format]
    for name in tables.names[:-1]:
        found = read(tables.table(name))
        assert found.schema.names[:2] == ["cluster", "store"]
        for one in tables.listed[:-1]:
            assert one.tables is not None
            own = found.filter(pa.compute.equal(found.column("store"), one.name)).drop_columns(["cluster", "store"])
            assert own.equals(read(one.tables.table(name))), (name, one.name)
        assert set(found.column("store").to_pylist()) <= {one.name for one in tables.listed[:-1]}
    assert list(tables.failed) == ["gone"]
    assert "nothing is there" in tables.failed["gone"]


def test_the_table_of_stores_has_a_row_for_each_also_where_it_cannot_be_read(both: dict[str, FleetTables]) -> None:
    rows = read(both["rocketmq"].table(STORES)).to_pylist()
    assert [(row["store"], row["role"], row["error"] is None) for row in rows] == [
        ("r0", None, True), ("r1", None, True), ("r2", None, True), ("gone", "slave", False),
    ]  # fmt: skip
    assert [row["log_bytes"] for row in rows[:3]] == [library.open(golden.pristine(n)).size for n in ROCKETMQ]


def test_without_leave_a_store_that_cannot_be_read_is_an_error(inventory: Path) -> None:
    table = tables_of("rocketmq", {"path": f"@{inventory}"}).table("messages")
    with pytest.raises(NotAStore, match="nothing is there"):
        table.parts()
    with pytest.raises(NotAStore):
        tables_of("rocketmq", {"path": f"@{inventory}"}).log()


def test_columns_come_as_they_are_asked_for_and_a_condition_on_the_store_spares_the_others(
    both: dict[str, FleetTables],
) -> None:
    from rmqctl.tables import Condition

    asked = both["rocketmq"].asked(("size", "store", "topic"), [Condition("store", "=", "r1")])
    table = asked.table("messages")
    assert table.schema().names == ["size", "store", "topic"]
    assert {name for name, _ in table.parts()} == {"r1"}
    assert len(read(table)) == messages(ROCKETMQ[1])
    nothing = both["rocketmq"].asked(None, [Condition("cluster", "in", ("kafka-lab",))]).table("messages")
    assert nothing.schema().names[0] == "cluster"


def test_directories_of_one_kafka_broker_are_one_store_without_a_name(tmp_path: Path) -> None:
    one = golden.unpack(KAFKA[0], tmp_path / "a")
    other = tmp_path / "b"
    other.mkdir()
    meta = one / "meta.properties"
    lines = meta.read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("directory.id"))
    for directory in (one, other):
        (directory / "meta.properties").write_text(text, "utf-8")
    together = tables_of("kafkalog", {"paths": json.dumps([str(one), str(other)])})
    alone = tables_of("kafkalog", {"path": f"{one},{other}"})
    assert not isinstance(together, FleetTables)
    assert read(together.table("topics")).equals(read(alone.table("topics")))


def test_which_store_holds_a_key(inventory: Path) -> None:
    queries = LocalQueries([Mounted("", {"path": f"@{inventory}", "unreadable": "skip"})])
    key = "k1"
    found = list(
        queries.rows(f"select store, count(*) n from messages where array_contains(keys, '{key}') group by store")
    )
    alone = {}
    for n, name in enumerate(ROCKETMQ):
        own = LocalQueries([Mounted("", {"path": str(golden.pristine(name))})])
        ((row),) = own.rows(f"select count(*) n from messages where array_contains(keys, '{key}')")
        alone[f"r{n}"] = row["n"]
    assert {row["store"]: row["n"] for row in found} == {name: n for name, n in alone.items() if n}
    assert sum(alone.values())
    assert list(queries.unreadable) == ["gone"]


@pytest.mark.parametrize("names", [ROCKETMQ, KAFKA])
def test_figures_of_all_are_the_sum_of_each(names: tuple[str, ...]) -> None:
    fleet = library.open_all([str(golden.pristine(name)) for name in names])
    whole = stats.collect_here(fleet.as_tables())
    parts = [stats.collect_here(store.as_tables(Filters())) for _, store in fleet.stores]  # type: ignore[union-attr]
    for figure in ("messages", "records", "bytes", "body_bytes", "bad_crc"):
        assert whole.groups["all"][0][figure] == sum(part.groups["all"][0][figure] for part in parts)
        by_store = {row["store"]: row[figure] for row in whole.groups["store"]}
        assert list(by_store.values()) == [
            part.groups["all"][0][figure]
            for _, part in sorted(zip(fleet.stores, parts, strict=True), key=lambda p: p[0][0].name)
        ]
    assert len(whole.groups["queue"]) == sum(len(part.groups["queue"]) for part in parts)


def test_stores_of_two_families_or_with_a_limit_are_refused() -> None:
    fleet = library.open_all([str(golden.pristine(ROCKETMQ[0])), str(golden.pristine(KAFKA[0]))])
    with pytest.raises(WrongUsage, match="no columns in common"):
        fleet.as_tables()
    with pytest.raises(WrongUsage, match="of one store"):
        fleet.as_tables(Filters(limit=3))
    with pytest.raises(RmqctlError, match="none of them can be read"):
        library.open_all(["nowhere", "nothing"]).as_tables()


def test_sql_over_an_inventory_says_what_is_missing_and_exits_1(rmqctl: Run, inventory: Path) -> None:
    done = rmqctl(
        "sql", f"@{inventory}", "select cluster, store, count(*) n from rocketmq_messages group by 1, 2", "-o", "jsonl"
    )
    assert done.exit_code == 1
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["store"]: row["n"] for row in rows} == {f"r{n}": messages(name) for n, name in enumerate(ROCKETMQ)}
    assert done.stderr.count("nothing is there") == 1
    assert "kafkalog_" in done.stderr
    errors = rmqctl("sql", f"@{inventory}", "select store from rocketmq_stores where error is not null", "-o", "csv")
    assert errors.stdout == "store\ngone\n"


def test_stats_over_several_has_a_row_for_what_cannot_be_read(rmqctl: Run, tmp_path: Path) -> None:
    paths = [str(golden.pristine(name)) for name in ROCKETMQ]
    done = rmqctl("stats", *paths, str(tmp_path / "gone"), "--no-keys", "-o", "json")
    assert done.exit_code == 1
    rows = json.loads(done.stdout)["store"]
    assert [row["store"] for row in rows] == [*sorted(paths), str(tmp_path / "gone")]
    assert "nothing is there" in rows[-1]["error"]
    assert done.stderr.count("nothing is there") == 1


# --- on Spark -------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("format", ["rocketmq", "kafkalog"])
def test_spark_has_the_same_rows(
    spark: SparkSession, format: str, inventory: Path, both: dict[str, FleetTables]
) -> None:
    main = both[format].names[0]
    place = "physical_offset" if format == "rocketmq" else "offset"
    here = read(both[format].asked(("store", "topic", place)).table(main)).to_pylist()
    wanted = Counter((row["store"], row["topic"], row[place]) for row in here)
    loaded = spark.read.format(format).option("unreadable", "skip").option("columns", f"store,topic,{place}")
    assert Counter(map(tuple, loaded.load(f"@{inventory}").collect())) == wanted
    names = ROCKETMQ if format == "rocketmq" else KAFKA
    paths = [str(golden.pristine(name)) for name in names]
    counted = spark.read.format(format).load(paths).groupBy("store").count().collect()
    assert {row["store"]: row["count"] for row in counted} == {
        path: sum(n for key, n in wanted.items() if key[0] == f"{format[0]}{number}")
        for number, path in enumerate(paths)
    }
    shown = pipeline.rows(spark, paths, format=format, columns="store,topic", where=f"store = '{paths[1]}'")
    assert shown.columns == ["store", "topic"]
    assert shown.count() == sum(n for key, n in wanted.items() if key[0] == f"{format[0]}1")


@pytest.mark.spark
def test_spark_names_the_store_that_cannot_be_read(spark: SparkSession, inventory: Path) -> None:
    from rmqctl.pipeline.queries import SparkQueries, rows

    with pytest.raises(Exception, match="nothing is there"):
        spark.read.format("rocketmq").load(f"@{inventory}").count()
    mounted = Mounted("", {"path": f"@{inventory}", "unreadable": "skip"})
    queries, local = SparkQueries(spark, [mounted]), LocalQueries([mounted])
    for text in (
        "select store, topic, count(*) n from messages group by store, topic order by store, topic",
        "select store, count(*) n from topics group by store order by store",
        "select store, error is null fine from stores order by store",
        "select store, id, count(*) n from findings group by 1, 2 order by 1, 2",
    ):
        assert list(rows(queries.query(text))) == list(local.rows(text))
    assert list(queries.unreadable) == ["gone"]


@pytest.mark.spark
def test_figures_on_spark_are_those_of_this_process(spark: SparkSession) -> None:
    tables = library.open_all([str(golden.pristine(name)) for name in ROCKETMQ]).as_tables()
    assert stats.collect(spark, tables) == stats.collect_here(tables)


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, which is the driver, sees no directory; executors do."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("the driver looked into a store")

    for name in ("entries", "stat", "open", "plain_files", "plain_directories", "read_head"):
        monkeypatch.setattr(LocalTree, name, refused)


@pytest.mark.spark
@pytest.mark.parametrize(
    "arguments",
    [
        ("sql", "select store, topic, count(*) n from rocketmq_messages group by 1, 2 order by 1, 2", "-o", "jsonl"),
        ("sql", "select store, id, count(*) n from kafkalog_findings group by 1, 2 order by 1, 2", "-o", "jsonl"),
        ("sql", "select store, error from rocketmq_stores order by 1", "-o", "jsonl"),
    ],
)
def test_sql_has_stores_opened_by_executors(
    spark: SparkSession, inventory: Path, rmqctl: Run, request: pytest.FixtureRequest, arguments: tuple[str, ...]
) -> None:
    del spark
    verb, *rest = arguments
    here = rmqctl(verb, f"@{inventory}", *rest, "--engine", "local")
    request.getfixturevalue("blind")
    there = rmqctl(verb, f"@{inventory}", *rest, "--engine", "spark")
    assert (there.stdout, there.exit_code) == (here.stdout, 1)
    assert fleets.remarks(there.stderr) == fleets.remarks(here.stderr)


@pytest.mark.spark
def test_stats_have_stores_opened_by_executors(
    spark: SparkSession, rmqctl: Run, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    del spark
    arguments = ["stats", *(str(golden.pristine(name)) for name in ROCKETMQ), str(tmp_path / "gone"), "-o", "json"]
    here = rmqctl(*arguments, "--engine", "local")
    request.getfixturevalue("blind")
    there = rmqctl(*arguments, "--engine", "spark")
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert (fleets.remarks(there.stderr), there.exit_code) == (fleets.remarks(here.stderr), 1)
    assert "of one store" in rmqctl(*arguments, "--limit", 3, "--engine", "spark").stderr


@pytest.mark.spark
def test_rows_of_a_disk_of_a_host_are_refused(spark: SparkSession, rmqctl: Run, tmp_path: Path) -> None:
    del spark
    file = tmp_path / "fleet.toml"
    file.write_text('[[store]]\npath = "/data/store"\nhost = "192.0.2.7"\nown_disk = true\n', "utf-8")
    for rest in (("sql", f"@{file}", "select 1"), ("stats", f"@{file}")):
        result = rmqctl(*rest, "--engine", "spark")
        assert (result.exit_code, "lies on a disk of 192.0.2.7" in result.stderr) == (2, True)


def _elsewhere(work: Any, items: Any) -> Any:
    """Work that is sent to another process, and its results back."""
    for item in items:
        there, sent = pickle.loads(pickle.dumps((work, item)))
        yield pickle.loads(pickle.dumps(there(sent)))


@pytest.mark.parametrize("format", ["rocketmq", "kafkalog"])
def test_logs_that_are_opened_and_divided_elsewhere_are_those_of_here(
    format: str, both: dict[str, FleetTables]
) -> None:
    here = both[format].log()
    there = replace(both[format], share=_elsewhere).log()
    for log in (here, there):
        assert pickle.loads(pickle.dumps(log)).begin() == here.begin()
    begin, end = here.begin(), here.end(growing=False)
    assert (there.begin(), there.end(growing=False), there.marks(end)) == (begin, end, here.marks(end))
    cut = {name: place + 1000 for name, place in end.items()}
    assert there.changes(cut, {}) == here.changes(cut, {})
    assert len(here.changes(cut, {})) > 1
    known = {name: place for name, place in begin.items() if not name.startswith(("r1", "k1"))}
    parts = there.parts(known, end, 128 << 10)
    assert list(map(there.name_of, parts)) == list(map(here.name_of, here.parts(known, end, 128 << 10)))
    rows = [row for part in parts for batch in there.read(part) for row in batch.to_pylist()]
    assert rows == [
        row for part in here.parts(begin, end, 128 << 10) for batch in here.read(part) for row in batch.to_pylist()
    ]
    assert rows


@pytest.mark.parametrize("format", ["rocketmq", "kafkalog"])
def test_the_log_of_a_large_store_is_divided_for_its_findings(
    format: str, both: dict[str, FleetTables], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = both[format]
    sizes = sorted(one.tables.log().size for one in tables.listed[:-1] if one.tables is not None)
    expected = sorted(
        str({"cluster": one.member.cluster, "store": one.name, **row})
        for one in tables.listed[:-1]
        for row in read(one.tables.table("findings")).to_pylist()  # type: ignore[union-attr]
    )
    for most, large in ((sizes[-1], 0), (sizes[0], len(sizes) - 1), (-1, len(sizes))):
        monkeypatch.setattr(fleet_tables, "LARGEST_SPLIT", most)
        given = list[Any]()

        def counted(work: Any, items: Any, given: list[Any] = given) -> Any:
            given.append(items)
            return map(work, items)

        found = [row for batch in tables.findings(counted) for row in batch.to_pylist()]
        assert sorted(map(str, found)) == expected
        assert len(given) >= 2 + large
        assert len(given[-1]) == len(sizes) - large


@pytest.mark.spark
@pytest.mark.parametrize("names", [ROCKETMQ, KAFKA])
def test_an_export_of_several_stores_is_the_same_on_spark(
    names: tuple[str, ...], rmqctl: Any, spark: Any, tmp_path: Path
) -> None:
    inventory = tmp_path / "fleet.toml"
    inventory.write_text(
        "".join(
            f'[[store]]\npath = "{golden.pristine(name)}"\nname = "s{n}"\ncluster = "lab"\n'
            for n, name in enumerate(names)
        )
        + f'[[store]]\npath = "{tmp_path}/gone"\nname = "gone"\n',
        "utf-8",
    )
    options = ("--partition-by", "cluster,store,topic", "--topic", "*[a-zA-Z]*")
    done = {}
    for engine in ("local", "spark"):
        out = tmp_path / engine
        done[engine] = rmqctl("export", f"@{inventory}", out, *options, "--engine", engine, "-o", "json")
        assert done[engine].exit_code == 1
        assert "gone: " in done[engine].stderr
    local, shared = (json.loads(done[engine].stdout) for engine in ("local", "spark"))
    for document in (local, shared):
        for name in ("layout", "files", "size", "directory"):
            document.pop(name)
    assert shared == local
    assert local["rows"] > 0
    places = ["cluster", "store", "topic", *(["physical_offset"] if names == ROCKETMQ else ["partition", "offset"])]
    found = [
        dataset(tmp_path / engine / "data", partitioning="hive").to_table().sort_by([(n, "ascending") for n in places])
        for engine in done
    ]
    assert found[1].equals(found[0])
    assert set(found[0].column("store").to_pylist()) == {f"s{n}" for n in range(len(names))}
