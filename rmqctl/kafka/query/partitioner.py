"""Which partition something belongs to: records by key as clients choose, names as brokers do."""

from __future__ import annotations

_M, _R = 0x5BD1E995, 24
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash that Kafka's default partitioner takes of a key, unsigned."""
    size = len(data)
    h = (_SEED ^ size) & _MASK
    for at in range(0, size - size % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> _R) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[size - size % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition that the default partitioner of the Java client chooses for a key."""
    return (murmur2(key) & _POSITIVE) % partitions


def partition_of_name(name: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` or ``__transaction_state`` for a group or a transactional id."""
    units = name.encode("utf-16-be", "surrogatepass")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[at : at + 2], "big")) & _MASK
    signed = h - (1 << 32) if h >> 31 else h
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
