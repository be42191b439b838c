"""`trace` of a log directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rmqctl.answer import Answer
from rmqctl.kafka.query.life import LifeReader
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.verbs.looking import begin_served, keeping_of, no_topic
from rmqctl.life import place_in, show_lives
from rmqctl.parallel import processes_for

if TYPE_CHECKING:
    from rmqctl import questions


def trace(replicas: Replicas, asked: questions.Trace, settings: Mapping[str, str]) -> Answer:
    """Return the lives of the records with a key, or of the one at a place."""
    answer = begin_served(replicas, Answer(work="trace"))

    size = sum(file.size for log in replicas.served for file in log.partition.logs)
    answer.total = size
    reader = LifeReader(
        replicas, lambda topic: keeping_of(replicas, topic, settings), answer.advance, processes=processes_for(size)
    )

    def make() -> None:
        place = place_in(asked.message)
        lives, more = reader.at_place(*place) if place is not None else [], 0
        if not lives:
            key = asked.message.encode("utf-8", "surrogateescape")
            lives, more = reader.with_key(key, asked.topic, asked.most)
        show_lives(answer, asked.message, lives, more=more)
        if not lives and asked.topic is not None and not reader.logs(asked.topic):
            answer.remark(no_topic(replicas, asked.topic))
        elif not lives:
            answer.remark(
                f"no record here has the key {asked.message}: never written, or removed by compaction or retention"
            )

    answer.make = make
    return answer
