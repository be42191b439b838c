"""`rmqctl diff`: what two stores or logs do not have in common."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message
from commands._options import output_option
from commands._progress import progress
from commands._spark import spark_options, started, working
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.findings import Finding
    from rmqctl.pipeline.settings import Cluster
    from rmqctl.rocketmq.diff import Diff, DiffOptions, Side

_COLUMNS = ("severity", "id", "file", "offset", "size", "message")


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option(
    "--by",
    type=click.Choice(["physical", "queue"]),
    default="physical",
    show_default=True,
    help="Which messages belong together: those at the same physical offset (replicas), or those of the same topic, "
    "queue and queue offset (salvaged stores).",
)
@click.option("--no-queues", is_flag=True, help="Compare the logs only, not the consume queues.")
@click.option("--commitlog-a", metavar="DIR[,DIR...]", help="Directories of A's commit log outside A.")
@click.option("--commitlog-b", metavar="DIR[,DIR...]", help="Directories of B's commit log outside B.")
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Who reads the logs: this process, or Spark.",
)
@spark_options
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Show at most this many differences; all are counted.")
@output_option()
def command(
    a: str,
    b: str,
    by: str,
    no_queues: bool,
    commitlog_a: str | None,
    commitlog_b: str | None,
    engine: str,
    cluster: Cluster,
    limit: int | None,
    out: Output,
) -> None:
    """Compare two stores, two logs, or two log files: A and B.

    Records are compared byte by byte at the same physical offset; what has no equal there is looked for by
    topic, queue and queue offset. Then the queues, unit by unit, also RocksDB queues with files, as far as
    both logs hold their records. Logs may begin and end at different offsets. Exits 1 when A and B differ.

    \b
    Examples:
      rmqctl diff /data/master/store /data/slave/store
      rmqctl diff /data/store /backup/store -o json
      rmqctl diff /data/store /data/salvaged --by queue
      rmqctl diff s3://a/store s3://b/store --engine spark --master spark://host:7077
    """
    from rmqctl.rocketmq.diff import Diff, DiffOptions

    sides = _side(a, commitlog_a), _side(b, commitlog_b)
    options = DiffOptions(by == "physical", not no_queues)
    if engine == "spark":
        diff = _on_spark(cluster, sides, options, out, limit)
    else:
        with progress("diff", sum(f.size for f in sides[0].log.files)) as advance:
            diff = Diff(*sides, options, advance)
            _show(diff, out, limit)
    if diff.is_different:
        raise SystemExit(1)


def _on_spark(cluster: Cluster, sides: tuple[Side, Side], options: DiffOptions, out: Output, limit: int | None) -> Diff:
    from rmqctl.rocketmq.diff import Diff

    size = sum(f.size for side in sides for f in side.log.files)
    with started(cluster, size) as spark:
        from rmqctl.pipeline.diff import SparkSharing

        with working(spark, f"diff of {sides[0].log.name} and {sides[1].log.name}", size):
            diff = Diff(*sides, options, share=SparkSharing(spark))
            _show(diff, out, limit)
    return diff


def _side(path: str, commit_log: str | None) -> Side:
    from rmqctl.rocketmq.diff import Side
    from rmqctl.rocketmq.store.locate import open_path
    from rmqctl.store import LoneFile

    found = open_path(path, commit_log=tuple(part for part in (commit_log or "").split(",") if part))
    if isinstance(found, LoneFile):
        return Side.of_file(found.tree, found.name, path)
    if found.is_running:
        message(f"a broker holds the lock of {path}: what is read may be changing")
    return Side.of_store(found, path)


def _show(diff: Diff, out: Output, limit: int | None) -> None:
    rows = _rows(diff.findings(), limit)
    if out.kind == "json":
        findings = list(rows)
        out.document({"summary": diff.summary(), "findings": findings})
        return
    out.show(rows, columns=_COLUMNS)
    if out.kind == "jsonl":
        out.show([{"kind": "summary", **diff.summary()}])
    elif out.kind == "table":
        out.text(_sentences(diff.summary()))


def _rows(findings: Iterator[Finding], limit: int | None) -> Iterator[dict[str, Any]]:
    yield from (finding.row() for finding in islice(findings, limit))
    for _ in findings:  # counted, not shown
        pass


def _sentences(s: dict[str, Any]) -> Iterator[str]:
    records = s["records"]
    counts = {
        "equal": records["equal"],
        "changed": records["changed"],
        "moved": records["moved"],
        "with another body": records["other_body"],
        "with other properties": records["other_properties"],
        "only in A": records["only_a"]["messages"],
        "only in B": records["only_b"]["messages"],
    }
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "none"
    first = "" if s["first_divergence"] is None else f"; first difference at physical offset {s['first_divergence']}"
    yield f"messages: {told}{first}"
    if s["queues"] is not None:
        q = s["queues"]
        yield (
            f"queue units: {q['equal_units']:,} equal, {q['different_units']:,} different, "
            f"{q['units_only_a']:,} only in A, {q['units_only_b']:,} only in B"
        )
    for letter, side in (("A", s["a"]), ("B", s["b"])):
        if side["damaged_places"]:
            places = number_of(side["damaged_places"], "place")
            yield f"{letter}: {places} of the log without a record, not compared; type: rmqctl verify {side['path']}"
    equal = "equal as far as they can be read" if s["a"]["damaged_places"] else "equal"
    yield "A and B differ" if s["different"] else f"A and B are {equal}"
