"""Configuration and checkpoint: the ``.bak`` put in place, offsets brought back into their queues, tables made again
(spec 9).

From the checkpoint the broker takes its next start (spec 5, 6.4).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from formats.layout import plan_of
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.errors import RmqctlError
from rmqctl.files.tree import Entry, read_all
from rmqctl.findings import Finding, Severity
from rmqctl.repair.edits import Create, Edit, Overwrite, Quarantine, Step
from rmqctl.rocketmq.findings.derived import QUEUE_ORPHAN
from rmqctl.rocketmq.findings.state import (
    CONFIG_CONSUMER_OFFSET,
    CONFIG_DELAY_OFFSET,
    CONFIG_FALLBACK,
    CONFIG_NO_TOPICS,
    CONFIG_UNREADABLE,
)
from rmqctl.rocketmq.index import index_entries
from rmqctl.rocketmq.log.record import SMALLEST
from rmqctl.rocketmq.queues.files import Queue, is_pre_blank
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions
from rmqctl.rocketmq.recovery.plan import overlaid
from rmqctl.rocketmq.recovery.queue_ends import Limits, queue_limits
from rmqctl.rocketmq.state.config import (
    CONFIG,
    PATH,
    backed_up_offsets,
    configured_topics,
    consumer_offsets,
    counter_of,
    delay_offsets,
    has_stored_config,
    has_version_2,
    is_own_topic,
    needs_no_entry,
    queue_type,
    read_checkpoint,
    read_config,
    table,
    topics_counter,
)
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, StoreFiles
from rmqctl.rocketmq.store.geometry import geometry_of, read_header
from rmqctl.text import number_of

_RUN = plan_of(Checkpoint).runs[0]

_DELAYS = f"{CONFIG}/delayOffset.json"
TOPICS = f"{CONFIG}/topics.json"
_NO_TOPICS = (CONFIG_NO_TOPICS, CONFIG_UNREADABLE)
Key = tuple[str, int]


def config_steps(store: StoreFiles, findings: Iterable[Finding], last_time: int, processes: int = 1) -> Iterator[Step]:
    """Yield steps for the findings about config/.

    Args:
        store: with log and queues as they will be.
        last_time: store time of the last record, ms.
        processes: that read the log where a start on the store is replayed.
    """
    findings = list(findings)
    lost = {f.topic or "" for f in findings if f.kind is QUEUE_ORPHAN}
    topics = (
        list(topic_steps(store, lost))
        if lost or any(f.kind in _NO_TOPICS and f.file == TOPICS for f in findings)
        else []
    )
    yield from topics
    whole = list[Step]()  # files that are written as a whole; offsets are put right in what they are then
    for finding in findings:
        if finding.file == TOPICS and topics:
            continue
        if finding.kind is CONFIG_FALLBACK:
            whole.append(_fallback(store, finding))
        elif finding.kind is CONFIG_UNREADABLE:
            whole.append(_made_again(store, finding, last_time))
    yield from whole
    outside = [f for f in findings if f.kind is CONFIG_CONSUMER_OFFSET]
    delays = [f for f in findings if f.kind is CONFIG_DELAY_OFFSET]
    limits = queue_limits(store, processes=processes) if outside or delays else {}
    store = overlaid(store, [edit for step in whole for edit in step.edits]) if limits and whole else store
    for file in sorted({f.file for f in outside}):
        yield from _consumers(store, file, [f for f in outside if f.file == file], limits)
    if delays:
        yield from _delays(store, delays, limits)


def _fallback(store: StoreFiles, finding: Finding) -> Step:
    content = read_all(store.tree, f"{finding.file}.bak") or b""
    edits = tuple(replaced(store, finding.file, content))
    return Step(finding.kind.id, finding.file, "put the .bak in its place", f"{finding.message}", edits)


def replaced(store: StoreFiles, path: str, content: bytes) -> Iterator[Edit]:
    """Yield the edits that give a small file another content."""
    old = read_all(store.tree, path)
    if old is not None and len(old) == len(content) and content:
        if old != content:
            yield Overwrite(path, 0, old, content)
        return
    beside = store.tree.entries(path.rpartition("/")[0])
    if old is not None or any(entry.path == path and entry.is_dangling for entry in beside):
        yield Quarantine(path)
    yield Create(path, content)


# --- tables made again ---------------------------------------------------------------------------


def _made_again(store: StoreFiles, finding: Finding, last_time: int) -> Step:
    """Make a file again that is lost with its .bak: from the queues where those show what was in it."""
    document: dict[str, Any] | None = None
    if finding.file == _DELAYS:
        document = {"offsetTable": _delivered(store, last_time)}
        why = "each level stands behind the last message that was due when the broker stopped"
    if document is None:
        why = "nothing in the store tells what was in it: take it from another broker of the cluster"
        return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)
    content = json.dumps(document, indent="\t", ensure_ascii=False).encode()
    return Step(finding.kind.id, finding.file, "make the file anew", why, tuple(replaced(store, finding.file, content)))


_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Brokers up to 4.9 make it only when they check transactions for the first time, a minute after they start."""


def _topics(store: StoreFiles, made: Iterable[Key]) -> dict[str, dict[str, Any]]:
    """Settings of the topics that have queues, but for those that brokers make themselves when they start."""
    most: dict[str, int] = {}
    batch = {q.topic for q in store.queues(BATCH_QUEUES)}
    is_served = needs_no_entry(store)
    for topic, queue_id in chain(_queues(store), made):
        if not is_served(topic) or (topic == _HALF_TOPIC and not has_version_2(store)):
            most[topic] = max(most.get(topic, 0), queue_id + 1)
    return {topic: topic_settings(topic, count, batch=topic in batch) for topic, count in sorted(most.items())}


def _queues(store: StoreFiles) -> Iterator[Key]:
    """Topic and id of every queue."""
    for kind in (BATCH_QUEUES,) if store.is_rocksdb else (QUEUES, BATCH_QUEUES):
        yield from ((queue.topic, queue.queue_id) for queue in store.queues(kind))
    if store.is_rocksdb:
        with suppress(RmqctlError), open_queues(store) as database:
            yield from database.queues()


def topic_steps(store: StoreFiles, lost: Collection[str] = (), made: Iterable[Key] = ()) -> Iterator[Step]:
    """topics.json with the topics that have queues, each with the kind that its directories hold.

    A broker serves no topic that it does not know, and one of 5.x starts with no other kind. Where topics are in
    RocksDB the file has what the database lacks.

    Args:
        lost: topics that have queues and are not known; where there is no topics.json that are all.
        made: queues that a start makes from the log.
    """
    found = read_config(store, Path(TOPICS).name)
    document = found.document if isinstance(found.document, dict) else {}
    known, is_stored = configured_topics(store) or {}, has_stored_config(store)
    counter = topics_counter(store) if is_stored else 0
    if counter is None:
        return
    if is_stored and counter_of(document) <= counter:  # it says nothing
        document = {}
    entries, changed = dict(table(document, "topicConfigTable")), list[str]()
    for topic, right in _topics(store, made).items():
        own = known.get(topic)
        if queue_type(own) != queue_type(right):
            attributes = own.get("attributes") if isinstance(own, dict) else None
            kind = {"queue.type": queue_type(right)}
            entries[topic] = {**own, "attributes": {**(attributes or {}), **kind}} if own else right
            changed.append(topic)
        elif own is None and (topic in lost or not (document or is_stored) or is_own_topic(topic)):
            entries[topic] = right
            changed.append(topic)
    if changed:
        version = {"counter": 1, "timestamp": 0, **table(document, "dataVersion")}
        version |= {"counter": max(counter, counter_of(document)) + 1} if is_stored else {}
        document = {**document, "dataVersion": version, "topicConfigTable": entries}
        content = json.dumps(document, indent="\t", ensure_ascii=False).encode()
        what = f"put topics right by their queues: {', '.join(changed)}"
        why = (
            "a broker serves no topic that the file does not know, and does not start where queues are of another kind"
        )
        if is_stored:
            why = "it counts further than the database, so a broker that starts (5.3.2 and later) takes them into that"
        kind_id = (CONFIG_FALLBACK if found.fallback else CONFIG_UNREADABLE) if found.error else QUEUE_ORPHAN
        kind_id = CONFIG_NO_TOPICS if found.missing and not found.fallback else kind_id
        kind_id = QUEUE_ORPHAN if is_stored else kind_id
        yield Step(kind_id.id, TOPICS, what, why, tuple(replaced(store, TOPICS, content)))


def topic_settings(topic: str, count: int, *, batch: bool = False) -> dict[str, Any]:
    """Return the settings of a topic that is known by its queues only."""
    attributes = {"attributes": {"queue.type": "BatchCQ"}} if batch else {}
    return {
        **attributes, "order": False, "perm": 6, "readQueueNums": count, "topicFilterType": "SINGLE_TAG",
        "topicName": topic, "topicSysFlag": 0, "writeQueueNums": count,
    }  # fmt: skip


def _delivered(store: StoreFiles, last_time: int) -> dict[str, int]:
    """For each delay level the first queue offset that was not due at ``last_time``."""
    found = {}
    for where in store.queues(QUEUES):
        if where.topic == SCHEDULE_TOPIC:
            queue, offset = Queue.open(where), 0
            for file in queue.files:
                for first, units in queue.chunks(file):
                    due = queue.valid(units) & (is_pre_blank(units) | (units["tags_code"] <= last_time))
                    for at in due.nonzero()[0][-1:].tolist():
                        offset = file.base // units.itemsize + first + at + 1
            found[str(where.queue_id + 1)] = offset
    return found


# --- offsets outside their queues -----------------------------------------------------------------


def _consumers(store: StoreFiles, file: str, findings: list[Finding], limits: Limits) -> Iterator[Step]:
    """Yield a step for the offsets of a file that get others, then one for each that is left.

    What the ``.bak`` has counts where it lies in the queue: then nothing is skipped. Else an offset that a cut of the
    log can explain is set to the end, where a broker sets it; of any other nobody knows what the group has read.
    """
    wanted = {(f.topic or "", f.queue_id or 0) for f in findings}
    text = (read_all(store.tree, file) or b"").decode("utf-8", "surrogateescape")
    before = backed_up_offsets(store, file)
    most = (sum(f.size for f in store.log_files) + geometry_of(store).commit_log_file_size) // SMALLEST
    new, moved, left = text, [], []
    for own in consumer_offsets(store):
        low, end = limits.get((own.topic, own.queue_id), (0, 0))
        if own.file != file or (own.topic, own.queue_id) not in wanted or 0 <= own.offset <= end:
            continue
        right, why = before.get((own.topic, own.group, own.queue_id)), "as in the .bak"
        if right is None or not low <= right <= end:
            is_cut = end < own.offset <= end + most
            right, why = (end, "the end") if is_cut else (None, "")
        where = f"{own.group} of {own.topic}/{own.queue_id}"
        if right is None:
            left.append(_undecided(own.file, f"{where} at {own.offset}", low, end))
        else:
            new = _put(new, f"{own.topic}@{own.group}", own.queue_id, own.offset, right)
            moved.append(f"{where} from {own.offset} to {right} ({why})")
    if new != text:
        what, why = "set offsets back into their queues: " + "; ".join(moved), findings[0].message
        edits = tuple(replaced(store, file, new.encode("utf-8", "surrogateescape")))
        yield Step(CONFIG_CONSUMER_OFFSET.id, file, what, why, edits)
    yield from left


def _undecided(file: str, where: str, low: int, end: int) -> Step:
    """Return the step for an offset that only somebody who knows the group can put right."""
    why = "neither the file nor its .bak says what the group has read; stop its consumers and set the offset"
    if low < end:
        held = f"{number_of(end - low, 'message')} (offsets {low} to {end - 1})"
        why += f": {end} skips what it has not read of {held}, {low} lets it read all again"
    return Step(CONFIG_CONSUMER_OFFSET.id, file, f"left as it is: {where}", why)


def _delays(store: StoreFiles, findings: list[Finding], limits: Limits) -> Iterator[Step]:
    levels = {(f.queue_id or 0) + 1 for f in findings}
    text = (read_all(store.tree, _DELAYS) or b"").decode("utf-8", "surrogateescape")
    new, moved = text, []
    for level, offset in delay_offsets(store).items():
        low, high = limits.get((SCHEDULE_TOPIC, level - 1), (0, 0))
        right = min(max(offset, low), high)
        if level in levels and right != offset:
            new = _put(new, "offsetTable", level, offset, right)
            moved.append(f"level {level} from {offset} to {right}")
    if new != text:
        edits = tuple(replaced(store, _DELAYS, new.encode("utf-8", "surrogateescape")))
        what = "bring delay levels back into their queues: " + "; ".join(moved)
        yield Step(CONFIG_DELAY_OFFSET.id, _DELAYS, what, findings[0].message, edits)


def _put(text: str, key: str, number: int, old: int, new: int) -> str:
    """Return the text with one offset changed, and nothing else; padded to the old length where that is longer."""
    quoted = re.escape(json.dumps(key, ensure_ascii=False))
    pattern = re.compile(rf'({quoted}\s*:\s*\{{[^{{}}]*?(?<![\d"])"?{number}"?\s*:\s*){old}(?!\d)')
    return pattern.sub(lambda m: m[1] + str(new).rjust(len(str(old))), text)


# --- the checkpoint ---------------------------------------------------------------------------------


def checkpoint_steps(store: StoreFiles, findings: Iterable[Finding], directory: Path) -> Iterator[Step]:
    """Yield the step to a checkpoint that promises what log and queues hold, where the one that is there does not.

    Args:
        store: with log, queues and index as they will be.
        directory: room to build in.
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


def _last_time(store: StoreFiles, entry: Entry) -> int:
    with closing(store.tree.open(entry.path)) as source:
        return read_header(source)["end_timestamp"]


def index_time_steps(store: StoreFiles, step_id: str) -> Iterator[Step]:
    """Yield the step to a checkpoint that promises the index as it will be, so that a start deletes no file of it.

    Args:
        store: as it will be, its index the one that the log gives.
        step_id: of the step because of which a start would delete more.
    """
    known = read_checkpoint(store)
    if known is None:
        return
    fields, size = known
    fields["index_msg_timestamp"] = max((_last_time(store, entry) for entry in index_entries(store)), default=0)
    content = _RUN.packer.pack(*(fields[name] for name in _RUN.names)).ljust(size, b"\0")
    why = "after a crash brokers delete index files that are newer than the checkpoint says; these agree with the log"
    yield Step(
        step_id, PATH, "write the time up to which there is an index", why, tuple(replaced(store, PATH, content))
    )
