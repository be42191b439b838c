"""Any options together make a store that verify finds nothing in, that recover leaves as it is, and that can be copied."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Rmqctl = Callable[..., Result]
NEWER = ("5.3.3", "5.4.0", "5.5.0")
RELEASES = ("4.5.2", "4.9.3", "4.9.8", "5.0.0", "5.1.4", *NEWER)
START = 1_700_000_000_000


def flag(*given: str) -> st.SearchStrategy[tuple[str, ...]]:
    """An option, or none."""
    return st.sampled_from([(), given])


def choice(name: str, *values: str) -> st.SearchStrategy[tuple[str, ...]]:
    """An option with one of its values, or none."""
    return st.sampled_from([(), *((name, value) for value in values)])


@st.composite
def options(draw: st.DrawFn) -> tuple[str, ...]:
    """Options that go together."""
    release = draw(st.sampled_from(RELEASES))
    parts: list[tuple[str, ...]] = [
        ("--as-release", release),
        draw(st.sampled_from([("--topic", "T"), ("--topic", "T{0..2}"), ("--topic", "A", "--topic", "%RETRY%g")])),
        draw(choice("--count", "0", "1", "7", "120", "500")),
        draw(choice("--size", "0", "1", "300", "0-3000", "5000")),
        draw(choice("--tag", "A", "A=3,B=1", "ü")),
        draw(flag("--key", "k{n}", "--key", "all")),
        draw(choice("--property", "p={n}%s%%", "WAIT=false", "UNIQ_KEY=u{n}", "DELAY=2", "ü=\x03\x00b"[:3])),
        draw(choice("--queues", "1", "9")),
        draw(choice("--seed", "3")),
        draw(choice("--flush", "sync")),
        draw(choice("--writers", "3")),
        draw(flag("--store-host", "[2001:db8::1]:10911")),
        draw(flag("--crash")),
        draw(st.sampled_from([(), ("--log-file-size", "16K", "--queue-file-size", "400")])),
        draw(st.sampled_from([(), ("--index-slots", "40", "--index-entries", "60")])),
        draw(st.sampled_from([("--start-time", str(START)), ("--start-time", str(START), "--interval", "3ms"), ()])),
        draw(choice("--compress", *(("zlib",) if release < "4.9.4" else ("zlib", "lz4", "zstd")))),
        draw(flag("--compress-over", "100")),
    ]
    kinds: list[tuple[str, ...]] = [(), ("--batch", "6"), ("--transaction", "commit"), ("--transaction", "rollback")]
    kinds += [("--transaction", "pending"), ("--delay-level", "3"), ("--delay-level", "1", "--deliver-due")]
    if release >= "5":
        kinds += [("--inner-batch", "--batch", "4"), ("--deliver-at", str(START + 60_000), "--deliver-due")]
        kinds += [("--property", "INNER_MULTI_DISPATCH=%LMQ%a,%LMQ%b{n}"[:-3])]
    if release in NEWER:
        parts.append(draw(flag("--property-crc")))
    parts.append(draw(st.sampled_from(kinds)))
    return tuple(word for part in parts for word in part)


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def record(row: dict[str, Any]) -> dict[str, Any]:
    """What a copy of a record must have; compressed bytes differ from codec to codec, and so do places."""
    moving = {"file", "position", "physical_offset", "message_id", "size", "body_size", "body_crc", "properties"}
    properties = {name: text for name, text in row["properties"].items() if name != "__CRC32#"}
    return {**{name: value for name, value in row.items() if name not in moving}, "properties": properties}


def check(given: tuple[str, ...], rmqctl: Rmqctl, root: Path) -> None:
    store, copy, lines = root / "s", root / "c", root / "lines.jsonl"
    made = rmqctl("produce", store, "--small", *given)
    if made.exit_code == 2:
        assert "plain messages only" in made.stderr or "does not go with a delay" in made.stderr, made.output
        assert not store.exists()
        return
    if made.exit_code == 13 and "a body that is too large" not in made.stderr:
        expected = ("MESSAGE_ILLEGAL", "batch", "without a body")
        assert any(words in made.stderr for words in expected), made.output
        if not store.exists():
            return
    else:
        assert made.exit_code == 0, made.output
    release = given[1]
    verified = rmqctl("verify", store, "--as-release", release)  # a start of a later one may cost what none of it does
    assert verified.exit_code == 0, verified.output
    if "--crash" not in given:
        found = rmqctl("recover", store, "--as-release", release, "-o", "json")
        assert found.exit_code == 0, found.output
    dumped = rmqctl("dump", store, "--body", "-o", "jsonl")
    lines.write_text(dumped.stdout)
    again = rmqctl("produce", copy, "--small", "--jsonl", lines, "--as-release", release)
    assert again.exit_code == 0, again.output
    assert rmqctl("verify", copy).exit_code == 0
    wanted = [record(row) for row in rows(dumped) if row["kind"] == "message"]
    assert [record(row) for row in rows(rmqctl("dump", copy, "--body", "-o", "jsonl")) if row["kind"] == "message"] == (
        wanted
    )


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=options())
def test_any_options(given: tuple[str, ...], rmqctl: Rmqctl, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(given, rmqctl, tmp_path_factory.mktemp("any"))


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=options())
def test_any_options_often(given: tuple[str, ...], rmqctl: Rmqctl, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(given, rmqctl, tmp_path_factory.mktemp("any"))
