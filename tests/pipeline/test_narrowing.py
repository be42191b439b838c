"""Conditions at random over stores that are damaged, made again, set back in time and cut: what is not read matches none.

Each condition is put to every row of the whole table here, and to the local engine, which leaves out what it can.
"""

from __future__ import annotations

import operator
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.pipeline.local_sql import LocalQueries
from rmqctl.pipeline.mounted import Mounted
from rmqctl.tables import tables_of
from tests.pipeline import fleets, truths

Row = dict[str, Any]
Test = Callable[[Row], bool | None]
EACH = 10
"""Conditions over one store."""
COMPARED = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True)
class Family:
    """Where rows lie, and what is done to their stores."""

    format: str
    stores: tuple[str, ...]
    place: tuple[str, ...]
    time: str
    harms: tuple[Callable[[Path, random.Random], object], ...]


# --- harm -------------------------------------------------------------------------------------------------


def flip(root: Path, chance: random.Random) -> None:
    fleets.damage(root, chance.randrange(1 << 30), chance.randrange(1, 6))


def cut(root: Path, chance: random.Random) -> None:
    """End a log somewhere, or have zeros from there on."""
    logs = [path for pattern in ("commitlog/*", "*-*/*.log") for path in sorted(root.glob(pattern))]
    path = chance.choice([path for path in logs if path.stat().st_size > 100])
    data = path.read_bytes()
    at = chance.randrange(len(data))
    path.write_bytes(data[:at] + (bytes(len(data) - at) if chance.random() < 0.5 else b""))


def made_again(root: Path, chance: random.Random) -> None:
    """A topic of which queues say less than the log, or what is said of another."""
    queues = sorted(path for path in root.glob("consumequeue/*/*") if path.is_dir())
    for queue in chance.sample(queues, 3):
        files = sorted(queue.iterdir())
        how = chance.random()
        if how < 0.3:
            shutil.rmtree(queue)
        elif how < 0.6:
            data = files[0].read_bytes()
            used = len(data.rstrip(b"\0"))
            at = chance.randrange(max(used, 1)) // 20 * 20
            files[0].write_bytes(data[:at] + bytes(len(data) - at))
        else:
            other = chance.choice([path for path in queues if path.is_dir()])
            shutil.copyfile(min(other.iterdir()), files[0].with_suffix(".copy"))
            files[0].with_suffix(".copy").replace(files[0])


def set_back(root: Path, chance: random.Random) -> None:
    """A clock that was wrong while one file of the log was written."""
    path = chance.choice(sorted((root / "commitlog").iterdir()))
    data, shift = bytearray(path.read_bytes()), chance.choice([-7_200_000, -300_000, 7_200_000, 40_000_000_000_000])
    for row in truths.expected(root.name):
        if row["file"] == path.name and len(data) >= row["position"] + 64:
            at = row["position"] + 56
            time = int.from_bytes(data[at : at + 8], "big") + shift
            data[at : at + 8] = time.to_bytes(8, "big", signed=True)
    path.write_bytes(data)


def lost_file(root: Path, chance: random.Random) -> None:
    """A file of the log that is gone, with or without what leads to it."""
    logs = [path for pattern in ("commitlog/*", "*-*/*.log") for path in sorted(root.glob(pattern))]
    chance.choice(logs).unlink()


def wrong_index(root: Path, chance: random.Random) -> None:
    """Entries of indexes that are lost, or lead elsewhere."""
    for path in chance.sample(sorted(root.glob("*-*/*.*index")), 8):
        data = bytearray(path.read_bytes())
        if chance.random() < 0.3:
            path.unlink()
        elif data:
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data[: chance.choice([len(data), len(data) // 16 * 8])])


ROCKETMQ = Family(
    "rocketmq", ("4.5.2-clean", "4.9.8-crash", "5.3.3-clean", "5.5.0-crash"), ("topic", "queue_id", "physical_offset"),
    "store_timestamp", (flip, cut, made_again, set_back, lost_file),
)  # fmt: skip
KAFKA = Family(
    "kafkalog", ("2.8.2-clean", "3.9.2-crash", "4.3.1-clean"), ("topic", "partition", "offset"), "timestamp",
    (flip, cut, lost_file, wrong_index, wrong_index),
)  # fmt: skip


@pytest.fixture(params=[ROCKETMQ, KAFKA], ids=lambda family: family.format)
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


# --- conditions -------------------------------------------------------------------------------------------


class Conditions:
    """Makes conditions, each with what it is to a row: true, false, or None where nobody knows."""

    def __init__(self, chance: random.Random, family: Family, rows: list[Row]) -> None:
        self.chance, self.family, self.rows = chance, family, rows

    def one(self, depth: int = 2) -> tuple[str, Test]:
        if depth == 0 or self.chance.random() < 0.3:
            return self._comparison()
        how = self.chance.choice(["and", "and", "and", "or", "not"])
        if how == "not":
            text, test = self.one(depth - 1)
            return f"not ({text})", lambda row: None if (was := test(row)) is None else not was
        (one, a), (two, b) = self.one(depth - 1), self.one(depth - 1)
        stops = how == "or"

        def joined(row: Row) -> bool | None:
            both = {a(row), b(row)}
            return stops if stops in both else None if None in both else not stops

        return f"({one}) {how} ({two})", joined

    def _comparison(self) -> tuple[str, Test]:
        column = self.chance.choice([*self.family.place, self.family.time])
        form = self.chance.choice(["compared", "compared", "between", "in"])
        if form == "between":
            (low, a), (high, b) = self._value(column), self._value(column)
            return f"{column} between {low} and {high}", _known(column, lambda v: a <= v <= b)
        if form == "in" and column != self.family.time:
            made = [self._value(column) for _ in range(3)]
            values = {value for _, value in made}
            return f"{column} in ({', '.join(text for text, _ in made)})", _known(column, lambda v: v in values)
        sign = self.chance.choice(list(COMPARED))
        (text, value), compare = self._value(column), COMPARED[sign]
        if self.chance.random() < 0.2:
            return f"{text} {sign} {column}", _known(column, lambda v: compare(value, v))
        return f"{column} {sign} {text}", _known(column, lambda v: compare(v, value))

    def _value(self, column: str) -> tuple[str, Any]:
        """A literal and its value: one of the table's, or near it."""
        found = self.chance.choice(self.rows)[column] if self.rows else None
        if column == "topic":
            name = found if found is not None and "'" not in found and "\\" not in found else "nothing"
            return f"'{name}'", name
        if column != self.family.time:
            number = max((found or 0) + self.chance.choice([0, 0, 1, -1, 100]), 0)
            number = min(number, (1 << 31) - 1)
            return str(number), number
        if found is None or not 2000 < found.year < 9000:
            found = datetime(2026, 11, 21, 2, tzinfo=UTC)
        found += timedelta(milliseconds=self.chance.choice([0, 0, 1, -1, 3_600_000]))
        if self.chance.random() < 0.2:
            day = found.replace(hour=0, minute=0, second=0, microsecond=0)
            return f"date '{day:%Y-%m-%d}'", day
        if self.chance.random() < 0.5:
            east = found + timedelta(hours=2)
            return f"timestamp '{east:%Y-%m-%dT%H:%M:%S.%f}+02:00'", found
        return f"timestamp '{found:%Y-%m-%d %H:%M:%S.%f}'", found


def _known(column: str, test: Callable[[Any], bool]) -> Test:
    return lambda row: None if row[column] is None else test(row[column])


# --- the tests --------------------------------------------------------------------------------------------


def harmed(family: Family, room: Path, chance: random.Random) -> Iterator[Path]:
    while True:
        root = golden.unpack(chance.choice(family.stores), room)
        for harm in chance.sample(family.harms, chance.randrange(1, 4)):
            harm(root, chance)
        yield root
        shutil.rmtree(root)


def check(family: Family, room: Path, seed: int, count: int) -> None:
    chance, done = random.Random(seed), 0
    names = [*family.place, family.time]
    for root in harmed(family, room, chance):
        if done >= count:
            return
        options = {"path": os.fspath(root), "splitSize": "8K"}
        table = tables_of(family.format, {**options, "columns": ",".join(names), "skip": "false"})
        whole = table.table(table.names[0])
        rows = [row for part in whole.parts() for batch in whole.read(part) for row in batch.to_pylist()]
        local = LocalQueries([Mounted("", options, family.format)])
        conditions = Conditions(chance, family, rows)
        for _ in range(EACH):
            text, test = conditions.one()
            query = f"select {', '.join(family.place)} from {table.names[0]} where {text}"
            expected = sorted(tuple(row[name] for name in family.place) for row in rows if test(row))
            found = sorted(tuple(row[name] for name in family.place) for row in local.rows(query))
            assert found == expected, f"seed {seed}, {done}: {query}"
            done += 1


@pytest.mark.parametrize("count", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_what_is_not_read_matches_no_condition(count: int, family: Family, tmp_path: Path) -> None:
    check(family, tmp_path, count, count)
