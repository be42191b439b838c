"""A store whose commit log is not there: no disk mounted, a link that leads nowhere, a directory without files.

A broker takes such a store for a new one: it starts with an empty log and deletes every queue (spec 6.3).
"""

from __future__ import annotations

from pathlib import Path

from rmqctl.files.filesystem import is_url
from rmqctl.files.tree import read_all
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.store import BATCH_QUEUES, COMMIT_LOG, QUEUES, RocketMQStore
from rmqctl.text import number_of


def missing_log(store: RocketMQStore) -> Finding | None:
    """The finding for a log without a file; None where there is one, or where there never was a message.

    Raises:
        OSError: a directory cannot be listed.
    """
    if store.log_files:
        return None
    odd = odd_place(store)
    queues = sum(1 for kind in (QUEUES, BATCH_QUEUES) for _ in store.queues(kind))
    if not odd and not queues and not store.index_files and not _checkpoint_says_something(store):
        return None
    whole = "its queue" if queues == 1 else f"all {number_of(queues, 'queue')}"
    deletes = f" and delete {whole}" if queues else ""
    message = f"{odd or _plain_place(store)}; a broker would start empty{deletes}"
    return Finding(kinds.LOG_MISSING, COMMIT_LOG, 0, 0, message)


def odd_place(store: RocketMQStore) -> str:
    """What is wrong with the place of the log, whatever else the store holds; "" where it is a directory or nothing."""
    configured = store.settings.get("storePathCommitLog", "").strip()
    if configured and not Path(configured).exists() and all(name != configured for name, _ in store.log_trees):
        return f"the commit log that the broker's settings name, {configured}, is not there (is its disk mounted?)"
    entry = next((e for e in store.tree.entries("", sizes=False) if e.name == COMMIT_LOG), None)
    if entry is None or entry.is_directory:
        return ""
    path = Path(store.root, COMMIT_LOG)
    if not is_url(store.root) and path.is_symlink() and not path.exists():
        return f"{COMMIT_LOG} is a link to {path.readlink()}, which is not there (is its disk mounted?)"
    return f"{COMMIT_LOG} is a file, not a directory"


def _plain_place(store: RocketMQStore) -> str:
    if not store.log_trees:
        return f"there is no directory {COMMIT_LOG}"
    names = ", ".join(name or "." for name, _ in store.log_trees)
    if all(not tree.entries("", sizes=False) for _, tree in store.log_trees):
        return f"{names} is empty (is its disk mounted?)"
    return f"{names} holds no file of the log"


def _checkpoint_says_something(store: RocketMQStore) -> bool:
    """Whether messages were ever stored; a broker that got none leaves a checkpoint of zeros and no log file."""
    data = read_all(store.tree, "checkpoint")
    return data is not None and (not data or any(data))
