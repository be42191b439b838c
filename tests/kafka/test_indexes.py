"""Indexes and snapshots of the golden directories against what the official tool printed of them."""

from __future__ import annotations

import re

import pytest

from fixtures import golden
from rmqctl.files.local import BytesSource
from rmqctl.kafka.directory.directory import LogDirectory
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.log.indexes import (
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_txn_index,
)


def printed(name: str) -> dict[str, list[str]]:
    """Lines that the official tool printed of each file that it came through; it stops at the first it cannot read."""
    found: dict[str, list[str]] = {}
    for _, stream, lines in golden.dump_text(name):
        for line in lines if stream == "stdout" else []:
            if line.startswith("Dumping "):
                current = found.setdefault(line.removeprefix("Dumping "), [])
            else:
                current.append(line)
    return {file: lines for file, lines in found.items() if lines is not current}


def test_entries_equal_the_official_text(golden_name: str, directory: LogDirectory) -> None:
    texts, seen = printed(golden_name), 0
    for file in directory.all_files():
        if file.name not in texts:
            continue
        lines = [line for line in texts[file.name] if line.startswith(("offset: ", "timestamp: ", "version: "))]
        numbers = [tuple(map(int, re.findall(r"-?\d+", line))) for line in lines]
        source = file.open()
        if file.kind is FileKind.OFFSET_INDEX and not file.is_leftover:
            index = read_offset_index(source)
            entries = list(zip(index.offsets(file.base).tolist(), index.positions.tolist(), strict=True))
            assert entries == numbers or (numbers == [(file.base, 0)] and not entries), file.name
        elif file.kind is FileKind.TIME_INDEX and not file.is_leftover:
            times = read_time_index(source)
            entries = list(zip(times.timestamps.tolist(), times.offsets(file.base).tolist(), strict=True))
            assert entries == numbers or (numbers == [(0, file.base)] and not entries), file.name
        elif file.kind is FileKind.TXN_INDEX and not file.is_leftover:
            index = read_txn_index(source)
            assert [tuple(row) for row in index.slots.tolist()] == numbers, file.name
        seen += len(lines)
        source.close()
    assert seen > 50


def test_snapshots_equal_the_official_text(golden_name: str, directory: LogDirectory) -> None:
    texts, seen = printed(golden_name), 0
    for partition in directory.partitions:
        for file in partition.snapshots:
            found = read_producer_snapshot(file.open())
            assert found.is_good, (file.name, found.problem)
            wanted = [line for line in texts.get(file.name, ()) if line.startswith("producerId")]
            if file.name not in texts:
                continue
            assert len(found.rows()) == len(wanted)
            for row in found.rows():
                head = f"producerId: {row['producer_id']} producerEpoch: {row['producer_epoch']} "
                assert [line for line in wanted if line.startswith(head)], (file.name, row)
                seen += 1
    assert seen > 5 or not golden_name.endswith("clean") or golden_name.startswith("2.8.2")


@pytest.mark.parametrize("data", [b"", b"\1", bytes(8), bytes(10), bytes(23), b"\0\1" + bytes(50)])
def test_any_bytes(data: bytes) -> None:
    assert len(read_offset_index(BytesSource(data))) <= len(data) // 8
    assert len(read_time_index(BytesSource(data))) <= len(data) // 12
    assert len(read_txn_index(BytesSource(data))) == len(data) // 34
    snapshot = read_producer_snapshot(BytesSource(data))
    assert snapshot.problem
    assert snapshot.rows() == []


def test_padding_and_rest_are_counted() -> None:
    index = read_offset_index(BytesSource(bytes(4) + (70000).to_bytes(4, "big") + bytes(8 * 3 + 5)))
    assert (len(index), index.padding, index.rest) == (1, 3, 5)
    assert index.offsets(100).tolist() == [100]
    assert index.positions.tolist() == [70000]
