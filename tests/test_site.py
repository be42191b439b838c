"""The site is made of docs/ and of the tables of the program, without a warning and without a network."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import pytest

from commands import COMMANDS
from docs import make_site
from formats.catalogue import CATALOGUE
from rmqctl.explain import all_misses
from rmqctl.findings import all_kinds

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_site_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("furo", reason="the extra docs is not installed")

    def nowhere(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", nowhere)
    assert make_site.build(tmp_path / "site") == 0
    made = {page.relative_to(tmp_path / "site").as_posix() for page in (tmp_path / "site").rglob("*.html")}
    assert {f"reference/commands/{name}.html" for name in COMMANDS} <= made
    assert {f"reference/findings/{kind.id}.html" for kind in all_kinds()} <= made
    assert {f"reference/misses/{miss.id}.html" for miss in all_misses()} <= made
    assert {f"reference/formats/{layout.name}.html" for layout in CATALOGUE} <= made
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert pages - made == {"findings.html", "misses.html"}
    others = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//[^"]*"')
    assert [name for name in made if others.search((tmp_path / "site" / name).read_text("utf-8"))] == []


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("furo", reason="the extra docs is not installed")

    def gather(into: Path) -> None:
        shutil.copy(ROOT / "docs" / "conf.py", into)
        (into / "index.md").write_text("# A page\n\n[nothing](nothing.md)\n", "utf-8")

    monkeypatch.setattr(make_site, "gather", gather)
    assert make_site.build(tmp_path / "site") != 0
