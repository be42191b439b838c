"""A disk that fails or is full, at each request: taken back at once, or said with both ways on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from rmqctl.errors import IOFailure
from rmqctl.repair import apply, pending, read_journal, resume, undo
from tests.repair.faults import CountingLayer, FailingLayer, QuickLayer
from tests.repair.stores import rich_plan
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
        assert f"rmqctl undo {journal} --resume" in str(caught.value)
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
    with pytest.raises(IOFailure):  # nobody would find a journal elsewhere after a kill
        apply(plan, journal_dir=shop.home / "elsewhere", layer=Layer())
    assert shop.state() == before


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
    journal = shop.base / "0001"
    written = {path for operation, path in layer.requests[:first] if operation in {"create", "write", "truncate"}}
    assert written and written <= synced
    assert {str(journal / name) for name in ("data", "journal.part", "state.jsonl")} <= written
    assert {str(shop.home), str(shop.base), str(journal), str(shop.root)} <= synced
    changed = {path for operation, path in layer.requests[first:] if operation in {"write", "truncate"}}
    assert changed <= {path for operation, path in layer.requests[first:] if operation == "fsync"}


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
