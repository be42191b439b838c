"""`rmqctl info`: what is here."""

from __future__ import annotations

import click

from commands._app import Output, message
from commands._apply import say_if_pending
from commands._options import StoreOptions, output_option, store_options
from commands._unreadable import name_unreadable


@click.command("info")
@store_options
@click.option("--explain", is_flag=True, help="Show instead what each fact says about the release.")
@output_option()
def command(store: StoreOptions, explain: bool, out: Output) -> None:
    """Show what is in a store: kind, release, geometry, sizes, offsets, times, exit state.

    Reads the ends of the log and directory lists only, so it is quick on any size. The releases are
    the range that fits all evidence; geometry says how it was known (broker-conf, detected, default).
    A file that cannot be read is named, and the exit status is 1.

    \b
    Example:
      rmqctl info /data/rocketmq/store
      rmqctl info /data/rocketmq/store --explain
    """
    from rmqctl.errors import MissingExtra
    from rmqctl.open import open_store_at
    from rmqctl.rocketmq.info import store_info
    from rmqctl.rocketmq.releases import release_range
    from rmqctl.rocketmq.unreadable import forgiving

    found = forgiving(
        open_store_at(store.path, commit_log=store.commit_log, broker_conf=store.broker_conf, format=store.format)
    )
    say_if_pending(found.root)
    if found.is_running:
        message("a broker holds the lock of this store: what is read may be changing")
    if explain:
        out.show([e.row() for e in release_range(found).evidence])
    else:
        document = store_info(found)
        out.document(document)
        if document["queues"] is None:
            raise MissingExtra("counting topics and queues in RocksDB", "rocksdb")
    name_unreadable(found)
