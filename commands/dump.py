"""`rmqctl dump`: any file or a whole log, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from commands import _sink
from commands._app import Output, Row, message, progress
from commands._options import (
    FilterOptions,
    StoreOptions,
    as_release,
    filter_options,
    output_option,
    store_options,
)
from commands._types import Size, refuse
from rmqctl.release import Release

if TYPE_CHECKING:
    from rmqctl.open import LoneFile
    from rmqctl.rocketmq.rows.dump import Dump
    from rmqctl.rocketmq.rows.one_file import Request
    from rmqctl.rocketmq.rows.show import Show
    from rmqctl.rocketmq.store import RocketMQStore

_LARGE_PIECE = 1 << 16


@click.command("dump")
@store_options
@filter_options
@click.option("--body", is_flag=True, help="Add the body, decompressed: text, or base64 where it is not UTF-8.")
@click.option("--raw-body", is_flag=True, help="Add the body as stored.")
@click.option("--body-limit", type=Size(), help="Show at most so many bytes of a body.")
@click.option("--redact", is_flag=True, help="Bodies, keys and property values become sha256: and 12 hex digits.")
@click.option("--format-string", metavar="FORMAT", help="Print messages in a form of your own, see above.")
@click.option("--follow", is_flag=True, help="Go on with new records as a broker appends them; Ctrl-C ends it.")
@as_release("Read properties as a broker of this release does, such as 4.9.0; default: as since 4.9.1.")
@output_option("text", "hex")
def command(
    store: StoreOptions,
    filters: FilterOptions,
    body: bool,
    raw_body: bool,
    body_limit: int | None,
    redact: bool,
    format_string: str | None,
    follow: bool,
    as_release: Release | None,
    out: Output,
) -> None:
    """Show what is in a commit log, or in any other file of a store: records, units, entries, damage.

    PATH is a store (its commit log is shown, in log order), a directory inside one, or one file,
    also one that lies in no store. Damage is shown in its place, and the dump goes on after it.
    `-o hex` names every byte. Exits 1 when damage was shown or nothing matched the filters.

    \b
    FORMAT takes %t topic, %p queue id, %o queue offset, %O physical offset, %k keys,
    %T store time (ms), %s body, %S body size, %h properties, %i message id, %%, and
    \\n \\t \\r \\0 \\\\ \\xHH.

    \b
    Examples:
      rmqctl dump /data/rocketmq/store --topic TopicTest --after -15m
      rmqctl dump /data/rocketmq/store -o jsonl --body | jq .body
      rmqctl dump /data/rocketmq/store/index
      rmqctl dump store/consumequeue/TopicTest/0 -o csv
      rmqctl dump store --key order1 -o hex
      rmqctl dump store --follow --format-string '%t/%p %o %k %s\\n'
    """
    from rmqctl.rocketmq.rows.show import Show

    _check(out, format_string, follow=follow, redact=redact)
    limited = body_limit is not None and not raw_body
    show = Show(body or limited or format_string is not None, raw_body, body_limit, redact, as_release)
    found = _open(store)
    request = _request(found, filters, show)
    if out.kind == "hex":
        _hex(found, request, filters)
    else:
        dump = _dump(found, request)
        _write(dump, out, _formatter(format_string), follow=follow)
        _finish(found, dump, filters, follow=follow)


def _check(out: Output, format_string: str | None, *, follow: bool, redact: bool) -> None:
    """Refuse options that contradict each other."""
    if format_string is not None and out.kind != "table":
        refuse("--format-string", f"prints in a form of its own and does not go with -o {out.kind}.")
    if follow and out.kind in {"json", "hex"}:
        refuse("--follow", f"never ends, so -o {out.kind} cannot be completed; use -o jsonl.")
    if redact and out.kind == "hex":
        refuse("--redact", "cannot hide anything in -o hex, which shows every byte.")


def _open(store: StoreOptions) -> RocketMQStore | LoneFile:
    from rmqctl.open import LoneFile, open_path

    found = open_path(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    if isinstance(found, LoneFile):
        return found
    if found.is_running:
        message("a broker holds the lock of this store: what is read may be changing")
    return found


def _request(found: RocketMQStore | LoneFile, filters: FilterOptions, show: Show) -> Request:
    from commands._filter import filter_of
    from rmqctl.open import LoneFile
    from rmqctl.rocketmq.rows.one_file import Request

    settings = {} if isinstance(found, LoneFile) else found.settings
    return Request(filter_of(filters, strict=show.strict), show, filters.limit, settings)


def _dump(found: RocketMQStore | LoneFile, request: Request) -> Dump:
    from rmqctl.open import LoneFile
    from rmqctl.rocketmq.rows.dump import Dump

    if isinstance(found, LoneFile):
        return Dump.of_file(found.tree, found.name, request)
    return Dump.of_store(found, request)


# --- writing ----------------------------------------------------------------------------------------


def _write(dump: Dump, out: Output, form: Callable[[Row], bytes] | None, *, follow: bool) -> None:
    if follow:
        if dump.log is None:
            refuse("--follow", "needs a log, which is all that grows; give the store, or its commitlog directory.")
        try:
            _write_rows(dump.follow(), out, form)
        except KeyboardInterrupt:  # how one stops following
            return
    else:
        with progress("dump", dump.total) as advance:
            dump.report(advance)
            _write_all(dump, out, form)


def _write_all(dump: Dump, out: Output, form: Callable[[Row], bytes] | None) -> None:
    if out.kind == "jsonl":
        _write_pieces(dump.lines())
    elif out.kind == "json":
        _write_pieces(_array(dump.lines()))
    else:
        _write_rows(dump.rows(), out, form)


def _array(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """JSON lines as one JSON array with a line for each."""
    before = b"[\n"
    for piece in pieces:
        if len(piece):
            yield before + bytes(piece)[:-1].replace(b"\n", b",\n")
            before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


def _write_pieces(pieces: Iterable[bytes | memoryview]) -> None:
    with _sink.batch() as add:
        for piece in pieces:
            if len(piece) < _LARGE_PIECE:
                add(bytes(piece))
            else:
                add(None)
                _sink.write(piece)  # type: ignore[arg-type]  # any buffer will do


def _write_rows(rows: Iterator[Row | None], out: Output, form: Callable[[Row], bytes] | None) -> None:
    if form is not None:
        with _sink.batch() as add:
            for row in rows:
                add(None if row is None else _formatted(row, form))
    elif out.kind == "text":
        from commands._text import text_lines

        out.text(text_lines(rows, local_time=out.local_time))
    elif out.kind == "table":
        from commands._dump_table import write_table

        write_table(rows, out)
    else:
        out.show(rows)


def _formatter(format_string: str | None) -> Callable[[Row], bytes] | None:
    if format_string is None:
        return None
    from rmqctl.rocketmq.rows.format_string import compile_format

    try:
        return compile_format(format_string)
    except ValueError as error:
        refuse("--format-string", f"{error}.")


def _formatted(row: Row, form: Callable[[Row], bytes]) -> bytes:
    """A message in the user's form; damage goes to stderr, other rows are left out."""
    if row["kind"] == "finding":
        message(f"{row['severity']} {row['id']} at {row['file']}:{row['offset']}: {row['message']}")
    return form(row) if row["kind"] == "message" else b""


def _hex(found: RocketMQStore | LoneFile, request: Request, filters: FilterOptions) -> None:
    from commands._hex import Hex

    view = Hex(found, request)
    wanted = request.wanted
    if wanted.looks_at_content or wanted.damaged or request.limit is not None:
        dump = _dump(found, request)
        view.write_rows(dump)
        _finish(found, dump, filters, follow=False)
    else:
        view.write_files()
    if view.wrong:
        raise SystemExit(1)


def _finish(found: RocketMQStore | LoneFile, dump: Dump, filters: FilterOptions, *, follow: bool) -> None:
    """Exit 1 for damage shown, or when filters left nothing; say what they hid."""
    outcome = dump.outcome
    if outcome.hidden:
        places = "1 place" if outcome.hidden == 1 else f"{outcome.hidden} places"
        message(f"damage in {places} is not shown because of the filters; see it with --damaged")
    nothing = not outcome.rows and not filters.is_empty and not filters.damaged and not follow
    if nothing:
        message(f"nothing matched the filters{_unknown_topic(found, filters.topic)}")
    if outcome.damage or nothing:
        raise SystemExit(1)


def _unknown_topic(found: RocketMQStore | LoneFile, topic: str | None) -> str:
    """The end of the sentence where it is the name of the topic that is wrong."""
    from rmqctl.open import LoneFile
    from rmqctl.rocketmq.query.topic_names import did_you_mean, topic_names

    if topic is None or isinstance(found, LoneFile):
        return ""
    names = topic_names(found)
    return "" if topic in names or not names else f"; the store knows no topic {topic}{did_you_mean(topic, names)}"
