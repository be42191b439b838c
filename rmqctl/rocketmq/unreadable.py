"""Files that cannot be read: work goes on without them, and each is named once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rmqctl.files.forgiving import ForgivingTree, Refusals
from rmqctl.files.tree import LocalTree, Tree
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.store import RocketMQStore, StoreFile


def forgiving(store: RocketMQStore) -> RocketMQStore:
    """The same store, in which what cannot be read counts as empty. A remote one stays as it is: it stops the work."""
    trees = [store.tree, *(tree for _, tree in store.log_trees)]
    if not all(isinstance(tree, LocalTree) for tree in trees):
        return store
    refusals: Refusals = {}
    logs = [(name, ForgivingTree(tree.root, name, refusals)) for name, tree in store.log_trees]
    return replace(store, tree=ForgivingTree(store.root, "", refusals), log_trees=list(logs))


def refusals_of(tree: Tree) -> Refusals:
    """What could not be read so far; empty for a tree that is not forgiving."""
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
        yield Finding(kinds.FILE_UNREADABLE, name or ".", offset, 0, message, severity)


def lost_ranges(store: RocketMQStore, files: Iterable[StoreFile], file_size: int) -> list[tuple[int, int]]:
    """Physical ranges of the log that lie in files that could not be read."""
    names = refusals_of(store.tree)
    return [(f.base, f.base + file_size) for f in files if f.name in names]
