"""The checkpoint, which the broker takes its next start from (spec 5, 6.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rmqctl.findings import Finding, Severity
from rmqctl.repair.edits import Step
from rmqctl.rocketmq.checkpoint import PATH
from rmqctl.rocketmq.mend.config import replaced
from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions
from rmqctl.rocketmq.store import RocketMQStore


def checkpoint_steps(store: RocketMQStore, findings: Iterable[Finding], directory: Path) -> Iterator[Step]:
    """A checkpoint that promises what log and queues hold, where the one that is there does not.

    Args:
        store: with log, queues and index as they will be.
        directory: room to build in.

    Raises:
        OSError: a file cannot be read or built.
    """
    wrong = [f for f in findings if f.kind.id.startswith("checkpoint.") and f.level is not Severity.NOTE]
    if not wrong or not store.log_files:
        return
    rebuilt = Rebuild(store, RebuildOptions(queues=False, index=False, checkpoint=True)).run(directory)
    if rebuilt.checkpoint is not None:
        edits = tuple(replaced(store, PATH, rebuilt.checkpoint))
        if edits:
            why = f"times of the last record of the log and of the last one with a queue unit; {wrong[0].message}"
            yield Step(wrong[0].kind.id, PATH, "write the checkpoint anew", why, edits)
