"""What is worth knowing of a store in use beside its bytes: lag, open transactions, and what a start would read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqctl.answer import Row
from rmqctl.errors import RmqctlError
from rmqctl.store import Store

_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""States of a transaction that keep consumers from what comes after it."""


def figures_of(store: Store, now: int) -> Row:
    """Return what is known of a store; what cannot be found out is left out.

    The keys are ``lag``, rows of ``group``, ``topic`` and ``lag`` in messages; ``oldest_transaction_ms``, the age of
    the oldest open transaction, 0 without one; ``start``, what a broker's start would read if this one were killed now:
    ``bytes`` and, of Kafka, ``segments``.

    Args:
        now: epoch ms.
    """
    parts: dict[str, Callable[[], Any]] = {
        "lag": lambda: _lag(store),
        "oldest_transaction_ms": lambda: _oldest(store, now),
        "start": lambda: _start(store),
    }
    found: dict[str, Any] = {}
    for name, ask in parts.items():
        try:
            value = ask()
        except (RmqctlError, OSError):  # a file was replaced while it was read, or the family does not have it
            continue
        if value is not None:
            found[name] = value
    return found


def _lag(store: Store) -> list[Row]:
    sums: dict[tuple[str, str], int] = {}
    for row in store.lag():
        key = row["group"], row["topic"]
        sums[key] = sums.get(key, 0) + max(row.get("lag") or 0, 0)
    return [{"group": group, "topic": topic, "lag": lag} for (group, topic), lag in sorted(sums.items())]


def _oldest(store: Store, now: int) -> int:
    if store.family == "kafka":
        times = [row["start_timestamp"] for row in store.transactions() if row["state"] in _OPEN]
    else:
        times = [row["store_timestamp"] for row in store.dump(pending="transaction") if row.get("store_timestamp")]
    return max(now - min((time for time in times if time > 0), default=now), 0)


def _start(store: Store) -> Row | None:
    with store.recover(processes=1) as proposal:
        proposal.prepare()
        document = proposal.document() if proposal.document is not None else {}
    scan = document.get("scan")
    return {name: scan[name] for name in ("bytes", "segments") if name in scan} if isinstance(scan, dict) else None
