"""`trace` of a RocketMQ store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.answer import Answer
from rmqctl.life import place_in, show_lives
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.verbs.common import begin, no_start, row_options

if TYPE_CHECKING:
    from rmqctl import questions


def trace(store: StoreFiles, asked: questions.Trace) -> Answer:
    """Return the lives of the messages that a key, an id or a place names."""
    from rmqctl.filters import Rendering
    from rmqctl.rocketmq.query.life import LifeReader
    from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
    from rmqctl.rocketmq.state.releases import release_range

    show = row_options(Rendering(), asked.as_release)
    answer = begin(store)
    answer.work, answer.total = "scan", sum(file.size for file in store.log_files)

    def make() -> None:
        release = asked.as_release or release_range(store).highest
        with RecoveredStore(store, release) as started:
            reader = LifeReader(started, answer.advance, strict=show.strict)
            try:
                place = place_in(asked.message)
                lives = reader.at_place(*place) if place is not None else []
                more = 0
                if not lives:
                    lives, more = reader.named(asked.message, asked.topic, asked.most)
            finally:
                reader.close()
            if started.replays and not started.recovery.starts:
                answer.remark(no_start(release, str(started.recovery.error)))
            show_lives(answer, asked.message, lives[: asked.most], more=more)
            if not lives:
                answer.remark(f"nothing found for {asked.message}: {reader.why_not(asked.message)}")

    answer.make = make
    return answer
