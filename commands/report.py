"""`rmqctl report`: what the verbs say of some stores, as one page to attach."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import Command
from commands._app import message
from commands._options import as_release_option, store_options_with_paths
from commands._progress import progress
from commands._types import refuse

if TYPE_CHECKING:
    from commands._options import StoreOptions
    from rmqctl.answer import Row
    from rmqctl.release import Release


@click.command("report", cls=Command, usual="level verified replicas redact")
@store_options_with_paths
@click.option(
    "--level",
    type=click.Choice(["quick", "structure", "full"]),
    help="How thoroughly to check; default: what ends soon, by the size of the log.",
)
@click.option(
    "--verified",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `verify -o json` said of PATH, instead of checking it again.",
)
@click.option(
    "--everything", is_flag=True, help="Also of a large log: figures, the start of each release, the plan of a repair."
)
@click.option("--replicas", is_flag=True, help="The PATHs are replicas: say what each choice of a leader loses.")
@click.option("--redact", is_flag=True, help="No bodies, no keys and no values of properties, damaged ones neither.")
@as_release_option
def command(
    store: StoreOptions,
    level: str | None,
    verified: Path | None,
    everything: bool,
    replicas: bool,
    redact: bool,
    as_release: Release | None,
) -> None:
    """Write one page about stores that needs nothing else, to be attached to a ticket. The last PATH is the page.

    First what `doctor` says, then the store as a picture, findings with their annotated bytes, what a start of each
    release does, the plan of a repair, figures and tables. The page makes no request, and shows no body but damaged
    bytes. OUT.json instead of OUT.html is the same as data, and `rmqctl report OUT.json OUT.html` makes the page of
    it. Nothing is written into a store. Exits 1 when a store is not sound.

    \b
    Examples:
      rmqctl report /data/rocketmq/store report.html
      rmqctl report '/backup/2026-11-*/broker-*' fleet.html
      rmqctl verify store -o json > scan.json; rmqctl report store --verified scan.json report.html
      rmqctl report /data/rocketmq/store report.json --redact
    """
    if len(store.paths) < 2:
        refuse("PATH", "and the file to write, two at least: rmqctl report PATH OUT.html")
    out = Path(store.paths[-1])
    if out.suffix not in {".html", ".json"} or out.is_dir():
        refuse("PATH", f"{out} is neither OUT.html nor OUT.json, which the last one has to be.")
    from dataclasses import replace

    store = replace(store, path=",".join(store.paths[:-1]), paths=store.paths[:-1])
    from rmqctl.report import Wanted, page, read_document
    from rmqctl.report.document import read_json
    from rmqctl.text import typed

    first = Path(store.paths[0])
    document: Row | None = None
    if len(store.paths) == 1 and first.suffix == ".json" and first.is_file():
        document = read_document(first)
        if document is None:
            again = typed("report", "STORE", out, "--verified", first)
            refuse("PATH", f"{first} is no report; with an answer of `verify -o json` the store is given, too: {again}")
        if redact and not document["redacted"]:
            refuse("--redact", f"cannot hide what {first} shows; make the report of the store again.")
    if document is None:
        wanted = Wanted(
            level, as_release, everything, replicas, redact, None if verified is None else read_json(verified)
        )
        document = _collected(store, wanted, out)
    if out.suffix == ".json":
        import orjson

        from rmqctl.text import json_bytes

        data = json_bytes(document, orjson.OPT_INDENT_2)
    else:
        data = page(document).encode("utf-8", "backslashreplace")
    from rmqctl.files.new_files import at_once

    with at_once(out) as written:
        written.write_bytes(data)
    message(f"wrote {out}")
    if any(not one.get("sound", False) for one in document["stores"]):
        raise SystemExit(1)


def _collected(store: StoreOptions, wanted: object, out: Path) -> Row:
    from rmqctl.files.new_files import refuse_inside
    from rmqctl.fleet import open_all
    from rmqctl.report import Wanted, collect
    from rmqctl.store import Store

    assert isinstance(wanted, Wanted)
    fleet = open_all(
        store.paths,
        format=None if store.format == "auto" else store.format,
        commit_log=store.commit_log,
        broker_conf=store.broker_conf,
    )
    first = fleet.stores[0][1] if len(fleet) == 1 else None
    if isinstance(first, Exception):
        raise first
    opened = [one for _, one in fleet.stores if isinstance(one, Store)]
    roots = [root for one in opened for root in one.root.split(",") if Path(root).is_dir()]
    refuse_inside(out, roots)
    sizes = sum(one.size for one in opened)
    with progress("report", sizes) as advance:
        return collect(fleet, wanted, advance)
