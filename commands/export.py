"""`rmqctl export`: messages as Parquet, ORC, CSV or JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands import Command
from commands._app import Output, message
from commands._complete import files
from commands._options import FilterOptions, StoreOptions, filter_options, output_option, store_options_with_paths
from commands._spark import spark_options, started, working
from commands._types import Size, refuse
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.pipeline import Cluster
    from rmqctl.pipeline.export import Export
    from rmqctl.pipeline.export_manifest import Manifest
    from rmqctl.tables import Tables


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


@click.command("export", cls=Command, usual="to partition-by body incremental overwrite topic after before limit")
@store_options_with_paths
@click.argument("output", metavar="OUT", shell_complete=files)
@click.option(
    "--to", type=click.Choice(["parquet", "orc", "csv", "jsonl"]), default="parquet", show_default=True, help="Format."
)
@click.option(
    "--partition-by",
    default="topic,day",
    show_default=True,
    help="Directories, the outermost first: some of topic, day, hour, queue_id (Kafka: partition), tags; or none.",
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
@click.option("--incremental", is_flag=True, help="Add what came since the last export into OUT.")
@click.option("--overwrite", is_flag=True, help="Replace the export that OUT holds.")
@filter_options
@spark_options
@output_option()
def command(
    store: StoreOptions,
    output: str,
    to: str,
    partition_by: str,
    columns: str | None,
    body: str,
    compression: str | None,
    split_size: int | None,
    incremental: bool,
    overwrite: bool,
    filters: FilterOptions,
    cluster: Cluster,
    out: Output,
) -> None:
    """Write the messages or records of a store as files that other tools read, on Spark.

    OUT/data gets directories such as topic=TopicTest/day=2026-11-21 (UTC) with files in log order, and
    _manifest.json names them. Both appear at once when all is there, and replace what was there
    before; an export that was broken off goes on when the same command is given again. Exits 1 when
    no message matches.

    \b
    Examples:
      rmqctl export /data/rocketmq/store /lake/messages
      rmqctl export /data/rocketmq/store /lake/messages --incremental
      rmqctl export store out --to jsonl --topic TopicTest --partition-by none --body none
    """
    from rmqctl.pipeline.cluster import cores_of
    from rmqctl.pipeline.export import Export, ExportChoices, on_spark
    from rmqctl.pipeline.outputs import output_at

    opened = store.open()
    tables = opened.as_tables(filters, body=body)
    divided = () if partition_by == "none" else _names(partition_by)
    _check(tables, _names(columns), divided)
    export = Export(
        tables,
        output_at(output),
        ExportChoices(
            to, _names(columns) or None, divided, _codec(to, compression), body, split_size, incremental, overwrite
        ),
    )
    if opened.is_running:
        message("a broker holds the lock of this store: what it is still writing is left for the next export")
    with started(cluster, opened.size) as spark:
        plan = export.plan(cores_of(spark))
        size = sum(map(export.log.size_of, export.parts(plan)))
        message(f"writing {tables.names[0]} {_stretch(plan)} into {output}")
        with working(spark, f"export of {store.path}", size):
            manifest = export.run(plan, on_spark(spark))
    _show(manifest, export, out)


def _check(tables: Tables, columns: tuple[str, ...], partition_by: tuple[str, ...]) -> None:
    from rmqctl.pipeline.export_manifest import DAY, HOUR
    from rmqctl.tables import BadOption

    known = ("topic", DAY, HOUR, *tables.log().partitions[1:])
    for name in partition_by:
        if name not in known:
            refuse("--partition-by", f"knows no {name!r}; give some of {', '.join(known)}, or none.")
    try:
        tables.asked(columns or None).table(tables.names[0]).schema()
    except BadOption as error:
        refuse("--columns", f"{error}.")


def _stretch(plan: Manifest) -> str:
    """Return what a plan covers, in words: the offsets of one log, or how many logs."""
    start, end = plan.covers()
    return f"of {number_of(len(end), 'partition')}" if isinstance(end, dict) else f"of offsets {start} to {end}"


def _codec(to: str, compression: str | None) -> str:
    from rmqctl.pipeline.export_manifest import COMPRESSIONS, Format

    known = COMPRESSIONS[Format(to)]
    if compression is not None and compression not in known:
        refuse("--compression", f"cannot be {compression!r} with --to {to}; there are {', '.join(known)}.")
    return compression or known[0]


def _show(manifest: Manifest, export: Export, out: Output) -> None:
    new, noun = export.added, export.store.names[0].removesuffix("s")
    if out.kind == "table":
        rows, size = sum(f.rows for f in new), sum(f.size for f in new)
        end = manifest.covers()[1]
        complete = f"up to offset {end}" if isinstance(end, int) else f"in {number_of(len(end), 'partition')}"
        out.text([f"{number_of(rows, noun)} in {number_of(len(new), 'file')}, {size:,} bytes; complete {complete}"])
    elif out.kind == "json":
        out.document(manifest.document())
    else:
        out.show([file.document(manifest.layout.place, manifest.layout.time) for file in new])
    if not new:
        raise SystemExit(1)
