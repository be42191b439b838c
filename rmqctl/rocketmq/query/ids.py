"""A message by its id, as ``viewMessage`` finds it: by the place the id names, else by the index of unique keys (spec
2.15).

An id says where a message lies (offsetMsgId), or what its producer called it (UNIQ_KEY). Sources:
DefaultMQAdminExtImpl.viewMessage, MQAdminImpl.queryMessageByUniqKey. NumPy is not imported on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from formats.errors import DecodeError
from formats.rocketmq.message_id import decode_grpc_id, decode_offset_message_id, decode_unique_key, is_grpc_id
from rmqctl.explain import Trace
from rmqctl.rocketmq.index import IndexFile, index_files, is_asked
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.query.key import KeyAnswer, KeyQuery, by_key_in, by_key_in_database
from rmqctl.rocketmq.query.records import Absence, Record, RecordReader
from rmqctl.rocketmq.state.config import known_topics
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import index_geometry
from rmqctl.text import number_of

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
        """Return what the key says, as one line."""
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
    """A text as each kind of id that it has the shape of; a text may have that of both.

    Attributes:
        text: as typed.
    """

    text: str
    offset: OffsetId | None
    unique: UniqueKey | None

    def describe(self) -> list[str]:
        """Return what the id may be, one line a kind."""
        lines = []
        if self.offset is not None and self.offset.is_plausible:
            lines.append(f"offsetMsgId: broker {self.offset.host}, offset {self.offset.physical_offset}")
        if self.unique is not None:
            lines.append(self.unique.describe())
        return lines


def parse_message_id(text: str) -> MessageId:
    """Return the id in a text.

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


# --- a message by its id ----------------------------------------------------------------------------


_CLIENT_MARGIN = 1000
"""Clients ask for a unique key from so many ms before its own time on (MQAdminImpl.queryMessageByUniqKey)."""


@dataclass(slots=True)
class IdAnswer:
    """What an id leads to.

    Attributes:
        messages: the one that a client is shown first, the other copies and repeats after it, ascending.
        by_offset: the message was found where an offsetMsgId says.
        foreign_host: the id names another broker than the one that wrote the record.
        absence: why there is no record where the id says.
        answers: what the index gave for the unique key, by topic.
        late: time of the key by the producer's clock and store time, where a client would miss the message.
    """

    messages: list[Record] = field(default_factory=list)
    by_offset: bool = False
    foreign_host: str = ""
    absence: Absence | None = None
    answers: dict[str, KeyAnswer] = field(default_factory=dict)
    late: tuple[int, int] | None = None


def by_id(
    store: StoreFiles,
    wanted: MessageId,
    topics: Sequence[str] = (),
    trace: Trace | None = None,
    *,
    strict: bool = False,
) -> IdAnswer:
    """Return the message with an id.

    Args:
        topics: where to look for a unique key; default: every topic the store knows.
    """
    trace = trace or Trace(on=False)
    for line in wanted.describe():
        trace.add("", "id", line)
    with LogReader(store.log_files) as log:
        answer = _by_offset(wanted, RecordReader(log, trace, strict=strict), trace)
        if answer.messages and not answer.foreign_host:
            return answer
        names = topics or known_topics(store)
        found = _by_unique_key(store, wanted, names, log, trace, strict=strict)
        if not found.messages and wanted.text != wanted.text.upper():
            wanted = replace(wanted, text=wanted.text.upper())
            found = _by_unique_key(store, wanted, names, log, trace, strict=strict)
    if found.messages or not answer.messages:
        found.absence = answer.absence
        return found
    return answer


def _by_offset(wanted: MessageId, reader: RecordReader, trace: Trace) -> IdAnswer:
    """Return the record at the offset of the id, whatever broker the id names."""
    offset_id = wanted.offset
    if offset_id is None or not offset_id.is_plausible:
        return IdAnswer()
    record = reader.at(offset_id.physical_offset)
    if isinstance(record, Absence):
        return IdAnswer(absence=record)
    same = record.fields["store_ip"] == offset_id.ip and record.fields["store_port"] == offset_id.port
    answer = IdAnswer([record], by_offset=True, foreign_host="" if same else offset_id.host)
    whose = "and of the broker that the id names" if same else f"but stored by another broker than {offset_id.host}"
    trace.add(record.file, f"record {record.physical_offset}", f"a message of topic {record.topic}, {whose}")
    return answer


def _by_unique_key(
    store: StoreFiles, wanted: MessageId, topics: Sequence[str], log: LogReader, trace: Trace, *, strict: bool
) -> IdAnswer:
    answer = IdAnswer()
    queries = (KeyQuery(topic, wanted.text, unique=True, strict=strict) for topic in topics)
    if is_asked(store):
        from rmqctl.rocketmq.query.index_walk import open_index  # with NumPy

        with open_index(store) as index:
            for query in queries:
                answer.answers[query.topic] = by_key_in_database(index, log, query, Trace(on=False))
    else:
        files = index_files(store, index_geometry(store))
        try:
            for query in queries:
                answer.answers[query.topic] = by_key_in(files, log, query, _quiet(trace, files, query))
        finally:
            for file in files:
                file.close()
    for found in answer.answers.values():
        answer.messages += found.messages
    counted = f"{number_of(len(topics), 'topic')}: {number_of(len(answer.messages), 'message')}"
    trace.add("", "index", f"asked for the unique key under {counted}")
    answer.messages.sort(key=rank)
    if answer.messages and wanted.unique is not None:
        first = answer.messages[0]
        answer.late = clock_ahead(first, wanted.unique, answer.answers[first.topic])
    return answer


def _quiet(trace: Trace, files: Sequence[IndexFile], query: KeyQuery) -> Trace:
    """Return the trace for topics whose slot holds something; where all slots are empty there is nothing to say."""
    if not trace.on:
        return trace
    hashed = query.index_query().hash
    return trace if any(f.slot(hashed % max(f.geometry.slots, 1)) > 0 for f in files) else Trace(on=False)


def rank(record: Record) -> tuple[bool, int]:
    """Messages under the topic that their producer named come before copies under system topics."""
    return record.real_topic != record.topic, record.physical_offset


def clock_ahead(record: Record, unique: UniqueKey, answer: KeyAnswer) -> tuple[int, int] | None:
    """When the key was made and the message stored, epoch ms, where clients ask for later times and find nothing.

    Args:
        answer: what the index gave for the key; its times are in whole seconds from the first of their file.
    """
    made = unique.made_at(record.fields["born_timestamp"])
    times = [c.time for c in answer.walk.candidates if c.physical_offset == record.physical_offset]
    return (made, record.store_timestamp) if made - _CLIENT_MARGIN > max(times, default=made) else None
