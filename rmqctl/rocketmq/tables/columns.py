"""Bodies of a block's records as Arrow columns, and what a reader of a table may ask for.

Bodies come in pieces that stay small however far they decompress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from formats.errors import DecodeError
from formats.rocketmq.message import SysFlag
from rmqctl.rocketmq.dump.messages import packed, slices
from rmqctl.rocketmq.dump.properties import PROPERTIES, TEXTS
from rmqctl.rocketmq.dump.record import RowOptions, show_properties
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.log.record import inner_messages, open_body
from rmqctl.rocketmq.queues.moment import at_one_moment
from rmqctl.rocketmq.store.files import StoreFiles, forgiving
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.tables import Look, cores, flag, level, names, options_of, split_size
from rmqctl.text import milliseconds_of, name_of

MOST_BYTES = 32 << 20
"""Bytes of decompressed bodies in one piece, the last one of it not counted."""

_MAX_BODY = 256 << 20
_COMPRESSED, _INNER = int(SysFlag.COMPRESSED), int(SysFlag.INNER_BATCH)

INNER = pa.list_(
    pa.struct(
        [
            ("queue_offset", pa.int64()),
            ("size", pa.int32()),
            ("flag", pa.int32()),
            ("tags", pa.string()),
            ("keys", TEXTS),
            ("unique_key", pa.string()),
            ("properties", PROPERTIES),
            ("body_size", pa.int32()),
            ("body", pa.binary()),
        ]
    )
)
"""Messages of an inner batch."""


class BodyOption(StrEnum):
    """What the column ``body`` holds: the body ``decompressed``, as ``stored``, or there is ``none``."""

    DECOMPRESSED = "decompressed"
    STORED = "stored"
    NONE = "none"


def pieces(block: Block) -> Iterator[tuple[Block, dict[int, bytes | None]]]:
    """Yield the block in pieces, each with the decompressed bodies of its records that are not stored plain, by row."""
    packed = np.flatnonzero((block["sys_flag"] & (_COMPRESSED | _INNER)) != 0)
    if not len(packed):
        yield block, {}
        return
    begin, size, opened = 0, 0, {}
    stored = slices(block, block.body_at[packed], block.body_size[packed])
    flags = block["sys_flag"][packed].tolist()
    for row, bits, raw in zip(packed.tolist(), flags, stored, strict=True):
        opened[row - begin] = data = open_body(raw, bits, _MAX_BODY).data
        size += len(data or b"")
        if size >= MOST_BYTES:
            yield block.take(slice(begin, row + 1)), opened
            begin, size, opened = row + 1, 0, {}
    if begin < len(block):
        yield block.take(slice(begin, len(block))), opened


def stored_bodies(block: Block) -> Any:
    """Return the bodies as stored."""
    return packed(block, block.body_at, block.body_size)


def open_bodies(block: Block, opened: dict[int, bytes | None]) -> Any:
    """Return the bodies as the consumer sees them."""
    if not opened:
        return stored_bodies(block)
    bodies: list[bytes | None] = list(slices(block, block.body_at, block.body_size))
    for row, data in opened.items():
        bodies[row] = data
    return pa.array(bodies, pa.binary())


def open_sizes(block: Block, opened: dict[int, bytes | None]) -> Any:
    """Bytes of the bodies as the consumer sees them."""
    sizes, missing = block.body_size.astype(np.int32), np.zeros(len(block), np.bool_)
    for row, data in opened.items():
        sizes[row], missing[row] = len(data or b""), data is None
    return pa.array(sizes, mask=missing)


def inner_column(block: Block, opened: dict[int, bytes | None]) -> Any:
    """Return the messages of inner batches."""
    flags, bases = block["sys_flag"], block["queue_offset"]
    found: list[list[dict[str, Any]] | None] = [None] * len(block)
    for row, data in opened.items():
        if int(flags[row]) & _INNER:
            found[row] = list(_inner(data or b"", int(bases[row])))
    return pa.array(found, INNER)


def _inner(body: bytes, base: int) -> Iterator[dict[str, Any]]:
    try:
        for offset, fields in enumerate(inner_messages(body), base):
            properties = show_properties(fields["properties"], _AS_TEXT)
            yield {
                "queue_offset": offset,
                "size": fields["total_size"],
                "flag": fields["flag"],
                "tags": properties.tags,
                "keys": properties.keys,
                "unique_key": properties.unique_key,
                "properties": list(properties.properties.items()),
                "body_size": len(fields["body"]),
                "body": fields["body"],
            }
    except DecodeError:
        return


class _TextOptions(RowOptions):
    """Values as text always, where JSON would have an object of base64."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        return name_of


_AS_TEXT = _TextOptions()


_FILTER_NAMES = ("topics", "queue_id", "after", "before", "from_offset", "to_offset")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of a table.

    Attributes:
        path: of the store, local or a URL.
        columns: the wanted ones; None for all.
        body: what the column ``body`` of messages holds.
        split_size: bytes of the log in one task; None: by the size of the log and the cores.
        wanted: only these messages.
        skip: leave out files and splits in which nothing wanted can lie.
        level: of the checks that ``findings`` runs.
        cores: tasks that run at once; None where nobody knows.
        look: at the store, which all options share that were made of these.
    """

    path: str
    columns: tuple[str, ...] | None = None
    body: BodyOption = BodyOption.DECOMPRESSED
    split_size: int | None = None
    wanted: Filter = field(default_factory=Filter)
    skip: bool = True
    level: str = "full"
    commit_log: tuple[str, ...] = ()
    broker_conf: str | None = None
    cores: int | None = None
    look: Look = field(default_factory=Look, compare=False, repr=False)

    def store(self) -> StoreFiles:
        """Return the store as it was when these options were first asked for it; see :meth:`live`."""
        return self.look.at(lambda: at_one_moment(self.live()))

    def live(self) -> StoreFiles:
        """Return the store as it is now; what cannot be read in it counts as empty, so that no task dies of it.

        Raises:
            NotAStore: there is none at the path.
        """
        return forgiving(open_store_at(self.path, commit_log=self.commit_log, broker_conf=self.broker_conf))


def table_options(given: Mapping[str, str]) -> TableOptions:
    """Options as Spark hands them over: text by name, names in any case.

    Raises:
        BadOption: one is not known, or its value is no such thing.
    """
    made = options_of("rocketmq", given, _OPTIONS)
    wanted = {name: made.pop(name) for name in _FILTER_NAMES if name in made}
    return TableOptions(wanted=Filter(**wanted), **made)


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "path": ("path", str),
    "columns": ("columns", names),
    "body": ("body", BodyOption),
    "splitSize": ("split_size", split_size),
    "cores": ("cores", cores),
    "skip": ("skip", flag),
    "level": ("level", level),
    "commitLog": ("commit_log", names),
    "brokerConf": ("broker_conf", str),
    "topic": ("topics", names),
    "queue": ("queue_id", int),
    "partition": ("queue_id", int),
    "after": ("after", milliseconds_of),
    "before": ("before", milliseconds_of),
    "fromOffset": ("from_offset", int),
    "toOffset": ("to_offset", int),
}
"""What each option sets, and what makes its value of the text."""
