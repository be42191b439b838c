"""`preflight` of log directories: the start of another release, the way back, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqctl import questions
from rmqctl.answer import Answer
from rmqctl.files.settings import read_settings
from rmqctl.foresight import Estimate, ForeseenStart, Foresight, Load, Pace, answer_of, measured_rate
from rmqctl.kafka.directory.directory import LogFile
from rmqctl.kafka.directory.releases import release_range
from rmqctl.kafka.recovery.replay import RecoveredPartition, Recovery
from rmqctl.kafka.recovery.replay import recover as replay
from rmqctl.kafka.state.parts import SETTINGS, later_parts
from rmqctl.kafka.state.replicas import Replicas, facts, release_shown
from rmqctl.kafka.verbs.recovering import summary

_PACE = Pace(2.0, 2000e6, 0.0003, 0.0, 0.0)


def preflight(replicas: Replicas, settings: Mapping[str, str], asked: questions.Preflight) -> Answer:
    """Say what a start of another release does to log directories, and whether the release shown can come back."""
    answer = Answer(work="preflight", document_kinds=frozenset({"json", "csv"}))
    if replicas.place.is_running:
        answer.remark("a broker holds the lock of this directory: what is read may be changing")
    return answer_of(lambda: _look(replicas, settings, asked), answer)


def _look(replicas: Replicas, settings: Mapping[str, str], asked: questions.Preflight) -> Foresight:
    shown = release_shown(replicas)
    given = settings if asked.conf is None else read_settings(asked.conf)
    found = replay(replicas, asked.to, given)
    back = None if asked.to == shown or found.unknown else _start(replay(replicas, shown, settings))
    said = [] if asked.conf is None else list(SETTINGS.said_of(given, shown, asked.to))
    kraft = any(one is not None and one.version == 1 for one in replicas.identities)
    return Foresight(
        "kafka-log-directory", replicas.place.root, release_range(facts(replicas)), _start(found), back, said,
        list(later_parts(shown, asked.to, kraft=kraft)), _estimate(found) if found.starts else None,
    )  # fmt: skip


def _start(found: Recovery) -> ForeseenStart:
    said = summary(found)
    harm = "" if found.is_harmless else found.harm("it")
    return ForeseenStart(
        found.release, found.starts, found.error, said["lost"], said["hidden"], "record",
        "" if found.unknown and not (found.lost_records or found.hidden) else harm, found.unknown, found.unread,
    )  # fmt: skip


def _estimate(found: Recovery) -> Estimate:
    loads = [_load(partition) for partition in found.partitions]
    rate = measured_rate((log.open() for one in found.partitions for log in _read(one)), _PACE.bytes_per_second)
    return Estimate(loads, sum(len(partition.loaded.recovered) for partition in found.partitions), _PACE, rate)


def _load(partition: RecoveredPartition) -> Load:
    files = len(partition.loaded.partition.files)
    return Load(partition.key, sum(log.size for log in _read(partition)), files)


def _read(partition: RecoveredPartition) -> Iterator[LogFile]:
    """Yield the logs that the start checks from end to end."""
    return (log for log in partition.loaded.partition.logs if log.base in partition.loaded.recovered)
