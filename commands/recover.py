"""`rmqctl recover`: what a broker's start would do to a store, and doing it so that it can be taken back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from commands._answer import show
from commands._app import Output, message
from commands._apply import Manner, apply_options, carry_out, show_plan, stop_if_pending
from commands._options import (
    StoreOptions,
    as_release_option,
    most_processes,
    output_option,
    say_if_part,
    store_options,
)
from commands._types import refuse

if TYPE_CHECKING:
    from rmqctl.release import Release
    from rmqctl.rocketmq.recovery.outcome import Recovery
    from rmqctl.rocketmq.store.files import RocketMQStore


@click.command("recover")
@store_options
@as_release_option
@click.option("--compare", is_flag=True, help="Show side by side what each family of releases would do.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes to share the log among; default: by its size.")
@click.option("--list-lost", is_flag=True, help="Print the messages that would be lost, as `dump` does.")
@apply_options
@output_option("hex")
def command(
    store: StoreOptions,
    as_release: Release | None,
    compare: bool,
    processes: int | None,
    list_lost: bool,
    manner: Manner,
    out: Output,
) -> None:
    """Tell what a broker would do to this store when it starts: where it stops reading, what it deletes and loses.

    A broker's start-up stops at the first bad record it meets and throws away everything behind it. Here
    the same steps run on a view of the store, by the rules of the release asked for; nothing is written.
    --apply carries them out, so that a broker finds nothing left to do; files it would delete move to
    quarantine beside the journal, and `rmqctl undo JOURNAL` takes everything back. `rmqctl repair` loses
    less. Messages that stay in the log but get into no queue are told apart from those that are cut.

    Of a Kafka log directory it shows per partition the offsets afterwards, segments recovered, where the
    log is cut, files deleted, created and changed, and records lost.
    Exits 0 when the broker would start, lose nothing and dispatch everything, 1 otherwise.

    \b
    Examples:
      rmqctl recover /data/rocketmq/store
      rmqctl recover /data/rocketmq/store --compare
      rmqctl recover /data/rocketmq/store --as-release 4.9.8 --list-lost -o jsonl
      rmqctl recover /data/kafka-logs --as-release 3.9.2 -o json
    """
    from rmqctl.rocketmq.recovery import outcome
    from rmqctl.rocketmq.recovery.replay import recover
    from rmqctl.rocketmq.store.locate import open_root_at, open_store_at

    if manner.is_real and (compare or list_lost):
        refuse("--apply", "changes the store; --compare and --list-lost only look: give one of them.")
    if _is_kafka(store):
        _of_log_directory(store, as_release, compare, list_lost, manner, out)
        return
    opens = open_root_at if manner.is_real else open_store_at
    found = opens(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    say_if_part(found)
    _check_state(found, manner)
    if compare:
        raise SystemExit(_compare(found, out))
    builds = manner.is_real or out.kind == "hex"
    replay = recover(found, as_release, index=builds, processes=processes or most_processes())
    if list_lost:
        out.show(outcome.lost_rows(replay))
    elif manner.is_real or out.kind == "hex":
        raise SystemExit(_apply(found, replay, manner, out))
    else:
        _show(replay, out)
    raise SystemExit(0 if replay.is_harmless else 1)


def _is_kafka(store: StoreOptions) -> bool:
    """Whether a log directory of Kafka lies at the path."""
    from rmqctl.errors import NotAStore
    from rmqctl.store import LoneFile

    if store.format == "rocketmq" or store.commit_log:
        return False
    try:
        found = store.open_any()
    except NotAStore:
        return False  # said again, in the words of a RocketMQ store
    return not isinstance(found, LoneFile) and found.kind == "kafka-log-directory"


def _of_log_directory(
    store: StoreOptions, as_release: Release | None, compare: bool, list_lost: bool, manner: Manner, out: Output
) -> None:
    """Show what a start does to a log directory, or the plan and carry it out."""
    from rmqctl.errors import StoreInUse

    found = store.open()
    plans = manner.is_real or (out.kind == "hex" and not (compare or list_lost))
    if manner.is_real:
        stop_if_pending(found.root)
        if found.is_running:
            raise StoreInUse(found.root)
    answer = found.recover(as_release=as_release, plan=plans, list_lost=list_lost, compare=compare)
    if answer.plan is None:
        show(out, answer)
        return
    show_plan(answer.plan, out)
    applied = carry_out(answer.plan, manner, verify=answer.check, lock=answer.lock)
    raise SystemExit(1 if answer.is_no or (applied is not None and applied.complaints) else 0)


def _check_state(found: RocketMQStore, manner: Manner) -> None:
    from rmqctl.errors import StoreInUse
    from rmqctl.rocketmq.store.geometry import geometry_of

    if manner.is_real:
        stop_if_pending(found.root)
    if found.is_running and manner.is_real:
        raise StoreInUse(found.root)
    if geometry_of(found).source == "default":
        message("sizes that no file shows are the broker's defaults; give --broker-conf FILE if yours differ")
    if found.is_running:
        message("a broker holds the lock of this store: it has started already, and what is read may be changing")


def _compare(found: RocketMQStore, out: Output) -> int:
    from rmqctl.rocketmq.recovery import outcome
    from rmqctl.rocketmq.recovery.replay import recover
    from rmqctl.rocketmq.recovery.rules import FAMILIES

    replays = [recover(found, release) for release in FAMILIES]
    rows = [outcome.comparison(replay) for replay in replays]
    if out.kind == "table" and not any(row["undispatched"] for row in rows):
        rows = [{key: value for key, value in row.items() if key != "undispatched"} for row in rows]
    out.show(rows)
    return 0 if all(replay.is_harmless for replay in replays) else 1


def _apply(found: RocketMQStore, replay: Recovery, manner: Manner, out: Output) -> int:
    """Carry the recovery out; the exit status."""
    from rmqctl.errors import Refused
    from rmqctl.rocketmq.recovery.plan import recovery_plan

    if replay.missing is not None and manner.is_real and not manner.force:
        raise Refused(f"{replay.missing.message}; nothing was written; {replay.missing.kind.remedy}")
    plan = recovery_plan(found, replay, datetime.now().astimezone())
    show_plan(plan, out)
    applied = carry_out(plan, manner, verify=lambda: _complaints(found, replay), outside=found.logs_outside)
    return 1 if replay.lost or replay.missing or (applied is not None and applied.complaints) else 0


def _complaints(found: RocketMQStore, replay: Recovery) -> Sequence[str]:
    """What a second start would still change."""
    from rmqctl.rocketmq.recovery.replay import recover
    from rmqctl.rocketmq.store.locate import open_store_at

    again = open_store_at(found.root)
    again.settings = found.settings
    second = recover(again, replay.release)
    if second.error is not None:
        return [f"a {replay.release} broker still does not start: {second.error}"]
    left = len(second.deleted) + len(second.index_deleted) + len(second.cuts) + second.redispatched
    return [f"a {replay.release} broker would still find {left} things to do"] if left else []


def _show(replay: Recovery, out: Output) -> None:
    from rmqctl.rocketmq.recovery import outcome

    if out.kind != "table":
        out.document(outcome.document(replay))
        return
    out.text([*outcome.sentences(replay), ""])
    out.show(outcome.queue_rows(replay), title="Queues afterwards")
