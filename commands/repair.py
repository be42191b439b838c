"""`rmqctl repair`: a plan that mends what `verify` finds with the least loss, shown or carried out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message
from commands._apply import stop_if_pending
from commands._options import StoreOptions, output_option, store_options

if TYPE_CHECKING:
    from rmqctl.rocketmq.mend.plan import Repair, RepairOptions
    from rmqctl.rocketmq.store import RocketMQStore

_COLUMNS = ("id", "file", "what", "why", "loses")


@click.command("repair")
@store_options
@click.option("--apply", is_flag=True, help="Carry the plan out; without it nothing is written.")
@click.option("--only", multiple=True, metavar="ID", help="Only steps for this finding, such as log.*; repeatable.")
@click.option("--skip", multiple=True, metavar="ID", help="No steps for this finding; repeatable.")
@click.option("--from", "replica", metavar="STORE", help="A replica of this store to take destroyed bytes from.")
@click.option(
    "--body-damage",
    type=click.Choice(["placeholder", "accept"]),
    default="placeholder",
    show_default=True,
    help="A body that nothing heals: replaced, or kept as it is with a new CRC.",
)
@click.option(
    "--neutralize",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="OFFSET",
    help="Replace the message at this physical offset by a placeholder; repeatable.",
)
@click.option("--journal", metavar="DIR", help="Where to keep the journal of --apply; default: beside the store.")
@click.option("--force", is_flag=True, help="Go on though too little room seems to be free.")
@output_option("hex")
def command(
    store: StoreOptions,
    apply: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    replica: str | None,
    body_damage: str,
    neutralize: tuple[int, ...],
    journal: str | None,
    force: bool,
    out: Output,
) -> None:
    """Plan how to mend a store: heal, take from a replica, bridge with placeholders, cut only at the very end.

    Each step says what is done, what proves that it is right, and how many messages are given up. No
    sound record moves, no queue offset changes hands. --apply carries the plan out through a journal;
    `rmqctl undo JOURNAL` takes it back. Exits 0 when nothing is wrong or all of it was mended, else 1.

    \b
    Examples:
      rmqctl repair /data/rocketmq/store
      rmqctl repair /data/rocketmq/store -o hex
      rmqctl repair /data/rocketmq/store --from /backup/store --apply
    """
    from rmqctl.open import open_store_at
    from rmqctl.rocketmq.mend.mending import BodyDamage
    from rmqctl.rocketmq.mend.plan import RepairOptions, plan_repair

    found = open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    _check_state(found, apply=apply)
    options = RepairOptions(only, skip, _replica(replica, store), BodyDamage(body_damage), neutralize)
    _check_ids(options)
    with _stage(found, beside=apply) as directory:
        repair = plan_repair(found, options, directory)
        _say_assumptions(repair)
        _show(found, repair, out)
        if apply and repair.plan.steps:
            _apply(found, repair, journal, force=force)
    if repair.after or (repair.plan.steps and not apply):
        raise SystemExit(1)


def _check_state(found: RocketMQStore, *, apply: bool) -> None:
    from rmqctl.errors import StoreInUse

    stop_if_pending(found.root)
    if found.is_running:
        if apply:
            raise StoreInUse(found.root)
        message("a broker holds the lock of this store: what is read may be changing")


def _replica(path: str | None, store: StoreOptions) -> RocketMQStore | None:
    from rmqctl.open import open_store_at

    return open_store_at(path, broker_conf=store.broker_conf) if path else None


def _check_ids(options: RepairOptions) -> None:
    """Refuse ids that no finding has."""
    from fnmatch import fnmatchcase

    from commands._types import refuse
    from rmqctl.findings import all_kinds

    known = [kind.id for kind in all_kinds()]
    for name, patterns in (("--only", options.only), ("--skip", options.skip)):
        for pattern in patterns:
            if not any(fnmatchcase(kind, pattern) for kind in known):
                refuse(name, f"{pattern!r} is the id of no finding; `rmqctl formats findings` lists them.")


@contextmanager
def _stage(found: RocketMQStore, *, beside: bool) -> Iterator[Path]:
    """A directory to build files in, removed afterwards: beside a store that is to be changed."""
    parent = os.path.dirname(os.path.realpath(found.root))
    place = parent if beside and os.access(parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".rmqctl-repair-", dir=place) as directory:
        yield Path(directory)


def _say_assumptions(repair: Repair) -> None:
    if repair.geometry.source == "default" and repair.plan.steps:
        message("some file sizes are taken from the broker's defaults; give --broker-conf FILE if yours differ")


def _show(found: RocketMQStore, repair: Repair, out: Output) -> None:
    rows = list(_rows(repair))
    if out.kind == "json":
        out.document({"summary": _summary(repair), "steps": rows})
    elif out.kind == "hex":
        from commands._repair_hex import hex_lines

        out.text(hex_lines(found, repair))
    else:
        out.show(rows, columns=_COLUMNS, csv_columns=_COLUMNS)
    if out.kind == "jsonl":
        out.show([{"kind": "summary", **_summary(repair)}])
    elif out.kind in ("table", "hex"):
        out.text([_sentence(repair)])


def _rows(repair: Repair) -> Iterator[dict[str, Any]]:
    from rmqctl.repair.show import step_row

    yield from (step_row(step) for step in (*repair.plan.steps, *repair.left))


def _summary(repair: Repair) -> dict[str, Any]:
    return {
        "steps": len(repair.plan.steps),
        "left": len(repair.left),
        "loses": sum(step.loses for step in repair.plan.steps),
        "before": len(repair.before),
        "after": len(repair.after),
        "remaining": [finding.row() for finding in repair.after],
    }


def _sentence(repair: Repair) -> str:
    s = _summary(repair)
    if not s["before"] and not s["steps"]:
        return "nothing is wrong"
    after = f"{s['after']:,} would be left" if s["after"] else "none would be left"
    loses = f", {s['loses']:,} messages are given up" if s["loses"] else ", no message is given up"
    return f"{s['steps']:,} steps for {s['before']:,} errors and warnings{loses}; {after}"


def _apply(found: RocketMQStore, repair: Repair, journal: str | None, *, force: bool) -> None:
    from rmqctl.repair.run import apply
    from rmqctl.rocketmq.mend.plan import complaints

    done = apply(
        repair.plan,
        journal_dir=Path(journal) if journal else None,
        force=force,
        verify=lambda: complaints(found, repair),
    )
    if done.journal is None:
        message("nothing had to be changed")
        return
    for complaint in done.complaints:
        message(complaint)
    message(f"{len(done.files):,} files changed; to take it back: {done.undo_command}")
