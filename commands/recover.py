"""`rmqctl recover`: what a broker's start would do to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands._app import Output, message
from commands._options import StoreOptions, as_release_option, output_option, store_options

if TYPE_CHECKING:
    from rmqctl.release import Release
    from rmqctl.rocketmq.recovery.outcome import Recovery


@click.command("recover")
@store_options
@as_release_option
@click.option("--compare", is_flag=True, help="Show side by side what each family of releases would do.")
@click.option("--list-lost", is_flag=True, help="Print the messages that would be lost, as `dump` does.")
@output_option()
def command(store: StoreOptions, as_release: Release | None, compare: bool, list_lost: bool, out: Output) -> None:
    """Tell what a broker would do to this store when it starts: where it stops reading, what it deletes and loses.

    A broker's start-up stops at the first bad record it meets and throws away everything behind it. Here
    the same steps run on a view of the store, by the rules of the release asked for; nothing is written.
    Exits 0 when the broker would start and lose nothing, 1 otherwise.

    \b
    Examples:
      rmqctl recover /data/rocketmq/store
      rmqctl recover /data/rocketmq/store --compare
      rmqctl recover /data/rocketmq/store --as-release 4.9.8 --list-lost -o jsonl
    """
    from rmqctl.open import open_store_at
    from rmqctl.rocketmq.recovery import report
    from rmqctl.rocketmq.recovery.replay import recover
    from rmqctl.rocketmq.recovery.rules import FAMILIES

    found = open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    if found.is_running:
        message("a broker holds the lock of this store: it has started already, and what is read may be changing")
    if compare:
        replays = [recover(found, release) for release in FAMILIES]
        out.show([report.comparison(replay) for replay in replays])
        raise SystemExit(0 if all(replay.is_harmless for replay in replays) else 1)
    replay = recover(found, as_release)
    if list_lost:
        out.show(report.lost_rows(replay))
    else:
        _show(replay, out)
    raise SystemExit(0 if replay.is_harmless else 1)


def _show(replay: Recovery, out: Output) -> None:
    from rmqctl.rocketmq.recovery import report

    if out.kind != "table":
        out.document(report.document(replay))
        return
    out.text([*report.sentences(replay), ""])
    out.show(report.queue_rows(replay), title="Queues afterwards")
