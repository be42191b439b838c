"""`rmqctl bundle`: the smallest copy of a store that shows what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._options import StoreOptions, as_release_option, output_option, store_options
from commands._types import LocalPath, Size

if TYPE_CHECKING:
    from rmqctl.release import Release


@click.command("bundle", cls=Command, usual="bodies max-size as-release output")
@store_options
@click.argument("archive", metavar="OUT.tar.zst", type=LocalPath())
@click.option("--bodies", is_flag=True, help="Keep bodies, keys and values; default: filler stands for them.")
@click.option("--max-size", type=Size(), metavar="BYTES", help="Write no archive that is larger, such as 25M.")
@as_release_option
@output_option()
def command(
    store: StoreOptions,
    archive: Path,
    bodies: bool,
    max_size: int | None,
    as_release: Release | None,
    out: Output,
) -> None:
    """Pack the smallest copy of a store that lets someone else see what is wrong with it.

    Headers, indexes, queues, configuration and checkpoints are kept byte for byte. Filler stands for bodies, keys and
    values of properties and headers: as long, with the same CRCs and hash codes, wrong where they were wrong. So
    `verify`, `recover` and `repair` say of the bundle what they say of the store, which is checked before the command
    says that it is done. Exits 1 when they do not; then it says where.

    Every command that reads takes the archive in the place of a store. What was left out it refuses, with the words
    "not in this bundle". The manifest, bundle.json in the archive, names every file that was left out, and why.

    \b
    Examples:
      rmqctl bundle /data/rocketmq/store ticket-4711.tar.zst
      rmqctl bundle /data/kafka-logs out.tar.zst --max-size 25M
      rmqctl verify ticket-4711.tar.zst
    """
    from rmqctl.bundle import Wanted, make

    wanted = Wanted(bodies, max_size, store.broker_conf, as_release)
    show(out, make(store.open_silently(), archive, wanted))
