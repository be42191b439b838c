"""`rmqctl formats`: the layout of every known file, printed from the schemas."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from commands import Command
from commands._app import Output
from commands._complete import formats
from commands._options import output_option


@click.command("formats", cls=Command, usual="output")
@click.argument("name", required=False, shell_complete=formats)
@output_option(tables=True)
def command(name: str | None, out: Output) -> None:
    """List the known formats, or print the layout of one: offset, size, type, name, note.

    Printed from the same schemas that read the files. All integers are big-endian. `findings` lists
    every kind of finding with what it means and what to do, `misses` the reasons that `--explain` gives.

    \b
    Examples:
      rmqctl formats
      rmqctl formats message-v1
      rmqctl formats findings -o json
    """
    if name is None:
        out.show(_formats(), title="rmqctl formats NAME prints one; rmqctl formats findings lists what can be wrong")
    elif name == "findings":
        out.show(_findings(), columns=("id", "severity", "meaning", "remedy"))
    elif name == "misses":
        out.show(_misses())
    else:
        out.show(_layout(name, numbers=out.kind.startswith("json")))


def _formats() -> list[dict[str, Any]]:
    from formats.catalogue import CATALOGUE

    return [
        {"name": f.name, "title": f.title, "files": f.files, "since": f.since or None, "size": f.size}
        for f in CATALOGUE
    ]


def _findings() -> list[dict[str, Any]]:
    from rmqctl.findings import all_kinds

    return [asdict(kind) for kind in all_kinds()]


def _misses() -> list[dict[str, Any]]:
    from rmqctl.explain import all_misses

    return [asdict(miss) for miss in all_misses()]


def _layout(name: str, *, numbers: bool) -> list[dict[str, Any]]:
    from formats.catalogue import find, nearest

    layout = find(name)
    if layout is None:
        meant = nearest(name)
        hint = f"Did you mean {', '.join(meant)}?" if meant else "`rmqctl formats` lists them."
        raise click.BadParameter(f"{name!r} is no known format. {hint}", param_hint="NAME")
    rows = [asdict(row) for row in layout.rows()]
    return [{key: _number(value) for key, value in row.items()} for row in rows] if numbers else rows


def _number(text: str) -> str | int:
    """Return an offset or a size as the number it is; those that depend on a field stay text."""
    return int(text) if text.isascii() and text.isdigit() else text
