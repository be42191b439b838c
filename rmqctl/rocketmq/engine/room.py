"""How much room a run of messages needs, and whether it is there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.drafts import Template

_AROUND_BODY, _UNIT, _ENTRY = 91, 20, 20
_STAMPED = 200
"""Bytes of properties that client and broker add, about."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes needed, about, and free on the file system."""

    needed: int
    free: int

    def check(self, path: str) -> None:
        """
        Raises:
            Refused: too little is free.
        """
        if self.needed > self.free:
            raise Refused(
                f"about {self.needed:,} bytes would be written to {path}, but {self.free:,} are free there; "
                "free space, or produce fewer or smaller messages"
            )


def room_for(path: str, template: Template, count: int, topic: str, config: StoreConfig) -> Room:
    """The room for ``count`` messages of a template in a store at a path: log, units and index entries."""
    low, high = template.sizes or (0, 0)
    body = len(template.body) if template.body is not None else (low + high) // 2
    text = sum(len(name) + len(value) + 2 for name, value in template.texts(template.tag_of(0)).items())
    entries = (1 + len(template.keys) + bool(template.tags)) * _ENTRY if config.index else 0
    message = _AROUND_BODY + len(topic) + body + text + _STAMPED + _UNIT + entries
    parent = next(p for p in (Path(path).absolute(), *Path(path).absolute().parents) if p.exists())
    return Room(count * message, shutil.disk_usage(parent).free)
