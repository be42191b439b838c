"""Queries made at random from the grammar that the pages name: both engines give the same rows, or one of them refuses.

What the local engine runs, Spark runs with the same rows; where it says that a query is wrong, it is wrong to Spark.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from fixtures import golden
from rmqctl.pipeline.local_sql import LocalQueries
from rmqctl.pipeline.mounted import BadQuery, Mounted, NotForLocalEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqctl.pipeline.queries import SparkQueries


@dataclass(frozen=True)
class Grammar:
    """The tables of a family, as queries are made of them.

    Attributes:
        columns: of the main table, by the kind of their values; the first number says where a row lies.
        literals: values of each kind that mean something there.
        pairs: what joins the main table ``m`` and the table ``topics``, ``t``.
        further: expressions on its columns alone, by kind.
    """

    format: str
    store: str
    table: str
    place: str
    end: str
    columns: dict[str, list[str]]
    texts: list[str]
    likes: list[str]
    pairs: list[str]
    further: dict[str, list[str]]
    exploded: list[str]

    @property
    def literals(self) -> dict[str, list[str]]:
        return LITERALS | {"text": self.texts} | {kind: self.columns[kind] for kind in ("binary", "array", "map")}


ROCKETMQ = Grammar(
    "rocketmq", "5.5.0-clean", "messages", "physical_offset", "max_offset",
    {
        "number": ["size", "queue_id", "physical_offset", "queue_offset", "flag", "reconsume_times", "body_size"],
        "text": ["topic", "tags", "unique_key", "born_host", "magic"],
        "time": ["store_timestamp", "born_timestamp"],
        "truth": ["body_crc_ok"],
        "binary": ["body"],
        "array": ["keys"],
        "map": ["properties"],
    },
    ["'TagA'", "'LabLog'", "''", "'ß'", "'İi'", "'1'", "'a%'"],
    ["Lab%", "%a%", "T_gA", ""],
    ["m.topic = t.topic and m.queue_id = t.queue_id", "m.topic = t.topic", "m.size = t.topic"],
    {"number": ["length(body)"], "text": ["properties['TAGS']"], "truth": ["array_contains(keys, {text})"]},
    ["keys", "keys", "properties", "inner"],
)  # fmt: skip
KAFKA = Grammar(
    "kafkalog", "4.3.1-clean", "records", "offset", "log_end_offset",
    {
        "number": ["size", "partition", "offset", "sequence", "key_size", "value_size", "batch_size", "producer_id"],
        "text": ["topic", "compression", "timestamp_type", "control_type", "file"],
        "time": ["timestamp"],
        "truth": ["transactional", "crc_ok"],
        "binary": ["key", "value"],
        "array": ["headers"],
        "map": ["headers"],
    },
    ["'zstd'", "'txn-a'", "''", "'ß'", "'İi'", "'1'", "'COMMIT'"],
    ["z-%", "%a%", "tx_-a", ""],
    ["m.topic = t.topic and m.partition = t.partition", "m.topic = t.topic", "m.size = t.topic"],
    {"number": ["length(value)", "length(key)"], "truth": ["key is null", "value = key"]},
    ["headers", "topic"],
)  # fmt: skip
LITERALS = {
    "number": ["0", "1", "3", "1000", "-7", "2147483647", "3000000000"],
    "time": [
        "timestamp '2026-11-21 01:30:00'", "timestamp '2026-11-21T01:30:00+02:00'", "date '2026-11-21'", "'2026-11-21'",
        "cast('2026-11-21 01:30:00.5' as timestamp)", "timestamp '2026-11'",
    ],
    "truth": ["true", "false"],
}  # fmt: skip
CASTS = ("int", "bigint", "double", "string", "timestamp", "date", "boolean", "binary", "smallint")
Make = Callable[[], str]


class Queries:
    """Makes queries; some of their parts have types that do not fit."""

    def __init__(self, seed: int, grammar: Grammar) -> None:
        self.chance, self.grammar = random.Random(seed), grammar

    def one(self) -> str:
        return self.chance.choice([self._rows, self._groups, self._window, self._join, self._exploded, self._union])()

    def _rows(self) -> str:
        chosen = ", ".join(f"{self.value()} c{number}" for number in range(self.chance.randrange(1, 4)))
        g = self.grammar
        order = ", ".join(dict.fromkeys([g.place, *self.order]))
        return f"select {g.place} p, {chosen} from {g.table}{self._where()} order by {order} limit 50"

    @property
    def order(self) -> list[str]:
        """Columns that together tell rows apart."""
        return [] if self.grammar is ROCKETMQ else ["topic", "partition"]

    def _groups(self) -> str:
        by = self.value(depth=1)
        having = self.chance.choice(["", "", " having count(*) > 2"])
        return f"select {by} g, {self._total()} a, {self._total()} b from {self.grammar.table}{self._where()} group by {by}{having}"

    def _total(self) -> str:
        name = self.chance.choice(["count", "min", "max", "sum", "avg", "count(distinct"])
        end = "))" if "(" in name else ")"
        inner = self.of(self.chance.choice(["number", "number", "text", "time", "truth"]), 1)
        total = f"{name}{'' if '(' in name else '('}{' ' if '(' in name else ''}{inner}{end[:1]}"
        return f"{total} filter (where {self.of('truth', 1)})" if self.chance.random() < 0.1 else total

    def _window(self) -> str:
        name = self.chance.choice(["row_number()", "rank()", "sum(size)", "lag(size)", "lead(topic)", "count(*)"])
        g = self.grammar
        order = ", ".join(dict.fromkeys([g.place, *self.order]))
        over = f"partition by {self.of('text', 0)} order by {order}"
        return f"select {g.place} p, {name} over ({over}) w from {g.table}{self._where()}"

    def _join(self) -> str:
        g = self.grammar
        on = self.chance.choice(g.pairs)
        kind = self.chance.choice(["join", "left join"])
        return (
            f"select m.topic t, t.{g.end} o, count(*) n, sum(m.size) s from {g.table} m {kind} topics t on {on} "
            f"group by m.topic, t.{g.end}"
        )

    def _exploded(self) -> str:
        what = self.chance.choice(self.grammar.exploded)
        inner = f"select explode({what}) k from {self.grammar.table}{self._where()}"
        return f"select k, count(*) n from ({inner}) group by k"

    def _union(self) -> str:
        kind = self.chance.choice(["union", "union all", "except", "intersect"])
        return (
            f"select {self.value(1)} a from {self.grammar.table}{self._where()} {kind} "
            f"select {self.value(1)} a from {self.grammar.table}"
        )

    def _where(self) -> str:
        return f" where {self.of('truth', 2)}" if self.chance.random() < 0.6 else ""

    def value(self, depth: int = 2) -> str:
        return self.of(self.chance.choice(["number", "text", "time", "truth", "binary", "array"]), depth)

    def of(self, kind: str, depth: int) -> str:
        """An expression that is of a kind, as a rule."""
        if self.chance.random() < 0.04:
            kind = self.chance.choice(list(self.grammar.columns))
        if depth == 0 or self.chance.random() < 0.25:
            return self.chance.choice(self.grammar.columns[kind] * 2 + self.grammar.literals[kind])
        text, number, time, truth = (lambda k=k: self.of(k, depth - 1) for k in ("text", "number", "time", "truth"))
        any_kind = self.chance.choice(["text", "number", "time"])
        some: Make = lambda: self.of(any_kind, depth - 1)  # noqa: E731
        one, two = some(), some()
        made = {
            "number": [
                f"({number()} {self.chance.choice('+-*/')} {number()})", f"length({text()})", f"hour({time()})",
                f"cast({one} as {self.chance.choice(CASTS[:3])})", f"abs({number()})", f"-({number()})",
                f"coalesce({number()}, {number()})", f"case when {truth()} then {number()} else {number()} end",
                f"if({truth()}, {number()}, {number()})", f"year({time()})",
            ],
            "text": [
                f"upper({text()})", f"lower({text()})", f"coalesce({text()}, {text()})",
                f"substring({text()}, {self.chance.choice(['0', '1', '2', '-2'])}, 3)",
                f"cast({one} as {self.chance.choice(CASTS)})", f"case when {truth()} then {text()} end",
            ],
            "time": [
                f"date_trunc('{self.chance.choice(['day', 'hour', 'minute'])}', {time()})", f"to_date({time()})",
                f"cast({one} as {self.chance.choice(['timestamp', 'date'])})", f"coalesce({time()}, {time()})",
            ],
            "truth": [
                f"{one} {self.chance.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {two}",
                f"({truth()} {self.chance.choice(['and', 'or'])} {truth()})", f"not {truth()}", f"{one} is null",
                f"{text()} like '{self.chance.choice(self.grammar.likes)}'", f"{number()} in (0, 1, 2)",
                f"{one} between {two} and {some()}", f"startswith({text()}, 'Lab')",
                f"{text()} in ('LabLog', {text()})",
            ],
        }.get(kind)  # fmt: skip
        further = [one.replace("{text}", text()) for one in self.grammar.further.get(kind, [])]
        return self.chance.choice(made + further if made else self.grammar.columns[kind])


@pytest.fixture(params=[ROCKETMQ, KAFKA], ids=lambda grammar: grammar.format)
def grammar(request: pytest.FixtureRequest) -> Grammar:
    found: Grammar = request.param
    return found


def mounted(grammar: Grammar) -> list[Mounted]:
    return [Mounted("", {"path": str(golden.pristine(grammar.store))}, grammar.format)]


def in_order(rows: list[dict[str, Any]]) -> list[bytes]:
    return sorted(orjson.dumps(row, default=lambda value: value.hex(), option=orjson.OPT_SORT_KEYS) for row in rows)


def answer(engine: SparkQueries, text: str) -> list[bytes] | None:
    """What Spark gives; None where it refuses the query."""
    from rmqctl.pipeline.jobs import job
    from rmqctl.pipeline.queries import rows

    try:
        with job(engine.spark, "query"):
            return in_order(list(rows(engine.query(text))))
    except BadQuery:
        return None


@pytest.mark.spark
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_same_rows_or_a_refusal(count: int, grammar: Grammar, spark: SparkSession) -> None:
    from rmqctl.pipeline.queries import SparkQueries

    local, on_spark = LocalQueries(mounted(grammar)), SparkQueries(spark, mounted(grammar))
    ran = refused = seed = 0
    while ran < count:
        text = Queries(seed, grammar).one()
        seed += 1
        found: list[bytes] | None
        try:
            found = in_order(list(local.rows(text)))
        except NotForLocalEngine:
            refused += 1
            continue
        except BadQuery:
            found = None
        ran += 1
        assert answer(on_spark, text) == found, f"{seed - 1}: {text}"
    assert ran * 8 > refused  # the grammar is mostly that of both
