"""Defaults of options: variables ``RMQCTL_...`` and the user's configuration file, `config.toml`.

The file gives options of all commands at its top, and those of one command in a table with its name::

    output = "jsonl"

    [dump]
    limit = 100

``RMQCTL_OUTPUT`` and ``RMQCTL_DUMP_LIMIT`` do the same, and come before the file; the line comes before both.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

GENERAL = (
    "output", "color", "quiet", "no-progress", "local-time", "as-release", "format", "broker-conf", "processes",
    "journal", "max-body",
)  # fmt: skip
"""Options that may be set for all commands that have them."""
KINDS = ("table", "json", "jsonl", "csv")
"""Kinds of output that every command with rows has."""
TYPED_ONLY = frozenset({
    "abort-transaction", "apply", "body-damage", "crash", "damage", "force", "into", "list", "neutralize", "only",
    "outside", "overwrite", "owner", "redo", "resume", "skip", "yes",
})  # fmt: skip
"""Options that write, or decide about data: they stand on the line or nowhere."""
_PREFIX = "RMQCTL_"
_NAME = "rmqctl/config.toml"


class Default(NamedTuple):
    """What is set for an option.

    Attributes:
        command: "" for all that have the option.
        source: the variable, or the file with the key.
    """

    command: str
    option: str
    value: Any
    source: str


def config_file() -> Path:
    """Return where the user's configuration belongs: below ``XDG_CONFIG_HOME``, else below ``~/.config``."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.config").expanduser()) / _NAME


def defaults_of(name: str, command: click.Command, args: list[str], commands: Collection[str]) -> dict[str, Any]:
    """Return what is set for the options of a command, by the names of its parameters.

    Args:
        commands: the names of all, which the configuration may have options of.

    Raises:
        UsageError: a key is no option of the command, or a value is none that it takes.
    """
    if any(arg in {"-h", "--help", "--help-all"} for arg in args):
        return {}  # help is there for those whose file is wrong, too
    options = options_of(command)
    found = {}
    for default in settings(read_config(commands), name, options):
        option = options[default.option]
        found[str(option.name)] = checked(default, option, click.Context(command, info_name=name))
    return found


def options_of(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by their long names, without dashes before them."""
    return {
        long.removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for long in parameter.opts
        if long.startswith("--")
    }


def settings(config: Mapping[str, Any], name: str, options: Mapping[str, click.Option]) -> Iterator[Default]:
    """Yield what is set for options of a command; what comes later counts.

    Raises:
        UsageError: a key of the command's table is none of its options.
    """
    file = str(config_file())
    for option in GENERAL:
        if option in config and option in options and not _is_for_others(options[option], config[option]):
            yield Default("", option, config[option], f"{option} in {file}")
    table = config.get(name, {})
    if not isinstance(table, dict):
        raise click.UsageError(f"{name} in {file} is no table; write [{name}] and its options below.")
    for option, value in table.items():
        _hold(option, options, f"[{name}] of {file}")
        yield Default(name, option, value, f"{name}.{option} in {file}")
    variables = {option: _variable(name, option) for option in options if option not in TYPED_ONLY}
    for option in (option for option in GENERAL if option in options):
        value = os.environ.get(_variable("", option))
        if value and not _is_for_others(options[option], value):
            yield Default("", option, value, _variable("", option))
    for option, variable in variables.items():
        if os.environ.get(variable):
            yield Default(name, option, os.environ[variable], variable)


def _is_for_others(option: click.Option, value: Any) -> bool:
    """Whether a value for all commands is a kind of output that this one has not, such as CSV of what never ends."""
    return isinstance(option.type, click.Choice) and value in KINDS and value not in option.type.choices


def checked(default: Default, option: click.Option, context: click.Context) -> Any:
    """Return a value as the option takes it.

    Raises:
        UsageError: it does not; the error names the variable, or the file and the key.
    """
    value = default.value
    many = option.multiple or option.nargs != 1
    if isinstance(value, str) and many:
        value = option.type.split_envvar_value(value)
    if isinstance(value, dict) or (isinstance(value, list) and not many):
        raise click.UsageError(f"{default.source} is no single value, which --{default.option} takes.")
    if not isinstance(value, (str, list)) and option.multiple:
        value = [value]
    try:
        option.type_cast_value(context, value)
    except click.BadParameter as error:
        raise click.UsageError(f"{default.source}: {error.message}") from None
    return value


def read_config(commands: Collection[str]) -> dict[str, Any]:
    """Return the configuration file; nothing where there is none.

    Raises:
        UsageError: it is no TOML, or a key at its top is no command and no option of all.
    """
    file = config_file()
    try:
        text = file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from None
    import tomllib

    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(f"{file} is no TOML: {error}") from None
    for key in config:
        if key not in commands:
            _hold(key, [*GENERAL, *commands], str(file), GENERAL)
    return config


def unknown_variables(known: set[str]) -> list[str]:
    """Return the variables with the prefix that set nothing, sorted."""
    return sorted(name for name in os.environ if name.startswith(_PREFIX) and name not in known)


def variables_of(name: str, options: Mapping[str, click.Option]) -> set[str]:
    """Return the variables that set options of a command."""
    own = {_variable(name, option) for option in options if option not in TYPED_ONLY}
    return own | {_variable("", option) for option in GENERAL if option in options}


def _variable(name: str, option: str) -> str:
    return _PREFIX + "_".join(filter(None, (name, option))).replace("-", "_").upper()


def _hold(key: str, known: Any, where: str, meant: Any = None) -> None:
    """Refuse a key that may not be set.

    Raises:
        UsageError: it is no option, or one that stands on the line or nowhere.
    """
    if key in TYPED_ONLY and (key in known or meant is not None):
        raise click.UsageError(f"{key} in {where}: --{key} decides about data, so that it is typed each time.")
    if key not in known:
        from difflib import get_close_matches

        near = get_close_matches(key.replace("_", "-"), list(known), n=2, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(meant or known))}."
        raise click.UsageError(f"{key} in {where} sets nothing; {hint}")
