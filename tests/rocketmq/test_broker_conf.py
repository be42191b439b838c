"""broker.conf is a Java properties file."""

from __future__ import annotations

import pytest

from rmqctl.rocketmq.store.geometry import flag, integer, parse_broker_conf


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("  a =  1 2 ", {"a": "1 2"}),
        ("a: 1\nb 2\n", {"a": "1", "b": "2"}),
        ("# a=1\n! b=2\n\nc=3\r\n", {"c": "3"}),
        ("a=1\\\n   2", {"a": "12"}),
        ("path=C\\:\\\\store", {"path": "C:\\store"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("mapedFileSizeCommitLog=65536", {"mapedFileSizeCommitLog": "65536", "mappedFileSizeCommitLog": "65536"}),
        (
            "mapedFileSizeConsumeQueue=20\nmappedFileSizeConsumeQueue=40",
            {"mapedFileSizeConsumeQueue": "20", "mappedFileSizeConsumeQueue": "40"},
        ),
        ("", {}),
    ],
)
def test_properties(text: str, expected: dict[str, str]) -> None:
    assert parse_broker_conf(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), (" 7 ", 7), ("0", None), ("-1", None), ("x", None), ("", None)]
)
def test_integers(text: str, expected: int | None) -> None:
    assert integer({"n": text}, "n") == expected
    assert integer({}, "n") is None


def test_flags() -> None:
    assert flag({}, "f", default=True)
    assert flag({"f": "TRUE"}, "f", default=False)
    assert not flag({"f": "yes"}, "f", default=True)
