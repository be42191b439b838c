"""Exports as Iceberg tables: what an export has covered is in the summary of its snapshot, and a property of the table.

Files have all columns, with their numbers, and the table is divided by what Iceberg calls transforms, so that readers
leave out what a condition on a topic or a time does not want.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqctl.errors import MissingExtra, Refused
from rmqctl.files.remote import is_url
from rmqctl.pipeline.export_manifest import (
    DAY,
    HOUR,
    Bucket,
    ExportedFile,
    ExportLayout,
    Manifest,
    directory_name,
)
from rmqctl.pipeline.export_tables import KEY, TableOutput, note_of, partition_values
from rmqctl.pipeline.outputs import LocalOutput, Output, RemoteOutput

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from rmqctl.pipeline.iceberg_catalog import Place

_FIRST_DIVISION = 1000
"""Where numbers of the fields of a partition begin (the specification's "partition field IDs")."""
_FOOTERS_AT_ONCE = 16


def iceberg_at(path: str, catalog: str = "", name: str = "") -> Output:
    """Return the Iceberg table at a local path or a URL.

    Args:
        catalog: a URI, or a name in PyIceberg's configuration; empty for a table of the file system.
        name: of the table in the catalog: ``namespace.table``.

    Raises:
        MissingExtra: the library for it is not installed.
    """
    try:
        import pyiceberg  # noqa: F401 - whether it is there
    except ModuleNotFoundError as error:
        raise MissingExtra("an Iceberg table", "iceberg", error.name or "pyiceberg") from error
    made: _LocalIceberg | _RemoteIceberg = (
        _RemoteIceberg(path) if is_url(path) else _LocalIceberg(os.path.abspath(path))
    )
    made.catalog, made.table_name = catalog, name
    return made


class _Iceberg(TableOutput):
    catalog = table_name = ""

    def place(self: Any) -> Place:
        """Return the table in its catalog; the connection does not travel to executors."""
        from rmqctl.pipeline.iceberg_catalog import Place

        return Place(self, self.catalog, self.table_name)

    def exists(self) -> bool:
        return self.place().table() is not None

    def noted(self) -> Iterator[str]:
        table = self.place().table()
        if table is None or table.current_snapshot() is None:
            return
        yield from filter(None, map(_note_in, _ancestors(table)))
        if KEY in table.properties:
            yield table.properties[KEY]  # the snapshots of exports have expired, see doubt()

    def doubt(self: Any) -> str:
        table, made = self.place().table(), self.manifest()
        if table is None or made is None or any(map(_note_in, _ancestors(table))):
            return ""
        if any(f"/{made.directory}/" in task.file.file_path for task in table.scan().plan_files()):
            return ""
        summary = table.current_snapshot().summary
        count = summary.additional_properties.get("total-records") if summary is not None else None
        if count == str(made.rows):  # others have written the rows of all exports into files of their own
            return ""
        return (
            "the snapshot of the last export has expired, and none of its files is in the table, which has "
            f"{count or 'an unknown number of'} rows, and had {made.rows} then"
        )

    def fitted(self: Any, layout: ExportLayout, schema: pa.Schema) -> ExportLayout:
        table = self.place().table()
        columns = [name for name in schema.names if name in {*layout.columns, *_sources(layout)}]
        wanted = pa.schema([schema.field(name) for name in columns])
        if table is not None:
            _check_division(table.metadata, layout, self.shown())
        return replace(layout, columns=tuple(columns), field_ids=_field_ids(_schema_with(table, wanted), columns))

    def clear(self: Any, before: Manifest | None, directory: str = "") -> None:
        super().clear(before, directory)
        self.place().mend()

    def commit(self: Any, made: Manifest) -> None:
        place = self.place()
        table = place.table()
        with place.asking():
            if table is None:
                schema = _schema_of(self, made.files)
                place.catalog.create_namespace_if_not_exists(place.name[:-1])
                work: Transaction = place.catalog.create_table_transaction(
                    place.name, schema, self.shown(), _division(schema, made.layout)
                )
            else:
                work = table.transaction()
                if made.files:
                    with work.update_schema() as update:
                        update.union_by_name(_schema_of(self, made.files))
            _check_ids(work.table_metadata, made, self.shown())
            self._stage(work, made, table)
            snapshot = work.table_metadata.current_snapshot()
            assert snapshot is not None
            self.settle([snapshot.manifest_list, *(one.manifest_path for one in snapshot.manifests(work._table.io))])  # noqa: SLF001 - of a table that is not there yet nobody else has it
            work.commit_transaction()
            self.settle([os.path.dirname(snapshot.manifest_list)])

    def _stage(self: Any, work: Transaction, made: Manifest, table: Table | None) -> None:
        note = note_of(made)
        work.set_properties({KEY: note})
        update = work.update_snapshot(snapshot_properties={KEY: note})
        metadata = work.table_metadata
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            files = list(pool.map(lambda file: _data_file(self, metadata, made.layout, file), made.files))
        with update.overwrite() if table is not None and made.replaces else update.fast_append() as snapshot:
            for gone in table.scan().plan_files() if table is not None and made.replaces else ():
                snapshot.delete_data_file(gone.file)
            for file in files:
                snapshot.append_data_file(file)


def _ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield the snapshots that a table is made of, the latest first, as far as they are kept."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _note_in(snapshot: Snapshot) -> str | None:
    return snapshot.summary.additional_properties.get(KEY) if snapshot.summary is not None else None


class _LocalIceberg(_Iceberg, LocalOutput):
    pass


class _RemoteIceberg(_Iceberg, RemoteOutput):
    pass


def _sources(layout: ExportLayout) -> set[str]:
    """Return the columns that a table is divided by."""
    return {_source(name, layout) for name in layout.partition_by}


def _source(name: str, layout: ExportLayout) -> str:
    bucket = Bucket.of(name)
    return bucket.column if bucket else layout.time if name in {DAY, HOUR} else name


def _division(schema: Schema, layout: ExportLayout) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform

    fields = []
    for number, name in enumerate(layout.partition_by, _FIRST_DIVISION):
        source = schema.find_field(_source(name, layout)).field_id
        bucket = Bucket.of(name)
        how: Any = BucketTransform(bucket.count) if bucket else {DAY: DayTransform, HOUR: HourTransform}.get(
            name, IdentityTransform
        )()  # fmt: skip
        fields.append(PartitionField(source, number, how, directory_name(name)))
    return PartitionSpec(*fields)


def _check_division(metadata: TableMetadata, layout: ExportLayout, shown: str) -> None:
    """Refuse files of another division than that of a table.

    Raises:
        Refused: they are.
    """
    schema = metadata.schema()
    divided = [
        f"{field.name} ({field.transform} of {schema.find_column_name(field.source_id)})"
        for field in metadata.spec().fields
    ]
    wanted = list[str]()
    for name in layout.partition_by:
        bucket = Bucket.of(name)
        how = f"bucket[{bucket.count}]" if bucket else name if name in {DAY, HOUR} else "identity"
        wanted.append(f"{directory_name(name)} ({how} of {_source(name, layout)})")
    if divided != wanted:
        raise Refused(
            f"the table {shown} is divided by {', '.join(divided) or 'nothing'}, not by "
            f"{', '.join(wanted) or 'nothing'}; give another directory"
        )


def _schema_with(table: Table | None, wanted: pa.Schema) -> Schema:
    """Return the schema of a table that has these columns, too."""
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    from pyiceberg.schema import assign_fresh_schema_ids

    if table is None:
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(wanted))
    planned = table.transaction()
    with planned.update_schema() as update:
        update.union_by_name(wanted)
    return planned.table_metadata.schema()


def _field_ids(schema: Schema, columns: list[str]) -> dict[str, int]:
    from pyiceberg.schema import index_by_name

    return {
        name: number
        for name, number in index_by_name(schema).items()
        if name.partition(".")[0] in columns and schema.find_column_name(number) == name
    }


def _check_ids(metadata: TableMetadata, made: Manifest, shown: str) -> None:
    """Hold the numbers of columns that files were written with to those of the table now.

    Raises:
        Refused: another has changed them since.
    """
    if made.files:
        _check_division(metadata, made.layout, shown)
        if _field_ids(metadata.schema(), list(made.layout.columns)) != made.layout.field_ids:
            raise Refused(f"the columns of {shown} were changed by another meanwhile; give the command again")


def _schema_of(output: Output, files: list[ExportedFile]) -> Schema:
    """Return the columns of the files with their numbers."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    with output.open(files[0].path) as stream:
        return pyarrow_to_schema(pq.read_schema(stream))


def _data_file(output: Output, metadata: TableMetadata, layout: ExportLayout, file: ExportedFile) -> DataFile:
    """Return what the table is to know of a file, its bounds from its footer."""
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema = metadata.schema()
    with output.open(file.path) as stream:
        found = data_file_statistics_from_parquet_metadata(
            pq.read_metadata(stream), compute_statistics_plan(schema, metadata.properties),
            parquet_path_to_id_mapping(schema),
        )  # fmt: skip
    values = partition_values(file.path, layout)
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path=output.shown(file.path), file_format=FileFormat.PARQUET,
        partition=Record(*(_value(name, values[directory_name(name)]) for name in layout.partition_by)),
        file_size_in_bytes=file.size, sort_order_id=None, spec_id=metadata.default_spec_id, equality_ids=None,
        key_metadata=None, **found.to_serialized_dict(),
    )  # fmt: skip


def _value(name: str, text: str | None) -> Any:
    """Return the value that the directory of a partition names, as the table has it: times as days or hours since
    1970.
    """
    if text is None:
        return None
    if name in {DAY, HOUR}:
        seconds = int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
        return seconds // (86_400 if name == DAY else 3_600)
    return int(text) if Bucket.of(name) or name in {"queue_id", "partition"} else text
