"""Records that a query is led to, and why one is not there (spec 8.3, 8.4; DefaultMessageStore.lookMessageByOffset)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.index import index_key, tag_index_key
from formats.rocketmq.message import body_crc, decode_record
from formats.rocketmq.properties import split_properties
from rmqctl.explain import Miss, Trace
from rmqctl.rocketmq.log.record import LogReader, can_be_topic, magic_of, total_size_of, variant_of
from rmqctl.rocketmq.query.steps import BEYOND_LOG, RECORD_DAMAGED, RECORD_EXPIRED, RECORD_GONE

UNIQUE_KEY, KEYS, TAGS, REAL_TOPIC = b"UNIQ_KEY", b"KEYS", b"TAGS", b"REAL_TOPIC"
ENCODING = ("utf-8", "surrogateescape")


@dataclass
class Record:
    """A record of the log.

    Attributes:
        physical_offset: where it lies, whatever it says of itself.
        file, position: the same as bytes into a file.
        raw: its bytes; fields: what they say.
        strict: properties are read as brokers up to 4.9.0 read them.
    """

    physical_offset: int
    file: str
    position: int
    raw: bytes
    fields: dict[str, Any]
    strict: bool = False

    @cached_property
    def properties(self) -> dict[bytes, bytes]:
        """By name; of repeated names the last value."""
        return dict(split_properties(self.fields["properties"], strict=self.strict))

    @property
    def topic(self) -> str:
        text: bytes = self.fields["topic"]
        return text.decode(*ENCODING)

    @property
    def real_topic(self) -> str:
        """The topic that the producer named, where the record is a copy under a system topic; else its own."""
        text = self.properties.get(REAL_TOPIC)
        return self.topic if text is None else text.decode(*ENCODING)

    @property
    def store_timestamp(self) -> int:
        stored: int = self.fields["store_timestamp"]
        return stored

    def has_key(self, key: str) -> bool:
        """Whether one part of KEYS between single spaces equals the key (MQAdminImpl.queryMessage)."""
        return key.encode(*ENCODING) in self.properties.get(KEYS, b"").split(b" ")

    def has_unique_key(self, key: str) -> bool:
        """Whether UNIQ_KEY equals the key."""
        return self.properties.get(UNIQUE_KEY) == key.encode(*ENCODING)

    @property
    def doubt(self) -> str:
        """Why what a record says of itself is not all that its message said, as half a sentence; "" where nothing shows
        that.
        """
        if not can_be_topic(self.fields["topic"]):
            return "the topic of the record there has bytes that no topic has, so another was meant"
        if b"\0" in self.fields["properties"]:
            return "the properties of the record there hold zero bytes, so its keys may be lost"
        return ""

    @property
    def damage(self) -> str:
        """What can be seen to be wrong with a record that can be read, as half a sentence; "" when nothing is."""
        if self.doubt:
            return self.doubt
        body = self.fields["body"]
        if body and self.fields["body_crc"] != body_crc(body):
            return f"the body of the record there has CRC {body_crc(body)}, but {self.fields['body_crc']} is stored"
        return ""

    def index_keys(self) -> list[str]:
        """Return what a broker hashes for the record: unique key, keys, and from 5.4.0 on the tags (spec 4.2, 4.3)."""
        found = [self.properties.get(UNIQUE_KEY, b""), *self.properties.get(KEYS, b"").split(b" ")]
        topic = self.fields["topic"].decode("utf-8", "replace")
        keys = [index_key(topic, part.decode("utf-8", "replace")) for part in found if part]
        tags = self.properties.get(TAGS)
        return keys if tags is None else [*keys, tag_index_key(topic, tags.decode("utf-8", "replace"))]

    def has_tags(self, tags: str) -> bool:
        """Whether TAGS as a whole equals the text."""
        return self.properties.get(TAGS) == tags.encode(*ENCODING)


@dataclass(frozen=True, slots=True)
class Absence:
    """Why no record could be read at an offset.

    Attributes:
        miss: the reason; found: half a sentence about what stands there.
    """

    physical_offset: int
    miss: Miss
    found: str
    file: str = ""


_LIKELY = 1 << 22
"""Bytes that a record has at most where brokers have their default limit: a damaged unit may say anything."""


class RecordReader:
    """Reads records at offsets, and notes what it found."""

    def __init__(self, log: LogReader, trace: Trace, *, strict: bool = False) -> None:
        self.log, self.trace, self.strict = log, trace, strict

    def at(self, physical: int, said: int = 0) -> Record | Absence:
        """Return the record that begins at an offset.

        Args:
            said: bytes that a unit says it has, so that they are read at once.
        """
        file = self.log.file_of(physical)
        if file is None:
            return self._absent(self._outside(physical))
        if 0 < said < _LIKELY:  # it is nearly always right, and then nothing else has to be looked at
            with suppress(DecodeError):
                fields, after = decode_record(raw := self.log.read(physical, said))
                if after == len(raw):
                    return Record(physical, file.name, physical - file.base, raw, fields, self.strict)
        head = self.log.head(physical, min(said, _LIKELY))
        if head is None:
            return self._absent(self._no_record(physical, file.name))
        size, raw = total_size_of(head[1]), head[1]
        raw = raw[: max(size, 0)] if size <= len(raw) else self.log.read(physical, size)
        try:
            fields, after = decode_record(raw)
        except DecodeError as error:
            found = f"a record of {size} bytes that is broken at {error.field}: {error}"
            return self._absent(Absence(physical, RECORD_DAMAGED, found, file.name))
        if after != len(raw):
            return self._absent(Absence(physical, RECORD_DAMAGED, f"a record of {size} bytes, cut", file.name))
        return Record(physical, file.name, physical - file.base, raw, fields, self.strict)

    def _outside(self, physical: int) -> Absence:
        log = self.log
        if not log.files:
            return Absence(physical, RECORD_GONE, "the store has no commit log")
        if physical < log.min_offset:
            return Absence(physical, RECORD_EXPIRED, f"the log begins at {log.min_offset}")
        if physical >= log.max_offset:
            return Absence(physical, BEYOND_LOG, f"the files of the log end at {log.max_offset}")
        return Absence(physical, RECORD_GONE, "no file of the log holds this offset")

    def _no_record(self, physical: int, file: str) -> Absence:
        data = self.log.read(physical, 8)
        if not any(data):
            return Absence(physical, RECORD_GONE, "zeros", file)
        if variant_of(magic_of(data), 0) is not None:
            return Absence(physical, RECORD_DAMAGED, "a record whose header is cut off", file)
        found = f"no message magic but the bytes {data.hex(' ')}"
        return Absence(physical, RECORD_GONE, found, file)

    def _absent(self, absence: Absence) -> Absence:
        self.trace.add(absence.file, f"record {absence.physical_offset}", f"not readable: {absence.found}")
        return absence


__all__ = ["Absence", "Record", "RecordReader"]
