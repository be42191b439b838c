"""What the questions about a queue share: the store as a release has it, and the queues that are meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from commands._app import Output, message
from commands._options import StoreOptions
from commands._types import Queue
from rmqctl.release import Release

if TYPE_CHECKING:
    from rmqctl.rocketmq.query.started import StartedStore


@contextmanager
def started_store(store: StoreOptions, release: Release | None) -> Iterator[StartedStore]:
    """The store as a broker of the release, or of the one the store shows, has it."""
    from rmqctl.open import open_store_at
    from rmqctl.rocketmq.query.started import StartedStore
    from rmqctl.rocketmq.releases import release_range

    found = open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    if found.is_running:
        message("a broker holds the lock of this store: what is read may be changing")
    rules = release or release_range(found, quick=True).highest
    with StartedStore(found, rules, exact=release is not None) as started:
        yield started


def queues_meant(started: StartedStore, queue: Queue, out: Output, *, explain: bool) -> list[int]:
    """The ids that the name means.

    Raises:
        SystemExit: it means none; the reason is said, and the exit status is 1.
    """
    from rmqctl.rocketmq.query.names import wanted_queues

    found = wanted_queues(started, queue.topic, queue.queue_id)
    if isinstance(found, list):
        return found
    if explain:
        from commands._answer import write_answer

        write_answer(out, (), [found])
    else:
        message(found.result)
        if out.kind == "json":
            out.show(())
    raise SystemExit(1)
