"""One record of the log: the eight layouts of its header, its body as the consumer sees it, and where it is read.

Layouts are numbered V2 (4), store host IPv6 (2), born host IPv6 (1), spec 2.1 to 2.4. Bodies are decompressed, inner
batches taken apart (spec 2.3, 2.10, 2.11). Records are read at known offsets as a broker does it for a query, without
trusting the offset.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from formats.errors import DecodeError
from formats.layout import StructPlan, plan_of
from formats.rocketmq.client_batch import BatchItem
from formats.rocketmq.message import Magic, SysFlag, decode_record, record_plan
from formats.rocketmq.properties import is_clean
from formats.rocketmq.property_crc import property_crc, stored_property_crc
from rmqctl.files.local import ByteSource
from rmqctl.filters import DEFAULT_MAX_BODY
from rmqctl.rocketmq.store.files import StoreFile

VARIANTS = 8
HOST_SHIFT = int(SysFlag.BORN_HOST_V6).bit_length() - 1
SMALLEST = 92
"""Bytes of the smallest record with a topic: V1, IPv4 hosts, no body, one letter, no properties."""
_MAGICS = {int(Magic.MESSAGE_V1): 0, int(Magic.MESSAGE_V2): 4}
_TOPIC = re.compile(rb"[%|a-zA-Z0-9_\-+.]{1,255}")


def plan_of_variant(variant: int) -> StructPlan:
    """Return the derived plan of a variant number."""
    return record_plan(bool(variant & 4), (variant & 3) << HOST_SHIFT)


def variant_of(magic: int, sys_flag: int) -> int | None:
    """Return the variant of a record with this MAGICCODE and SYSFLAG; None for a magic that is no message's."""
    kind = _MAGICS.get(magic)
    return None if kind is None else kind | sys_flag >> HOST_SHIFT & 3


@cache
def head_size(variant: int) -> int:
    """Bytes before the body, BODYLEN included."""
    return plan_of_variant(variant).runs[0].packer.size


@cache
def head_offset(name: str, variant: int) -> int:
    """Offset of a fixed header field."""
    return plan_of_variant(variant).runs[0].field(name).offset


MAGIC_AT, SYS_FLAG_AT = head_offset("magic", 0), head_offset("sys_flag", 0)
QUEUE_OFFSET_AT, PHYSICAL_AT = head_offset("queue_offset", 0), head_offset("physical_offset", 0)
"""Offsets of header fields that lie at the same place in all layouts: those before the hosts."""
SIZE_SPAN = slice(head_offset("total_size", 0), MAGIC_AT)
MAGIC_SPAN, CRC_SPAN, FLAGS_SPAN = (slice(at, at + 4) for at in (MAGIC_AT, head_offset("body_crc", 0), SYS_FLAG_AT))
BODY_LENGTH = head_size(0) - head_offset("body", 0)
"""Bytes of BODYLEN, the last header field in all layouts."""
HEAD_SEEN = SYS_FLAG_AT + 4
"""Bytes of a record that show its layout."""


def total_size_of(head: bytes | bytearray) -> int:
    """Return the TOTALSIZE of the record that begins with these bytes."""
    return int.from_bytes(head[SIZE_SPAN], "big", signed=True)


def body_size_of(head: bytes | bytearray, variant: int) -> int:
    """Return the BODYLEN, the last field before the body, of the record that begins with these bytes."""
    return int.from_bytes(head[head_offset("body", variant) : head_size(variant)], "big", signed=True)


def magic_of(head: bytes | bytearray) -> int:
    """Return the MAGICCODE of what begins with these bytes."""
    return int.from_bytes(head[MAGIC_SPAN], "big", signed=True)


def flags_of(head: bytes | bytearray) -> int:
    """Return the SYSFLAG of the record that begins with these bytes, at least :data:`HEAD_SEEN`."""
    return int.from_bytes(head[FLAGS_SPAN], "big")


_NO_LOG = 1 << 48
"""No log is that long."""


def names_place(physical: int) -> bool:
    """Whether a PHYSICALOFFSET names a place in some log; zero and garbage are what destroyed fields say."""
    return 0 < physical < _NO_LOG


def physical_of(head: bytes | bytearray) -> int:
    """Return the PHYSICALOFFSET of the record that begins with these bytes."""
    return int.from_bytes(head[PHYSICAL_AT : PHYSICAL_AT + 8], "big", signed=True)


def likely_variant(head: bytes | bytearray) -> int:
    """Return the variant of a record whose magic may be damaged: V1 and V2 differ in its last byte alone."""
    is_v2 = head[MAGIC_SPAN.stop - 1] == int(Magic.MESSAGE_V2) & 0xFF
    return flags_of(head) >> HOST_SHIFT & 3 | (4 if is_v2 else 0)


def can_be_topic(text: bytes) -> bool:
    """Whether some broker accepts a topic with these bytes; no CRC covers them before 5.1.0."""
    return _TOPIC.fullmatch(text) is not None


def record_name(fields: Mapping[str, Any]) -> str:
    """Return what a whole record is called in plans and books: what it says of its place, and the CRC of its body.

    Args:
        fields: of `decode_record`.
    """
    topic = fields["topic"].decode("utf-8", "backslashreplace")
    place = f"{topic}/{fields['queue_id']}@{fields['queue_offset']} at {fields['physical_offset']}"
    return f"{place} #{fields['body_crc'] & 0xFFFFFFFF:08x}"


def shows_damage(raw: bytes) -> bool:
    """Whether the properties of a whole record, or the CRC over all of it, show that bytes are wrong in it: those that
    the CRC of its body does not cover.
    """
    stored = stored_property_crc(raw)
    return not is_clean(decode_record(raw)[0]["properties"]) or stored not in {None, property_crc(raw)}


def is_same_message(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two whole records say the same of their place, and have the same body.

    Args:
        one, other: of `decode_record`.
    """
    return record_name(one) == record_name(other) and one["body"] == other["body"]


def is_as_good(raw: bytes, other: bytes) -> bool:
    """Whether a whole record has the message of another, and its properties, where those of the other show no damage:
    nothing is lost with the other. Of two that differ and both read well, either may be the true one.
    """
    one, fields = decode_record(raw)[0], decode_record(other)[0]
    return is_same_message(one, fields) and (one["properties"] == fields["properties"] or shows_damage(other))


# --- bodies as the consumer sees them ---------------------------------------------------------------


COMPRESSIONS = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
UNKNOWN = "unknown"
_TYPE_SHIFT, _TYPE_BITS = 8, 7
_COMPRESSED, _INNER_BATCH = int(SysFlag.COMPRESSED), int(SysFlag.INNER_BATCH)


@dataclass(frozen=True, slots=True)
class Body:
    """A body as the consumer sees it.

    Attributes:
        data: the bytes, None where they cannot be decompressed.
        error: why not, as half a sentence; "" when all is well.
    """

    data: bytes | None
    error: str = ""


def compression(sys_flag: int) -> str:
    """``none``, ``zlib``, ``lz4``, ``zstd``, or ``unknown`` for a type no broker writes."""
    if not sys_flag & _COMPRESSED:
        return "none"
    return COMPRESSIONS.get(sys_flag >> _TYPE_SHIFT & _TYPE_BITS, UNKNOWN)


def open_body(stored: bytes, sys_flag: int, limit: int = DEFAULT_MAX_BODY) -> Body:
    """Decompress a stored body as its flag says; never raises on what the bytes are.

    Args:
        limit: bytes that a compressed body may grow to.
    """
    if compression(sys_flag) == "none":
        return Body(stored)
    pieces, size = [], 0
    try:
        for piece in _pieces(stored, sys_flag, limit + 1):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                return Body(None, f"grows beyond {limit} bytes, the limit of --max-body")
    except _NotInflated as error:
        return Body(None, str(error))
    return Body(b"".join(pieces))


def why_not_inflated(stored: bytes, sys_flag: int, limit: int | None = None) -> str:
    """Why a stored body cannot be decompressed as its flag says, as half a sentence; "" when all is well.

    The decompressed bytes are not kept.

    Args:
        limit: bytes after which nobody looks any further.
    """
    if compression(sys_flag) == "none":
        return ""
    size = 0
    try:
        for piece in _pieces(stored, sys_flag, _STEP):
            size += len(piece)
            if limit is not None and size > limit:
                return ""
    except _NotInflated as error:
        return str(error)
    return ""


class _NotInflated(Exception):
    """A stored body is not what its flag says."""


def _pieces(stored: bytes, sys_flag: int, step: int) -> Iterator[bytes]:
    """Yield a body decompressed, in pieces of up to ``step`` bytes (zstd: 16 MiB).

    Raises:
        _NotInflated: an unknown type, bytes of no such codec, or too few of them.
    """
    codec = compression(sys_flag)
    if codec == UNKNOWN:
        raise _NotInflated(f"compression type {sys_flag >> _TYPE_SHIFT & _TYPE_BITS} is not known")
    try:
        ended = yield from _CODECS[codec](stored, step)
    except Exception as error:  # each codec has a class of its own; all mean: not its bytes
        raise _NotInflated(f"is no {codec} data: {error}") from error
    if not ended:
        raise _NotInflated(f"the {codec} data ends early")


Pieces = Generator[bytes, None, bool]
"""Pieces of decompressed data; returns whether the data came to its end."""


def _zlib(stored: bytes, step: int) -> Pieces:
    stream = zlib.decompressobj()
    data = stored
    while not stream.eof:
        piece = stream.decompress(data, step)
        if not piece and not stream.unconsumed_tail and not stream.eof:
            return False
        yield piece
        data = stream.unconsumed_tail
    return True


def _lz4(stored: bytes, step: int) -> Pieces:
    from lz4.frame import LZ4FrameDecompressor

    stream = LZ4FrameDecompressor()
    data = stored
    while not stream.eof:
        piece: bytes = stream.decompress(data, step)
        if not piece and stream.needs_input:
            return False
        yield piece
        data = b""
    return True


def _zstd(stored: bytes, step: int) -> Pieces:  # noqa: ARG001 - its decompressor knows no limit
    from zstandard import ZstdDecompressor

    stream = ZstdDecompressor().decompressobj()
    for at in range(0, len(stored), _PIECE):
        yield stream.decompress(stored[at : at + _PIECE])
        if stream.eof:
            return True
    return False


_STEP = 1 << 16
_PIECE = 512  # grows to at most 16 MiB a step
_CODECS: dict[str, Callable[[bytes, int], Pieces]] = {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}


def is_inner_batch(sys_flag: int) -> bool:
    """Whether the record's body is a batch of messages (topics with queue.type=BatchCQ)."""
    return bool(sys_flag & _INNER_BATCH)


def inner_messages(body: bytes) -> Iterator[dict[str, Any]]:
    """Fields of the messages in the decompressed body of an inner batch, in order (``BatchItem``).

    Raises:
        DecodeError: the body is cut, or an item is not as long as it says.
    """
    at = 0
    while at < len(body):
        fields, after = _ITEM.unpack_from(body, at)
        if fields["total_size"] != after - at:
            raise DecodeError(f"says {fields['total_size']} bytes, spans {after - at}", field="total_size", offset=at)
        yield fields
        at = after


_ITEM = plan_of(BatchItem)


# --- records at known offsets ----------------------------------------------------------------------


_LARGEST_HEAD = max(head_size(variant) for variant in range(VARIANTS))


class LogReader:
    """Random access to a log; files stay open until :meth:`close`. Use as a context manager."""

    def __init__(self, files: list[StoreFile], lead: int = 0) -> None:
        self.files, self.lead = files, lead
        self._bases = [f.base for f in files]
        self._open: dict[int, ByteSource] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files opened so far."""
        for source in self._open.values():
            source.close()
        self._open.clear()

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte of the log; 0 without files."""
        return self._bases[0] if self._bases else 0

    @property
    def max_offset(self) -> int:
        """Physical offset after the last byte of the last file."""
        return self.files[-1].base + self.files[-1].size if self.files else 0

    def file_of(self, physical: int) -> StoreFile | None:
        """Return the file that holds an offset, None if none does."""
        number = self._number_of(physical)
        return self.files[number] if number is not None else None

    def _number_of(self, physical: int) -> int | None:
        at = bisect_right(self._bases, physical) - 1
        return at if at >= 0 and physical < self.files[at].base + self.files[at].size else None

    def read(self, physical: int, size: int) -> bytes:
        """Up to ``size`` bytes at an offset, inside one file; empty where no file holds it."""
        number = self._number_of(physical)
        return self.read_from(number, physical, size) if number is not None and size > 0 else b""

    def read_from(self, number: int, physical: int, size: int) -> bytes:
        """Return up to ``size`` bytes at an offset from file ``number``, where several names claim the offset."""
        file, source = self.files[number], self._open.get(number)
        if source is None:
            if len(self._open) >= 64:
                self.close()
            source = self._open[number] = file.open()
        return source.read_at(physical - file.base, size)

    def head(self, physical: int, size: int = 0) -> tuple[int, bytes] | None:
        """Layout variant and fixed header of the record at an offset; None where no message magic stands.

        Args:
            size: bytes of the record, where somebody says so: as many are read.
        """
        data = self.read(physical, max(size, _LARGEST_HEAD))
        if len(data) < HEAD_SEEN:
            return None
        variant = variant_of(magic_of(data), flags_of(data))
        return (variant, data) if variant is not None and len(data) >= head_size(variant) else None

    def store_timestamp(self, physical: int) -> int | None:
        """Store time of the record at an offset in ms; None where no record begins."""
        head = self.head(physical)
        if head is None:
            return None
        at = head_offset("store_timestamp", head[0])
        return int.from_bytes(head[1][at : at + 8], "big", signed=True)

    def record(self, physical: int) -> bytes | None:
        """Return the bytes of the record at an offset, None where no whole record begins."""
        found = self._decoded(physical)
        return None if found is None else found[0]

    def fields(self, physical: int) -> dict[str, Any] | None:
        """Return the fields of the record at an offset (`decode_record`), None where no whole record begins."""
        found = self._decoded(physical)
        return None if found is None else found[1]

    def _decoded(self, physical: int) -> tuple[bytes, dict[str, Any]] | None:
        head = self.head(physical)
        if head is None:
            return None
        data = self.read(physical, total_size_of(head[1]))
        try:
            fields, after = decode_record(data)
        except DecodeError:
            return None
        return (data, fields) if after == len(data) else None
