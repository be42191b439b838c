"""Exports as Delta tables: what an export has covered is in the metadata of its commit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from rmqctl.errors import MissingExtra, Refused
from rmqctl.files.remote import is_url
from rmqctl.pipeline.export_manifest import DAY, Bucket, ExportedFile, ExportLayout, Manifest, directory_name
from rmqctl.pipeline.export_tables import KEY, TableOutput, note_of, partition_values
from rmqctl.pipeline.outputs import LocalOutput, Output, RemoteOutput

if TYPE_CHECKING:
    from deltalake import DeltaTable

_KEPT = {"delta.logRetentionDuration": "interval 1000 weeks"}
"""The commit of the last export has to stay among those that readers of the log can see."""
_TYPES = {DAY: pa.date32(), "queue_id": pa.int32(), "partition": pa.int32()}
"""Of columns that are in no file; the others are text."""
_LOG, _RESTORE = "_delta_log", "RESTORE"
_S3 = {"key": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY", "endpoint_url": "AWS_ENDPOINT_URL"}


def delta_at(path: str) -> Output:
    """Return the Delta table at a local path or a URL.

    Raises:
        MissingExtra: the library for it is not installed.
    """
    try:
        import deltalake  # noqa: F401 - whether it is there
    except ModuleNotFoundError as error:
        raise MissingExtra("a Delta table", "delta", error.name or "deltalake") from error
    return _RemoteDelta(path) if is_url(path) else _LocalDelta(os.path.abspath(path))


class _Delta(TableOutput):
    def exists(self: Any) -> bool:
        return _table(self.shown()) is not None

    def noted(self: Any) -> Iterator[str]:
        for commit in _kept(_history(self.shown())):
            if KEY in commit:
                yield commit[KEY]

    def doubt(self: Any) -> str:
        for commit in _kept(_history(self.shown())):
            if KEY in commit:
                break
            if commit.get("operation") == _RESTORE and _restored(commit, []) is None:
                return f"version {commit['version']} restored an earlier one, and does not say which"
        return ""

    def fitted(self: Any, layout: ExportLayout, schema: pa.Schema) -> ExportLayout:
        table = _table(self.shown())
        if table is not None:
            _check_division(table, list(map(directory_name, layout.partition_by)), self.shown())
        return layout

    def commit(self: Any, made: Manifest) -> None:
        _commit(self, _table(self.shown()), made)


class _LocalDelta(_Delta, LocalOutput):
    def commit(self, made: Manifest) -> None:
        before = set(self.names(_LOG))
        super().commit(made)
        self.settle(self.shown(f"{_LOG}/{name}") for name in self.names(_LOG) if name not in before)


class _RemoteDelta(_Delta, RemoteOutput):
    pass


def _table(place: str) -> DeltaTable | None:
    from deltalake import DeltaTable

    options = _options(place)
    return DeltaTable(place, storage_options=options) if DeltaTable.is_deltatable(place, options) else None


def _history(place: str) -> list[dict[str, Any]]:
    table = _table(place)
    return [] if table is None else table.history()


def _kept(history: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the commits that a table is made of, the latest first: none that was taken back by restoring an earlier
    version.
    """
    newest: int | None = None
    for commit in history:
        if newest is None or commit["version"] <= newest:
            newest = _restored(commit, history) if commit.get("operation") == _RESTORE else None
            yield commit


def _restored(commit: dict[str, Any], history: list[dict[str, Any]]) -> int | None:
    """Return the version that a commit restored; by a time it is the last one until then. None where it says none."""
    told = commit.get("operationParameters", {})
    if told.get("version") is not None:
        return int(told["version"])
    if not str(told.get("datetime", "")).isdigit():
        return None  # Spark's times are those of a zone that is not noted
    return max((one["version"] for one in history if one["timestamp"] <= int(told["datetime"])), default=-1)


def _options(place: str) -> dict[str, str] | None:
    """Return settings of fsspec for S3 as this library has them; what is in the environment it finds itself."""
    if not place.startswith("s3"):
        return None
    import fsspec

    given: dict[str, Any] = fsspec.config.conf.get("s3", {})
    found = {theirs: str(given[ours]) for ours, theirs in _S3.items() if given.get(ours)}
    if found.get("AWS_ENDPOINT_URL", "").startswith("http:"):
        found["AWS_ALLOW_HTTP"] = "true"
    if found and not os.environ.get("AWS_REGION") and not os.environ.get("AWS_DEFAULT_REGION"):
        found["AWS_REGION"] = "us-east-1"
    return found


def _commit(output: Output, table: DeltaTable | None, made: Manifest) -> None:
    from deltalake import CommitProperties, Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    layout = made.layout
    adds = [
        AddAction(
            file.path, file.size, partition_values(file.path, layout), made_ms(file), data_change=True,
            stats=orjson.dumps({"numRecords": file.rows}).decode(),
        )
        for file in made.files
    ]  # fmt: skip
    properties = CommitProperties(custom_metadata={KEY: note_of(made)})
    names = list(map(directory_name, layout.partition_by))
    place = output.shown()
    if table is None:
        schema = _schema(output, made.files, layout)
        create_table_with_add_actions(
            place, Schema.from_arrow(schema), adds, "error", names, configuration=_KEPT,
            storage_options=_options(place), commit_properties=properties,
        )  # fmt: skip
        return
    _check_division(table, names, place)  # another may have made it again meanwhile
    if made.files:
        _add_columns(table, _schema(output, made.files, layout))
    mode = "overwrite" if made.replaces else "append"
    table.create_write_transaction([*adds], mode, table.schema(), names, commit_properties=properties)


def _check_division(table: DeltaTable, names: list[str], place: str) -> None:
    """Refuse files of another division than that of a table.

    Raises:
        Refused: they are.
    """
    divided = list(table.metadata().partition_columns)
    if divided != names:
        raise Refused(
            f"the table {place} is divided by {', '.join(divided) or 'nothing'}, not by "
            f"{', '.join(names) or 'nothing'}; give another directory"
        )


def made_ms(file: ExportedFile) -> int:
    """Return the time that a table notes of a file: the latest of its rows, so that the same work gives the same."""
    return max(file.latest or 0, 0)


def _schema(output: Output, files: Iterable[ExportedFile], layout: ExportLayout) -> pa.Schema:
    """Return the columns of the files, and those that they are divided by."""
    with output.open(next(iter(files)).path) as stream:
        schema = pq.read_schema(stream).remove_metadata()
    for name in layout.partition_by:
        kind = pa.int32() if Bucket.of(name) else _TYPES.get(name, pa.string())
        schema = schema.append(pa.field(directory_name(name), kind))
    return schema


def _add_columns(table: DeltaTable, schema: pa.Schema) -> None:
    """Have columns in the table that the files have and it has not; the rows that are there have null in them."""
    from deltalake import Schema

    known = {field.name for field in table.schema().fields}
    missing = [field for field in Schema.from_arrow(schema).fields if field.name not in known]
    if missing:
        table.alter.add_columns(missing)
        table.update_incremental()
