"""`dump -o hex`: every byte of every file is shown once, in order, under a name."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectory, LogFile, read_directory, read_partition
from rmqctl.kafka.dump.annotate import annotate
from tests.conftest import Rmqctl
from tests.kafka.batches import batch, message, record, segment


def check_cover(file: LogFile) -> bool:
    """Whether anything is wrong in it."""
    at, wrong = 0, False
    for note in annotate(file):
        assert note.offset == at, (file.name, note)
        at, wrong = note.end, wrong or note.wrong
    assert at == max(file.size, 0), file.name
    return wrong


@pytest.mark.parametrize("name", ["2.8.2-clean", "4.3.1-crash"])
def test_every_byte_of_a_golden_directory(name: str) -> None:
    found: LogDirectory = read_directory(LocalTree(golden.pristine(name)))
    for file in found.all_files():
        if file.size < 1 << 20:
            assert not check_cover(file), file.name


@pytest.mark.parametrize("end", ["index", "timeindex", "txnindex", "snapshot"])
def test_a_giant_is_not_read_whole(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"{0:020}.{end}"
    with path.open("wb") as giant:
        giant.write(bytes(range(1, 100)))
        giant.truncate(3 << 30)
    (file,) = read_partition(LocalTree(str(tmp_path)), "").files
    notes = annotate(file)
    tracemalloc.start()
    at = 0
    for note in notes if end != "snapshot" else islice(notes, 1000):
        assert note.offset == at
        at = note.end
    assert at == 3 << 30 or end == "snapshot"
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


def test_fields_of_a_batch(tmp_path: Path, rmqctl: Rmqctl) -> None:
    file = tmp_path / f"{0:020d}.log"
    file.write_bytes(
        batch(7, [record(0, b"key", b"value", 5, [(b"h", None)])], producer_id=9) + message(8, b"k", None, 1)
    )
    lines = rmqctl("dump", file, "-o", "hex").stdout
    for text in (
        "offsets 7 to 7, 1 records",
        "producer_id: 9",
        "crc: ",
        'key: "key"',
        'value: "value"',
        "timestamp_delta: 5",
        "magic 1",
    ):
        assert text in lines, text


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_any_damage_is_covered(cut: int, tmp_path: Path) -> None:
    data = b"".join(segment(3)) + message(9, b"k", b"v", 0)
    (tmp_path / f"{0:020d}.log").write_bytes(data[:cut] + b"\xff\x00\x07" * 3 + data[cut + 3 :] + bytes(40))
    (tmp_path / f"{0:020d}.index").write_bytes(data[:cut])
    (tmp_path / f"{0:020d}.snapshot").write_bytes(data[:cut])
    for file in read_partition(LocalTree(tmp_path), "").files:
        check_cover(file)


def test_only_damage(tmp_path: Path, rmqctl: Rmqctl) -> None:
    parts = segment(3)
    file = tmp_path / f"{0:020d}.log"
    file.write_bytes(parts[0] + b"\xff" * 20 + parts[1] + parts[2])
    result = rmqctl("dump", file, "-o", "hex", "--damaged")
    assert result.exit_code == 1
    assert "size is -1" in result.stdout
    assert "offsets 3 to 5" not in result.stdout
