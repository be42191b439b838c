"""`convert`: stores of one family made of stores of the other, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqctl.answer import Answer, Row, Section
from rmqctl.convert import to_kafka, to_rocketmq
from rmqctl.convert.report import Conversion, ConvertOptions
from rmqctl.errors import Refused, TooDamaged, WrongUsage
from rmqctl.files.new_files import check_new_directory, making
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.store import KafkaStore
from rmqctl.rocketmq.family import RocketMQStore
from rmqctl.rocketmq.store.files import missing_log
from rmqctl.rocketmq.store.locate import check_no_part
from rmqctl.store import Store, refuse_verb
from rmqctl.text import number_of, typed

_LOST = ("topic", "queue_id", "queue_offset", "message")
_FINDING = ("severity", "id", "file", "offset", "size", "message")

__all__ = ["ConvertOptions", "convert"]


def convert(store: Store, into: Path, options: ConvertOptions) -> Answer:
    """Make a Kafka log directory of a RocketMQ store, or a RocketMQ store of Kafka log directories.

    The source is only read. Where it fails everything that was made is removed.

    Args:
        into: a directory that is not there yet, or empty.

    Raises:
        Refused: something is there, it lies in the source, or too little room is free.
        TooDamaged: the log of the source is not there.
        WrongUsage: the store is of another kind.
    """
    check_no_part(into)
    check_new_directory(into, _trees(store))
    if options.renumber and isinstance(store, RocketMQStore):
        raise WrongUsage("--renumber", "is for Kafka as the source: a partition keeps the offsets of its queue.")
    to = "kafka-log-directory" if isinstance(store, RocketMQStore) else "rocketmq-store"
    answer = Answer(work="convert", total=2 * store.size)
    answer.remark_writers(store)
    answer.remark(f"writing a {to.replace('-', ' ')} to {into}; {store.root} is only read")

    def make() -> None:
        result = Conversion(to, store.root, into)
        with making(into, options.owner):
            now = store.at_one_moment()
            if isinstance(now, RocketMQStore):
                to_kafka.to_kafka(now.files, result, options, answer.advance)
            elif isinstance(now, KafkaStore):
                to_rocketmq.to_rocketmq(now.replicas, result, options, answer.advance)
        rows = result.rows()
        answer.rows = rows
        answer.summary = result.summary
        answer.document = lambda: {"summary": result.summary(), "rows": rows}
        answer.sections = lambda: _sections(result)
        answer.is_no = not result.is_whole

    answer.make = make
    return answer


def _trees(store: Store) -> list[str]:
    """Return the local directories that the store lies in.

    Raises:
        Refused: its log cannot be converted.
        TooDamaged: its log is not there.
        WrongUsage: it is of a kind that nothing is made of.
    """
    if isinstance(store, RocketMQStore):
        if any(file.lead for file in store.files.log_files):
            raise Refused(f"{store.root} has a DLedger log; export its messages instead")
        if (missing := missing_log(store.files)) is not None:
            raise TooDamaged(store.root, missing.message)
        return [store.root] if isinstance(store.files.tree, LocalTree) else []
    if isinstance(store, KafkaStore):
        return [d.root for d in store.logs.directories if isinstance(d.tree, LocalTree)]
    refuse_verb(store, "convert")


def _sections(result: Conversion) -> Iterator[Section]:
    yield Section(rows=list(_by_topic(result)))
    yield Section(rows=result.lost, columns=_LOST, title="left out", is_optional=True)
    findings = [finding.row() for finding in result.findings]
    yield Section(rows=findings, columns=_FINDING, title="could not be read", is_optional=True)
    yield Section(lines=_sentences(result))


def _by_topic(result: Conversion) -> Iterator[Row]:
    """Yield a row for each topic that has messages, or offsets without them."""
    for topic in dict.fromkeys(queue.topic for queue in result.queues):
        queues = [queue for queue in result.queues if queue.topic == topic]
        if any(queue.end for queue in queues):
            sums = {name: sum(getattr(queue, name) for queue in queues) for name in ("messages", "gaps", "aborted")}
            yield {"topic": topic, "target_topic": queues[0].target, "queues": len(queues), **sums}


def _sentences(result: Conversion) -> Iterator[str]:
    s = result.summary()
    yield (
        f"{number_of(s['messages'], 'message')} of {number_of(s['queues'], 'queue')} and offsets of "
        f"{number_of(s['groups'], 'consumer group')} written to {s['into']}"
    )
    for _, count, sentence in result.without_twin():
        yield f"  {count:,} {sentence}"
    yield from result.books.lines()
    yield f"next: {typed('verify', s['into'])}"
