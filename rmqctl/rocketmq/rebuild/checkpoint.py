"""The checkpoint that a rebuilt store can stand behind (spec 5, 14.2)."""

from __future__ import annotations

from formats.layout import plan_of
from formats.rocketmq.checkpoint import FILE_SIZE, Checkpoint
from rmqctl.release import Release
from rmqctl.rocketmq.checkpoint import read_checkpoint
from rmqctl.rocketmq.dispatch.index_put import IndexHead
from rmqctl.rocketmq.index_geometry import IndexGeometry
from rmqctl.rocketmq.store import RocketMQStore

_RUN = plan_of(Checkpoint).runs[0]
_OFFSET_KEPT = Release(5, 5, 0)


def checkpoint_bytes(
    store: RocketMQStore,
    release: Release,
    *,
    last: tuple[int, int],
    dispatched: tuple[int, int],
    indexed: int,
) -> bytes:
    """A checkpoint file: times of this log, other fields as they were.

    Args:
        last: physical offset and store time (ms) of the last record of the log.
        dispatched: the same of the record up to which all queues are complete.
        indexed: store time (ms) up to which index files are safe, see :func:`indexed_until`.

    Raises:
        OSError: the old checkpoint cannot be read.
    """
    old = read_checkpoint(store)
    fields = dict(old[0]) if old else dict.fromkeys(_RUN.names, 0)
    fields["physic_msg_timestamp"], fields["logics_msg_timestamp"] = last[1], dispatched[1]
    fields["index_msg_timestamp"] = indexed
    if release >= _OFFSET_KEPT:
        fields["logics_physical_offset"] = dispatched[0]
    return _RUN.packer.pack(*(fields[name] for name in _RUN.names)).ljust(FILE_SIZE, b"\0")


def indexed_until(heads: list[IndexHead], geometry: IndexGeometry, *, all_flushed: bool) -> int:
    """Store time of the last entry of the last full index file, ms; 0 without one.

    Args:
        all_flushed: the last file counts though it is not full. A broker that starts after a crash deletes every
            file that is newer than its checkpoint says (IndexService.load), the rebuilt ones, too.
    """
    times = [head.end_timestamp for head in heads if all_flushed or head.is_full(geometry)]
    return times[-1] if times else 0
