"""`rmqctl explain`: what a finding or a reason means, what to do about it, and what brokers do."""

from __future__ import annotations

from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

import click

from commands import Command
from commands._app import Output
from commands._complete import explained
from commands._options import output_option
from commands._types import refuse_id


@click.command("explain", cls=Command, usual="output")
@click.argument("id", metavar="FINDING-ID", shell_complete=explained)
@output_option()
def command(id: str, out: Output) -> None:  # noqa: A002 - what users know it by
    """Say what a finding means, what to do about it, and what a broker does when it meets it.

    FINDING-ID is an id that verify, dump, recover or repair print, or the id of a reason that a query gives with
    --explain; a beginning that only one of them has is enough. `rmqctl formats findings` and `rmqctl formats misses`
    list them all.

    \b
    Examples:
      rmqctl explain log.body-crc
      rmqctl explain miss.not-indexed -o json
    """
    known = _known()
    begun = [name for name in known if name.startswith(id)]
    id = begun[0] if len(begun) == 1 else id  # noqa: A001 - a beginning that only one id has
    if id not in known:
        refuse_id("FINDING-ID", id, begun[:3] or get_close_matches(id, known, n=3))
    row = known[id]
    out.document({key: value for key, value in row.items() if value} if out.kind == "table" else row)


def _known() -> dict[str, dict[str, Any]]:
    """Every finding and every reason, by id, with the pages of the documentation on it."""
    from rmqctl.explain import all_misses
    from rmqctl.findings import all_kinds, pages_of

    found = {kind.id: {**asdict(kind), "pages": pages_of(kind)} for kind in all_kinds()}
    for row in found.values():
        del row["page"]  # it is among the pages
    return found | {m.id: {**asdict(m), "pages": [f"reference/misses/{m.id}"]} for m in all_misses()}
