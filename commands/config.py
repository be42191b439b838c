"""`rmqctl config`: defaults in force, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from commands import Command
from commands._app import Output, message
from commands._defaults import checked, config_file, options_of, read_config, settings, unknown_variables, variables_of
from commands._options import output_option


@click.command("config", cls=Command, usual="output")
@output_option(tables=True)
@click.pass_context
def command(context: click.Context, out: Output) -> None:
    """Show the defaults in force that are not rmqctl's own, and where each comes from.

    They come from the file config.toml in $XDG_CONFIG_HOME/rmqctl (else ~/.config/rmqctl), and before it from
    variables: RMQCTL_OUTPUT for all commands, RMQCTL_DUMP_LIMIT for one. What is on the line comes before both.
    Options that write, or decide about data, are typed each time. Exits 1 where a variable sets nothing.

    \b
    Examples:
      rmqctl config
      RMQCTL_COLOR=never rmqctl config -o json
    """
    known: set[str] = set()
    rows = list(_rows(context, known))
    file = config_file()
    out.show(
        rows, columns=("command", "option", "value", "source"), csv_columns=("command", "option", "value", "source")
    )
    if not rows:
        message(f"nothing is set; the file would be {file}")
    stray = unknown_variables(known)
    for name in stray:
        message(f"{name} is no option of any command, or of one that is typed each time")
    if stray:
        raise SystemExit(1)


def _rows(context: click.Context, known: set[str]) -> Iterator[dict[str, Any]]:
    from commands import COMMANDS

    group = context.parent and context.parent.command
    assert isinstance(group, click.Group)
    config, shown = read_config(COMMANDS), set()
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        options = options_of(command)
        known |= variables_of(name, options)
        last = {(d.command, d.option): d for d in settings(config, name, options)}
        for key, default in last.items():
            checked(default, options[default.option], context)
            if key not in shown:
                shown.add(key)
                yield {**default._asdict(), "command": default.command or None}
