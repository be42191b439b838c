"""Journals that somebody else wrote and stores whose links lead out: nothing outside changes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import Refused
from rmqctl.repair import Create, Cut, Overwrite, Quarantine, SetTimes, apply, choose_journal, pending, resume, undo
from rmqctl.repair.journal_directory import line_of, rows_of
from tests.repair.faults import Killed, KillingLayer, QuickLayer
from tests.repair.stores import INDEX, LOG, QUEUE, make_store, plan_of, put, rich_plan, state_of
from tests.repair.workshop import Workshop

Rows = list[dict[str, Any]]


def rewrite(path: Path, change: Callable[[Rows], object]) -> None:
    """Change the rows of a file of a journal, with sums that are right again."""
    rows = [{k: v for k, v in row.items() if k != "line"} for row in rows_of(path.read_bytes())]
    change(rows)
    path.write_bytes(b"".join(line_of(row, number) for number, row in enumerate(rows)))


def files(rows: Rows) -> Rows:
    return [row for row in rows if row["kind"] == "file"]


def named(rows: Rows, name: str) -> dict[str, Any]:
    return next(row for row in files(rows) if row["name"] == name)


def rename_file(old: str, new: str) -> Callable[[Rows], object]:
    return lambda rows: named(rows, old).update(name=new)


def replace_place(side: str, place: str) -> Callable[[Rows], object]:
    return lambda rows: next(r for r in files(rows) if r[side]["place"])[side].update(place=place)


def of_kind(kind: str, **values: Any) -> Callable[[Rows], object]:
    return lambda rows: next(r for r in rows if r["kind"] == kind and r.get("name") != "").update(values)


def header(**values: Any) -> Callable[[Rows], object]:
    return lambda rows: rows[0].update(values)


CRAFTED = {
    "beside the store": rename_file(LOG, "../victim/file"),
    "absolute": rename_file(LOG, "{home}/victim/file"),
    "through dots inside": rename_file(LOG, "commitlog/../../victim/file"),
    "a link to a directory": rename_file(LOG, "link/file"),
    "a link to a file": rename_file(LOG, "filelink"),
    "the root": rename_file(INDEX, ""),
    "a dot": rename_file(INDEX, "."),
    "the parent": rename_file(INDEX, ".."),
    "a moved file beside the store": rename_file(INDEX, "../victim/file"),
    "a moved file through a link": rename_file(INDEX, "link/file"),
    "zero bytes": rename_file(LOG, "a\0b"),
    "place up": replace_place("after", "../victim/file"),
    "place absolute": replace_place("after", "{home}/victim/file"),
    "place with dots": replace_place("after", "0001/new/../../../victim/file"),
    "place elsewhere": replace_place("before", "victim/new/file"),
    "place through a link": replace_place("before", "0001/new/link/file"),
    "directory": of_kind("directory", name="../victim/made"),
    "directory through a link": of_kind("directory", name="link/made"),
    "times": of_kind("times", name="../victim"),
    "lock": header(lock="../victim/file"),
    "lock that is left": header(lock="../victim/empty", lock_is_new=True),
    "reverses": header(reverses="../../victim"),
    "no title": lambda rows: rows[0].pop("title"),
    "a row of no kind": lambda rows: rows[1].pop("kind"),
    "sizes as text": lambda rows: files(rows)[0].update(before="x"),
}


@pytest.fixture
def home(shop: Workshop) -> Path:
    put(shop.home, "victim/file", bytes(range(256)) * 40)
    put(shop.home, "victim/empty", b"")
    put(shop.home, "victim/state.jsonl", b"precious")
    (shop.root / "link").symlink_to(shop.home / "victim")
    (shop.root / "filelink").symlink_to(shop.home / "victim" / "file")
    return shop.home


def fill(value: Any, home: Path) -> Any:
    return json.loads(json.dumps(value).replace("{home}", str(home)))


@pytest.mark.parametrize("name", CRAFTED)
@pytest.mark.parametrize("is_pending", [False, True])
def test_a_crafted_journal(shop: Workshop, home: Path, name: str, *, is_pending: bool) -> None:
    plan = rich_plan(shop.root)
    if is_pending:
        with pytest.raises(Killed):
            apply(plan, layer=KillingLayer(70))
    else:
        apply(plan, layer=QuickLayer())
    journal = shop.base / "0001"
    (journal / "new").mkdir(exist_ok=True)
    (journal / "new" / "link").symlink_to(home / "victim")
    rewrite(journal / "journal.jsonl", CRAFTED[name])
    rewrite(journal / "journal.jsonl", lambda rows: rows.__setitem__(slice(None), fill(rows, home)))
    before = state_of(home)
    for way in (undo, resume):
        for force in ({"force": True}, {}) if way is undo else ({},):
            with pytest.raises(Refused):
                way(journal, layer=QuickLayer(), **force)
    assert state_of(home) == before


@pytest.mark.parametrize("name", ["state.jsonl", "journal.jsonl", "data"])
def test_a_file_of_the_journal_is_a_link(shop: Workshop, home: Path, name: str) -> None:
    apply(rich_plan(shop.root), layer=QuickLayer())
    journal = shop.base / "0001"
    (journal / name).rename(home / "victim" / "moved")
    (journal / name).symlink_to(home / "victim" / "moved")
    before = state_of(home)
    with pytest.raises(Refused, match="is a link"):
        undo(journal, layer=QuickLayer())
    assert state_of(home) == before


def test_a_state_that_names_no_file(shop: Workshop) -> None:
    with pytest.raises(Killed):
        apply(rich_plan(shop.root), layer=KillingLayer(70))
    rewrite(shop.base / "0001/state.jsonl", lambda rows: rows.append({"copied": 999, "out": True}))
    for way in (undo, resume):
        with pytest.raises(Refused, match="a file that it does not have"):
            way(shop.base / "0001", layer=QuickLayer())


def test_a_store_that_names_the_journal_of_another(shop: Workshop) -> None:
    other = make_store(shop.home / "other")
    with pytest.raises(Killed):
        apply(rich_plan(other), layer=KillingLayer(70))
    shutil.copy(other / "rmqctl.pending", shop.root / "rmqctl.pending", follow_symlinks=False)
    before = state_of(shop.home)
    for act in (pending, choose_journal, lambda root: apply(rich_plan(root))):
        with pytest.raises(Refused, match="no journal of this store"):
            act(shop.root)
    assert state_of(shop.home) == before


EDITS = {
    "bytes": Overwrite("log/1", 0, b"ab", b"xy"),
    "size": Cut("log/1", 4, 0),
    "time": SetTimes("log/1", 5),
    "move": Quarantine("log/1"),
    "all of a directory": Quarantine("log/deep"),
    "new": Create("log/2", b"x"),
    "new directory": Create("log/3/4", b"x"),
    "linked file": Overwrite("one", 0, b"ab", b"xy"),
}


@pytest.mark.parametrize("name", EDITS)
def test_links_of_the_store_that_lead_out(shop: Workshop, name: str) -> None:
    disk = shop.home / "disk"
    put(disk, "1", b"abcd")
    put(disk, "deep/2", b"abcd")
    (shop.root / "log").symlink_to(disk)
    (shop.root / "one").symlink_to(disk / "1")
    before, plan = state_of(shop.home), plan_of(shop.root, SetTimes(QUEUE, 7), EDITS[name])
    with pytest.raises(Refused, match=r"a link that leads out of the store, to .*name it: --outside"):
        apply(plan, layer=QuickLayer())
    assert state_of(shop.home) == before
    journal = apply(plan, layer=QuickLayer(), outside=[disk]).journal
    assert journal is not None
    after = state_of(shop.home)
    with pytest.raises(Refused, match="a link that leads out of the store"):
        undo(journal, layer=QuickLayer())
    assert state_of(shop.home) == after
    undo(journal, layer=QuickLayer(), outside=[disk])
    assert state_of(disk) == {k.removeprefix("disk/"): v for k, v in state_of(disk).items()}
    assert (disk / "1").read_bytes() == b"abcd" and (disk / "deep/2").exists() and not (disk / "2").exists()


def test_a_link_may_be_put_aside_itself(shop: Workshop) -> None:
    (shop.root / "link").symlink_to(shop.home)
    before = shop.state()
    journal = apply(plan_of(shop.root, Quarantine("link")), layer=QuickLayer()).journal
    assert journal is not None and not os.path.lexists(shop.root / "link")
    undo(journal, layer=QuickLayer())
    assert shop.state() == before
