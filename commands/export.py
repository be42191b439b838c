"""`rmqctl export`: messages as Parquet, ORC, CSV, JSON lines, a Delta or an Iceberg table."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from commands import Command
from commands._app import Output, message
from commands._complete import files
from commands._options import (
    FilterOptions,
    StoreOptions,
    filter_options,
    output_option,
    say_unreadable,
    store_options_with_paths,
)
from commands._progress import progress
from commands._spark import engine_option, has_spark, is_local, is_spark, seen_by, spark_options, started, working
from commands._types import Size, refuse
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.fleet import Fleet
    from rmqctl.pipeline import Cluster
    from rmqctl.pipeline.cluster import SparkSession
    from rmqctl.pipeline.export import Export, ExportChoices
    from rmqctl.pipeline.export_manifest import Manifest
    from rmqctl.pipeline.fleet import Sights
    from rmqctl.pipeline.outputs import Output as Place
    from rmqctl.store import Store
    from rmqctl.tables import Tables

    _Session = Callable[[int], AbstractContextManager[SparkSession]]

_NAME = re.compile(r"(?:[^,(]|\([^)]*\))+")


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in _NAME.findall(value or "") if name.strip())


@click.command("export", cls=Command, usual="to partition-by body incremental overwrite topic after before limit")
@store_options_with_paths
@click.argument("output", metavar="OUT", shell_complete=files)
@click.option(
    "--to",
    type=click.Choice(["parquet", "orc", "csv", "jsonl", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Format.",
)
@click.option("--catalog", help="With --to iceberg: the URI of a catalog, or its name in PyIceberg's configuration.")
@click.option("--table", metavar="NAMESPACE.TABLE", help="The name of the table in --catalog; its files are in OUT.")
@click.option(
    "--partition-by",
    default="topic,day",
    show_default=True,
    help="Directories, the outermost first: some of topic, day, hour, queue_id (Kafka: partition), tags, of several "
    "stores also cluster and store; bucket(topic,64) puts many small topics into few files; or none.",
)
@click.option("--columns", help="Only these columns of messages or records, separated by commas.")
@click.option(
    "--body",
    type=click.Choice(["decompressed", "stored", "none"]),
    default="decompressed",
    show_default=True,
    help="Bodies in the files.",
)
@click.option("--compression", help="zstd (default), none, gzip, snappy, lz4, as the format has them.")
@click.option("--split-size", type=Size(), help="Bytes of the log that become one set of files; default: by its size.")
@click.option(
    "--target-file-size",
    type=Size(),
    default="256MiB",
    show_default=True,
    help="A file of this size is followed by another.",
)
@click.option(
    "--compact",
    is_flag=True,
    help="Put small files of a directory together, up to --target-file-size; those of before, too.",
)
@click.option("--incremental", is_flag=True, help="Add what came since the last export into OUT.")
@click.option("--overwrite", is_flag=True, help="Replace the export that OUT holds.")
@filter_options
@engine_option
@spark_options
@output_option()
def command(
    store: StoreOptions,
    output: str,
    to: str,
    catalog: str | None,
    table: str | None,
    partition_by: str,
    columns: str | None,
    body: str,
    compression: str | None,
    split_size: int | None,
    target_file_size: int,
    compact: bool,
    incremental: bool,
    overwrite: bool,
    filters: FilterOptions,
    engine: str,
    cluster: Cluster,
    out: Output,
) -> None:
    """Write the messages or records of a store as files that other tools read.

    OUT/data gets directories such as topic=TopicTest/day=2026-11-21 (UTC) with files in log order, and
    _manifest.json names them. Both appear at once when all is there, and replace what was there
    before; an export that was broken off goes on when the same command is given again. Up to 1 GiB of log, and where
    PySpark is not installed, processes of this machine do the work, else Spark; the files are the same. Exits 1 when
    no message matches.

    Several PATHs, @inventory.toml or a pattern in quotes: the rows of several stores, with cluster and store first;
    what cannot be read is said, and the exit status is 1.

    \b
    Examples:
      rmqctl export /data/rocketmq/store /lake/messages
      rmqctl export /data/rocketmq/store /lake/messages --incremental
      rmqctl export store out --to jsonl --topic TopicTest --partition-by none --body none
      rmqctl export '/mnt/broker-*/store' /lake/messages --partition-by store,day --compact
    """
    from rmqctl.pipeline.export import ExportChoices

    place, to = _place(output, to, catalog, table)
    if compact and to != "parquet":
        refuse("--compact", f"puts files of Parquet together, not of {to}.")
    divided = () if partition_by == "none" else _partitions(partition_by)
    choices = ExportChoices(
        to, _names(columns) or None, divided, _codec(to, compression), body, split_size, incremental, overwrite,
        target_file_size, compact,
    )  # fmt: skip
    asked = _Asked(output, place, choices, out)
    if store.is_several and is_spark(engine):
        with started(cluster) as spark:
            sights = seen_by(spark, store, filters=filters, body=body)
            if sights is not None:
                from rmqctl.pipeline.jobs import sharing_with_notes

                tables = replace(sights.tables(), share=sharing_with_notes(spark))
                _do(asked, sights, tables, lambda _: nullcontext(spark), working(spark, "opening the stores", None))
                return
    opened = store.open_each()
    is_here = is_local(engine, opened.size if has_spark() else 0)
    _do(asked, opened, opened.as_tables(filters, body=body), None if is_here else lambda size: started(cluster, size))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked for: where the files go, as given and as it is, in which layout, and how the result is shown."""

    path: str
    place: Place
    choices: ExportChoices
    out: Output


def _do(
    asked: _Asked,
    opened: Store | Fleet | Sights,
    tables: Tables,
    session: _Session | None,
    opening: AbstractContextManager[None] | None = None,
) -> None:
    """Do an export.

    Args:
        session: gives Spark for so many bytes of log; None: the work is done here.
        opening: what the log is opened in.
    """
    from rmqctl.pipeline.export import Export
    from rmqctl.pipeline.mounted import unreadable

    for sentence in getattr(opened, "remarks", ()):
        message(sentence)
    with opening or nullcontext():
        _check(tables, asked.choices.columns or (), asked.choices.partition_by)
        export = Export(tables, asked.place, asked.choices)
    if opened.is_running:
        message("a broker holds the lock of this store: what it is still writing is left for the next export")
    manifest = _run(export, asked.path, session)
    say_unreadable(unreadable([tables]))
    for sentence in export.read.remarks(tables.names[0]):
        message(sentence)
    _show(manifest, export, asked.out)


def _place(path: str, to: str, catalog: str | None, table: str | None) -> tuple[Place, str]:
    """Where the files go, and their format."""
    from rmqctl.pipeline.export_delta import delta_at
    from rmqctl.pipeline.export_iceberg import iceberg_at
    from rmqctl.pipeline.outputs import output_at

    if (catalog is None) != (table is None):
        refuse("--table" if catalog is None else "--catalog", "goes with the other of --catalog and --table.")
    if catalog is not None and to != "iceberg":
        refuse("--catalog", "is for --to iceberg.")
    if (table is not None and not all(table.split(".")[:2])) or "." not in (table or "."):
        refuse("--table", "is a namespace, a dot and a name, such as mq.messages.")
    if to == "iceberg":
        return iceberg_at(path, catalog or "", table or ""), "parquet"
    return (delta_at(path), "parquet") if to == "delta" else (output_at(path), to)


def _run(export: Export, output: str, session: _Session | None) -> Manifest:
    """Do the work here, or in a session for so many bytes of log."""
    from rmqctl.parallel import processes_for
    from rmqctl.pipeline.cluster import cores_of
    from rmqctl.pipeline.export import here, on_spark

    def begun(cores: int) -> tuple[Manifest, int]:
        plan = export.plan(cores)
        message(f"writing {export.store.names[0]} {_stretch(plan)} into {output}")
        return plan, sum(map(export.log.size_of, export.parts(plan)))

    what = f"export of {export.store.path}"
    if session is None:
        processes = processes_for(export.log.size)
        plan, size = begun(processes)
        with progress(what, size) as advance:
            return export.run(plan, here(processes, advance))
    with session(export.log.size) as spark:
        with working(spark, f"plan of the {what}", None):
            plan, size = begun(cores_of(spark))
        with working(spark, what, size):
            return export.run(plan, on_spark(spark))


def _partitions(text: str) -> tuple[str, ...]:
    from rmqctl.pipeline.export_manifest import Bucket

    return tuple(str(Bucket.of(name) or name) for name in _names(text))


def _check(tables: Tables, columns: tuple[str, ...], partition_by: tuple[str, ...]) -> None:
    from rmqctl.pipeline.export_manifest import DAY, HOUR, Bucket, directory_name
    from rmqctl.tables import BadOption

    columns_known = tables.log().partitions
    known = ("topic", DAY, HOUR, *columns_known[1:])
    for name in partition_by:
        bucket = Bucket.of(name)
        if (bucket.column not in columns_known) if bucket else (name not in known):
            refuse("--partition-by", f"knows no {name!r}; give some of {', '.join(known)}, bucket(topic,64), or none.")
    named = list(map(directory_name, partition_by))
    if again := next((name for name in named if named.count(name) > 1), ""):
        refuse("--partition-by", f"names {again} more than once; each has directories of its own.")
    try:
        tables.asked(columns or None).table(tables.names[0]).schema()
    except BadOption as error:
        refuse("--columns", f"{error}.")


def _stretch(plan: Manifest) -> str:
    """Return what a plan covers, in words: the offsets of one log, or how many logs."""
    start, end = plan.covers()
    return f"of {_logs(plan)}" if isinstance(end, dict) else f"of offsets {start} to {end}"


def _logs(plan: Manifest) -> str:
    """Return how many logs there are, in words."""
    if plan.layout.place == "physical_offset":
        return number_of(len(plan.end), "store")
    return number_of(len(plan.end), "partition")


def _codec(to: str, compression: str | None) -> str:
    from rmqctl.pipeline.export_manifest import COMPRESSIONS, Format

    known = COMPRESSIONS[Format(to)]
    if compression is not None and compression not in known:
        refuse("--compression", f"cannot be {compression!r} with --to {to}; there are {', '.join(known)}.")
    return compression or known[0]


def _show(manifest: Manifest, export: Export, out: Output) -> None:
    new, noun = export.added, export.store.names[0].removesuffix("s")
    if out.kind == "table":
        size = sum(f.size for f in new)
        end = manifest.covers()[1]
        complete = f"up to offset {end}" if isinstance(end, int) else f"in {_logs(manifest)}"
        files = f"{number_of(len(new), 'file')}, {size:,} bytes"
        out.text([f"{number_of(export.rows, noun)} in {files}; complete {complete}"])
    elif out.kind == "json":
        out.document(manifest.document())
    else:
        out.show([file.document(manifest.layout.place, manifest.layout.time) for file in new])
    if not new:
        raise SystemExit(1)
