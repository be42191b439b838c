"""Bytes of the log from another store of the same group: replicas hold the same log at the same offsets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formats.errors import DecodeError
from formats.rocketmq.message import Magic, body_crc, decode_record
from rmqctl.findings import Severity
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.commitlog import FileContext, LogState, walk_file
from rmqctl.rocketmq.crc import body_crcs
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.store import RocketMQStore

_COMPARED = 256
"""Bytes in front of a range that must be equal in both stores."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The bytes of a range as a replica has them, and what shows that it is the same log."""

    data: bytes
    proof: str


class Replica:
    """Another store, read only.

    Args:
        store: of the same broker group; its files may begin and end elsewhere.
    """

    def __init__(self, store: RocketMQStore) -> None:
        self.store = store
        self._log = LogReader(store.log_files)

    def restore(self, log: LogReader, begin: int, end: int) -> Restored | None:
        """The range ``[begin, end)``; None if it is not there, not sound, or its neighbours differ.

        Args:
            log: the log to be mended.

        Raises:
            OSError: a file cannot be read.
        """
        data = self._log.read(begin, end - begin)
        if len(data) != end - begin or not _is_sound(data, begin):
            return None
        front, behind = self._front(log, begin), self._behind(log, end)
        if False in (front, behind) or (front is None and behind is None):
            return None
        sides = [name for name, equal in (("in front", front), ("behind", behind)) if equal]
        return Restored(
            data,
            f"{self.store.root} has sound records there, and the bytes {' and '.join(sides)} are equal in both stores",
        )

    def file(self, base: int, size: int, *, is_last: bool = False) -> bytes | None:
        """The whole file that begins at an offset; None if it is not there or has damage.

        Args:
            is_last: it is the last of its log, and need not be full.

        Raises:
            OSError: it cannot be read.
        """
        file = next((f for f in self.store.log_files if f.base == base and f.size == size), None)
        if file is None:
            return None
        state = LogState()
        for found in walk_file(FileContext(file, followed=not is_last), state):
            if any(f.level is not Severity.NOTE for f in found.findings) or len(_body_crc_rows(found.block)):
                return None
        return self._log.read(base, size)

    def _front(self, log: LogReader, begin: int) -> bool | None:
        """Whether the bytes in front are equal; None at the begin of a file."""
        file = log.file_of(begin)
        size = min(_COMPARED, begin - file.base) if file else 0
        return log.read(begin - size, size) == self._log.read(begin - size, size) if size else None

    def _behind(self, log: LogReader, end: int) -> bool | None:
        """Whether the record behind is equal; None where no record is."""
        own = log.record(end)
        return own == self._log.read(end, len(own)) if own else None


def _body_crc_rows(block: Block) -> Ints:
    """Rows whose body does not fit its CRC."""
    return np.flatnonzero((block["body_crc"].astype(np.int64) != body_crcs(block)) & (block.body_size > 0))


def _is_sound(data: bytes, begin: int) -> bool:
    """Whether records, each at the place it states and with a right body CRC, fill the bytes exactly."""
    at = 0
    while at < len(data):
        if int.from_bytes(data[at + 4 : at + 8], "big", signed=True) == Magic.BLANK:
            return int.from_bytes(data[at : at + 4], "big") == len(data) - at
        try:
            fields, after = decode_record(data, at)
        except DecodeError:
            return False
        crc = body_crc(fields["body"]) if fields["body"] else fields["body_crc"]
        if fields["physical_offset"] != begin + at or fields["body_crc"] != crc:
            return False
        at = after
    return at == len(data)
