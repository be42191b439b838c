"""Every command as click knows it, as a page of the site and as a man page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from commands import COMMANDS, COMPLETE, cli
from rmqctl import __version__

COMPLETIONS = {
    "bash": "bash-completion/completions/rmqctl",
    "zsh": "zsh/site-functions/_rmqctl",
    "fish": "fish/vendor_completions.d/rmqctl.fish",
}
EVERY_COMMAND = Path(__file__).parent / "recipes" / "every-command.md"


@dataclass(frozen=True, slots=True)
class Command:
    """What the help of a command says.

    Attributes:
        path: as typed, such as ``rmqctl dump``.
        text: paragraphs; those of which a line is a line end with "\\n".
        options: how each is typed, and what it does.
    """

    path: str
    short: str
    usage: str
    text: tuple[str, ...]
    options: tuple[tuple[str, str], ...]


def all_commands() -> Iterator[Command]:
    """Yield ``rmqctl`` and every command, those of a group after it."""
    top = click.Context(cli, info_name="rmqctl", **cli.context_settings)
    yield _command(cli, top, "Look at, explain and mend message stores of RocketMQ and Kafka.")
    for name, (_, short) in COMMANDS.items():
        command = cli.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top)
        yield _command(command, context, short)
        for sub in command.commands.values() if isinstance(command, click.Group) else ():
            yield _command(sub, click.Context(sub, info_name=sub.name, parent=context), sub.get_short_help_str(200))


def _command(command: click.Command, context: click.Context, short: str) -> Command:
    blocks = inspect.cleandoc(command.help or "").split("\n\n")
    text = tuple(
        block.removeprefix("\b\n") + "\n" if block.startswith("\b\n") else " ".join(block.split()) for block in blocks
    )
    records = (p.get_help_record(context) for p in command.params if isinstance(p, click.Option))
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    return Command(context.command_path, short.rstrip("."), usage, text, tuple(r for r in records if r))


def share() -> Iterator[tuple[str, str]]:
    """Yield man pages and completions: name under ``share/``, and text."""
    for command in all_commands():
        yield f"man/man1/{command.path.replace(' ', '-')}.1", roff(command)
    for shell, name in COMPLETIONS.items():
        known = get_completion_class(shell)
        assert known is not None
        yield name, known(cli, {}, "rmqctl", COMPLETE).source()


def markdown(command: Command) -> str:
    """The page of a command."""
    parts = [f"# {command.path}", f"{_plain(command.short)}.", f"```text\n{command.usage}\n```"]
    for block in command.text:
        if block.endswith("\n"):
            parts.append(f"```text\n{block}```")
        else:
            parts.append(_plain(block))
    if command.options:
        parts.append("## Options")
        parts += [f"`{typed}`\n: {_plain(said) or 'as said above'}" for typed, said in command.options]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Markdown of a help text: what stands between backquotes is code, everything else means only itself."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a backquote alone
        pieces = [text.replace("`", "'")]
    return "`".join(p if n % 2 else re.sub(r"([\\*_<>\[\]{}$|#~])", r"\\\1", p) for n, p in enumerate(pieces))


def roff(command: Command) -> str:
    """The man page of a command."""
    name = command.path.replace(" ", "-")
    lines = [f'.TH "{name.upper()}" "1" "" "rmqctl {__version__}" "rmqctl"', ".SH NAME"]
    lines += [f"{name} \\- {_roff(command.short)}", ".SH SYNOPSIS", _roff(command.usage), ".SH DESCRIPTION"]
    for block in command.text:
        lines += [".PP", *([".nf", _roff(block.rstrip()), ".fi"] if block.endswith("\n") else [_roff(block)])]
    if command.options:
        lines.append(".SH OPTIONS")
        for typed, said in command.options:
            lines += [".TP", f".B {_roff(typed)}", _roff(said) or "as said above"]
    if command.path == "rmqctl":
        lines.append(".SH COMMANDS")
        for sub, (_, short) in COMMANDS.items():
            lines += [".TP", f".BR rmqctl\\-{_roff(sub)} (1)", _roff(short)]
        lines.append(".SH EXIT STATUS")
        for code, meaning in re.findall(r"^\| (\d+) \| (.*) \|$", EVERY_COMMAND.read_text("utf-8"), re.MULTILINE):
            lines += [".TP", f".B {code}", _roff(meaning)]
    else:
        lines += [".SH SEE ALSO", ".BR rmqctl (1)"]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.split("\n"))
