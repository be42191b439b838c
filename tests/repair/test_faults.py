"""A disk that fails or is full, at each request: taken back at once, or said with both ways on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from rmqctl.errors import IOFailure
from rmqctl.repair import apply, pending, read_journal, resume, undo
from tests.repair.faults import AcrossCounting, CountingLayer, FailingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.stores import rich_plan, state_of
from tests.repair.workshop import Workshop, chosen


def state_of_journal(shop: Workshop) -> str:
    return read_journal(shop.base / "0001").state if (shop.base / "0001").exists() else ""


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_one_request_fails(shop: Workshop, number: int, stride: int) -> None:
    before, plan = shop.state(), rich_plan(shop.root)
    shop.save()
    layer = CountingLayer()
    apply(plan, layer=layer)
    after = shop.state()
    outcomes = set()
    for at, (operation, path) in chosen(layer.requests, stride):
        shop.restore()
        try:
            apply(plan, layer=FailingLayer(at, number))
        except IOFailure as error:
            outcomes.add(str(error).rpartition("; ")[2][:20])
            if pending(shop.root) is None:
                undone = shop.state() == before
                assert undone != (state_of_journal(shop) == "done"), (operation, path)
                assert undone or operation == "fsync"  # the last line is there, whatever the disk says
            else:
                found = pending(shop.root)
                undo(found, layer=QuickLayer())
                assert shop.state() == before
        else:  # it could do without
            assert operation in {"owner", "unlink", "times", "fsync"} or shop.state().keys() == after.keys()
    assert len(outcomes) >= 2


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("way_on", [resume, undo])
def test_all_requests_fail_from_one_on(shop: Workshop, number: int, way_on: object, stride: int) -> None:
    before, plan = shop.state(), rich_plan(shop.root)
    shop.save()
    layer = CountingLayer()
    apply(plan, layer=layer)
    shop.restore()
    left = 0
    for at, _ in chosen(layer.requests, stride):
        shop.restore()
        with pytest.raises(IOFailure) as caught:
            apply(plan, layer=FailingLayer(at, number, for_ever=True))
        journal = pending(shop.root)
        if journal is None:
            assert shop.state() == before or (at == len(layer.requests) - 1 and state_of_journal(shop) == "done")
            continue
        left += 1
        how = "" if "nothing of the store was changed" in str(caught.value) else " --resume"
        assert f"rmqctl undo {journal}{how}" in str(caught.value)
        assert way_on in (resume, undo)
        if way_on is undo:
            undo(journal, layer=QuickLayer())
        else:
            done = resume(journal, layer=QuickLayer())
            assert done.complaints == () and done.journal is not None
            undo(done.journal, layer=QuickLayer())
        assert shop.state() == before
    assert left > 20 // stride


def test_file_systems_without_links(shop: Workshop) -> None:
    class Layer(CountingLayer):
        def request(self, operation: str, path: str, act: Callable[[], Any]) -> Any:
            if operation in {"link", "symlink"}:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
            return super().request(operation, path, act)

    before, plan = shop.state(), rich_plan(shop.root)
    first = apply(plan, layer=Layer())
    assert first.journal is not None and first.complaints == ()
    assert undo(first.journal, layer=Layer()).complaints == ()
    assert shop.state() == before
    elsewhere = apply(plan, journal_dir=shop.home / "elsewhere", layer=Layer())
    assert elsewhere.journal is not None and elsewhere.complaints == ()
    assert undo(elsewhere.journal, layer=Layer()).complaints == ()
    assert shop.state() == before


def test_a_journal_elsewhere_is_found_after_a_kill_without_links(shop: Workshop, stride: int) -> None:
    class Layer(KillingLayer):
        def request(self, operation: str, path: str, act: Callable[[], Any]) -> Any:
            if operation == "symlink":
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
            return super().request(operation, path, act)

    before, plan, elsewhere = shop.state(), rich_plan(shop.root), shop.home / "elsewhere"
    shop.save()
    counted = Layer(-1)
    apply(plan, journal_dir=elsewhere, layer=counted)
    found = 0
    for at, _ in chosen(counted.requests, stride):
        shop.restore()
        with pytest.raises(Killed):
            apply(plan, journal_dir=elsewhere, layer=Layer(at, "within"))
        if (journal := pending(shop.root)) is not None:
            found += 1
            undo(journal, layer=QuickLayer())
            assert shop.state() == before
    assert found > 30 // stride


class InterruptedLayer(FailingLayer):
    """Ctrl-C at a request."""

    def request(self, operation: str, path: str, act: Callable[[], Any]) -> Any:
        if len(self.requests) == self.at:
            self.requests.append((operation, path))
            raise KeyboardInterrupt
        return super().request(operation, path, act)


def test_ctrl_c_takes_everything_back(shop: Workshop, stride: int) -> None:
    before, plan = shop.state(), rich_plan(shop.root)
    shop.save()
    layer = CountingLayer()
    apply(plan, layer=layer)
    for at, _ in chosen(layer.requests, stride):
        shop.restore()
        with pytest.raises(KeyboardInterrupt):
            apply(plan, layer=InterruptedLayer(at, errno.EINTR))
        if (journal := pending(shop.root)) is not None:  # everything was on the disk already
            undo(journal, layer=QuickLayer())
        is_last = at == len(layer.requests) - 1
        assert shop.state() == before or (is_last and state_of_journal(shop) == "done")


def test_the_journal_is_on_the_disk_before_the_store_changes(shop: Workshop) -> None:
    layer = CountingLayer()
    apply(rich_plan(shop.root), layer=layer)
    inside = f"{shop.root}/"
    first = next(i for i, (_, path) in enumerate(layer.requests) if path.startswith(inside) and "pending" not in path)
    synced = {path for operation, path in layer.requests[:first] if operation == "fsync"}
    journal = shop.base / "0001.rmqctl-part"
    written = {path for operation, path in layer.requests[:first] if operation in {"create", "write", "truncate"}}
    assert written and written <= synced
    assert {str(journal / name) for name in ("data", "journal.jsonl", "state.jsonl")} <= written
    assert {str(shop.home), str(shop.base), str(journal), str(shop.root)} <= synced
    changed = {path for operation, path in layer.requests[first:] if operation in {"write", "truncate"}}
    assert changed <= {path for operation, path in layer.requests[first:] if operation == "fsync"}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("for_ever", [False, True])
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_run_that_changed_nothing_says_so(shop: Workshop, number: int, *, for_ever: bool, is_elsewhere: bool) -> None:
    """The link in the store cannot be made: no half changed store, and where no trace is left no refusal either."""
    plan, elsewhere = rich_plan(shop.root), shop.home / "elsewhere" if is_elsewhere else None
    shop.save()
    layer = CountingLayer()
    apply(plan, journal_dir=elsewhere, layer=layer)
    begun = [operation for operation, _ in layer.requests].index("symlink")
    for at in range(begun - 3, begun + 2):
        shop.restore()
        before = state_of(shop.root, directories=False)
        with pytest.raises(IOFailure, match=r"nothing (of the store )?was changed") as caught:
            apply(plan, journal_dir=elsewhere, layer=FailingLayer(at, number, for_ever=for_ever))
        assert "half changed" not in str(caught.value)
        left = pending(shop.root)
        found = state_of(shop.root, directories=False)
        found.pop("./rmqctl.pending", None)
        assert found == before
        if left is not None:
            assert f"rmqctl undo {left}" in str(caught.value)
            assert undo(left, layer=QuickLayer()).complaints == ()
        elif not for_ever:
            assert not (elsewhere or shop.base).exists()
        assert apply(plan, journal_dir=elsewhere, layer=QuickLayer()).complaints == ()


def test_going_on_fails_and_can_be_tried_again(shop: Workshop, stride: int) -> None:
    before = shop.state()
    journal = apply(rich_plan(shop.root), layer=QuickLayer()).journal
    assert journal is not None
    after = shop.state()
    shop.save()
    layer = CountingLayer()
    undo(journal, layer=layer)
    for at, _ in chosen(layer.requests, stride):
        shop.restore()
        with pytest.raises(IOFailure):
            undo(journal, layer=FailingLayer(at, for_ever=True))
        found = pending(shop.root)
        if found is None and shop.state() == before:
            assert at == len(layer.requests) - 1
        elif found is None:
            assert shop.state() == after
            undo(journal, layer=QuickLayer())
        else:
            resume(found, layer=QuickLayer())
        assert shop.state() == before


def test_an_original_goes_only_when_its_copy_is_on_the_disk(shop: Workshop) -> None:
    """A move between file systems: bytes of the copy, its directory and those above it are synced before."""
    layer = AcrossCounting()
    journal = apply(rich_plan(shop.root), layer=layer).journal
    assert journal is not None
    back = AcrossCounting()
    undo(journal, layer=back)
    moves = 0
    for requests in (layer.requests, back.requests):
        for at, (operation, path) in enumerate(requests):
            if operation != "unlink" or "rmqctl.pending" in path or path.endswith(("after.jsonl",)):
                continue
            following = next(p for o, p in requests[at:] if o == "rename")
            moves += 1
            synced = {p for o, p in requests[:at] if o == "fsync"}
            assert following + ".rmqctl-part" in synced
            directory = os.path.dirname(following)
            while directory not in (str(shop.root), str(shop.base)):
                made = [i for i, request in enumerate(requests[:at]) if request == ("mkdir", directory)]
                for name in (directory, os.path.dirname(directory)):
                    last = max(i for i, request in enumerate(requests[:at]) if request == ("fsync", name))
                    assert not made or last > made[-1]
                directory = os.path.dirname(directory)
    assert moves > 6
