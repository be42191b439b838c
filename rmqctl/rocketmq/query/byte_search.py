"""Bytes found in an array of bytes without copying it, at the speed of the C library."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

from rmqctl.rocketmq.block import Bytes8

Find = Callable[[Bytes8, bytes, int], int]


def _memmem() -> Find | None:
    """``memmem(3)``, which where it exists passes over a window about twice as fast as ``bytes.find``."""
    if sys.platform == "win32":
        return None
    try:
        call = ctypes.CDLL(None).memmem
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)

    def find(data: Bytes8, text: bytes, start: int) -> int:
        begin, left = data.ctypes.data, len(data) - start
        at = call(begin + start, left, text, len(text)) if left > 0 else None
        return -1 if at is None else int(at) - begin

    return find


def find_in_copy(data: Bytes8, text: bytes, start: int) -> int:
    """The same by ``bytes.find``, on a copy."""
    at = data[start:].tobytes().find(text)
    return at if at < 0 else at + start


find: Find = _memmem() or find_in_copy
"""Index of the first byte of ``text`` in one-dimensional contiguous ``data`` at or behind ``start``, -1 without one."""


__all__ = ["find", "find_in_copy"]
