"""What tests of repair share: a partition alone, and damage at random places."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from fixtures import golden

PLACES = [("3.9.2-crash", "txn-a-0"), ("4.3.1-crash", "txn-a-0"), ("3.9.2-crash", "txn-b-0")]


def alone(name: str, directory: str, room: Path) -> Path:
    """A log directory with one partition."""
    root = room / "store"
    shutil.copytree(golden.pristine(name) / directory, root / directory)
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (root / directory / "partition.metadata").unlink(missing_ok=True)
    return root


def damaged(data: bytes, draw: random.Random) -> bytes:
    """One kind of damage somewhere."""
    at, size = draw.randrange(len(data)), draw.choice([1, 3, 17, 64, 200, 900])
    end = min(at + size, len(data))
    flipped = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    choices = [
        data[:at] + draw.randbytes(end - at) + data[end:],
        data[:at] + bytes(end - at) + data[end:],
        data[:at] + data[end:],
        data[:at] + draw.choice([bytes, draw.randbytes])(size) + data[at:],
        data[:at],
        data + data[at:end],
        bytes(flipped),
    ]
    return draw.choice(choices)
