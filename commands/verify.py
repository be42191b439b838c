"""`rmqctl verify`: every check, findings as they come, one summary."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from commands import Command
from commands._answer import finish, show, showing, write
from commands._app import Output
from commands._options import StoreOptions, as_release_option, output_option, store_options_with_paths
from commands._spark import engine_choice, is_spark, spark_options, spread, started, working

if TYPE_CHECKING:
    from rmqctl.pipeline import Cluster
    from rmqctl.release import Release


@click.command("verify", cls=Command, usual="broker-conf level no-notes as-release all output")
@store_options_with_paths
@click.option(
    "--level",
    type=click.Choice(["quick", "structure", "full"]),
    default="full",
    show_default=True,
    help="quick: names, lengths, headers, configuration; structure: every record but no body; full: everything.",
)
@click.option("--no-cross", is_flag=True, help="Do not compare queues and index with the log.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes to share the log among; default: by its size.")
@engine_choice("Who reads the log: processes here, or Spark; of several stores it also opens and judges them.")
@spark_options
@as_release_option
@click.option("--no-notes", is_flag=True, help="Leave out notes: what is normal but worth knowing.")
@output_option(folds="each of what is alike, not the first places and a count")
def command(
    store: StoreOptions,
    level: str,
    no_cross: bool,
    processes: int | None,
    engine: str,
    cluster: Cluster,
    as_release: Release | None,
    no_notes: bool,
    out: Output,
) -> None:
    """Check a store: each file alone, every record of the log, then queues, index and configuration against it.

    Nothing is written. Findings are errors (data lost or wrong), warnings (a broker copes, but
    something is off) and notes (normal but worth knowing). Beside that the start of a broker is replayed on what was
    read, as by `recover`: what it would cut, hide or refuse is said, too. Exits 1 when there is an error or a
    warning, or a start would do harm. What an id means: `rmqctl explain ID`.

    Several PATHs, a pattern in quotes or @inventory.toml: what is wrong in each store, then a row a store; one
    that cannot be read is a row, too. Directories of one Kafka broker are one store. @results/*.json are documents that
    `verify -o json` made on other hosts. On Spark all of them are one job, whose tasks are stretches of their logs.

    \b
    Examples:
      rmqctl verify /data/rocketmq/store
      rmqctl verify /data/rocketmq/store --level structure -o jsonl
      rmqctl verify '/backup/2026-11-*/broker-*'
      rmqctl verify @fleet.toml --master spark://host:7077
    """
    from rmqctl.questions import Verify
    from rmqctl.store import Store

    question = Verify(level, not no_cross, processes, as_release, not no_notes)
    if not is_spark(engine):
        show(out, store.open_each().ask(question))
        return
    if store.is_several and spread(cluster, store, question, out):
        return
    found = store.open_each()
    assert isinstance(found, Store)
    with started(cluster, found.size) as spark:
        from rmqctl.pipeline.jobs import sharing

        with working(spark, f"verify of {found.root}", found.size):
            answer = found.ask(replace(question, share=sharing(spark)))
            with showing(answer):
                write(out, answer)
    finish(answer)
