"""The sample of slow tests that `--every N+K` takes: it moves with K, and no case is out of its reach."""

from __future__ import annotations

import pytest

pytest_plugins = "pytester"

TESTS = """
import pytest

@pytest.mark.parametrize("case", range(10))
def test_many(case): ...

@pytest.mark.parametrize("case", [pytest.param(0, marks=pytest.mark.fast), 1, 2])
def test_few(case): ...

def test_one(): ...
"""


@pytest.fixture
def taken(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers = fast\n")
    return pytester


def names(taken: pytest.Pytester, *options: str) -> list[str]:
    """Name the cases that a run with these options takes."""
    lines = taken.runpytest_inprocess("-p", "tests.conftest", "--collect-only", "-q", *options).outlines
    return [line.partition("::")[2] for line in lines if "::" in line]


def test_all_without_it(taken: pytest.Pytester) -> None:
    assert (
        names(taken)
        == names(taken, "--every", "1+7")
        == [
            *(f"test_many[{case}]" for case in range(10)),
            *(f"test_few[{case}]" for case in range(3)),
            "test_one",
        ]
    )


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("4", ["test_many[0]", "test_many[4]", "test_many[8]", "test_few[0]", "test_one"]),
        ("4+0", ["test_many[0]", "test_many[4]", "test_many[8]", "test_few[0]", "test_one"]),
        ("4+3", ["test_many[3]", "test_many[7]", "test_few[0]", "test_one"]),
        ("4+5", ["test_many[1]", "test_many[5]", "test_many[9]", "test_few[2]", "test_one"]),
        ("20+4219", ["test_many[9]", "test_few[1]", "test_one"]),
    ],
)
def test_it_begins_where_it_is_asked_to(taken: pytest.Pytester, sample: str, expected: list[str]) -> None:
    assert names(taken, "--every", sample) == expected


def test_samples_in_a_row_leave_no_case_out(taken: pytest.Pytester) -> None:
    every = [set(names(taken, "--every", f"4+{first}")) for first in range(6, 10)]
    assert set().union(*every) == set(names(taken))
    assert all({name.partition("[")[0] for name in one} == {"test_many", "test_few", "test_one"} for one in every)


def test_it_is_taken_of_what_marks_leave(taken: pytest.Pytester) -> None:
    assert names(taken, "--every", "4", "-m", "not fast") == [
        *(f"test_many[{case}]" for case in (0, 4, 8)),
        "test_few[1]",
        "test_one",
    ]


@pytest.mark.parametrize("sample", ["0", "-3", "0+2", "x", "4+x", "+4", ""])
def test_what_is_no_sample_is_refused(taken: pytest.Pytester, sample: str) -> None:
    with pytest.raises(pytest.UsageError, match="--every"):
        taken.parseconfig("-p", "tests.conftest", f"--every={sample}")
