"""What a watch knows as metrics of Prometheus: on an address, or in a file for node_exporter."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.answer import Row
from rmqctl.errors import MissingExtra, WrongUsage

if TYPE_CHECKING:
    from rmqctl.watch.memory import StoreMemory

METRICS = {
    "rmqctl_watch_findings": ("Errors and warnings that are not gone", ("store", "id", "severity")),
    "rmqctl_watch_store_readable": ("Whether the store could be opened the last time", ("store",)),
    "rmqctl_watch_cycle_end_timestamp_seconds": ("End of the last cycle through all of the store", ("store",)),
    "rmqctl_watch_cycle_begin_timestamp_seconds": ("Begin of the cycle that is under way, 0 between two", ("store",)),
    "rmqctl_watch_cycle_parts_done": ("Parts that the cycle under way has looked at", ("store",)),
    "rmqctl_watch_cycle_parts": ("Parts of the cycle under way", ("store",)),
    "rmqctl_watch_read_bytes_total": ("Bytes read to check the store", ("store",)),
    "rmqctl_watch_lag_messages": ("Messages that a group has not consumed", ("store", "group", "topic")),
    "rmqctl_watch_oldest_transaction_seconds": ("Age of the oldest open transaction, 0 without one", ("store",)),
    "rmqctl_watch_start_read_bytes": ("Bytes of log that a start would read after a kill now", ("store",)),
}
"""Names of the metrics, with what they say and their labels."""


class Metrics:
    """The metrics of one watch (`rmqctl.watch.scrub.Listener`).

    Args:
        address: ``HOST:PORT`` to serve them on; "": nowhere.
        textfile: file that gets them whole after each change; None: none.

    Raises:
        MissingExtra: prometheus_client is not installed.
        WrongUsage: the address is none.
        OSError: nobody can listen there.
    """

    def __init__(self, address: str = "", textfile: Path | None = None) -> None:
        try:
            from prometheus_client import CollectorRegistry, Gauge, start_http_server
            from prometheus_client import Counter as Total
        except ImportError:
            raise MissingExtra("giving metrics", "watch") from None
        self._registry, self._textfile = CollectorRegistry(), textfile
        self._gauges = {
            name: Gauge(name, text, labels, registry=self._registry)
            for name, (text, labels) in METRICS.items()
            if not name.endswith("_total")
        }
        text, labels = METRICS["rmqctl_watch_read_bytes_total"]
        self._read = Total("rmqctl_watch_read_bytes_total", text, labels, registry=self._registry)
        self._said: dict[tuple[str, str], set[tuple[str, ...]]] = {}
        self.port = 0
        if address:
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal() or int(port) > 0xFFFF:
                raise WrongUsage("--metrics", f"{address} is no address; write HOST:PORT, as 127.0.0.1:9105.")
            server, _ = start_http_server(int(port), addr=host.strip("[]"), registry=self._registry)
            self.port = server.server_port

    def progress(self, root: str, memory: StoreMemory, read: int, parts: int) -> None:
        """Take what is remembered of a store after a part."""
        counts = Counter((found.row["id"], found.row["severity"]) for found in memory.found.values())
        self._series("rmqctl_watch_findings", root, counts)
        self._one("rmqctl_watch_cycle_end_timestamp_seconds", root, memory.last / 1000)
        self._one("rmqctl_watch_cycle_begin_timestamp_seconds", root, memory.began / 1000)
        self._one("rmqctl_watch_cycle_parts_done", root, len(memory.done))
        self._one("rmqctl_watch_cycle_parts", root, parts)
        self._read.labels(root).inc(read)
        self.write()

    def figures(self, root: str, figures: Row) -> None:
        """Take lag, transactions and the cost of a start."""
        if "lag" in figures:
            lags = {(row["group"], row["topic"]): row["lag"] for row in figures["lag"]}
            self._series("rmqctl_watch_lag_messages", root, lags)
        if "oldest_transaction_ms" in figures:
            self._one("rmqctl_watch_oldest_transaction_seconds", root, figures["oldest_transaction_ms"] / 1000)
        if "start" in figures:
            self._one("rmqctl_watch_start_read_bytes", root, figures["start"]["bytes"])
        self.write()

    def readable(self, root: str, *, is_readable: bool) -> None:
        """Take whether a store can be opened."""
        self._one("rmqctl_watch_store_readable", root, int(is_readable))
        self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self._textfile is None:
            return
        from prometheus_client import generate_latest

        beside = self._textfile.with_name(f".{self._textfile.name}.{os.getpid()}")
        try:
            beside.write_bytes(generate_latest(self._registry))
            beside.chmod(0o644)
            beside.replace(self._textfile)
        finally:
            beside.unlink(missing_ok=True)

    def _one(self, name: str, root: str, value: float) -> None:
        self._gauges[name].labels(root).set(value)

    def _series(self, name: str, root: str, values: Mapping[Any, int]) -> None:
        """Set the series of a store; those that it had before, and has no more, go."""
        before = self._said.get((name, root), set())
        for labels in before - values.keys():
            self._gauges[name].remove(root, *labels)
        for labels, value in values.items():
            self._gauges[name].labels(root, *labels).set(value)
        self._said[name, root] = set(values)
