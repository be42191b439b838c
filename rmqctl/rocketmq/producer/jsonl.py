"""Messages from dumped objects: what ``dump --body -o jsonl`` prints can be produced again.

Every field of an object is looked at: one that is unknown, of another type, or at odds with the
others is refused by its line and name before anything of the line is written.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from formats.rocketmq.message import SysFlag
from formats.rocketmq.properties import PAIR_END
from rmqctl.producing import JsonObject
from rmqctl.rocketmq.dump.record import transaction
from rmqctl.rocketmq.engine.config import Host
from rmqctl.rocketmq.engine.message import LOCALHOST, MAX_QUEUES
from rmqctl.rocketmq.producer.drafts import Draft

_INT = 1 << 31
_LONG = 1 << 63
_INNER_BATCH = int(SysFlag.INNER_BATCH)
CRC_PROPERTY = "__CRC32#"
"""What a record with a CRC of its own ends with; made again for each place."""

_SHOWN: dict[str, tuple[tuple[type, ...], str]] = {
    "kind": ((str,), "text"),
    "file": ((str,), "text"),
    "position": ((int,), "a whole number"),
    "physical_offset": ((int,), "a whole number"),
    "size": ((int,), "a whole number"),
    "magic": ((str,), "text"),
    "body_crc": ((int,), "a whole number"),
    "body_crc_ok": ((bool,), "true or false"),
    "queue_offset": ((int,), "a whole number"),
    "message_id": ((str,), "text"),
    "transaction": ((str,), "text"),
    "body_size": ((int,), "a whole number"),
    "body_size_decompressed": ((int,), "a whole number"),
    "raw_body": ((str, dict), "text"),
    "inner": ((list,), "a list of messages"),
    "inner_error": ((str,), "text"),
}
"""Fields that ``dump`` shows and a store works out for itself: their types, and the word for it."""
_TAKEN = {
    "body", "topic", "queue_id", "properties", "flag", "born_timestamp", "born_host", "store_timestamp", "store_host",
    "reconsume_times", "prepared_transaction_offset", "sys_flag", "compression", "tags", "keys", "unique_key",
}  # fmt: skip
"""Fields that a message is made of."""
_PARTIAL = {
    "body_truncated": "the body is not whole; dump it without --body-limit",
    "body_error": "the body could not be read when it was dumped; leave the line out",
    "raw_body_truncated": "the body is not whole; dump it without --body-limit",
}
_OTHER_KINDS = {"blank", "finding", "gap", "summary"}
"""Rows of a dumped log that are no message."""


def from_jsonl(lines: Iterable[bytes], name: str, *, needs_topic: bool = True) -> Iterator[Draft]:
    """One message a line, in the objects that ``dump --body -o jsonl`` prints; other rows of a log are left out.

    Args:
        name: what to call the lines in messages.
        needs_topic: each object must name one.

    Raises:
        Refused: a line is no such object; says the line and the field.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            reader = _Reader(line, f"{name}, line {number}")
            if reader.is_row("message", _OTHER_KINDS):
                yield reader.draft(needs_topic=needs_topic)


def _escaped(text: str) -> str:
    """Text as `_Reader._text` gives it: a lone surrogate, which JSON can spell, becomes the bytes that stand for it."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


class _Reader(JsonObject):
    """Takes the fields of one object."""

    def draft(self, *, needs_topic: bool) -> Draft:
        self._check_names()
        if needs_topic and not self.document.get("topic"):
            raise self.wrong("topic", "is missing (or give --topic)")
        found = Draft(
            body=self._bytes("body"),
            topic=self._topic(),
            queue_id=self._queue_id(),
            properties=self._properties(),
            flag=self._number("flag", _INT) or 0,
            born_timestamp=self._number("born_timestamp", _LONG),
            born_host=self._host("born_host") or LOCALHOST,
            store_timestamp=self._number("store_timestamp", _LONG),
            store_host=self._host("store_host"),
            reconsume_times=self._number("reconsume_times", _INT) or 0,
            prepared_transaction_offset=self._number("prepared_transaction_offset", _LONG) or 0,
            sys_flag=self._number("sys_flag", _INT) or 0,
            compression=self._compression(),
            stored=True,
            ordered="physical_offset" in self.document,
            origin=self.where,
        )
        self._check_flags(found.sys_flag)
        return found

    def _check_names(self) -> None:
        """Refuse what no message has, what is of another type, and bodies that are not whole."""
        for name, value in self.document.items():
            if name in _PARTIAL:
                raise self.wrong(name, _PARTIAL[name])
            if name in _SHOWN:
                types, word = _SHOWN[name]
                if value is not None and (type(value) not in types):
                    raise self.wrong(name, f"not {word}")
            elif name not in _TAKEN:
                raise self.wrong(name, "is no field of a message")

    def _check_flags(self, sys_flag: int) -> None:
        """Refuse what says something else than SYSFLAG, which is what is stored."""
        shown = self.document.get("transaction")
        if shown is not None and shown != transaction(sys_flag):
            raise self.wrong("transaction", f"is {shown!r}, but sys_flag says {transaction(sys_flag)!r}")
        if self.document.get("inner") is not None and not sys_flag & _INNER_BATCH:
            raise self.wrong("inner", f"but sys_flag has no {_INNER_BATCH:#x}: the record is no inner batch")

    def _topic(self) -> str | None:
        topic = self._text("topic")
        if topic is not None and not topic.isascii() and any("\ud800" <= c <= "\udfff" for c in topic):
            raise self.wrong("topic", "is not UTF-8 text")
        return topic

    def _queue_id(self) -> int | None:
        number = self._number("queue_id", _INT)
        if number is not None and number < 0:
            raise self.wrong("queue_id", "is below 0")
        if number is not None and number >= MAX_QUEUES:
            raise self.wrong("queue_id", f"is above {MAX_QUEUES - 1}")
        return number

    def _number(self, name: str, limit: int) -> int | None:
        return self.number(name, -limit, limit)

    def _text(self, name: str) -> str | None:
        value = self.document.get(name)
        if value is None:
            return None
        raw = self.raw(name, value)
        return raw.decode("utf-8", "surrogateescape")

    def _bytes(self, name: str) -> bytes:
        if name not in self.document:
            raise self.wrong(name, "is missing (dump it with --body)")
        return self.raw(name, self.document[name])

    def _properties(self) -> dict[str, str]:
        value = self.document.get("properties")
        found: dict[str, str] = {}
        if isinstance(value, dict):
            for name, text in value.items():
                found[_escaped(name)] = self.raw(f"properties.{name}", text).decode("utf-8", "surrogateescape")
        elif value is not None:
            raise self.wrong("properties", "not an object of names and values")
        found.pop(CRC_PROPERTY, None)
        for name, text in found.items():
            self._check_property(name, text)
        return self._with_shown(found)

    def _check_property(self, name: str, text: str) -> None:
        if not name or not text:
            raise self.wrong(f"properties.{name}", "name or value is empty, and would not be read again")
        if "\x01" in name or PAIR_END.decode() in name + text:
            raise self.wrong(f"properties.{name}", "has a separator of properties, 0x01 or 0x02; leave it out")

    def _with_shown(self, found: dict[str, str]) -> dict[str, str]:
        """Keys, tags and unique key given only beside the properties, as in an object written by hand."""
        keys = self._keys()
        if keys and "KEYS" not in found:
            found["KEYS"] = " ".join(keys)
        elif keys and keys != [key for key in found["KEYS"].split(" ") if key]:
            raise self.wrong("keys", "differ from properties.KEYS")
        for name, key in (("tags", "TAGS"), ("unique_key", "UNIQ_KEY")):
            value = self._text(name)
            if value and found.setdefault(key, value) != value:
                raise self.wrong(name, f"differs from properties.{key}")
            if value is not None:
                self._check_shown(name, value)
        return found

    def _keys(self) -> list[str]:
        """Return the parts of KEYS, none of which may have the blank that divides them."""
        value = self.document.get("keys")
        if not isinstance(value, list | None):
            raise self.wrong("keys", "not a list")
        found = [self.raw("keys", part).decode("utf-8", "surrogateescape") for part in value or ()]
        for part in found:
            if not part or " " in part:
                raise self.wrong("keys", f"{part!r} is empty or has a blank, which divides keys; give each by itself")
            self._check_shown("keys", part)
        return found

    def _check_shown(self, name: str, value: str) -> None:
        if PAIR_END.decode() in value:
            raise self.wrong(name, "has the separator of properties 0x02; leave it out")

    def _host(self, name: str) -> Host | None:
        value = self.document.get(name)
        if value is None:
            return None
        try:
            return Host.parse(value)
        except (ValueError, AttributeError, ipaddress.AddressValueError) as error:
            raise self.wrong(name, "not an address and port such as 127.0.0.1:10911") from error

    def _compression(self) -> str:
        value = self.document.get("compression", "none")
        if value not in ("none", "zlib", "lz4", "zstd"):
            raise self.wrong("compression", "none of none, zlib, lz4, zstd")
        return str(value)


__all__ = ["from_jsonl"]
