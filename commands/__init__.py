"""The command line of rmqctl: one module per subcommand, imported when it is asked for.

`rmqctl --help` imports click and this package, nothing else; a subcommand's module is named in
:data:`COMMANDS` with its short help, and holds the click command under the name ``command``.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from commands import _progress
from commands._cells import want_colour
from commands._complete import WORDS
from commands._defaults import defaults_of
from commands._guard import INCOMPLETE, TYPED, exit_code_of, report_bug
from commands._signals import be_patient

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: dict[str, tuple[str, str]] = {
    "doctor": ("commands.doctor", "First look: what is wrong, what a start does, what to type."),
    "verify": ("commands.verify", "Check each file alone, then the files against each other."),
    "recover": ("commands.recover", "What a broker does at start-up: stops, deletes, loses."),
    "explain": ("commands.explain", "What a finding means, what to do, what brokers do."),
    "info": ("commands.info", "Kind, release, geometry, state, first and last message."),
    "report": ("commands.report", "One page about stores, to attach to a ticket."),
    "browse": ("commands.browse", "Walk through a store on the terminal."),
    "bundle": ("commands.bundle", "The smallest copy that shows what is wrong, no messages."),
    "repair": ("commands.repair", "Mend damage with the least loss; `undo` takes it back."),
    "undo": ("commands.undo", "Take back what a command wrote, or finish it."),
    "rebuild": ("commands.rebuild", "Queues, index and checkpoint made from the log."),
    "salvage": ("commands.salvage", "Every readable message into a new store."),
    "offsets": ("commands.offsets", "Positions of consumer groups: shown, and changed by plan."),
    "dump": ("commands.dump", "Any file or a whole log, record by record, damage in place."),
    "query-key": ("commands.query_key", "Messages by key, by the broker's index or the log."),
    "query-id": ("commands.query_id", "The message with an offsetMsgId or a unique key."),
    "query-offset": ("commands.query_offset", "Messages of a queue from an offset on."),
    "query-time": ("commands.query_time", "The queue offset that a broker answers for a time."),
    "trace": ("commands.trace", "The life of one message: each step with its evidence."),
    "topics": ("commands.topics", "Topics and queues: offsets, messages, bytes, times."),
    "lag": ("commands.lag", "Consumer groups: offset, lag, anomalies."),
    "producers": ("commands.producers", "Kafka: producers of partitions, replayed from the log."),
    "transactions": ("commands.transactions", "Kafka: transactions by their latest state; those that hang."),
    "metadata": ("commands.metadata", "Kafka: brokers, topics, partitions, settings of the cluster."),
    "stats": ("commands.stats", "Messages, bytes, latency, keys by topic, queue, tag, hour."),
    "sql": ("commands.sql", "Query a store with SQL."),
    "export": ("commands.export", "Messages as Parquet, ORC, CSV, JSON lines or a table."),
    "pipeline": ("commands.pipeline", "What running on a Spark cluster needs."),
    "diff": ("commands.diff", "Where two stores or logs differ."),
    "elect": ("commands.elect", "Which replica may lead, and what each choice loses."),
    "convert": ("commands.convert", "A Kafka log directory of a RocketMQ store, or the reverse."),
    "preflight": ("commands.preflight", "What a start of another release refuses or loses."),
    "watch": ("commands.watch", "Check stores in use over and over; say what is new."),
    "produce": ("commands.produce", "Write messages into a store, or into a new one."),
    "formats": ("commands.formats", "The layout of every known file, from the schemas."),
    "config": ("commands.config", "Defaults in force, and where they come from."),
    "completion": ("commands.completion", "What a shell needs to complete commands and names."),
}
"""Subcommand -> module and short help, in the order of `rmqctl --help`."""
_HEADINGS = {
    "doctor": "What is wrong",
    "repair": "Mending",
    "dump": "Messages",
    "topics": "Topics, groups, transactions",
    "stats": "Figures and tables",
    "diff": "Several stores, replicas, releases",
    "produce": "Tests and this tool",
}
"""The first command of each group of `rmqctl --help` -> the heading of the group."""


_CLEANS_UP = {
    "bundle",
    "produce",
    "convert",
    "export",
    "salvage",
    "rebuild",
    "repair",
    "recover",
    "undo",
    "offsets",
    "stats",
    "sql",
    "pipeline",
}
"""Commands that have to take back or to finish something when they are interrupted."""


COMPLETE = "_RMQCTL_COMPLETE"
"""The variable by which a shell asks for completions."""
SEVERAL = frozenset("@*?[")
"""What an inventory or a pattern of paths has, see `rmqctl.inventory.is_several`, and no command."""
SCREEN = 40
"""Lines that `--help` of a command has at most, on a terminal of 80 columns."""
_EVERYTHING = "rmqctl.help-all"


class Command(click.Command):
    """A command whose `--help` fits on one screen.

    Where the whole help does not, it is the first paragraph, the options that people use, the examples, and as many of
    the other paragraphs as there is room for.

    Args:
        usual: names of the options that people use, without dashes, separated by blanks.
    """

    def __init__(self, *args: Any, usual: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.usual = set(usual.split())

    def get_help(self, ctx: click.Context) -> str:
        whole = super().get_help(ctx)
        if ctx.meta.get(_EVERYTHING) or whole.count("\n") < SCREEN:
            return whole
        first, *others, examples = inspect.cleandoc(self.help or "").split("\n\n")
        while True:
            brief = self._brief("\n\n".join((first, *others, examples))).get_help(ctx)
            if brief.count("\n") < SCREEN or not others:
                return brief
            others.pop()

    def _brief(self, text: str) -> click.Command:
        kept = [p for p in self.params if isinstance(p, click.Argument) or self.usual & {o.lstrip("-") for o in p.opts}]
        return click.Command(self.name, params=kept, help=text, epilog="More options: --help-all")


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports one when it runs, errors turned into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in _CLEANS_UP:
            be_patient()
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        if not any(parameter.name == "quiet" for parameter in command.params):
            command.params += _for_all()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and _names_stores(args[0]):
            args = ["doctor", *args]
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.NoSuchCommand(args[0], possibilities=list(COMMANDS), ctx=ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if ctx.resilient_parsing:
            ctx.meta[WORDS] = tuple(rest)
        elif command is not None and name is not None:
            defaults = defaults_of(name, command, rest, COMMANDS)
            if defaults:
                ctx.default_map = {name: defaults}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: list[tuple[str, list[tuple[str, str]]]] = []
        for name, (_, short) in COMMANDS.items():
            if name in _HEADINGS:
                groups.append((_HEADINGS[name], []))
            groups[-1][1].append((name.ljust(max(map(len, COMMANDS))), short))
        for heading, rows in groups:
            with formatter.section(heading):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an answer that cannot be whole exits 1, whichever command gives it."""
        if ctx.meta.get(_VERSION):
            return _show_version(ctx.meta.get(_OUTPUT))
        if ctx.meta.get(_OUTPUT):
            raise click.UsageError("-o is an option of a command: give it after its name.", ctx)
        given = super().invoke(ctx)
        if ctx.meta.get(INCOMPLETE):
            raise SystemExit(1)
        return given

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and exit with its code; see `commands._guard` for what becomes of errors."""
        name = prog_name or "rmqctl"
        if not standalone_mode:
            return super().main(args, name, complete_var, standalone_mode, **extra)
        if COMPLETE in os.environ:
            self._complete(name)
        sys.exit(exit_code_of(lambda: self._run(list(sys.argv[1:] if args is None else args), name, extra)))

    def _complete(self, name: str) -> None:
        """Answer a shell; a line that cannot be completed is none of its errors."""
        try:
            self._main_shell_completion({}, name, COMPLETE)
        except Exception:  # noqa: BLE001 - it would stand in the middle of what is typed
            sys.exit(1)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete the name of a command without importing any; a path is one, too, for `doctor`."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = [
            CompletionItem(name, help=short) for name, (_, short) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return names or [CompletionItem(incomplete, type="file")]

    def _run(self, args: list[str], name: str, extra: dict[str, Any]) -> None:
        _progress.start_again()
        with self.make_context(name, list(args), **extra) as context:
            context.meta[TYPED] = args
            self.invoke(context)


def _names_stores(word: str) -> bool:
    """Whether a word is a path that is there, several with commas between them, a pattern of paths or an inventory."""
    return bool(SEVERAL & set(word)) or os.path.exists(word) or all(map(os.path.exists, word.split(",")))


def _for_all() -> list[click.Parameter]:
    """Return the options that every command has."""

    def quiet(_: click.Context, __: click.Parameter, wanted: bool) -> None:
        if wanted:
            _progress.be_quiet()

    def still(_: click.Context, __: click.Parameter, wanted: bool) -> None:
        if wanted:
            _progress.show_no_bar()

    def colour(_: click.Context, __: click.Parameter, when: str) -> None:
        want_colour(when)

    def everything(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted and not context.resilient_parsing:
            context.meta[_EVERYTHING] = True
            click.echo(context.get_help())
            context.exit()

    whole = "Show all options and exit."
    text = "No remarks and no progress on stderr, only errors."
    return [
        click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=quiet, help=text),
        click.Option(["--no-progress"], is_flag=True, expose_value=False, callback=still, help="No progress bar."),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            expose_value=False,
            callback=colour,
            help="Colour on terminals, always or never; NO_COLOR and CLICOLOR_FORCE count, too.",
        ),
        click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=everything, help=whole),
    ]


_VERSION, _OUTPUT = "rmqctl.version", "rmqctl.version.output"


def _note(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def note(context: click.Context, _: click.Parameter, value: Any) -> None:
        context.meta[name] = value

    return note


def _show_version(kind: str | None) -> None:
    from rmqctl import __version__

    if kind == "json":
        import json

        from rmqctl.installation import versions

        click.echo(json.dumps(versions(__version__), indent=2))
    else:
        click.echo(f"rmqctl {__version__}")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=_note(_VERSION),
    help="Show the version; with -o json of all libraries, too.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    expose_value=False,
    hidden=True,
    callback=_note(_OUTPUT),
)
def cli() -> None:
    """Look at, explain and mend RocketMQ stores and Kafka log directories from their files alone.

    No broker and no network is needed, and nothing is written unless a command is asked to.

    \b
    Examples:
      rmqctl info /data/rocketmq/store
      rmqctl verify /var/lib/kafka/data
      rmqctl dump /data/rocketmq/store --topic TopicTest -o jsonl

    Exit status: 0 all is well; 1 damage found or nothing matched; 2 wrong usage; 10 and above: it
    could not be done.
    """


def main() -> None:
    """Entry point of the console script and of ``python -m rmqctl``."""
    try:
        cli.main(prog_name="rmqctl")
    except Exception:  # noqa: BLE001 - reported with its traceback
        report_bug()
