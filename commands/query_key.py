"""`rmqctl query-key`: messages by key, as a broker's index finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import click

from commands._answer import message_rows, write_answer
from commands._app import Output, message, progress
from commands._options import (
    FilterOptions,
    StoreOptions,
    as_release_option,
    filter_options_but,
    output_option,
    store_options,
)
from commands._types import Instant, refuse

if TYPE_CHECKING:
    from rmqctl.release import Release
    from rmqctl.rocketmq.query.key import KeyAnswer, KeyQuery
    from rmqctl.rocketmq.query.records import Record
    from rmqctl.rocketmq.query.steps import Step, Trace
    from rmqctl.rocketmq.store import RocketMQStore

_FOREVER = (1 << 63) - 1
_MAX = 64


class Asked(NamedTuple):
    """What is asked for: the topic, None for any; the key, None for messages of a tag."""

    topic: str | None
    key: str | None


@click.command("query-key")
@store_options
@click.argument("first", metavar="[TOPIC]", required=False)
@click.argument("second", metavar="[KEY]", required=False)
@click.option("--unique", is_flag=True, help="KEY is a unique key (UNIQ_KEY) instead of one of KEYS.")
@click.option("--begin", type=Instant(), default=0, help="Stored at this time or later, as the index tells it (s).")
@click.option("--end", type=Instant(), default=_FOREVER, help="Stored at this time or before.")
@click.option(
    "--max",
    "most",
    type=click.IntRange(min=1),
    default=_MAX,
    show_default=True,
    help="Candidates at most.",
)
@click.option("--raw", is_flag=True, help="All candidates that can be read, other keys of the same hash included.")
@click.option("--scan", is_flag=True, help="Read the log instead of the index: finds what no index holds.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes that --scan uses; default: all cores.")
@click.option("--explain", is_flag=True, help="Every step, and one sentence why something is not found.")
@click.option("--body", is_flag=True, help="Add the body, decompressed.")
@filter_options_but("key", "damaged")
@as_release_option
@output_option()
def command(
    store: StoreOptions,
    first: str | None,
    second: str | None,
    unique: bool,
    begin: int,
    end: int,
    most: int,
    raw: bool,
    scan: bool,
    processes: int | None,
    explain: bool,
    body: bool,
    filters: FilterOptions,
    as_release: Release | None,
    out: Output,
) -> None:
    """Find messages by key in the index, with a broker's rules: newest file first, times in whole seconds, 64 at most.

    The topic is the one in the record: half, delayed and timer copies are under their system topic.
    `--tag TAG` without KEY asks for the tags that brokers index from 5.4.0 on; with KEY it is a
    filter, like the others. With --scan TOPIC may be left out. Exits 1 when nothing is found.

    \b
    Examples:
      rmqctl query-key /data/rocketmq/store TopicTest order-17
      rmqctl query-key store TopicTest order-17 --begin 2026-11-20T08:00:00Z --explain
      rmqctl query-key store TopicTest AC110001002A18B4AAC2716E3B4D0000 --unique
      rmqctl query-key store TopicTest --tag TagA
      rmqctl query-key store order-17 --scan
    """
    from rmqctl.open import open_store_at

    asked = _asked(first, second, filters, scan=scan)
    found = open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    if found.is_running:
        message("a broker holds the lock of this store: what is read may be changing")
    strict = _is_strict(as_release)
    if scan:
        _refuse_with_scan(raw=raw, explain=explain)
        records: Sequence[Record] = _scanned(found, asked, filters, unique, (begin, end), strict, processes)
        count = write_answer(out, message_rows(records, strict=strict, body=body))
    else:
        from rmqctl.rocketmq.query.key import KeyQuery

        if asked.topic is None:
            refuse("TOPIC", "is needed, as the index holds the hash of topic and key; --scan does without it.")
        query = KeyQuery(asked.topic, asked.key, unique, filters.tag, begin, end, most, strict)
        records, steps = _looked_up(found, query, filters, raw=raw, explain=explain)
        count = write_answer(out, message_rows(records, strict=strict, body=body), steps)
        if not count and not steps:
            _say_nothing(found, query)
    if not count:
        raise SystemExit(1)


def _asked(first: str | None, second: str | None, filters: FilterOptions, *, scan: bool) -> Asked:
    """Which of the words is the topic, and which the key."""
    words = [word for word in (first, second) if word is not None]
    topic, key = filters.topic, None if not words else words[-1]
    if len(words) == 2:
        if topic is not None and topic != words[0]:
            refuse("--topic", f"is not the same as TOPIC, {words[0]}.")
        topic = words[0]
    elif words and topic is None and not scan:
        topic, key = words[0], None
    if key == "" or (key is None and filters.tag is None):
        refuse("KEY", "is missing; give TOPIC and KEY, or TOPIC and --tag TAG.")
    return Asked(topic, key)


def _is_strict(release: Release | None) -> bool:
    from rmqctl.rocketmq.rows.show import STRICT_PROPERTIES_UNTIL

    return release is not None and release <= STRICT_PROPERTIES_UNTIL


def _refuse_with_scan(*, raw: bool, explain: bool) -> None:
    if raw:
        refuse("--raw", "shows candidates of the index, which --scan does not use.")
    if explain:
        refuse("--explain", "follows the index, and reads the log by itself; leave out --scan.")


def _rest(filters: FilterOptions) -> FilterOptions:
    """The filters that are not part of the question to the index."""
    return replace(filters, topic=None, tag=None, limit=None)


# --- the index ----------------------------------------------------------------------------------------


def _looked_up(
    store: RocketMQStore, query: KeyQuery, filters: FilterOptions, *, raw: bool, explain: bool
) -> tuple[Sequence[Record], list[Step]]:
    from rmqctl.rocketmq.query.key import by_key
    from rmqctl.rocketmq.query.steps import FILTERED, Trace

    trace = Trace(on=explain)
    answer = by_key(store, query, trace)
    records: Sequence[Record] = answer.raw if raw else answer.messages
    if not _rest(filters).is_empty:
        from commands._filter import filter_of
        from rmqctl.rocketmq.query.record_filter import passing

        kept = passing(records, filter_of(_rest(filters), strict=query.strict))
        for record in records:
            if record not in kept:
                trace.add(record.file, f"record {record.physical_offset}", "left out by the filters")
        records = kept
    if answer.walk.endless:
        message("an index file has a chain that runs in a circle: a broker asked for this key would never answer")
    _say_limit(query, answer)
    if not explain:
        return records[: filters.limit], []
    if not records and answer.messages:
        return [], [*trace, FILTERED.conclude(count=len(answer.messages))]
    return records[: filters.limit], _explained(store, query, answer, trace)


def _say_limit(query: KeyQuery, answer: KeyAnswer) -> None:
    """Say that a broker would have stopped here, as what comes behind is easily taken to be missing."""
    limit = query.index_query().limit
    if len(answer.walk.candidates) >= limit and query.max >= _MAX:
        message(f"these are the newest {limit} candidates; a broker gives no more (older ones: --end, or --scan)")


def _explained(store: RocketMQStore, query: KeyQuery, answer: KeyAnswer, trace: Trace) -> list[Step]:
    from rmqctl.rocketmq.query.explain import explain_key

    with progress("explain", sum(f.size for f in store.log_files)) as advance:
        last = explain_key(store, query, answer, trace, advance)
    return [*trace, last]


def _say_nothing(store: RocketMQStore, query: KeyQuery) -> None:
    """Why the answer may be empty, as far as that is known without reading the log."""
    from rmqctl.rocketmq.query.topic_names import did_you_mean, topic_names

    names = topic_names(store)
    if query.topic not in names:
        message(f"nothing found; the store knows no topic {query.topic}{did_you_mean(query.topic, names)}")
    else:
        message("nothing found; --explain says why, --scan reads the log instead of the index")


# --- the log ------------------------------------------------------------------------------------------


def _scanned(
    store: RocketMQStore,
    asked: Asked,
    filters: FilterOptions,
    unique: bool,
    span: tuple[int, int],
    strict: bool,
    processes: int | None,
) -> list[Record]:
    from commands._filter import filter_of
    from rmqctl.rocketmq.query.log_search import Search, search_log
    from rmqctl.rocketmq.query.records import KEYS, UNIQUE_KEY

    wanted = filter_of(replace(filters, topic=asked.topic, key=asked.key), strict=strict)
    search = Search(wanted, (UNIQUE_KEY,) if unique else (KEYS,))
    records: list[Record] = []
    damaged = 0
    with progress("scan", sum(f.size for f in store.log_files)) as advance:
        for part in search_log(store, search, processes=processes, progress=advance):
            records += [r for r in part.records if span[0] <= r.store_timestamp <= span[1]]
            damaged += len(part.findings)
            if filters.limit is not None and len(records) >= filters.limit:
                break
    if damaged:
        places = "1 place" if damaged == 1 else f"{damaged} places"
        message(f"the log is damaged in {places}; what lay there cannot be found: rmqctl verify {store.root}")
    return records[: filters.limit]
