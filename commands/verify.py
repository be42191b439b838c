"""`rmqctl verify`: every check, findings as they come, one summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message, progress
from commands._apply import say_if_pending
from commands._options import StoreOptions, as_release_option, output_option, processes_for, store_options
from commands._spark import spark_options, started, working
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.pipeline.settings import Cluster
    from rmqctl.release import Release
    from rmqctl.rocketmq.store import RocketMQStore
    from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

_COLUMNS = ("severity", "id", "file", "offset", "size", "message")


@click.command("verify")
@store_options
@click.option(
    "--level",
    type=click.Choice(["quick", "structure", "full"]),
    default="full",
    show_default=True,
    help="quick: names, lengths, headers, configuration; structure: every record but no body; full: everything.",
)
@click.option("--no-cross", is_flag=True, help="Do not compare queues and index with the log.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes to share the log among; default: by its size.")
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Who reads the log: processes here, or Spark.",
)
@spark_options
@as_release_option
@click.option("--no-notes", is_flag=True, help="Leave out notes: what is normal but worth knowing.")
@output_option()
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
    something is off) and notes (normal but worth knowing). Exits 1 when there is an error or a
    warning. What each id means: `rmqctl formats findings`.

    \b
    Examples:
      rmqctl verify /data/rocketmq/store
      rmqctl verify /data/rocketmq/store --level structure -o jsonl
    """
    from rmqctl.errors import MissingExtra
    from rmqctl.open import open_store_at
    from rmqctl.rocketmq.verify.driver import Level, Verification, VerifyOptions

    found = open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    say_if_pending(found.root)
    if found.is_running:
        message("a broker holds the lock of this store: what is read may be changing")
    size = sum(f.size for f in found.log_files)
    options = VerifyOptions(Level(level), not no_cross, processes or processes_for(size), as_release)
    if engine == "spark":
        verification = _on_spark(cluster, found, options, out, no_notes)
    else:
        with progress("verify", size) as advance:
            verification = Verification(found, options, advance)
            _show(verification, out, no_notes)
    if verification.skips_queues:
        raise MissingExtra("comparing RocksDB queues with the log", "rocksdb")
    if verification.counts["error"] or verification.counts["warning"]:
        raise SystemExit(1)


def _on_spark(
    cluster: Cluster, store: RocketMQStore, options: VerifyOptions, out: Output, no_notes: bool
) -> Verification:
    size = sum(f.size for f in store.log_files)
    with started(cluster, size) as spark:
        from rmqctl.pipeline.verify import verification

        with working(spark, f"verify of {store.root}", size):
            checked = verification(spark, store, options)
            _show(checked, out, no_notes)
    return checked


def _rows(verification: Verification, no_notes: bool) -> Iterator[dict[str, Any] | None]:
    for finding in verification.findings():
        if not (no_notes and finding.level == "note"):
            yield finding.row()


def _show(verification: Verification, out: Output, no_notes: bool) -> None:
    if out.kind == "json":
        findings = list(_rows(verification, no_notes))
        out.document({"summary": verification.summary(), "findings": findings})
        return
    out.show(_rows(verification, no_notes), columns=_COLUMNS)
    if out.kind == "jsonl":
        out.show([{"kind": "summary", **verification.summary()}])
    elif out.kind == "table":
        out.text([_sentence(verification)])


def _sentence(verification: Verification) -> str:
    s = verification.summary()
    counts = ", ".join(number_of(n, word) for word, n in s["findings"].items() if n) or "nothing wrong"
    what = f"{number_of(s['files'], 'file')}, {number_of(s['messages'], 'message')}, {s['bytes']:,} bytes of log"
    return f"{what}, level {s['level']}: {counts} ({s['seconds']:.1f} s)"
