"""`rmqctl browse`: a walk through stores on a terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

import click

from commands._options import store_options_with_paths
from commands._signals import Terminated
from commands._types import refuse
from rmqctl.errors import MissingExtra

if TYPE_CHECKING:
    from commands._browse.app import Browser
    from commands._options import StoreOptions


@click.command("browse")
@store_options_with_paths
def command(store: StoreOptions) -> None:
    """Walk through a store on the terminal: topics, queues, messages, findings, bytes. Nothing is written.

    On the left is a tree: what `doctor`, `verify`, `lag`, `recover` and `repair` say, topics with their queues, files.
    On the right is what was chosen. Enter opens, Esc leads back, / searches by key, id, offset or time, f filters as
    one types, b shows the annotated bytes, t the life of a message, y copies an id, a path, or the command that shows
    the same, which always stands below; ? lists all keys. It needs a terminal of 80x24, works over ssh, and holds
    only what is in sight, however long a queue is. It follows a store whose broker runs.

    \b
    Examples:
      rmqctl browse /data/rocketmq/store
      rmqctl browse /var/lib/kafka/data
      rmqctl browse s3://backups/broker-a/store
      rmqctl browse bundle.tar.zst
      rmqctl browse broker-a/store broker-b/store
    """
    if not _is_terminal():
        refuse("PATH", "needs a terminal to be shown on, and this is none; what prints: rmqctl doctor PATH")
    try:
        from commands._browse.app import Browser
    except ImportError as error:
        if not (error.name or "").startswith("textual"):
            raise
        raise MissingExtra("browsing a store", "tui") from None
    from commands._browse.site import Site

    paths = _paths(store)
    app = Browser()
    sites = [Site(one, one.open_any(), app.call_later) for one in (replace(store, path=p, paths=(p,)) for p in paths)]
    app.walk(sites)
    try:
        sites[0].warm(2)
        with _ended_by_sigterm(app):
            code = app.run()
    finally:
        for site in sites:
            site.close()
    if app.bug is not None:
        raise app.bug
    if code == 130:
        raise KeyboardInterrupt
    if code == 143:
        raise Terminated


def _is_terminal() -> bool:
    return sys.stdout.isatty() and sys.stdin.isatty()


def _paths(store: StoreOptions) -> list[str]:
    """Return the paths of the stores, patterns and inventories resolved."""
    from rmqctl.inventory import is_several, members_of

    if len(store.paths) == 1 and not is_several(store.path):
        return [store.path]
    return [member.path for member in members_of(store.paths, commit_log=store.commit_log)]


@contextmanager
def _ended_by_sigterm(app: Browser) -> Iterator[None]:
    """Let SIGTERM and a lost terminal end the walk, so that the terminal is as it was before."""

    def end(_number: int, _frame: FrameType | None) -> None:
        app.call_later(app.exit, 143)

    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, before in kept.items():
        if before is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, before in kept.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
