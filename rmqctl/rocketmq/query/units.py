"""Units of one queue file, read one by one where a search needs them, without NumPy (spec 3.1, 3.6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from formats.layout import plan_of
from formats.rocketmq.batch_consumequeue import BatchConsumeQueueUnit
from formats.rocketmq.consumequeue import PRE_BLANK_SIZE, ConsumeQueueUnit
from rmqctl.files.local import ByteSource
from rmqctl.rocketmq.store.files import StoreFile

_SIMPLE = plan_of(ConsumeQueueUnit).runs[0].packer
_BATCH = plan_of(BatchConsumeQueueUnit).runs[0].packer
UNIT_SIZE, BATCH_UNIT_SIZE = _SIMPLE.size, _BATCH.size
_PAGE = 4096
_PAGES = 64
CHUNK = 1 << 14
"""Units that stay in the processor's cache."""
_SIGN = 0x80


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of any kind of queue.

    Attributes:
        queue_offset: of the message; of a batch the first.
        physical_offset, size: the record in the log, in bytes.
        tags_code: as stored; None for a unit that only a broker's start would make.
        store_timestamp: ms, where the unit itself has it.
        count: messages that the unit stands for.
    """

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int | None
    store_timestamp: int | None = None
    count: int = 1

    @property
    def is_filler(self) -> bool:
        """A unit in front of the first real one, which stands for nothing (spec 3.4)."""
        return self.physical_offset == 0 and self.size == PRE_BLANK_SIZE


@dataclass(slots=True)
class UnitFile:
    """The units of one queue file.

    Attributes:
        name: relative to the store.
        base: offset of the file's first byte in the sequence.
        capacity: units that fit.
        stored: units that count.
        mtime_ms: last modification; None for a file that a broker's start would write.
        is_batch: units of a batch queue.
        chunk: units read at a time where many are.
    """

    name: str
    base: int
    capacity: int
    stored: int
    mtime_ms: int | None
    is_batch: bool = False
    _source: ByteSource | None = None
    _file: StoreFile | None = None
    _pages: dict[int, bytes] = field(default_factory=dict)
    chunk: int = CHUNK

    @classmethod
    def of(cls, file: StoreFile, *, is_batch: bool = False, chunk: int = CHUNK) -> UnitFile:
        """Return a file on disk; all its room counts as written until somebody looks (:meth:`cut`)."""
        size = BATCH_UNIT_SIZE if is_batch else UNIT_SIZE
        count = max(file.size, 0) // size
        return cls(file.name, file.base, count, count, file.mtime_ms, is_batch, _file=file, chunk=chunk)

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        return BATCH_UNIT_SIZE if self.is_batch else UNIT_SIZE

    def __len__(self) -> int:
        return self.stored

    def __iter__(self) -> Iterator[Unit]:
        return map(self.unit, range(len(self)))

    def unit(self, number: int) -> Unit:
        """Return unit ``number`` of the file, 0 <= number < len."""
        data = self._read(number * self.unit_size, self.unit_size)
        if self.is_batch:
            physical, size, tags, stored, base, count = _BATCH.unpack(data)[:6]
            return Unit(base, physical, size, tags, stored, count)
        return Unit(self.base // UNIT_SIZE + number, *_SIMPLE.unpack(data))

    def cut(self) -> bool:
        """Let only the units in front of the first that is not valid count; whether all of the file's room counts."""
        source, size, self.stored = self._open(), self.unit_size, 0
        while self.stored < self.capacity:
            data = source.read_at(self.stored * size, min(self.chunk, self.capacity - self.stored) * size)
            valid = valid_prefix(data, size, is_batch=self.is_batch)
            self.stored += valid
            if valid < self.chunk:
                break
        return self.stored == self.capacity

    def bytes_from(self, number: int) -> int:
        """Bytes of the records that the units from a number on stand for; fillers do not count."""
        total = 0
        while number < self.stored:
            count = min(self.chunk, self.stored - number)
            total += _sizes(self._open().read_at(number * self.unit_size, count * self.unit_size), self.unit_size)
            number += count
        return total

    def close(self) -> None:
        """Close the file."""
        if self._source is not None and self._file is not None:
            self._source.close()
            self._source = None

    def _open(self) -> ByteSource:
        if self._source is None:
            assert self._file is not None
            self._source = self._file.open()
        return self._source

    def _read(self, at: int, size: int) -> bytes:
        """Bytes of the file, zeros where it has shrunk, by pages that are kept."""
        page, inside = divmod(at, _PAGE)
        data = self._page(page)[inside : inside + size]
        if len(data) < size:
            data += self._page(page + 1)[: size - len(data)]
        return data.ljust(size, b"\0")

    def _page(self, number: int) -> bytes:
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= _PAGES:
                self._pages.clear()
            page = self._pages[number] = self._open().read_at(number * _PAGE, _PAGE)
        return page


def valid_prefix(data: bytes, unit_size: int, *, is_batch: bool = False) -> int:
    """How many units lie in front of the first that a broker takes for unwritten (ConsumeQueue.recover, spec 3.1).

    Columns of bytes are compared as whole numbers, which is as quick as arrays.
    """
    count = len(data) // unit_size
    data = data[: count * unit_size]
    size = [data[at::unit_size] for at in range(8, 12)]
    written = size[0]
    for column in size[1:]:
        written = _either(written, column)
    end = written.find(b"\0")
    end = count if end < 0 else end
    for column in (data[0::unit_size], size[0]):
        if not column[:end].isascii():  # a negative offset or size
            end = next(i for i, byte in enumerate(column) if byte >= _SIGN)
    return _batch_prefix(data, end) if is_batch else end


def _sizes(data: bytes, unit_size: int) -> int:
    """Sizes of sound units added up, byte column by byte column; fillers taken off again."""
    columns = [data[at::unit_size] for at in range(8, 12)]
    total = sum(sum(column) << shift for column, shift in zip(columns, (24, 16, 8, 0), strict=True))
    fillers = columns[0].count(PRE_BLANK_SIZE >> 24) if unit_size == UNIT_SIZE else 0
    return total - fillers * PRE_BLANK_SIZE


def _either(a: bytes, b: bytes) -> bytes:
    """Bitwise or of two columns."""
    return (int.from_bytes(a, "big") | int.from_bytes(b, "big")).to_bytes(len(a), "big")


def _batch_prefix(data: bytes, end: int) -> int:
    """Return how many batch units are whole in what they need besides: a base offset and a count."""
    for number, unit in enumerate(_BATCH.iter_unpack(data[: end * BATCH_UNIT_SIZE])):
        if unit[4] < 0 or unit[5] <= 0:
            return number
    return end
