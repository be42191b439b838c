"""What is refused before the first write: running brokers, other states, cut and foreign journals, full disks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqctl.errors import Refused, StoreInUse
from rmqctl.files.lock import LockHeldError, holding, is_locked
from rmqctl.files.writing import FileLayer
from rmqctl.repair import (
    Create,
    Cut,
    Extend,
    Overwrite,
    Quarantine,
    SetTimes,
    apply,
    pending,
    read_journal,
    resume,
    undo,
)
from tests.repair.faults import CountingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.stores import INDEX, LOG, OLD, QUEUE, make_store, plan_of, put, rich_plan, state_of
from tests.repair.workshop import Workshop

BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def broker(root: Path) -> Iterator[None]:
    """Another process holds the lock as a broker does."""
    with subprocess.Popen(
        [sys.executable, "-c", BROKER, str(root / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.stdin.close()


def held_by_others(path: Path) -> bool:
    code = "import fcntl,sys; fcntl.lockf(open(sys.argv[1],'r+'), fcntl.LOCK_EX|fcntl.LOCK_NB, 1, 0)"
    return (
        subprocess.run([sys.executable, "-c", code, str(path)], stderr=subprocess.DEVNULL, check=False).returncode != 0
    )


def test_a_running_broker(shop: Workshop) -> None:
    journal = apply(rich_plan(shop.root), layer=QuickLayer()).journal
    assert journal is not None
    after = state_of(shop.home)
    with broker(shop.root):
        for attempt in (
            lambda: apply(plan_of(shop.root, Quarantine("checkpoint"))),
            lambda: undo(journal),
            lambda: resume(journal),
        ):
            with pytest.raises(StoreInUse, match="stop the broker"):
                attempt()
    assert state_of(shop.home) == after


def test_the_lock_keeps_brokers_out_for_the_whole_run(shop: Workshop) -> None:
    seen = []

    def verify() -> list[str]:
        assert not is_locked(str(shop.root / "lock"))  # by another: no
        seen.append(held_by_others(shop.root / "lock"))
        return []

    assert apply(rich_plan(shop.root), verify=verify, layer=QuickLayer()).complaints == ()
    assert seen == [True]
    assert not held_by_others(shop.root / "lock")


def test_a_lock_file_that_was_missing_is_gone_again(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holding(str(path)) as is_new:
        assert is_new and held_by_others(path)
        with pytest.raises(LockHeldError), holding(str(path)):
            pass
        assert held_by_others(path)
    assert not path.exists()


def test_a_lock_is_let_go_though_its_directory_is_gone(tmp_path: Path) -> None:
    root, moved = tmp_path / "store", tmp_path / "moved"
    root.mkdir()
    with holding(str(root / "lock")):
        root.rename(moved)
    (moved / "lock").touch()
    with holding(str(moved / "lock")):
        assert held_by_others(moved / "lock")


def test_the_lock_file_that_a_kill_left_goes_too(shop: Workshop) -> None:
    (shop.root / "lock").unlink()
    os.utime(shop.root, ns=(OLD, OLD))
    before = shop.state()
    with pytest.raises(Killed):
        apply(rich_plan(shop.root), layer=KillingLayer(60))
    (shop.root / "lock").touch()  # a real kill runs no `finally`
    journal = pending(shop.root)
    assert journal is not None
    undo(journal, layer=QuickLayer())
    assert shop.state() == before


def test_a_lock_file_that_was_missing_leaves_no_trace_in_the_time_of_the_store(shop: Workshop) -> None:
    (shop.root / "lock").unlink()
    os.utime(shop.root, ns=(OLD, OLD))
    before = shop.state()
    applied = apply(rich_plan(shop.root), layer=QuickLayer())
    assert shop.root.stat().st_mtime_ns == OLD
    assert applied.journal is not None
    undo(applied.journal, layer=QuickLayer())
    assert shop.state() == before


WRONG = {
    "other bytes": (Overwrite(LOG, 0, b"xx", b"yy"), "other bytes at 0"),
    "behind the end": (Overwrite(LOG, 10239, b"\xff\xff", b"yy"), "other bytes at 10,239"),
    "lengths": (Overwrite(LOG, 0, b"\0", b"yy"), "differ in length"),
    "other size": (Cut(LOG, 10241, 5), "10,240 bytes long"),
    "longer cut": (Cut(LOG, 10240, 10241), "10,240 bytes long"),
    "shorter extend": (Extend(LOG, 10240, 5), "10,240 bytes long"),
    "gone": (Quarantine("commitlog/1"), "is not there"),
    "gone too": (SetTimes("commitlog/1", 5), "is not there"),
    "in the way": (Create(LOG, b"x"), "is there"),
    "too long": (Create("new", b"xxx", size=2), "3 bytes of content do not fit"),
    "a directory": (Cut("commitlog", 0, 0), "is no regular file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_for_another_state(shop: Workshop, name: str) -> None:
    before = state_of(shop.home)
    edit, message = WRONG[name]
    with pytest.raises(Refused, match=message) as caught:
        apply(plan_of(shop.root, SetTimes(QUEUE, 7), edit))
    assert "made for another state" in str(caught.value)
    assert state_of(shop.home) == before


def test_every_file_that_does_not_fit_is_named(shop: Workshop) -> None:
    with pytest.raises(Refused) as caught:
        apply(plan_of(shop.root, Quarantine("a"), Cut(LOG, 1, 0), Quarantine(INDEX), Quarantine(INDEX)))
    assert all(name in str(caught.value) for name in ("a: ", LOG, INDEX))


class FullLayer(FileLayer):
    def free_bytes(self, path: str) -> int:
        return 1000


def test_a_disk_too_small_is_said_with_both_numbers(shop: Workshop) -> None:
    before = state_of(shop.home)
    plan = plan_of(shop.root, Quarantine("abort"), Create("big", bytes([1]) * 3_000_000), Cut(LOG, 10240, 0))
    with pytest.raises(Refused, match=r"3,\d\d\d,\d\d\d bytes are needed and 1,000 are free") as caught:
        apply(plan, layer=FullLayer())
    assert caught.value.exit_code == 13
    assert state_of(shop.home) == before
    assert apply(plan, layer=FullLayer(), force=True).journal is not None


def test_holes_need_no_room(shop: Workshop) -> None:
    class Layer(QuickLayer):
        def free_bytes(self, path: str) -> int:
            return 200_000

    plan = plan_of(shop.root, Create("sparse", b"x", size=1 << 30), Extend(LOG, 10240, 1 << 30))
    assert apply(plan, layer=Layer()).complaints == ()
    assert (shop.root / "sparse").stat().st_blocks * 512 < 100_000
    assert (shop.root / LOG).stat().st_blocks * 512 < 100_000


@pytest.mark.parametrize("name", ["", "commitlog", LOG, "index"])
def test_what_may_not_be_written(shop: Workshop, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before, real, plan = state_of(shop.home), os.access, rich_plan(shop.root)
    closed = str(shop.root / name)
    monkeypatch.setattr(os, "access", lambda path, mode, **more: str(path) != closed and real(path, mode, **more))
    if name == "commitlog":
        assert apply(plan, layer=QuickLayer()).journal is not None  # only bytes of its file change
        return
    with pytest.raises(Refused, match="may not be written; nothing was changed"):
        apply(plan)
    assert state_of(shop.home) == before


def test_a_read_only_medium(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    class Medium:
        f_flag, f_bavail, f_frsize = os.ST_RDONLY, 10**9, 4096

    before = state_of(shop.home)
    monkeypatch.setattr(os, "statvfs", lambda path: Medium)
    with pytest.raises(Refused, match="read-only medium"):
        apply(rich_plan(shop.root))
    assert state_of(shop.home) == before


def cuts_of(path: Path) -> Iterator[bytes]:
    whole = path.read_bytes()
    yield from (whole[:size] for size in range(0, len(whole), 97))
    yield whole[:-1]
    yield from (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(5, len(whole), 211))


@pytest.mark.parametrize("name", ["journal.jsonl", "data"])
def test_a_cut_or_changed_journal(shop: Workshop, name: str) -> None:
    journal = apply(rich_plan(shop.root), layer=QuickLayer()).journal
    assert journal is not None
    after, path = shop.state(), journal / name
    whole = path.read_bytes()
    for damaged in cuts_of(path):
        path.write_bytes(damaged)
        with pytest.raises(Refused, match=r"is cut|is damaged|no journal"):
            undo(journal, layer=QuickLayer())
        assert shop.state() == after
    path.write_bytes(whole)
    assert undo(journal, layer=QuickLayer()).complaints == ()


def test_a_cut_state_only_makes_the_run_pending(shop: Workshop) -> None:
    before = shop.state()
    journal = apply(rich_plan(shop.root), layer=QuickLayer()).journal
    assert journal is not None
    shop.save()
    size = (journal / "state.jsonl").stat().st_size
    for keep in range(30, size, 7):
        shop.restore()
        os.truncate(journal / "state.jsonl", keep)
        if read_journal(journal).state != "ready":
            undo(journal, layer=QuickLayer())
            assert shop.state() == before


def test_a_journal_of_another_store(shop: Workshop) -> None:
    apply(rich_plan(shop.root), layer=QuickLayer())
    other = make_store(shop.home / "other")
    shutil.copytree(shop.base, shop.home / "other.rmqctl-journal")
    before = state_of(shop.home)
    with pytest.raises(Refused, match="journal of another store"):
        undo(shop.home / "other.rmqctl-journal" / "0001")
    shutil.rmtree(shop.root)
    shutil.copytree(other, shop.root)  # another store in the place of the first
    after = state_of(shop.root)
    with pytest.raises(Refused, match="files changed since"):
        undo(shop.base / "0001")
    assert state_of(shop.root) == after
    assert state_of(other) == {k.removeprefix("other/"): v for k, v in state_of(other).items()}
    assert before


def test_what_is_no_journal(shop: Workshop) -> None:
    for path in (shop.root, shop.home / "nothing", shop.root / LOG):
        with pytest.raises(Refused, match="is no journal"):
            undo(path)


def test_a_store_that_moved_with_its_journal(shop: Workshop) -> None:
    before = shop.state()
    apply(rich_plan(shop.root), layer=QuickLayer())
    home = shop.home.with_name("elsewhere")
    shop.home.rename(home)
    undo(home / "store.rmqctl-journal" / "0001", layer=QuickLayer())
    assert state_of(home / "store") == before


TOUCHED = [LOG, QUEUE, INDEX, "index/20270101000000000", "consumequeue/V/7/00000000000000000000", "checkpoint"]


@pytest.mark.parametrize("name", TOUCHED)
def test_undo_names_files_changed_since(shop: Workshop, name: str) -> None:
    journal = apply(rich_plan(shop.root), layer=QuickLayer()).journal
    assert journal is not None
    put(shop.root, name, (shop.root / name).read_bytes() + b"more")
    after = state_of(shop.home)
    for force in (False, True):
        with pytest.raises(Refused, match=f"files changed since: {name}"):
            undo(journal, force=force)
    assert state_of(shop.home) == after


def test_undo_sees_a_write_anywhere_in_a_touched_file(shop: Workshop) -> None:
    journal = apply(rich_plan(shop.root), layer=QuickLayer()).journal
    assert journal is not None
    with (shop.root / LOG).open("r+b") as file:
        file.write(b"!")
    with pytest.raises(Refused, match=f"{LOG}: was written to since"):
        undo(journal)


def test_undo_sees_other_files_and_can_be_told_to_leave_them(shop: Workshop) -> None:
    journal = apply(plan_of(shop.root, Cut(LOG, 10240, 0)), layer=QuickLayer()).journal
    assert journal is not None
    put(shop.root, "consumequeue/T/9/0", b"new")
    put(shop.root, "checkpoint", b"c" * 10)
    with pytest.raises(Refused, match="checkpoint: was written to; consumequeue/T/9/0: is new"):
        undo(journal)
    assert undo(journal, force=True, layer=QuickLayer()).complaints == ()
    assert (shop.root / LOG).stat().st_size == 10240
    assert (shop.root / "consumequeue/T/9/0").read_bytes() == b"new"


def test_a_file_that_came_back_is_named(shop: Workshop) -> None:
    journal = apply(plan_of(shop.root, Quarantine("abort")), layer=QuickLayer()).journal
    assert journal is not None
    put(shop.root, "abort", b"123")
    with pytest.raises(Refused, match="abort: is there again"):
        undo(journal)


def test_only_once_each_way(shop: Workshop) -> None:
    first = apply(rich_plan(shop.root), layer=QuickLayer()).journal
    assert first is not None
    with pytest.raises(Refused, match="is finished"):
        resume(first)
    second = undo(first, layer=QuickLayer()).journal
    assert second is not None
    with pytest.raises(Refused, match=f"taken back already, by {second}"):
        undo(first)
    third = undo(second, layer=QuickLayer()).journal
    assert third is not None
    with pytest.raises(Refused, match=f"taken back already, by {third}"):
        undo(second)
    undo(third, layer=QuickLayer())
    undo(second, layer=QuickLayer())
    undo(first, layer=QuickLayer())


def test_a_journal_elsewhere_is_found_after_a_kill(shop: Workshop) -> None:
    before, plan = shop.state(), rich_plan(shop.root)
    elsewhere = shop.home / "deep" / "journals"
    elsewhere.parent.mkdir()
    shop.save()
    layer = CountingLayer()
    apply(plan, journal_dir=elsewhere, layer=layer)
    assert not shop.base.exists()
    assert (elsewhere / "0001" / "quarantine" / INDEX).exists()
    begun = [operation for operation, _ in layer.requests].index("symlink")
    shop.restore()
    with pytest.raises(Killed):
        apply(plan, journal_dir=elsewhere, layer=KillingLayer(begun + 8, "after"))
    with pytest.raises(Refused, match=f"{elsewhere}/0001 --resume"):
        apply(plan)
    undo(elsewhere / "0001", layer=QuickLayer())
    assert shop.state() == before
    with pytest.raises(Refused, match="cannot lie in the store"):
        apply(plan, journal_dir=shop.root / "journal")


def test_a_broken_off_run_is_found_after_a_move(shop: Workshop) -> None:
    """The link in the store leads to where the journal was; it came along, beside the store."""
    before, plan, layer = shop.state(), rich_plan(shop.root), CountingLayer()
    shop.save()
    apply(plan, layer=layer)
    begun = [operation for operation, _ in layer.requests].index("symlink")
    shop.restore()
    with pytest.raises(Killed):
        apply(plan, layer=KillingLayer(begun + 8, "after"))
    home = shop.home.with_name("elsewhere")
    shop.home.rename(home)
    root, journals = home / shop.root.name, home / shop.base.name
    assert pending(root) == journals / "0001"
    journals.rename(home / "put-away")
    with pytest.raises(Refused, match="a journal that is gone"):
        pending(root)
    (home / "put-away").rename(journals)
    undo(journals / "0001", layer=QuickLayer())
    assert state_of(root) == before


def test_somebody_else_wrote_while_a_run_was_broken_off(shop: Workshop) -> None:
    with pytest.raises(Killed):
        apply(rich_plan(shop.root), layer=KillingLayer(70))
    journal = pending(shop.root)
    assert journal is not None
    (shop.root / "checkpoint").write_bytes(b"\7" * 4096)
    after = state_of(shop.home)
    for way_on in (resume, undo):
        with pytest.raises(Refused, match="checkpoint: bytes at 8"):
            way_on(journal)
    assert state_of(shop.home) == after


def test_links_and_odd_files_can_be_put_aside(shop: Workshop) -> None:
    (shop.root / "link").symlink_to("checkpoint")
    (shop.root / "nowhere").symlink_to("gone")
    os.mkfifo(shop.root / "pipe")
    plan = plan_of(shop.root, *(Quarantine(name) for name in ("link", "nowhere", "pipe")))
    journal = apply(plan, layer=QuickLayer()).journal
    assert journal is not None
    assert not (shop.root / "link").is_symlink() and (shop.root / "checkpoint").stat().st_size == 4096
    undo(journal, layer=QuickLayer())
    assert os.readlink(shop.root / "link") == "checkpoint" and os.readlink(shop.root / "nowhere") == "gone"


def test_nothing_to_do(shop: Workshop) -> None:
    before = state_of(shop.home)
    assert apply(plan_of(shop.root)).journal is None
    assert apply(plan_of(shop.root, Create("a", b"x"), Quarantine("a"))).journal is None
    assert state_of(shop.home) == before


def test_complaints_of_the_check_are_kept(shop: Workshop) -> None:
    applied = apply(plan_of(shop.root, Quarantine("abort")), verify=lambda: ["still bad"], layer=QuickLayer())
    assert applied.complaints == ("still bad",)
    assert pending(shop.root) is None
