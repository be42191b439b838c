"""`rmqctl query-key`: messages by key, as a broker's index finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import (
    StoreOptions,
    as_release_option,
    filter_options_but,
    max_body_option,
    output_option,
    store_options_with_words,
)
from commands._types import Instant, refuse
from rmqctl.filters import Filters, Rendering

if TYPE_CHECKING:
    from rmqctl.release import Release

_FOREVER = (1 << 63) - 1


@click.command("query-key", cls=Command, usual="unique begin end max scan latest explain body tag limit output")
@store_options_with_words("PATH... [TOPIC] [KEY]", 2)
@click.option("--unique", is_flag=True, help="RocketMQ: KEY is a unique key (UNIQ_KEY) instead of one of KEYS.")
@click.option("--begin", type=Instant(), default=0, help="Stored at this time or later, as the index has it (s).")
@click.option("--end", type=Instant(), default=_FOREVER, help="Stored at this time or before.")
@click.option(
    "--max",
    "most",
    type=click.IntRange(min=1),
    show_default="64; Kafka: all",
    help="Candidates at most.",
)
@click.option(
    "--raw", is_flag=True, help="RocketMQ: all candidates that can be read, other keys of the same hash included."
)
@click.option("--scan", is_flag=True, help="Read the log instead of the index: finds what no index holds.")
@click.option("--latest", is_flag=True, help="Kafka: only the last record of the key, as compaction keeps it.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes that --scan uses; default: all cores.")
@click.option("--explain", is_flag=True, help="Every step, and one sentence why something is not found.")
@click.option("--body", is_flag=True, help="Add the body, decompressed.")
@max_body_option
@filter_options_but("key", "damaged")
@as_release_option
@output_option(columns=True)
def command(
    store: StoreOptions,
    words: tuple[str, ...],
    unique: bool,
    begin: int,
    end: int,
    most: int | None,
    raw: bool,
    scan: bool,
    latest: bool,
    processes: int | None,
    explain: bool,
    body: bool,
    max_body: int,
    filters: Filters,
    as_release: Release | None,
    out: Output,
) -> None:
    """Find messages by key in the index, with a broker's rules: newest file first, times in whole seconds, 64 at most.

    The topic is the one in the record: half, delayed and timer copies are under their system topic.
    `--tag TAG` without KEY asks for the tags that brokers index from 5.4.0 on; with KEY it is a
    filter, like the others. With --scan TOPIC may be left out. Of a Kafka log directory the partitions
    of TOPIC are searched, since there is no index of keys; with several PATHs give TOPIC and KEY.
    Exits 1 when nothing is found.

    Several PATHs, a pattern in quotes or @inventory.toml: which stores hold the key, each message with its store.

    \b
    Examples:
      rmqctl query-key /data/rocketmq/store TopicTest order-17
      rmqctl query-key store TopicTest order-17 --begin 2026-11-20T08:00:00Z --explain
      rmqctl query-key store TopicTest AC110001002A18B4AAC2716E3B4D0000 --unique
      rmqctl query-key store TopicTest --tag TagA
      rmqctl query-key store order-17 --scan
      rmqctl query-key /var/lib/kafka orders order-17 --latest
      rmqctl query-key '/mnt/broker-*/store' TopicTest order-17
    """
    from rmqctl.questions import QueryKey
    from rmqctl.store import Store

    topic, key = _asked(words, filters, scan=scan)
    question = QueryKey(
        topic, key, filters, Rendering(body, max_body=max_body), unique, begin, end, most, raw, scan, latest, processes,
        explain, as_release,
    )  # fmt: skip
    found = store.open_each()
    if explain and not isinstance(found, Store):
        refuse("--explain", "follows one store; give one PATH.")
    show(out, found.ask(question))


def _asked(words: tuple[str, ...], filters: Filters, *, scan: bool) -> tuple[str | None, str | None]:
    """Which of the words is the topic, None for any, and which the key, None for messages of a tag."""
    wanted, key = filters.topics, None if not words else words[-1]
    if not scan and (wanted.like or len(wanted.exact) > 1):
        refuse("--topic", "is one whole name here, as the index holds hashes of topic and key; --scan takes patterns.")
    topic = wanted.exact[0] if len(wanted.exact) == 1 and not wanted.like else None
    if len(words) == 2:
        if wanted and topic != words[0]:
            refuse("--topic", f"is not the same as TOPIC, {words[0]}.")
        topic = words[0]
    elif words and not wanted and not scan:
        topic, key = words[0], None
    if key == "" or (key is None and filters.tag is None):
        refuse("KEY", "is missing; give TOPIC and KEY, or TOPIC and --tag TAG.")
    return topic, key
