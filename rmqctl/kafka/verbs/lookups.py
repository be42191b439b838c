"""`query-offset`, `query-time` and `query-key` of a log directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqctl import questions
from rmqctl.answer import Answer, Row, Section
from rmqctl.errors import WrongUsage
from rmqctl.explain import Trace, step_lines
from rmqctl.filters import TIME_WORDS, asked_time
from rmqctl.findings import header_of
from rmqctl.kafka.dump.dumping import RECORD_KEYS
from rmqctl.kafka.filters import Wanted
from rmqctl.kafka.query.key import KeySearch, explain_key, latest_rows
from rmqctl.kafka.query.offset import OffsetQuestion, offset_rows
from rmqctl.kafka.query.steps import NO_TOPIC
from rmqctl.kafka.query.time import SPECIAL, offset_for_time
from rmqctl.kafka.state.replicas import Replicas, release_shown
from rmqctl.kafka.verbs.looking import begin_served, no_topic
from rmqctl.parallel import processes_for

_RECORD = ("partition", "offset", "timestamp", "key", "value")
_ANSWER = ("topic", "partition", "time", "offset", "timestamp")

_STATUS_KEYS = "kind topic partition status next_offset log_start_offset log_end_offset last_stable_offset"
_TIME_KEYS = "kind topic partition time offset timestamp"
_STEP_KEYS = "kind file what result id"


def query_offset(replicas: Replicas, asked: questions.QueryOffset) -> Answer:
    """Give the records that a consumer gets from an offset on."""
    log = replicas.find(asked.topic, asked.queue)
    header = header_of(_STATUS_KEYS, RECORD_KEYS, _STEP_KEYS, damage=True)
    answer = begin_served(replicas, Answer(header=header), [log] if log else [])
    if log is None:
        answer.rows = _no_partition(replicas, asked.topic, asked.queue, answer, explain=asked.explain)
        return answer
    wanted = Wanted(asked.filters)
    limit = asked.filters.limit or 1
    keep = wanted.records if wanted.is_selective else None
    rows = offset_rows(log, OffsetQuestion(asked.offset, limit, asked.read_committed, asked.explain, keep))
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


def query_time(replicas: Replicas, asked: questions.QueryTime) -> Answer:
    """Give the offset that a broker answers for a time, and the record there."""
    topic, partition = asked.topic, asked.queue
    is_word = isinstance(asked.time, str) and asked.time in TIME_WORDS
    time = str(asked.time) if is_word else asked_time("TIME", asked.time)
    if partition is None:
        chosen = replicas.of(topic)
    else:
        one = replicas.find(topic, partition)
        chosen = [one] if one else []
    header = header_of(_TIME_KEYS, RECORD_KEYS, _STEP_KEYS, damage=True)
    answer = begin_served(replicas, Answer(header=header), chosen)
    if not chosen:
        answer.rows = _no_partition(replicas, topic, partition, answer, explain=asked.explain)
        return answer
    rows: list[Row] = []
    release = asked.as_release or release_shown(replicas)
    for log in chosen:
        rows += offset_for_time(log, time, release, explain=asked.explain).rows(topic, log.partition.partition or 0)
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


def query_key(replicas: Replicas, asked: questions.QueryKey) -> Answer:
    """Give the records with a key, or the last one of each partition.

    Raises:
        WrongUsage: topic or key is not given.
    """
    if asked.topic is None or asked.key is None:
        raise WrongUsage("TOPIC", "and KEY are both needed for a Kafka log directory.")
    topic, filters, (first, last) = asked.topic, asked.filters, asked.times
    most = min((n for n in (asked.most, filters.limit) if n is not None), default=None)
    chosen = [log for log in replicas.of(topic) if filters.queue in {None, log.partition.partition}]
    size = sum(file.size for log in chosen for file in log.partition.logs)
    header = header_of(RECORD_KEYS, _STEP_KEYS, damage=True)
    answer = begin_served(replicas, Answer(work="query-key", total=size, header=header), chosen)
    if not chosen:
        answer.rows = _no_partition(replicas, topic, filters.queue, answer, explain=asked.explain)
        return answer
    wanted, data = Wanted(filters), asked.key.encode("utf-8", "surrogateescape")

    processes = asked.processes or processes_for(answer.total or 0)
    keep = wanted.records if wanted.is_selective else None

    def rows() -> Iterator[Row]:
        found: list[Row] = []
        search = KeySearch(chosen, data, keep, processes, answer.advance)
        every = (row for _, row in search.rows())
        for row in latest_rows(every) if asked.latest else every:
            if first <= max(row["timestamp"], 0) <= last:
                found.append(row)
                yield row
                if most is not None and len(found) >= most:
                    return
        if asked.explain or not found:
            steps = explain_key(chosen, data, replicas.partition_count(topic), found).rows()
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
