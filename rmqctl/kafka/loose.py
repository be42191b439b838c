"""Files whose names say nothing: their first batch says what they are."""

from __future__ import annotations

from formats.kafka.record_batch import CRC_FROM, FRAME_HEAD, HEADER_SIZE, MAGIC_AT
from rmqctl.files.local import ByteSource

_MOST = 16 << 20


def starts_with_batch(source: ByteSource) -> bool:
    """Whether a file begins with a batch whose CRC matches. Cheap for files that do not even look like it.

    Raises:
        OSError: the file cannot be read.
    """
    head = source.read_at(0, HEADER_SIZE)
    if len(head) <= MAGIC_AT or head[MAGIC_AT] > 2:
        return False
    size = FRAME_HEAD + int.from_bytes(head[8:12], "big", signed=True)
    if not FRAME_HEAD < size <= min(source.size(), _MOST):
        return False
    batch = source.read_at(0, size)
    if head[MAGIC_AT] == 2:
        from crc32c import crc32c

        return size >= HEADER_SIZE and crc32c(batch[CRC_FROM:]) == int.from_bytes(batch[17:21], "big")
    from zlib import crc32

    return crc32(batch[MAGIC_AT:]) == int.from_bytes(batch[12:16], "big")
