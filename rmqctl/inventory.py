"""Which stores are meant: paths, patterns, and inventories.

A pattern is ``/mnt/*/store`` or ``s3://backup/2026-11-*/broker-*``; an inventory is a TOML file with a table
``[[store]]`` for each store::

    [[store]]
    path = "broker-a/store"       # or a list: the log.dirs of one broker; relative to the file
    name = "broker-a"             # default: the path
    cluster = "prod"
    family = "rocketmq"           # default: look
    release = "5.3.3"             # that answers where --as-release is not given
    broker_conf = "broker-a/broker.conf"
    commit_log = ["/disk2/commitlog"]
    role = "master"               # these three are shown
    host = "10.0.0.1"
    replica_of = "broker-b"
    own_disk = true               # Spark: the path is on a disk of the host; only executors there open it

Above the tables ``cluster``, ``family``, ``release`` and ``broker_conf`` are those of each store that has no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rmqctl.answer import Row
from rmqctl.errors import NotAStore, RmqctlError, WrongUsage
from rmqctl.files.remote import is_url, open_tree, split_url
from rmqctl.files.tree import join
from rmqctl.opening import open_store
from rmqctl.release import Release
from rmqctl.store import Store
from rmqctl.text import typed

_WILD = frozenset("*?[")
_FACTS = ("role", "host", "replica_of")
_OWN_DISK = "own_disk"
_SHARED = ("cluster", "family", "release", "broker_conf")
_KEYS = ("path", "name", *_SHARED, "commit_log", *_FACTS, _OWN_DISK)


@dataclass(frozen=True, slots=True)
class Member:
    """One store of several.

    Attributes:
        name: what rows call it.
        path: where it lies, with commas between directories.
        cluster: which it belongs to; None: not said.
        family, commit_log, broker_conf: how to open it, see :func:`rmqctl.open`.
        release: that answers where a question names none.
        facts: what else the inventory says: ``role``, ``host``, ``replica_of``.
        key: what it is called in a set of stores that is compared with another: its name in an inventory, what the
            wildcards of a pattern stand for, "" for a single path.
        own_disk: the path is one of the host among the facts, and means nothing elsewhere.
    """

    name: str
    path: str
    cluster: str | None = None
    family: str | None = None
    commit_log: tuple[str, ...] = ()
    broker_conf: str | None = None
    release: Release | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    own_disk: bool = False

    def open(self) -> Store:
        """Open it.

        Raises:
            NotAStore, OSError: it cannot be.
        """
        return open_store(self.path, format=self.family, commit_log=self.commit_log, broker_conf=self.broker_conf)

    @property
    def head(self) -> Row:
        """What stands first in each of its rows."""
        return {"store": self.name, **({} if self.cluster is None else {"cluster": self.cluster})}


def is_several(path: str) -> bool:
    """Whether a path stands for any number of stores: an inventory, or a pattern that is not the name of something."""
    if path.startswith("@"):
        return True
    return bool(_WILD & set(path)) and (is_url(path) or not Path(path).exists())


def members_of(
    paths: Iterable[str | Mapping[str, Any]],
    *,
    format: str | None = None,
    commit_log: Sequence[str] = (),
    broker_conf: str | None = None,
) -> list[Member]:
    """Return the stores that paths, patterns and inventories name, in their order, each once.

    Args:
        paths: or tables as an inventory has them.
        format, commit_log, broker_conf: as of :func:`rmqctl.open`, of all stores that no inventory says more of.

    Raises:
        NotAStore: a pattern matches nothing.
        WrongUsage: an inventory is none.
    """
    found: dict[str, Member] = {}
    for number, path in enumerate(paths, 1):
        if not isinstance(path, str):
            members: Iterable[Member] = [_listed(path, Path(), f"store {number}")]
        elif path.startswith("@"):
            members = _inventory(Path(path[1:]))
        else:
            keys = {place: _key(path, place) for place in _matching(path)} if is_several(path) else {path: ""}
            members = (
                Member(place, place, None, format, tuple(commit_log), broker_conf, key=key)
                for place, key in keys.items()
            )
        for member in members:
            found.setdefault(member.name, member)
    return list(found.values())


def _matching(pattern: str) -> list[str]:
    before, inside, after = split_url(pattern) if is_url(pattern) else ("", pattern, "")
    parts = inside.split("/")
    first = next(number for number, part in enumerate(parts) if _WILD & set(part))
    base = "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ".")
    tree = open_tree(f"{before}{base}{after}")
    found = [""]
    for part in parts[first:]:
        if not part:
            continue
        if not _WILD & set(part):
            found = [join(path, part) for path in found if tree.stat(join(path, part)) is not None]
            continue
        names = ((path, entry.name) for path in found for entry in tree.entries(path, sizes=False))
        found = [join(path, name) for path, name in names if fnmatchcase(name, part)]
    if not found:
        raise NotAStore(pattern, "nothing has such a name", "look at the pattern, or put it in quotes")
    shown = "" if base == "." and not pattern.startswith("./") else base.rstrip("/") + "/"
    return [f"{before}{shown}{path}{after}" for path in found]


def _key(pattern: str, path: str) -> str:
    """Return what the wildcards of a pattern stand for in a path that it matches."""
    parts = re.split(r"(\*|\?|\[[^]]*\])", pattern)
    wild = {"*": "([^/]*)", "?": "([^/])"}
    found = re.fullmatch("".join(wild.get(p, "(.)" if p.startswith("[") else re.escape(p)) for p in parts), path)
    return path if found is None else "/".join(found.groups())


def _inventory(path: Path) -> Iterator[Member]:
    import tomllib

    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongUsage("PATH", f"@{path} is no inventory in TOML: {error}.") from None
    stores = document.get("store")
    if not isinstance(stores, list) or not stores or not all(isinstance(store, dict) for store in stores):
        raise WrongUsage("PATH", f"@{path} has no table [[store]]; each needs a path.")
    shared = {key: value for key, value in document.items() if key != "store"}
    for key in shared:
        if key not in _SHARED:
            raise WrongUsage("PATH", f"@{path} has the key {key!r} above its stores; known: {', '.join(_SHARED)}.")
    for number, store in enumerate(stores, 1):
        yield _listed(shared | store, path, f"store {number} of @{path}")


def _listed(store: Mapping[str, Any], inventory: Path, where: str) -> Member:
    for key in store:
        if key not in _KEYS:
            raise WrongUsage("PATH", f"{where} has the key {key!r}; known are {', '.join(_KEYS)}.")
    texts = {key: store[key] for key in _KEYS if key in store and key not in {"path", "commit_log", _OWN_DISK}}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise WrongUsage("PATH", f"{key} of {where} is no text.")
    own_disk = store.get(_OWN_DISK, False)
    if not isinstance(own_disk, bool) or (own_disk and "host" not in texts):
        raise WrongUsage("PATH", f"{_OWN_DISK} of {where} is true or false, and true needs a host.")
    paths, logs = _texts(store, "path", where), _texts(store, "commit_log", where)
    if not paths:
        raise WrongUsage("PATH", f"{where} has no path.")

    def placed(text: str) -> str:
        return text if is_url(text) else str(inventory.parent / text)

    release = texts.get("release")
    try:
        parsed = None if release is None else Release.parse(release)
    except ValueError as error:
        raise WrongUsage("PATH", f"release of {where}: {error}.") from None
    conf = texts.get("broker_conf")
    return Member(
        texts.get("name", ",".join(paths)), ",".join(map(placed, paths)), texts.get("cluster"), texts.get("family"),
        tuple(map(placed, logs)), None if conf is None else placed(conf), parsed,
        {key: texts[key] for key in _FACTS if key in texts}, texts.get("name", ",".join(paths)),
        own_disk,
    )  # fmt: skip


def _texts(store: Mapping[str, Any], key: str, where: str) -> list[str]:
    value = store.get(key, [])
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise WrongUsage("PATH", f"{key} of {where} is neither a text nor a list of texts.")
    return values


def opened_together(
    members: Iterable[Member], *, is_plain: bool = False
) -> tuple[list[tuple[Member, Store | RmqctlError | OSError]], list[str]]:
    """Open stores, one after the other; directories of one broker of which no inventory says more become one.

    Args:
        is_plain: each path was typed; who typed two directories may have meant one broker.

    Returns:
        Each store, or why it cannot be opened; and what is to be said of them.
    """
    opened: list[tuple[Member, Store | RmqctlError | OSError]] = []
    remarks: list[str] = []
    for member in members:
        try:
            store = member.open()
        except (RmqctlError, OSError) as error:
            opened.append((member, error))
            continue
        for number, (other, beside) in enumerate(opened):
            if not isinstance(beside, Store):
                continue
            both, paths_of_both = beside.joined(store), f"{other.path},{member.path}"
            if isinstance(both, Store) and not member.facts:
                opened[number] = replace(other, name=f"{other.name},{member.name}", path=paths_of_both), both
                break
            if is_plain and not remarks and isinstance(both, str) and both:
                remarks.append(
                    f"{other.name} and {member.name} are taken for two stores: {both}; no broker starts with both as "
                    f"its directories: {typed('doctor', paths_of_both)}"
                )
        else:
            opened.append((member, store))
    return opened, remarks
