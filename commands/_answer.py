"""Answers of the `query-*` commands: messages in the broker's order, then what was looked at on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from commands._app import Output, Row

if TYPE_CHECKING:
    from rmqctl.rocketmq.query.records import Record
    from rmqctl.rocketmq.query.steps import Step


def message_rows(records: Iterable[Record], *, strict: bool = False, body: bool = False) -> Iterator[Row]:
    """Records as the objects that `dump` shows."""
    from rmqctl.rocketmq.rows.record import RecordRows
    from rmqctl.rocketmq.rows.show import STRICT_PROPERTIES_UNTIL, Show

    rows = RecordRows(Show(body, release=STRICT_PROPERTIES_UNTIL if strict else None))
    return (rows.row(record.fields, record.file, record.position) for record in records)


def write_answer(out: Output, messages: Iterable[Row], steps: Sequence[Step] = ()) -> int:
    """Write messages and the steps behind them; returns how many messages there were."""
    count = 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in messages:
            count += 1
            yield row

    if out.kind != "table":
        out.show(chain(counted(), (step.row() for step in steps)))
        return count
    from commands._dump_table import write_table

    found = iter(counted())
    first = next(found, None)
    if first is not None:
        write_table(chain([first], found), out)
    write_steps(out, [step.row() for step in steps], apart=first is not None)
    return count


def write_steps(out: Output, steps: Sequence[Row], *, title: str = "", apart: bool = True) -> None:
    """Write steps as numbered lines; the last one says why, with its id.

    Args:
        title: a line above them.
        apart: leave a line free in front.
    """
    if steps:
        out.text(_step_lines(steps, [""] * apart + [title] * bool(title)))


def _step_lines(steps: Sequence[Row], head: list[str]) -> Iterator[str]:
    yield from head
    for number, step in enumerate(steps, 1):
        place = f"{step['file']}: " if step["file"] else ""
        if "id" in step:
            yield f"=> {step['result']} [{step['id']}]"
        else:
            yield f"{number:>3}. {place}{step['what']}: {step['result']}"
