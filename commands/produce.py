"""`rmqctl produce`: messages into a store, by the store engine."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from commands import Command
from commands._answer import finish, prepare, showing
from commands._app import Output, message
from commands._apply import ask
from commands._options import as_release_option, output_option, refusing
from commands._produce_options import produce_options
from commands._types import LocalPath

if TYPE_CHECKING:
    from rmqctl.release import Release


@click.command("produce", cls=Command, usual="topic format partitions count body lines jsonl size key tag")
@click.argument("place", metavar="[PATH]", required=False, type=LocalPath())
@produce_options
@click.option("--yes", is_flag=True, help="Do not ask at a terminal before a store that is there goes on.")
@as_release_option
@output_option("summary", default="summary")
@refusing
def command(place: Path | None, family: str, yes: bool, as_release: Release | None, out: Output, **given: Any) -> None:
    """Write messages into the store at PATH, as a broker would; makes the store if nothing is there.

    A broker that starts on the store serves every message. A store that is there goes on with its own
    file sizes and release; undo cannot take messages back, so at a terminal this asks first. A new one is of
    RocketMQ, with --format kafka a log directory of a Kafka node: queues are partitions then, properties headers,
    bodies values, and --body and --size fill batches.

    \b
    Examples:
      rmqctl produce /tmp/store --topic Orders --count 1000 --key order-{n} --tag TagA --small
      rmqctl produce /tmp/store --topic Log --lines /var/log/syslog
      rmqctl dump store --body -o jsonl | rmqctl produce /tmp/copy --jsonl -
      rmqctl produce /tmp/logs --format kafka --topic Orders --partitions 3 --count 1000 --key k{n} --codec zstd --small
      rmqctl dump /data/kafka-logs --records -o jsonl | rmqctl produce /tmp/logs --format kafka --jsonl -
    """
    from rmqctl.opening import damages, produce
    from rmqctl.producing import ProduceRequest

    if "list" in given["damage"]:
        replace(out, kind="table" if out.kind == "summary" else out.kind).show(damages(family))
        return
    if place is None:
        raise click.MissingParameter(param_hint="'PATH'", param_type="argument")
    if place.is_dir() and any(place.iterdir()):
        ask(f"{place} is there already, and undo cannot take messages back that are appended to it. Append them?", yes)
    shared = {part.name for part in fields(ProduceRequest)} & given.keys()
    more = {name: value for name, value in given.items() if name not in shared and _is_given(name)}
    given = {name: value for name, value in given.items() if name in shared}
    lists = out.kind != "summary"
    request = ProduceRequest(**given, release=as_release, lists=lists, more=more)
    with produce(place, request, format=family) as answer:
        if lists:
            with showing(answer):
                out.show(answer.rows)
            message(answer.sentence())
        else:
            prepare(answer)
            out.text([answer.sentence()])
    finish(answer)


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT
