"""`preflight` of a RocketMQ store: the start of another release, the way back, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rmqctl import questions
from rmqctl.answer import Answer
from rmqctl.errors import Refused
from rmqctl.files.settings import read_settings
from rmqctl.foresight import Estimate, ForeseenStart, Foresight, Load, Pace, Statement, answer_of, measured_rate
from rmqctl.parallel import most_processes
from rmqctl.release import Release
from rmqctl.rocketmq.queues.files import RECOVERED_FILES
from rmqctl.rocketmq.recovery.outcome import Recovery, lost, undispatched
from rmqctl.rocketmq.recovery.replay import recover as replay
from rmqctl.rocketmq.recovery.rules import has_dledger_log, unknown_topics
from rmqctl.rocketmq.state.parts import later_parts
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.state.settings import as_configured
from rmqctl.rocketmq.store.files import StoreFiles

_PACE = Pace(2.0, 2500e6, 0.0001, 1.1e-6, 1.0e-6)


def preflight(store: StoreFiles, asked: questions.Preflight) -> Answer:
    """Say what a start of another release does to a store, and whether the release shown can come back.

    Raises:
        Refused: the log is one of DLedger.
    """
    if has_dledger_log(store):
        raise Refused(
            f"{store.root} has a DLedger log, whose recovery is not replayed: its group decides where it ends"
        )
    answer = Answer(work="preflight", document_kinds=frozenset({"json", "csv"}))
    if store.is_running:
        answer.remark("a broker holds the lock of this store: what is read may be changing")
    return answer_of(lambda: _look(store, asked), answer)


def _look(store: StoreFiles, asked: questions.Preflight) -> Foresight:
    found = release_range(store)
    wanted, statements = store, list[Statement]()
    if asked.conf is not None:
        wanted, statements = as_configured(store, asked.to, read_settings(asked.conf))
    start = _replayed(wanted, asked.to)
    back = None
    if asked.to != found.highest:
        back = _start(_replayed(store, found.highest))
    return Foresight(
        "rocketmq-store", store.root, found.row(), _start(start), back, statements,
        list(later_parts(found.highest, asked.to)), _estimate(wanted, start) if start.starts else None,
    )  # fmt: skip


def _replayed(store: StoreFiles, release: Release) -> Recovery:
    """Replay the start of a broker; without a configuration, as where a program alone has used the store's classes, it
    serves nothing.
    """
    found = replay(store, release, databases=True, processes=most_processes())
    found.unknown_topics = unknown_topics(store, {topic for topic, *_ in found.ranges()}, by_a_broker=True)
    return found


def _start(found: Recovery) -> ForeseenStart:
    return ForeseenStart(
        found.release, found.starts, found.error, lost(found), undispatched(found), "message", found.harm("it"),
        statements=found.unread, unserved=found.unserved,
    )  # fmt: skip


def _estimate(store: StoreFiles, found: Recovery) -> Estimate:
    loads = list(_loads(store, found))
    files = [file for file in reversed(found.log_files) if file.name in found.scanned_files]
    rate = measured_rate((file.open() for file in files), _PACE.bytes_per_second)
    return Estimate(loads, found.redispatched + found.index_keys, _PACE, rate)


def _loads(store: StoreFiles, found: Recovery) -> Iterator[Load]:
    """Yield what is read of the log, of the ends of queues by topic, and of index files, which are mapped alone.

    Queue files are as long as they will ever be; a start reads what is written, in the last of them
    (``ConsumeQueue.recover``).
    """
    left, records = found.bytes, found.records
    for file in found.log_files:
        size = min(file.size, left) if file.name in found.scanned_files else 0
        share = round(records * size / left) if left else 0
        yield Load(file.name, size, records=share)
        left, records = left - size, records - share
    topics: dict[str, Load] = {}
    for image in found.images:
        written = sum(file.wrote for file in image.files[-RECOVERED_FILES:])
        path = f"{image.key[0]}/{image.key[1]}"
        before = topics.get(path, Load(path, 0, 0))
        topics[path] = replace(before, size=before.size + written, files=before.files + len(image.files))
    yield from topics.values()
    if store.index_files:
        yield Load("index", 0, len(store.index_files))
