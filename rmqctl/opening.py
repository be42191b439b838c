"""From a path to a store: which family what lies there belongs to."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rmqctl.errors import NotAStore, WrongUsage
from rmqctl.families import DEFAULT, FAMILIES
from rmqctl.files.remote import open_tree
from rmqctl.files.tree import BUNDLE_MANIFEST, LocalTree, is_directory
from rmqctl.store import LoneFile, Place, Store

if TYPE_CHECKING:
    from rmqctl.answer import Row
    from rmqctl.files.archives import Bundle
    from rmqctl.producing import Produced, ProduceRequest


def open_path(
    path: str,
    *,
    format: str | None = None,
    commit_log: Sequence[str] = (),
    broker_conf: str | None = None,
) -> Store | LoneFile:
    """Open what lies at a path: a store's root, a directory inside one, one file, a bundle, or what lies in that.

    Args:
        format: the name of a family, to be taken at one's word; None or ``auto``: look.
        commit_log: directories of a commit log outside the root.
        broker_conf: the broker's settings file, for what files do not store.

    Raises:
        NotAStore: nothing is there, or nothing that belongs to a store of any family.
        WrongUsage: the bytes of a file were left out of its bundle.
    """
    found = None if commit_log else _bundle_at(path)
    if found is None:
        return _open(path, format, commit_log, broker_conf)
    bundle, inside = found
    if inside and (why := bundle.why_not(inside)):
        raise WrongUsage("PATH", f"{inside} is not in this bundle: {why}.")
    conf = broker_conf or bundle.broker_conf
    if inside:
        opened = _open(path, bundle.family, (), conf)
    else:
        opened = _open(bundle.roots, bundle.family, bundle.commit_log, conf)
        opened.call_it(path)
    opened.bundle = bundle.manifest
    return opened


def _open(path: str, format: str | None, commit_log: Sequence[str], broker_conf: str | None) -> Store | LoneFile:
    forced = format if format != "auto" else None
    if forced is not None and forced not in FAMILIES:
        raise NotAStore(path, f"there is no format {forced}", f"known are {', '.join(FAMILIES)}")
    for directory in commit_log:
        if not is_directory(open_tree(directory), directory):
            raise NotADirectoryError(errno.ENOTDIR, "it is no directory", directory)
    tree = open_tree(path)
    if "," in path and tree.stat("") is None:
        return _open_together(path, forced)
    place = Place(path, tree, is_directory(tree, path), tuple(commit_log), broker_conf, forced is not None)
    for family in _likely_first(place):
        if forced in (None, family):
            found: Store | LoneFile | None = FAMILIES[family].module.open_at(place)
            if found is not None:
                return found
    raise NotAStore(path, "it is of no known kind")


def _bundle_at(path: str) -> tuple[Bundle, str] | None:
    """Return the bundle at a path or around it; what opens one is imported for what may be in a file, and where its
    manifest lies.
    """
    try:
        os.stat(os.path.join(path, BUNDLE_MANIFEST))
    except NotADirectoryError:
        pass  # the path, or one above it, is a file
    except (OSError, ValueError):
        return None
    from rmqctl.files.archives import bundle_at

    return bundle_at(path)


def _likely_first(place: Place) -> list[str]:
    """Return the families in the order to ask them; one whose marks alone lie in a directory is the first."""
    names = {entry.name for entry in place.tree.entries("", sizes=False)} if place.is_directory else set()
    marked = [family.name for family in FAMILIES.values() if family.marks & names]
    return sorted(FAMILIES, key=lambda family: marked != [family])


def _open_together(path: str, forced: str | None) -> Store:
    """Open directories that are given as a list with commas, for the families whose stores may lie in several.

    Raises:
        NotAStore: they are no store of one family.
        FileNotFoundError: one of them is not there.
    """
    places = []
    for part in filter(None, path.split(",")):
        tree = open_tree(part)
        places.append(Place(part, tree, is_directory(tree, part), is_forced=forced is not None))
    for family in FAMILIES.values():
        open_together = getattr(family.module, "open_together", None)
        if forced in (None, family.name) and open_together is not None:
            found: Store | None = open_together(places)
            if found is not None:
                return found
    raise NotAStore(path, "these directories are no store together", "give directories of one broker's log.dirs")


def open_store(
    path: str,
    *,
    format: str | None = None,
    commit_log: Sequence[str] = (),
    broker_conf: str | None = None,
) -> Store:
    """Open a path like :func:`open_path`, for verbs that need a store.

    Raises:
        NotAStore: a single file that belongs to no store.
    """
    found = open_path(path, format=format, commit_log=commit_log, broker_conf=broker_conf)
    if not isinstance(found, LoneFile):
        return found
    entry = found.tree.stat(found.name)
    if entry is not None and entry.size == 0:
        raise NotAStore(path, "it is a file of 0 bytes outside a store", "give the store's directory")
    from rmqctl.files.archives import unpacking

    if (packed := unpacking(found.tree, found.name, path)) is not None:
        raise NotAStore(path, *packed)
    raise NotAStore(
        path, "it is a single file outside a store", "give the store's directory, or use `rmqctl dump` on the file"
    )


def produce(path: Path, request: ProduceRequest, *, format: str | None = None) -> Produced:
    """Write messages into the store at a path, or make one there, by the engine of its family.

    Args:
        format: the family; None or ``auto``: that of what is there, RocketMQ where nothing is.

    Raises:
        WrongUsage: options do not go together, or mean nothing to the family.
        Refused, StoreInUse, IOFailure: the engine cannot open the store.
    """
    produced: Produced = _module_for(path, format).produce(path, request)
    return produced


def damages(format: str | None = None) -> list[Row]:
    """List the kinds of damage that a family makes on purpose, see :class:`ProduceRequest`."""
    found: list[Row] = FAMILIES[DEFAULT if format in {None, "auto"} else str(format)].module.damages()
    return found


def known_releases(family: str | None = None) -> list[str]:
    """Return the releases whose rules are known, in order; of all families without one."""
    modules = [one.module for one in FAMILIES.values() if family in {None, one.name}]
    return [
        f"{major}.{minor}.{patch}"
        for module in modules
        for (major, minor), newest in module.releases().items()
        for patch in range(module.first_patches().get((major, minor), 0), newest + 1)
    ]


def _module_for(path: Path, format: str | None) -> ModuleType:
    """Return the family whose engine works on what lies at a path."""
    if format not in {None, "auto"}:
        return FAMILIES[str(format)].module
    tree = LocalTree(str(path))
    entry = tree.stat("")
    if entry is not None and entry.is_directory and tree.entries("", sizes=False):
        place = Place(str(path), tree, is_directory=True)
        for family in FAMILIES.keys() - {DEFAULT}:
            module = FAMILIES[family].module
            found = module.open_at(place) if hasattr(module, "produce") else None
            if found is not None and not isinstance(found, LoneFile):
                return module
    return FAMILIES[DEFAULT].module
