"""What recovery does in each family of releases, as a table of policies (spec 6, 15).

The boundaries were found in the released sources; each field names the method that decides it. The first step of a
start is here too: which files it takes, and what makes it give up (spec 1.2, 6.1, 9.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from rmqctl.files.tree import Entry, Tree, read_all
from rmqctl.release import Release
from rmqctl.rocketmq.state.config import (
    configured_topics,
    has_stored_config,
    needs_no_entry,
    queue_type,
    read_config,
)
from rmqctl.rocketmq.state.releases import has_known_broker
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, StoreFile, StoreFiles, is_queue_id
from rmqctl.rocketmq.store.geometry import Geometry, flag


class ScanStart(StrEnum):
    """How the file is chosen at which the scan of the log begins."""

    THIRD_LAST = "third-last file"
    QUEUES_END = "last file that begins at or before the end of the queues"
    VALIDATED = "last file whose first record is sound and begins at or before the end of the queues"
    STORE_TIME = "last file whose first record is not younger than the checkpoint"
    VALIDATED_TIME = "last file whose first record is sound and not younger than the checkpoint"
    LOGICS_OFFSET = "last file whose first record is sound and lies at or before the checkpoint's logics offset"


class QueueCut(StrEnum):
    """When a recovery cuts the queues to the end of the log (``truncateDirtyLogicFiles``)."""

    AFTER_CRASH = "after a crash, always"
    WHEN_AHEAD = "where a queue knows of a later record"


class WrongLength(StrEnum):
    """What a file of the wrong length does to the load (``MappedFileQueue.load``)."""

    IGNORE_REST = "the file and all later ones are ignored"
    FAIL = "the broker does not start"


@dataclass(frozen=True, slots=True)
class RecoveryRules:
    """One family of releases.

    Attributes:
        release: the release asked for.
        normal_start, abnormal_start: after a clean exit, after a crash.
        dispatches_after_queues: ``recoverNormally`` dispatches records that lie after the end of the queues.
        max_files: files that the search for the start looks at; 0: all.
        queue_cut: see :class:`QueueCut`.
        holds_length: TOTALSIZE has to be what the lengths inside add up to. Releases before read on after what they
            have read, and count TOTALSIZE (``checkMessageAndReturnSize``).
        room: bytes of the array that texts are read into; 0: TOTALSIZE.
        skips_foreign_queues: a queue directory whose name is no number is passed over.
        skips_repeated: a unit whose queue offset lies before the end of the queue is not appended again.
        cuts_late: whether queues are cut is decided after dispatch (True) or before it.
        reput_from_queues: start() dispatches from the end of the queues and waits for the end of the log.
        precheck: lengths are compared with the file before a record is read (``checkMessageAndReturnSize``).
        wrong_length: see :class:`WrongLength`.
        skips_directories, drops_empty_last: ``MappedFileQueue.doLoad``.
        index_error_stops: an index file that cannot be read stops the broker.
        known_v2, known_v6: V2 records and IPv6 hosts are understood.
        minimum_5: ``ConsumeQueue.correctMinOffset`` of 5.x.
        batch_queues: batch consume queues are loaded.
    """

    release: Release
    normal_start: ScanStart
    abnormal_start: ScanStart
    dispatches_after_queues: bool
    max_files: int
    cuts_late: bool
    reput_from_queues: bool
    precheck: bool
    wrong_length: WrongLength
    skips_directories: bool
    drops_empty_last: bool
    index_error_stops: bool
    known_v2: bool
    known_v6: bool
    minimum_5: bool
    batch_queues: bool
    queue_cut: QueueCut
    holds_length: bool
    room: int
    skips_foreign_queues: bool
    skips_repeated: bool

    @classmethod
    def of(cls, release: Release) -> RecoveryRules:
        """Return the rules of a release."""
        return cls(
            release=release,
            normal_start=_by(
                release, (5, 3, 4), ScanStart.VALIDATED, (5, 3, 2), ScanStart.QUEUES_END, ScanStart.THIRD_LAST
            ),
            abnormal_start=_by(
                release, (5, 5, 0), ScanStart.LOGICS_OFFSET, (5, 3, 4), ScanStart.VALIDATED_TIME, ScanStart.STORE_TIME
            ),
            dispatches_after_queues=release >= (5, 3, 2),
            max_files=10 if release >= (5, 4, 0) else 0,
            cuts_late=release >= (5, 3, 4),
            reput_from_queues=(4, 5, 1) <= release < (5, 0, 0),
            precheck=release >= (5, 3, 2),
            wrong_length=WrongLength.FAIL if release >= (4, 5, 1) else WrongLength.IGNORE_REST,
            skips_directories=release >= (5, 1, 0),
            drops_empty_last=release >= (5, 1, 3),
            index_error_stops=release >= (5, 0, 0),
            known_v2=release >= (5, 1, 0),
            known_v6=release >= (4, 6, 0),
            minimum_5=release >= (5, 0, 0),
            batch_queues=release >= (5, 0, 0),
            queue_cut=QueueCut.WHEN_AHEAD if release >= _APACHE else QueueCut.AFTER_CRASH,
            holds_length=release >= _APACHE,
            room=0 if release >= _APACHE else _ITEM_ROOM,
            skips_foreign_queues=release >= _APACHE,
            skips_repeated=release >= _APACHE,
        )


_APACHE = (4, 0, 0)
_ITEM_ROOM = 524_288 + 8
"""``maxMessageSize`` and the smallest blank: ``DefaultAppendMessageCallback.msgStoreItemMemory`` of 3.x."""


FAMILIES: tuple[Release, ...] = (
    Release(4, 4, 0),
    Release(4, 9, 8),
    Release(5, 3, 1),
    Release(5, 3, 3),
    Release(5, 4, 0),
    Release(5, 5, 0),
)
"""One release of each family that recovers in its own way: 4.4, 4.5.1 to 4.9.8, 5.0.0 to 5.3.1, 5.3.2 to 5.3.3,
5.3.4 to 5.4.0, and 5.5.0."""


def _by(release: Release, *steps: object) -> ScanStart:
    """Return the value of the first step that is not newer than the release; the last stands alone."""
    for since, value in zip(steps[0:-1:2], steps[1:-1:2], strict=True):
        assert isinstance(since, tuple)
        if release >= since:
            assert isinstance(value, ScanStart)
            return value
    last = steps[-1]
    assert isinstance(last, ScanStart)
    return last


# --- the load step of a broker's start --------------------------------------------------------------


_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_STOPPING_CONFIG = (
    ("topics.json", Release(3, 0, 0)),
    ("topicQueueMapping.json", Release(5, 0, 0)),
    ("consumerOffset.json", Release(3, 0, 0)),
    ("subscriptionGroup.json", Release(3, 0, 0)),
    ("consumerFilter.json", Release(4, 0, 0)),
    ("consumerOrderInfo.json", Release(5, 0, 0)),
    ("delayOffset.json", Release(3, 0, 0)),
)
"""Files whose load ends the start where it fails, and since when (``BrokerController.initialize``)."""
_TIMER_CONFIG, _TIMERS = "timermetrics", Release(5, 0, 0)
Key = tuple[str, str, int]


def has_dledger_log(store: StoreFiles) -> bool:
    """Whether the log is one of DLedger, or goes on in one when the broker starts: such a start is not replayed."""
    return any(file.lead for file in store.log_files) or flag(store.settings, "enableDLegerCommitLog", default=False)


class LoadFailure(Exception):
    """The broker does not start; the text says why. Never leaves `rmqctl.rocketmq.recovery`."""


@dataclass(slots=True)
class Loaded:
    """What a broker has after its load step.

    Attributes:
        log: files of the commit log in the order of the broker's list.
        queues: files of each queue by (directory kind, topic, queue id).
        deleted: files that loading deletes; dispatch may make those of queues again.
    """

    log: list[StoreFile] = field(default_factory=list)
    queues: dict[Key, list[StoreFile]] = field(default_factory=dict)
    deleted: list[StoreFile] = field(default_factory=list)


def load_store(store: StoreFiles, rules: RecoveryRules, geometry: Geometry) -> Loaded:
    """Take the files as ``DefaultMessageStore.load`` does.

    Raises:
        LoadFailure: the broker does not start.
        OSError: a directory cannot be read, or a file of the log cannot be opened: a broker maps them all.
    """
    _load_config(store, rules)
    loaded = Loaded()
    loaded.log = _load_files(_log_entries(store), geometry.commit_log_file_size, rules, loaded.deleted)
    for file in loaded.log:
        _open(file)
    _load_queues(store, QUEUES, geometry.queue_file_size, rules, loaded)
    if rules.batch_queues:
        _load_queues(store, BATCH_QUEUES, geometry.batch_queue_file_size, rules, loaded)
    return loaded


def _open(file: StoreFile) -> None:
    """Raise what keeps a file from being read."""
    source = file.open()
    try:
        source.read_at(0, 1)
    finally:
        source.close()


def _log_entries(store: StoreFiles) -> list[tuple[str, Entry, Tree]]:
    """Entries of all log directories by name, each with the name to show and the directory it lies in."""
    entries = [
        (f"{name}/{e.name}" if name else e.name, e, tree) for name, tree in store.log_trees for e in tree.entries("")
    ]
    return sorted(entries, key=lambda item: item[1].name)


def _load_queues(store: StoreFiles, kind: str, size: int, rules: RecoveryRules, loaded: Loaded) -> None:
    for topic in store.tree.entries(kind, sizes=False):
        if not topic.is_directory:
            continue
        for queue in store.tree.entries(topic.path, sizes=False):
            if not is_queue_id(queue.name):
                if not rules.skips_foreign_queues:
                    raise LoadFailure(f"{queue.path}: its name is no queue id")
                continue
            entries = store.tree.entries(queue.path) if queue.is_directory else []
            ordered = sorted(((e.path, e, store.tree) for e in entries), key=lambda item: item[1].name)
            files = _load_files(ordered, size, rules, loaded.deleted)
            loaded.queues[kind, topic.name, int(queue.name)] = files
    if rules.batch_queues:
        _check_types(store, kind, {topic for found, topic, _ in loaded.queues if found == kind})


def _load_files(
    entries: Iterable[tuple[str, Entry, Tree]], size: int, rules: RecoveryRules, deleted: list[StoreFile]
) -> list[StoreFile]:
    """``MappedFileQueue.doLoad`` over one directory, entries in the order of their names."""
    entries, files = list(entries), []
    for number, (shown, entry, tree) in enumerate(entries):
        if entry.is_directory and rules.skips_directories:
            continue
        if entry.size <= 0 and not entry.is_directory and number == len(entries) - 1 and rules.drops_empty_last:
            deleted.append(StoreFile(shown, 0, 0, tree, entry.path, entry.mtime_ms))
            continue
        if entry.is_directory or entry.size != size:
            if rules.wrong_length is WrongLength.IGNORE_REST:
                break
            raise LoadFailure(f"{shown} {_wrong(entry, size)}")
        if not _NUMBER.fullmatch(entry.name) or int(entry.name) >= 1 << 63:
            raise LoadFailure(f"the name of {shown} is no offset")
        files.append(StoreFile(shown, int(entry.name), entry.size, tree, entry.path, entry.mtime_ms))
    return files


def _wrong(entry: Entry, size: int) -> str:
    """Return what is wrong with the length of a file; a link that leads nowhere has none (``File.length`` gives 0)."""
    if entry.is_directory:
        return "is a directory"
    return f"has {entry.size} bytes, not {size}" if entry.size >= 0 else "is a link that leads nowhere"


def _load_config(store: StoreFiles, rules: RecoveryRules) -> None:
    """``ConfigManager.load``: an unreadable file stops the broker only if its ``.bak`` cannot be read either."""
    names = [name for name, since in _STOPPING_CONFIG if rules.release >= since]
    if rules.release >= _TIMERS and flag(store.settings, "timerWheelEnable", default=True):
        names.append(_TIMER_CONFIG)
    for name in names:
        found = read_config(store, name)
        if found.error is not None and not found.fallback and read_all(store.tree, found.path + ".bak"):
            raise LoadFailure(f"neither {found.path} nor its .bak can be read")


def unknown_topics(store: StoreFiles, topics: Iterable[str], *, by_a_broker: bool = False) -> list[str]:
    """Topics that the configuration does not name, sorted: a broker answers TOPIC_NOT_EXIST to their consumers.

    Args:
        by_a_broker: a store that no broker has kept, and so without a configuration, is to be one's.
    """
    known = configured_topics(store)
    if known is None and (has_stored_config(store) or not (by_a_broker or has_known_broker(store))):
        return []
    is_served = needs_no_entry(store)
    return sorted(t for t in topics if t not in (known or {}) and not is_served(t))


def _check_types(store: StoreFiles, kind: str, topics: Iterable[str]) -> None:
    """``ConsumeQueueStore.queueTypeShouldBe``: topics.json must name the kind of queue that the directory holds."""
    actual = "BatchCQ" if kind == BATCH_QUEUES else "SimpleCQ"
    entries = configured_topics(store)
    if entries is None and (has_stored_config(store) or not has_known_broker(store)):
        return
    for topic in topics:
        wanted = queue_type((entries or {}).get(topic))
        if wanted != actual:
            raise LoadFailure(f"topics.json says that the queues of {topic} are {wanted}, but {kind}/{topic} is there")
