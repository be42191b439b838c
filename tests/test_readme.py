"""What READMEs and pages show is what rmqctl prints: every console block is run and compared, in both languages."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import COMMANDS
from commands._guard import BUG
from fixtures import damage, golden
from rmqctl.errors import FAMILY, INTERRUPTED

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "README.zh-CN.md")
RECIPES = [f"docs/recipes/{page.name}" for page in sorted((ROOT / "docs" / "recipes").glob("*.md"))]
TWINS = {READMES[0]: READMES[1]} | {name: name.replace("docs/", "docs/zh-CN/") for name in RECIPES}
"""Pages that there are in English and in Chinese, with the same examples."""
TWINS["docs/tutorial.md"] = "docs/zh-CN/tutorial.md"
PAGES = (*TWINS, *TWINS.values(), "docs/kafka-produce.md")
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_TYPED = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_CHANGING = re.compile(
    r"\(\d+\.\d s\)|(?<=bytes[ _]allocated).*|\(\d+\.\d s, [\d,]+ a second\)|\d[\d,]* are free|(?<=building in ).*"
    r"|\"manifest\".*|(?<=index/)\d{17}(?=.*create)|rmqctl-[^ ]*\.zip"
)
SPARK = ("export",)
"""Commands that start a JVM; the blocks that show them are run by `make spark`."""
BODY_FLIP = [{"op": "write", "file": "commitlog/00000000000000262144", "offset": 72659, "hex": "6f"}]
BROKEN = [{"op": "write", "file": "commitlog/00000000000000393216", "offset": 8762, "hex": "39"}]
BATCH_FLIP = [{"op": "write", "file": "idem-0/00000000000000000000.log", "offset": 187, "hex": "47"}]


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``store``, ``kafka-logs`` and damaged copies of them in the working directory, as the pages say."""
    golden.unpack("4.3.1-clean", tmp_path).rename(tmp_path / "kafka-logs")
    golden.copy_tree(tmp_path / "kafka-logs", tmp_path / "kafka-damaged")
    damage.apply(BATCH_FLIP, tmp_path / "kafka-damaged")
    golden.unpack("5.3.3-crash", tmp_path).rename(tmp_path / "store")
    golden.copy_tree(tmp_path / "store", tmp_path / "damaged")
    damage.apply(BODY_FLIP, tmp_path / "damaged")
    golden.copy_tree(tmp_path / "store", tmp_path / "broken")
    damage.apply(BROKEN, tmp_path / "broken")
    monkeypatch.chdir(tmp_path)


def commands_of(block: str) -> list[str]:
    return [line.removeprefix("$ rmqctl ") for line in lines_of(block) if line.startswith("$ rmqctl ")]


def lines_of(block: str) -> list[str]:
    """What is typed, for rmqctl and for the shell."""
    return [line for line in block.splitlines() if line.startswith("$ ")]


def run_block(block: str, rmqctl: Callable[..., Any]) -> str:
    printed = ""
    for line in lines_of(block):
        _, name, *arguments = shlex.split(line)
        if name != "rmqctl":
            subprocess.run(["bash", "-euc", line.removeprefix("$ ")], check=True)
        printed += f"{line}\n{rmqctl(*arguments).output if name == 'rmqctl' else ''}"
    return printed.replace(f"{Path.cwd().resolve()}/", "")


def renewed(block: str, rmqctl: Callable[..., Any]) -> str:
    """The block as printed now; unchanged where only times taken differ."""
    now = run_block(block, rmqctl)
    return block if settled(now) == settled(block) else now


def settled(text: str) -> str:
    """The text without what differs from run to run: times taken, bytes on disk."""
    return _CHANGING.sub("", text)


def needs_spark(block: str) -> bool:
    return any(line.split()[0] in SPARK for line in commands_of(block))


def check_blocks(path: Path, rmqctl: Callable[..., Any], *, spark: bool, update: bool) -> None:
    """Run the blocks that need Spark, or the others, and compare them, or write them anew."""
    text = path.read_text("utf-8")
    if update:
        for block in _BLOCK.findall(text):
            if needs_spark(block) is spark:
                text = text.replace(block, renewed(block, rmqctl))
        path.write_text(text, "utf-8")
        return
    for block in _BLOCK.findall(text):
        if needs_spark(block) is spark:
            assert settled(run_block(block, rmqctl)) == settled(block)


def pages_with(*, spark: bool) -> list[str]:
    """The pages that have examples which need Spark, or others."""
    return [
        name for name in PAGES if any(needs_spark(b) is spark for b in _BLOCK.findall((ROOT / name).read_text("utf-8")))
    ]


@pytest.mark.parametrize("name", pages_with(spark=False))
def test_examples(name: str, stores: None, rmqctl: Callable[..., Any], update_golden: bool) -> None:
    check_blocks(ROOT / name, rmqctl, spark=False, update=update_golden)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", pages_with(spark=True))
def test_examples_on_spark(name: str, stores: None, rmqctl: Callable[..., Any], update_golden: bool) -> None:
    check_blocks(ROOT / name, rmqctl, spark=True, update=update_golden)


def test_every_console_block_of_rmqctl_is_run() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    shown = {str(page.relative_to(ROOT)) for page in pages if "\n$ rmqctl " in page.read_text("utf-8")}
    assert shown <= set(PAGES)


@pytest.mark.parametrize("language", [list(TWINS), list(TWINS.values())], ids=["English", "Chinese"])
def test_every_command_is_shown(language: list[str]) -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in language]
    shown = {line.split()[0] for text in texts for block in _BLOCK.findall(text) for line in commands_of(block)}
    own = {"completion", "config", "watch", "browse"}  # what they print is of the reader's shell, machine and time
    typed = {name for text in texts for block in _TYPED.findall(text) for name in re.findall(r"\brmqctl (\S+)", block)}
    assert shown | own & typed == set(COMMANDS)


@pytest.mark.parametrize(("english", "chinese"), TWINS.items(), ids=TWINS)
def test_both_languages_show_the_same(english: str, chinese: str) -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in (english, chinese)]
    first, second = ([commands_of(block) for block in _BLOCK.findall(text)] for text in texts)
    assert first == second
    assert exit_codes(texts[0]).keys() == exit_codes(texts[1]).keys()


@pytest.mark.parametrize(("english", "chinese"), TWINS.items(), ids=TWINS)
def test_both_languages_lead_to_the_same_pages(english: str, chinese: str) -> None:
    def pages(name: str) -> set[str]:
        links = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", (ROOT / name).read_text("utf-8"))
        found = {os.path.relpath((ROOT / name).parent / link, ROOT).replace("/zh-CN/", "/") for link in links}
        return found - {*READMES, english}  # each language leads to the other

    assert pages(english) == pages(chinese)


@pytest.mark.parametrize("name", READMES)
def test_a_readme_is_one_that_is_read(name: str) -> None:
    assert len((ROOT / name).read_text("utf-8").splitlines()) <= 150


@pytest.mark.parametrize("name", PAGES)
def test_every_fence_stands_on_its_own_line(name: str) -> None:
    lines = (ROOT / name).read_text("utf-8").splitlines()
    assert [
        line
        for line in lines
        if "```" in line and not re.fullmatch(r"```(console|sh|python|json|text|toml|\{toctree\})?", line)
    ] == []


@pytest.mark.parametrize("name", [*READMES, "docs/recipes/README.md", "docs/zh-CN/recipes/README.md"])
def test_the_stores_can_be_made_as_said(name: str, stores: None, tmp_path: Path) -> None:
    (script,) = re.findall(r"```sh\n(tar .*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL)
    typed = tmp_path / "typed"
    typed.mkdir()
    (typed / "fixtures").symlink_to(ROOT / "fixtures")
    subprocess.run(["bash", "-euc", script], cwd=typed, check=True, capture_output=True)
    made = {path.name for path in typed.iterdir()} - {"fixtures"}
    assert made == ({"store", "broken"} if name in READMES else {"store", "damaged", "kafka-logs", "kafka-damaged"})
    for store in made:
        assert contents(typed / store) == contents(tmp_path / store)


def test_the_picture_is_what_a_terminal_shows(update_golden: bool) -> None:
    drawn = subprocess.run(
        [sys.executable, "-m", "docs.picture"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    if update_golden:
        (ROOT / "docs" / "record.svg").write_text(drawn, "utf-8")
    assert (ROOT / "docs" / "record.svg").read_text("utf-8") == drawn


def contents(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def exit_codes(text: str) -> dict[int, str]:
    """The table of exit codes: code to meaning."""
    return {int(code): meaning for code, meaning in re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE)}


def test_exit_codes_are_those_of_the_errors() -> None:
    rows = exit_codes((ROOT / "docs/recipes/every-command.md").read_text("utf-8"))
    errors = {error.exit_code: error.meaning for error in FAMILY}
    assert errors.items() <= rows.items()
    assert rows.keys() == errors.keys() | {0, 1, 2, BUG, INTERRUPTED}


@pytest.mark.parametrize("name", ["docs/recipes/data.md", "docs/zh-CN/recipes/data.md", "docs/python.md"])
def test_python_examples(name: str, stores: None) -> None:
    """Every ``>>>`` of a page gives what stands behind it."""
    failed, tried = doctest.testfile(str(ROOT / name), module_relative=False)
    assert tried
    assert not failed
