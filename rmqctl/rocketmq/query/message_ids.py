"""Message ids taken apart: where a message lies (offsetMsgId), or what its producer called it (UNIQ_KEY). Spec 2.15."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from formats.errors import DecodeError
from formats.rocketmq.message_id import decode_grpc_id, decode_offset_message_id, decode_unique_key, is_grpc_id

_PORTS = 1 << 16
_QUARTER_HOUR = 15 * 60_000
_GRPC_EPOCH = datetime(2021, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH = timedelta(days=32)


class NotAMessageId(ValueError):
    """A text that has the shape of no kind of id."""


@dataclass(frozen=True, slots=True)
class OffsetId:
    """An offsetMsgId.

    Attributes:
        ip, port: of the broker that first stored the message.
        physical_offset: of the record in that broker's log, bytes.
    """

    ip: bytes
    port: int
    physical_offset: int

    @property
    def host(self) -> str:
        address = ip_address(self.ip)
        return f"[{address}]:{self.port}" if address.version != 4 else f"{address}:{self.port}"

    @property
    def is_plausible(self) -> bool:
        """Whether port and offset can be what they are said to be; those of a unique key hardly ever are."""
        return 0 < self.port < _PORTS and self.physical_offset >= 0


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A UNIQ_KEY, as Java's remoting clients or gRPC clients make it.

    Attributes:
        maker: the client's IP address, of a gRPC client its MAC address.
        pid: process id, its lower 16 bits.
        class_loader_hash: of remoting clients; None of gRPC clients.
        time: remoting: ms since the client's month began, by its own time zone; gRPC: epoch ms, whole seconds.
        counter: of messages of that process.
    """

    maker: str
    pid: int
    class_loader_hash: int | None
    time: int
    counter: int

    @property
    def is_grpc(self) -> bool:
        return self.class_loader_hash is None

    def made_at(self, near: int) -> int:
        """When the key was made, epoch ms, given a time near to it by the same clock.

        A remoting key holds only the time since the month began in the client's zone, so month and zone are those
        that bring it nearest; zones are taken to differ by quarters of an hour.

        Args:
            near: epoch ms, such as the born time of the message, which its producer sets next.
        """
        if self.is_grpc:
            return self.time
        candidates = [start + self.time for start in _month_starts(near)]
        made = min(candidates, key=lambda time: abs(time - near))
        zone = round((made - near) / _QUARTER_HOUR) * _QUARTER_HOUR
        return made - zone

    def describe(self) -> str:
        """What the key says, as one line."""
        if self.is_grpc:
            when = _EPOCH + timedelta(milliseconds=self.time)
            return (
                f"unique key of a gRPC client: MAC {self.maker}, process {self.pid}, "
                f"made {when:%Y-%m-%dT%H:%M:%SZ}, number {self.counter}"
            )
        days, rest = divmod(self.time // 1000, 86_400)
        clock = f"day {days + 1}, {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}.{self.time % 1000:03}"
        return (
            f"unique key of a client at {self.maker}, process {self.pid}, class loader {self.class_loader_hash}, "
            f"made on {clock} of a month in the client's time zone, number {self.counter}"
        )


@dataclass(frozen=True, slots=True)
class MessageId:
    """A text as each kind of id that it has the shape of; the two cannot always be told apart.

    Attributes:
        text: as typed.
    """

    text: str
    offset: OffsetId | None
    unique: UniqueKey | None

    def describe(self) -> list[str]:
        """What the id may be, one line a kind."""
        lines = []
        if self.offset is not None and self.offset.is_plausible:
            lines.append(f"offsetMsgId: broker {self.offset.host}, offset {self.offset.physical_offset}")
        if self.unique is not None:
            lines.append(self.unique.describe())
        return lines


def parse_message_id(text: str) -> MessageId:
    """The id in a text.

    Raises:
        NotAMessageId: wrong length, or not hexadecimal.
    """
    text = text.strip()
    try:
        if is_grpc_id(text):
            return MessageId(text, None, _grpc(text))
        fields = decode_unique_key(text)
        maker = str(ip_address(fields["ip"]))
        unique = UniqueKey(maker, *(int(fields[n]) for n in ("pid", "class_loader_hash", "time", "counter")))
        return MessageId(text, OffsetId(*decode_offset_message_id(text)), unique)
    except DecodeError as error:
        raise NotAMessageId(
            f"{error}: an offsetMsgId has 32 hex digits (56 with an IPv6 host), a unique key 32 or 56, "
            "or 34 that start with 01 from a gRPC client"
        ) from None


def _grpc(text: str) -> UniqueKey:
    fields = decode_grpc_id(text)
    made = int((_GRPC_EPOCH - _EPOCH).total_seconds()) + fields["seconds"]
    return UniqueKey(fields["mac"].hex(":").upper(), fields["pid"], None, made * 1000, fields["sequence"])


def _month_starts(near: int) -> list[int]:
    """Epoch ms at which the months around a time begin, in UTC."""
    try:
        middle = (_EPOCH + timedelta(milliseconds=near)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        months = [(middle - timedelta(days=1)).replace(day=1), middle, (middle + _MONTH).replace(day=1)]
    except OverflowError:
        months = [_EPOCH]
    return [int((month - _EPOCH).total_seconds()) * 1000 for month in months]


__all__ = ["MessageId", "NotAMessageId", "OffsetId", "UniqueKey", "parse_message_id"]
