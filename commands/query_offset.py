"""`rmqctl query-offset`: messages of a queue from an offset on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import click

from commands._app import Output, Row
from commands._options import (
    FilterOptions,
    StoreOptions,
    as_release_option,
    filter_options_but,
    output_option,
    store_options,
)
from commands._queue_query import queues_meant, started_store
from commands._types import Queue, QueueName
from rmqctl.release import Release

if TYPE_CHECKING:
    from rmqctl.rocketmq.query.records import Record


@click.command("query-offset", context_settings={"ignore_unknown_options": True})
@store_options
@click.argument("queue", type=QueueName(needs_queue=True))
@click.argument("offset", type=int)
@click.option("--explain", is_flag=True, help="Every step, and one sentence why a message is not there.")
@click.option("--body", is_flag=True, help="Add the body, decompressed.")
@filter_options_but("topic", "queue", "damaged", "from_offset", "to_offset")
@as_release_option
@output_option()
def command(
    store: StoreOptions,
    queue: Queue,
    offset: int,
    explain: bool,
    body: bool,
    filters: FilterOptions,
    as_release: Release | None,
    out: Output,
) -> None:
    """Show messages of a queue from OFFSET on: one, or -n many, across the files of the queue.

    With --as-release the answer is what one getMessage call of such a broker returns: 32 messages or
    -n, limits of the broker, end of the queue file. The status is the broker's word for it.
    --tag drops what the broker drops by the hash of the tag, then what a consumer drops by its text.
    Exits 1 when there is no message.

    \b
    Examples:
      rmqctl query-offset /data/rocketmq/store TopicTest/0 1000 -n 10
      rmqctl query-offset /data/rocketmq/store TopicTest/0 1000 --as-release 4.9.8
      rmqctl query-offset /data/rocketmq/store TopicTest/0 99999 --explain
    """
    from rmqctl.rocketmq.query.page import OffsetQuestion, offset_rows
    from rmqctl.rocketmq.query.queue_view import open_queue
    from rmqctl.rocketmq.rows.show import Show

    show = Show(body, release=as_release)
    question = OffsetQuestion(
        offset, filters.limit, filters.tag, as_release is not None, explain, show, _filter(filters, strict=show.strict)
    )
    with started_store(store, as_release) as started:
        assert queue.queue_id is not None
        queues_meant(started, queue, out, explain=explain)
        with open_queue(started, queue.topic, queue.queue_id) as view:
            found = _write(offset_rows(view, question), out)
    if not found:
        raise SystemExit(1)


def _filter(filters: FilterOptions, *, strict: bool) -> Callable[[Record], bool] | None:
    """The filters beside tag and number; None without any."""
    rest = replace(filters, tag=None, limit=None)
    if rest.is_empty:
        return None
    from commands._filter import filter_of
    from rmqctl.rocketmq.query.record_filter import passing

    wanted = filter_of(rest, strict=strict)
    return lambda record: bool(passing([record], wanted))


def _write(rows: Iterator[Row], out: Output) -> int:
    """Write the answer; returns the number of messages."""
    count = 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in rows:
            count += row["kind"] == "message"
            yield row

    if out.kind == "table":
        _write_table(counted(), out)
    else:
        out.show(counted())
    return count


def _write_table(rows: Iterator[Row], out: Output) -> None:
    from commands._answer import write_steps
    from commands._dump_table import write_table

    steps: list[Row] = []
    status = next(rows)

    def messages() -> Iterator[Row]:
        for row in rows:
            if row["kind"] == "message":
                yield row
            else:
                steps.append(row)

    span = f"the queue is [{status['min_offset']}, {status['max_offset']})"
    out.text([f"{status['status']}: {span}, a consumer goes on at {status['next_offset']}"])
    found = messages()
    first = next(found, None)
    if first is not None:
        write_table(chain([first], found), out)
    write_steps(out, steps)
