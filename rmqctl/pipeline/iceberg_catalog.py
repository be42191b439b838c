"""Where an Iceberg table says what it is: a catalog, or the directory of the table alone.

Without a catalog the table is one of the file system, as Hadoop's and other readers by path know it: the commit is the
creation of `metadata/vN.metadata.json`, which fails where another was first, and `version-hint.text` names N
(`HadoopTableOperations.commit`). Files are reached as everything else is, by :mod:`rmqctl.files.remote`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog, load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecInputFile, FsspecOutputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from rmqctl.errors import IOFailure, Refused
from rmqctl.files.remote import connect, is_url
from rmqctl.pipeline.outputs import Output

_METADATA = "metadata"
_HINT = f"{_METADATA}/version-hint.text"
_VERSION = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_HERE = ("rmqctl", "table")
"""What a table without a catalog is called; nobody sees it."""
_CATALOG_NAME = "default"
"""Of a catalog that is given by its URI: PyIceberg's own name where nobody gives one."""


class Files(FileIO):
    """Files of a table, for PyIceberg."""

    def new_input(self, location: str) -> InputFile:
        return FsspecInputFile(location, connect(location, {})[0])

    def new_output(self, location: str) -> OutputFile:
        filesystem, path = connect(location, {})
        filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        return FsspecOutputFile(location, filesystem)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        connect(name, {})[0].rm_file(name)


_OURS = {PY_IO_IMPL: f"{Files.__module__}.{Files.__name__}"}


class _Directory(MetastoreCatalog, NoopCatalog):
    """The one table in an output."""

    def __init__(self, output: Output) -> None:
        super().__init__("files", **_OURS)
        self._output = output

    def load_table(self, identifier: Any) -> Table:
        number, name = self._newest()
        if not number:
            raise NoSuchTableError(self._output.shown())
        place = self._output.shown(f"{_METADATA}/{name}")
        io = self._load_file_io(location=place)
        return Table(_HERE, FromInputFile.table_metadata(io.new_input(place)), place, io, self)

    def _newest(self) -> tuple[int, str]:
        """Number and name of the last commit; 0 where there is none."""
        found = ((_VERSION.fullmatch(name), name) for name in self._output.names(_METADATA))
        return max(((int(version[1]), name) for version, name in found if version), default=(0, ""))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        number, _ = self._newest()
        staged = self._update_and_stage_table(
            self.load_table(_HERE) if number else None, table.name(), requirements, updates
        )
        name = f"{_METADATA}/v{number + 1}.metadata.json"
        if not self._output.claim(name, staged.metadata.model_dump_json().encode()):
            raise CommitFailedException(f"{self._output.shown(name)} was written by another")
        self.mend_hint()
        found = {"metadata": staged.metadata, "metadata-location": self._output.shown(name)}
        return CommitTableResponse.model_validate(found)

    def mend_hint(self) -> None:
        """Have readers that go by the hint find the last commit, also after one that was killed before it said so."""
        number, _ = self._newest()
        if number and self._output.read(_HINT) != str(number).encode():
            self._output.write(_HINT, str(number).encode())

    def create_namespace_if_not_exists(self, namespace: Any, properties: Any = None) -> None:
        """A directory has none."""


class Place:
    """A table in its catalog.

    Args:
        output: its directory.
        catalog: a URI, or a name in PyIceberg's configuration; empty for none.
        name: of the table in the catalog: ``namespace.table``.
    """

    def __init__(self, output: Output, catalog: str, name: str) -> None:
        self._shown = catalog or output.shown()
        self.name = tuple(name.split(".")) if catalog else _HERE
        self.location = output.shown()
        with self.asking():
            self.catalog = _catalog(catalog) if catalog else _Directory(output)

    def table(self) -> Table | None:
        """Return the table, None where there is none.

        Raises:
            Refused: the catalog has it at another place.
        """
        with self.asking():
            try:
                found = self.catalog.load_table(self.name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
        if _path(found.location()) != _path(self.location):
            raise Refused(
                f"the table {'.'.join(self.name)} lies in {found.location()}, not in {self.location}; give that as OUT"
            )
        return found

    def mend(self) -> None:
        """Have all readers see the last commit."""
        if isinstance(self.catalog, _Directory):
            self.catalog.mend_hint()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Tell failures of a catalog in words.

        Raises:
            IOFailure: it cannot be asked.
            Refused: another commit was first.
        """
        try:
            yield
        except CommitFailedException as error:
            raise Refused(f"{self._shown} was changed by another meanwhile ({error}); give the command again") from None
        except _failures() as error:
            raise IOFailure(f"cannot use the catalog {self._shown}", " ".join(str(error).split())) from error


def _catalog(text: str) -> Catalog:
    return load_catalog(_CATALOG_NAME, uri=text, **_OURS) if is_url(text) else load_catalog(text, **_OURS)


def _failures() -> tuple[type[Exception], ...]:
    known = (ValueError, ImportError, OSError, RESTError)
    try:
        from sqlalchemy.exc import SQLAlchemyError
    except ModuleNotFoundError:
        return known
    return (*known, SQLAlchemyError)


def _path(location: str) -> str:
    return location.removeprefix("file://").rstrip("/")
