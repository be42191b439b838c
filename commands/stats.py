"""`rmqctl stats`: figures of a store by topic, queue, tag, hour and producer host."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import Command
from commands._app import Output, message
from commands._options import (
    FilterOptions,
    StoreOptions,
    filter_options,
    output_option,
    say_unreadable,
    store_options_with_paths,
)
from commands._progress import progress
from commands._spark import engine_option, is_local, is_spark, seen_by, spark_options, started, working
from commands._types import Size, refuse

if TYPE_CHECKING:
    from rmqctl.fleet import Fleet
    from rmqctl.pipeline import Cluster
    from rmqctl.pipeline.cluster import SparkSession
    from rmqctl.pipeline.fleet import Sights
    from rmqctl.pipeline.stats import Stats
    from rmqctl.store import Store
    from rmqctl.tables import Tables

_SIZES = {"size_p50": "size_p50_bytes", "size_p99": "size_p99_bytes"}
"""Columns of a table that say their unit."""
_SHOWN = (
    "messages",
    "records",
    "bytes",
    *_SIZES.values(),
    "latency_p50_ms",
    "latency_p99_ms",
    "compression_ratio",
)


@click.command("stats", cls=Command, usual="topic after before by html output")
@store_options_with_paths
@filter_options
@click.option(
    "--by",
    type=click.Choice(["all", "topic", "queue", "tag", "hour", "host", "compression", "producer", "store", "cluster"]),
    multiple=True,
    help="Only these groups; repeatable. tag, host: RocketMQ; compression, producer: Kafka; store, cluster: several "
    "stores.",
)
@click.option("--no-keys", is_flag=True, help="Leave out duplicates of UNIQ_KEY and the most frequent keys.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots as well.")
@click.option("--split-size", type=Size(), help="Bytes of the log in one task; default: by the size of the log.")
@engine_option
@spark_options
@output_option(columns=True)
def command(
    store: StoreOptions,
    filters: FilterOptions,
    by: tuple[str, ...],
    no_keys: bool,
    html: Path | None,
    split_size: int | None,
    engine: str,
    cluster: Cluster,
    out: Output,
) -> None:
    """Count messages and bytes; percentiles of size and of the time from born to stored; duplicates, top keys.

    Figures come for the whole store and by topic, queue, tag, hour of storing and producer host.
    Percentiles are exact to 0.8 %. Up to 1 GiB of log this process does the work, else Spark; the
    figures are the same. See `docs/spark.md`.

    Several PATHs, a pattern in quotes or @inventory.toml: figures of all together, and by store; what could not be
    read is said, and the exit status is 1.

    \b
    Examples:
      rmqctl stats /data/rocketmq/store
      rmqctl stats /data/rocketmq/store --topic TopicTest --html stats.html -o json
    """
    if store.is_several and is_spark(engine):
        with started(cluster) as spark:
            sights = seen_by(spark, store, filters=filters, split_size=split_size)
            if sights is not None:
                stats = _on_spark(spark, store.path, sights, sights.tables(), by, out, keys=not no_keys)
                _finish(stats, html, store, sights.size, filters, f"Spark, {cluster.remote or cluster.master}")
                return
    opened = store.open_each()
    tables = opened.as_tables(filters, split_size=split_size)
    if is_local(engine, opened.size):
        from rmqctl.pipeline.mounted import unreadable
        from rmqctl.pipeline.stats import collect_here

        _introduce(opened)
        with progress(f"stats of {store.path}", opened.size) as advance:
            stats = collect_here(tables, keys=not no_keys, advance=advance)
        _show(stats, out, by, unreadable([tables]))
        _say_what_was_read(stats, tables)
        ran = "in this process"
    else:
        with started(cluster, opened.size) as spark:
            stats = _on_spark(spark, store.path, opened, tables, by, out, keys=not no_keys)
        ran = f"Spark, {cluster.remote or cluster.master}"
    _finish(stats, html, store, opened.size, filters, ran)


def _introduce(opened: Store | Fleet | Sights) -> None:
    for sentence in getattr(opened, "remarks", ()):
        message(sentence)
    if opened.is_running:
        message("a broker holds the lock of this store: what is read may be changing")


def _on_spark(
    spark: SparkSession,
    path: str,
    opened: Store | Fleet | Sights,
    tables: Tables,
    by: tuple[str, ...],
    out: Output,
    *,
    keys: bool,
) -> Stats:
    from rmqctl.pipeline.mounted import unreadable
    from rmqctl.pipeline.stats import collect

    _introduce(opened)
    with working(spark, f"stats of {path}", opened.size):
        stats = collect(spark, tables, keys=keys)
    _show(stats, out, by, unreadable([tables]))  # before Spark is stopped, which takes a second
    _say_what_was_read(stats, tables)
    return stats


def _say_what_was_read(stats: Stats, tables: Tables) -> None:
    for sentence in stats.read.remarks(tables.names[0]) if stats.read is not None else ():
        message(sentence)


def _finish(stats: Stats, html: Path | None, store: StoreOptions, size: int, filters: FilterOptions, ran: str) -> None:
    """Write the page, where one is asked for, and judge.

    Raises:
        SystemExit: there is nothing to count.
    """
    if html is not None:
        from rmqctl.pipeline.stats_page import About, page

        source = store.path if "://" in store.path else os.path.abspath(store.path)
        about = About(f"{source} on {platform.node()}", size, _in_words(filters), ran, datetime.now(UTC))
        from rmqctl.files.new_files import at_once

        with at_once(html) as written:
            written.write_text(page(about, stats), "utf-8")
        message(f"wrote {html}")
    if not stats.groups["all"] or not stats.groups["all"][0]["messages"]:
        raise SystemExit(1)


def _in_words(filters: FilterOptions) -> str:
    """Return the filters that are set, as the options that set them."""
    given = {field.name: getattr(filters, field.name) for field in fields(filters)}
    set_ = {name: value for name, value in given.items() if value not in {None, False, ()} and value != []}
    return " ".join(
        f"--{name.replace('_', '-')} {one}"
        for name, value in set_.items()
        for one in (value if isinstance(value, tuple) else (value,))
    )


def _show(stats: Stats, out: Output, by: tuple[str, ...], failed: Mapping[str, str]) -> None:
    """Show figures, and of several stores those that could not be read."""
    say_unreadable(failed)
    if failed and out.kind != "table":
        errors = [{"by": "store", "store": name, "error": why} for name, why in failed.items()]
        stats = replace(stats, groups={**stats.groups, "store": [*stats.groups["store"], *errors]})
    for name in by:
        if name not in stats.groups:
            refuse("--by", f"{name} means nothing for this store; there are {', '.join(stats.groups)}.")
    groups = {name: rows for name, rows in stats.groups.items() if not by or name in by}
    if out.kind == "json":
        out.document({**groups, "duplicates": stats.duplicates, "top_keys": stats.top_keys})
        return
    if out.kind == "table" and not out.chooses:
        for name, rows in groups.items():
            out.text([f"{'' if name == next(iter(groups)) else chr(10)}by {name}" if name != "all" else "all messages"])
            rows = [{**row, **{shown: row[key] for key, shown in _SIZES.items()}} for row in rows]
            out.show(rows, columns=(*stats.columns[name], *_SHOWN))
        for title, rows in (("duplicates of UNIQ_KEY", stats.duplicates), ("most frequent keys", stats.top_keys)):
            if rows:
                out.text([f"\n{title}"])
                out.show(rows)
        return
    from rmqctl.pipeline.stats import HEADER

    keys = [key for columns in stats.columns.values() for key in columns] + ["error"] * ("store" in stats.columns)
    header = list(dict.fromkeys(("kind", "by", *keys, *HEADER)))
    rows = [{"kind": "stats", **row} for found in groups.values() for row in found]
    if out.kind == "jsonl":
        rows += [{"kind": "duplicates", **row} for row in stats.duplicates]
        rows += [{"kind": "top_key", **row} for row in stats.top_keys]
    out.show(rows, csv_columns=header)
