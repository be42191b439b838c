"""What a command says of files that could not be read while it went on without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands._app import message

if TYPE_CHECKING:
    from rmqctl.rocketmq.store import RocketMQStore


def name_unreadable(store: RocketMQStore) -> None:
    """Name each file of a forgiving store that could not be read, and exit 1 if there is one."""
    from rmqctl.findings import Severity
    from rmqctl.rocketmq.unreadable import unreadable_files

    found = [f for f in unreadable_files(store) if f.level is not Severity.NOTE]
    for finding in found:
        message(f"{finding.file} {finding.message}; it is taken for empty, so what is shown may be too little")
    if found:
        raise SystemExit(1)
