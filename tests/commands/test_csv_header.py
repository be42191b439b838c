"""The CSV of a table has one header, whatever the store holds, and every key of a row stands below it."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from fixtures import golden
from tests.conftest import Rmqctl

BOTH = [["topics"], ["topics", "--by-topic"], ["lag"]]
CASES = [
    *(("5.5.0-crash", verb) for verb in BOTH),
    *(("4.3.1-clean", verb) for verb in [*BOTH, ["producers"], ["transactions"]]),
]


@pytest.mark.parametrize(("name", "verb"), CASES, ids="".join)
def test_the_header_has_every_key_in_order(name: str, verb: list[str], rmqctl: Rmqctl) -> None:
    words = [verb[0], str(golden.pristine(name)), *verb[1:]]
    rows = [json.loads(line) for line in rmqctl(*words, "-o", "jsonl").stdout.splitlines()]
    shown = list(csv.DictReader(StringIO(rmqctl(*words, "-o", "csv").stdout)))
    assert rows
    assert len(shown) == len(rows)
    header = list(shown[0])
    assert all(list(row) == [key for key in header if key in row] for row in rows)


@pytest.mark.parametrize("name", ["5.5.0-crash", "4.3.1-clean"])
@pytest.mark.parametrize("verb", BOTH, ids=" ".join)
def test_no_rows_have_the_same_header(name: str, verb: list[str], rmqctl: Rmqctl) -> None:
    words = [verb[0], str(golden.pristine(name)), *verb[1:], "-o", "csv"]
    nothing = rmqctl(*words, "--topic", "no-such-topic")
    assert nothing.exit_code == 1
    assert nothing.stdout.splitlines() == rmqctl(*words).stdout.splitlines()[:1]


LOOKUPS = [
    ("5.5.0-crash", ["dump", "--topic", "LabOrders"], ["dump", "--topic", "no-such"]),
    ("5.5.0-crash", ["dump", "--body", "--key", "k1"], ["dump", "--body", "--key", "no-such"]),
    ("5.5.0-crash", ["query-key", "LabOrders", "k1"], ["query-key", "LabOrders", "no-such"]),
    ("5.5.0-crash", ["query-offset", "LabOrders/0", "0", "-n", "9"], ["query-offset", "LabOrders/0", "99999"]),
    ("5.5.0-crash", ["query-time", "LabOrders", "2026-11-20"], ["query-time", "LabOrders/0", "2099-01-01"]),
    ("5.5.0-crash", ["trace", "LabOrders/0@5"], ["trace", "no-such"]),
    ("4.3.1-clean", ["dump", "--topic", "idem"], ["dump", "--topic", "no-such"]),
    ("4.3.1-clean", ["dump", "--records", "--topic", "idem"], ["dump", "--records", "--topic", "no-such"]),
    ("4.3.1-clean", ["query-key", "txn-a", "k1"], ["query-key", "txn-a", "no-such"]),
    ("4.3.1-clean", ["query-offset", "txn-a/0", "0", "-n", "9"], ["query-offset", "txn-a/0", "99999"]),
    ("4.3.1-clean", ["query-time", "txn-a", "2026-11-20"], ["query-time", "txn-a/0", "2099-01-01"]),
    ("4.3.1-clean", ["trace", "txn-a/0@5"], ["trace", "no-such"]),
]


@pytest.mark.parametrize(("name", "some", "none"), LOOKUPS, ids=lambda value: "_".join(value) if value else "")
def test_records_have_one_header_whatever_matches(name: str, some: list[str], none: list[str], rmqctl: Rmqctl) -> None:
    root = str(golden.pristine(name))
    rows = [json.loads(line) for line in rmqctl(some[0], root, *some[1:], "-o", "jsonl").stdout.splitlines()]
    shown = list(csv.DictReader(StringIO(rmqctl(some[0], root, *some[1:], "-o", "csv").stdout)))
    assert len(shown) == len(rows) > 0
    assert {key for row in rows for key in row} <= set(shown[0])
    nothing = rmqctl(none[0], root, *none[1:], "-o", "csv").stdout.splitlines()
    assert nothing[0].split(",") == list(shown[0])


def test_a_query_without_rows_has_its_columns(rmqctl: Rmqctl) -> None:
    query = "select topic, queue_id as q, store_timestamp from messages where topic = 'no-such'"
    nothing = rmqctl("sql", golden.pristine("5.5.0-crash"), query, "-o", "csv")
    assert nothing.exit_code == 1
    assert nothing.stdout.splitlines() == ["topic,q,store_timestamp"]
    three = rmqctl("sql", golden.pristine("5.5.0-crash"), "select topic from messages", "-o", "csv", "-n", "3")
    assert len(three.stdout.splitlines()) == 4


def test_a_plan_without_steps_has_its_header(rmqctl: Rmqctl) -> None:
    text = rmqctl("repair", golden.pristine("4.3.1-clean"), "-o", "csv").stdout
    assert text == "kind,id,file,what,why,loses,gives_up,edits\n"


@pytest.mark.parametrize(
    "words",
    [["dump"], ["query-offset", "LabOrders/0", "0", "-n", "9"], ["query-key", "LabOrders", "k1"], ["stats"]],
    ids=lambda words: words[0],
)
def test_rows_are_chosen_and_ordered(words: list[str], rmqctl: Rmqctl) -> None:
    root = golden.pristine("5.5.0-crash")
    more = ("--columns", "topic,queue_offset") if words != ["stats"] else ("--columns", "topic,messages")
    key = more[1].split(",")[1]
    given = rmqctl(words[0], root, *words[1:], *more, f"--sort=-{key}", "-o", "jsonl")
    rows = [json.loads(line) for line in given.stdout.splitlines()]
    assert rows and all(list(row) == more[1].split(",") for row in rows)
    numbers = [row[key] for row in rows if row[key] is not None]
    assert numbers == sorted(numbers, reverse=True)
    names = rmqctl(words[0], root, *words[1:], "--columns", "help").stdout.split()
    assert set(more[1].split(",")) <= set(names)
    wrong = rmqctl(words[0], root, *words[1:], "--columns", "topik")
    assert wrong.exit_code == 2 and "topic" in wrong.stderr


def test_one_object_has_no_columns(rmqctl: Rmqctl) -> None:
    refused = rmqctl("info", golden.pristine("5.5.0-crash"), "--columns", "kind")
    assert refused.exit_code == 2
    assert "chooses in a table; with -o table this is one object" in refused.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("4.3.1-clean", ["metadata"]),
        ("4.3.1-clean", ["elect", str(golden.pristine("4.3.1-crash"))]),
        ("4.3.1-clean", ["query-offset", "txn-a/0", "0"]),
        ("5.5.0-crash", ["query-offset", "LabOrders/0", "0"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
@pytest.mark.parametrize("option", ["--columns", "--sort"])
def test_a_column_that_is_none_prints_nothing_but_the_refusal(
    name: str, words: list[str], option: str, rmqctl: Rmqctl
) -> None:
    refused = rmqctl(words[0], golden.pristine(name), *words[1:], option, "topik")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "'topik' is no column here" in refused.stderr


def test_of_several_tables_those_are_shown_that_have_a_wanted_column(rmqctl: Rmqctl) -> None:
    words = ("metadata", golden.pristine("4.3.1-clean"), "--columns", "topic,leader", "--sort=-topic", "-n", "2")
    text = rmqctl(*words).stdout
    assert text.startswith("metadata up to offset ")
    assert [line for line in text.splitlines() if line.endswith(":")] == ["topics:", "partitions:"]
    assert text.count("z-zstd") == 3, "once as a topic, twice as a partition"


@pytest.mark.parametrize(
    ("name", "verb", "more"),
    [
        ("4.3.1-clean", ["metadata"], ["--at", "2020-01-01"]),
        ("4.3.1-clean", ["stats"], ["--topic", "no-such"]),
        ("5.5.0-crash", ["stats"], ["--topic", "no-such"]),
        ("5.5.0-crash", ["stats"], ["--by", "hour"]),
        ("5.5.0-crash", ["recover"], ["--as-release", "4.9.8"]),
    ],
)
def test_answers_of_several_shapes_have_one_header(name: str, verb: list[str], more: list[str], rmqctl: Rmqctl) -> None:
    root = golden.pristine(name)
    whole = csv.DictReader(StringIO(rmqctl(*verb, root, "-o", "csv").stdout))
    some = rmqctl(*verb, root, *more, "-o", "csv").stdout.splitlines()[0]
    assert some.split(",") == list(whole.fieldnames or ())
    rows = [json.loads(line) for line in rmqctl(*verb, root, "-o", "jsonl").stdout.splitlines()]
    of_rows = {key for row in rows if row.get("kind") not in {"duplicates", "top_key"} for key in row}
    assert of_rows <= set(whole.fieldnames or ())


@pytest.mark.parametrize("leader", [[], ["--leader", str(golden.pristine("4.3.1-crash"))]], ids=["alone", "leader"])
def test_a_start_of_a_log_directory_has_its_header(leader: list[str], rmqctl: Rmqctl) -> None:
    words = ("recover", golden.pristine("4.3.1-clean"), *leader)
    shown = csv.DictReader(StringIO(rmqctl(*words, "-o", "csv").stdout))
    assert {"stray", "hidden"} <= set(shown.fieldnames or ())
    rows = [json.loads(line) for line in rmqctl(*words, "-o", "jsonl").stdout.splitlines()]
    kinds = {"summary"}
    assert {key for row in rows if row.get("kind") not in kinds for key in row} <= set(shown.fieldnames or ())


@pytest.mark.parametrize(
    "verb",
    [
        "recover",
        *(pytest.param(verb, marks=pytest.mark.slow) for verb in ("verify", "info", "doctor", "topics", "lag")),
    ],
)
@pytest.mark.parametrize(
    "names", [("5.5.0-clean", "5.5.0-crash"), ("4.3.1-clean", "4.3.1-crash")], ids=lambda one: one[0]
)
def test_several_stores_have_one_header_whatever_can_be_read(
    verb: str, names: tuple[str, str], rmqctl: Rmqctl, tmp_path: Path
) -> None:
    stores = [golden.pristine(name) for name in names]
    rows = [json.loads(line) for line in rmqctl(verb, *stores, "-o", "jsonl").stdout.splitlines()]
    shown = list(csv.DictReader(StringIO(rmqctl(verb, *stores, "-o", "csv").stdout)))
    header = list(shown[0])
    assert {key for row in rows if row.get("kind") != "summary" for key in row} <= set(header)
    assert {"store", "cluster", "error"} <= set(header[:4])
    some = csv.DictReader(StringIO(rmqctl(verb, stores[0], tmp_path, "-o", "csv").stdout))
    assert list(some.fieldnames or ()) == header
    assert [row["store"] for row in some if row["error"]] == [str(tmp_path)]
    none = rmqctl(verb, tmp_path, tmp_path / "no-such", "-o", "csv").stdout.splitlines()
    assert len(none) == 3
    assert none[0].split(",") == header[: len(none[0].split(","))]
