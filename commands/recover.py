"""`rmqctl recover`: what a broker's start would do to a store, and doing it so that it can be taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._apply import Manner, apply_options, propose
from commands._options import StoreOptions, as_release_option, output_option, store_options_with_paths
from commands._spark import engine_choice, is_spark, spark_options, spread
from commands._types import refuse

if TYPE_CHECKING:
    from rmqctl.pipeline import Cluster
    from rmqctl.release import Release


@click.command("recover", cls=Command, usual="broker-conf as-release compare list-lost apply all output")
@store_options_with_paths
@as_release_option
@click.option("--compare", is_flag=True, help="Show side by side what each family of releases would do.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes to share the log among; default: by its size.")
@click.option("--list-lost", is_flag=True, help="Print the messages that would be lost, as `dump` does.")
@click.option("--leader", metavar="DIR", help="Kafka: also what this broker would lose as a follower of that one.")
@engine_choice("Who looks at several stores: this process, or Spark, each store a task.")
@spark_options
@apply_options
@output_option("hex", folds="also what does not change, and each of what is alike")
def command(
    store: StoreOptions,
    as_release: Release | None,
    compare: bool,
    processes: int | None,
    list_lost: bool,
    leader: str | None,
    engine: str,
    cluster: Cluster,
    manner: Manner,
    out: Output,
) -> None:
    """Say what a broker would do to this store when it starts: where it stops reading, what it deletes and loses.

    A broker's start-up stops at the first bad record it meets and throws away everything after it. Here
    the same steps run on a view of the store, by the rules of the release asked for; nothing is written.
    --apply carries them out, so that a broker finds nothing left to do; files it would delete move to
    quarantine beside the journal, and `rmqctl undo JOURNAL` takes everything back. `rmqctl repair` loses
    less. Messages that stay in the log but get into no queue are listed apart from those that are cut.

    Of a Kafka log directory it shows per partition the offsets afterwards, segments recovered, where the
    log is cut, files deleted, created and changed, and records lost; with --leader also where a follower cuts its
    log by the leader's chain of epochs (KIP-101, KIP-279), and what of that the leader has not.
    Exits 0 when the broker would start, lose nothing and dispatch everything, 1 otherwise.

    Several PATHs, a pattern in quotes or @inventory.toml: what changes in each store, then a row a store. On Spark
    each store is a task of one job.

    \b
    Examples:
      rmqctl recover /data/rocketmq/store
      rmqctl recover /data/rocketmq/store --compare
      rmqctl recover /data/rocketmq/store --as-release 4.9.8 --list-lost -o jsonl
      rmqctl recover /data/kafka-logs --as-release 3.9.2 -o json
      rmqctl recover @fleet.toml
      rmqctl recover /mnt/broker1/kafka-logs --leader /mnt/broker2/kafka-logs
    """
    if manner.is_real and (compare or list_lost):
        refuse("--apply", "changes the store; --compare and --list-lost only look: give one of them.")
    from rmqctl.questions import Recover
    from rmqctl.store import Store

    is_plain = not (manner.is_real or compare or list_lost or leader is not None or out.kind == "hex")
    question = Recover(as_release, processes=processes)
    if is_spark(engine) and not (store.is_several and is_plain and spread(cluster, store, question, out)):
        refuse("--engine", "spark looks at several stores, a line each; leave it out for one.")
    elif is_spark(engine):
        return
    found = store.open_each(silently=manner.is_real)
    if not isinstance(found, Store):
        if not is_plain:
            refuse("PATH", "may be several only where one line a store is wanted; give one PATH.")
        show(out, found.ask(question))
        return
    plan = manner.is_real or (out.kind == "hex" and not (compare or list_lost))
    propose(
        found.recover(
            as_release=as_release,
            plan=plan,
            list_lost=list_lost,
            compare=compare,
            processes=processes,
            leader=None if leader is None else StoreOptions(leader).open_silently(),
            intent=manner,
        ),
        manner,
        out,
    )
