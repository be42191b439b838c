"""`rmqctl sql`: queries over one store or several."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import Command
from commands._app import Output, message
from commands._complete import files
from commands._options import (
    StoreOptions,
    output_option,
    refusing,
    say_if_missing,
    say_if_part,
    say_missing,
    say_unreadable,
)
from commands._signals import Terminated
from commands._spark import engine_option, has_spark, is_local, is_spark, seen_by, spark_options, started, working

if TYPE_CHECKING:
    from rmqctl.fleet_tables import FleetTables
    from rmqctl.inventory import Member
    from rmqctl.pipeline import Cluster
    from rmqctl.pipeline.cluster import SparkSession
    from rmqctl.pipeline.local_sql import LocalQueries
    from rmqctl.pipeline.mounted import Mounted
    from rmqctl.pipeline.queries import SparkQueries
    from rmqctl.store import Store

_NAMED = re.compile(r"([A-Za-z]\w*)=(.+)", re.DOTALL)
_HISTORY = 1000
_STATEMENT = re.compile(r"\s*(select|with|show|describe|desc|explain|values|from|table|set|\()\b", re.IGNORECASE)


@click.command("sql", cls=Command, usual="explain output")
@click.argument("stores", metavar="[PATH | NAME=PATH]... [QUERY]", nargs=-1, required=True, shell_complete=files)
@click.option("--commitlog", "commit_log", metavar="DIR[,DIR...]", help="Directories of a commit log outside PATH.")
@click.option("--broker-conf", metavar="FILE", help="The broker's settings.")
@click.option("--explain", is_flag=True, help="Show how the query would be run instead of running it.")
@engine_option
@spark_options
@output_option(tables=True)
@refusing
def command(
    stores: tuple[str, ...],
    commit_log: str | None,
    broker_conf: str | None,
    explain: bool,
    engine: str,
    cluster: Cluster,
    out: Output,
) -> None:
    """Ask a store in SQL. Of RocketMQ: messages, queue_units, index_entries, findings, topics, consumer_offsets.

    Of Kafka the tables are records, batches, findings, topics, consumer_offsets and transactions; of both, reading says
    what was read of the log. Several PATHs, a
    pattern in quotes or @inventory.toml are one set of tables, whose rows have cluster and store first; stores has a
    row a store, also where it cannot be read. As NAME=PATH, which may be a pattern, too, the tables are NAME_messages
    and so on. Without a query a prompt takes them line by line; a query ends with `;`. Times are timestamps in
    UTC, properties a map, keys an array. The language is Spark's SQL; up to 1 GiB of log DuckDB answers in this
    process, and Spark what it would answer otherwise or not at all. Exits 1 when a query gives no row, or a store
    cannot be read.

    \b
    Examples:
      rmqctl sql /data/store "select topic, count(*) from messages group by topic"
      rmqctl sql /data/store "select * from messages where array_contains(keys, 'order1')" -o jsonl
      rmqctl sql '/mnt/broker-*/store' "select store, count(*) from messages where array_contains(keys, 'k') group by 1"
      rmqctl sql a=/data/a b=/data/b "select * from a_topics except select * from b_topics"
      rmqctl sql a=/data/rocketmq/store b=/data/kafka "select topic from a_topics union select topic from b_topics"
    """
    paths, query = _split(stores)
    from rmqctl.inventory import is_several

    logs = tuple(part for part in (commit_log or "").split(",") if part)
    with ExitStack() as stack:
        places = _places(paths)
        spark = None
        if is_spark(engine) and any(len(own) > 1 or is_several(own[0]) for own in places.values()):
            spark = stack.enter_context(started(cluster))
        mounted, size = _mounted(places, logs, broker_conf, spark)
        engines = stack.enter_context(_Engines(mounted, cluster, engine, size, out, spark, explain=explain))
        if query is None:
            _prompt(engines)
        elif not engines.run(query):
            raise SystemExit(1)


class _Engines(ExitStack):
    """Runs queries, here or on Spark, which is started for the first query that needs it."""

    def __init__(
        self,
        stores: Sequence[Mounted],
        cluster: Cluster,
        engine: str,
        size: int,
        out: Output,
        session: SparkSession | None = None,
        *,
        explain: bool,
    ) -> None:
        """
        Args:
            session: one that was started already.
        """
        from rmqctl.pipeline.local_sql import LocalQueries, is_installed

        super().__init__()
        self._stores, self._cluster, self._size, self._out, self._explain = stores, cluster, size, out, explain
        self._falls_back = engine == "auto"
        use_local = is_local(engine, size) and not (self._falls_back and not is_installed() and has_spark())
        self._local = LocalQueries(stores) if use_local else None
        self._session = session
        self._spark: SparkQueries | None = None
        self._said: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The names of the tables."""
        return (self._local or self._on_spark()).names

    def run(self, text: str) -> int:
        """Run one query and show its rows; returns their number."""
        try:
            return self._run(text.strip().rstrip(";"))
        finally:
            for queries in (self._local, self._spark):
                say_unreadable(queries.unreadable if queries is not None else {})
                read = queries.read if queries is not None else None
                for sentence in read.losses("rows") if read is not None else ():
                    if sentence not in self._said:
                        self._said.add(sentence)
                        message(sentence)

    def _run(self, text: str) -> int:
        from rmqctl.pipeline.mounted import NotForLocalEngine

        if self._local is not None:
            try:
                return self._run_here(self._local, text)
            except NotForLocalEngine as error:
                if not (self._falls_back and has_spark()):
                    raise
                message(f"{error.reason}: Spark runs this query")
        return self._run_on_spark(text)

    def _run_here(self, queries: LocalQueries, text: str) -> int:
        if self._explain:
            return self._out.text(queries.plan(text))
        found = queries.rows(text, readable=self._out.kind == "table")
        first = list(islice(found, 1))
        return self._out.show(chain(first, found), csv_columns=queries.header)

    def _run_on_spark(self, text: str) -> int:
        from rmqctl.pipeline.queries import plan_of, rows

        queries = self._on_spark()
        with working(queries.spark, "query", None):
            found = queries.query(text)
            if self._explain:
                return self._out.text(plan_of(found).splitlines())
            return self._out.show(rows(found, readable=self._out.kind == "table"), csv_columns=found.columns)

    def _on_spark(self) -> SparkQueries:
        if self._spark is None:
            spark = self._session or self.enter_context(started(self._cluster, self._size))
            from rmqctl.pipeline.jobs import job
            from rmqctl.pipeline.queries import SparkQueries

            with job(spark, "opening the store"):
                self._spark = SparkQueries(spark, self._stores)
        return self._spark


def _split(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Paths, and the query if the last word is one."""
    last = words[-1]
    if len(words) > 1 and _STATEMENT.match(last) and not os.path.exists(last):
        return list(words[:-1]), last
    if len(words) > 1 and not _NAMED.fullmatch(last) and not os.path.exists(last):
        return list(words[:-1]), last
    return list(words), None


def _places(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return paths by the prefix of their tables: those of one name, or without one, are one set of tables."""
    from rmqctl.pipeline.mounted import prefix_of

    places: dict[str, list[str]] = {}
    for path in paths:
        is_plain = os.path.exists(path) or not (m := _NAMED.fullmatch(path))
        name, place = ("", path) if is_plain or m is None else (prefix_of(m[1]), m[2])
        places.setdefault(name, []).append(place)
    return places


def _mounted(
    places: Mapping[str, Sequence[str]], logs: tuple[str, ...], broker_conf: str | None, spark: SparkSession | None
) -> tuple[list[Mounted], int]:
    """Return what can be queried, and bytes of its logs.

    Args:
        spark: whose executors open what is several; None: they are opened here.
    """
    from rmqctl.inventory import is_several

    found: list[Mounted] = []
    size = 0
    for prefix, own in places.items():
        if len(own) == 1 and not is_several(own[0]):
            more, more_bytes = _one(prefix, own[0], logs, broker_conf)
        elif spark is None:
            more, more_bytes = _several(prefix, own, logs, broker_conf)
        else:
            more, more_bytes = _seen(spark, prefix, StoreOptions(own[0], logs, broker_conf, paths=tuple(own)))
        found, size = [*found, *more], size + more_bytes
    return found, size


def _one(prefix: str, place: str, logs: tuple[str, ...], broker_conf: str | None) -> tuple[list[Mounted], int]:
    from rmqctl.opening import open_store
    from rmqctl.pipeline.mounted import Mounted

    store = open_store(place, commit_log=logs, broker_conf=broker_conf)
    _remark(store, place)
    given = {"commitlog": ",".join(logs), "brokerconf": broker_conf or ""}
    own = {key: value for key, value in given.items() if value and store.table_format == "rocketmq"}
    return [Mounted(prefix, {**own, "path": _absolute(place)}, store.table_format)], store.size


def _several(
    prefix: str, places: Sequence[str], logs: tuple[str, ...], broker_conf: str | None
) -> tuple[list[Mounted], int]:
    """Return several stores as one set of tables; of two families as one of each, with its name before the tables."""
    from rmqctl.fleet import open_all
    from rmqctl.store import Store

    fleet = open_all(places, commit_log=logs, broker_conf=broker_conf)
    for member, store in fleet.stores:
        if isinstance(store, Store):
            _remark(store, member.path)
    formats = [
        (member, store.table_format, "") if isinstance(store, Store) else (member, "", str(store))
        for member, store in fleet.stores
    ]
    return _together(prefix, formats, fleet.remarks, fleet.as_tables), fleet.size


def _seen(spark: SparkSession, prefix: str, store: StoreOptions) -> tuple[list[Mounted], int]:
    """Return several stores that executors have opened; as :func:`_several`, and of one store as :func:`_one`."""
    sights = seen_by(spark, store)
    if sights is None:
        return _one(prefix, ",".join(store.paths), store.commit_log, store.broker_conf)
    for one in sights.stores:
        if one.missing:
            say_missing(one.missing)
        for sentence in one.said:
            message(sentence)
    return _together(prefix, [(s.member, s.format, s.error) for s in sights.stores], sights.remarks, sights.tables), (
        sights.size
    )


def _together(
    prefix: str,
    stores: Sequence[tuple[Member, str, str]],
    remarks: Sequence[str],
    tables: Callable[[], FleetTables],
) -> list[Mounted]:
    """Return stores as one set of tables a family.

    Args:
        stores: each with the format of its tables, or "" and why it cannot be read.
        tables: gives them; called where no store can be read.
    """
    import orjson

    from rmqctl.fleet_tables import entry
    from rmqctl.pipeline.mounted import Mounted

    formats: dict[str, list[Any]] = {}
    for member, format, _ in stores:
        if format:
            formats.setdefault(format, []).append(entry(member, _absolute(member.path)))
    if not formats:
        raise tables().unreadable()
    for sentence in remarks:
        message(sentence)
    for member, format, error in stores:
        if not format:  # whatever it is: it has a row in the table of stores
            say_unreadable({member.name: error})
            next(iter(formats.values())).append(entry(member, _absolute(member.path)))
    if len(formats) > 1:
        message("tables of RocketMQ begin with rocketmq_, those of Kafka with kafkalog_")
    return [
        Mounted(
            f"{prefix}{format}_" if len(formats) > 1 else prefix,
            {"paths": orjson.dumps(members).decode(), "unreadable": "skip"},
            format,
        )
        for format, members in formats.items()
    ]


def _remark(store: Store, place: str) -> None:
    say_if_part(store)
    say_if_missing(store)
    if store.is_running:
        message(f"a broker holds the lock of {place}: what is read may be changing")


def _absolute(place: str) -> str:
    parts = [place] if os.path.exists(place) else place.split(",")  # several log directories of one broker
    return ",".join(part if "://" in part else os.path.abspath(part) for part in parts)


def _prompt(engines: _Engines) -> None:
    """Run queries from the terminal, or from what is piped in, until its end."""
    typed = sys.stdin.isatty()
    history = _history() if typed else None
    if typed:
        message(f"tables: {', '.join(engines.names)}; a query ends with ; and Ctrl-D ends the session")
    try:
        for text in _queries():
            if typed:
                _forgiving(lambda text=text: engines.run(text))  # type: ignore[misc]
            else:
                engines.run(text)
    finally:
        _keep(history)


def _forgiving(work: Callable[[], object]) -> None:
    """Run a query of the prompt: an error or Ctrl-C ends it, not the session."""
    from rmqctl.errors import RmqctlError

    try:
        work()
    except RmqctlError as error:
        message(str(error))
    except Terminated:
        raise
    except KeyboardInterrupt:
        message("cancelled")


def _queries() -> Iterator[str]:
    """Yield what is typed, query by query."""
    text = ""
    while (line := _line("sql> " if not text else "  -> ")) is not None:
        text = f"{text}\n{line}".strip()
        if text.lower().rstrip(";") in {"quit", "exit"}:
            return
        if text.endswith(";"):
            yield text
            text = ""
    if text:
        yield text


def _line(prompt: str) -> str | None:
    """Return the next line, None at the end; Ctrl-C gives up the line."""
    try:
        return input(prompt) if sys.stdin.isatty() else _piped()
    except EOFError:
        return None
    except Terminated:
        raise
    except KeyboardInterrupt:
        click.echo(err=True)
        return ""


def _piped() -> str | None:
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _history() -> Path | None:
    """Load the history of earlier sessions; None where this Python has no line editing."""
    try:
        import readline
    except ImportError:
        return None
    base = os.environ.get("XDG_STATE_HOME")
    file = (Path(base) if base else Path.home() / ".local" / "state") / "rmqctl" / "sql_history"
    try:
        readline.read_history_file(file)
    except OSError:
        pass
    return file


def _keep(file: Path | None) -> None:
    if file is None:
        return
    import readline

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        readline.set_history_length(_HISTORY)
        readline.write_history_file(file)
    except OSError as error:
        message(f"cannot keep the history in {file}: {error.strerror}")
