"""Queries made at random from the grammar that the pages name: both engines give the same rows, or one of them refuses.

What the local engine runs, Spark runs with the same rows; where it says that a query is wrong, it is wrong to Spark.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from fixtures import golden
from rmqctl.pipeline.local_sql import LocalQueries
from rmqctl.pipeline.mounted import BadQuery, Mounted, NotForLocalEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqctl.pipeline.queries import SparkQueries

STORE = "5.5.0-clean"
COLUMNS = {
    "number": ["size", "queue_id", "physical_offset", "queue_offset", "flag", "reconsume_times", "body_size"],
    "text": ["topic", "tags", "unique_key", "born_host", "magic"],
    "time": ["store_timestamp", "born_timestamp"],
    "truth": ["body_crc_ok"],
    "binary": ["body"],
    "array": ["keys"],
    "map": ["properties"],
}
LITERALS = {
    "number": ["0", "1", "3", "1000", "-7", "2147483647", "3000000000"],
    "text": ["'TagA'", "'LabLog'", "''", "'ß'", "'İi'", "'1'", "'a%'"],
    "time": [
        "timestamp '2026-11-21 01:30:00'", "timestamp '2026-11-21T01:30:00+02:00'", "date '2026-11-21'", "'2026-11-21'",
        "cast('2026-11-21 01:30:00.5' as timestamp)", "timestamp '2026-11'",
    ],
    "truth": ["true", "false"],
    "binary": ["body"], "array": ["keys"], "map": ["properties"],
}  # fmt: skip
CASTS = ("int", "bigint", "double", "string", "timestamp", "date", "boolean", "binary", "smallint")
Make = Callable[[], str]


class Queries:
    """Makes queries; some of their parts have types that do not fit."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def one(self) -> str:
        return self.chance.choice([self._rows, self._groups, self._window, self._join, self._exploded, self._union])()

    def _rows(self) -> str:
        chosen = ", ".join(f"{self.value()} c{number}" for number in range(self.chance.randrange(1, 4)))
        return f"select physical_offset p, {chosen} from messages{self._where()} order by physical_offset limit 50"

    def _groups(self) -> str:
        by = self.value(depth=1)
        having = self.chance.choice(["", "", " having count(*) > 2"])
        return f"select {by} g, {self._total()} a, {self._total()} b from messages{self._where()} group by {by}{having}"

    def _total(self) -> str:
        name = self.chance.choice(["count", "min", "max", "sum", "avg", "count(distinct"])
        end = "))" if "(" in name else ")"
        inner = self.of(self.chance.choice(["number", "number", "text", "time", "truth"]), 1)
        total = f"{name}{'' if '(' in name else '('}{' ' if '(' in name else ''}{inner}{end[:1]}"
        return f"{total} filter (where {self.of('truth', 1)})" if self.chance.random() < 0.1 else total

    def _window(self) -> str:
        name = self.chance.choice(["row_number()", "rank()", "sum(size)", "lag(size)", "lead(topic)", "count(*)"])
        over = f"partition by {self.of('text', 0)} order by physical_offset"
        return f"select physical_offset p, {name} over ({over}) w from messages{self._where()}"

    def _join(self) -> str:
        on = self.chance.choice(
            ["m.topic = t.topic and m.queue_id = t.queue_id", "m.topic = t.topic", "m.size = t.topic"]
        )
        kind = self.chance.choice(["join", "left join"])
        return (
            f"select m.topic t, t.max_offset o, count(*) n, sum(m.size) s from messages m {kind} topics t on {on} "
            "group by m.topic, t.max_offset"
        )

    def _exploded(self) -> str:
        what = self.chance.choice(["keys", "keys", "properties", "inner"])
        return f"select k, count(*) n from (select explode({what}) k from messages{self._where()}) group by k"

    def _union(self) -> str:
        kind = self.chance.choice(["union", "union all", "except", "intersect"])
        return (
            f"select {self.value(1)} a from messages{self._where()} {kind} select {self.value(1)} a from topics_alike"
        )

    def _where(self) -> str:
        return f" where {self.of('truth', 2)}" if self.chance.random() < 0.6 else ""

    def value(self, depth: int = 2) -> str:
        return self.of(self.chance.choice(["number", "text", "time", "truth", "binary", "array"]), depth)

    def of(self, kind: str, depth: int) -> str:
        """An expression that is of a kind, as a rule."""
        if self.chance.random() < 0.04:
            kind = self.chance.choice(list(COLUMNS))
        if depth == 0 or self.chance.random() < 0.25:
            return self.chance.choice(COLUMNS[kind] * 2 + LITERALS[kind])
        text, number, time, truth = (lambda k=k: self.of(k, depth - 1) for k in ("text", "number", "time", "truth"))
        any_kind = self.chance.choice(["text", "number", "time"])
        some: Make = lambda: self.of(any_kind, depth - 1)  # noqa: E731
        one, two = some(), some()
        made = {
            "number": [
                f"({number()} {self.chance.choice('+-*/')} {number()})", f"length({text()})", f"hour({time()})",
                f"cast({one} as {self.chance.choice(CASTS[:3])})", f"abs({number()})", f"-({number()})", "length(body)",
                f"coalesce({number()}, {number()})", f"case when {truth()} then {number()} else {number()} end",
                f"if({truth()}, {number()}, {number()})", f"year({time()})",
            ],
            "text": [
                f"upper({text()})", f"lower({text()})", f"coalesce({text()}, {text()})", "properties['TAGS']",
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
                f"{text()} like '{self.chance.choice(['Lab%', '%a%', 'T_gA', ''])}'", f"{number()} in (0, 1, 2)",
                f"{one} between {two} and {some()}", f"startswith({text()}, 'Lab')",
                f"array_contains(keys, {text()})", f"{text()} in ('LabLog', {text()})",
            ],
        }.get(kind)  # fmt: skip
        return self.chance.choice(made or COLUMNS[kind])


@pytest.fixture(scope="module")
def local() -> LocalQueries:
    return LocalQueries([Mounted("", {"path": str(golden.pristine(STORE))})])


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession) -> SparkQueries:
    from rmqctl.pipeline.queries import SparkQueries

    return SparkQueries(spark, [Mounted("", {"path": str(golden.pristine(STORE))})])


def in_order(rows: list[dict[str, Any]]) -> list[bytes]:
    return sorted(orjson.dumps(row, default=lambda value: value.hex(), option=orjson.OPT_SORT_KEYS) for row in rows)


def answer(engine: SparkQueries, text: str) -> list[bytes] | None:
    """What Spark gives; None where it refuses the query."""
    from pyspark.errors import PySparkException

    from rmqctl.pipeline.queries import rows

    try:
        return in_order(list(rows(engine.query(text))))
    except PySparkException:
        return None


@pytest.mark.spark
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_same_rows_or_a_refusal(count: int, local: LocalQueries, on_spark: SparkQueries) -> None:
    ran = refused = seed = 0
    while ran < count:
        text = Queries(seed).one().replace("topics_alike", "messages")
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
