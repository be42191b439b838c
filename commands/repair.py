"""`rmqctl repair`: a plan that mends what `verify` finds with the least loss, shown or carried out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from commands import Command
from commands._app import Output
from commands._apply import Manner, apply_options, propose
from commands._complete import files, findings
from commands._options import StoreOptions, output_option, store_options
from commands._types import refuse_id

if TYPE_CHECKING:
    from rmqctl.answer import Proposal
    from rmqctl.repair.edits import StepName


@click.command("repair", cls=Command, usual="only skip from interactive body-damage apply verbose all output")
@store_options
@click.option(
    "--only",
    multiple=True,
    metavar="ID",
    shell_complete=findings,
    help="Only steps for this finding, such as 'log.*'; repeatable.",
)
@click.option(
    "--skip", multiple=True, metavar="ID", shell_complete=findings, help="No steps for this finding; repeatable."
)
@click.option(
    "--from",
    "replicas",
    multiple=True,
    metavar="STORE",
    shell_complete=files,
    help="A replica of this store to take destroyed bytes from; Kafka: repeatable.",
)
@click.option(
    "--body-damage",
    type=click.Choice(["placeholder", "accept"]),
    default="placeholder",
    show_default=True,
    help="RocketMQ: a body that nothing heals: replaced, or kept as it is with a new CRC.",
)
@click.option(
    "--neutralize",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="OFFSET",
    help="RocketMQ: replace the message at this physical offset by a placeholder; repeatable.",
)
@click.option(
    "--abort-transaction",
    multiple=True,
    metavar="PARTITION:PRODUCER",
    help="Kafka: end this open transaction by an ABORT marker, such as orders-0:4000; repeatable.",
)
@click.option("--processes", type=click.IntRange(min=1), help="Processes to share the log among; default: by its size.")
@click.option(
    "-i",
    "--interactive",
    is_flag=True,
    help="Ask about each step, with its bytes before and after; writes only with --apply.",
)
@apply_options
@output_option("hex", folds="each of what is alike, not the first places and a count")
def command(
    store: StoreOptions,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    replicas: tuple[str, ...],
    body_damage: str,
    neutralize: tuple[int, ...],
    abort_transaction: tuple[str, ...],
    processes: int | None,
    interactive: bool,
    manner: Manner,
    out: Output,
) -> None:
    """Plan how to mend a store: heal, take from a replica, bridge with placeholders, cut only at the very end.

    In a Kafka log directory a bridge is an empty batch of the same offsets and, where it can be, the same
    bytes; partitions that the cluster does not know are set aside.

    Each step says what is done, what proves that it is right, and how many messages are given up. No
    sound record moves, no queue offset changes hands. --apply carries the plan out through a journal;
    `rmqctl undo JOURNAL` takes it back. Exits 0 when nothing is wrong or all of it was mended, else 1.

    \b
    Examples:
      rmqctl repair /data/rocketmq/store
      rmqctl repair /data/rocketmq/store -o hex
      rmqctl repair /data/rocketmq/store --from /backup/store --apply
      rmqctl repair /data/kafka --from /mnt/broker2/kafka --from /mnt/broker3/kafka
    """
    _check_ids(only, skip)

    def planned(
        without: Collection[StepName] = (), accept: Collection[StepName] = (), further: Sequence[str] = ()
    ) -> Proposal:
        others = [*replicas, *further]
        return store.open_silently().repair(
            only=only,
            skip=skip,
            replicas=[StoreOptions(path, broker_conf=store.broker_conf).open_silently() for path in others],
            body_damage=body_damage,
            neutralize=neutralize,
            processes=processes,
            abort_transaction=abort_transaction,
            intent=manner,
            without=without,
            accept=accept,
        )

    if not interactive:
        propose(planned(), manner, out)
        return
    from commands._interactive import check_terminal, propose_step_by_step

    check_terminal(out)
    propose_step_by_step(lambda chosen: planned(chosen.without, chosen.accept, chosen.replicas), manner, out)


def _check_ids(only: tuple[str, ...], skip: tuple[str, ...]) -> None:
    """Refuse ids that no finding has."""
    from difflib import get_close_matches
    from fnmatch import fnmatchcase

    from rmqctl.findings import all_kinds

    known = [kind.id for kind in all_kinds()]
    for name, patterns in (("--only", only), ("--skip", skip)):
        for pattern in patterns:
            if not any(fnmatchcase(kind, pattern) for kind in known):
                refuse_id(name, pattern, get_close_matches(pattern, known, n=3))
