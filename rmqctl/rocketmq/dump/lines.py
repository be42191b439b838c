"""Rows of messages as JSON lines, made column by column.

The same objects that :class:`~rmqctl.rocketmq.dump.messages.MessageRows` gives, and byte for byte
what orjson makes of them, without an object for each: numbers and texts become columns of JSON
text, which are joined row by row in one go. What does not fit the plain form (an inner batch, an
IPv6 host, odd properties) goes through the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from formats.rocketmq.message import SysFlag
from rmqctl.rocketmq.dump.log import Part, merged
from rmqctl.rocketmq.dump.messages import Flags, MessageRows, hosts_v4, id_bytes
from rmqctl.rocketmq.dump.property_json import PropertyJson, PropertyTexts, slices_of
from rmqctl.rocketmq.dump.record import VERSIONS, Row, host_text, transaction
from rmqctl.rocketmq.dump.rendering import Show
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import properties_of
from rmqctl.rocketmq.log.record import compression
from rmqctl.text import text_or_base64

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
        """The rows of a part, many lines a piece, with what stands between them."""
        lines, at = self.lines(part.block, part.crc_ok), 0
        for place, row in part.between:
            yield _text(lines, at, place)
            yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
            at = place
        yield _text(lines, at, len(lines))

    def objects(self, part: Part) -> Iterator[Row]:
        """The rows of a part as objects."""
        return merged(self._rows.rows(part.block, part.crc_ok), part.between)

    def lines(self, block: Block, crc_ok: Flags) -> Any:
        """The rows of a block as an Arrow array of JSON texts, each with a newline at its end."""
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
    yield from (b',"transaction":', _by_flag(flags, 0xC, transaction))
    yield from (b',"compression":', _by_flag(flags, 0x701, compression))
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
    """The JSON of one of a few values for each row."""
    json = [orjson.dumps(value) for value in values]
    if (which == which[0]).all():
        return json[int(which[0])]
    return pa.array(json, pa.binary()).take(pa.array(which.astype(np.int64)))


def _by_flag(flags: Ints, bits: int, name: Callable[[int], str]) -> Column:
    """The JSON of what some bits of the flags mean."""
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
        """The JSON of each value of an Arrow array, with what stands before and behind it."""
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
    """The values, ``null`` for rows that have none."""
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
    """The columns put together row by row."""
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
