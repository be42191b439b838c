"""What tests share with test_salvage: one, partition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.kafka.batches import batch, record


def partition(root: Path, name: str, batches: Sequence[bytes], epochs: str = "") -> Path:
    """A log directory with one partition of one segment."""
    place = root / name
    place.mkdir(parents=True)
    (root / "meta.properties").write_text("version=1\nnode.id=4\ncluster.id=AbCdEfGhQxSTU-V_wXyZ01\n")
    (place / f"{0:020d}.log").write_bytes(b"".join(batches))
    if epochs:
        (place / "leader-epoch-checkpoint").write_text(epochs)
    return root


def one(base: int, epoch: int = 0, text: bytes = b"v", count: int = 2) -> bytes:
    return batch(base, [record(i, b"k", text) for i in range(count)], partition_leader_epoch=epoch)
