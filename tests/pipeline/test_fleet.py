"""A fleet as one Spark job: what it says of each store is what is said of the store alone, on disk and on screen."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fixtures import golden
from rmqctl.errors import WrongUsage
from rmqctl.pipeline.fleet import TASK_BYTES, Spread, View
from tests.pipeline import fleets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of both families, sound and damaged, one that is none, and a directory more of a Kafka broker."""
    root = tmp_path_factory.mktemp("fleet")
    for name, own, seed in (
        ("a", "5.5.0-crash", None), ("b", "5.5.0-crash", 3), ("c", "4.9.8-clean", 5), ("k1", "4.3.1-clean", None),
        ("k2", "3.9.2-crash", 2), ("k3", "3.9.2-crash", None),
    ):  # fmt: skip
        shutil.move(golden.unpack(own, root / "unpacked"), root / name)
        if seed is not None:
            fleets.damage(root / name, seed)
    shutil.rmtree(root / "unpacked")
    fleets.second_directory(root / "k1", root / "k4")
    (root / "none").mkdir()
    return root


@pytest.fixture
def small_tasks(spark: SparkSession) -> Any:
    """Logs of some hundred KiB are divided."""
    spark.conf.set(TASK_BYTES, "100k")
    yield
    spark.conf.unset(TASK_BYTES)


@pytest.mark.parametrize(
    ("verb", "kind"),
    [("verify", "json"), ("verify", "table"), ("recover", "jsonl"), ("recover", "table"), ("rebuild", "json")],
)
def test_it_is_what_single_runs_say(
    spark: SparkSession, small_tasks: None, rmqctl: Run, stores: Path, verb: str, kind: str
) -> None:
    del spark, small_tasks
    here, there = (rmqctl(verb, f"{stores}/*", "-o", kind, *more) for more in ((), ("--engine", "spark")))
    assert (here.exit_code, there.exit_code) == (1, 1)
    assert fleets.timeless(there.stdout) == fleets.timeless(here.stdout)
    assert fleets.remarks(there.stderr) == fleets.remarks(here.stderr)
    if kind == "json":
        rows = json.loads(there.stdout)["stores"]
        assert [Path(row["store"].split(",")[0]).name for row in rows] == ["a", "b", "c", "k1", "k2", "k3", "none"]
        assert "error" in rows[-1]


def test_pairs_are_compared_as_they_are_alone(spark: SparkSession, rmqctl: Run, stores: Path, tmp_path: Path) -> None:
    del spark
    for name in ("a", "b", "k2", "none", "new"):
        shutil.copytree(stores / ("a" if name in "ab" else "k3" if name == "k2" else "none"), tmp_path / name)
    for kind in ("json", "table"):
        arguments = ("diff", f"{stores}/*", f"{tmp_path}/*", "-o", kind)
        here, there = (rmqctl(*arguments, *more) for more in ((), ("--engine", "spark")))
        assert (here.exit_code, there.exit_code) == (1, 1)
        assert fleets.timeless(there.stdout) == fleets.timeless(here.stdout)
        assert fleets.remarks(there.stderr) == fleets.remarks(here.stderr)


def test_an_inventory_says_the_release_and_keeps_its_order(
    spark: SparkSession, small_tasks: None, rmqctl: Run, stores: Path
) -> None:
    del spark, small_tasks
    rows = (("c", "4.9.8"), ("gone", ""), ("a", "5.3.0"))
    text = [f'[[store]]\npath = "{name}"\nname = "{name}"\nrole = "master"\n' for name, _ in rows]
    text = [one + (f'release = "{release}"\n' if release else "") for one, (_, release) in zip(text, rows, strict=True)]
    file = stores / "fleet.toml"
    file.write_text("\n".join(text), "utf-8")
    here, there = (rmqctl("verify", f"@{file}", "-o", "json", *more) for more in ((), ("--engine", "spark")))
    file.unlink()
    assert fleets.timeless(there.stdout) == fleets.timeless(here.stdout)
    found = json.loads(there.stdout)["stores"]
    assert [row.get("start", {}).get("release") for row in found] == ["4.9.8", None, "5.3.0"]


def test_tasks_are_stretches_of_all_stores(spark: SparkSession, small_tasks: None, stores: Path) -> None:
    from rmqctl.pipeline.fleet import Errand, listed
    from rmqctl.questions import Verify

    del small_tasks
    members, remarks = listed(spark, [f"{stores}/*"])
    assert not remarks
    assert [one.name for one in members] == [
        *(str(stores / name) for name in ("a", "b", "c")), f"{stores}/k1,{stores}/k4",
        *(str(stores / name) for name in ("k2", "k3", "none")),
    ]  # fmt: skip
    work = Spread(spark, [Errand(member, Verify()) for member in members], View())
    work.plan()
    rows = work._planned.select("store", "kind").collect()
    assert len([row for row in rows if row.store == 0]) > 3
    assert [row.kind for row in rows if row.store == 6] == [0], "what cannot be read is done"
    assert work.size > 1 << 20


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("verify", "--engine", "local", "--master", "local[2]"), "local has no use for"),
        (("recover", "--engine", "spark", "--compare"), "looks at several stores"),
        (("rebuild", "--apply"), "compared with their logs"),
        (("rebuild", "--engine", "spark", "--into", "x"), "compared with their logs"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(rmqctl: Run, stores: Path, arguments: Any, says: str) -> None:
    verb, *more = arguments
    result = rmqctl(verb, f"{stores}/*", *more)
    assert result.exit_code == 2
    assert says in re.sub(r"\s+", " ", result.stderr)


def test_a_wrong_size_of_tasks_is_a_sentence(spark: SparkSession) -> None:
    spark.conf.set(TASK_BYTES, "much")
    try:
        with pytest.raises(WrongUsage, match="give bytes, such as 64m"):
            Spread(spark, [], View())
    finally:
        spark.conf.unset(TASK_BYTES)
