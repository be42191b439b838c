"""What an export writes and where: formats, partitions, names of files, and the manifest that says what is done."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

import orjson

from rmqctl.errors import Refused

DATA = "data"
"""Where the files of the newest export are, on file systems that have links."""
MANIFEST = "_manifest.json"
"""Says what an export holds; readers of Parquet pass over names that begin with `_` or `.`."""
PENDING = "_pending.json"
"""The plan of an export under way, or broken off."""
DONE = "_done"
"""The directory, below that of the files, of the notes of tasks that are done."""
_VERSION = 2
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


class Format(StrEnum):
    """The formats of an export."""

    PARQUET = "parquet"
    ORC = "orc"
    CSV = "csv"
    JSONL = "jsonl"


class Partition(StrEnum):
    """What files may be divided by, each a directory ``name=value``."""

    TOPIC = "topic"
    DAY = "day"
    HOUR = "hour"
    QUEUE = "queue_id"
    TAGS = "tags"


COMPRESSIONS: dict[Format, tuple[str, ...]] = {
    Format.PARQUET: ("zstd", "snappy", "gzip", "lz4", "none"),
    Format.ORC: ("zstd", "snappy", "zlib", "lz4", "none"),
    Format.CSV: ("zstd", "gzip", "none"),
    Format.JSONL: ("zstd", "gzip", "none"),
}
_SUFFIXES = {"zstd": ".zst", "gzip": ".gz", "none": ""}


@dataclass(frozen=True, slots=True)
class Layout:
    """How the files of an export look.

    Attributes:
        columns: of the table ``messages``, those in directories left out.
        partition_by: directories, the outermost first.
        split_size: bytes of the log that become one set of files.
    """

    format: str
    columns: tuple[str, ...]
    body: str
    partition_by: tuple[str, ...]
    compression: str
    split_size: int

    @property
    def suffix(self) -> str:
        """What names of files end with."""
        packed = "" if self.format in {Format.PARQUET, Format.ORC} else _SUFFIXES[self.compression]
        return f".{self.format}{packed}"

    def directory(self, values: tuple[Any, ...]) -> str:
        """The directory of a partition, in the way of Hive: ``topic=a/day=2026-11-21``."""
        return "/".join(f"{name}={_escaped(value)}" for name, value in zip(self.partition_by, values, strict=True))


def _escaped(value: Any) -> str:
    if value is None or value == "":
        return NULL_PARTITION
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", str(value))


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file.

    Attributes:
        path: relative to the output.
        size: in bytes.
        first_physical_offset, last_physical_offset: of its messages, which are in log order.
        min_store_timestamp, max_store_timestamp: ms; None where no message has a time.
    """

    path: str
    rows: int
    size: int
    first_physical_offset: int
    last_physical_offset: int
    min_store_timestamp: int | None
    max_store_timestamp: int | None


@dataclass(slots=True)
class Manifest:
    """What an export holds.

    Attributes:
        source: the store, as given.
        start, end: physical offsets: every wanted message of ``[start, end)`` is in the files.
        filters: of the messages, by the names of :class:`rmqctl.rocketmq.log.filters.Filter`.
        generation: 1 for the first export into an output, one more for each that follows it.
        replaces: nothing of what was there before stays.
        directory: where the files of this export are written.
    """

    source: str
    layout: Layout
    filters: dict[str, Any]
    start: int
    end: int
    rows: int = 0
    size: int = 0
    files: list[ExportedFile] = field(default_factory=list)
    generation: int = 1
    replaces: bool = False
    directory: str = ""
    version: int = _VERSION

    def dump(self) -> bytes:
        """As JSON."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2)

    @classmethod
    def load(cls, raw: bytes, where: str) -> Manifest:
        """What :meth:`dump` gave.

        Raises:
            Refused: it is no manifest of this release.
        """
        try:
            document = orjson.loads(raw)
            layout: dict[str, Any] = document.pop("layout")
            made = Layout(**{k: tuple(v) if isinstance(v, list) else v for k, v in layout.items()})  # type: ignore[arg-type]
            files = [ExportedFile(**file) for file in document.pop("files")]
            if document.get("version") != _VERSION:
                raise ValueError(f"it is of version {document.get('version')}, made by another release")
            return cls(layout=made, files=files, **document)
        except (ValueError, TypeError, KeyError) as error:
            raise Refused(f"{where} cannot be read: {error}; export into another directory") from None


def directory_of(plan: Manifest, prefix: str) -> str:
    """Where the files of a plan go: a name of its own, and the same when the same plan is made again."""
    facts = (plan.source, asdict(plan.layout), plan.filters, plan.start, plan.end, plan.replaces)
    digest = sha256(orjson.dumps(facts)).hexdigest()[:8]
    return f"{prefix}{plan.generation}-{digest}"
