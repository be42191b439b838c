"""Compressing bodies as clients do, and the SysFlag bits that say so (spec 2.3, 2.10)."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from formats.rocketmq.message import SysFlag
from rmqctl.release import Release
from rmqctl.rocketmq.engine.message import MessageRefused, PutStatus

CODECS = ("zlib", "lz4", "zstd")
THRESHOLD = 4096
"""Bytes from which on clients compress (compressMsgBodyOverHowmuch)."""
_TYPES = {"lz4": 1, "zstd": 2, "zlib": 3}
_TYPED = Release(4, 9, 4)
_LEVEL = 5


def compress(body: bytes, codec: str, release: Release) -> tuple[bytes, int]:
    """The stored body and the SysFlag bits.

    Raises:
        MessageRefused: the release knows no such codec.
    """
    if release < _TYPED and codec != "zlib":
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"brokers before {_TYPED} know no {codec}, only zlib; use zlib, or a later release by --as-release",
            "compression",
        )
    kind = _TYPES[codec] << 8 if release >= _TYPED else 0
    return _CODECS[codec](body), int(SysFlag.COMPRESSED) | kind


def _zlib(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL)


def _lz4(body: bytes) -> bytes:
    import lz4.frame

    data: bytes = lz4.frame.compress(body)
    return data


def _zstd(body: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(body)


_CODECS: dict[str, Callable[[bytes], bytes]] = {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}
