"""The options of Kafka's own dump tool, under its own names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from commands._types import refuse

_FLAGS = {
    "deep-iteration": "records too, not only batches",
    "print-data-log": "keys and payloads too",
    "skip-record-metadata": "of records only key and payload",
    "verify-index-only": "check index entries, and do not print them",
    "index-sanity-check": "only the check that brokers make of an index",
}
_DECODERS = {
    "offsets-decoder": "__consumer_offsets",
    "transaction-log-decoder": "__transaction_state",
    "cluster-metadata-decoder": "__cluster_metadata",
    "remote-log-metadata-decoder": "__remote_log_metadata",
    "share-group-state-decoder": "__share_group_state",
}
_TEXT_DECODERS = ("", "StringDecoder", "kafka.serializer.StringDecoder", "org.apache.kafka.tools.api.StringDecoder")


def kafka_dump_log_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; gives the command ``official``: those that were given, by the names of the library."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        flags = {name: True for name in map(_keyword, _FLAGS) if kwargs.pop(name)}
        decoders = tuple(name for name in map(_keyword, _DECODERS) if kwargs.pop(name))
        sizes = {name: kwargs.pop(name) for name in ("max_bytes", "max_message_size")}
        official: dict[str, Any] = {**flags, **{name: size for name, size in sizes.items() if size is not None}}
        if decoders:
            official["decoders"] = decoders
        for name in ("key_decoder_class", "value_decoder_class"):
            wanted = kwargs.pop(name)
            if wanted is not None:
                if wanted not in _TEXT_DECODERS:
                    refuse(f"--{name.replace('_', '-')}", f"{wanted} is Java code, which is not run; text is known.")
                official["print_data_log"] = True
        return function(*args, **kwargs, official=official)

    for option in reversed([*_flags(), *_values()]):
        wrapper = option(wrapper)
    return wrapper


def _flags() -> list[Callable[..., Any]]:
    texts = {**_FLAGS, **{name: f"take records of {topic} apart" for name, topic in _DECODERS.items()}}
    return [click.option(f"--{name}", is_flag=True, help=f"-o kafka-dump-log: {text}.") for name, text in texts.items()]


def _values() -> list[Callable[..., Any]]:
    number, positive = "-o kafka-dump-log:", click.IntRange(min=1)
    return [
        click.option("--max-bytes", type=positive, help=f"{number} read only so many bytes of a segment."),
        click.option("--max-message-size", type=positive, help=f"{number} understood; batches of any size are read."),
        click.option("--key-decoder-class", metavar="CLASS", help=f"{number} only the decoder of text is known."),
        click.option("--value-decoder-class", metavar="CLASS", help=f"{number} only the decoder of text is known."),
    ]


def _keyword(name: str) -> str:
    return name.replace("-", "_")
