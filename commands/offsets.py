"""`rmqctl offsets`: positions of consumer groups, shown, and changed by a plan that can be taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import click

from commands import Command
from commands._app import Output
from commands._apply import Manner, apply_options, propose
from commands._options import StoreOptions, group_option, output_option, store_options, topic_option
from commands._types import refuse
from rmqctl.positions import ACTIONS, Position, positions_in, positions_of

if TYPE_CHECKING:
    from rmqctl.store import Store

_OF_ACTION = {
    "to": ("--to", {"set"}),
    "to_group": ("--to-group", {"copy", "merge"}),
    "source": ("--from", {"copy", "merge"}),
    "keep": ("--keep", {"merge"}),
    "file": ("FILE", {"import"}),
}


@click.command("offsets", cls=Command, usual="group topic to to-group from apply output")
@store_options
@click.argument("action", type=click.Choice(ACTIONS), default="show")
@click.argument("file", type=click.File("rb"), required=False)
@group_option("Only these groups, by name or pattern; repeatable.")
@topic_option("Only these topics, by name or pattern; repeatable.")
@click.option("--queue", type=click.IntRange(min=0), help="Only this queue or partition.")
@click.option("--to", metavar="WHERE", help="set: an offset, +N, -N, a time, earliest or latest.")
@click.option("--to-group", metavar="GROUP", help="copy, merge: the group that gets the positions.")
@click.option(
    "--from", "source", metavar="STORE", help="copy, merge: the store whose positions are taken, of either family."
)
@click.option(
    "--keep", type=click.Choice(["lowest", "highest"]), help="merge: of several positions, this; default: lowest."
)
@click.option("--only-replica", is_flag=True, help="Kafka: no other replica of __consumer_offsets will come back.")
@apply_options
@output_option(tables=True)
def command(
    store: StoreOptions,
    action: str,
    file: BinaryIO | None,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    queue: int | None,
    to: str | None,
    to_group: str | None,
    source: str | None,
    keep: str | None,
    only_replica: bool,
    manner: Manner,
    out: Output,
) -> None:
    """Show how far consumer groups are, or set them elsewhere while no broker runs.

    show lists stored positions, export prints them as a JSON document. set gives groups another position, also in
    queues in which they have none; clamp brings those that lie outside of their queues to the nearer end; copy
    gives a group the positions of another, or of another store; merge takes the lowest of them, so that nothing is
    skipped; import reads what export printed (- for stdin). Between the families groups and topics are called as
    `convert` calls them.

    Every change says how many messages are read again or skipped; nothing is set to where no message is. --apply
    writes: consumerOffset.json with its .bak, RocksDB of either version, or a batch in the group's partition of
    __consumer_offsets; `rmqctl undo` takes it back. Consumers have to be stopped, or they store their own positions
    again. Exits 1 when nothing matches.

    \b
    Examples:
      rmqctl offsets /data/rocketmq/store --group orders
      rmqctl offsets /data/rocketmq/store set --group orders --topic pay --to 2026-11-20T08:00:00Z
      rmqctl offsets /data/rocketmq/store copy --group orders --to-group orders-new --apply
      rmqctl offsets /data/kafka export > positions.json
    """
    given = {"to": to, "to_group": to_group, "source": source, "keep": keep, "file": file}
    for name, (option, actions) in _OF_ACTION.items():
        if given[name] is not None and action not in actions:
            refuse(option, f"goes with {' and '.join(sorted(actions))}, not with {action}.")
    if manner.is_real and action in {"show", "export"}:
        refuse("--apply", f"changes positions, and {action} only looks.")
    if action == "import" and file is None:
        refuse("FILE", "is needed: what export printed, - for stdin.")
    if action == "export" and out.kind == "table":
        out = replace(out, kind="json")
    found = store.open_silently()
    propose(
        found.offsets(
            action,
            groups=group,
            topics=topic,
            queue=queue,
            to=to,
            to_group=to_group,
            source=_source(found, source, file),
            keep=keep or "lowest",
            only_replica=only_replica,
            intent=manner,
        ),
        manner,
        out,
    )


def _source(store: Store, source: str | None, file: BinaryIO | None) -> list[Position] | None:
    """Return the positions of another store or of a document, by the names of the family of the store."""
    from rmqctl.convert.mapping import positions_as

    if source is not None:
        other = StoreOptions(source).open_silently()
        with other.offsets() as answer:
            return positions_as(positions_in(answer), other.family, store.family)
    if file is None:
        return None
    try:
        family, positions = positions_of(file.read())
    except ValueError as error:
        refuse("FILE", f"{file.name} is not what export prints: {error}.")
    return positions_as(positions, family, store.family)
