"""The options of `rmqctl produce`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from commands._types import FAMILY, Instant, PropertyFilter, Size, Sizes, Span, Weighted
from rmqctl.producing import MOST_TOPICS


def produce_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what to send, where to, how the store is made, in groups."""
    for group in reversed((_WHERE, _WHAT, _HOW, _STORE, _KAFKA)):
        for option in reversed(group):
            function = option(function)
    return function


_SAME = {"abort": "rollback", "open": "pending"}
"""Words of Kafka and of RocketMQ for how a transaction ends."""
_WHERE = (
    click.option(
        "--topic",
        "topics",
        multiple=True,
        help=f"Topic; repeatable, taken in turn. Orders{{0..9}} makes ten; at most {MOST_TOPICS:,} together.",
    ),
    click.option(
        "--format",
        "family",
        type=FAMILY,
        default="auto",
        show_default=True,
        help="What to write; auto: what lies at PATH, a RocketMQ store where nothing does.",
    ),
    click.option(
        "--queues",
        "--partitions",
        "queues",
        type=click.IntRange(1, 65535),
        help="Queues of a topic, taken in turn, or its partitions.  [default: 4; Kafka: those there are, or 1]",
    ),
    click.option(
        "--queue-id",
        "--partition",
        "queue_id",
        type=click.IntRange(0, 65535),
        help="Put everything into this queue or partition.",
    ),
)
_WHAT = (
    click.option("--count", type=click.IntRange(min=0), help="How many messages.  [default: 1]"),
    click.option("--body", help="The body; {n} becomes the number of the message."),
    click.option("--body-file", type=click.File("rb"), help="The body, from a file."),
    click.option("--lines", type=click.File("rb"), help="One message a line of a file; - reads standard input."),
    click.option(
        "--jsonl", type=click.File("rb"), help="One message an object, as `dump --body -o jsonl` prints them."
    ),
    click.option("--size", type=Sizes(), help="Random bodies of so many bytes: 1K, or 100-4K."),
    click.option("--key", "keys", multiple=True, help="A key, such as order-{n}, without blanks; repeatable."),
    click.option("--tag", type=Weighted(), help="The tag, or several with weights: TagA=3,TagB=1."),
    click.option(
        "--property",
        "--header",
        "properties",
        type=PropertyFilter(),
        multiple=True,
        help="A property, or a header of Kafka; repeatable. "
        "INNER_MULTI_DISPATCH=%LMQ%a,%LMQ%b puts the message into these light queues too.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same messages."),
)
_HOW = (
    click.option(
        "--batch",
        type=click.IntRange(min=1),
        help="Store so many messages together, at most so many with Kafka.  [default: 1; Kafka: any number]",
    ),
    click.option(
        "--inner-batch", "inner", is_flag=True, help="A batch is one record, in a topic with batch queues (5.x)."
    ),
    click.option(
        "--delay-level",
        type=click.IntRange(min=1),
        help="Delay by this level of messageDelayLevel; above the last (18) it is the last, as brokers do.",
    ),
    click.option("--deliver-at", type=Instant(), help="Deliver at this time, by the timer wheel (5.x)."),
    click.option("--deliver-due", is_flag=True, help="Then deliver delayed messages whose time has come."),
    click.option(
        "--transaction",
        "--transactional",
        "transaction",
        type=click.Choice(["commit", "rollback", "pending", "abort", "open"]),
        callback=lambda _context, _option, word: _SAME.get(word, word),
        help="Send as transactions that end so, with Kafka as one; abort and open are rollback and pending.",
    ),
    click.option(
        "--compress",
        "--codec",
        "codec",
        type=click.Choice(["none", "zlib", "gzip", "snappy", "lz4", "zstd"]),
        is_flag=False,
        flag_value="zlib",
        help="Compress large bodies by zlib, lz4 or zstd, without a name by zlib; batches of Kafka by all but zlib.",
    ),
    click.option("--compress-over", type=Size(), default=4096, show_default=True, help="Bytes from which on."),
    click.option(
        "--flush", type=click.Choice(["sync", "async"]), default="async", show_default=True, help="flushDiskType."
    ),
    click.option(
        "--writers",
        type=click.IntRange(1, 256),
        default=1,
        show_default=True,
        help="Writers at a time; with --flush sync: messages in flight.",
    ),
    click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second at most."),
    click.option(
        "--damage",
        multiple=True,
        metavar="KIND[@WHERE]",
        help="Then damage the store, at a number such as 3 or -1, or at 50%; repeatable; list: show all.",
    ),
    click.option(
        "--crash", is_flag=True, help="End as after kill -9: abort file left, the last records not dispatched."
    ),
)
_STORE = (
    click.option(
        "--commitlog",
        "commit_log",
        metavar="DIR[,DIR...]",
        help="Directories of the log; several for a multi-path log.",
    ),
    click.option("--start-time", type=Instant(), help="Store time of the first message; with --interval it goes on."),
    click.option("--interval", type=Span(), help="Store time between messages: 5ms, 1s.  [default: 1ms]"),
    click.option("--small", is_flag=True, help="Small files (log 64 KiB, 100 units a queue file), so that they roll."),
    click.option(
        "--log-file-size", type=Size(), help="mappedFileSizeCommitLog of a new store; segment.bytes of new topics."
    ),
    click.option("--queue-file-size", type=Size(), help="mappedFileSizeConsumeQueue of a new store."),
    click.option("--index-slots", type=click.IntRange(min=1), help="maxHashSlotNum of a new store."),
    click.option("--index-entries", type=click.IntRange(min=2), help="maxIndexNum of a new store."),
    click.option("--property-crc", is_flag=True, help="End each record with a CRC (enabledAppendPropCRC)."),
    click.option("--store-host", metavar="IP:PORT", default="127.0.0.1:10911", show_default=True, help="The broker's."),
)
_KAFKA = (
    click.option(
        "--partitioner",
        type=click.Choice(["murmur2", "round-robin", "sticky"]),
        help="Kafka: by the key as the Java client, record by record, or batch by batch.  [default: murmur2]",
    ),
    click.option("--level", type=int, help="Kafka: level of the codec.  [default: that of the Java client]"),
    click.option(
        "--batch-size",
        "--acks-like-batch-size",
        "batch_size",
        type=Size(),
        help="Kafka: bytes of a batch (batch.size).  [default: 16K]",
    ),
    click.option("--idempotent", is_flag=True, help="Kafka: with a producer id and sequences."),
    click.option(
        "--transactional-id",
        help="Kafka: whose transaction; what it left open is aborted first, as clients do.  [default: rmqctl]",
    ),
    click.option("--tombstone", is_flag=True, help="Kafka: values are null, which deletes the keys."),
    click.option("--compact", is_flag=True, help="Kafka: new topics are compacted; in the end all such are cleaned."),
)
