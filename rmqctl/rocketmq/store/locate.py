"""From a path that a user typed, local or remote, to what lies there: a store, its log, the part that was meant, or a
single file.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from rmqctl.errors import NotAStore, Refused
from rmqctl.files.new_files import refuse_unfinished
from rmqctl.files.remote import is_url, open_tree
from rmqctl.files.tree import LocalTree, Tree, is_directory
from rmqctl.rocketmq.store.databases import MESSAGES, POP
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    COMMIT_LOG,
    DLEDGER,
    INDEX,
    QUEUES,
    QUEUES_EXT,
    SEPARATE_QUEUES,
    StoreFiles,
    is_offset,
)
from rmqctl.rocketmq.store.geometry import flag, read_broker_conf
from rmqctl.store import LoneFile

MARKS = (COMMIT_LOG, QUEUES, BATCH_QUEUES, INDEX, "checkpoint", "abort", "timerlog", "timerwheel", "compaction")
"""Names that show a directory to be a store; ``config`` alone shows it only with a known file in it."""
CONFIG_FILES = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json", "timercheck")
_INSIDE = {COMMIT_LOG, QUEUES, QUEUES_EXT, BATCH_QUEUES, INDEX, SEPARATE_QUEUES, "config", "timerlog", "compaction"}
_INSIDE |= {MESSAGES, POP}
_ROOT_FILES = {"checkpoint", "abort", "lock", "timerwheel"}


def open_store(
    tree: Tree,
    *,
    commit_log: Sequence[Tree] = (),
    settings: Mapping[str, str] | None = None,
    selection: str = "",
) -> StoreFiles:
    """Return the store whose root is ``tree``.

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
    return StoreFiles(tree, logs, selection, settings or {})


def looks_like_store(tree: Tree, beside: str = "") -> bool:
    """Whether a directory holds anything a broker keeps in its root, a name in it that is no proof left aside."""
    names = {e.name for e in tree.entries("", sizes=False)} - {beside}
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
    """Return the directories of the commit log: from the settings if those are there, else inside the root."""
    configured = _configured_logs(settings)
    if configured:
        has_group = flag(settings, "enableDLegerCommitLog", default=False)
        beside = [(name, tree.child(name)) for name in (_dledger_logs(tree) if has_group else ())]
        return [*((_shown(tree, log), log) for log in configured), *beside]
    names = [e.name for e in tree.entries("", sizes=False) if e.is_directory and e.name.startswith(COMMIT_LOG)]
    found = [n for n in names if n == COMMIT_LOG or _is_log_directory(tree, n)]
    found += _dledger_logs(tree)
    return [(name, tree.child(name)) for name in found]


def _dledger_logs(tree: Tree) -> list[str]:
    """Return data directories of DLedger logs; an old commit log may lie in front of them (spec 2.14)."""
    names = [e.name for e in tree.entries("", sizes=False) if e.is_directory and e.name.startswith(DLEDGER)]
    return [f"{name}/data" for name in names if _is_log_directory(tree, f"{name}/data")]


def _shown(tree: Tree, log: Tree) -> str:
    """How the files of a log directory are named: relative to the store where it lies inside, else in full."""
    if isinstance(tree, LocalTree) and isinstance(log, LocalTree):
        inside = os.path.abspath(log.place).removeprefix(os.path.abspath(tree.place).rstrip("/") + "/")
        return os.path.abspath(log.root) if inside.startswith("/") else inside
    return log.root.removeprefix(tree.root.rstrip("/") + "/")


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
    """Return the store root above a path inside a store, and the path relative to it; None when no name fits.

    Goes by names alone: ``.../commitlog/00000000000000000000`` lies in the store ``...``.
    """
    parts = path.parts
    if path.name in _ROOT_FILES:
        return path.parent, path.name
    for at in range(len(parts) - 1, 0, -1):
        name = parts[at]
        if name in _INSIDE or name.startswith((COMMIT_LOG, "dledger-")):
            return PurePosixPath(*parts[:at]), "/".join(parts[at:])
    return None


# --- from a path ------------------------------------------------------------------------------------


_KAFKA_FILES = {
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    ".kafka_cleanshutdown",
}
_KAFKA_PARTITION = re.compile(r".+-\d+")
_KAFKA_SEGMENT = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)")


def open_path(
    path: str, *, commit_log: Sequence[str] = (), broker_conf: str | None = None, format: str = "auto"
) -> StoreFiles | LoneFile:
    """Return what lies at a path: a store root, a directory inside one, or one file.

    Args:
        commit_log: directories of the commit log when it lies outside the root.
        broker_conf: path of broker.conf, for what files do not say.
        format: ``rocketmq`` or ``kafka`` to be taken at one's word.

    Raises:
        NotAStore: nothing is there, or nothing that belongs to a RocketMQ store.
    """
    settings = read_broker_conf(Path(broker_conf)) if broker_conf else {}
    logs = [open_tree(p) for p in commit_log]
    for log, name in zip(logs, commit_log, strict=True):
        if not is_directory(log, name):
            raise NotADirectoryError(errno.ENOTDIR, "it is no directory", name)
    tree = open_tree(path)
    entry = is_directory(tree, path)
    if format == "kafka":
        raise NotAStore(
            path, "this command has no use for Kafka log directories", "leave out --format kafka for a RocketMQ store"
        )
    if entry and (logs or _is_root(tree)):
        return open_store(tree, commit_log=logs, settings=settings)
    inside = _inside(path, settings, logs)
    if inside is not None:
        return inside
    if entry:
        raise _no_store(tree, path)
    parent, _, name = path.rstrip("/").rpartition("/")
    if _KAFKA_SEGMENT.fullmatch(name):
        raise _kafka(path)
    return LoneFile(open_tree(parent or ("/" if path.startswith("/") else ".")), name)


def open_store_at(
    path: str, *, commit_log: Sequence[str] = (), broker_conf: str | None = None, format: str = "auto"
) -> StoreFiles:
    """Like :func:`open_path`, for commands that need a whole store.

    Raises:
        NotAStore: a single file that belongs to no store.
    """
    found = open_path(path, commit_log=commit_log, broker_conf=broker_conf, format=format)
    if isinstance(found, LoneFile):
        raise NotAStore(path, "it is a single file outside a store", "give the store's directory")
    return found


def check_no_part(path: Path) -> None:
    """Hold a directory where a store is, or is to be made, to lying in no store.

    Raises:
        Refused: a store is around it, the message names its root; or it is unfinished.
    """
    refuse_unfinished(path)
    found = root_of(PurePosixPath(path.absolute().as_posix()))
    if found is not None and not looks_like_store(LocalTree(str(path))):
        root, inside = found
        names = {e.name for e in LocalTree(str(root)).entries("", sizes=False)} - {inside.partition("/")[0]}
        if names & set(MARKS):
            raise _part(path, root)


def _part(path: object, root: object) -> Refused:
    return Refused(
        f"{path} lies in the store {root}, and what is written concerns a store as a whole; nothing was written; "
        f"give its root: {root}"
    )


def _is_root(tree: Tree) -> bool:
    """Whether a directory is a store's root, and not merely a part whose names look like one."""
    return looks_like_store(tree)


def _inside(path: str, settings: dict[str, str], logs: list[Tree]) -> StoreFiles | None:
    """Return the store above a path inside it, with the path as its selection."""
    if is_url(path):
        scheme, _, rest = path.partition("://")
        found = root_of(PurePosixPath("/" + rest))
        root = f"{scheme}://{str(found[0])[1:]}" if found else ""
    else:
        found = root_of(PurePosixPath(Path(path).absolute().as_posix()))
        root = _as_typed(path, found[1]) if found else ""
    if found is None:
        return None
    tree = open_tree(root)
    beside = found[1] if found[1] in _ROOT_FILES else ""  # a copy of such a file by itself is no store
    if not looks_like_store(tree, beside) or tree.stat(found[1]) is None:
        return None  # the latter of a log that lies beside the store in a bundle
    return open_store(tree, commit_log=logs, settings=settings, selection=found[1])


def _as_typed(path: str, inside: str) -> str:
    """Return the root in the user's own words where the path ends with the part inside."""
    typed = path.rstrip("/")
    if typed.endswith("/" + inside):
        return typed[: -len(inside) - 1] or "/"
    absolute = Path(path).absolute().as_posix()
    return absolute[: -len(inside) - 1] or "/"


def _no_store(tree: Tree, path: str) -> NotAStore:
    names = [e.name for e in tree.entries("", sizes=False)]
    if not names:
        return NotAStore(path, "the directory is empty")
    kafka = [n for n in names if n in _KAFKA_FILES or _KAFKA_SEGMENT.fullmatch(n) or _is_partition(tree, n)]
    if kafka:
        return _kafka(path)
    return NotAStore(
        path, f"no commitlog/, consumequeue/, checkpoint or config/ in it, but {', '.join(sorted(names)[:4])}"
    )


def _is_partition(tree: Tree, name: str) -> bool:
    return bool(_KAFKA_PARTITION.fullmatch(name)) and any(
        _KAFKA_SEGMENT.fullmatch(e.name) for e in tree.entries(name, sizes=False)
    )


def _kafka(path: str) -> NotAStore:
    return NotAStore(
        path,
        "it is a Kafka log directory",
        "leave out --format rocketmq",
        wanted="RocketMQ store",
    )
