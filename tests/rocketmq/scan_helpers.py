"""What tests share with test_scan: log."""

from __future__ import annotations

from functools import cache
from typing import Any

from fixtures import golden
from rmqctl.files.local import BytesSource
from rmqctl.rocketmq.log.scan import Extent, scan

BASE = 131072


Event = tuple[Any, ...]


def events(data: bytes | BytesSource, base: int = BASE, window: int = 4 << 20, **extent: Any) -> list[Event]:
    """Everything a scan yields, by position."""
    found: list[Event] = []
    source = BytesSource(data) if isinstance(data, bytes) else data
    for block in scan(source, Extent("log", base, **extent), window):
        found += [(p, "message") for p in block.position.tolist()]
        found += [(g.position, "gap", g.end, g.why, g.resumed) for g in block.gaps]
        found += [(b.position, "blank", b.size) for b in block.blanks]
    return sorted(found)


@cache
def log() -> bytes:
    """The first 24 KiB of records of a real file, with room behind them."""
    data = (golden.pristine("5.3.3-clean") / "commitlog" / f"{BASE:020d}").read_bytes()
    ends = [p for p, kind, *_ in events(data) if kind == "message" and p < 24 << 10]
    return data[: ends[-1]] + bytes(4096)
