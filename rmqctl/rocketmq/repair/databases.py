"""RocksDB databases mended: made new from the log and from what can be read of them, and put in place as a whole.

Queues, index, timers and transactions come from the log. Configuration and pop state are in no log: what can be read of
them is kept, rows that fit no format are left out. The old database goes to quarantine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from formats.rocketmq.rocksdb import TOPIC_DATA
from rmqctl.errors import RmqctlError
from rmqctl.findings import Finding, Severity
from rmqctl.repair.edits import Step
from rmqctl.rocketmq.dispatch.queue_ends import queue_rows
from rmqctl.rocketmq.findings.derived import QUEUE_DATABASE, QUEUE_ORPHAN
from rmqctl.rocketmq.findings.state import DATABASE_TWO_PLACES
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.rebuild.databases import (
    NewDatabase,
    OldDatabase,
    message_database,
    queue_database,
    read_old,
    replacement,
)
from rmqctl.rocketmq.repair.config import topic_settings
from rmqctl.rocketmq.repair.derived import topic_of
from rmqctl.rocketmq.store.database_rows import fits
from rmqctl.rocketmq.store.databases import CONFIG_V2, MESSAGES, METADATA, TOPICS_V1, DatabaseDamaged, can_read
from rmqctl.rocketmq.store.files import QUEUES, SEPARATE_QUEUES, RocketMQStore
from rmqctl.rocketmq.store.geometry import flag

_AREA = "database."
_LONGEST_TOPIC = 127


def database_steps(store: RocketMQStore, findings: Iterable[Finding], directory: Path) -> Iterator[Step]:
    """A step for each database that has a finding.

    Args:
        store: with the log as it will be.
        findings: of a verification of it.
        directory: where to build; must stay until the plan is carried out.

    Raises:
        OSError: a file cannot be read or built.
    """
    wrong = [f for f in findings if f.level is not Severity.NOTE]
    two = next((f for f in wrong if f.kind is DATABASE_TWO_PLACES), None)
    if two is not None:
        yield _one_place(store, two)
        return
    first: dict[str, Finding] = {}
    for finding in wrong:
        path = _database_of(store, finding)
        if path is not None:
            first.setdefault(path, finding)
    for path, finding in first.items():
        yield _mended(store, path, finding, directory)


def _database_of(store: RocketMQStore, finding: Finding) -> str | None:
    """The database that a finding is about."""
    if finding.kind.id.startswith(_AREA):
        return finding.file
    if finding.kind is QUEUE_DATABASE:
        return store.queue_database
    topic = topic_of(finding)
    if finding.kind.id.startswith("queue.") and finding.kind is not QUEUE_ORPHAN and topic and store.in_database(topic):
        return store.queue_database
    return None


def _one_place(store: RocketMQStore, finding: Finding) -> Step:
    """Leave the database that broker.conf names, else the one that reaches further."""
    if "useSeparateStorePathForRocksdbCQ" in store.settings:
        separate = flag(store.settings, "useSeparateStorePathForRocksdbCQ", default=False)
        keep, why = SEPARATE_QUEUES if separate else QUEUES, "broker.conf names the other"
    else:
        reaches = {path: _reach(store, path) for path in (SEPARATE_QUEUES, QUEUES)}
        keep, why = max(reaches, key=lambda path: reaches[path]), "the other one holds more of the log"
    gone = QUEUES if keep == SEPARATE_QUEUES else SEPARATE_QUEUES
    return Step(finding.kind.id, gone, "move the database to quarantine", why, replacement(store, gone, None))


def _reach(store: RocketMQStore, path: str) -> int:
    """How much of the log a database of queues holds; -1 for one that cannot be opened."""
    try:
        with open_queues(store, path) as database:
            return database.dispatched_end()
    except DatabaseDamaged:
        return -1


def made_new(store: RocketMQStore, old: OldDatabase) -> NewDatabase:
    """The database as it must be.

    Raises:
        OSError: the log cannot be read.
    """
    if old.path in (QUEUES, SEPARATE_QUEUES):
        return queue_database(store, old)
    if old.path == MESSAGES:
        return message_database(store, old)
    made = NewDatabase(old.path)
    for family, rows in old.families.items():
        right = {key: value for key, value in rows.items() if fits(old.path, family, key, value)}
        for key in rows.keys() - right.keys():
            value = _topic_row(store, old.path, family, key)
            if value is not None:
                right[key] = value
                made.notes.append(f"topic {key[-_LONGEST_TOPIC:]!r} gets the default settings for the queues it has")
        made.put(family, dict(rows), right)
    return made


def _topic_row(store: RocketMQStore, path: str, family: str, key: bytes) -> bytes | None:
    """The row of a topic whose settings are damaged: without one a broker deletes the topic's queues in RocksDB."""
    name, start = key, b""
    if path == CONFIG_V2 and key.startswith(TOPIC_DATA):
        name, start = key[len(TOPIC_DATA) + 2 :], b"\x01"
    elif (path, family) not in ((METADATA, "topic"), (TOPICS_V1, "default")):
        return None
    topic = name.decode("utf-8", "replace")
    with suppress(RmqctlError, OSError):
        count = max((row.queue_id + 1 for row in queue_rows(store, as_found=True) if row.topic == topic), default=0)
        value = start + json.dumps(topic_settings(topic, count), separators=(",", ":"), ensure_ascii=False).encode()
        return value if count and fits(path, family, key, value) else None
    return None


def _mended(store: RocketMQStore, path: str, finding: Finding, directory: Path) -> Step:
    if not can_read():
        why = "the extra rocksdb is not installed, which writes databases: pip install 'rmqctl[rocksdb]'"
        return Step(finding.kind.id, path, f"left as it is: {finding.message}", why)
    old = read_old(store, path)
    made = made_new(store, old)
    in_log = path in (QUEUES, SEPARATE_QUEUES, MESSAGES)
    if not in_log and not any(old.families.values()):
        why = "nothing of it can be read, and no log holds it: take it from a copy"
        return Step(finding.kind.id, path, f"left as it is: {finding.message}", why)
    if made.is_equal and old.is_whole:
        why = "the log demands the rows that are there"
        return Step(finding.kind.id, path, f"left as it is: {finding.message}", why)
    what = f"make the database new: {made.what()}"
    why = "what the records of the log dispatch to it" if in_log else "the rows that can be read"
    if old.lost:
        made.notes.append(f"of the old one cannot be read: {', '.join(old.lost)}")
    why = "; ".join([why, *made.notes])
    return Step(finding.kind.id, path, what, why, replacement(store, path, made.write(directory)))
