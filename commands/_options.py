"""Options that commands share, each group as one decorator that hands the command one object."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

import click

from commands import SEVERAL, _complete
from commands._app import Output, message
from commands._defaults import KINDS
from commands._guard import INCOMPLETE
from commands._types import FAMILY, Instant, Name, PropertyFilter, Regex, Release, Size, refuse
from rmqctl.errors import WrongUsage
from rmqctl.filters import DEFAULT_MAX_BODY, Filters

if TYPE_CHECKING:
    from rmqctl.answer import Answer
    from rmqctl.fleet import Fleet
    from rmqctl.questions import Question
    from rmqctl.store import LoneFile, Store

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
FilterOptions = Filters


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Which store is meant.

    Attributes:
        path: as typed; a local path or a URL; several with commas between them.
        commit_log: directories of a commit log outside the root, in order; empty: look in the root.
        broker_conf: the broker's settings file, or None.
        format: ``auto``, ``rocketmq`` or ``kafka``.
        paths: each as typed.
    """

    path: str
    commit_log: tuple[str, ...] = ()
    broker_conf: str | None = None
    format: str = "auto"
    paths: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_pattern(self) -> bool:
        """Whether a path stands for any number of stores."""
        if not any(SEVERAL & set(path) for path in (self.path, *self.paths)):
            return False
        from rmqctl.inventory import is_several

        return any(map(is_several, self.paths or (self.path,)))

    @property
    def is_several(self) -> bool:
        """Whether several paths are given, or one that may stand for several stores."""
        return len(self.paths) > 1 or self.is_pattern

    def ask(self, question: Question[Any]) -> Answer:
        """Ask the store, or all that the paths name.

        Raises:
            NotAStore: one path alone, and it is a single file that belongs to no store, or nothing of a store.
        """
        return self.open_each().ask(question)

    def open_each(self, *, silently: bool = False) -> Store | Fleet:
        """Open the stores that the paths name; a store where they name one.

        Args:
            silently: a store for a verb that says itself what is to be said of a part of it.

        Raises:
            NotAStore: a pattern matches nothing; or as of :meth:`open`, of one path.
            WrongUsage: an inventory is none.
        """
        if not self.is_several:
            return self.open_silently() if silently else self.open()
        from rmqctl.fleet import open_all

        fleet = open_all(
            self.paths,
            format=None if self.format == "auto" else self.format,
            commit_log=self.commit_log,
            broker_conf=self.broker_conf,
        )
        if fleet.only is None or self.is_pattern:
            return fleet
        return fleet.only if silently else _introduced(fleet.only)

    def each(self) -> list[StoreOptions]:
        """Return a value for each path that patterns and repeated files name; directories together are one."""
        if len(self.paths) < 2 and not (SEVERAL & set(self.path)):
            return [self]
        from rmqctl.inventory import is_several, members_of

        if not any(map(is_several, self.paths)) and (len(self.paths) < 2 or all(map(os.path.isdir, self.paths))):
            return [self]
        return [replace(self, path=member.path, paths=(member.path,)) for member in members_of(self.paths)]

    def open(self) -> Store:
        """Open the store as a whole; say so where only a part of it was named.

        Raises:
            NotAStore: a single file that belongs to no store, or nothing of a store.
        """
        return _introduced(self.open_silently())

    def open_silently(self) -> Store:
        """Open the store for a verb that says itself what is to be said of a part of it.

        Raises:
            NotAStore: a single file that belongs to no store, or nothing of a store.
        """
        from rmqctl.opening import open_store

        return open_store(self.path, format=self.format, commit_log=self.commit_log, broker_conf=self.broker_conf)

    def open_any(self) -> Store | LoneFile:
        """Open the store or the lone file.

        Raises:
            NotAStore: nothing of a store.
        """
        from rmqctl.opening import open_path
        from rmqctl.store import LoneFile

        found = open_path(self.path, format=self.format, commit_log=self.commit_log, broker_conf=self.broker_conf)
        if not isinstance(found, LoneFile) and not found.selection:
            say_if_missing(found)
        return found


def _introduced(found: Store) -> Store:
    say_if_part(found)
    say_if_unfinished(found.root)
    say_if_missing(found)
    return found


class _Selected(Protocol):
    """A store, and the part of it that was named."""

    selection: str

    @property
    def root(self) -> str: ...


def say_if_part(found: _Selected) -> None:
    """Remark on a path inside a store where the whole store is looked at: by all verbs but those that keep to it."""
    context = click.get_current_context(silent=True)
    asked = context.info_name if context is not None else None
    if found.selection and asked not in getattr(found, "keep_to_selection", ()):
        message(f"{found.selection} is a part of the store {found.root}: this looks at the whole store")


def say_if_unfinished(root: str) -> None:
    """Remark on a store whose making was broken off."""
    from rmqctl.files.new_files import MARK

    if os.path.lexists(os.path.join(root, MARK)):
        message(f"{root} is unfinished: the command that makes it was broken off, or still runs")


def say_if_missing(found: Store) -> None:
    """Remark on a store without its log, whose answers would look as if it never had a message; the command exits 1
    whatever it answers.
    """
    context = click.get_current_context(silent=True)
    if found.missing and (context is None or context.info_name not in _SAY_IT_THEMSELVES):
        say_missing(found.missing)


def say_missing(what: str) -> None:
    """Say that the log of a store is missing."""
    context = click.get_current_context(silent=True)
    message(f"{what}; what follows is what the rest says")
    if context is not None:
        context.meta[INCOMPLETE] = True


def say_unreadable(why: Mapping[str, str]) -> None:
    """Remark on stores, by name, without which an answer over several is made, once; the command exits 1 then."""
    meta = click.get_current_context().meta
    said = meta.setdefault(_UNREADABLE, set())
    for name in [name for name in why if name not in said]:
        message(f"{name}: {why[name]}")
        said.add(name)
        meta[INCOMPLETE] = True


_UNREADABLE = "rmqctl.unreadable"


_SAY_IT_THEMSELVES = ("verify", "recover", "repair", "rebuild")


owner_option = click.option(
    "--owner",
    metavar="USER[:GROUP]",
    help="Whom what is written belongs to; default: the owner and group of the store that is read (as root).",
)


_PATH = click.argument("path", shell_complete=_complete.files)
_PATHS = click.argument("path", nargs=-1, required=True, metavar="PATH...", shell_complete=_complete.files)
_STORE = (
    click.option(
        "--commitlog",
        "commit_log",
        metavar="DIR[,DIR...]",
        help="Directories of a commit log that lies outside PATH.",
    ),
    click.option(
        "--broker-conf",
        metavar="FILE",
        shell_complete=_complete.files,
        help="The broker's settings; default: detected, else the broker's defaults.",
    ),
    click.option(
        "--format",
        type=FAMILY,
        default="auto",
        show_default=True,
        help="The kind of store.",
    ),
)
_STORE_KEYS = ("path", "commit_log", "broker_conf", "format")


def topic_option(text: str) -> Decorator:
    """Add ``--topic`` with what it means to the command; gives ``topic``: names and patterns."""
    return click.option("--topic", type=Name("topic"), multiple=True, shell_complete=_complete.topics, help=text)


def group_option(text: str) -> Decorator:
    """Add ``--group`` with what it means to the command; gives ``group``: names and patterns."""
    return click.option("--group", type=Name("group"), multiple=True, shell_complete=_complete.groups, help=text)


_FILTERS: tuple[Decorator, ...] = (
    topic_option("Messages of this topic, or of those that 'Orders*' matches; repeatable."),
    click.option("--queue", type=click.IntRange(min=0), help="Messages of this queue id."),
    click.option(
        "--key",
        type=Name("key"),
        multiple=True,
        help="Messages with this, or what 'order-1*' matches, among their keys; repeatable.",
    ),
    click.option("--tag", help="Messages with this tag."),
    click.option(
        "--property", "properties", type=PropertyFilter(), multiple=True, help="A property with this value; repeatable."
    ),
    click.option("--after", type=Instant(), help="Stored at this time or later: 2026-11-20 14:05 (UTC), -15m, now."),
    click.option("--before", type=Instant(), help="Stored before this time."),
    click.option("--from-offset", type=click.IntRange(min=0), help="At this physical offset (bytes) or after it."),
    click.option("--to-offset", type=click.IntRange(min=0), help="Before this physical offset (bytes)."),
    click.option("--grep", type=Regex(), help="Bodies in which this regular expression is found."),
    click.option("-n", "--limit", type=click.IntRange(min=1), help="At most this many."),
    click.option("--damaged", is_flag=True, help="Only what is damaged."),
)


def as_release(text: str) -> Decorator:
    """Add ``--as-release`` with what it means to the command; gives ``as_release``: a `Release` or None."""
    return click.option("--as-release", type=Release(), metavar="RELEASE", shell_complete=_complete.releases, help=text)


as_release_option = as_release(
    "Answer as a broker of this release would, such as 5.3.3; default: the release that the store shows."
)
"""Gives the command ``as_release``: a `rmqctl.release.Release` or None."""


max_body_option = click.option(
    "--max-body",
    type=Size(),
    default=DEFAULT_MAX_BODY,
    show_default="4MiB",
    help="Show no compressed body that grows beyond this; clients refuse such bodies by default.",
)
"""Gives the command ``max_body``, in bytes."""


as_found_option = click.option(
    "--as-found",
    is_flag=True,
    help="RocketMQ: take the queues as their files lie; default: as a broker has them once it has started.",
)
"""Gives the command ``as_found``."""


at_option = click.option(
    "--at",
    type=Instant(),
    metavar="TIME",
    help="The state at this time, as far as the log shows: 2026-11-20 14:05 (UTC), -15m.",
)
"""Gives the command ``at``, epoch ms."""


def output_option(
    *more: str, default: str = "table", folds: str = "", tables: bool = False, columns: bool = False
) -> Decorator:
    """Add ``-o`` and ``--local-time``; gives the command ``out``, an `Output`.

    Args:
        more: kinds that this command has beside table, json, jsonl and csv.
        folds: what a table counts instead of showing each: adds ``--all``, which shows them.
        tables: its rows may be chosen: adds ``--columns``, ``--sort`` and ``--limit``.
        columns: the same without ``--limit``, which the command has as a filter, or does not need.
    """
    kinds = click.option(
        "-o",
        "--output",
        "kind",
        type=click.Choice([*KINDS, *more]),
        default=default,
        show_default=True,
        help="How to print.",
    )
    local = click.option(
        "--local-time",
        is_flag=True,
        is_eager=True,  # a time among the arguments is read by it
        help="Read and show times in the local zone, not UTC.",
    )
    options, keys = [kinds, local], ["kind", "local_time"]
    if folds:
        options.append(click.option("--all", "every", is_flag=True, help=f"Show {folds}."))
        keys.append("every")
    if tables or columns:
        options += _CHOICE[:3] if tables else _CHOICE[:2]
        keys += ["columns", "sort", "limit"][: 3 if tables else 2]
    return _packed("out", tuple(options), tuple(keys), Output)


def _names(_: click.Context, __: click.Parameter, given: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",") if name.strip())


_CHOICE = (
    click.option(
        "--columns", default="", callback=_names, metavar="A,B,C", help="Only these columns; `help` lists them."
    ),
    click.option("--sort", default="", metavar="COLUMN", help="Order by this column; --sort=-COLUMN: largest first."),
    click.option("-n", "--limit", type=click.IntRange(min=1), help="At most this many rows."),
)


def store_options(function: Function) -> Function:
    """Add PATH, ``--commitlog``, ``--broker-conf`` and ``--format``; gives the command ``store``."""
    return _with_store(_PATH, function)


def store_options_with_paths(function: Function) -> Function:
    """Add the options of :func:`store_options` with PATH repeated; other arguments follow the last one."""
    return _with_store(_PATHS, function)


def store_options_with_words(metavar: str, most: int) -> Decorator:
    """Return a decorator like :func:`store_options_with_paths` for further arguments that may be left out; it gives the
    command ``store`` and ``words``.

    Args:
        metavar: names all arguments.
        most: of the other arguments; words before them are PATHs, and so is the first.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def divided(*args: Any, path: tuple[str, ...], **kwargs: Any) -> Any:
            first = max(len(path) - most, 1)
            if most == 1 and first < len(path) and os.path.isdir(path[first]):
                first += 1
            return with_store(*args, path=path[:first], words=path[first:], **kwargs)

        with_store = _packed("store", (), _STORE_KEYS, _store_of)(refusing(function))
        argument = click.argument(
            "path", nargs=-1, required=True, metavar=metavar, shell_complete=_complete.files_then_topics
        )
        decorated: Function = divided
        for option in reversed((argument, *_STORE)):
            decorated = option(decorated)
        return decorated

    return decorate


def _store_of(path: str | tuple[str, ...], commit_log: str | None, **values: Any) -> StoreOptions:
    directories = tuple(part for part in (commit_log or "").split(",") if part)
    paths = (path,) if isinstance(path, str) else path
    return StoreOptions(",".join(paths), directories, **values, paths=paths)


def _with_store(argument: Decorator, function: Function) -> Function:
    return _packed("store", (argument, *_STORE), _STORE_KEYS, _store_of)(refusing(function))


def refusing(function: Function) -> Function:
    """Let what a store refuses become wrong usage, as if the command itself had said it."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except WrongUsage as error:
            refuse(error.option, error.reason)

    return wrapper


def filter_options(function: Function) -> Function:
    """Add the filters that commands share; gives the command ``filters``, a `FilterOptions`."""
    return _packed("filters", _FILTERS, tuple(FilterOptions.__slots__), _filters)(function)


def filter_options_but(*names: str) -> Decorator:
    """Return a decorator like :func:`filter_options` without some filters, which the command asks for in another way or
    which mean nothing to it.
    """
    kept = [(name, option) for name, option in zip(FilterOptions.__slots__, _FILTERS, strict=True) if name not in names]
    return _packed("filters", tuple(o for _, o in kept), tuple(n for n, _ in kept), _filters)


def _filters(**values: Any) -> FilterOptions:
    filters = FilterOptions(**values)
    if _crossed(filters.after, filters.before):
        refuse("--before", "is not later than --after, so nothing could match.")
    if _crossed(filters.from_offset, filters.to_offset):
        refuse("--to-offset", "is not after --from-offset, so nothing could match.")
    return filters


def _crossed(low: int | None, high: int | None) -> bool:
    return low is not None and high is not None and low >= high


def _packed(name: str, options: tuple[Decorator, ...], keys: tuple[str, ...], make: Callable[..., Any]) -> Decorator:
    """Return a decorator that adds ``options`` and replaces their values by one argument, ``make(**values)``."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            values = {key: kwargs.pop(key) for key in keys}
            return function(*args, **kwargs, **{name: make(**values)})

        decorated: Function = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate
