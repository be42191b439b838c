"""SQL: both engines give the same, each query sees whole tables, and only what a query needs is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import golden
from rmqctl.pipeline.local_sql import LocalQueries
from rmqctl.pipeline.mounted import BadQuery, Mounted, NotForLocalEngine
from rmqctl.pipeline.sql_text import Use, uses
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.tables.columns import TableOptions
from rmqctl.rocketmq.tables.tables import RocketMQTables
from rmqctl.tables import tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqctl.pipeline.queries import SparkQueries

STORE = "5.5.0-clean"
TABLES = {"messages": ("topic", "queue_id", "store_timestamp", "keys", "body"), "topics": ("topic", "messages")}

QUERIES = [
    "select topic, count(*) n, sum(size) bytes, max(store_timestamp) last from messages group by topic order by topic",
    "select count(*), sum(size) / count(*), avg(size), min(size) + 1, max(length(body)) from messages",
    "select (size * 2 > 400) and flag = 0, -queue_id from messages order by physical_offset limit 5",
    "select * from messages order by physical_offset",
    "select topic, tags from messages order by tags, physical_offset limit 60",
    "select tags, count(*) n from messages group by tags order by tags desc",
    "select properties['WAIT'] w, keys, inner from messages where array_contains(keys, 'k1') order by physical_offset",
    "select key, count(*) n from (select explode(keys) key from messages) group by key order by n desc, key limit 20",
    "select explode(keys) from messages order by 1",
    "select date_trunc('hour', store_timestamp) h, hour(store_timestamp), count(*) from messages group by 1, 2 order by 1",
    "select topic from messages where topic like 'Lab%' and queue_id between 1 and 2 order by physical_offset",
    "select count(*) from messages where store_timestamp >= '2020-01-01' and store_timestamp < timestamp '2100-01-01'",
    "select count(distinct topic), count(tags), count(case when size > 300 then 1 end) c from messages",
    "select m.topic, t.max_offset, count(*) n from messages m join topics t using (topic, queue_id) group by 1, 2 order by 1, 2",
    "with big as (select topic, size from messages where size > 500) select topic, count(*) n from big group by topic order by topic",
    "select topic from messages where queue_id = 1 union select topic from topics order by topic",
    "select topic, queue_id from topics except select topic, queue_id from messages order by 1, 2",
    "select (select count(*) from messages where topic = 'LabLog') a, (select count(*) from messages) b",
    "select lag(size) over (order by physical_offset) l, physical_offset from messages order by physical_offset",
    "select row_number() over (partition by topic order by physical_offset desc) r from messages order by physical_offset",
    "select * from topics order by topic, queue_id",
    "select * from consumer_offsets order by 1, 2, 3",
    "select * from findings order by id, file, offset",
    "select kind, count(*) n, max(size) from queue_units group by kind order by kind",
    "select file, max(number), min(store_timestamp) from index_entries group by file order by file",
    "select topic from messages where size < 0",
    "select upper(topic), substring(topic, 1, 3), coalesce(tags, 'none') t from messages order by physical_offset limit 40",
    "select count(*) from messages where not (topic = 'LabLog' or tags is null) and tags <=> 'TagA'",
    "select distinct upper('ß'), lower('İ'), upper('straße'), lower('ΟΔΟΣ'), upper('ŉ') from messages",
    "select cast(size as bigint) b, cast(flag as double) d, cast(store_timestamp as date) t from messages order by physical_offset",
    "select length(body), length(topic), length('ß€') from messages order by physical_offset",
]


def mounted(name: str = STORE) -> list[Mounted]:
    return [Mounted("", {"path": str(golden.pristine(name))})]


@pytest.fixture(scope="module")
def local() -> LocalQueries:
    return LocalQueries(mounted())


@pytest.fixture(scope="module")
def on_spark(spark: Any) -> SparkQueries:
    from rmqctl.pipeline.queries import SparkQueries

    return SparkQueries(spark, mounted())


@pytest.mark.spark
@pytest.mark.parametrize("text", QUERIES)
def test_both_engines_give_the_same(text: str, local: LocalQueries, on_spark: SparkQueries) -> None:
    """In this order, one session each, as at a prompt: no query sees less of a table for what came before it."""
    from rmqctl.pipeline.queries import rows

    expected = list(rows(on_spark.query(text)))
    assert list(local.rows(text)) == expected


@pytest.mark.spark
def test_views_of_a_session_stay_whole(on_spark: SparkQueries) -> None:
    on_spark.query("create or replace temporary view mine as select topic, size from messages")
    whole = on_spark.query("select * from messages").columns
    assert on_spark.query("select topic from messages where topic = 'LabLog'").columns == ["topic"]
    assert on_spark.query("describe messages").count() == len(whole)
    assert on_spark.query("select * from messages").columns == whole
    assert on_spark.query("select sum(size) from mine").collect()[0][0] > 0
    narrow = on_spark.query(
        "select topic, max(length(body)) from messages where topic in (select topic from topics) group by topic"
    )
    assert "born_host" not in narrow._jdf.queryExecution().executedPlan().toString()


def test_a_pipe_of_queries() -> None:
    text = (
        "select topic from messages limit 1;\nselect queue_id,\n keys from messages limit 1;\n"
        "select * from messages limit 1"
    )
    result = CliRunner().invoke(cli, ["sql", str(golden.pristine(STORE)), "-o", "json"], input=text)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count('"queue_id"') == 2
    assert '"born_host"' in result.stdout


@pytest.mark.parametrize(
    "text",
    [
        "select cast(body as string) from messages",
        "select cast(store_timestamp as string) from messages",
        "select keys[0] from messages",
        "select percentile(size, 0.5) from messages",
        "select topic from messages where tags rlike 'a'",
        "select topic from messages where tags like topic",
        "select 1.5 * size from messages",
        "select count(distinct topic, tags) from messages",
        "select size + 1 as flag from messages where flag = 0",
        "select * from messages m join topics t on m.topic = t.topic",
        "select count(*) from messages where cast(store_timestamp as bigint) > 1700000000",
        "select cast(tags as int) from messages",
        "select try_cast(size as bigint) from messages",
        "select cast(avg(size) as int) from messages",
        "select substring(topic, 0, 3) from messages",
        "select substring(topic, -3) from messages",
        "select store_timestamp - born_timestamp from messages",
        "select avg(store_timestamp) from messages",
        "select topic from messages where queue_id",
        "select topic from messages where queue_id and flag = 0",
        "select count(*) filter (where size) from messages",
        "select body like 'a%' from messages",
        "select length(size) from messages",
        "select explode(properties) from messages",
        "select inner.topic from messages",
        "select i.topic from (select explode(inner) i from messages)",
        "select topic from messages where queue_id = topic",
        "select coalesce(tags, size) from messages",
        "select topic from messages union select queue_id from topics",
        "select topic from messages where store_timestamp > '2026-11'",
        "select topic from messages where store_timestamp > date '2026-11-21 10:00:00'",
        "select size + 3000000000 from messages",
        "select distinct properties from messages",
        "select row_number() over (partition by properties order by physical_offset) n from messages",
        "select count(*) n from messages group by inner",
        "select count(*) n from messages group by -(-7)",
        "select topic from messages order by -(-1)",
        "select row_number() over (partition by 'a' order by physical_offset) n from messages",
        "select sum(size) over () from messages",
        "select year(date '2026-01-01')",
        "select substr(topic, 1, 3) from messages",
        "select substring(topic, 2) from messages",
        "select -1",
        "select * from read_csv('/etc/hostname')",
        "show tables",
        "create view v as select 1",
        "select 1; select 2",
    ],
)
def test_what_might_differ_is_left_to_spark(text: str, local: LocalQueries) -> None:
    with pytest.raises(NotForLocalEngine, match="--engine spark"):
        list(local.rows(text))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("selec 1", "selec"),
        ("select nothing from messages", "nothing"),
        ("select * from no_table", "no_table does not exist; there are .*messages, "),
        ("select sum(size) / (select count(*) from messages where size < 0) q from messages", "division by zero"),
    ],
)
def test_wrong_queries(text: str, word: str, local: LocalQueries) -> None:
    with pytest.raises(BadQuery, match=word):
        list(local.rows(text))


@pytest.mark.spark
def test_a_query_that_fails_on_its_values_on_spark(spark: SparkSession, local: LocalQueries) -> None:
    from rmqctl.pipeline.jobs import job
    from rmqctl.pipeline.queries import SparkQueries, rows

    text = "select topic from messages where 3 / queue_offset >= 3 order by physical_offset limit 3"
    with pytest.raises(BadQuery, match="division by zero"):
        list(local.rows(text))
    with pytest.raises(BadQuery, match=r"^\[DIVIDE_BY_ZERO\] Division by zero\."), job(spark, "query"):
        list(rows(SparkQueries(spark, [Mounted("", {"path": str(golden.pristine(STORE))})]).query(text)))


def test_an_unreadable_store_is_its_own_error(tmp_path: Path) -> None:
    root = golden.unpack(STORE, tmp_path)
    queries = LocalQueries([Mounted("", {"path": str(root)})])
    root.rename(tmp_path / "gone")
    with pytest.raises(Exception, match="is not a message store") as caught:
        list(queries.rows("select topic from messages"))
    assert "duckdb" not in type(caught.value).__module__


def test_a_cluster_is_not_for_the_local_engine(rmqctl: Any) -> None:
    for command in (("sql", golden.pristine(STORE), "select 1"), ("stats", golden.pristine(STORE))):
        result = rmqctl(*command, "--engine", "local", "--master", "local[2]")
        assert (result.exit_code, "--master" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("select topic from messages", ("topic",)),
        ("select count(*) from messages", ()),
        ("SELECT TOPIC, explode(keys) k FROM messages WHERE queue_id = 1", ("topic", "queue_id", "keys")),
        ("select * from messages", None),
        ("select m.* from messages m", None),
        ("select m from messages m", None),
        ("select struct(*) from messages", None),
        ("select count(*) from messages natural join topics", None),
        ("from messages", None),
        ("with messages as (select 1) select topic from messages", None),
        ("describe messages", None),
        ("select topic fro messages", None),
        ("select a.topic from messages a join messages b on a.queue_id = b.queue_id", ("topic", "queue_id")),
    ],
)
def test_used_columns(text: str, columns: tuple[str, ...] | None) -> None:
    assert uses(text, TABLES)["messages"].columns == columns


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("topic = 'a' and queue_id = 1", Filter(topics=("a",), queue_id=1)),
        ("m.topic in ('a', 'b') and ('b' = topic)", Filter(topics=("b",))),
        ("topic = 'a' or queue_id = 1", Filter()),
        ("not topic = 'a'", Filter()),
        ("topic = 'base64:AA=='", Filter()),
        ("lower(topic) = 'a'", Filter()),
        ("other.topic = 'a'", Filter()),
        ("queue_id = '1'", Filter()),
        ("physical_offset between 5 and 9", Filter(from_offset=5, to_offset=10)),
        ("physical_offset > 5 and 9 > physical_offset", Filter(from_offset=5, to_offset=10)),
        ("store_timestamp >= '2026-11-21T00:00:00Z'", Filter(after=1795219200000)),
        ("store_timestamp < timestamp '2026-11-21'", Filter(before=1795219200000 + 86_400_000 + 2)),
        ("store_timestamp < '2026-11-21 10:00:00 Asia/Shanghai'", Filter()),
        ("store_timestamp > '202611'", Filter()),
        ("store_timestamp >= date '2026-11-21 18:30:00'", Filter(after=1795219200000 - 86_400_000)),
        ("store_timestamp >= cast('2026-11-21T18:30:00Z' as date)", Filter(after=1795219200000 - 86_400_000)),
        ("store_timestamp >= date '2026-11'", Filter()),
    ],
)
def test_conditions(condition: str, expected: Filter) -> None:
    found = uses(f"select topic from messages m where {condition}", TABLES)["messages"]
    narrowed = RocketMQTables(TableOptions("x")).asked(None, found.conditions)
    assert narrowed.options.wanted == expected


@pytest.mark.parametrize(
    "text",
    [
        "select topic from messages where topic = 'a' union all select topic from messages",
        "select m.topic from messages m join topics t on m.topic = t.topic where m.topic = 'a'",
        "select topic from messages lateral view explode(keys) x as topic where topic = 'a'",
        "select topic from (select topic from messages) where topic = 'a'",
        "with messages as (select 'a' topic) select topic from messages where topic = 'a'",
    ],
)
def test_conditions_of_other_rows_are_left_alone(text: str) -> None:
    assert uses(text, TABLES)["messages"].conditions == ()


def test_what_a_use_asks_of_a_store() -> None:
    store = tables_of("rocketmq", {"path": "x", "topic": "a,b"})
    assert store.asked(Use().columns, Use().conditions) == store
    assert store.asked(()).table("messages").schema().names == ["position"]
