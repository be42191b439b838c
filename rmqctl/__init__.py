"""rmqctl looks at, explains and mends message stores when only the files are there.

:func:`open` is the way in: it gives a store, and a store has one method for each thing that can be done with it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # without `typing`: until the command line is there, Ctrl-C shows a traceback
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from rmqctl.fleet import Fleet
    from rmqctl.store import LoneFile, Store

__version__ = "0.1.0.dev0"


def open(  # noqa: A001 - what one does with a store, as with a file
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    commit_log: Sequence[str] = (),
    broker_conf: str | None = None,
) -> Store | LoneFile:
    """Open what lies at a path or URL: a store's root, a directory inside one, or one file.

    Args:
        format: the family, ``rocketmq`` or ``kafka``, to be taken at one's word; default: look.
        commit_log: directories of a commit log outside the root.
        broker_conf: the broker's settings file, for what files do not store.

    Raises:
        NotAStore: nothing is there, or nothing that belongs to a store of any family.
        OSError: no permission, or the disk fails.
    """
    from os import fspath

    from rmqctl.opening import open_path

    return open_path(fspath(path), format=format, commit_log=commit_log, broker_conf=broker_conf)


def open_all(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    commit_log: Sequence[str] = (),
    broker_conf: str | None = None,
) -> Fleet:
    """Open several stores, to be asked together: paths, patterns (``/mnt/*/store``), inventories (``@fleet.toml``).

    Directories of one Kafka broker count as one store. A store that cannot be opened is in every answer as a row.

    Args:
        format, commit_log, broker_conf: as of :func:`open`, of all stores that no inventory says more of.

    Raises:
        NotAStore: a pattern matches nothing.
        WrongUsage: an inventory is none.
    """
    from os import fspath

    from rmqctl.fleet import open_all as opened

    return opened([fspath(path) for path in paths], format=format, commit_log=commit_log, broker_conf=broker_conf)
