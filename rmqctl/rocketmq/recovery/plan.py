"""A broker's recovery as a plan of edits: the state in which the broker would find nothing left to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from formats.layout import plan_of
from formats.rocketmq.checkpoint import Checkpoint
from rmqctl.errors import Refused
from rmqctl.files.tree import LocalTree, read_all
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Plan, Quarantine, Step, changes
from rmqctl.rocketmq.index.files import index_entries
from rmqctl.rocketmq.recovery.images import FileImage, QueueImage
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.state.config import PATH as CHECKPOINT
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.text import number_of

_RUN = plan_of(Checkpoint).runs[0]


def recovery_plan(store: RocketMQStore, found: Recovery, now: datetime) -> Plan:
    """Return the edits that bring a store into the state after a broker's start and clean stop.

    Args:
        found: of ``recover(store, release, index=True)``.
        now: local time, for the names of new index files.

    Raises:
        Refused: the broker does not start, or files of the store lie outside its root.
        OSError: a file cannot be read.
    """
    if found.error is not None:
        raise Refused(f"a {found.release} broker does not start on {store.root}: {found.error}; see: rmqctl repair")
    if store.is_rocksdb:
        raise Refused(
            f"the queues of {store.root} are a RocksDB database, which only a broker writes; "
            f"to have them as files: rmqctl rebuild {store.root} --into DIR"
        )
    if not isinstance(store.tree, LocalTree) or any(f.name.startswith("/") for f in found.log_files):
        raise Refused(
            f"{store.root} or its commit log is not a local directory with everything below it; copy it first"
        )
    steps = [*_log(found), *_queues(found), *_index(store, found, now), *_checkpoint(store, found), *_abort(store)]
    return Plan(Path(store.tree.root), f"recover as {found.release}", tuple(steps))


def _log(found: Recovery) -> Iterator[Step]:
    cut = found.log_cut
    why = f"the {found.release} broker ends the log at {cut}"
    files = {f.name: f for f in found.log_files}
    queue_files = {f.name for image in found.images for f in image.removed}
    for name in found.deleted:
        if name not in queue_files:
            count = sum(1 for m in found.lost if name in files and files[name].base <= m.physical < _end(found, name))
            yield Step("recover.log", name, "move out", why, (Quarantine(name),), count)
    for change in found.cuts:
        if change.file in files:
            count = sum(1 for m in found.lost if m.physical < _end(found, change.file))
            edits = (
                Cut(change.file, change.from_size, change.to_size),
                Extend(change.file, change.to_size, change.from_size),
            )
            what = f"zeros from byte {change.to_size:,} on"
            yield Step("recover.log", change.file, what, why, edits, count)


def _end(found: Recovery, name: str) -> int:
    return next((f.base + f.size for f in found.log_files if f.name == name), 0)


def _queues(found: Recovery) -> Iterator[Step]:
    for image in found.images:
        edits = list(_queue_edits(image))
        if edits:
            what = f"{number_of(image.appended, 'unit')} appended, queue ends at {image.max_offset:,}"
            yield Step(
                "recover.queue", image.directory, what, "as dispatch and the end of the log demand", tuple(edits)
            )


def _queue_edits(image: QueueImage) -> Iterator[Edit]:
    """Files moved out, then each file that stays: bytes that differ from what is on disk."""
    gone = {f.name for f in image.removed}
    yield from (Quarantine(name) for name in sorted(gone))
    for file in image.files:
        name = f"{image.directory}/{file.base:020d}"
        if file.file is None:
            yield Create(name, _bytes(image, file), size=file.size)
        else:
            before, after = _on_disk(file), _bytes(image, file)
            size = max(len(before), len(after))
            yield from changes(name, 0, before.ljust(size, b"\0"), after.ljust(size, b"\0"))


def _bytes(image: QueueImage, file: FileImage) -> bytes:
    return file.units(image.dtype).tobytes()[: file.wrote]


def _on_disk(file: FileImage) -> bytes:
    return FileImage(file.base, file.size, file.size, file.file).raw()


def _index(store: RocketMQStore, found: Recovery, now: datetime) -> Iterator[Step]:
    for name in sorted(found.index_deleted):
        why = "it holds entries younger than the checkpoint, and the exit was not clean"
        yield Step("recover.index", name, "move out", why, (Quarantine(name),))
    last = max((e.name for e in index_entries(store)), default="")
    edits = tuple(found.index.edits(now, last)) if found.index else ()
    if edits:
        what = f"{found.index_keys:,} entries"
        yield Step("recover.index", edits[0].file, what, "messages dispatched again", edits)


def _checkpoint(store: RocketMQStore, found: Recovery) -> Iterator[Step]:
    """Yield times that a clean stop would leave: those of the last message."""
    data = read_all(store.tree, CHECKPOINT)
    old = (data or b"")[: _RUN.packer.size].ljust(_RUN.packer.size, b"\0")
    fields = dict(zip(_RUN.names, _RUN.packer.unpack(old), strict=True))
    last = found.last_store_timestamp
    if last and not found.normal:
        fields |= {"physic_msg_timestamp": last, "logics_msg_timestamp": last}
        fields["index_msg_timestamp"] = min(fields["index_msg_timestamp"], last)
    new = _RUN.packer.pack(*fields.values())
    if new == old:
        return
    why = "the last message of the log was stored then"
    if data is None:
        yield Step("recover.checkpoint", CHECKPOINT, "make", why, (Create(CHECKPOINT, new, size=4096),))
        return
    grow: Iterable[Edit] = () if len(data) >= len(new) else (Extend(CHECKPOINT, len(data), 4096),)
    yield Step("recover.checkpoint", CHECKPOINT, "set", why, (*grow, Overwrite(CHECKPOINT, 0, old, new)))


def _abort(store: RocketMQStore) -> Iterator[Step]:
    if store.has_abort:
        why = "the store is as after a clean stop"
        yield Step("recover.abort", "abort", "move out", why, (Quarantine("abort"),))
