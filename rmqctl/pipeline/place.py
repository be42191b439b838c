"""Where Spark runs, as commands and callers say it; light, since they mostly do not use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Spark runs.

    Attributes:
        master: as ``spark-submit --master`` takes it.
        conf: settings of Spark; they win over those made here.
        remote: address of a Spark Connect server; no JVM is started then.
        log_bytes: bytes of log that are to be read; None when nobody knows.
    """

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    remote: str | None = None
    log_bytes: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether everything runs in one JVM on this machine."""
        return self.remote is None and self.master.startswith("local") and not self.master.startswith("local-cluster")
