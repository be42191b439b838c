"""Records of internal topics and of KRaft: messages described by tables of fields, read and written by one codec.

Kafka generates a class for each message from a table: fields with a type and the versions that have them. Here
the tables are data (``group_messages``, ``coordinator_messages``, ``metadata_messages``), and :func:`decode` and
:func:`encode` follow them. Two encodings exist (spec 10.1): plain ones with lengths of fixed size, and flexible
ones with lengths as unsigned varints plus one, where every struct ends with tagged fields.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from formats.errors import DecodeError

Values = dict[str, Any]
"""A decoded struct: field name -> value. Ids are their 22-character texts, ``bytes`` stay bytes."""

UNKNOWN_TAGS = "unknownTags"
"""Key under which :func:`decode` keeps tagged fields that no table names: ``[[tag, bytes], ...]``."""

_Read = Callable[[bytes, int], tuple[Any, int]]
_Write = Callable[[bytearray, Any], None]

_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
}
_FOREVER = 1 << 15
_UUID_SIZE = 16

NUMBER_SIZES = {name: form.size for name, form in _NUMBERS.items()} | {"uuid": _UUID_SIZE}
"""Types of fixed size -> bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a message.

    Attributes:
        type: ``int8 int16 uint16 int32 int64 float64 bool uuid string bytes struct``, or one of them after ``[]``.
        versions: versions that have it: ``0+``, ``1``, ``0-3``.
        nullable: versions in which it may be null, "" for none.
        tag: number of a tagged field, None for one in its place.
        default: what the absence of a tagged field stands for.
        fields: of a struct.
    """

    name: str
    type: str
    versions: str = "0+"
    nullable: str = ""
    tag: int | None = None
    default: Any = None
    fields: tuple[Field, ...] = ()

    @property
    def element(self) -> Field:
        """The field of one element of an array."""
        return Field(self.name, self.type.removeprefix("[]"), self.versions, fields=self.fields)


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A message: its table of fields.

    Attributes:
        name: as the broker's schemas call it.
        versions: versions known, ``0-4``.
        flexible: versions in the flexible encoding, "" for none.
        key: number that sets it apart from the others of its topic, None where there is only one.
        since: first release that writes it, "" for all.
        older: layouts that earlier releases wrote under the same version, the newest first.
    """

    name: str
    versions: str
    flexible: str
    fields: tuple[Field, ...]
    key: int | None = None
    since: str = ""
    older: tuple[Message, ...] = ()

    @property
    def highest(self) -> int:
        """The highest version known."""
        return _bounds(self.versions)[1]


def decode(message: Message, version: int, data: bytes) -> Values:
    """Return the values of a whole message; tagged fields that were not written are absent.

    Layouts of earlier releases are tried where the newest does not fit to the last byte.

    Raises:
        DecodeError: the version is not known, or no layout fits.
    """
    first: DecodeError | None = None
    for layout in (message, *message.older):
        try:
            values, end = decode_at(layout, version, data)
            if end == len(data):
                return values
            error = DecodeError(f"{len(data) - end} bytes after the last field of {message.name}", offset=end)
        except DecodeError as failed:
            error = failed
        first = first or error
    assert first is not None
    raise first


def decode_at(message: Message, version: int, data: bytes, position: int = 0) -> tuple[Values, int]:
    """Return the values of a message that begins at ``position``, and where it ends.

    Raises:
        DecodeError: the version is not known, or the bytes do not fit.
    """
    if not within(version, message.versions):
        raise DecodeError(f"version {version} of {message.name} is not known, only {message.versions}")
    try:
        return _reader(message, version)(data, position)
    except (struct.error, IndexError) as error:
        raise DecodeError(f"{message.name} goes on after the end of its bytes", offset=len(data)) from error


def encode(message: Message, version: int, values: Values) -> bytes:
    """Return the bytes of a message; tagged fields are written where ``values`` has them.

    Raises:
        ValueError: the version is not known, a field is missing, or a value does not fit its type.
    """
    if not within(version, message.versions):
        raise ValueError(f"version {version} of {message.name} is not known, only {message.versions}")
    out = bytearray()
    try:
        _writer(message, version)(out, values)
    except (struct.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{message.name} cannot be written: {error}") from error
    return bytes(out)


def within(version: int, versions: str) -> bool:
    """Whether a range such as ``2+``, ``1`` or ``0-3`` holds ``version``; "" holds none."""
    low, high = _bounds(versions)
    return low <= version <= high


def read_unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the unsigned varint at ``position`` and where it ends.

    Raises:
        DecodeError: it has more than five bytes, or the data ends inside.
    """
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position
    raise DecodeError("no end of a varint", offset=position)


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append ``value`` in as few bytes as it needs."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def uuid_text(data: bytes) -> str:
    """Return the 22 characters that stand for the 16 bytes of an id."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of an id.

    Raises:
        ValueError: the text is no id.
    """
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, UnicodeError) as error:
        raise ValueError(f"{text!r} is no id of 22 characters") from error
    if len(data) != _UUID_SIZE:
        raise ValueError(f"{text!r} is no id of 22 characters")
    return data


@lru_cache(maxsize=512)
def _reader(message: Message, version: int) -> _Read:
    return _read_struct(message.fields, version, flexible=within(version, message.flexible))


@lru_cache(maxsize=512)
def _writer(message: Message, version: int) -> _Write:
    return _write_struct(message.fields, version, flexible=within(version, message.flexible))


@lru_cache(maxsize=128)
def _bounds(versions: str) -> tuple[int, int]:
    if not versions:
        return (0, -1)
    if versions.endswith("+"):
        return int(versions[:-1]), _FOREVER
    low, _, high = versions.partition("-")
    return int(low), int(high or low)


def _read_struct(fields: tuple[Field, ...], version: int, *, flexible: bool) -> _Read:
    present = [field for field in fields if within(version, field.versions)]
    placed = [(f.name, _read_field(f, version, flexible=flexible)) for f in present if f.tag is None]
    tagged = {f.tag: (f.name, _read_field(f, version, flexible=flexible)) for f in present if f.tag is not None}
    order = [field.name for field in present]

    def read(data: bytes, position: int) -> tuple[Values, int]:
        values: Values = {}
        for name, part in placed:
            values[name], position = part(data, position)
        if flexible:
            position = _read_tags(tagged, values, data, position)
        if tagged:  # in the order of the table, wherever the tags stood
            values = {name: values[name] for name in (*order, UNKNOWN_TAGS) if name in values}
        return values, position

    return read


def _read_tags(tagged: dict[int, tuple[str, _Read]], values: Values, data: bytes, position: int) -> int:
    count, position = read_unsigned_varint(data, position)
    if count > len(data) - position:
        raise DecodeError(f"{count} tagged fields cannot fit", offset=position)
    for _ in range(count):
        tag, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        end = position + size
        if end > len(data):
            raise DecodeError(f"tagged field {tag} goes on after the end", offset=position)
        if tag in tagged:
            name, part = tagged[tag]
            values[name], stopped = part(data, position)
            if stopped != end:
                raise DecodeError(f"tagged field {name} has {size} bytes, not {stopped - position}", offset=position)
        else:
            values.setdefault(UNKNOWN_TAGS, []).append([tag, data[position:end]])
        position = end
    return position


def _read_field(field: Field, version: int, *, flexible: bool) -> _Read:
    if field.type.startswith("[]"):
        return _read_array(_read_field(field.element, version, flexible=flexible), flexible=flexible)
    if field.type in _NUMBERS:
        return _read_number(_NUMBERS[field.type])
    if field.type == "uuid":
        return _read_uuid
    if field.type == "struct":
        inner = _read_struct(field.fields, version, flexible=flexible)
        if not within(version, field.nullable):
            return inner
        return _read_nullable_tagged(inner) if field.tag is not None else _read_nullable(inner)
    read_size = _read_compact_size if flexible else _read_size16 if field.type == "string" else _read_size32
    return _read_text(read_size) if field.type == "string" else _read_bytes(read_size)


def _read_number(form: struct.Struct) -> _Read:
    unpack, size = form.unpack_from, form.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    return read


def _read_uuid(data: bytes, position: int) -> tuple[str, int]:
    return uuid_text(_cut(data, position, _UUID_SIZE)), position + _UUID_SIZE


def _read_size16(data: bytes, position: int) -> tuple[int, int]:
    return struct.unpack_from(">h", data, position)[0], position + 2


def _read_size32(data: bytes, position: int) -> tuple[int, int]:
    return struct.unpack_from(">i", data, position)[0], position + 4


def _read_compact_size(data: bytes, position: int) -> tuple[int, int]:
    size, position = read_unsigned_varint(data, position)
    return size - 1, position


def _read_text(read_size: _Read) -> _Read:
    def read(data: bytes, position: int) -> tuple[str | None, int]:
        size, position = read_size(data, position)
        if size < 0:
            return None, position
        return _cut(data, position, size).decode("utf-8", "replace"), position + size

    return read


def _read_bytes(read_size: _Read) -> _Read:
    def read(data: bytes, position: int) -> tuple[bytes | None, int]:
        size, position = read_size(data, position)
        return (None, position) if size < 0 else (_cut(data, position, size), position + size)

    return read


def _read_array(element: _Read, *, flexible: bool) -> _Read:
    read_size = _read_compact_size if flexible else _read_size32

    def read(data: bytes, position: int) -> tuple[list[Any] | None, int]:
        count, position = read_size(data, position)
        if count < 0:
            return None, position
        if count > len(data) - position:  # no element has fewer bytes than one
            raise DecodeError(f"{count} elements cannot fit", offset=position)
        values = []
        for _ in range(count):
            value, position = element(data, position)
            values.append(value)
        return values, position

    return read


def _read_nullable(inner: _Read) -> _Read:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        return (None, position + 1) if data[position] >= 0x80 else inner(data, position + 1)

    return read


def _read_nullable_tagged(inner: _Read) -> _Read:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        there, position = read_unsigned_varint(data, position)
        return inner(data, position) if there else (None, position)

    return read


def _cut(data: bytes, position: int, size: int) -> bytes:
    if size > len(data) - position:
        raise DecodeError(f"{size} bytes announced, {len(data) - position} there", offset=position)
    return bytes(data[position : position + size])


def _write_struct(fields: tuple[Field, ...], version: int, *, flexible: bool) -> _Write:
    present = [field for field in fields if within(version, field.versions)]
    placed = [(f.name, _write_field(f, version, flexible=flexible)) for f in present if f.tag is None]
    tagged = [(f.tag, f, _write_field(f, version, flexible=flexible)) for f in present if f.tag is not None]

    def write(out: bytearray, values: Values) -> None:
        for name, part in placed:
            part(out, values[name])
        if not flexible:
            return
        tags: list[tuple[int, bytes]] = [(tag, data) for tag, data in values.get(UNKNOWN_TAGS, ())]
        for tag, field, part in tagged:
            if field.name in values:
                body = bytearray()
                part(body, values[field.name])
                tags.append((tag, bytes(body)))
        write_unsigned_varint(out, len(tags))
        for tag, data in sorted(tags):
            write_unsigned_varint(out, tag)
            write_unsigned_varint(out, len(data))
            out += data

    return write


def _write_field(field: Field, version: int, *, flexible: bool) -> _Write:
    if field.type in _NUMBERS:
        form = _NUMBERS[field.type]
        return lambda out, value: out.extend(form.pack(value))
    if field.type == "uuid":
        return lambda out, value: out.extend(uuid_bytes(value))
    if field.type == "struct":
        inner = _write_struct(field.fields, version, flexible=flexible)
        if not within(version, field.nullable):
            return inner
        marks = (b"\x00", b"\x01") if field.tag is not None else (b"\xff", b"\x01")
        return _write_nullable(inner, marks)
    size = _write_size(field, flexible=flexible)
    if field.type.startswith("[]"):
        return _write_array(size, _write_field(field.element, version, flexible=flexible))
    return _write_text(size) if field.type == "string" else _write_bytes(size)


def _write_size(field: Field, *, flexible: bool) -> _Write:
    if flexible:
        return lambda out, value: write_unsigned_varint(out, value + 1)
    form = _NUMBERS["int16" if field.type == "string" else "int32"]
    return lambda out, value: out.extend(form.pack(value))


def _write_text(size: _Write) -> _Write:
    data = _write_bytes(size)
    return lambda out, value: data(out, None if value is None else value.encode("utf-8"))


def _write_bytes(size: _Write) -> _Write:
    def write(out: bytearray, value: bytes | None) -> None:
        size(out, -1 if value is None else len(value))
        out.extend(value or b"")

    return write


def _write_array(size: _Write, element: _Write) -> _Write:
    def write(out: bytearray, values: list[Any] | None) -> None:
        size(out, -1 if values is None else len(values))
        for value in values or ():
            element(out, value)

    return write


def _write_nullable(inner: _Write, marks: tuple[bytes, bytes]) -> _Write:
    def write(out: bytearray, value: Any) -> None:
        out.extend(marks[value is not None])
        if value is not None:
            inner(out, value)

    return write
