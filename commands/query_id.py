"""`rmqctl query-id`: the message with an id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands._answer import message_rows, write_answer
from commands._app import Output, message, progress
from commands._options import StoreOptions, as_release_option, output_option, store_options
from commands._types import refuse

if TYPE_CHECKING:
    from rmqctl.release import Release
    from rmqctl.rocketmq.query.by_id import IdAnswer
    from rmqctl.rocketmq.query.message_ids import MessageId
    from rmqctl.rocketmq.query.records import Record
    from rmqctl.rocketmq.query.steps import Step, Trace
    from rmqctl.rocketmq.store import RocketMQStore


@click.command("query-id")
@store_options
@click.argument("message_id", metavar="MESSAGE_ID")
@click.option("--topic", help="Where to look for a unique key; default: under every topic.")
@click.option("--all", "every", is_flag=True, help="All messages with this unique key: copies, repeats, batches.")
@click.option("--scan", is_flag=True, help="Look for a unique key in the log instead of the index.")
@click.option("--explain", is_flag=True, help="Every step, and one sentence why something is not found.")
@click.option("--body", is_flag=True, help="Add the body, decompressed.")
@as_release_option
@output_option()
def command(
    store: StoreOptions,
    message_id: str,
    topic: str | None,
    every: bool,
    scan: bool,
    explain: bool,
    body: bool,
    as_release: Release | None,
    out: Output,
) -> None:
    """Show the message with an id: an offsetMsgId, or the unique key (msgId) that its producer gave it.

    An offsetMsgId (32 hex digits, 56 with an IPv6 host) names broker and place; it is tried on this
    store whatever broker it names. A unique key (32, 56, or 34 from a gRPC client) is looked up in the
    index. Like a client, this shows the first of several messages with one unique key, and one under
    its own topic before a copy under a system topic; --all shows the others. Exits 1 when there is none.

    \b
    Examples:
      rmqctl query-id /data/rocketmq/store C0A8010A00002A9F0000000000001F40
      rmqctl query-id store AC110001002A18B4AAC2716E3B4D0000 --topic TopicTest --explain
    """
    from rmqctl.open import open_store_at
    from rmqctl.rocketmq.query.message_ids import NotAMessageId, parse_message_id
    from rmqctl.rocketmq.rows.show import STRICT_PROPERTIES_UNTIL

    try:
        wanted = parse_message_id(message_id)
    except NotAMessageId as error:
        refuse("MESSAGE_ID", f"{message_id!r} is none: {error}. For a key of another shape: query-key --unique.")
    found = open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    if found.is_running:
        message("a broker holds the lock of this store: what is read may be changing")
    strict = as_release is not None and as_release <= STRICT_PROPERTIES_UNTIL
    records, steps = _answer(found, wanted, topic, scan=scan, explain=explain, strict=strict)
    shown = records if every else records[:1]
    count = write_answer(out, message_rows(shown, strict=strict, body=body), steps)
    if len(records) > len(shown):
        message(f"{len(records) - len(shown)} more messages have this unique key; --all shows them")
    if not count:
        if not explain:
            _say_nothing(found, wanted, topic)
        raise SystemExit(1)


def _answer(
    store: RocketMQStore, wanted: MessageId, topic: str | None, *, scan: bool, explain: bool, strict: bool
) -> tuple[list[Record], list[Step]]:
    from rmqctl.rocketmq.query.by_id import by_id
    from rmqctl.rocketmq.query.steps import Trace

    if scan:
        if explain:
            refuse("--explain", "reads the log by itself; leave out --scan.")
        return _scanned(store, wanted, topic, strict=strict), []
    trace = Trace(on=explain)
    answer = by_id(store, wanted, (topic,) if topic is not None else (), trace, strict=strict)
    _warn(answer)
    return answer.messages, _explained(store, wanted, answer, trace) if explain else []


def _explained(store: RocketMQStore, wanted: MessageId, answer: IdAnswer, trace: Trace) -> list[Step]:
    from rmqctl.rocketmq.query.explain_id import conclude_id

    with progress("explain", sum(f.size for f in store.log_files)) as advance:
        last = conclude_id(store, wanted, answer, trace, advance)
    return [*trace, last]


def _warn(answer: IdAnswer) -> None:
    """What is unusual about a message that was found."""
    if answer.foreign_host:
        message(f"the id names broker {answer.foreign_host}, which did not write this record")
    if answer.late is not None:
        message("the producer's clock was ahead of the broker's: clients that ask from the key's time on get CODE 208")


def _scanned(store: RocketMQStore, wanted: MessageId, topic: str | None, *, strict: bool) -> list[Record]:
    from rmqctl.rocketmq.filters import Filter
    from rmqctl.rocketmq.query.by_id import rank
    from rmqctl.rocketmq.query.log_search import Search, search_log
    from rmqctl.rocketmq.query.records import UNIQUE_KEY

    topics = (topic,) if topic is not None else ()
    search = Search(Filter(topics, key=wanted.text, strict=strict), (UNIQUE_KEY,))
    with progress("scan", sum(f.size for f in store.log_files)) as advance:
        return sorted((r for part in search_log(store, search, progress=advance) for r in part.records), key=rank)


def _say_nothing(store: RocketMQStore, wanted: MessageId, topic: str | None) -> None:
    from rmqctl.rocketmq.query.topic_names import did_you_mean, topic_names

    for line in wanted.describe():
        message(f"read as {line}")
    names = topic_names(store)
    if topic is not None and topic not in names:
        message(f"nothing found; the store knows no topic {topic}{did_you_mean(topic, names)}")
    else:
        message("nothing found; --explain says why, --scan looks for the unique key in the log")
