"""The page in a browser: what is clicked and typed, on a phone, in the dark, on paper, and for those who do not see it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from fixtures.damaged import ALL_KINDS, damaged_store
from rmqctl.report import page
from tests.report.test_report import damaged, document_of, hostile_store, variants

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="the extra dev brings playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra dev brings axe-playwright-python")
pytestmark = pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium is installed")
BOTH = ["5.3.3-crash", pytest.param("4.3.1-clean", marks=pytest.mark.slow)]
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
A4 = {"width": 718, "height": 1000}
"""What is between the margins, in the pixels of a style sheet."""


_PATIENCE = 300_000
"""Milliseconds for what comes after a click, however busy the machine is."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    playwright.expect.set_options(timeout=_PATIENCE)
    with playwright.sync_playwright() as started:
        places = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), str(tmp_path_factory.mktemp("home")))
        made = started.chromium.launch(executable_path=_CHROMIUM, args=arguments, env={**os.environ, **places})
        yield made
        made.close()


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """What the page of a broken store is made of; made once for all tests of it."""
    return cache(lambda name: document_of(damaged(name, tmp_path_factory.mktemp("store"))))


class Seen:
    """A page that is open, and what it did that none should: requests, dialogs, errors."""

    def __init__(self, browser: Any, html: str, directory: Path, **context: Any) -> None:
        file = directory / "page.html"
        file.write_text(html, "utf-8")
        self.page = browser.new_context(viewport=DESK, **context).new_page()
        self.page.set_default_timeout(_PATIENCE)
        self.wrong = list[str]()
        self.page.on(
            "request", lambda request: self.wrong.append(request.url) if "page.html" not in request.url else None
        )
        self.page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.goto(file.as_uri())

    def close(self) -> None:
        self.page.context.close()
        assert self.wrong == []

    def beyond(self, but: str) -> Any:
        """Elements that are shown and reach beyond the margin, but those inside of such as may."""
        return self.page.evaluate(
            """(but) => [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility() && !one.closest(but)
            && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 120))""",
            but,
        )

    def faults(self) -> list[str]:
        """What axe-core finds that is serious or critical."""
        found = axe.Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in {"serious", "critical"}]

    def reach(self, finding: dict[str, Any], stretches: list[dict[str, Any]]) -> None:
        """Open a finding as one who looks for it does; its bytes are there after three clicks at most."""
        clicks = 0
        one = self.page.locator(f"#s0-f{finding['number']}")
        if not one.is_visible():
            self.page.get_by_role("checkbox", name=f"{finding['severity']}s").check()
            clicks += 1
        one.locator("summary").click()
        clicks += 1
        assert clicks <= 3
        for stretch in stretches:
            begin, end = (f"{stretch[name]:,}" for name in ("begin", "end"))
            caption = one.locator("caption", has_text=f"Bytes {begin} to {end} of {stretch['file']}")
            playwright.expect(caption).to_be_visible()
            assert (stretch["file"], stretch["begin"]) == (finding["file"], finding["offset"])
            assert stretch["end"] == finding["offset"] + max(finding["size"], stretch["end"] - stretch["begin"])


def _holds_each_finding(browser: Any, document: Any, directory: Path) -> None:
    seen = Seen(browser, page(document), directory)
    (store,) = document["stores"]
    for finding in store["findings"]:
        seen.reach(finding, [one for one in store["bytes"] if one["finding"] == finding["number"]])
    seen.close()


@pytest.mark.parametrize("name", BOTH)
def test_three_clicks_lead_to_the_bytes_of_each_finding(name: str, browser: Any, document: Any, tmp_path: Path) -> None:
    _holds_each_finding(browser, document(name), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_of_each_kind_of_damage_too(kind: str, browser: Any, tmp_path: Path) -> None:
    damaged_store(tmp_path / "store", kind)
    _holds_each_finding(browser, document_of(tmp_path / "store"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module", "recipe"), list(variants()))
def test_of_variants_of_the_oracles_too(
    name: str, module: Any, recipe: Any, browser: Any, document: Any, tmp_path: Path
) -> None:
    root = golden.unpack(name, tmp_path)
    module.apply(recipe, root)
    _holds_each_finding(browser, document_of(root), tmp_path)


@pytest.mark.parametrize("name", BOTH)
def test_a_dot_of_the_picture_leads_to_its_finding(name: str, browser: Any, document: Any, tmp_path: Path) -> None:
    seen = Seen(browser, page(document(name)), tmp_path)
    dots = seen.page.locator("svg a[href]")
    targets = {dots.nth(number).get_attribute("href"): number for number in range(dots.count())}
    assert targets
    for target, number in targets.items():
        dots.nth(number).click(force=True)
        opened = seen.page.locator(str(target))
        playwright.expect(opened).to_have_attribute("open", "")
        playwright.expect(opened.locator("summary")).to_be_focused()
    seen.close()


@pytest.mark.parametrize("name", BOTH)
def test_keys_alone_do_all_of_it(name: str, browser: Any, document: Any, tmp_path: Path) -> None:
    """Tab meets everything that can be used, and shows where it is; keys zoom, open and search."""
    seen = Seen(browser, page(document(name)), tmp_path)
    tab, keyboard = seen.page, seen.page.keyboard
    wanted = tab.evaluate(
        """() => [...document.querySelectorAll("a[href], button, input, summary, [tabindex='0']")]
        .filter((one) => one.checkVisibility({visibilityProperty: true})).map((one, number) => one.dataset.number = number).length"""
    )
    met, unseen = set(), list[str]()
    for _ in range(wanted + 1):
        keyboard.press("Tab")
        number, outline, html = tab.evaluate(
            """() => { const one = document.activeElement, style = getComputedStyle(one);
            return [one.dataset.number, style.outlineStyle, one.outerHTML.slice(0, 80)]; }"""
        )
        met.add(number)
        unseen += [html] if outline == "none" and number is not None else []
    assert len(met - {None}) == wanted
    assert unseen == []
    picture = tab.locator(".picture svg[role=group]").first
    picture.focus()
    keyboard.press("0")
    before = picture.inner_html()
    keyboard.press("+")
    assert picture.inner_html() != before
    keyboard.press("0")
    assert picture.inner_html() == before
    dot = tab.locator("svg a[href]").first
    target = str(dot.get_attribute("href"))
    dot.focus()
    keyboard.press("Enter")
    playwright.expect(tab.locator(target)).to_have_attribute("open", "")
    playwright.expect(tab.locator(target).locator("summary")).to_be_focused()
    keyboard.press("Enter")
    playwright.expect(tab.locator(target)).not_to_have_attribute("open", "")
    tab.get_by_role("searchbox").first.focus()
    keyboard.type("no finding says this")
    playwright.expect(tab.locator("output").first).to_have_text("0 shown")
    seen.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", ["desk", "phone"])
@pytest.mark.parametrize("name", BOTH)
def test_it_fits_the_screen_and_axe_finds_no_serious_fault(
    name: str, screen: str, scheme: str, browser: Any, document: Any, tmp_path: Path
) -> None:
    seen = Seen(browser, page(document(name)), tmp_path, color_scheme=scheme)
    seen.page.set_viewport_size(PHONE if screen == "phone" else DESK)
    seen.page.evaluate('() => { for (const one of document.querySelectorAll("details")) one.open = true; }')
    assert seen.beyond(".wide, .plots, pre, .scroll") == []
    assert seen.faults() == []
    seen.close()


@pytest.mark.slow
def test_several_stores_have_no_serious_fault(browser: Any, tmp_path: Path) -> None:
    root = damaged("5.3.3-crash", tmp_path)
    several = document_of(root, golden.pristine("5.3.3-clean"), golden.pristine("4.3.1-clean"), tmp_path / "nowhere")
    seen = Seen(browser, page(several), tmp_path)
    assert seen.faults() == []
    seen.page.get_by_role("link", name=str(root)).click()
    playwright.expect(seen.page.locator("#s0-name")).to_be_in_viewport()
    seen.close()


@pytest.mark.parametrize("name", BOTH)
def test_paper_has_all_of_it(name: str, browser: Any, document: Any, tmp_path: Path) -> None:
    """What is wrong is open, what only a screen can do is not there, and nothing is cut at the margin."""
    seen = Seen(browser, page(document(name)), tmp_path)
    printed = seen.page.pdf(format="A4")
    assert printed.startswith(b"%PDF") and printed.count(b"/Type /Page") > 2
    shut = seen.page.locator(".finding.error:not([open]), .finding.warning:not([open]), .part:not([open])")
    assert shut.count() == 0
    seen.page.emulate_media(media="print")
    seen.page.set_viewport_size(A4)
    assert not any(one.is_visible() for one in seen.page.locator("form.filter, .picture button, .skip").all())
    assert seen.beyond("svg") == []
    seen.close()


def test_nothing_that_a_store_holds_runs(browser: Any, tmp_path: Path) -> None:
    document = document_of(hostile_store(tmp_path / "store"))
    seen = Seen(browser, page(document), tmp_path)
    seen.page.evaluate('() => { for (const one of document.querySelectorAll("details")) one.open = true; }')
    for dot in seen.page.locator("svg a[href]").all():
        dot.focus()
        dot.press("Enter")
    assert seen.page.locator("body img, body iframe, body script:not([type])").count() == 1  # the page's own script
    seen.close()
