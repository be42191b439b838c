"""`rmqctl watch`: stores in use, checked over and over at a rate; what is new is said."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import Command
from commands._app import Output, complain, message
from commands._options import store_options_with_paths
from commands._types import Size, Span, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commands._options import StoreOptions
    from rmqctl.answer import Row
    from rmqctl.files.pace import Pace
    from rmqctl.fleet import Fleet
    from rmqctl.inventory import Member
    from rmqctl.watch import Watch
    from rmqctl.watch.metrics import Metrics

_PER_SECOND = re.compile(r"\s*/\s*s(ec)?$")


class Rate(Size):
    """Bytes a second: 50MiB/s, 1G."""

    name = "size/s"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return super().convert(_PER_SECOND.sub("", value) if isinstance(value, str) else value, param, ctx)


class Subset(click.ParamType[tuple[int, int]]):
    """One of several parts: 3/10."""

    name = "n/m"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return int(value[0]), int(value[1])
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", str(value).strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            self.fail(f"{value!r} is no part of a whole; give 1/10 to 10/10.", param, ctx)
        return int(match[1]), int(match[2])


@click.command("watch", cls=Command, usual="rate every once max-duration state metrics textfile output")
@store_options_with_paths
@click.option(
    "--rate", type=Rate(), default=50 << 20, show_default="50MiB/s", help="Read so many bytes a second; 0: any."
)
@click.option(
    "--every", type=Span(), default=3_600_000, show_default="1h", help="Begin a cycle so long after the last."
)
@click.option("--once", is_flag=True, help="One cycle through each store, then end.")
@click.option(
    "--max-duration", type=Span(), help="Begin no further part after so long, and end; for cron, with --state."
)
@click.option("--subset", type=Subset(), default=(1, 1), help="Only one of several parts of each store, such as 3/10.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File outside the stores that keeps the place and what was found, for the next start.",
)
@click.option("--metrics", metavar="HOST:PORT", default="", help="Serve metrics of Prometheus there.")
@click.option(
    "--textfile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write metrics into this file, for the textfile collector of node_exporter.",
)
@click.option("--no-figures", is_flag=True, help="Only check files: no lag, no transactions, no cost of a start.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "jsonl"]), default="table", show_default=True, help="Kind of output."
)
def command(
    store: StoreOptions,
    rate: int,
    every: int,
    once: bool,
    max_duration: int | None,
    subset: tuple[int, int],
    state: Path | None,
    metrics: str,
    textfile: Path | None,
    no_figures: bool,
    output: str,
) -> None:
    """Check stores that are in use over and over, at a rate, and say what is wrong when it is new.

    All of a store is read once a cycle, part after part: a file of a commit log with what leads there, a partition. A
    finding is one of `verify`, and is said once; what a broker does meanwhile (retention, roll-over, compaction, a
    restart) is none. It takes no lock, writes into no store, gives way to others on disk and processor, and
    leaves the page cache as it was. SIGTERM ends it, SIGHUP lets it read the rate in config.toml again.

    Exits 1 when something that was found is still there.

    \b
    Examples:
      rmqctl watch /data/rocketmq/store --state /var/lib/rmqctl/watch.json --metrics 127.0.0.1:9105
      rmqctl watch /var/lib/kafka/data --once --rate 20MiB/s -o jsonl
      rmqctl watch '/data/broker-*/store' --state watch.json --max-duration 30m --textfile /var/lib/node/rmqctl.prom
    """
    from rmqctl.files.pace import Pace, step_aside
    from rmqctl.watch import Memory, Settings, Watch

    members = _members(store, [file for file in (state, textfile) if file is not None])
    listener = _metrics(metrics, textfile)
    settings = Settings(
        subset=subset,
        every=every / 1000,
        cycles=1 if once else None,
        lasting=None if max_duration is None else max_duration / 1000,
        figures=None if no_figures else 60,
    )
    pace = Pace(rate)
    step_aside()
    watch = Watch(members, settings, Memory(state), pace, listener)
    with _reloading(pace):
        _run(watch, Output(output), f"metrics on port {listener.port}" if listener and listener.port else "")
    if watch.found:
        raise SystemExit(1)


def _members(store: StoreOptions, written: Sequence[Path]) -> list[Member]:
    """Return the stores that are watched; each has to be there now, and none holds a file that is written."""
    from rmqctl.files.new_files import refuse_inside
    from rmqctl.fleet import open_all
    from rmqctl.store import Store

    fleet: Fleet = open_all(
        store.paths,
        format=None if store.format == "auto" else store.format,
        commit_log=store.commit_log,
        broker_conf=store.broker_conf,
    )
    members = []
    for member, opened in fleet.stores:
        if isinstance(opened, Exception):
            raise opened
        if not isinstance(opened, Store):
            refuse("PATH", f"{member.path} is a result of verify, and no store.")
        if opened.selection:
            refuse("PATH", f"{member.path} is a part of the store {opened.root}; give its root.")
        roots = [root for root in opened.root.split(",") if Path(root).is_dir()]
        if not roots:
            refuse("PATH", f"{member.path} is not on this machine, which a broker's files have to be.")
        for file in written:
            refuse_inside(file, [*roots, *(store.commit_log or ())])
        members.append(member)
    return members


def _metrics(address: str, textfile: Path | None) -> Metrics | None:
    if not address and textfile is None:
        return None
    from rmqctl.watch.metrics import Metrics

    return Metrics(address, textfile)


@contextmanager
def _reloading(pace: Pace) -> Iterator[None]:
    """Let SIGHUP read the rate that is set for it again; one that stands on the line stays."""
    context = click.get_current_context()
    is_typed = context.get_parameter_source("rate") is click.core.ParameterSource.COMMANDLINE

    def read_again(_number: int, _frame: object) -> None:
        from commands import COMMANDS
        from commands._defaults import defaults_of

        try:
            found = defaults_of("watch", command, [], COMMANDS)
            if not is_typed:
                pace.rate = Rate().convert(found.get("rate", 50 << 20), None, None)
        except click.UsageError as error:
            complain(f"the settings stay as they are: {error.format_message()}")

    before = signal.signal(signal.SIGHUP, read_again)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _run(watch: Watch, out: Output, about: str) -> None:
    """Say what is new until the end, or until SIGTERM; what was found is kept."""
    from commands._signals import Terminated, settle

    try:
        if about:
            message(about)
        for events in watch.run():
            _say(out, events)
    except Terminated:
        settle()
        watch.memory.save()


def _say(out: Output, events: Sequence[Row]) -> None:
    if out.kind == "jsonl":
        out.show(events)
        return
    from commands._answer import write_notices
    from rmqctl.notices import finding_notices
    from rmqctl.text import instant

    found = [event for event in events if event["event"] == "found"]
    if found:
        out.text([f"{instant(found[0]['time'])} {found[0]['store']}"])
        write_notices(out, finding_notices(found, ""))
    out.text(f"{instant(event['time'])} {event['store']}: {text}" for event in events if (text := _sentence(event)))


def _sentence(event: Row) -> str:
    """Return an event as a line; "" for what is only for machines."""
    from rmqctl.text import number_of

    match event["event"]:
        case "gone":
            return f"{event['id']} is gone from {event['file']}"
        case "unreadable":
            return str(event["error"])
        case "readable":
            return "can be read again"
        case "cycle":
            counts = [number_of(count, word) for word, count in event["findings"].items() if count]
            what = f"{number_of(event['parts'], 'part')}, {event['bytes']:,} bytes read"
            return f"{what}: {', '.join(counts) or ('nothing wrong' if event['whole'] else 'no finding')}"
    return ""
