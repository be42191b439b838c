"""One record as the object that ``dump`` shows, and in which form (CLI contract, ``dump``).

The three properties that have keys of their own stand beside all of them as JSON-ready values. No NumPy is imported
on the way: it takes longer than the whole of a lookup that reads few records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.message import COMMIT, PREPARED, ROLLBACK, TRANSACTION, Magic, body_crc, split_host
from formats.rocketmq.message_id import offset_message_id
from formats.rocketmq.properties import split_properties
from rmqctl.filters import DEFAULT_MAX_BODY
from rmqctl.release import Release
from rmqctl.rocketmq.log.record import Body, compression, inner_messages, is_inner_batch, open_body
from rmqctl.text import Fields, Text, compile_form, name_of, raw, text_or_base64

Shown = Callable[[bytes], Text]
"""How the bytes of a value are shown: :func:`text_or_base64` or :func:`redacted`."""

HASH_DIGITS = 12


def redacted(data: bytes) -> str:
    """Return the first digits of a hash: equal values stay equal, the value itself is gone."""
    import hashlib

    return f"sha256:{hashlib.sha256(data).hexdigest()[:HASH_DIGITS]}"


def head_of(data: bytes, limit: int | None) -> bytes:
    """Return the first ``limit`` bytes; of UTF-8 text only whole characters."""
    if limit is None or len(data) <= limit:
        return data
    cut = data[:limit]
    for end in range(limit, max(limit - 4, -1), -1):
        try:
            cut[:end].decode()
        except UnicodeDecodeError:
            continue
        return cut[:end]
    return cut


# --- what a dump shows of a message beside its header -----------------------------------------------


STRICT_PROPERTIES_UNTIL = Release(4, 9, 0)
"""Last release whose decoder wants exactly one 0x01 in a pair (spec 2.6)."""


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Choices of the user.

    Attributes:
        body, raw_body: add the body decompressed, or as stored.
        body_limit: show at most so many bytes of it.
        max_body: bytes that a compressed body may grow to.
        redact: bodies, keys and property values become hashes.
        release: the broker release whose decoder reads the properties; None: the present one.
    """

    body: bool = False
    raw_body: bool = False
    body_limit: int | None = None
    redact: bool = False
    release: Release | None = None
    max_body: int = DEFAULT_MAX_BODY

    @property
    def value(self) -> Shown:
        """How property values, keys and bodies are shown."""
        return redacted if self.redact else text_or_base64

    @property
    def strict(self) -> bool:
        """Whether properties are read as brokers up to 4.9.0 read them."""
        return self.release is not None and self.release <= STRICT_PROPERTIES_UNTIL

    @property
    def is_plain(self) -> bool:
        """Nothing but the header and the properties as they are."""
        return not (self.body or self.raw_body or self.redact)


# --- messages in a form of the user's own -----------------------------------------------------------


FIELDS: Fields = {
    "t": ("topic", lambda row: row["topic"]),
    "p": ("queue id", lambda row: row["queue_id"]),
    "o": ("queue offset", lambda row: row["queue_offset"]),
    "O": ("physical offset", lambda row: row["physical_offset"]),
    "k": ("keys", lambda row: b" ".join(map(raw, row["keys"]))),
    "T": ("store time (ms)", lambda row: row["store_timestamp"]),
    "s": ("body", lambda row: row["body"]),
    "S": ("body size (bytes)", lambda row: row["body_size_decompressed"]),
    "h": ("properties", lambda row: b",".join(b"%s=%s" % (n.encode(), raw(v)) for n, v in row["properties"].items())),
    "i": ("message id", lambda row: row["message_id"]),
}
"""What stands after a percent sign: its meaning, and how it is read from a message's row with its body."""


def compile_format(text: str) -> Callable[[Mapping[str, Any]], bytes]:
    """Return a function from a message's row (made with ``RowOptions(body=True)``) to bytes.

    Raises:
        ValueError: a ``%`` or ``\\`` is followed by nothing that has a meaning.
    """
    return compile_form(text, FIELDS)


TAGS, KEYS, UNIQUE_KEY = b"TAGS", b"KEYS", b"UNIQ_KEY"


@dataclass(frozen=True, slots=True)
class Properties:
    """What the properties text of one message says.

    Attributes:
        tags: the TAGS property, None when absent.
        keys: the parts of KEYS between single spaces, empty ones dropped.
        unique_key: the UNIQ_KEY property, None when absent.
        properties: every property by name; of repeated names the last value.
    """

    tags: Text | None
    keys: list[Text]
    unique_key: Text | None
    properties: dict[str, Text]


def show_properties(raw: bytes, show: RowOptions) -> Properties:
    """Decode a properties text as the wanted release does and show its values as wanted; never raises on bytes."""
    found = dict(split_properties(raw, strict=show.strict))
    value = show.value
    tags, unique_key = found.get(TAGS), found.get(UNIQUE_KEY)
    return Properties(
        None if tags is None else value(tags),
        [value(key) for key in split_keys(found.get(KEYS, b""))],
        None if unique_key is None else value(unique_key),
        {name_of(name): value(text) for name, text in found.items()},
    )


def split_keys(keys: bytes) -> list[bytes]:
    """Return the parts of a KEYS property between single spaces, without the empty ones."""
    return [key for key in keys.split(b" ") if key]


# --- one record as the object that dump shows -------------------------------------------------------


Row = dict[str, Any]

VERSIONS = ("V1", "V2")
TRANSACTIONS = {0: "none", PREPARED: "prepared", COMMIT: "commit", ROLLBACK: "rollback"}
ROW_KEYS = (
    "kind", "file", "position", "physical_offset", "size", "magic", "body_crc", "body_crc_ok", "queue_id", "flag",
    "queue_offset", "sys_flag", "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times",
    "prepared_transaction_offset", "topic", "tags", "keys", "unique_key", "message_id", "properties", "transaction",
    "compression", "body_size",
)  # fmt: skip
"""Keys of a message, in the order of the contract."""
_V4_BYTES = 4


def transaction(sys_flag: int) -> str:
    """``none``, ``prepared``, ``commit`` or ``rollback`` (spec 2.3)."""
    return TRANSACTIONS[sys_flag & TRANSACTION]


@lru_cache(maxsize=1024)
def host_text(raw: bytes) -> str:
    """``ip:port`` of a stored host, IPv6 addresses in brackets; the port as the signed number it is stored as."""
    address, port = split_host(raw)
    if len(address) == _V4_BYTES:
        return f"{raw[0]}.{raw[1]}.{raw[2]}.{raw[3]}:{port}"
    from ipaddress import IPv6Address

    return f"[{IPv6Address(address).compressed}]:{port}"


class RecordRows:
    """Turns decoded records into rows."""

    def __init__(self, show: RowOptions) -> None:
        self.show = show

    def row(self, fields: dict[str, Any], file: str, position: int) -> Row:
        """Return the object of one record, with the keys of the contract; body and inner messages after them.

        Args:
            fields: of `formats.rocketmq.message.decode_record`.
            file, position: where it lies, bytes into the file.
        """
        row = dict(zip(ROW_KEYS, self._values(fields, file, position), strict=True))
        if self.show.body or self.show.raw_body or is_inner_batch(fields["sys_flag"]):
            self.add_body(row, fields["body"])
        return row

    def _values(self, fields: dict[str, Any], file: str, position: int) -> tuple[Any, ...]:
        """Return the values of :data:`KEYS`, in their order."""
        body, flags = fields["body"], fields["sys_flag"]
        shown = show_properties(fields["properties"], self.show)
        return (
            "message", file, position, fields["physical_offset"], fields["total_size"],
            VERSIONS[fields["magic"] == int(Magic.MESSAGE_V2)],
            fields["body_crc"], not body or fields["body_crc"] == body_crc(body),
            fields["queue_id"], fields["flag"], fields["queue_offset"], flags, fields["born_timestamp"],
            _host(fields["born_ip"], fields["born_port"]), fields["store_timestamp"],
            _host(fields["store_ip"], fields["store_port"]),
            fields["reconsume_times"], fields["prepared_transaction_offset"],
            text_or_base64(fields["topic"]), shown.tags, shown.keys, shown.unique_key,
            offset_message_id(fields["store_ip"], fields["store_port"], fields["physical_offset"]),
            shown.properties, transaction(flags), compression(flags), len(body),
        )  # fmt: skip

    def add_body(self, row: Row, stored: bytes) -> None:
        """Add the body as wanted, and the messages of an inner batch."""
        show = self.show
        opened = open_body(stored, row["sys_flag"], show.max_body)
        if show.body:
            row["body_size_decompressed"] = None if opened.data is None else len(opened.data)
            self._add(row, "body", opened)
        if show.raw_body:
            self._add(row, "raw_body", Body(stored))
        if is_inner_batch(row["sys_flag"]):
            row["inner"] = self._inner(row, opened)

    def _add(self, row: Row, key: str, body: Body) -> None:
        row[key] = None if body.data is None else self._shown(body.data)
        if body.error:
            row[f"{key}_error"] = body.error
        limit = self.show.body_limit
        if body.data is not None and limit is not None and len(body.data) > limit and not self.show.redact:
            row[f"{key}_truncated"] = True

    def _shown(self, body: bytes) -> Text:
        return self.show.value(body if self.show.redact else head_of(body, self.show.body_limit))

    def _inner(self, row: Row, opened: Body) -> list[Row]:
        """Messages of an inner batch, as many as can be read."""
        found: list[Row] = []
        try:
            for offset, fields in enumerate(inner_messages(opened.data or b""), row["queue_offset"]):
                found.append(self._inner_message(offset, fields))
        except DecodeError as error:
            row["inner_error"] = f"byte {error.offset} of the body: {error.field}: {error}"
        return found

    def _inner_message(self, queue_offset: int, fields: dict[str, Any]) -> Row:
        properties = show_properties(fields["properties"], self.show)
        inner: Row = {
            "queue_offset": queue_offset,
            "size": fields["total_size"],
            "flag": fields["flag"],
            "tags": properties.tags,
            "keys": properties.keys,
            "unique_key": properties.unique_key,
            "properties": properties.properties,
            "body_size": len(fields["body"]),
        }
        if self.show.body or self.show.raw_body:
            self._add(inner, "body" if self.show.body else "raw_body", Body(fields["body"]))
        return inner


@lru_cache(maxsize=1024)
def _host(ip: bytes, port: int) -> str:
    return host_text(ip + port.to_bytes(4, "big", signed=True))
