"""`query-offset`, `query-time` and `query-key` of a log directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmqctl.answer import Answer, Row, Section
from rmqctl.explain import step_lines
from rmqctl.filters import Filters
from rmqctl.kafka.filters import Wanted
from rmqctl.kafka.query.key import KeySearch, explain_key, latest_rows
from rmqctl.kafka.query.offset import OffsetQuestion, offset_rows
from rmqctl.kafka.query.steps import NO_TOPIC, Trace
from rmqctl.kafka.query.time import SPECIAL, offset_for_time
from rmqctl.kafka.state.replicas import Replicas, release_shown
from rmqctl.kafka.verbs.looking import begin, no_topic
from rmqctl.parallel import processes_for
from rmqctl.release import Release

_RECORD = ("partition", "offset", "timestamp", "key", "value")
_ANSWER = ("topic", "partition", "time", "offset", "timestamp")


def query_offset(
    replicas: Replicas,
    topic: str,
    partition: int,
    offset: int,
    filters: Filters,
    *,
    read_committed: bool,
    explain: bool,
) -> Answer:
    """Give the records that a consumer gets from an offset on."""
    answer = begin(replicas, Answer())
    log = replicas.find(topic, partition)
    if log is None:
        answer.rows = _no_partition(replicas, topic, partition, answer, explain=explain)
        return answer
    wanted = Wanted(filters)
    limit = filters.limit or 1
    keep = wanted.records if wanted.is_selective else None
    rows = offset_rows(log, OffsetQuestion(offset, limit, read_committed, explain, keep))
    answer.rows, answer.sections = rows, lambda: _offset_sections(rows)
    answer.is_no = rows[0]["status"] != "FOUND"
    return answer


def _offset_sections(rows: Sequence[Row]) -> Iterator[Section]:
    status = rows[0]
    span = f"the log is [{status['log_start_offset']}, {status['log_end_offset']}), stable before "
    span += f"{status['last_stable_offset']}; a consumer goes on at {status['next_offset']}"
    yield Section(lines=[f"{status['status']}: {span}"])
    yield Section(rows=[row for row in rows if row["kind"] == "record"], columns=_RECORD, is_optional=True)
    yield Section(lines=step_lines(row for row in rows if row["kind"] == "step"))


def query_time(
    replicas: Replicas,
    topic: str,
    partition: int | None,
    time: int | str,
    *,
    explain: bool = False,
    as_release: Release | None = None,
) -> Answer:
    """Give the offset that a broker answers for a time, and the record there.

    Args:
        as_release: whose broker; None: of the release that the directories show.
    """
    answer = begin(replicas, Answer())
    if partition is None:
        chosen = replicas.of(topic)
    else:
        one = replicas.find(topic, partition)
        chosen = [one] if one else []
    if not chosen:
        answer.rows = _no_partition(replicas, topic, partition, answer, explain=explain)
        return answer
    rows: list[Row] = []
    release = as_release or release_shown(replicas)
    for log in chosen:
        rows += offset_for_time(log, time, release, explain=explain).rows(topic, log.partition.partition or 0)
    answer.rows = rows
    answers = [row for row in rows if row["kind"] == "time_answer"]
    answer.is_no = all(row["offset"] < 0 for row in answers)
    answer.sections = lambda: _time_sections(rows, answers)
    return answer


def _time_sections(rows: list[Row], answers: list[Row]) -> Iterator[Section]:
    words = {number: word for word, number in SPECIAL.items()}
    yield Section(rows=[{**row, "time": words.get(row["time"], row["time"])} for row in answers], columns=_ANSWER)
    records = [row for row in rows if row["kind"] == "record"]
    yield Section(rows=records, columns=_RECORD, is_optional=True)
    yield Section(lines=step_lines(row for row in rows if row["kind"] == "step"))


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """Which records are asked for by key.

    Attributes:
        begin, end: bounds of the timestamp, inclusive, epoch ms.
        most: records at most.
        latest: only the last one of each partition.
        processes: to search with; None: by the size of the log.
    """

    topic: str
    key: str
    filters: Filters
    begin: int
    end: int
    most: int | None
    latest: bool
    explain: bool
    processes: int | None = None


def query_key(replicas: Replicas, asked: KeyQuestion) -> Answer:
    """Give the records with a key, or the last one of each partition."""
    filters = asked.filters
    chosen = [log for log in replicas.of(asked.topic) if filters.queue in {None, log.partition.partition}]
    answer = begin(replicas, Answer(work="query-key", total=sum(f.size for log in chosen for f in log.partition.logs)))
    if not chosen:
        answer.rows = _no_partition(replicas, asked.topic, filters.queue, answer, explain=asked.explain)
        return answer
    wanted, data = Wanted(filters), asked.key.encode("utf-8", "surrogateescape")

    processes = asked.processes or processes_for(answer.total or 0)
    keep = wanted.records if wanted.is_selective else None

    def rows() -> Iterator[Row]:
        found: list[Row] = []
        search = KeySearch(chosen, data, keep, processes, answer.advance)
        every = (row for _, row in search.rows())
        for row in latest_rows(every) if asked.latest else every:
            if asked.begin <= max(row["timestamp"], 0) <= asked.end:
                found.append(row)
                yield row
                if asked.most is not None and len(found) >= asked.most:
                    return
        if asked.explain or not found:
            steps = explain_key(chosen, data, replicas.partition_count(asked.topic), found).rows()
            yield from steps if asked.explain else ()
            if not found:
                answer.is_no = True
                answer.remark(f"{steps[-1]['result']}; {steps[0]['result']}")

    answer.rows = rows()
    answer.sections = lambda: _key_sections(rows())
    return answer


def _key_sections(rows: Iterator[Row]) -> Iterator[Section]:
    steps: list[Row] = []

    def records() -> Iterator[Row]:
        for row in rows:
            if row["kind"] == "step":
                steps.append(row)
            else:
                yield row

    yield Section(rows=records(), columns=_RECORD, is_optional=True)
    yield Section(lines=step_lines(steps))


def _no_partition(
    replicas: Replicas, topic: str, partition: int | None, answer: Answer, *, explain: bool
) -> Sequence[Row]:
    """Say that nothing of what was asked for is here; gives the step that says so."""
    answer.is_no = True
    here = [str(log.partition.partition) for log in replicas.of(topic)]
    if here and partition is not None:
        why = f"partition {partition} of topic {topic} is not here, only {', '.join(here)}"
    else:
        why = no_topic(replicas, topic)
    answer.remark(why)
    steps = Trace(on=explain)
    steps.conclude(NO_TOPIC, what=why)
    return steps.rows()
