"""`rmqctl export`: messages as Parquet, ORC, CSV or JSON lines."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from commands._app import Output, message
from commands._options import FilterOptions, StoreOptions, filter_options, output_option, store_options
from commands._spark import spark_options, started, table_options, working
from commands._types import Size, refuse
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.pipeline.export import ExportChoices
    from rmqctl.pipeline.export_manifest import Manifest
    from rmqctl.pipeline.settings import Cluster
    from rmqctl.rocketmq.tables.bodies import BodyOption

_PARTITIONS = ("topic", "day", "hour", "queue_id", "tags")


def _partitions(_: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    names = () if value == "none" else tuple(name.strip() for name in value.split(",") if name.strip())
    for name in names:
        if name not in _PARTITIONS:
            refuse(parameter.opts[0], f"knows no {name!r}; give some of {', '.join(_PARTITIONS)}, or none.")
    return names


@click.command("export")
@store_options
@click.argument("output", metavar="OUT")
@click.option(
    "--to", type=click.Choice(["parquet", "orc", "csv", "jsonl"]), default="parquet", show_default=True, help="Format."
)
@click.option(
    "--partition-by",
    callback=_partitions,
    default="topic,day",
    show_default=True,
    help="Directories, the outermost first: some of topic, day, hour, queue_id, tags; or none.",
)
@click.option("--columns", help="Only these columns of messages, separated by commas.")
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
    partition_by: tuple[str, ...],
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
    """Write the messages of a store as files that other tools read, on Spark.

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
    from rmqctl.rocketmq.tables.bodies import BodyOption

    names = tuple(name.strip() for name in columns.split(",") if name.strip()) if columns else None
    choices = ExportChoices(to, names, partition_by, _codec(to, compression), split_size, incremental, overwrite)
    options = replace(table_options(store, filters, None), body=BodyOption(body))
    _known(choices, options.body)
    export = Export(options, output_at(output), choices)
    if export.store.is_running:
        message("a broker holds the lock of this store: what it is still writing is left for the next export")
    with started(cluster, sum(f.size for f in export.store.log_files)) as spark:
        plan = export.plan(cores_of(spark))
        size = sum((s.stop or s.context.file.size) - s.start for s in export.splits(plan))
        message(f"writing messages of offsets {plan.start} to {plan.end} into {output}")
        with working(spark, f"export of {store.path}", size):
            manifest = export.run(plan, on_spark(spark))
    _show(manifest, plan, out)


def _codec(to: str, compression: str | None) -> str:
    from rmqctl.pipeline.export_manifest import COMPRESSIONS, Format

    known = COMPRESSIONS[Format(to)]
    if compression is not None and compression not in known:
        refuse("--compression", f"cannot be {compression!r} with --to {to}; there are {', '.join(known)}.")
    return compression or known[0]


def _known(choices: ExportChoices, body: BodyOption) -> None:
    from rmqctl.rocketmq.tables.messages import message_schema

    try:
        message_schema(choices.columns, body)
    except ValueError as error:
        refuse("--columns", f"{error}.")


def _show(manifest: Manifest, plan: Manifest, out: Output) -> None:
    new = [file for file in manifest.files if file.last_physical_offset >= plan.start]
    if out.kind == "table":
        rows, size = sum(f.rows for f in new), sum(f.size for f in new)
        written = f"{number_of(rows, 'message')} in {number_of(len(new), 'file')}, {size:,} bytes"
        out.text([f"{written}; complete up to offset {manifest.end}"])
    elif out.kind == "json":
        out.document(asdict(manifest))
    else:
        out.show([asdict(file) for file in new])
    if not new:
        raise SystemExit(1)
