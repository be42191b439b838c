"""What is not there to be read: files that work goes on without, each named once, and a commit log that is gone.

The log is gone where no disk is mounted, a link leads nowhere, or a directory has no files. A broker takes such a
store for a new one: it starts with an empty log and deletes every queue (spec 6.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rmqctl.files.filesystem import is_url
from rmqctl.files.tree import ForgivingTree, LocalTree, Refusals, Tree, read_all
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.findings.log import LOG_MISSING
from rmqctl.rocketmq.findings.state import FILE_UNREADABLE
from rmqctl.rocketmq.store.files import BATCH_QUEUES, COMMIT_LOG, QUEUES, RocketMQStore, StoreFile
from rmqctl.text import number_of


def forgiving(store: RocketMQStore) -> RocketMQStore:
    """Return the same store, in which what cannot be read counts as empty. A remote one stays as it is: it stops the
    work.
    """
    trees = [store.tree, *(tree for _, tree in store.log_trees)]
    if not all(isinstance(tree, LocalTree) for tree in trees):
        return store
    refusals: Refusals = {}
    logs = [(name, ForgivingTree(tree.root, name, refusals)) for name, tree in store.log_trees]
    return replace(store, tree=ForgivingTree(store.root, "", refusals), log_trees=list(logs))


def refusals_of(tree: Tree) -> Refusals:
    """Return what could not be read so far; empty for a tree that is not forgiving."""
    return tree.refusals if isinstance(tree, ForgivingTree) else {}


def is_unread(refusals: Refusals, path: str) -> bool:
    """Whether a directory, one above it or anything in it could not be read."""
    return any(path == name or path.startswith(f"{name}/") or name.startswith(f"{path}/") for name in refusals)


def unreadable_files(store: RocketMQStore) -> Iterator[Finding]:
    """One finding a file, by name. In a running store a file may expire while it is read: that is a note."""
    for name, (error, offset) in sorted(refusals_of(store.tree).items()):
        gone = isinstance(error, FileNotFoundError) and store.is_running
        message = f"cannot be read: {error.strerror or error}"
        severity = Severity.NOTE if gone else None
        yield Finding(FILE_UNREADABLE, name or ".", offset, 0, message, severity)


def lost_ranges(store: RocketMQStore, files: Iterable[StoreFile], file_size: int) -> list[tuple[int, int]]:
    """Physical ranges of the log that lie in files that could not be read."""
    names = refusals_of(store.tree)
    return [(f.base, f.base + file_size) for f in files if f.name in names]


# --- a store whose commit log is not there ----------------------------------------------------------


def missing_log(store: RocketMQStore) -> Finding | None:
    """Return the finding for a log without a file; None where there is one, or where there never was a message.

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
    return Finding(LOG_MISSING, COMMIT_LOG, 0, 0, message)


def odd_place(store: RocketMQStore) -> str:
    """Return what is wrong with the place of the log, whatever else the store holds; "" where it is a directory or
    nothing.
    """
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
