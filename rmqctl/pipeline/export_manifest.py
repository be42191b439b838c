"""What an export writes and where: formats, partitions, names of files, and the manifest that says what is done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any
from zlib import crc32

import orjson

from rmqctl.errors import MissingExtra, Refused
from rmqctl.parallel import Tally
from rmqctl.tables import Marks, Places

DATA = "data"
"""Where the files of an export are, on file systems where directories can be renamed."""
MANIFEST = "_manifest.json"
"""Says what an export holds; readers of Parquet pass over names that begin with `_` or `.`."""
PENDING = "_pending.json"
"""The plan of an export under way, or broken off."""
OWNER = "_owner.json"
"""At a URL: whose export is at work there."""
DONE = "_done"
"""The directory, below that of the files, of the notes of tasks that are done."""
_VERSION = 3
_READABLE = {2, _VERSION}
"""Before version 3 nobody counted what was read."""
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


class Format(StrEnum):
    """The formats of an export."""

    PARQUET = "parquet"
    ORC = "orc"
    CSV = "csv"
    JSONL = "jsonl"


DAY, HOUR = "day", "hour"
"""What files may be divided by beside columns: the time of a row, in UTC."""

COMPRESSIONS: dict[Format, tuple[str, ...]] = {
    Format.PARQUET: ("zstd", "snappy", "gzip", "lz4", "none"),
    Format.ORC: ("zstd", "snappy", "zlib", "lz4", "none"),
    Format.CSV: ("zstd", "gzip", "none"),
    Format.JSONL: ("zstd", "gzip", "none"),
}
_SUFFIXES = {"zstd": ".zst", "gzip": ".gz", "none": ""}
TARGET_SIZE = 256 << 20
"""Bytes of a file from which on another is begun, where nobody says."""


@dataclass(frozen=True, slots=True)
class ExportLayout:
    """How the files of an export look.

    Attributes:
        columns: of the main table, those in directories left out.
        partition_by: directories, the outermost first.
        split_size: bytes of the log that become one set of files.
        place, time: the columns that say where a row lies, and its time.
        target_size: bytes from which on rows of a partition go into another file.
        field_ids: of Iceberg, the numbers of columns by their names, and of what is in them by names with dots.
    """

    format: str
    columns: tuple[str, ...]
    body: str
    partition_by: tuple[str, ...]
    compression: str
    split_size: int
    place: str = "physical_offset"
    time: str = "store_timestamp"
    target_size: int = TARGET_SIZE
    field_ids: dict[str, int] = field(default_factory=dict)

    @property
    def suffix(self) -> str:
        """What names of files end with."""
        packed = "" if self.format in {Format.PARQUET, Format.ORC} else _SUFFIXES[self.compression]
        return f".{self.format}{packed}"

    def directory(self, values: tuple[Any, ...]) -> str:
        """Return the directory of a partition, in the way of Hive: ``topic=a/day=2026-11-21``. Hive takes empty text
        for null; in Iceberg it is a value.
        """
        names, empty = map(directory_name, self.partition_by), "" if self.field_ids else NULL_PARTITION
        return "/".join(f"{name}={_escaped(value) or empty}" for name, value in zip(names, values, strict=True))

    @property
    def order(self) -> list[str]:
        """Columns by which rows of a row group ascend where a file has rows of several logs, or of several names."""
        named = [bucket.column for name in self.partition_by if (bucket := Bucket.of(name))]
        return [name for name in (*named, self.place) if name in self.columns]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A part of the values of a column: those whose UTF-8 has the same CRC-32, modulo a count. In Iceberg it is the
    hash that the format knows, so that its readers leave out other buckets.

    Few files hold many small topics so, and the column stays in them.
    """

    column: str
    count: int

    @classmethod
    def of(cls, name: str) -> Bucket | None:
        """Return what ``bucket(topic,64)`` or ``bucket(64,topic)`` means; None for the name of a column."""
        found = _BUCKET.fullmatch(name)
        if found is None:
            return None
        one, other = found[1], found[2]
        column, count = (other, one) if one.isdecimal() else (one, other)
        is_count = count.isdecimal() and len(count) <= len(str(_MOST_BUCKETS)) and 0 < int(count) <= _MOST_BUCKETS
        return cls(column, int(count)) if is_count and not column.isdecimal() else None

    def __str__(self) -> str:
        return f"bucket({self.column},{self.count})"

    def number(self, value: Any, *, in_iceberg: bool = False) -> int | None:
        """Return the number of a value's bucket; None for null."""
        if value is None:
            return None
        if in_iceberg:
            return _iceberg_hash(value) % self.count
        return crc32(str(value).encode("utf-8", "surrogatepass")) % self.count


def _iceberg_hash(value: str | int) -> int:
    """Return the hash of a text or a whole number (Iceberg's specification, appendix B: 32-bit Murmur3, x86)."""
    try:
        import mmh3
    except ModuleNotFoundError as error:
        raise MissingExtra("an Iceberg table in buckets", "iceberg", error.name or "mmh3") from error
    data = value.to_bytes(8, "little", signed=True) if isinstance(value, int) else value.encode()
    return mmh3.hash(data) & 0x7FFFFFFF


_MOST_BUCKETS = 1 << 31
"""Numbers of buckets are 32-bit integers."""
_BUCKET = re.compile(r"bucket\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.IGNORECASE)


def directory_name(partition: str) -> str:
    """Return what the directories of a partition are called: by its column, buckets as ``topic_bucket``."""
    bucket = Bucket.of(partition)
    return partition if bucket is None else f"{bucket.column}_bucket"


def _escaped(value: Any) -> str:
    if value is None:
        return NULL_PARTITION
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", str(value))


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file.

    Attributes:
        path: relative to the output.
        size: in bytes.
        first, last: the least and the greatest place of its rows, by the column that says where a row lies.
        earliest, latest: of the times of its rows, ms; None where none has a time.
    """

    path: str
    rows: int
    size: int
    first: int
    last: int
    earliest: int | None
    latest: int | None

    def document(self, place: str, time: str) -> dict[str, Any]:
        """As JSON has it: with the names of the columns, such as ``first_physical_offset``, ``min_store_timestamp``."""
        found = asdict(self)
        return {_name_in_json(name, place, time): value for name, value in found.items()}

    @classmethod
    def around(cls, files: Sequence[ExportedFile]) -> ExportedFile:
        """Return bounds that hold for the rows of all of some files; no path, rows and bytes."""
        times = [ms for file in files for ms in (file.earliest, file.latest) if ms is not None]
        first, last = min(file.first for file in files), max(file.last for file in files)
        return cls("", 0, 0, first, last, min(times, default=None), max(times, default=None))

    @classmethod
    def of(cls, document: dict[str, Any], place: str, time: str) -> ExportedFile:
        """Return what :meth:`document` gave.

        Raises:
            KeyError: something is missing.
        """
        return cls(**{name: document[_name_in_json(name, place, time)] for name in cls.__slots__})


def _name_in_json(name: str, place: str, time: str) -> str:
    named = {"first": f"first_{place}", "last": f"last_{place}", "earliest": f"min_{time}", "latest": f"max_{time}"}
    return named.get(name, name)


@dataclass(slots=True)
class Manifest:
    """What an export holds.

    Attributes:
        source: the store, as given.
        start, end: every wanted row between these places is in the files.
        marks: what lay in front of ``end``; an export of an earlier release has none.
        filters: of the rows, as its family has them.
        generation: 1 for the first export into an output, one more for each that follows it.
        replaces: nothing of what was there before stays.
        directory: where the files of this export are written.
        merged: files of the export before that are in larger ones now.
        compact: small files were put together.
        read: what was read of the log for the rows, and what was left out; None where an export before did not count.
    """

    source: str
    layout: ExportLayout
    filters: dict[str, Any]
    start: Places
    end: Places
    marks: Marks = field(default_factory=dict)
    rows: int = 0
    size: int = 0
    files: list[ExportedFile] = field(default_factory=list)
    generation: int = 1
    replaces: bool = False
    directory: str = ""
    merged: list[str] = field(default_factory=list)
    compact: bool = False
    read: Tally | None = field(default_factory=Tally)
    version: int = _VERSION

    def of(self, files: list[ExportedFile]) -> Manifest:
        """Return the manifest of an export that has these files."""
        return replace(self, files=files, rows=sum(f.rows for f in files), size=sum(f.size for f in files))

    def covers(self) -> tuple[Any, Any]:
        """Start and end as JSON has them: a number where the log has only one place."""
        names = {*self.start, *self.end}
        one = len(names) == 1 and self.layout.place in names
        return tuple(places.get(self.layout.place, 0) if one else places for places in (self.start, self.end))  # type: ignore[return-value]

    def dump(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self.document(), option=orjson.OPT_INDENT_2)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        document: dict[str, Any] = {
            name: getattr(self, name) for name in Manifest.__slots__ if name not in {"layout", "files"}
        }
        document["read"] = None if self.read is None else self.read.document()
        document["start"], document["end"] = self.covers()
        document["layout"] = asdict(self.layout)
        if not self.layout.field_ids:
            del document["layout"]["field_ids"]
        document["files"] = [file.document(self.layout.place, self.layout.time) for file in self.files]
        return document

    @classmethod
    def load(cls, raw: bytes, where: str) -> Manifest:
        """Return what :meth:`dump` gave.

        Raises:
            Refused: it is no manifest of this release.
        """
        try:
            document = orjson.loads(raw)
            if document.get("version") not in _READABLE:
                raise ValueError(f"it is of version {document.get('version')}, made by another release")
            given: dict[str, Any] = document.pop("layout")
            layout = ExportLayout(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})  # type: ignore[arg-type]
            files = [ExportedFile.of(file, layout.place, layout.time) for file in document.pop("files")]
            for name in ("start", "end"):
                if isinstance(document[name], int):
                    document[name] = {layout.place: document[name]}
            read = document.pop("read", None)
            return cls(layout=layout, files=files, read=None if read is None else Tally.of(read), **document)
        except (ValueError, TypeError, KeyError) as error:
            raise Refused(f"{where} cannot be read: {error}; export into another directory") from None


def directory_of(plan: Manifest, prefix: str) -> str:
    """Where the files of a plan go: a name of its own, and the same when the same plan is made again."""
    facts = (
        plan.source,
        asdict(plan.layout),
        plan.filters,
        plan.start,
        plan.end,
        plan.marks,
        plan.replaces,
        plan.compact,
        plan.version,
    )
    digest = sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:8]
    return f"{prefix}{plan.generation}-{digest}"
