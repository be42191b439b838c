"""`rmqctl info`: what is here."""

from __future__ import annotations

import click

from commands._app import Output, message
from commands._options import StoreOptions, output_option, store_options


@click.command("info")
@store_options
@output_option()
def command(store: StoreOptions, out: Output) -> None:
    """Show what is in a store: kind, release, geometry, sizes, offsets, times, exit state.

    Reads the ends of the log and directory lists only, so it is quick on any size. The releases are
    the range that fits all evidence; geometry says how it was known (broker-conf, detected, default).

    \b
    Example:
      rmqctl info /data/rocketmq/store
    """
    from rmqctl.open import open_store_at
    from rmqctl.rocketmq.info import store_info

    found = open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    if found.is_running:
        message("a broker holds the lock of this store: what is read may be changing")
    out.document(store_info(found))
