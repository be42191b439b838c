"""What shells complete: names that lie in the store on the line, read without its log; nothing where that fails."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from rmqctl.store import Store

    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]

_FILE = "file"
_TYPEABLE = re.compile(r"[\w.%@:/+,=-]+")
"""Names that mean only themselves to a shell: others, which a store may hold on purpose, are left to be typed."""
WORDS = "rmqctl.words"
"""Key of `click.Context.meta`: the words after the command, on a line that is not whole."""


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Let the shell complete names of files; after the store of a lookup, topics."""
    arguments = [other.name for other in context.command.params if isinstance(other, click.Argument)]
    if parameter.nargs < 0 and "queue" in arguments and _given(context):
        return topics(context, parameter, incomplete)
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=_FILE)]


def _names(find: Callable[[click.Context], Iterable[str]]) -> Complete:
    """Return the names that begin as typed; a shell is never shown an error."""

    @wraps(find)
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        try:
            begun = (name for name in find(context) if name.startswith(incomplete))
            return [CompletionItem(name) for name in begun if _TYPEABLE.fullmatch(name)]
        except Exception:  # noqa: BLE001 - whatever is wrong with the store, the line can be typed
            return []

    return complete


@_names
def topics(context: click.Context) -> Iterable[str]:
    """Topics of the store."""
    return _store(context).topic_names()


@_names
def groups(context: click.Context) -> Iterable[str]:
    """Consumer groups of the store."""
    return _store(context).group_names()


@_names
def releases(context: click.Context) -> Iterable[str]:
    """Releases of the store's family; of both where no store is on the line yet."""
    from rmqctl.opening import known_releases

    given = _given(context)
    return known_releases(_store(context).family if given else None)


@_names
def findings(_: click.Context) -> Iterable[str]:
    """Ids of findings."""
    from rmqctl.findings import all_kinds

    return (kind.id for kind in all_kinds())


@_names
def explained(_: click.Context) -> Iterable[str]:
    """Ids of findings and of reasons."""
    from rmqctl.explain import all_misses
    from rmqctl.findings import all_kinds

    return [*(kind.id for kind in all_kinds()), *(miss.id for miss in all_misses())]


@_names
def formats(_: click.Context) -> Iterable[str]:
    """Names of formats."""
    from formats.catalogue import CATALOGUE

    return ["findings", "misses", *(known.name for known in CATALOGUE)]


def files_then_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """First a file, then a topic of the store."""
    named = topics(context, parameter, incomplete) if _given(context) else []
    return named or files(context, parameter, incomplete)


def _store(context: click.Context) -> Store:
    from rmqctl.opening import open_store

    return open_store(_given(context), format=context.params.get("format"))


def _given(context: click.Context) -> str:
    """Return the first word after the command that lies on the disk; "" where there is none.

    The parameters would not do: an option that waits for its value ends their parsing before the arguments.
    """
    words = (str(Path(word).expanduser()) for word in context.meta.get(WORDS, ()))
    return next((word for word in words if os.path.exists(word)), "")
