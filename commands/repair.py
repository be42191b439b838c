"""`rmqctl repair`: a plan that mends what `verify` finds with the least loss, shown or carried out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message
from commands._apply import Manner, apply_options, carry_out, show_plan, staged, stop_if_pending
from commands._options import StoreOptions, output_option, processes_for, store_options
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.rocketmq.repair.plan import Repair, RepairOptions
    from rmqctl.rocketmq.store.files import RocketMQStore


@click.command("repair")
@store_options
@click.option("--only", multiple=True, metavar="ID", help="Only steps for this finding, such as 'log.*'; repeatable.")
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
@click.option("--processes", type=click.IntRange(min=1), help="Processes to share the log among; default: by its size.")
@apply_options
@output_option("hex")
def command(
    store: StoreOptions,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    replica: str | None,
    body_damage: str,
    neutralize: tuple[int, ...],
    processes: int | None,
    manner: Manner,
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
    from rmqctl.rocketmq.rebuild.rebuild import building
    from rmqctl.rocketmq.repair.mending import BodyDamage
    from rmqctl.rocketmq.repair.plan import RepairOptions, complaints, plan_repair
    from rmqctl.rocketmq.store.locate import open_root_at

    found = open_root_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    _check_state(found, manner)
    shared = processes or processes_for(sum(f.size for f in found.log_files))
    outside = tuple(map(str, manner.outside))
    options = RepairOptions(only, skip, _replica(replica, store), BodyDamage(body_damage), neutralize, shared, outside)
    _check_ids(options)
    with staged(found.root, manner) as directory:
        with building(found, directory):
            repair = plan_repair(found, options, directory)
        _say_assumptions(repair)
        _show(repair, out)
        _say_what_loses_less(repair, options)
        applied = None
        if repair.plan.steps:
            applied = carry_out(
                repair.plan, manner, verify=lambda: complaints(found, repair, shared), outside=found.logs_outside
            )
    if repair.after or repair.refusal or (repair.plan.steps and (applied is None or applied.complaints)):
        raise SystemExit(1)


def _check_state(found: RocketMQStore, manner: Manner) -> None:
    from rmqctl.errors import StoreInUse

    if found.is_running:
        if manner.is_real:
            raise StoreInUse(found.root)
        message("a broker holds the lock of this store: what is read may be changing")
    stop_if_pending(found.root)


def _replica(path: str | None, store: StoreOptions) -> RocketMQStore | None:
    from rmqctl.rocketmq.store.locate import open_store_at

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


def _say_assumptions(repair: Repair) -> None:
    from rmqctl.rocketmq.findings.log import LOG_MISSING

    for finding in repair.before:
        if finding.kind is LOG_MISSING:
            message(f"{finding.message}. {finding.kind.remedy}")
    if repair.geometry.source == "default" and repair.plan.steps:
        message("some file sizes are taken from the broker's defaults; give --broker-conf FILE if yours differ")


def _say_what_loses_less(repair: Repair, options: RepairOptions) -> None:
    """Name the options that may save what the plan gives up, before anything is written."""
    from rmqctl.rocketmq.repair.mending import BodyDamage

    given_up = sum(step.loses for step in repair.plan.steps)
    if not given_up:
        return
    ways = []
    if options.replica is None:
        ways.append("--from STORE takes them from a replica")
    if options.body_damage is BodyDamage.PLACEHOLDER and any("body" in step.id for step in repair.plan.steps):
        ways.append("--body-damage accept keeps damaged bodies as they are")
    if ways:
        message(f"{number_of(given_up, 'message')} would be given up: {'; '.join(ways)}")


def _show(repair: Repair, out: Output) -> None:
    from rmqctl.repair.rendering import step_row

    whole = replace(repair.plan, steps=(*repair.plan.steps, *repair.left))
    if out.kind == "json":
        steps, left = ([step_row(step) for step in some] for some in (repair.plan.steps, repair.left))
        out.document({"summary": _summary(repair), "steps": steps, "left": left})
        return
    if out.kind == "hex":
        out.text(line for step in whole.steps for line in (f"{step.id} {step.file}: {step.what}", f"  {step.why}"))
        out.text([""])
    if whole.steps:
        show_plan(whole, out)
    if out.kind == "jsonl":
        out.show([{"kind": "summary", **_summary(repair)}])
    elif out.kind in ("table", "hex"):
        out.text([_sentence(repair)])


def _summary(repair: Repair) -> dict[str, Any]:
    return {
        "steps": len(repair.plan.steps),
        "left": len(repair.left),
        "loses": sum(step.loses for step in repair.plan.steps),
        "before": len(repair.before),
        "after": len(repair.after),
        "remaining": [finding.row() for finding in repair.after],
        "refusal": repair.refusal,
    }


def _sentence(repair: Repair) -> str:
    s = _summary(repair)
    if not s["before"] and not s["steps"]:
        return "nothing is wrong"
    steps = f"{number_of(s['steps'], 'step')}"
    found = f"{s['before']:,} errors and warnings" if s["before"] != 1 else "one error or warning"
    loses = f"{s['loses']:,} messages are given up" if s["loses"] else "no message is given up"
    after = f"{s['after']:,} would be left" if s["after"] else "none would be left"
    refusal = f"; {repair.refusal}" if repair.refusal else ""
    return f"{steps} for {found}; {loses}; {after}{refusal}"
