"""Defaults of options: the file config.toml and variables, what comes before what, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from commands import COMMANDS, cli
from commands._defaults import GENERAL, TYPED_ONLY, config_file, options_of
from tests.conftest import Rmqctl


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "etc"))
    file = tmp_path / "etc" / "rmqctl" / "config.toml"
    file.parent.mkdir(parents=True)
    return file


def options(name: str) -> dict[str, click.Option]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return options_of(command)


EVERY_OPTION = {option for name in COMMANDS for option in options(name)}


def test_the_lists_name_options() -> None:
    assert set(GENERAL) <= EVERY_OPTION
    assert TYPED_ONLY <= EVERY_OPTION
    assert not TYPED_ONLY & set(GENERAL)


def test_what_writes_is_typed_each_time() -> None:
    """By hand: options that write, or choose what is given up. Those of `produce` and `convert` say only how."""
    assert {"apply", "force", "yes", "overwrite", "redo", "resume", "damage", "abort-transaction"} <= TYPED_ONLY


def test_the_line_comes_before_variables_and_these_before_the_file(
    config: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(*words: str) -> int:
        return len(json.loads(rmqctl("formats", *words, "-o", "json").stdout))

    def kind() -> str:
        shown = rmqctl("explain", "log.body-crc").stdout
        return "json" if shown.startswith("{") else "csv" if shown.startswith("id,") else "table"

    assert kind() == "table"
    config.write_text('output = "json"\n')
    assert kind() == "json"
    config.write_text('output = "json"\n[explain]\noutput = "csv"\n')
    assert kind() == "csv"
    monkeypatch.setenv("RMQCTL_OUTPUT", "json")
    assert kind() == "json"
    monkeypatch.setenv("RMQCTL_EXPLAIN_OUTPUT", "table")
    assert kind() == "table"
    assert rmqctl("explain", "log.body-crc", "-o", "csv").stdout.startswith("id,")
    assert count() > 10


def test_values_of_every_kind(config: Path, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert rmqctl("produce", store, "--topic", "T", "--count", "9", "--property", "a=1").exit_code == 0
    config.write_text('quiet = true\n[dump]\nlimit = 2\nproperty = ["a=1"]\nafter = "2020-01-01"\noutput = "jsonl"\n')
    assert len(rmqctl("dump", store).stdout.splitlines()) == 2
    assert len(rmqctl("dump", store, "-n", "3").stdout.splitlines()) == 3
    config.write_text('[dump]\nproperty = "a=2"\noutput = "jsonl"\n')
    assert rmqctl("dump", store).stdout == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("outpt = 1", "outpt in {} sets nothing; did you mean output?"),
        ("[dump]\nlimitt = 1", "limitt in [dump] of {} sets nothing; did you mean limit"),
        ("[dump]\nas_release = '5'", "as_release in [dump] of {} sets nothing; did you mean as-release?"),
        ("[dump]\nlimit = 'x'", "dump.limit in {}: 'x' is not a valid integer range."),
        ("[dump]\nlimit = 0", "dump.limit in {}: 0 is not in the range x>=1."),
        ("[dump]\nlimit = [1]", "dump.limit in {} is no single value, which --limit takes."),
        ("color = 'no'", "color in {}: 'no' is not one of 'auto', 'always', 'never'."),
        ("dump = 5", "dump in {} is no table; write [dump] and its options below."),
        ("[dmp]", "dmp in {} sets nothing; did you mean dump?"),
        ("[dump", "{} is no TOML: "),
        ("apply = true", "apply in {}: --apply decides about data, so that it is typed each time."),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(text: str, said: str, config: Path, rmqctl: Rmqctl) -> None:
    config.write_text(text)
    done = rmqctl("dump", "nowhere")
    assert done.exit_code == 2
    assert said.format(config) in done.stderr
    assert rmqctl("config").exit_code == 2
    assert rmqctl("dump", "--help").exit_code == 0


def test_no_default_applies_a_plan(config: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("[repair]\napply = true\n")
    assert "typed each time" in rmqctl("repair", "nowhere").stderr
    config.write_text("")
    monkeypatch.setenv("RMQCTL_REPAIR_APPLY", "1")
    assert rmqctl("config").exit_code == 1
    assert "RMQCTL_REPAIR_APPLY is no option" in rmqctl("config").stderr


def test_a_variable_with_a_wrong_value(rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQCTL_DUMP_LIMIT", "many")
    done = rmqctl("dump", "nowhere")
    assert (done.exit_code, "RMQCTL_DUMP_LIMIT: 'many' is not a valid integer range." in done.stderr) == (2, True)


def test_config_shows_what_counts(config: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('output = "jsonl"\n[dump]\nlimit = 1\n[lag]\nlimit = 2\n')
    monkeypatch.setenv("RMQCTL_LAG_LIMIT", "7")
    rows = [json.loads(line) for line in rmqctl("config").stdout.splitlines()]
    assert rows == [
        {"command": None, "option": "output", "value": "jsonl", "source": f"output in {config}"},
        {"command": "dump", "option": "limit", "value": 1, "source": f"dump.limit in {config}"},
        {"command": "lag", "option": "limit", "value": "7", "source": "RMQCTL_LAG_LIMIT"},
    ]


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_kind_of_output_for_all_is_for_those_that_have_it(
    kind: str, config: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What never ends has neither."""
    store = str(config.parent / "store")
    assert rmqctl("produce", store, "--topic", "T", "--count", "9").exit_code == 0
    config.write_text(f'output = "{kind}"\n')
    assert rmqctl("config").exit_code == 0
    assert rmqctl("watch", store, "--once").exit_code == 0
    monkeypatch.setenv("RMQCTL_OUTPUT", "csv" if kind == "json" else "json")
    shown = rmqctl("config")
    assert shown.exit_code == 0
    assert "RMQCTL_OUTPUT" in shown.stdout
    assert rmqctl("watch", store, "--once").exit_code == 0
    monkeypatch.setenv("RMQCTL_OUTPUT", "cvs")
    assert rmqctl("config").exit_code == 2
    monkeypatch.setenv("RMQCTL_WATCH_OUTPUT", "csv")
    assert rmqctl("watch", store, "--once").exit_code == 2


def test_where_the_file_belongs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        assert config_file() == tmp_path / ".config" / "rmqctl" / "config.toml"
