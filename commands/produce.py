"""`rmqctl produce`: messages into a store, by the store engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message
from commands._cells import instant
from commands._options import as_release_option, output_option
from commands._produce_asked import Asked
from commands._produce_options import produce_options
from commands._progress import Advance, progress
from commands._types import LocalPath
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.release import Release
    from rmqctl.rocketmq.engine.config import ForwardClock, MadeUpClock
    from rmqctl.rocketmq.engine.message import PutResult
    from rmqctl.rocketmq.producer.bulk import Run
    from rmqctl.rocketmq.producer.drafts import Draft
    from rmqctl.rocketmq.producer.produce import Room


WORTH_SAYING = 64 << 20
"""Bytes from which on the room that is needed is told before the work."""


@click.command("produce")
@click.argument("place", metavar="[PATH]", required=False, type=LocalPath())
@produce_options
@as_release_option
@output_option("summary", default="summary")
def command(place: Path | None, as_release: Release | None, out: Output, **given: Any) -> None:
    """Write messages into the store at PATH, as a broker would; makes the store if nothing is there.

    A broker that starts on the store serves every message. A store that is there goes on with its own
    file sizes and release.

    \b
    Examples:
      rmqctl produce /tmp/store --topic Orders --count 1000 --key order-{n} --tag TagA --small
      rmqctl produce /tmp/store --topic Log --lines /var/log/syslog
      rmqctl dump store --body -o jsonl | rmqctl produce /tmp/copy --jsonl -
    """
    from rmqctl.rocketmq.engine import StoreEngine
    from rmqctl.rocketmq.producer.bulk import can_bulk, produce_bulk
    from rmqctl.rocketmq.producer.damage import damage
    from rmqctl.rocketmq.producer.produce import produce, room_for
    from rmqctl.rocketmq.store.locate import check_no_part

    if "list" in given["damage"]:
        _list_damage(out)
        return
    if place is None:
        raise click.MissingParameter(param_hint="'PATH'", param_type="argument")
    check_no_part(place)
    path = str(place)
    asked = Asked(**given)
    drafts, total = asked.drafts()
    clock = asked.clock()
    config, template = asked.config(path, as_release, clock), asked.template()
    asked.check(config)
    if template is not None and asked.topics:
        _say_room(path, room_for(path, template, total or 0, asked.topics[0], config))
    engine = StoreEngine.open(path, config)
    if engine.recovered is not None and engine.recovered.files:
        message(
            f"{path} had crashed; recovered as its broker would; to take that back: {engine.recovered.undo_command}"
        )
    _go_on(clock, engine.log.store_timestamp)
    tally, options = _Tally(path), asked.options()
    with engine, progress("Producing", total, unit="messages") as advance:
        if out.kind == "summary" and template is not None and can_bulk(engine, template, options):
            tally.count(produce_bulk(engine, template, total or 0, options), options.topics, advance)
        else:
            results = tally.watch(produce(engine, tally.noted(drafts), options), advance)
            if out.kind == "summary":
                deque(results, 0)
            else:
                out.show(r.row() for r in results)
        if asked.deliver_due:
            deque(tally.watch(engine.deliver_due(), advance), 0)
        if asked.crash:
            engine.crash()
    tally.tell(out)
    tally.warn(config.release)
    for wish in asked.damage:
        message(f"damaged on purpose: {damage(Path(path), wish, asked.seed)}")


def _say_room(path: str, room: Room) -> None:
    room.check(path)
    if room.needed >= WORTH_SAYING:
        message(f"about {room.needed:,} bytes will be written to {path}; {room.free:,} are free")


def _go_on(clock: ForwardClock | MadeUpClock, last: int) -> None:
    """Keep store times in order: none is before that of the last message, ms, unless no clock ever showed that."""
    from rmqctl.rocketmq.index.files import LAST_TIME

    if last <= LAST_TIME and clock.not_before(last):
        message(f"store times go on behind {instant(last)}, that of the last message, as they never go back")


def _list_damage(out: Output) -> None:
    from rmqctl.rocketmq.producer.damage import KINDS

    kind = "table" if out.kind == "summary" else out.kind
    replace(out, kind=kind).show(damage.row() for damage in KINDS.values())


class _Tally:
    """Counts what was written, for the line at the end."""

    def __init__(self, path: str) -> None:
        from time import monotonic

        self.path, self.messages, self.bytes, self.empty = path, 0, 0, 0
        self.topics: set[str] = set()
        self._clock, self._start = monotonic, monotonic()

    def noted(self, drafts: Iterable[Draft]) -> Iterator[Draft]:
        """The drafts as they are; those without a body are counted."""
        for draft in drafts:
            self.empty += not draft.body
            yield draft

    def warn(self, release: Release) -> None:
        """Say that messages without a body stop consumers of a release; lines and objects are taken as they come."""
        from rmqctl.rocketmq.state.releases import FIRST_WITH_EMPTY_BODIES

        if self.empty and release < FIRST_WITH_EMPTY_BODIES:
            count = number_of(self.empty, "message")
            message(
                f"{count} without a body: push consumers before {FIRST_WITH_EMPTY_BODIES} fail on that and stop there"
            )

    def watch(self, results: Iterable[PutResult], advance: Advance) -> Iterator[PutResult]:
        for result in results:
            self.messages += 1
            self.bytes += result.size
            self.topics.add(result.topic)
            advance(1)
            yield result

    def count(self, runs: Iterable[Run], topics: tuple[str, ...], advance: Advance) -> None:
        for run in runs:
            self.messages += run.messages
            self.bytes += run.bytes
            advance(run.messages)
        self.topics.update(topics[: self.messages])

    def tell(self, out: Output) -> None:
        """The summary: on stdout where nothing else is there, else on stderr."""
        seconds = max(self._clock() - self._start, 1e-9)
        rate = f"{self.messages / seconds:,.0f} a second" if self.messages else "nothing to do"
        messages, topics = number_of(self.messages, "message"), number_of(len(self.topics), "topic")
        text = (
            f"{messages}, {self.bytes:,} bytes of log, {topics} in {self.path} "
            f"({seconds:.1f} s, {rate}); next: rmqctl topics {self.path}"
        )
        if out.kind == "summary":
            out.text([text])
        else:
            message(text)
