"""`python -m docs.make_site OUT` makes the site: pages of docs/, and one of each command, finding, reason and format.

The second kind is printed from the tables of the program, so no page can say what the program does not.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.manual import all_commands, markdown
from formats.catalogue import CATALOGUE, Format
from rmqctl.explain import all_misses
from rmqctl.findings import FindingKind, all_kinds, pages_of

ROOT = Path(__file__).parents[1]
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages of the root that are on the site, too, under project/."""
PRINTED = {f"docs/{name}.md": f"reference/{name}/index.md" for name in ("findings", "misses")}
"""Pages of the repository that are a page for each row on the site."""
_SECTION = re.compile(r"^(?:## |### )(A?\d+(?:\.\d+)?) (.*)$|^(\d+)\. ", re.MULTILINE)
_SPEC = re.compile(r"\bspec (A?\d[^;:)]*)")
_LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def gather(into: Path) -> None:
    """Write what Sphinx reads: every page at the place that it has on the site."""
    for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in PROJECT)]:
        name = page.relative_to(ROOT).as_posix()
        if name not in PRINTED:
            _write(into, str(place(name)), _on_site(page))
    for picture in (ROOT / "docs").rglob("*.svg"):
        shutil.copy(picture, into / picture.relative_to(ROOT / "docs"))
    shutil.copytree(ROOT / "docs" / "watch", into / "watch")
    shutil.copy(ROOT / "docs" / "conf.py", into)
    reference(into)


def reference(into: Path) -> None:
    """Write the pages that are printed from tables, and their lists."""
    commands = [(c.path.removeprefix("rmqctl ").replace(" ", "-"), c.short, markdown(c)) for c in all_commands()]
    kinds = [(kind.id, f"*{kind.severity}*: {kind.meaning}", finding_page(kind)) for kind in all_kinds()]
    misses = [(m.id, m.meaning, f"# {m.id}\n\n> {m.sentence}\n\n{m.meaning}\n") for m in all_misses()]
    layouts = [(f.name, f"{f.title}, in `{f.files}`", format_page(f)) for f in CATALOGUE]
    said = "Every {} has its own page, printed from the table of the program; its address stays."
    _section(into, "commands", "Commands", "What `--help` says.", commands, listed=True)
    _section(into, "findings", "Findings", said.format("finding") + " `rmqctl explain ID` says the same.", kinds)
    _section(into, "misses", "Why a query finds nothing", said.format("reason that `--explain` gives"), misses)
    _section(
        into, "formats", "Formats", "Printed from the schemas that read the files, as `rmqctl formats` does.", layouts
    )


def finding_page(kind: FindingKind) -> str:
    """The page of one kind of finding."""
    parts = [f"# {kind.id}", f"*{kind.severity}*. {kind.meaning}", f"**What to do.** {kind.remedy}"]
    for title, text in (
        ("What a broker does.", kind.broker),
        ("Fixed in.", kind.fixed_in),
        ("See.", seen(kind, "../../")),
    ):
        parts += [f"**{title}** {text}"] if text else []
    parts += ["Show it, and mend it:", f"```text\nrmqctl verify PATH\nrmqctl repair PATH --only {kind.id}\n```"]
    return "\n\n".join(parts) + "\n"


def seen(kind: FindingKind, root: str) -> str:
    """What a kind refers to, with links to the pages on formats, which lie under ``root``."""
    pages = [page for page in pages_of(kind) if page.startswith("formats/")]
    known = [sections(page) for page in pages]

    def linked(found: re.Match[str]) -> str:
        both = zip(pages, known, strict=True)
        places = [f"{root}{page}.md#{held[found[0]]}" for page, held in both if found[0] in held]
        return f"[{found[0]}]({places[0]})" if len(places) == 1 else found[0]

    def named(found: re.Match[str]) -> str:
        numbers = re.sub(r"(?<![\w.])A?\d+(\.\d+)?(?![\w.])", linked, found[1])
        return f"section{'s' if ', ' in numbers else ''} {numbers}"

    text = _SPEC.sub(named, kind.see)
    return f"{text} ({', '.join(f'[{page}]({root}{page}.md)' for page in pages)})" if pages else text


def sections(page: str) -> dict[str, str]:
    """The anchors of a page's sections by their numbers, those of the numbered items of a section among them."""
    found = dict[str, str]()
    last = ""
    for number, title, item in _SECTION.findall((ROOT / "docs" / f"{page}.md").read_text("utf-8")):
        last = number or last
        found[number or f"{last}.{item}"] = anchor(f"{number} {title}") if number else found[last]
    return found


def anchor(heading: str) -> str:
    """What a heading is called in a link, as the site and forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def format_page(layout: Format) -> str:
    """The page of one format."""
    since = f" Since {layout.since}." if layout.since else ""
    rows = [f"# {layout.name}", "", f"{layout.title}. Where: `{layout.files}`.{since}", ""]
    rows += ["| offset | size | type | name | note |", "|---|---|---|---|---|"]
    for row in layout.rows():
        cells = (row.offset, row.size, row.type, f"`{row.name}`", row.note)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _section(
    into: Path, name: str, title: str, said: str, pages: Iterable[tuple[str, str, str]], *, listed: bool = False
) -> None:
    """Write pages and their table; ``listed`` puts them beside every page, which hundreds would make slow and long."""
    rows = [f"# {title}", "", said, "", "| | |", "|---|---|"]
    names = []
    for page, short, text in pages:
        _write(into, f"reference/{name}/{page}.md", text if listed else f"---\norphan: true\n---\n\n{text}")
        rows.append("| [{}]({}.md) | {} |".format(page, page, short.replace("|", "\\|")))
        names.append(page)
    rows += ["", "```{toctree}", ":hidden:", "", *names, "```"] if listed else []
    _write(into, f"reference/{name}/index.md", "\n".join(rows) + "\n")


def _write(into: Path, name: str, text: str) -> None:
    page = into / name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, "utf-8")


def place(name: str) -> str | None:
    """Where a file of the repository lies on the site; None where it does not."""
    if name in PROJECT:
        return f"project/{name}"
    if name == "README.md":
        return "index.md"
    return PRINTED.get(name, name.removeprefix("docs/") if name.startswith("docs/") else None)


def _on_site(page: Path) -> str:
    """The text of a page of the repository with links to where things lie on the site."""
    name = page.relative_to(ROOT).as_posix()
    here = posixpath.dirname(place(name) or "")

    def moved(found: re.Match[str]) -> str:
        to = place(posixpath.normpath(posixpath.join(posixpath.dirname(name), found[2])))
        return f"[{found[1]}]({posixpath.relpath(to, here or '.')}{found[3] or ''})" if to else found[1]

    return _LINK.sub(moved, page.read_text("utf-8"))


def build(out: Path) -> int:
    """Make the site in ``out`` and return Sphinx's exit code; a warning is an error."""
    from sphinx.cmd.build import main

    with TemporaryDirectory() as work:
        gather(Path(work))
        return main(["-q", "-W", "--keep-going", "-b", "html", "-d", f"{work}/.doctrees", work, str(out)])


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
