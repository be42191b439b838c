"""`rmqctl query-id`: the message with an id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands import Command
from commands._answer import show
from commands._app import Output
from commands._complete import topics
from commands._options import StoreOptions, as_release_option, max_body_option, output_option, store_options
from rmqctl.filters import Rendering

if TYPE_CHECKING:
    from rmqctl.release import Release


@click.command("query-id", cls=Command, usual="topic all scan explain body output")
@store_options
@click.argument("message_id", metavar="MESSAGE_ID")
@click.option("--topic", shell_complete=topics, help="Where to look for a unique key; default: under every topic.")
@click.option("--all", "every", is_flag=True, help="All messages with this unique key: copies, repeats, batches.")
@click.option("--scan", is_flag=True, help="Look for a unique key in the log instead of the index.")
@click.option("--explain", is_flag=True, help="Every step, and one sentence why something is not found.")
@click.option("--body", is_flag=True, help="Add the body, decompressed.")
@max_body_option
@as_release_option
@output_option(columns=True)
def command(
    store: StoreOptions,
    message_id: str,
    topic: str | None,
    every: bool,
    scan: bool,
    explain: bool,
    body: bool,
    max_body: int,
    as_release: Release | None,
    out: Output,
) -> None:
    """Show the message with an id: an offsetMsgId, or the unique key (msgId) that its producer gave it.

    An offsetMsgId (32 hex digits, 56 with an IPv6 host) names broker and place; it is tried on this
    store whatever broker it names. A unique key (32, 56, or 34 from a gRPC client) is looked up in the
    index. Like a client, this shows the first of several messages with one unique key, and one under
    its own topic before a copy under a system topic; --all shows the others. Exits 1 when there is none.

    \b
    Examples:
      rmqctl query-id /data/rocketmq/store C0A8010A00002A9F0000000000001F40
      rmqctl query-id store AC110001002A18B4AAC2716E3B4D0000 --topic TopicTest --explain
    """
    found = store.open()
    rendering = Rendering(body, max_body=max_body)
    answer = found.query_id(
        message_id,
        rendering,
        topic=topic,
        every=every,
        scan=scan,
        explain=explain,
        as_release=as_release,
    )
    show(out, answer)
