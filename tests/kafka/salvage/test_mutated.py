"""Unions made wrong on purpose: a salvage whose segments are changed in one place is not called done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from rmqctl.errors import Unbalanced
from rmqctl.kafka.engine.batch import Ending, end_marker
from rmqctl.kafka.repair.bridge import empty_batch
from rmqctl.kafka.salvage import salvage
from rmqctl.opening import open_store
from tests.kafka.batches import batch, record
from tests.kafka.salvage.salvage_helpers import partition

Batches = list[bytes]
EPOCHS = "0\n2\n0 0\n3 20\n"


def one(base: int, epoch: int = 0, text: bytes = b"value") -> bytes:
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": base, "attributes": 16}
    records = [record(n, b"%d" % (base + n), text) for n in range(2)]
    return batch(base, records, partition_leader_epoch=epoch, **fields)


def marker(base: int, epoch: int) -> bytes:
    return end_marker(Ending(7, 0, commit=True, coordinator_epoch=0, timestamp=5), base, epoch)


LOG = [*(one(base) for base in range(0, 20, 2)), *(one(base, 3) for base in range(20, 38, 2)), marker(38, 3)]
OLD = [one(base, 0, b"overwritten") for base in range(20, 26, 2)]


def closed(data: bytes) -> bytes:
    """A batch whose CRC matches."""
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def at(data: bytes, place: int, value: int, size: int) -> bytes:
    return data[:place] + (value % (1 << 8 * size)).to_bytes(size, "big") + data[place + size :]


def changed(number: int, change: Callable[[bytes], bytes]) -> Callable[[Batches], Batches]:
    return lambda log: [*log[:number], change(log[number]), *log[number + 1 :]]


WRONG: dict[str, Callable[[Batches], Batches]] = {
    "the first batch is left out": lambda log: log[1:],
    "the last batch is left out": lambda log: log[:-1],
    "a batch in the middle is left out": lambda log: [*log[:7], *log[8:]],
    "all after a batch is left out": lambda log: log[:12],
    "nothing is taken": lambda log: [],
    "two batches are turned": lambda log: [*log[:4], log[5], log[4], *log[6:]],
    "what was overwritten is taken": lambda log: [*log[:10], *OLD, *log[13:]],
    "what was overwritten is taken once": changed(11, lambda data: OLD[1]),
    "a body is another": changed(6, lambda data: closed(data[:-4] + b"made")),
    "a bit of a body is another": changed(6, lambda data: data[:-4] + bytes([data[-4] ^ 1]) + data[-3:]),
    "an offset is another": changed(18, lambda data: at(data, 0, 36 + 4, 8)),
    "all offsets are others": lambda log: [at(data, 0, 1 + int.from_bytes(data[:8], "big"), 8) for data in log],
    "a time is another": changed(6, lambda data: closed(at(data, 35, 1, 8))),
    "no producer has it": changed(6, lambda data: closed(at(data, 43, -1, 8))),
    "a sequence number is another": changed(6, lambda data: closed(at(data, 53, 99, 4))),
    "it is in no transaction": changed(6, lambda data: closed(at(data, 21, 0, 2))),
    "it is hidden as a control batch": changed(6, lambda data: closed(at(data, 21, 48, 2))),
    "an empty batch stands for it": changed(6, lambda data: empty_batch(12, 13, 0, 5)),
    "a commit is an abort": changed(-1, lambda data: end_marker(Ending(7, 0, False, 0, 5), 38, 3)),
    "a marker is invented": lambda log: [*log, marker(39, 3)],
    "a record is invented": lambda log: [*log, one(40, 3)],
    "a batch is torn off": changed(-1, lambda data: data[:-5]),
    "zeros lie between batches": lambda log: [*log[:9], bytes(80), *log[9:]],
}


def test_the_union_of_two_disks_is_the_log_of_the_last_leader(tmp_path: Path) -> None:
    salvage_both(tmp_path)
    assert (tmp_path / f"into/t-0/{0:020d}.log").read_bytes() == b"".join(LOG)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_union_that_is_made_wrong_is_not_called_done(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = salvage._write_segments

    def written(directory: Path, *given: Any) -> None:
        write(directory, *given)
        (path,) = directory.glob("*.log")
        path.write_bytes(b"".join(WRONG[wrong](LOG)))

    monkeypatch.setattr(salvage, "_write_segments", written)
    monkeypatch.setattr(salvage._Salvage, "_derive", lambda *given: None)  # it has checks of its own
    with pytest.raises(Unbalanced):
        salvage_both(tmp_path)


def salvage_both(room: Path) -> None:
    """Make the union of a disk that lacks batches in the middle, and one that stopped when another leader began."""
    later = partition(room / "later", "t-0", [*LOG[:3], bytes(len(LOG[3])), *LOG[4:]], EPOCHS)
    earlier = partition(room / "earlier", "t-0", [*LOG[:10], *OLD], "0\n1\n0 0\n")
    store = open_store(str(later))
    store.salvage(room / "into", replicas=[open_store(str(earlier))]).prepare()
