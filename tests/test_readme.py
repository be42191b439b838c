"""What the READMEs show is what rmqctl prints: every console block is run and compared, in both languages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import COMMANDS
from fixtures import damage, golden
from rmqctl.errors import FAMILY
from rmqctl.findings import all_kinds

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "README.zh-CN.md")
FINDINGS = ROOT / "docs" / "findings.md"
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_CHANGING = re.compile(r"\(\d+\.\d s\)|(?<=bytes_allocated).*")
BODY_FLIP = [{"op": "write", "file": "commitlog/00000000000000262144", "offset": 72659, "hex": "6f"}]


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``store`` and ``damaged`` in the working directory, as the READMEs say."""
    golden.unpack("5.3.3-crash", tmp_path).rename(tmp_path / "store")
    golden.copy_tree(tmp_path / "store", tmp_path / "damaged")
    damage.apply(BODY_FLIP, tmp_path / "damaged")
    monkeypatch.chdir(tmp_path)


def commands_of(block: str) -> list[str]:
    return [line.removeprefix("$ rmqctl ") for line in block.splitlines() if line.startswith("$ rmqctl ")]


def run_block(block: str, rmqctl: Callable[..., Any]) -> str:
    return "".join(f"$ rmqctl {line}\n{rmqctl(*shlex.split(line)).output}" for line in commands_of(block))


def settled(text: str) -> str:
    """The text without what differs from run to run: times taken, bytes on disk."""
    return _CHANGING.sub("", text)


@pytest.mark.parametrize("name", READMES)
def test_examples(name: str, stores: None, rmqctl: Callable[..., Any], update_golden: bool) -> None:
    path = ROOT / name
    text = path.read_text("utf-8")
    if update_golden:
        path.write_text(_BLOCK.sub(lambda m: f"```console\n{run_block(m[1], rmqctl)}```", text), "utf-8")
        return
    for block in _BLOCK.findall(text):
        assert settled(run_block(block, rmqctl)) == settled(block)


@pytest.mark.parametrize("name", READMES)
def test_every_command_is_shown(name: str) -> None:
    shown = {
        line.split()[0] for block in _BLOCK.findall((ROOT / name).read_text("utf-8")) for line in commands_of(block)
    }
    assert shown == set(COMMANDS)


def test_exit_codes_are_those_of_the_errors() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE))
    assert {str(error.exit_code): error.meaning for error in FAMILY}.items() <= rows.items()


def findings_page() -> str:
    """docs/findings.md, from the table of kinds."""
    lines = [
        "# Findings",
        "",
        "Every kind of finding, with a stable id. `rmqctl formats findings` prints the same table. *error*: data lost or",
        "wrong; *warning*: a broker copes, but something is off; *note*: normal but worth knowing. Where the state of the",
        "store explains a finding (an `abort` file, a running broker), it is shown with a lower severity.",
        "",
    ]
    for kind in all_kinds():
        lines += [f"## {kind.id} ({kind.severity})", "", kind.meaning, "", f"*What to do.* {kind.remedy}", ""]
        for title, text in (("What a broker does.", kind.broker), ("Fixed in.", kind.fixed_in), ("See.", kind.see)):
            lines += [f"*{title}* {text}", ""] if text else []
    return "\n".join(lines).rstrip() + "\n"


def test_findings_page(update_golden: bool) -> None:
    if update_golden:
        FINDINGS.write_text(findings_page(), "utf-8")
    assert FINDINGS.read_text("utf-8") == findings_page()
