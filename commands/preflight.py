"""`rmqctl preflight`: what a start of another release, or with other settings, would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import _complete
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, output_option, store_options
from commands._types import Release as ReleaseType

if TYPE_CHECKING:
    from rmqctl.release import Release


@click.command("preflight")
@store_options
@click.option(
    "--to", type=ReleaseType(), required=True, metavar="RELEASE", shell_complete=_complete.releases,
    help="The release that is to start here, later or earlier.",
)  # fmt: skip
@click.option(
    "--conf", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Its settings (broker.conf, server.properties): what it does not name has its default.",
)  # fmt: skip
@output_option(folds="also what the release ignores and nothing depends on")
def command(store: StoreOptions, to: Release, conf: Path | None, out: Output) -> None:
    """Say before an upgrade or a downgrade what the first start of that release does to this store.

    First the verdict, which is that of `recover --as-release`. Then what to do before, whether the release that
    the store shows can come back, how long the start takes on this disk, and what the release does not read or
    takes otherwise, each with its source. With --conf also what becomes of settings. Nothing is written.
    Exits 0 when it starts and loses nothing, 1 otherwise.

    \b
    Examples:
      rmqctl preflight /data/rocketmq/store --to 5.5.0
      rmqctl preflight /data/rocketmq/store --to 4.9.8 --all
      rmqctl preflight /data/kafka-logs --to 4.3 --conf server.properties
    """
    show(out, store.open().preflight(to, conf=conf))
