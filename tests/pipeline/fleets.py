"""Many stores to look at, some of them damaged."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

_TIMES = re.compile(r'(?<="seconds":)\s*[\d.]+|(?<=\()\d+\.\d(?= s\))')


def damage(root: Path, seed: int, times: int = 3) -> None:
    """Flip bits in logs of a store, the same ones for the same number."""
    chance = random.Random(seed)
    logs = sorted(path for pattern in ("commitlog/*", "*-*/*.log") for path in root.glob(pattern))
    logs = [path for path in logs if path.stat().st_size > 100]
    for _ in range(times):
        file = chance.choice(logs)
        content = bytearray(file.read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)


def second_directory(first: Path, second: Path) -> None:
    """Move some partitions of a log directory into another one of the same broker."""
    second.mkdir()
    meta = (first / "meta.properties").read_text("utf-8")
    other = re.sub("directory.id=.*", "directory.id=AAAAAAAAAAAAAAAAAAAAAQ", meta)
    (second / "meta.properties").write_text(other, "utf-8")
    moved = sorted(path for path in first.iterdir() if path.is_dir() and not path.name.startswith("__"))[::2]
    assert moved
    for path in moved:
        shutil.move(path, second / path.name)


def timeless(text: str) -> str:
    """What a command said, without how long it took."""
    return _TIMES.sub("0", text)


def remarks(text: str) -> list[str]:
    """What a command said on stderr, without how far it was, which it says where it takes long."""
    return [line for line in text.splitlines() if " so far" not in line and "Spark" not in line]
