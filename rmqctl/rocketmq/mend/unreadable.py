"""Queue and index files that cannot be read: the log has all that they hold, so they make way for new ones."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.files.tree import Entry
from rmqctl.repair.edits import Quarantine, Step
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.index_files import index_entries
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, RocketMQStore


def unreadable_steps(store: RocketMQStore) -> Iterator[Step]:
    """One step a file that cannot be opened or read.

    Raises:
        OSError: a directory cannot be listed.
    """
    for entry in _derived_files(store):
        problem = _problem(store, entry)
        if problem is not None:
            why = f"it cannot be read ({problem.strerror or problem}), and the log has what it holds"
            yield Step(kinds.FILE_UNREADABLE.id, entry.path, "move to quarantine", why, (Quarantine(entry.path),))


def not_made_anew(store: RocketMQStore, steps: list[Step]) -> list[str]:
    """Queue files moved away by these steps that the rest of a plan does not bring back.

    Their queues would go back to offsets that they have given out already.

    Args:
        store: as the whole plan leaves it.
    """
    moved = (step.file for step in steps if step.id == kinds.FILE_UNREADABLE.id and step.edits)
    return [name for name in moved if not name.startswith("index/") and store.tree.stat(name) is None]


def _derived_files(store: RocketMQStore) -> Iterator[Entry]:
    for kind in (QUEUES, BATCH_QUEUES):
        for queue in store.queues(kind):
            yield from (e for e in store.tree.entries(queue.path) if not e.is_directory)
    yield from index_entries(store)


def _problem(store: RocketMQStore, entry: Entry) -> OSError | None:
    try:
        source = store.tree.open(entry.path)
    except OSError as error:
        return error
    try:
        source.read_at(0, 1)
    except OSError as error:
        return error
    finally:
        source.close()
    return None
