"""`rmqctl salvage`: every readable message into a new store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message
from commands._options import StoreOptions, output_option, owner_option, store_options
from commands._progress import progress
from commands._types import LocalPath
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.rocketmq.salvage.salvage import Salvaged

_COLUMNS = ("source", "severity", "id", "file", "offset", "size", "message")


@click.command("salvage")
@store_options
@click.argument("into", type=LocalPath())
@click.option("--from", "--replica", "replicas", multiple=True, metavar="STORE", help="A further source; repeatable.")
@click.option("--stale", is_flag=True, help="Take old records behind the end of the log, too: what a cut left behind.")
@click.option("--renumber", is_flag=True, help="Count every queue anew from 0; default: queue offsets are kept.")
@owner_option
@output_option()
def command(
    store: StoreOptions,
    into: Path,
    replicas: tuple[str, ...],
    stale: bool,
    renumber: bool,
    owner: str | None,
    out: Output,
) -> None:
    """Copy every readable message of PATH into a new store at INTO, also those behind damage in the middle of the log.

    PATH is only read. The new store is written by the store engine: brokers start on it. Messages keep
    their queue offsets; where one is lost for good a placeholder stands, so that no consumer stalls. What
    could not be read is listed. With --replica the messages of several stores are merged by queue offset.
    Exits 1 when something could not be read.

    \b
    Examples:
      rmqctl salvage /data/rocketmq/store /data/salvaged
      rmqctl salvage /data/rocketmq/store /data/salvaged --replica /backup/store
    """
    from rmqctl.files.new_files import Ownership
    from rmqctl.rocketmq.salvage.salvage import SalvageOptions, check_target, salvage
    from rmqctl.rocketmq.store.locate import check_no_part, open_store_at

    found = [open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)]
    found += [open_store_at(path, broker_conf=store.broker_conf) for path in replicas]
    check_no_part(into)
    check_target(found, into)
    for one in found:
        if one.is_running:
            message(f"a broker holds the lock of {one.root}: what is read may be changing")
    to = Ownership.like(found[0].tree, owner)
    message(f"writing a new store to {into}; {', '.join(s.root for s in found)} is only read")
    size = sum(f.size for one in found for f in one.log_files)
    with progress("salvage", 2 * size) as advance:
        saved = salvage(found, into, SalvageOptions(stale, renumber, to), advance)
    _show(saved, out)
    raise SystemExit(1 if saved.unreadable or saved.written.holes else 0)


def _show(saved: Salvaged, out: Output) -> None:
    if out.kind == "json":
        out.document({"summary": saved.summary(), "unreadable": list(_rows(saved))})
        return
    out.show(_rows(saved), columns=_COLUMNS)
    if out.kind == "jsonl":
        out.show([saved.summary()])
    elif out.kind == "table":
        out.text(_sentences(saved))


def _rows(saved: Salvaged) -> Iterator[dict[str, Any]]:
    for number, finding in saved.unreadable:
        yield {**finding.row(), "source": saved.sources[number][0]}


def _sentences(saved: Salvaged) -> Iterator[str]:
    s = saved.summary()
    yield f"{number_of(s['messages'], 'message')}, {s['bytes']:,} bytes written to {s['into']}"
    for key, what in (
        ("unreadable", "places could not be read (listed above)"),
        ("placeholders", "placeholders stand for messages that no source has"),
        ("renumbered", "messages got another queue offset"),
        ("duplicates", "messages were found in more than one place and written once"),
        ("conflicts", "of these differ between sources; the earlier source counted"),
        ("stale", "messages come from behind the end of the log"),
    ):
        if s[key]:
            yield f"  {s[key]:,} {what}"
    for hole in s["holes"]:
        yield f"  {hole['topic']}/{hole['queue_id']}: offsets {hole['from']:,} to {hole['to']:,} are missing"
    for what in s["offsets"]:
        yield f"  {what}"
    yield f"next: rmqctl verify {s['into']}"
