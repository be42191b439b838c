"""The house stays as it was built: no circles, shared rooms that know no family, the words of the project."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import house


def test_no_module_needs_one_that_needs_it() -> None:
    assert house.circles() == []


def test_shared_rooms_know_no_family() -> None:
    assert house.rooms_that_know_a_family() == []


def test_commands_name_no_family() -> None:
    assert house.family_imports() == []


def test_one_module_lies_in_the_root_of_rocketmq() -> None:
    assert house.in_root_of("rmqctl.rocketmq") == ["rmqctl.rocketmq.family"]


def test_places_of_fields_come_from_formats() -> None:
    assert house.places_by_number() == []


def test_words_of_the_project() -> None:
    """After, reported, again: not a dialect, in docstrings, comments, help and pages."""
    assert house.odd_words() == []


def test_commands_to_type_are_made_in_one_place() -> None:
    """One that is put together by hand is one that no shell takes where a path has a blank."""
    assert house.commands_by_hand() == []


def test_common_failures_are_said_once_a_room() -> None:
    assert house.failures_that_say_nothing() == []


def test_a_bare_word_names_one_class() -> None:
    """A family may have its own of what both have; two things in one family have two names."""
    assert house.classes("Step", "Plan", "Part", "Piece", "Start", "Layout", "Queue", "Chain") == {
        "Step": ["rmqctl.repair.edits"],
        "Plan": ["rmqctl.repair.edits"],
        "Queue": ["rmqctl.rocketmq.queues.files"],
        "Chain": ["rmqctl.kafka.log.frames", "rmqctl.rocketmq.log.chain"],
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('int.from_bytes(data[28:36], "big")', True),
        ('int.from_bytes(data[28:], "big")', True),
        ('int.from_bytes(data[:4], "big")', True),
        ('int.from_bytes(key[-8:], "big")', True),
        ('int.from_bytes(data[at + 16 : end], "big")', True),
        ("log.read(at + 4, 4)", True),
        ("source.read_at(base + at + 16, 4)", True),
        ("_INT.unpack_from(data, end - 4)", True),
        ('struct.Struct(">iq")', True),
        ('int.from_bytes(data[at : at + 8], "big")', False),
        ('int.from_bytes(data[PLACE], "big")', False),
        ("log.read(at + MAGIC_AT, 4)", False),
        ("log.read(at + 1, size)", False),
        ('struct.pack(">i", number)', False),
    ],
)
def test_the_finder_of_places_finds_places(text: str, found: bool) -> None:
    assert house.reads_at_number(ast.parse(text, mode="eval").body) == found


def test_the_circle_finder_finds_circles() -> None:
    assert house.circles({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}) == [{"a", "b"}]
    assert "rmqctl.rocketmq.log.block" in house.imports("rmqctl.rocketmq.log.scan")


RUNS = [
    ("4.9.8-crash", ("dump", "-n", "1"), 40),
    ("4.9.8-crash", ("repair",), 120),
    ("4.3.1-clean", ("dump", "-n", "1"), 45),
    ("4.3.1-clean", ("repair",), 120),
]
"""Stores, commands, and how many modules of the library a reader opens at most who follows one; with air."""


@pytest.mark.parametrize(("store", "command", "most"), RUNS)
def test_a_command_runs_in_a_handful_of_modules(
    store: str, command: tuple[str, ...], most: int, golden: Callable[[str], Path]
) -> None:
    root, (name, *options) = golden(store), command
    log = "commitlog/00000000000000262144" if store == "4.9.8-crash" else "plain-none-1/00000000000000000089.log"
    if name == "repair":  # so that there is something to plan
        with (root / log).open("r+b") as file:
            file.write(bytes(8))
    found = [module for module in house.run_through(name, root, *options) if module.startswith("rmqctl.")]
    assert 10 < len(found) <= most, sorted(found)
