"""What rmqctl is measured against: the least that anybody could do with the same bytes."""

from __future__ import annotations

import os
from multiprocessing import get_context
from pathlib import Path

from rmqctl.files.local import LocalFile
from rmqctl.rocketmq.log.crc import crc32
from rmqctl.rocketmq.log.scan import Extent, scan

WINDOW = 4 << 20


def body_places(path: Path) -> list[tuple[int, int]]:
    """Begin and end of every body of a log file, found beforehand and not measured."""
    places: list[tuple[int, int]] = []
    for block in scan(LocalFile(path), Extent(path.name, 0)):
        begin = block.body_at + block.start
        places += zip(begin.tolist(), (begin + block.body_size).tolist(), strict=True)
    return places


def read_and_crc(path: Path, places: list[tuple[int, int]]) -> int:
    """Read a file once and compute the CRC of each body at known places; nothing else."""
    buffer = bytearray(WINDOW + (1 << 20))
    view, at, last = memoryview(buffer), 0, 0
    fd = os.open(path, os.O_RDONLY)
    try:
        while at < len(places):
            start = places[at][0]
            end = start + os.preadv(fd, [buffer], start)
            while at < len(places) and places[at][1] <= end:
                a, b = places[at]
                last ^= crc32(view[a - start : b - start])
                at += 1
    finally:
        os.close(fd)
    return last


def read_and_crc_shared(path: Path, places: list[tuple[int, int]], processes: int) -> None:
    """Do the same in several processes, each of which has as many of the bodies: what can be had at most."""
    share = -(-len(places) // processes)
    parts = [places[at : at + share] for at in range(0, len(places), share)]
    started = [get_context("fork").Process(target=read_and_crc, args=(path, part)) for part in parts]
    for process in started:
        process.start()
    for process in started:
        process.join()
        assert process.exitcode == 0


def read_once(path: Path) -> int:
    """Read a file from end to end."""
    buffer, total = bytearray(WINDOW), 0
    fd = os.open(path, os.O_RDONLY)
    try:
        while n := os.preadv(fd, [buffer], total):
            total += n
    finally:
        os.close(fd)
    return total


def open_stat_read_close(paths: list[str]) -> int:
    """What a look at many small files costs at least."""
    total = 0
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        total += len(os.pread(fd, os.fstat(fd).st_size, 0))
        os.close(fd)
    return total
