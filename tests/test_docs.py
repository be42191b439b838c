"""Pages that are printed from the code are up to date, links lead somewhere, examples import what is there, and the demo shows what it promises."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zlib
from doctest import DocTestParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from crc32c import crc32c

from commands import COMMANDS, cli
from docs import make_site, manual, matrix, releases
from formats.catalogue import CATALOGUE
from rmqctl.findings import all_kinds, pages_of

ROOT = Path(__file__).parents[1]
FINDINGS = ROOT / "docs" / "findings.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("fixtures/*.md")])
EMERGENCY = [ROOT / "docs" / "emergency", ROOT / "docs" / "zh-CN" / "emergency"]
USERS_OF = ROOT / "docs" / "users-of.md"
_LINK = re.compile(r"\[[^\]]*\]\((?![a-z]+:|#)([^)#\s]+)")


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
        for title, text in (
            ("What a broker does.", kind.broker),
            ("Fixed in.", kind.fixed_in),
            ("See.", make_site.seen(kind, "")),
        ):
            lines += [f"*{title}* {text}", ""] if text else []
    return "\n".join(lines).rstrip() + "\n"


def test_findings_page(update_golden: bool) -> None:
    if update_golden:
        FINDINGS.write_text(findings_page(), "utf-8")
    assert FINDINGS.read_text("utf-8") == findings_page(), "type: pytest tests/test_docs.py --update-golden"


def test_page_on_releases(update_golden: bool) -> None:
    page = ROOT / "docs" / "releases.md"
    if update_golden:
        page.write_text(releases.page(), "utf-8")
    assert page.read_text("utf-8") == releases.page(), "type: pytest tests/test_docs.py --update-golden"


def test_page_on_other_releases(update_golden: bool) -> None:
    text = matrix.PAGE.read_text("utf-8")
    if update_golden:
        matrix.PAGE.write_text(matrix.page(text), "utf-8")
    assert matrix.PAGE.read_text("utf-8") == matrix.page(text), "type: pytest tests/test_docs.py --update-golden"


FORMATS = ROOT / "docs" / "formats"
_NAMED = re.compile(r"(?<=[( \"])spec ((?:A?\d+(?:\.\d+)*(?: \(\w+(?:, \w+)*\))?(?:, | to )?)+)")


def references() -> list[tuple[Path, str, str]]:
    """Every section that source, findings and tests name: file, section, and the family of the file."""
    found = []
    for room in ("rmqctl", "formats", "commands", "tests", "fixtures"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text = re.sub(r"\n\s*(?:#:? ?)?", " ", path.read_text("utf-8"))
            family = "kafka" if "kafka" in path.parts else "rocketmq" if "rocketmq" in path.parts else ""
            for named in _NAMED.findall(text):
                plain = re.sub(r" \(([\w, ]+)\)", "", named)
                found += [(path, one, family) for one in re.findall(r"A?\d+(?:\.\d+)*", plain)]
    return found


def test_sections_that_are_named_are_there() -> None:
    known = {
        family: make_site.sections(f"formats/{family}").keys() for family in ("kafka", "rocketmq", "rocketmq-rocksdb")
    }
    here = {"kafka": known["kafka"], "rocketmq": known["rocketmq"] | known["rocketmq-rocksdb"]}
    here[""] = here["kafka"] | here["rocketmq"]
    named = references()
    assert len(named) > 400
    assert [(str(path), section) for path, section, family in named if section not in here[family]] == []


def test_findings_lead_to_their_pages() -> None:
    for kind in all_kinds():
        of_formats = [page for page in pages_of(kind) if page.startswith("formats/")]
        assert bool(of_formats) == ("spec " in kind.see), kind.id
        emergency = [kind.page] if kind.page else []
        assert [page for page in [*of_formats, *emergency] if not (ROOT / "docs" / f"{page}.md").exists()] == []


def test_examples_of_formats_are_what_the_readers_read() -> None:
    def bytes_of(page: str) -> bytes:
        (dump,) = re.findall(r"```text\n(0000.*?)```", (FORMATS / f"{page}.md").read_text("utf-8"), re.DOTALL)
        return bytes.fromhex("".join(line[4:] for line in dump.splitlines()))

    layouts = {layout.name: layout for layout in CATALOGUE}
    record, batch = bytes_of("rocketmq"), bytes_of("kafka")
    message = layouts["message-v1"].schema.parse(record, **layouts["message-v1"].context)
    assert (message.topic, message.properties, message.total_size) == (
        b"TopicTest",
        b"KEYS\1order1\2TAGS\1TagA",
        len(record),
    )
    assert message.body_crc == zlib.crc32(message.body) & 0x7FFFFFFF
    head = layouts["record-batch"].schema.parse(batch, **layouts["record-batch"].context)
    assert (head.base_offset, head.records_count, head.batch_length) == (129, 2, len(batch) - 12)
    assert head.crc == crc32c(batch[21:])


def test_nothing_is_said_on_two_pages() -> None:
    """A sentence of some length, or a row of a table, stands once; but in the history, which says what was said."""
    said = dict[str, set[str]]()
    for page in (page for page in PAGES if "zh-CN" not in page.parts and page.name != "history.md"):
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for paragraph in re.split(r"\n\s*\n|(?<=\|)\n", text):
            for sentence in re.split(r"(?<=[.:;]) ", " ".join(paragraph.split())):
                said.setdefault(sentence, set()).add(page.name)
    twice = {sentence: pages for sentence, pages in said.items() if len(sentence) > 60 and len(pages) > 1}
    assert not twice, twice


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    links = _LINK.findall(page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_headings(page: Path) -> None:
    wrong = []
    for name, part in re.findall(r"\[[^\]]*\]\((?![a-z]+:)([^)#\s]*)#([^)\s]+)\)", page.read_text("utf-8")):
        there = (page.parent / name if name else page).read_text("utf-8")
        headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", there, flags=re.DOTALL), re.MULTILINE)
        wrong += [] if part in map(make_site.anchor, headings) else [f"{name}#{part}"]
    assert wrong == []


@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in p.read_text("utf-8")], ids=lambda page: page.name)
def test_examples_import_what_is_there(page: Path) -> None:
    missing = []
    for example in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        session = "".join(line.source for line in DocTestParser().get_examples(example))
        for node in ast.walk(ast.parse(session or example)):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in ("rmqctl", "formats", "commands"):
                module = import_module(str(node.module))
                names = {f"{node.module}.{name.name}" for name in node.names if not hasattr(module, name.name)}
                missing += [name for name in names if not (hasattr(module, "__path__") and find_spec(name))]
    assert missing == []


@pytest.mark.parametrize(
    "page", [*sorted(page for place in EMERGENCY for page in place.glob("*.md")), USERS_OF], ids=lambda page: page.stem
)
def test_what_a_page_says_to_type_can_be_typed(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(re.sub(r"```{toctree}.*?```", "", text, flags=re.DOTALL).splitlines()) <= 60
    lines = [line.strip() for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    typed = [part for line in lines for part in line.split(" && ") if part.startswith("rmqctl ")]
    typed += re.findall(r"`rmqctl ([^`]*)`", text)
    for line in typed:
        for word, example in {"TOPIC/QUEUE": "t/0", "TIME": "now", "OFFSET": "1", "TOPIC-N:PRODUCER": "t-0:1"}.items():
            line = line.replace(word, example)
        name, *arguments = line.removeprefix("rmqctl ").split()
        command = import_module(COMMANDS[name][0]).command
        command.make_context(
            name, arguments, parent=click.Context(cli, **cli.context_settings)
        )  # raises on what is unknown


@pytest.mark.parametrize("place", EMERGENCY, ids=["English", "Chinese"])
def test_the_first_emergency_page_leads_to_all_others(place: Path) -> None:
    links = [link for link in _LINK.findall((place / "README.md").read_text("utf-8")) if not link.startswith("../")]
    assert set(links) == {page.name for page in place.glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("page", sorted(EMERGENCY[0].glob("*.md")), ids=lambda page: page.stem)
def test_both_languages_say_the_same_commands(page: Path) -> None:
    texts = [(place / page.name).read_text("utf-8") for place in EMERGENCY]
    first, second = (re.findall(r"^ *(?:rmqctl|kafka-|cat) .*|`rmqctl [^`]*`", text, re.MULTILINE) for text in texts)
    assert sorted(first) == sorted(second)


@pytest.mark.skipif(shutil.which("man") is None or shutil.which("groff") is None, reason="man is not installed")
def test_man_pages_have_no_warning(tmp_path: Path) -> None:
    pages = []
    for command in manual.all_commands():
        pages.append(tmp_path / f"{command.path.replace(' ', '-')}.1")
        pages[-1].write_text(manual.roff(command), "utf-8")
    assert len(pages) > len(COMMANDS)
    command_line = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", *map(str, pages)]
    done = subprocess.run(
        command_line, check=True, capture_output=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    )
    assert done.stderr == b""
    assert done.stdout.count(b"NAME") >= len(pages)


@pytest.fixture(scope="module")
def demo() -> str:
    """What ``make demo`` prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run([ROOT / "fixtures" / "demo"], env=environment, check=True, capture_output=True)
    assert done.stderr == b""
    return done.stdout.decode()


def test_demo_finds_the_damage_and_nothing_before(demo: str) -> None:
    before, after = demo.split("== Now damage a copy")
    assert ": 3 notes (" in before
    assert ": 2 errors, 3 notes (" in after
    assert "log.body-crc" in after and "queue.hole" in after and "(bad: the body's is" in after


def test_demo_fits_the_screen(demo: str) -> None:
    assert [line for line in demo.splitlines() if len(line) > 100] == []
