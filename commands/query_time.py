"""`rmqctl query-time`: the queue offset that belongs to a time, and the message there."""

from __future__ import annotations

from collections.abc import Iterator

import click

from commands._app import Output, Row, message
from commands._options import StoreOptions, as_release_option, output_option, store_options
from commands._queue_query import queues_meant, started_store
from commands._types import Instant, Queue, QueueName, SpanArguments
from rmqctl.release import Release

_COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "previous_store_timestamp",
    "store_timestamp",
    "next_store_timestamp",
)


@click.command("query-time", cls=SpanArguments)
@store_options
@click.argument("queue", type=QueueName())
@click.argument("time", type=Instant())
@click.option(
    "--boundary",
    type=click.Choice(["lower", "upper"]),
    default="lower",
    show_default=True,
    help="The first message of the time or later, or the last one of the time or earlier.",
)
@click.option("--explain", is_flag=True, help="Every step, and one sentence why the answer is what it is.")
@click.option("--body", is_flag=True, help="Add the body, decompressed.")
@as_release_option
@output_option()
def command(
    store: StoreOptions,
    queue: Queue,
    time: int,
    boundary: str,
    explain: bool,
    body: bool,
    as_release: Release | None,
    out: Output,
) -> None:
    """Find the queue offset that a broker answers for a time, and show the message there.

    QUEUE is TOPIC/ID, or TOPIC for all its queues. Brokers up to 5.1.0 choose the queue file by its
    modification time, and answer with the message nearest to the time; later ones go by the times of
    the messages, and --boundary counts. Exits 1 when no queue holds a message.

    \b
    Examples:
      rmqctl query-time /data/rocketmq/store TopicTest 2026-11-20T08:00:00Z
      rmqctl query-time /data/rocketmq/store TopicTest/0 -15m --boundary upper --explain
    """
    from rmqctl.rocketmq.query.neighbours import TimeQuestion, time_rows
    from rmqctl.rocketmq.query.time import BOUNDARIES_SINCE, Boundary
    from rmqctl.rocketmq.rows.show import Show

    with started_store(store, as_release) as started:
        if boundary == "upper" and started.release < BOUNDARIES_SINCE:
            message(f"a broker of {started.release} knows no boundary: the message nearest to the time is the answer")
        ids = queues_meant(started, queue, out, explain=explain)
        question = TimeQuestion(time, Boundary(boundary), explain, Show(body, release=as_release))
        rows = _Rows(time_rows(started, queue.topic, ids, question))
        if out.kind == "table":
            _write_tables(rows, out)
        else:
            out.show(rows)
    if not rows.messages:
        raise SystemExit(1)


class _Rows:
    """The rows, counted as they go by.

    Attributes:
        messages: messages of the queues, whether or not one is the answer.
    """

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self.messages = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            if row["kind"] == "time_answer":
                self.messages += max(row["max_offset"] - row["min_offset"], 0)
            yield row


def _write_tables(rows: _Rows, out: Output) -> None:
    """One line a queue; the steps of a queue behind all."""
    from commands._answer import write_steps

    answers: list[Row] = []
    steps: list[tuple[str, list[Row]]] = []
    for row in rows:
        if row["kind"] == "time_answer":
            answers.append(row)
            steps.append((f"{row['topic']}/{row['queue_id']}", []))
        elif row["kind"] == "message":
            answers[-1] = {**answers[-1], **_body(row)}
        else:
            steps[-1][1].append(row)
    out.show(answers, columns=[*_COLUMNS, *(["body"] if any("body" in a for a in answers) else [])])
    for name, found in steps:
        write_steps(out, found, title=name if len(steps) > 1 else "")


def _body(row: Row) -> dict[str, object]:
    return {"body": row["body"]} if "body" in row else {}
