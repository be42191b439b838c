"""The checkpoint file: its fields, as far as the file holds them (spec 5)."""

from __future__ import annotations

from formats.layout import plan_of
from formats.rocketmq.checkpoint import Checkpoint
from rmqctl.files.tree import read_all
from rmqctl.rocketmq.store import RocketMQStore

PATH = "checkpoint"
_RUN = plan_of(Checkpoint).runs[0]


def read_checkpoint(store: RocketMQStore) -> tuple[dict[str, int], int] | None:
    """Fields by name, and the file's length in bytes; missing bytes count as zero. None without a file.

    Raises:
        OSError: the file cannot be read.
    """
    data = read_all(store.tree, PATH)
    if data is None:
        return None
    values = _RUN.packer.unpack(data[: _RUN.packer.size].ljust(_RUN.packer.size, b"\0"))
    return dict(zip(_RUN.names, values, strict=True)), len(data)
