"""From a path that a user typed to a store: its root, its commit log, and the part that was meant."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from rmqctl.errors import NotAStore
from rmqctl.files.tree import LocalTree, Tree, join
from rmqctl.rocketmq.store import (
    BATCH_QUEUES,
    COMMIT_LOG,
    DLEDGER,
    INDEX,
    QUEUES,
    QUEUES_EXT,
    RocketMQStore,
    is_offset,
)

MARKS = (COMMIT_LOG, QUEUES, BATCH_QUEUES, INDEX, "checkpoint", "abort", "timerlog", "timerwheel", "compaction")
"""Names that show a directory to be a store; ``config`` alone shows it only with a known file in it."""
CONFIG_FILES = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json", "timercheck")
_INSIDE = {COMMIT_LOG, QUEUES, QUEUES_EXT, BATCH_QUEUES, INDEX, "config", "timerlog", "compaction"}


def open_store(
    tree: Tree,
    *,
    commit_log: Sequence[Tree] = (),
    settings: Mapping[str, str] | None = None,
    selection: str = "",
) -> RocketMQStore:
    """The store whose root is ``tree``.

    Args:
        commit_log: directories of the log when it lies elsewhere; default: ``commitlog`` and every
            ``commitlog*`` directory in the root that holds files named by offset (spec 1.4).
        settings: broker.conf.
        selection: part of the store that is meant, a path relative to the root.

    Raises:
        NotAStore: nothing in the directory belongs to a store.
    """
    if not commit_log and not looks_like_store(tree):
        raise NotAStore(tree.root, "no commitlog/, consumequeue/, checkpoint or config/ in it")
    logs = [(_shown(tree, t), t) for t in commit_log] if commit_log else _log_trees(tree, settings or {})
    return RocketMQStore(tree, logs, selection, settings or {})


def looks_like_store(tree: Tree) -> bool:
    """Whether a directory holds anything a broker keeps in its root."""
    names = {e.name for e in tree.entries("", sizes=False)}
    if names & set(MARKS):
        return True
    if any(n.startswith(DLEDGER) for n in names):
        return True
    config = {e.name for e in tree.entries("config", sizes=False)} if "config" in names else set()
    return bool(config & set(CONFIG_FILES)) or _holds_log(tree, names)


def _holds_log(tree: Tree, names: set[str]) -> bool:
    return any(_is_log_directory(tree, name) for name in sorted(names) if name.startswith(COMMIT_LOG))


def _is_log_directory(tree: Tree, path: str) -> bool:
    return any(is_offset(e.name) and not e.is_directory for e in tree.entries(path, sizes=False))


def _log_trees(tree: Tree, settings: Mapping[str, str]) -> list[tuple[str, Tree]]:
    """The directories of the commit log: from the settings if those are there, else inside the root."""
    configured = _configured_logs(settings)
    if configured:
        return [(_shown(tree, log), log) for log in configured]
    names = [e.name for e in tree.entries("", sizes=False) if e.is_directory and e.name.startswith(COMMIT_LOG)]
    found = [n for n in names if n == COMMIT_LOG or _is_log_directory(tree, n)]
    found += _dledger_logs(tree)
    return [(name, tree.child(name)) for name in found]


def _dledger_logs(tree: Tree) -> list[str]:
    """Data directories of DLedger logs; an old commit log may lie in front of them (spec 2.14)."""
    names = [e.name for e in tree.entries("", sizes=False) if e.is_directory and e.name.startswith(DLEDGER)]
    return [f"{name}/data" for name in names if _is_log_directory(tree, f"{name}/data")]


def _shown(tree: Tree, log: Tree) -> str:
    """How the files of a log directory are named: relative to the store where it lies inside, else in full."""
    if isinstance(tree, LocalTree) and isinstance(log, LocalTree):
        root, path = os.path.abspath(tree.root), os.path.abspath(log.root)
    else:
        root, path = tree.root, log.root
    return path.removeprefix(root.rstrip("/") + "/")


def _configured_logs(settings: Mapping[str, str]) -> list[LocalTree]:
    """Local directories that broker.conf names for the log and that exist on this machine."""
    text = ",".join(settings.get(k, "") for k in ("storePathCommitLog", "readOnlyCommitLogStorePaths"))
    trees = [LocalTree(p.strip()) for p in text.split(",") if p.strip()]
    if not trees or not all((t.stat("") or _NOTHING).is_directory for t in trees):
        return []
    return trees


class _Nothing:
    is_directory = False


_NOTHING = _Nothing()


def root_of(path: PurePosixPath) -> tuple[PurePosixPath, str] | None:
    """The store root above a path inside a store, and the path relative to it; None when no name fits.

    Goes by names alone: ``.../commitlog/00000000000000000000`` lies in the store ``...``.
    """
    parts = path.parts
    for at in range(len(parts) - 1, 0, -1):
        name = parts[at]
        if name in _INSIDE or name.startswith((COMMIT_LOG, "dledger-")):
            return PurePosixPath(*parts[:at]), "/".join(parts[at:])
    return None


__all__ = ["MARKS", "join", "looks_like_store", "open_store", "root_of"]
