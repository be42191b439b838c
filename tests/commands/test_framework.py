"""The command framework: start, errors and exit codes, streams that fail, shared types and options."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from freezegun import freeze_time

from commands import COMMANDS, SCREEN, LazyGroup, cli
from commands._app import Output
from commands._guard import BUG, exit_code_of
from commands._options import (
    FilterOptions,
    StoreOptions,
    as_release_option,
    filter_options,
    output_option,
    store_options,
)
from commands._types import Instant, PropertyFilter, QueueChoice, QueueName, Regex, Release, Size
from rmqctl.errors import FAMILY, IOFailure, MissingExtra, NotAStore, Refused, RmqctlError, StoreInUse, TooDamaged
from rmqctl.installation import line_for_extra
from rmqctl.release import Release as ReleaseNumber
from rmqctl.text import milliseconds_of

ROOT = Path(__file__).parents[2]


def run_python(code: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a small program that has `commands` at hand."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, timeout=60, **options)


def group_with(action: Callable[[], object]) -> LazyGroup:
    """A command line with one command, ``go``, that does ``action``."""

    class OneCommand(LazyGroup):
        def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
            return "go", click.Command("go", callback=action), args[1:]

    return OneCommand("rmqctl")


def outcome(error: BaseException) -> tuple[int, str]:
    def action() -> None:
        raise error

    result = CliRunner().invoke(group_with(action), ["go"])
    return result.exit_code, result.stderr


# start


def test_help_imports_click_and_nothing_heavy() -> None:
    done = run_python("""
        import sys
        from commands import cli
        try:
            cli(["--help"], prog_name="rmqctl")
        except SystemExit as end:
            assert end.code == 0, end.code
        heavy = {"numpy", "pyarrow", "rich", "construct", "pyspark", "orjson", "fsspec", "pandas"}
        print("LOADED", sorted(heavy & set(sys.modules)))
    """)
    assert done.stderr == b""
    assert done.stdout.endswith(b"LOADED []\n")


@pytest.mark.parametrize(
    "words", [["verify"], ["recover"], ["dump", "-n", "1"], ["query-offset", "T/0", "3"]], ids=lambda words: words[0]
)
def test_a_small_store_needs_no_arrow_no_pandas_and_no_other_process(words: list[str], tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert CliRunner().invoke(cli, ["produce", store, "--topic", "T", "--count", "20"]).exit_code == 0
    done = run_python(f"""
        import sys
        from commands import cli
        try:
            cli({[words[0], store, *words[1:]]!r}, prog_name="rmqctl")
        except SystemExit as end:
            assert end.code == 0, end.code
        heavy = {{"pyarrow", "pandas", "multiprocessing", "fsspec", "pyspark", "rocksdict", "numpy.ma"}}
        print("LOADED", sorted(heavy & set(sys.modules)))
    """)
    assert done.stdout.endswith(b"LOADED []\n"), (done.stdout, done.stderr)


def test_calls_at_any_depth_lie_in_one_piece_of_memory() -> None:
    """Else a loop that calls over the end of a piece takes fresh pages from the system with every call."""
    done = run_python("""
        import resource
        import commands
        from rmqctl import __main__

        def called(a=0, b=0, c=0, d=0, e=0, f=0, g=0, h=0, i=0, j=0, k=0, l=0):
            return [a, b, c, d, e, f, g, h, i, j, k, l]

        def faults(depth):
            if depth:
                return faults(depth - 1)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(300):
                called()
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        commands.main = lambda: print(max(map(faults, range(300))))
        __main__.main()
    """)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100


_OF_OTHERS = (
    "rmqctl.rocketmq.dump", "rmqctl.rocketmq.rebuild", "rmqctl.rocketmq.repair", "rmqctl.repair.edits", "rmqctl.kafka",
    "rmqctl.pipeline.settings", "rich", "socket", "tempfile",
)  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "own", "others"),
    [
        # three of them for the options of Spark, one each for the tables of kinds of files and of families
        ("recover", 111, ("rmqctl.rocketmq.verify", "rmqctl.rocketmq.dispatch.queue_ends")),
        ("verify", 137, ("rmqctl.rocketmq.verify.databases",)),
    ],
)
def test_reading_commands_import_little(verb: str, own: int, others: tuple[str, ...], tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert CliRunner().invoke(cli, ["produce", store, "--topic", "T", "--count", "20"]).exit_code == 0
    done = run_python(f"""
        import sys
        from commands import cli
        try:
            cli([{verb!r}, {store!r}, "-q"], prog_name="rmqctl")
        except SystemExit as end:
            assert end.code == 0, end.code
        print("LOADED", [name for name in sys.modules if name.startswith({(*_OF_OTHERS, *others)!r})])
        own = [name for name in sys.modules if name.partition(".")[0] in ("rmqctl", "formats", "commands")]
        assert len(own) <= {own}, (len(own), sorted(own))
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"LOADED []\n"), done.stdout


@pytest.mark.parametrize("verb", ["recover", "verify"])
def test_reading_commands_of_kafka_import_neither_arrow_nor_what_writes(verb: str, tmp_path: Path) -> None:
    store = str(tmp_path / "logs")
    assert (
        CliRunner().invoke(cli, ["produce", store, "--format", "kafka", "--topic", "T", "--count", "20"]).exit_code == 0
    )
    done = run_python(f"""
        import sys
        from commands import cli
        try:
            cli([{verb!r}, {store!r}, "-q"], prog_name="rmqctl")
        except SystemExit as end:
            assert end.code == 0, end.code
        others = ("pyarrow", "pandas", "rmqctl.tables", "rmqctl.repair.edits", "rmqctl.kafka.rebuild", "rmqctl.kafka.repair",
            "rmqctl.kafka.replication", "rmqctl.rocketmq", "multiprocessing")
        print("LOADED", [name for name in sys.modules if name.startswith(others)])
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"LOADED []\n"), done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_with_help_and_an_example(name: str, rmqctl: Any) -> None:
    module, short = COMMANDS[name]
    command = import_module(module).command
    assert isinstance(command, click.Command)
    result = rmqctl(name, "--help")
    assert result.exit_code == 0
    assert f"rmqctl {name}" in result.output.partition("Options:")[0].partition("\n")[2], "no example"
    assert short.endswith(".")
    assert name in rmqctl("--help").output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_on_a_screen_and_help_all_has_every_option(
    name: str, rmqctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    brief, whole = (rmqctl(name, option).output for option in ("--help", "--help-all"))
    assert brief.count("\n") <= SCREEN
    command = import_module(COMMANDS[name][0]).command
    named = {option.lstrip("-") for p in command.params for option in (*p.opts, *p.secondary_opts)}
    assert getattr(command, "usual", set()) <= named
    for option in (o for p in command.params if not getattr(p, "hidden", True) for o in p.opts):
        assert re.search(rf"{option}\b", whole), option
    assert brief == whole or brief.endswith("\n  More options: --help-all\n")


def test_version_and_module_entry() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rmqctl", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    from rmqctl import __version__

    assert done.stdout == f"rmqctl {__version__}\n"


_ENDS = """
    import atexit, sys, threading, time
    import commands
    from rmqctl.__main__ import main

    class Late:
        def __del__(self):
            print("the interpreter was taken apart")

    def slow():
        time.sleep(0.2)
        print("a thread has ended")

    def work():
        atexit.register(print, "cleaned up")
        threading.Thread(target=slow).start()
        sys.exit(2)

    late = Late()
    commands.main = work
    main()
"""


def test_the_process_ends_at_once_but_not_before_others_have_cleaned_up() -> None:
    done = run_python(_ENDS)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [b"a thread has ended", b"cleaned up"]
    assert done.stderr == b""


def test_what_cannot_be_written_at_the_exit_is_left_to_the_interpreter() -> None:
    with Path("/dev/full").open("wb") as full:
        command, buffered = [sys.executable, "-c", textwrap.dedent(_ENDS)], os.environ | {"PYTHONUNBUFFERED": ""}
        done = subprocess.run(command, cwd=ROOT, env=buffered, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 120
    assert b"No space left on device" in done.stderr


def test_unknown_command_suggests_the_nearest(rmqctl: Any) -> None:
    result = rmqctl("verfiy")
    assert result.exit_code == 2
    assert "Did you mean 'verify'?" in result.stderr


# errors and exit codes


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (IOFailure("cannot read x", OSError(errno.EIO, "Input/output error")), 10, "cannot read x: Input/output error"),
        (NotAStore("x", "no commitlog/ in it"), 11, "x is not a message store: no commitlog/ in it; give"),
        (StoreInUse("x"), 12, "x is in use"),
        (Refused("17 messages would be lost; add --force"), 13, "17 messages would be lost"),
        (MissingExtra("reading RocksDB queues", "rocksdb"), 14, line_for_extra("rocksdb")),
        (TooDamaged("x", "no record is left"), 15, "type: rmqctl verify x"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "gone"), 10, "gone: No such file"),
        (PermissionError(errno.EACCES, "Permission denied", b"secret"), 10, "secret: Permission denied; run as"),
        (OSError(errno.EIO, "Input/output error"), 10, "Input/output error"),
        (OSError(errno.ENOSPC, "No space left on device"), 10, "reading or writing failed: No space left"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (SystemExit(1), 1, ""),
        (SystemExit(None), 0, ""),
        (click.exceptions.Exit(1), 1, ""),
        (click.UsageError("not so"), 2, "not so"),
    ],
)
def test_errors_become_a_code_and_a_sentence(error: BaseException, code: int, words: str) -> None:
    exit_code, stderr = outcome(error)
    assert exit_code == code
    assert words in stderr
    assert "Traceback" not in stderr
    assert not words or stderr.count("\n") == 1 or isinstance(error, click.UsageError)


def test_a_closed_stdout_is_told() -> None:
    line = f"exec {sys.executable} -m rmqctl formats >&-"
    done = subprocess.run(["sh", "-c", line], check=False, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 10
    assert done.stderr.count("\n") == 1
    assert "standard output" in done.stderr


def test_closed_pipe_is_quiet() -> None:
    assert outcome(BrokenPipeError(errno.EPIPE, "Broken pipe")) == (0, "")


@pytest.mark.parametrize("error", [ValueError("bug"), EOFError("bug"), KeyError("bug")])
def test_bugs_stay_what_they_are(error: Exception) -> None:
    def action() -> None:
        raise error

    assert CliRunner().invoke(group_with(action), ["go"]).exception is error


def test_a_bug_prints_its_traceback_and_is_not_taken_for_damage() -> None:
    done = run_python("""
        import sys
        import commands
        def broken(self, ctx, args): raise ValueError("a bug")
        commands.LazyGroup.resolve_command = broken
        sys.argv = ["rmqctl", "info"]
        commands.main()
    """)
    assert done.returncode == BUG
    assert b"Traceback" in done.stderr
    assert b"ValueError: a bug" in done.stderr


def test_exit_codes_are_distinct_and_documented() -> None:
    codes = [kind.exit_code for kind in FAMILY]
    assert codes == [10, 11, 12, 13, 14, 15]
    assert set(RmqctlError.__subclasses__()) >= set(FAMILY)
    assert all(kind.meaning and kind.__doc__ for kind in FAMILY)


# streams that fail

ENDLESS = """
    import itertools, sys
    from commands._app import Output
    from tests.commands.test_framework import group_with
    rows = ({{"number": n, "text": "x" * 50}} for n in itertools.count())
    group_with(lambda: Output("{kind}").show(rows)).main(["go"])
"""


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "table"])
def test_reader_that_goes_away(kind: str) -> None:
    read, write = os.pipe()
    command = [sys.executable, "-c", textwrap.dedent(ENDLESS.format(kind=kind))]
    with subprocess.Popen(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        os.read(read, 100)
        os.close(read)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("kind", ["jsonl", "table"])
def test_full_disk_behind_stdout(kind: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(ENDLESS.format(kind=kind))]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 10
    assert done.stderr.startswith(b"rmqctl: cannot write the results to standard output: No space left on device; free")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_help_on_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rmqctl", "--help"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr.count(b"\n")) == (10, 1)
    assert b"standard output" in done.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_elsewhere_is_not_that_of_stdout(number: int) -> None:
    code, stderr = outcome(OSError(number, os.strerror(number)))
    assert code == 10 and "standard output" not in stderr and os.strerror(number) in stderr


def test_interrupt() -> None:
    command = [sys.executable, "-c", textwrap.dedent(ENDLESS.format(kind="jsonl"))]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.read(10)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, b"rmqctl: interrupted\n")


def test_rows_before_an_error_are_written(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        raise NotAStore("x", "it vanished")

    with pytest.raises(NotAStore):
        Output("jsonl").show(rows())
    assert capsysbinary.readouterr().out == b'{"n":1}\n'


# types


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("0", 0),
        ("2026-11-20T08:00:00Z", 1_795_161_600_000),
        ("2026-11-20T08:00:00.250+02:00", 1_795_154_400_250),
        ("-15m", 1_795_161_600_000 - 900_000),
        ("-1h30m", 1_795_161_600_000 - 5_400_000),
        ("-2d", 1_795_161_600_000 - 172_800_000),
        ("-250ms", 1_795_161_600_000 - 250),
        ("-1.5s", 1_795_161_600_000 - 1_500),
    ],
)
def test_instant(text: str, milliseconds: int) -> None:
    with freeze_time("2026-11-20T08:00:00Z"):
        assert Instant().convert(text, None, None) == milliseconds


@pytest.mark.parametrize(
    ("text", "utc", "berlin"),
    [
        ("2026-11-20T08:00:00", "2026-11-20T08:00:00Z", "2026-11-20T07:00:00Z"),
        ("2026-11-20 08:00", "2026-11-20T08:00:00Z", "2026-11-20T07:00:00Z"),
        ("2026-07-01", "2026-07-01T00:00:00Z", "2026-06-30T22:00:00Z"),
        ("2026-07-01T00:00:00Z", "2026-07-01T00:00:00Z", "2026-07-01T00:00:00Z"),
        ("now", "2026-11-20T23:30:00Z", "2026-11-20T23:30:00Z"),
        ("today", "2026-11-20T00:00:00Z", "2026-11-20T23:00:00Z"),
        ("yesterday", "2026-11-19T00:00:00Z", "2026-11-19T23:00:00Z"),
    ],
)
def test_a_time_without_a_zone_is_utc_and_local_on_request(
    text: str, utc: str, berlin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def milliseconds(moment: str) -> int:
        return round(datetime.fromisoformat(moment).timestamp() * 1000)

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        with freeze_time("2026-11-20T23:30:00Z"):
            assert milliseconds_of(text) == Instant().convert(text, None, None) == milliseconds(utc)
            assert milliseconds_of(text, local=True) == milliseconds(berlin)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("1700000000", "1700000000 can only be seconds; .* 1700000000000, or 2023-11-14T22:13:20.000Z"),
        ("20261120", "give 2026-11-20"),
    ],
)
def test_a_number_that_is_no_epoch_milliseconds_is_refused_with_what_is_meant(text: str, instead: str) -> None:
    with pytest.raises(click.BadParameter, match=instead):
        Instant().convert(text, None, None)


@pytest.mark.parametrize("text", ["", "tomorrow", "15m", "-15", "-15x", "-", "2026-13-01", "-m", "1e3", "²"])
def test_instant_refuses(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time; give 2026-11-20T08:00:00Z"):
        Instant().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("100", 100),
        ("64K", 65536),
        ("64KiB", 65536),
        ("64 kb", 65536),
        ("1GiB", 1 << 30),
        ("1.5M", 1_572_864),
    ],
)
def test_size(text: str, count: int) -> None:
    assert Size().convert(text, None, None) == count


@pytest.mark.parametrize("text", ["", "K", "-1", "1X", "1KK", "1.K"])
def test_size_refuses(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        Size().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "queue"),
    [
        ("TopicTest", QueueChoice("TopicTest", None)),
        ("TopicTest/3", QueueChoice("TopicTest", 3)),
        ("%RETRY%g/0", QueueChoice("%RETRY%g", 0)),
        ("a/b/7", QueueChoice("a/b", 7)),
    ],
)
def test_queue_name(text: str, queue: QueueChoice) -> None:
    assert QueueName().convert(text, None, None) == queue


@pytest.mark.parametrize("text", ["", "/", "/3", "T/", "T/x", "T/-1"])
def test_queue_name_refuses(text: str) -> None:
    with pytest.raises(click.BadParameter, match="does not name a queue"):
        QueueName().convert(text, None, None)


def test_queue_name_may_need_a_queue() -> None:
    with pytest.raises(click.BadParameter, match="TOPIC/QUEUE"):
        QueueName(needs_queue=True).convert("TopicTest", None, None)


def test_property_filter() -> None:
    assert PropertyFilter().convert("a=b=c", None, None) == ("a", "b=c")
    assert PropertyFilter().convert("a=", None, None) == ("a", "")
    for text in ("a", "=b", ""):
        with pytest.raises(click.BadParameter, match="NAME=VALUE"):
            PropertyFilter().convert(text, None, None)


def test_regex() -> None:
    assert Regex().convert("é+", None, None).search("caféé".encode())
    with pytest.raises(click.BadParameter, match=r"is not a regular expression: .* at position 0"):
        Regex().convert("(", None, None)


def test_release() -> None:
    assert Release().convert("5.3.3", None, None) == ReleaseNumber(5, 3, 3)
    assert ReleaseNumber.parse("4.9.8") < ReleaseNumber.parse("v5.1.4") < ReleaseNumber.parse("5.10.0")
    assert str(ReleaseNumber.parse("0.10.2.1")) == "0.10.2"
    series = ReleaseNumber.parse("5.3")
    assert str(series) == "5.3"
    assert series.among({(5, 3): 4}, "RocketMQ") == ReleaseNumber(5, 3, 4)
    assert ReleaseNumber(5, 3, 2).among({(5, 3): 4}, "RocketMQ") == ReleaseNumber(5, 3, 2)
    for text in ("5", "latest", "5.3.x", ""):
        with pytest.raises(click.BadParameter, match=r"is not a release such as 5\.3\.3"):
            Release().convert(text, None, None)


# options


@click.command
@store_options
@filter_options
@as_release_option
@output_option("text", "hex")
def everything(**values: object) -> None:
    """Print what the command was handed."""
    for name, value in sorted(values.items()):
        print(name, value)
    everything_was.append(values)


everything_was: list[dict[str, object]] = []


def parsed(*args: str) -> dict[str, Any]:
    everything_was.clear()
    result = CliRunner().invoke(everything, args)
    assert result.exit_code == 0, result.output
    return everything_was[0]


def test_options_left_out() -> None:
    assert parsed("store") == {
        "store": StoreOptions("store"),
        "filters": FilterOptions(),
        "as_release": None,
        "out": Output("table", local_time=False),
    }
    assert FilterOptions().is_empty


@freeze_time("2026-11-20T08:00:00Z")
def test_options_given() -> None:
    line = (
        "s3://bucket/store --commitlog a,b --broker-conf broker.conf --format rocketmq --as-release 5.1.4 -o hex --local-time "
        "--topic T --queue 1 --key k --tag t --property a=b --property c=d --after -15m --before 2026-11-20T08:00:00Z "
        "--from-offset 5 --to-offset 9 --grep x+ -n 3 --damaged"
    )
    values = parsed(*line.split())
    assert values["store"] == StoreOptions("s3://bucket/store", ("a", "b"), "broker.conf", "rocketmq")
    assert values["as_release"] == (5, 1, 4)
    assert values["out"] == Output("hex", local_time=True)
    now = 1_795_161_600_000
    assert values["filters"] == FilterOptions(
        ("T",), 1, ("k",), "t", (("a", "b"), ("c", "d")), now - 900_000, now, 5, 9, re.compile(b"x+"), 3, True
    )


@pytest.mark.parametrize(
    "line",
    [
        "--after 5 --before 5",
        "--from-offset 9 --to-offset 3",
        "-n 0",
        "--queue -1",
        "--property x",
        "-o yaml",
        "--grep (",
        "--after soon",
        "--format other",
    ],
)
def test_options_refused(line: str) -> None:
    result = CliRunner().invoke(everything, ["store", *line.split()])
    assert result.exit_code == 2
    assert line.rsplit(maxsplit=1)[0].rsplit(maxsplit=1)[-1] in result.output
    assert "Traceback" not in result.output


def test_cli_is_the_lazy_group() -> None:
    assert isinstance(cli, LazyGroup)


def test_memory_that_runs_out_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise MemoryError

    assert exit_code_of(work) == 10
    assert "memory ran out" in capsys.readouterr().err
