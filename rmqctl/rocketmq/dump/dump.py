"""The rows of a store, a part of it or a single file, with the filters and the limit applied.

A log that a broker appends to can be followed: every new record once, whole, across the files. A broker writes into a
mapped file, so a reader can meet a record of which only a part has arrived. The last record in front of unwritten
room is therefore held back until something follows it, or until it has not changed from one look to the next and its
body matches its CRC.

JSON lines are made column by column, byte for byte what orjson makes of the rows, without an object for each: numbers
and texts become columns of JSON text, which are joined row by row in one go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from formats.dataclass import dataclass
from formats.rocketmq.message import COMPRESSION, TRANSACTION, SysFlag
from rmqctl.files.tree import Tree
from rmqctl.findings import Severity
from rmqctl.rocketmq.dump.log import Flags, LogDump, MessageRows, Part, hosts_v4, id_bytes, merged
from rmqctl.rocketmq.dump.property_json import PropertyJson, PropertyTexts, slices_of
from rmqctl.rocketmq.dump.record import VERSIONS, Row, Show, host_text, transaction
from rmqctl.rocketmq.dump.sources import Request, Source, file_source, store_sources
from rmqctl.rocketmq.findings.log import LOG_STALE_TAIL, LOG_TORN_TAIL
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import properties_of
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogBlock, LogState, walk_file
from rmqctl.rocketmq.log.crc import body_crcs
from rmqctl.rocketmq.log.record import compression
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.text import text_or_base64

POLL_SECONDS = 0.1
_PATIENCE = 50
"""Looks after which a last record is shown although its CRC is wrong: it is damaged, not unfinished."""
_FRONT = (LOG_TORN_TAIL, LOG_STALE_TAIL)
"""What is met after the last record of a log that grows: not damage, but what is being overwritten."""


def _sleep() -> None:
    time.sleep(POLL_SECONDS)


@dataclass(slots=True)
class _Front:
    """The last record of the log, as it looked."""

    raw: bytes = b""
    looks: int = 0

    def is_settled(self, block: Block) -> bool:
        """Whether the one record of the block is complete, to judge by this and the last look at it."""
        raw = block.data.tobytes()
        self.looks = self.looks + 1 if raw == self.raw else 0
        self.raw = raw
        properties = raw[int(block.properties_at[0]) :][: int(block.properties_size[0])]
        sound = int(body_crcs(block)[0]) == int(block["body_crc"][0]) and 0 not in properties
        return self.looks >= (1 if sound else _PATIENCE)


@dataclass(slots=True)
class Tail:
    """A pass over a log that does not end at its end.

    Args:
        dump: the log, and the filters and form of what is shown of it.
        wait: called when nothing new has come.
    """

    dump: LogDump
    wait: Callable[[], None] = _sleep
    _position: int = 0
    _state: LogState = field(default_factory=LogState)
    _front: _Front = field(default_factory=_Front)

    def rows(self) -> Iterator[Row | None]:
        """Rows of what is there and of what comes; None whenever it may take a while until the next. Never ends.

        Raises:
            OSError: a file cannot be read; one that was deleted meanwhile is passed over.
        """
        messages = MessageRows(self.dump.show)
        self._position = self.dump.wanted.from_offset or 0
        while True:
            position = self._position
            for found in self._look():
                for part in self.dump.parts_of(found):
                    yield from merged(messages.rows(part.block, part.crc_ok), part.between)
            yield None
            if self._position == position:
                self.wait()

    def _look(self) -> Iterator[LogBlock]:
        """Yield what has come since the last look."""
        files = [file for file in self.dump.now() if file.base + file.size > self._position]
        log = CommitLog(files, lead=self.dump.log.lead)
        self.dump.log = log
        for context in log.contexts():
            try:
                yield from self._file(context)
            except FileNotFoundError:
                continue
            if self._position < context.file.base + context.file.size and not context.followed:
                return

    def _file(self, context: FileContext) -> Iterator[LogBlock]:
        """Yield new records of one file, each block without its last record, which comes by itself."""
        base, lead = context.file.base, context.file.lead or self.dump.log.lead
        last: LogBlock | None = None
        start = max(self._position - base, 0)
        if not (context.followed or any(_read(context, start, 8))):
            return
        self._state.stale = False
        for found in walk_file(context, self._state, start=start, lead=lead):
            if not context.followed:
                found.findings = [f for f in found.findings if f.kind not in _FRONT]
            if len(found.block) or found.block.blanks or found.findings:
                if last is not None:
                    yield self._passed(last)
                rest, last = _split(found, lead)
                yield rest
                self._position = max(self._position, base + _end(found, last))
        if last is not None and (context.followed or self._is_complete(context, last)):
            yield self._passed(last)
        if context.followed:
            self._position = max(self._position, base + context.file.size)

    def _passed(self, last: LogBlock) -> LogBlock:
        block = last.block
        self._position = max(self._position, int(block.physical[0] + block.total_size[0]))
        self._front = _Front()
        return last

    def _is_complete(self, context: FileContext, last: LogBlock) -> bool:
        """Whether the last record of the log has arrived in full."""
        follows = _read(context, int(last.block.position[0] + last.block.total_size[0]), 8)
        return not follows or any(follows) or self._front.is_settled(last.block)


def _read(context: FileContext, position: int, size: int) -> bytes:
    source = context.file.open()
    try:
        return source.read_at(position, size)
    finally:
        source.close()


def _split(found: LogBlock, lead: int) -> tuple[LogBlock, LogBlock | None]:
    """Return a block without its last record, if that ends the block, and that record with bytes of its own."""
    block = found.block
    if not len(block) or block.blanks:
        return found, None
    at, size, position = int(block.at[-1]), int(block.total_size[-1]), int(block.position[-1])
    if any(finding.offset > position for finding in found.findings):
        return found, None
    one = block.take(np.array([len(block) - 1]))
    data = block.data[at - lead : at + size].copy()
    alone = Block(
        block.file, block.base, position - lead, data, np.array([lead]), one.variant, one.total_size,
        one.body_size, one.topic_size, one.properties_size,
    )  # fmt: skip
    rest = LogBlock(block.take(np.arange(len(block) - 1)), found.findings)
    rest.block.gaps, rest.block.blanks = block.gaps, block.blanks
    return rest, LogBlock(alone)


def _end(found: LogBlock, last: LogBlock | None) -> int:
    """Return the position in the file up to which a block has been handed on: in front of the record held back."""
    if last is not None:
        return int(last.block.position[0]) - int(last.block.at[0])
    block = found.block
    ends = [b.end for b in block.blanks] + [f.offset + f.size for f in found.findings]
    if len(block):
        ends.append(int(block.position[-1] + block.total_size[-1]))
    return max(ends, default=0)


# --- the rows of a store ----------------------------------------------------------------------------


Piece = bytes | memoryview
_MANY = 5000


@dataclass(slots=True)
class Outcome:
    """What a dump came across; complete when its rows have been read to the end.

    Attributes:
        rows: rows shown, findings not counted.
        damage: errors and warnings shown.
        hidden: errors and warnings that the filters left out.
    """

    rows: int = 0
    damage: int = 0
    hidden: int = 0


class Dump:
    """One pass over sources of rows."""

    def __init__(self, sources: Iterable[Source], request: Request) -> None:
        self.sources, self.request = list(sources), request
        self.outcome = Outcome()
        self._left = request.limit

    @classmethod
    def of_store(cls, store: RocketMQStore, request: Request) -> Dump:
        """Return what the store's selection means: the commit log for the root."""
        return cls(store_sources(store, request), request)

    @classmethod
    def of_file(cls, tree: Tree, name: str, request: Request) -> Dump:
        """Return a single file outside a store.

        Raises:
            NotAStore: neither name nor content is that of a store's file.
        """
        return cls([file_source(tree, name, name, request)], request)

    def rows(self) -> Iterator[Row]:
        """JSON-ready objects in order.

        Raises:
            NotAStore: a file is none of a store's.
            OSError: a file cannot be read.
        """
        for source in self.sources:
            if isinstance(source, LogDump):
                yield from self._counted(source.rows())
                self.outcome.hidden += source.hidden
            else:
                yield from self._counted(self._filtered(source()))
            if self._left == 0:
                return

    def lines(self) -> Iterator[Piece]:
        """Yield the same as JSON lines, in pieces of many lines; messages are not made into objects on the way.

        Raises:
            NotAStore: a file is none of a store's.
            OSError: a file cannot be read.
        """
        if not self.request.show.is_plain or (self.request.limit or _MANY) < _MANY:
            yield from map(_line, self.rows())
            return
        for source in self.sources:
            if isinstance(source, LogDump):
                yield from self._log_lines(source)
            else:
                yield from map(_line, self._counted(self._filtered(source())))
            if self._left == 0:
                return

    @property
    def total(self) -> int:
        """Bytes of the logs that are looked at."""
        return sum(source.total for source in self.sources if isinstance(source, LogDump))

    def report(self, advance: Callable[[int], None]) -> None:
        """Have ``advance`` called with the bytes of the logs that have been passed, out of :attr:`total`."""
        for source in self.sources:
            if isinstance(source, LogDump):
                source.advance = advance

    @property
    def log(self) -> LogDump | None:
        """The one log that is shown; None when it is something else."""
        logs = [source for source in self.sources if isinstance(source, LogDump)]
        return logs[0] if len(logs) == len(self.sources) == 1 else None

    def follow(self) -> Iterator[Row | None]:
        """Yield what is in the log (:attr:`log`) and what comes, without end; None when the next row may take a while.

        Raises:
            OSError: a file cannot be read.
        """
        assert self.log is not None
        for row in Tail(self.log).rows():
            if row is None:
                yield None
            else:
                yield from self._counted([row])
                if self._left == 0:
                    return

    def _log_lines(self, source: LogDump) -> Iterator[Piece]:
        from rmqctl.rocketmq.dump.dump import MessageLines

        messages = MessageLines(self.request.show)
        for part in source.parts():
            if self._left is not None and self._left <= len(part.block) + len(part.between):
                yield from map(_line, self._counted(messages.objects(part)))
            else:
                self._note_messages(len(part.block))
                for _, row in part.between:
                    self._note(row)
                yield from messages.pieces(part)
            if self._left == 0:
                break
        self.outcome.hidden += source.hidden

    def _filtered(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            if self.request.wanted.includes_row(row):
                yield row
            elif row["kind"] == "finding" and row["severity"] != Severity.NOTE:
                self.outcome.hidden += 1

    def _counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows up to the limit, counted as they go by."""
        if self._left == 0:
            return
        for row in rows:
            self._note(row)
            yield row
            if self._left == 0:
                return

    def _note(self, row: Row) -> None:
        """Count a row that is shown."""
        finding = row["kind"] == "finding"
        if not finding:
            self.outcome.rows += 1
        elif row["severity"] != Severity.NOTE:
            self.outcome.damage += 1
        if self._left is not None and (self.request.wanted.damaged or not finding):
            self._left -= 1

    def _note_messages(self, count: int) -> None:
        self.outcome.rows += count
        if self._left is not None:
            self._left -= count


def _line(row: Row) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


# --- JSON lines, column by column ----------------------------------------------------------------------


FEW = 64
"""Blocks with fewer records are not worth columns."""

Column = bytes | Any
"""One text for every row, or an Arrow array of texts."""

_HEX = np.array([int.from_bytes(b"%02X" % byte, "little") for byte in range(256)], "<u2")
_IPV6_BITS = 3  # of Block.variant
_V2_SHIFT = 2
_INNER = int(SysFlag.INNER_BATCH)
_KEPT = 1 << 16
_CLOSE = 64


class MessageLines:
    """Turns blocks into JSON lines; keeps what recurs from block to block."""

    def __init__(self, show: Show) -> None:
        """
        Args:
            show: a plain one (:attr:`~Show.is_plain`); it decides how odd properties are read.
        """
        self._rows = MessageRows(show)
        self._properties = PropertyTexts((b"TAGS", b"KEYS", b"UNIQ_KEY"))
        self._topics = _Recurring(lambda raw: orjson.dumps(text_or_base64(raw)))
        self._hosts = _Recurring(lambda raw: orjson.dumps(host_text(raw.to_bytes(8, "big"))))

    def pieces(self, part: Part) -> Iterator[bytes | memoryview]:
        """Yield the rows of a part, many lines a piece, with what stands between them."""
        lines, at = self.lines(part.block, part.crc_ok), 0
        for place, row in part.between:
            yield _text(lines, at, place)
            yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
            at = place
        yield _text(lines, at, len(lines))

    def objects(self, part: Part) -> Iterator[Row]:
        """Return the rows of a part as objects."""
        return merged(self._rows.rows(part.block, part.crc_ok), part.between)

    def lines(self, block: Block, crc_ok: Flags) -> Any:
        """Return the rows of a block as an Arrow array of JSON texts, each with a newline at its end."""
        if len(block) < FEW:
            return pa.array(self._slow(block, crc_ok), pa.binary())
        properties = self._properties.json(properties_of(block))
        odd = properties.odd | ((block["sys_flag"] & _INNER) != 0) | ((block.variant & _IPV6_BITS) != 0)
        lines = _joined([*self._header(block, crc_ok), *self._texts(block, properties), *_tail(block)])
        if odd.any():
            others = pa.array(self._slow(block.take(odd), crc_ok[odd]), pa.binary())
            lines = pc.replace_with_mask(lines, pa.array(odd), others)
        return lines

    def _slow(self, block: Block, crc_ok: Flags) -> list[bytes]:
        return [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self._rows.rows(block, crc_ok)]

    def _header(self, block: Block, crc_ok: Flags) -> Iterable[Column]:
        yield b'{"kind":"message","file":' + orjson.dumps(block.file)
        yield from (b',"position":', _ints(block.position))
        yield from (b',"physical_offset":', _ints(block["physical_offset"]))
        yield from (b',"size":', _ints(block.total_size))
        yield from (b',"magic":', _chosen(VERSIONS, block.variant >> _V2_SHIFT))
        yield from (b',"body_crc":', _ints(block["body_crc"]))
        yield from (b',"body_crc_ok":', _chosen((False, True), crc_ok))
        for name in ("queue_id", "flag"):
            yield _few(_key(name), block[name])
        yield from (b',"queue_offset":', _ints(block["queue_offset"]))
        yield _few(b',"sys_flag":', block["sys_flag"])
        yield from (b',"born_timestamp":', _ints(block["born_timestamp"]))
        yield self._hosts.column(pa.array(hosts_v4(block, "born")), b',"born_host":', b',"store_timestamp":')
        yield _ints(block["store_timestamp"])
        yield self._hosts.column(pa.array(hosts_v4(block, "store")), b',"store_host":')
        yield _few(b',"reconsume_times":', block["reconsume_times"])
        yield from (b',"prepared_transaction_offset":', _ints(block["prepared_transaction_offset"]))

    def _texts(self, block: Block, properties: PropertyJson) -> Iterable[Column]:
        tags, keys, unique_key = properties.named
        has_tags, _, has_unique_key = properties.has
        raw = slices_of(pa.py_buffer(block.data), block.topic_at, block.topic_at + block.topic_size)
        yield self._topics.column(raw, b',"topic":', b',"tags":')
        yield _or_null(tags, has_tags)
        yield from (b',"keys":[', _listed(keys))
        yield from (b'],"unique_key":', _or_null(unique_key, has_unique_key))
        yield from (b',"message_id":"', _hex(id_bytes(block)))
        yield from (b'","properties":{', properties.pairs, b"}")


def _tail(block: Block) -> Iterable[Column]:
    flags = block["sys_flag"]
    yield from (b',"transaction":', _by_flag(flags, TRANSACTION, transaction))
    yield from (b',"compression":', _by_flag(flags, COMPRESSION, compression))
    yield from (b',"body_size":', _ints(block.body_size))
    yield b"}\n"


def _key(name: str) -> bytes:
    return b',"%s":' % name.encode()


def _ints(values: npt.NDArray[Any]) -> Column:
    """Whole numbers in decimal."""
    if (values == values[0]).all():
        return b"%d" % values[0]
    return pc.cast(pa.array(values), pa.string()).view(pa.binary())


def _few(before: bytes, values: npt.NDArray[Any]) -> Column:
    """Whole numbers in decimal with a key before them; made once each where they lie close together."""
    low, high = int(values.min()), int(values.max())
    if high - low >= _CLOSE:
        return _joined([before, _ints(values)])
    texts = [before + b"%d" % value for value in range(low, high + 1)]
    return texts[0] if low == high else pa.array(texts, pa.binary()).take(pa.array(values - low))


def _chosen(values: Iterable[Any], which: npt.NDArray[Any]) -> Column:
    """Return the JSON of one of a few values for each row."""
    json = [orjson.dumps(value) for value in values]
    if (which == which[0]).all():
        return json[int(which[0])]
    return pa.array(json, pa.binary()).take(pa.array(which.astype(np.int64)))


def _by_flag(flags: Ints, bits: int, name: Callable[[int], str]) -> Column:
    """Return the JSON of what some bits of the flags mean."""
    flags = flags & bits
    if (flags == flags[0]).all():
        return orjson.dumps(name(int(flags[0])))
    few, which = np.unique(flags, return_inverse=True)
    return _chosen(map(name, few.tolist()), which)


class _Recurring:
    """JSON of values that recur, made once each."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode
        self._json: dict[Any, bytes] = {}

    def column(self, values: Any, before: bytes, behind: bytes = b"") -> Column:
        """Return the JSON of each value of an Arrow array, with what stands before and after it."""
        encoded = values.dictionary_encode()
        if len(self._json) > _KEPT:
            self._json.clear()
        json = [before + self._of(value) + behind for value in encoded.dictionary.to_pylist()]
        return json[0] if len(json) == 1 else pa.array(json, pa.binary()).take(encoded.indices)

    def _of(self, value: Any) -> bytes:
        json = self._json.get(value)
        if json is None:
            json = self._json[value] = self._encode(value)
        return json


def _or_null(values: Any, has: Flags) -> Column:
    """Return the values, ``null`` for rows that have none."""
    if has.all():
        return values
    return pc.if_else(pa.array(has), values, b"null") if has.any() else b"null"


def _listed(keys: Any) -> Any:
    """Quoted KEYS as the quoted parts between its spaces, with commas."""
    several = pc.match_substring(keys, " ")
    if not pc.any(several).as_py():
        return keys
    parts = [text[1:-1].split(b" ") for text in keys.filter(several).to_pylist()]
    lists = [b",".join(b'"%s"' % part for part in found if part) for found in parts]
    return pc.replace_with_mask(keys, several, pa.array(lists, pa.binary()))


def _hex(ids: npt.NDArray[np.uint8]) -> Any:
    """Bytes of each row as upper-case hex digits."""
    width = 2 * ids.shape[1]
    bounds = np.arange(0, width * (len(ids) + 1), width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(ids), [None, pa.py_buffer(bounds), pa.py_buffer(_HEX[ids])])


def _joined(columns: Iterable[Column]) -> Any:
    """Return the columns put together row by row."""
    parts: list[Column] = []
    for column in columns:
        if isinstance(column, bytes) and parts and isinstance(parts[-1], bytes):
            parts[-1] += column
        else:
            parts.append(column)
    scalars = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()))


def _text(lines: Any, start: int, stop: int) -> bytes | memoryview:
    """Lines ``start`` to ``stop`` of an array without gaps, end to end."""
    if start >= stop:
        return b""
    _, bounds, text = lines.buffers()
    begin, end = np.frombuffer(bounds, np.int32)[[lines.offset + start, lines.offset + stop]].tolist()
    return memoryview(text)[begin:end]
