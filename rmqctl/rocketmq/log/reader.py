"""Records of the log at known offsets: what a broker does for a query, without trusting the offset."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Self

from formats.errors import DecodeError
from rmqctl.files.local import ByteSource
from rmqctl.rocketmq.log.record import HEAD_SEEN, VARIANTS, flags_of, head_offset, head_size, magic_of, variant_of
from rmqctl.rocketmq.store.files import StoreFile

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
        """Physical offset behind the last byte of the last file."""
        return self.files[-1].base + self.files[-1].size if self.files else 0

    def file_of(self, physical: int) -> StoreFile | None:
        """Return the file that holds an offset, None if none does."""
        number = self._number_of(physical)
        return self.files[number] if number is not None else None

    def _number_of(self, physical: int) -> int | None:
        at = bisect_right(self._bases, physical) - 1
        return at if at >= 0 and physical < self.files[at].base + self.files[at].size else None

    def read(self, physical: int, size: int) -> bytes:
        """Up to ``size`` bytes at an offset, inside one file; empty where no file holds it.

        Raises:
            OSError: the file cannot be read.
        """
        number = self._number_of(physical)
        return self.read_from(number, physical, size) if number is not None and size > 0 else b""

    def read_from(self, number: int, physical: int, size: int) -> bytes:
        """Return the same from file ``number`` of the log, where the names of several claim that offset.

        Raises:
            OSError: the file cannot be read.
        """
        file, source = self.files[number], self._open.get(number)
        if source is None:
            if len(self._open) >= 64:
                self.close()
            source = self._open[number] = file.open()
        return source.read_at(physical - file.base, size)

    def head(self, physical: int) -> tuple[int, bytes] | None:
        """Layout variant and fixed header of the record at an offset; None where no message magic stands."""
        data = self.read(physical, _LARGEST_HEAD)
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
        from formats.rocketmq.message import decode_record

        head = self.head(physical)
        if head is None:
            return None
        data = self.read(physical, int.from_bytes(head[1][:4], "big", signed=True))
        try:
            fields, after = decode_record(data)
        except DecodeError:
            return None
        return (data, fields) if after == len(data) else None
