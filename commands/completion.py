"""`rmqctl completion`: what a shell needs to complete commands, options and names of a store."""

from __future__ import annotations

import click

from commands import Command


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what a shell needs to complete commands and options, files, topics, groups, releases and ids of findings.

    Topics, groups and releases are those of the store on the line. Only names are read for them, never the log.

    \b
    Examples:
      eval "$(rmqctl completion bash)"                          (in ~/.bashrc)
      eval "$(rmqctl completion zsh)"                           (in ~/.zshrc)
      rmqctl completion fish > ~/.config/fish/completions/rmqctl.fish
    """
    from click.shell_completion import get_completion_class

    from commands import COMPLETE, cli

    known = get_completion_class(shell)
    assert known is not None
    click.echo(known(cli, {}, "rmqctl", COMPLETE).source())
