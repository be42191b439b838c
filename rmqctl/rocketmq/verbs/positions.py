"""`offsets` of a RocketMQ store: what its groups have reached, and the plan that gives them other positions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property

from rmqctl import questions
from rmqctl.answer import Proposal, staging
from rmqctl.errors import Refused
from rmqctl.positions import Key, elsewhere, show_changes, shown, wanted
from rmqctl.rocketmq.query.lag import Progress, progress_of, queues_of_topic
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.query.time import TimeQuestion, answer_of
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.repair.books import books_of
from rmqctl.rocketmq.repair.positions import default_place, plan_positions
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.verbs.planning import annotate
from rmqctl.text import typed

_OF_BROKERS = "CID_RMQ_SYS_"
"""Groups by which a broker itself consumes (``MixAll.CID_RMQ_SYS_PREFIX``)."""

_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
"""Names of groups (``Validators.checkGroup``); a broker does not load a position of a name with ``@``."""


class HeldPositions:
    """Groups and queues of a store as a broker has them once it has started; a :class:`rmqctl.positions.Held`."""

    family, queue_field = "rocketmq", "queue_id"

    def __init__(self, started: RecoveredStore) -> None:
        self.started = started
        self._limits: dict[tuple[str, int], tuple[int, int]] = {}
        self._queues: dict[str, list[int]] = {}

    @cached_property
    def progress(self) -> Progress:
        """All that is stored."""
        return progress_of(self.started)

    def positions(self) -> Mapping[Key, int]:
        offsets = self.progress.offsets
        return {Key(*pair, number): own.offset for pair, found in offsets.items() for number, own in found.items()}

    def is_internal(self, group: str) -> bool:
        return group.startswith(_OF_BROKERS)

    def name_error(self, group: str) -> str | None:
        return None if _GROUP.fullmatch(group) else "brokers know 1 to 255 letters, digits and %|_- in it"

    def place(self, key: Key) -> str:
        stored = self.progress.offsets.get((key.group, key.topic), {}).get(key.queue)
        return default_place(self.started.store) if stored is None else stored.file

    def queues(self, topic: str) -> Sequence[int]:
        if topic not in self._queues:
            found = set(queues_of_topic(self.started, topic))
            if self.started.replays:
                found |= set(self.started.recovered_queues(topic))
            self._queues[topic] = sorted(found)
        return self._queues[topic]

    def limits(self, topic: str, queue: int) -> tuple[int, int]:
        if (topic, queue) not in self._limits:
            with open_queue(self.started, topic, queue) as view:
                self._limits[topic, queue] = max(view.min_offset, 0), max(view.max_offset, 0)
        return self._limits[topic, queue]

    def at_time(self, topic: str, queue: int, time: int) -> int:
        with open_queue(self.started, topic, queue) as view:
            return answer_of(view, TimeQuestion(time)).queue_offset

    def between(self, topic: str, queue: int, low: int, high: int) -> int:
        smallest, end = self.limits(topic, queue)
        return max(min(high, end) - max(low, smallest), 0)

    def done(self, key: Key) -> Sequence[tuple[int, int]]:
        return ()


def offsets(store: StoreFiles, asked: questions.Offsets, answer: Proposal) -> Proposal:
    """Show the positions of groups, or plan others."""
    staged = ExitStack()
    answer.close = staged.close
    answer.make = lambda: _make(store, asked, answer, staged)
    return answer


def _make(store: StoreFiles, asked: questions.Offsets, answer: Proposal, staged: ExitStack) -> None:
    held = HeldPositions(staged.enter_context(RecoveredStore(store, release_range(store).highest)))
    if not asked.choice.changes:
        shown(asked.choice, held, answer)
        return
    if held.started.replays and not held.started.recovery.starts:
        raise Refused(
            f"no {held.started.release} broker starts on {store.root}, so nobody knows where its queues end: "
            f"{held.started.recovery.error}; nothing was written; see: {typed('repair', store.root)}"
        )
    found = wanted(asked.choice, held)
    if found.changes:
        room = staged.enter_context(staging(store.root, answer.intent))
        stored = {(own.group, own.topic, n): own for by in held.progress.offsets.values() for n, own in by.items()}
        plan = plan_positions(store, found.changes, stored, room)
        answer.plan, answer.annotate = plan, annotate
        answer.hold_to(books_of(store, plan))
        answer.check = lambda: _not_there(store, {change.key: change.new for change in found.changes})
    show_changes(found, held, answer)


def _not_there(store: StoreFiles, expected: Mapping[Key, int]) -> list[str]:
    """Return the positions that a store, as it is now, has otherwise, a sentence each."""
    from rmqctl.rocketmq.store.locate import open_store_at

    again = open_store_at(store.root)
    with RecoveredStore(again, release_range(again).highest, as_found=True) as started:
        return elsewhere(HeldPositions(started).positions(), expected, "/")
