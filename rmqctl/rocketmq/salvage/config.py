"""The configuration of a salvaged store: the source's files, with offsets that its queues have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqctl.open import open_store_at
from rmqctl.repair.edits import Create, Overwrite
from rmqctl.rocketmq.config_files import CONFIG, read_config
from rmqctl.rocketmq.mend.config import config_steps
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.rocketmq.verify import config
from rmqctl.rocketmq.verify.context import LogContext

_OFFSETS = ("consumerOffset.json", "delayOffset.json")
_FILES = ("topics.json", "subscriptionGroup.json", *_OFFSETS)


def copy_config(store: RocketMQStore, into: Path, *, renumbered: bool) -> list[str]:
    """Copy the files that can be read; offsets only where queues keep theirs.

    Returns:
        Their names.

    Raises:
        OSError: the system refuses.
    """
    copied = []
    for name in _FILES:
        file = read_config(store, name)
        if file.document is None or (renumbered and name in _OFFSETS):
            continue
        source = f"{file.path}.bak" if file.fallback else file.path
        target = into / CONFIG / name
        target.parent.mkdir(exist_ok=True)
        opened = store.tree.open(source)
        try:
            target.write_bytes(opened.read_at(0, opened.size()))
        finally:
            opened.close()
        copied.append(name)
    return copied


def bring_back_offsets(into: Path) -> list[str]:
    """Set offsets that stand behind the end of their queue to that end, as ``repair`` does.

    A consumer that stands there would pass over the messages that the queue gets next.

    Returns:
        What was done, a sentence for each file.

    Raises:
        OSError: the system refuses.
    """
    return list(_brought_back(open_store_at(str(into)), into))


def _brought_back(store: RocketMQStore, into: Path) -> Iterator[str]:
    findings = config.check(store, LogContext.of(store, None))
    for step in config_steps(store, findings, 0):
        for edit in step.edits:
            if isinstance(edit, (Create, Overwrite)):
                (into / edit.file).write_bytes(edit.content if isinstance(edit, Create) else edit.after)
                yield f"{edit.file}: {step.what}"
