"""The CSV of a table has one header, whatever the store holds, and every key of a row stands below it."""

from __future__ import annotations

import csv
import json
from io import StringIO

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
