"""Topics, groups and keys by pattern, several at once, and what is said of names that nothing has."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from rmqctl import open as open_store
from rmqctl.filters import Filters, Glob, Names
from rmqctl.release import Release
from tests.conftest import Rmqctl

ROCKETMQ, KAFKA = "5.3.3-clean", "3.9.2-clean"
_NAMES = st.text("ab*?[]", max_size=4)


def rows(rmqctl: Rmqctl, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqctl(*words, "-o", "jsonl").stdout.splitlines()]


@given(st.lists(_NAMES | _NAMES.map(Glob)), _NAMES)
def test_a_pattern_is_one_only_where_it_says_so(wanted: list[str], name: str) -> None:
    met = any(fnmatchcase(name, w) if isinstance(w, Glob) else name == w for w in wanted)
    assert Names.of(wanted).include(name) == (met or not wanted)
    unmet = Names.of(wanted).unmet([name])
    assert sorted(unmet) == sorted(w for w in wanted if not Names.of([w]).include(name))


def test_no_names_and_all_names_are_the_same_question() -> None:
    assert Filters(topic=(), key=[]).is_empty
    assert not Filters(topic="").is_empty


@pytest.mark.parametrize("name", [ROCKETMQ, KAFKA])
@pytest.mark.parametrize("wanted", [["*"], ["Lab*"], ["txn-?"], ["z-[gl]*", "plain-none"], ["LabO*", "LabLog"]])
def test_topics_by_pattern(name: str, wanted: list[str], rmqctl: Rmqctl) -> None:
    store = str(golden.pristine(name))
    given = [word for pattern in wanted for word in ("--topic", pattern)]
    every = rows(rmqctl, "topics", store)
    met = [row for row in every if any(fnmatchcase(row["topic"], pattern) for pattern in wanted)]
    assert rows(rmqctl, "topics", store, *given) == met
    records = ["dump", store, "--records"] if name == KAFKA else ["dump", store]
    shown = [row for row in rows(rmqctl, *records) if row["kind"] in {"message", "record", "batch"}]
    met = [row for row in shown if any(fnmatchcase(row["topic"], pattern) for pattern in wanted)]
    assert [row for row in rows(rmqctl, *records, *given) if row["kind"] in {"message", "record", "batch"}] == met


@pytest.mark.parametrize(("name", "pattern"), [(ROCKETMQ, "Lab_*"), (KAFKA, "g-t*")])
def test_groups_by_pattern(name: str, pattern: str, rmqctl: Rmqctl) -> None:
    store = str(golden.pristine(name))
    every = rows(rmqctl, "lag", store)
    met = [row for row in every if fnmatchcase(row["group"], pattern)]
    assert met
    assert rows(rmqctl, "lag", store, "--group", pattern) == met


def test_keys_by_pattern(rmqctl: Rmqctl) -> None:
    store = str(golden.pristine(KAFKA))
    every = [row for row in rows(rmqctl, "dump", store, "--records") if row["kind"] == "record"]
    for names in (["k1*"], ["k1", "k2"], ["*"], ["k?", "key-1"]):
        met = [r for r in every if isinstance(r["key"], str) and any(fnmatchcase(r["key"], p) for p in names)]
        words = [word for pattern in names for word in ("--key", pattern)]
        found = [row for row in rows(rmqctl, "dump", store, "--records", *words) if row["kind"] == "record"]
        assert [r for r in found if isinstance(r["key"], str)] == met


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topics", ROCKETMQ, "--topic", "LabOrder"], "the store knows no topic LabOrder; did you mean LabOrders"),
        (["topics", ROCKETMQ, "--topic", "Nope*"], "no topic with a queue matches Nope*"),
        (["topics", KAFKA, "--topic", "txna"], "no partition of topic txna is here; did you mean txn-a"),
        (["topics", KAFKA, "--topic", "txna*"], "no partition of a topic that matches txna* is here"),
        (["topics", KAFKA, "--topic", "txn-*", "--topic", "no"], "no partition of topic no is here"),
        (["lag", ROCKETMQ, "--group", "lab_grpfull"], "group lab_grpfull; did you mean Lab_grpFull?"),
        (
            ["lag", KAFKA, "--group", "g-static", "--group", "gtxn"],
            "no offset is committed for group gtxn; did you mean g-txn",
        ),
        (["dump", ROCKETMQ, "--topic", "laborders"], "the store knows no topic laborders; did you mean LabOrders?"),
        (["dump", KAFKA, "--topic", "tn-*"], "no topic here matches tn-*"),
    ],
)
def test_a_name_that_nothing_has_is_no_and_brings_the_nearest(words: list[str], said: str, rmqctl: Rmqctl) -> None:
    done = rmqctl(words[0], str(golden.pristine(words[1])), *words[2:])
    assert done.exit_code == 1
    assert said in done.stderr


def test_where_only_hashes_are_known_a_pattern_is_refused(rmqctl: Rmqctl) -> None:
    store = str(golden.pristine(ROCKETMQ))
    for words in (["dump", f"{store}/index", "--key", "a*"], ["query-key", store, "--topic", "Lab*", "k"]):
        assert rmqctl(*words).exit_code == 2


def test_a_rebuild_takes_patterns_of_names_that_are_known(rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = str(golden.pristine(ROCKETMQ))
    known = [name for name in open_store(store).topic_names() if name.startswith("LabO")]  # type: ignore[union-attr]
    by_name = rmqctl("rebuild", store, *(word for name in known for word in ("--topic", name)), "-o", "json")
    by_pattern = rmqctl("rebuild", store, "--topic", "LabO*", "-o", "json")
    assert json.loads(by_pattern.stdout)["changes"] == json.loads(by_name.stdout)["changes"]
    assert rmqctl("rebuild", store, "--topic", "Nope*").exit_code == 2


def test_the_library_takes_names_as_they_stand() -> None:
    store = open_store(str(golden.pristine(ROCKETMQ)))
    assert list(store.topics(topic="Lab*")) == []  # type: ignore[union-attr]
    assert {row["topic"] for row in store.topics(topic=Glob("LabO*"))} == {"LabOne", "LabOrders"}  # type: ignore[union-attr]
    assert {row["topic"] for row in store.lag(topic=["LabLog"], as_release=Release(5, 3, 3))} == {"LabLog"}  # type: ignore[union-attr]
