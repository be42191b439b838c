"""`rmqctl dump`: any file or a whole log, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import click

from commands import Command, _sink
from commands._answer import finish, say, showing, write
from commands._app import Output, message
from commands._kafka_dump_log import kafka_dump_log_options
from commands._options import (
    StoreOptions,
    as_release,
    filter_options,
    max_body_option,
    output_option,
    store_options_with_paths,
)
from commands._rows import Row
from commands._signals import Terminated
from commands._types import Size, Sizes, refuse
from rmqctl.answer import Answer, Section
from rmqctl.filters import Filters, Rendering
from rmqctl.findings import Severity
from rmqctl.release import Release


@click.command(
    "dump", cls=Command, usual="topic queue key after before limit damaged body format-string follow bytes output"
)
@store_options_with_paths
@filter_options
@click.option("--records", is_flag=True, help="Kafka: each batch is followed by its records.")
@click.option("--read-committed", is_flag=True, help="Kafka: leave out what consumers of committed records do not get.")
@click.option("--body", is_flag=True, help="Add the body, decompressed: text, or base64 where it is not UTF-8.")
@max_body_option
@click.option("--raw-body", is_flag=True, help="Add the body as stored.")
@click.option("--body-limit", type=Size(), help="Show at most so many bytes of a body.")
@click.option("--redact", is_flag=True, help="Bodies, keys and property values become sha256: and 12 hex digits.")
@click.option("--format-string", metavar="FORMAT", help="Print messages in a form of your own, such as '%t %o %k'.")
@click.option("--follow", is_flag=True, help="Go on with new records as a broker appends them; Ctrl-C ends it.")
@click.option(
    "--pending",
    type=click.Choice(["timer", "transaction", "pop", "delay"]),
    help="RocketMQ: what the broker still has to deliver, from files or RocksDB.",
)
@click.option(
    "--processes", type=click.IntRange(min=1), help="Kafka: processes that share large logs; default: by size."
)
@as_release("Read properties as a broker of this release does, such as 4.9.0; default: as since 4.9.1.")
@click.option(
    "--bytes", "within", type=Sizes(), metavar="FROM-TO", help="-o hex: only what has one of these bytes of the file."
)
@kafka_dump_log_options
@output_option("text", "hex", "kafka-dump-log", columns=True)
def command(
    store: StoreOptions,
    filters: Filters,
    records: bool,
    read_committed: bool,
    body: bool,
    max_body: int,
    raw_body: bool,
    body_limit: int | None,
    redact: bool,
    format_string: str | None,
    follow: bool,
    pending: str | None,
    processes: int | None,
    as_release: Release | None,
    within: tuple[int, int] | None,
    official: dict[str, Any],
    out: Output,
) -> None:
    """Show what is in a commit log, or in any other file of a store: records, units, entries, damage.

    PATH is a store (its commit log is shown, in log order), a directory inside one, or one file, also one
    that lies in no store; several files, or a pattern in quotes, are shown one after the other. Damage is shown in
    its place, and the dump goes on after it. `-o hex` names every byte. Exits 1 when damage was shown or nothing
    matched the filters.

    \b
    FORMAT takes %t topic, %p queue id, %o queue offset, %O physical offset, %k keys,
    %T store time (ms), %s body, %S body size, %h properties, %i message id, %%, and
    \\n \\t \\r \\0 \\\\ \\xHH. Of Kafka's records: %t topic, %p partition, %o offset, %k key,
    %K key size, %T timestamp, %s value, %S value size, %h headers; sizes of null are -1.

    \b
    Examples:
      rmqctl dump /data/rocketmq/store --topic TopicTest --after -15m
      rmqctl dump /data/rocketmq/store -o jsonl --body | jq .body
      rmqctl dump /data/rocketmq/store/index
      rmqctl dump 'store/consumequeue/Orders*/0' -o csv
      rmqctl dump store --key order1 -o hex
      rmqctl dump store/commitlog/00000000000000393216 -o hex --bytes 8756-8839
      rmqctl dump store --pending timer
      rmqctl dump store --follow --format-string '%t/%p %o %k %s\\n'
      rmqctl dump kafka-logs/orders-0 --read-committed --format-string '%o %k %s\\n'
    """
    _check(out, format_string, follow=follow, redact=redact)
    _check_pending(out, pending, follow=follow)
    if within is not None and (out.kind != "hex" or not filters.is_empty):
        refuse("--bytes", "goes with -o hex and no filter.")
    limited = body_limit is not None and not raw_body
    shown = body or limited or format_string is not None
    rendering = Rendering(shown, raw_body, body_limit, redact, records, max_body)
    first, *others = [one.open_any() for one in store.each()]
    if others and (follow or pending or within or out.kind == "kafka-dump-log" or official):
        refuse("PATH", "names several files; --follow, --pending, --bytes and kafka-dump-log take one.")
    if out.kind == "hex":
        from commands._hex import write_hex

        pieces = [found.hex(filters, within=within) for found in (first, *others)]
        for stretches in pieces:
            write_hex(stretches)
            say(stretches)
        pieces[-1].is_no = any(stretches.is_no for stretches in pieces)
        finish(pieces[-1])
        return
    if out.kind == "kafka-dump-log" or official:
        _write_official(out, first.dump(filters, rendering, as_release=as_release, official=official))
        return
    answers = [
        found.dump(
            filters,
            rendering,
            as_release=as_release,
            follow=follow,
            pending=pending,
            read_committed=read_committed,
            processes=processes,
        )
        for found in (first, *others)
    ]
    answer = _together(answers, filters, with_records=records) if others else answers[0]
    form = _formatter(answer, format_string)
    try:
        with showing(answer):
            _write(out, answer, form)
    except KeyboardInterrupt as end:
        if follow and not isinstance(end, Terminated):  # how one stops following
            return
        raise
    finish(answer)


def _together(answers: Sequence[Answer], filters: Filters, *, with_records: bool) -> Answer:
    """Return the dumps of several files as one, file after file.

    Args:
        filters: their limit is that of all rows; damage counts only where nothing else is wanted.
        with_records: records count, and not the batches that they lie in.
    """
    whole = Answer(formatter=answers[0].formatter, work="dump", total=sum(answer.total or 0 for answer in answers))
    if all(answer.header == answers[0].header for answer in answers):
        whole.header = answers[0].header
    first = next(iter(answers[0].sections())) if answers[0].sections is not None else Section()
    free = {*(() if filters.damaged else ("finding",)), *(("batch",) if with_records else ())}

    def rows() -> Iterator[Row | None]:
        left, shown = filters.limit, False
        for answer in answers:
            answer.on_advance = whole.advance
            shows = False
            for row in answer.rows:
                if row is not None:
                    counts = row["kind"] not in free
                    if left == 0 and (counts or row["kind"] != "finding"):
                        break
                    left = None if left is None else left - counts
                    shown = shows = True
                    is_damage = row["kind"] == "finding" and row["severity"] != Severity.NOTE
                    whole.is_no = whole.is_no or is_damage
                yield row
            if shows:
                whole.remarks += answer.remarks
            if left == 0:
                return
        if not shown and any(answer.is_no for answer in answers):
            whole.remarks += answers[0].remarks
            whole.is_no = True

    whole.rows = rows()
    whole.sections = lambda: [replace(first, rows=whole.rows)]
    return whole


def _check(out: Output, format_string: str | None, *, follow: bool, redact: bool) -> None:
    """Refuse options that contradict each other."""
    if out.chooses and (format_string is not None or out.kind in {"text", "hex", "kafka-dump-log"}):
        form = "--format-string" if format_string is not None else f"-o {out.kind}"
        refuse("--columns" if out.columns else "--sort", f"chooses among columns, and {form} has none.")
    if format_string is not None and out.kind != "table":
        refuse("--format-string", f"prints in a form of its own and does not go with -o {out.kind}.")
    if follow and out.kind in {"json", "hex"}:
        refuse("--follow", f"never ends, so -o {out.kind} cannot be completed; use -o jsonl.")
    if redact and out.kind == "hex":
        refuse("--redact", "cannot hide anything in -o hex, which shows every byte.")


def _check_pending(out: Output, pending: str | None, *, follow: bool) -> None:
    if pending is not None and (follow or out.kind in {"hex", "kafka-dump-log"}):
        refuse("--pending", "shows rows of its own and does not go with --follow or -o hex.")


def _write(out: Output, answer: Answer, form: Callable[[Row], bytes] | None) -> None:
    if form is not None:
        with _sink.batch() as add:
            for row in answer.rows:
                add(None if row is None else _formatted(row, form))
    elif out.kind == "text":
        from commands._text import text_lines

        out.text(text_lines(answer.rows, local_time=out.local_time))
    else:
        write(out, answer)


def _write_official(out: Output, answer: Answer) -> None:
    """Print what the official tool prints; what it says on stderr at its end is said as it says it."""
    for section in answer.sections() if answer.sections else ():
        out.text(section.lines)
    for line in answer.remarks:
        click.echo(line, err=True)
    answer.remarks.clear()
    finish(answer)


def _formatter(answer: Answer, format_string: str | None) -> Callable[[Row], bytes] | None:
    if format_string is None:
        return None
    if answer.formatter is None:
        refuse("--format-string", "prints messages, and there are none in what PATH names.")
    try:
        return answer.formatter(format_string)
    except ValueError as error:
        refuse("--format-string", f"{error}.")


def _formatted(row: Row, form: Callable[[Row], bytes]) -> bytes:
    """Return a message in the user's form; damage goes to stderr, other rows are left out."""
    if row["kind"] == "finding":
        message(f"{row['severity']} {row['id']} at {row['file']}:{row['offset']}: {row['message']}")
    is_shown = row["kind"] == "message" or (row["kind"] == "record" and row["control_type"] is None)
    return form(row) if is_shown else b""
