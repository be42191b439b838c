"""`rmqctl diff`: what two stores or logs do not have in common."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message, progress
from commands._options import output_option

if TYPE_CHECKING:
    from rmqctl.findings import Finding
    from rmqctl.rocketmq.diff import Diff, Side

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
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Show at most this many differences; all are counted.")
@output_option()
def command(
    a: str,
    b: str,
    by: str,
    no_queues: bool,
    commitlog_a: str | None,
    commitlog_b: str | None,
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
    """
    from rmqctl.rocketmq.diff import Diff, DiffOptions

    sides = _side(a, commitlog_a), _side(b, commitlog_b)
    with progress("diff", sum(f.size for f in sides[0].log.files)) as advance:
        diff = Diff(*sides, DiffOptions(by == "physical", not no_queues), advance)
        _show(diff, out, limit)
    if diff.is_different:
        raise SystemExit(1)


def _side(path: str, commit_log: str | None) -> Side:
    from rmqctl.open import LoneFile, open_path
    from rmqctl.rocketmq.diff import Side

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
    yield "A and B differ" if s["different"] else "A and B are equal"
