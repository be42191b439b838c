"""Every readable message of one or several damaged stores into a new store that brokers start on.

The configuration of a salvaged store: the source's files, with offsets that its queues have.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from formats.rocketmq.property_crc import stored_property_crc
from rmqctl.errors import Refused, TooDamaged
from rmqctl.files.new_files import Ownership, check_new_directory, making
from rmqctl.files.tree import LocalTree, join
from rmqctl.findings import Finding
from rmqctl.repair.edits import Create, Overwrite
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.log.misplaced import homecoming, misplaced_files
from rmqctl.rocketmq.log.reader import LogReader
from rmqctl.rocketmq.repair.config import config_steps
from rmqctl.rocketmq.salvage.gather import Gathered, Merged, Names, gather, merge
from rmqctl.rocketmq.salvage.write import Writer, Written
from rmqctl.rocketmq.state.config import CONFIG, read_config, table
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.store.geometry import geometry_of
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.store.unreadable import forgiving, unreadable_files
from rmqctl.rocketmq.verify import state
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
    findings = state.check_config(store, LogContext.of(store, None))
    for step in config_steps(store, findings, 0):
        for edit in step.edits:
            if isinstance(edit, (Create, Overwrite)):
                (into / edit.file).write_bytes(edit.content if isinstance(edit, Create) else edit.after)
                yield f"{edit.file}: {step.what}"


# --- every readable message of one or several damaged stores into a new sto -------------------------


_SPARE = 1.25
_LIGHT = "%LMQ%"
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """What to take, and how.

    Attributes:
        stale: old records behind the end of the log as well.
        renumber: give every queue new offsets from 0; else they are kept, and placeholders fill what is missing.
        owner: to whom the new store is given; None: as the directory above.
    """

    stale: bool = False
    renumber: bool = False
    owner: Ownership | None = None


@dataclass(slots=True)
class Salvaged:
    """What became of it.

    Attributes:
        sources: roots of the stores read, with the number of records found in each; a file of the log that another
            file has the place of is a source of its own.
        unreadable: findings for what could not be read, each with the number of its source.
        duplicates, conflicts, stale: records left out, those of them that differ, records from behind the end.
        config: configuration files copied.
        offsets: what was changed in them, because the message it stood at could not be read.
    """

    into: Path
    sources: list[tuple[str, int]]
    written: Written
    unreadable: list[tuple[int, Finding]] = field(default_factory=list)
    duplicates: int = 0
    conflicts: int = 0
    stale: int = 0
    config: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The JSON object that the command prints at the end."""
        written = self.written
        return {
            "kind": "summary",
            "into": str(self.into),
            "sources": [{"path": path, "messages": count} for path, count in self.sources],
            "messages": written.messages,
            "bytes": written.bytes,
            "unreadable": len(self.unreadable),
            "placeholders": written.placeholders,
            "renumbered": written.renumbered,
            "duplicates": self.duplicates,
            "conflicts": self.conflicts,
            "stale": self.stale,
            "holes": [dict(zip(("topic", "queue_id", "from", "to"), hole, strict=True)) for hole in written.holes],
            "config": self.config,
            "offsets": self.offsets,
        }


def salvage(
    stores: Sequence[RocketMQStore], into: Path, options: SalvageOptions, progress: Progress = lambda size: None
) -> Salvaged:
    """Copy what can be read.

    Args:
        stores: replicas of one broker's store; where two hold the same message the earlier counts.
        into: a directory that is not there yet, or empty.
        progress: called with bytes read, then written.

    Raises:
        Refused: the directory is not empty, lies in a source, or too little room is free.
        TooDamaged: nothing can be read.
        IOFailure: the system refuses.
        OSError: a directory of a source, or a remote one, cannot be read; a file that cannot be is a finding.
    """
    check_target(stores, into)
    names, stores = Names(), [forgiving(s) for s in stores]
    parts = [part for store in stores for part in _parts(store)]
    found = [gather(s, n, names, stale=options.stale, advance=progress) for n, (_, s) in enumerate(parts)]
    if not any(len(f.records) for f in found):
        raise TooDamaged(stores[0].root, "not one message can be read")
    merged = merge([f.records for f in found])
    needed = int((merged.records["size"].sum() + merged.repeats["size"].sum()) * _SPARE)
    _check_room(into, needed)
    with making(into, options.owner):
        return _made(stores, parts, found, merged, names, into, options, progress)


def _made(
    stores: Sequence[RocketMQStore],
    parts: Sequence[tuple[str, RocketMQStore]],
    found: Sequence[Gathered],
    merged: Merged,
    names: Names,
    into: Path,
    options: SalvageOptions,
    progress: Progress,
) -> Salvaged:
    """Write the new store."""
    with StoreEngine.open(into, _config(found)) as engine:
        _make_topics(engine, stores[0], [*names.queues(), *_ends(found)])
        writer = Writer(engine, names.queues(), [s.log_files for _, s in parts], keep=not options.renumber)
        try:
            writer.write(merged.records, advance=progress)
            writer.write(merged.repeats, keep=False, advance=progress)
            writer.fill_to(_ends(found))
        finally:
            writer.close()
    paths = [path for path, _ in parts]
    result = Salvaged(into, [(p, len(f.records)) for p, f in zip(paths, found, strict=True)], writer.written)
    result.unreadable = [(n, finding) for n, f in enumerate(found) for finding in f.unreadable]
    result.unreadable += [(paths.index(s.root), finding) for s in stores for finding in unreadable_files(s)]
    result.duplicates, result.conflicts = merged.duplicates, merged.conflicts
    result.stale = int(merged.records["stale"].sum())
    result.config = copy_config(stores[0], into, renumbered=options.renumber)
    result.offsets = bring_back_offsets(into)
    return result


def _parts(store: RocketMQStore) -> Iterator[tuple[str, RocketMQStore]]:
    """The store with the files of its log in their places, and each file whose place another has; with their paths.

    Raises:
        OSError: a remote file cannot be read.
    """
    found = misplaced_files(store, geometry_of(store).commit_log_file_size)
    moved, wrong = homecoming(store, found), {one.file.name for one in found}
    files = [f for f in store.log_files if f.name not in wrong]
    yield store.root, store.with_log([*files, *(one.at_home() for one in moved)]) if found else store
    for one in found:
        if one not in moved:
            yield join(store.root, one.file.name), store.with_log([one.at_home()])


def _ends(found: Sequence[Gathered]) -> dict[tuple[str, int], int]:
    """The highest counter of each queue over all sources."""
    ends: dict[tuple[str, int], int] = {}
    for one in found:
        for key, end in one.ends.items():
            ends[key] = max(ends.get(key, 0), end)
    return ends


def check_target(stores: Sequence[RocketMQStore], into: Path) -> None:
    """Whether a new store can be made of these sources at ``into``.

    Raises:
        Refused: something is there already, it lies in a source, or a source has a DLedger log.
    """
    check_new_directory(into, [store.root for store in stores if isinstance(store.tree, LocalTree)])
    for store in stores:
        if any(file.lead for file in store.log_files):
            raise Refused(f"{store.root} has a DLedger log; export its messages instead")


def _check_room(into: Path, needed: int) -> None:
    parent = next(p for p in (into, *into.resolve().parents) if p.exists())
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise Refused(f"{into} needs about {needed:,} bytes, but {free:,} are free on that disk; give another place")


def _config(found: Sequence[Gathered]) -> StoreConfig:
    """The settings of the new store: release, sizes and forms of the first source."""
    store = found[0].store
    geometry = geometry_of(store)
    largest = max((int(f.records["size"].max(initial=0)) for f in found), default=0)
    return StoreConfig(
        release=release_range(store).highest,
        commit_log_file_size=max(geometry.commit_log_file_size, largest + 16),
        queue_file_size=geometry.queue_file_size,
        batch_queue_file_size=geometry.batch_queue_file_size,
        index_slots=geometry.index_slots,
        index_entries=geometry.index_entries,
        property_crc=_has_property_crc(found[0]),
        multi_dispatch=True,
        delay_levels=store.settings.get("messageDelayLevel") or StoreConfig().delay_levels,
        services=False,
    )


def _has_property_crc(found: Gathered) -> bool:
    """Whether records end with their own CRC, by the first of them."""
    if not len(found.records):
        return False
    with LogReader(found.store.log_files) as log:
        first = found.records[0]
        record = log.read_from(int(first["file"]), int(first["physical"]), int(first["size"]))
        return stored_property_crc(record) is not None


def _make_topics(engine: StoreEngine, store: RocketMQStore, keys: Sequence[tuple[str, int]]) -> None:
    """Make every topic known, with batch queues where the source has them."""
    rules = DispatchRules.of(store)
    topics = table(read_config(store, "topics.json").document, "topicConfigTable")
    queues: dict[str, int] = {}
    for topic, queue_id in keys:
        queues[topic] = max(queues.get(topic, 0), queue_id + 1)
    for topic, count in queues.items():
        if topic.startswith(_LIGHT):
            continue
        entry = topics.get(topic)
        known = entry.get("writeQueueNums", 0) if isinstance(entry, dict) else 0
        batch = rules.is_batch_topic(topic.encode("utf-8", "surrogateescape"))
        engine.make_topic(topic, max(count, known if isinstance(known, int) else 0), batch=batch)
