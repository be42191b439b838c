"""The books of a salvage: every whole record of the sources is in the new store, at its place in its queue.

A record is known by what copying keeps of it: all its bytes but the offsets in log and queue, the place of a half
message, and what no encoder writes after a zero byte in properties.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from typing import Any

import numpy as np

from formats.rocketmq.message import TRANSACTION, decode_record
from formats.rocketmq.properties import PAIR_END, join_properties, split_properties
from formats.rocketmq.property_crc import SIZE as PROPERTY_CRC_SIZE
from formats.rocketmq.property_crc import stored_property_crc
from rmqctl.repair.copied import Flags, Rows, rows_of
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.log.block import Block, Ints, head_sizes
from rmqctl.rocketmq.log.columns import TextIds
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.crc import crc_flags
from rmqctl.rocketmq.log.measure import block_of, outermost, records_anywhere
from rmqctl.rocketmq.log.record import (
    MAGIC_AT,
    PHYSICAL_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    is_inner_batch,
    record_name,
)
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.log.stand_ins import stand_ins
from rmqctl.rocketmq.store.files import StoreFile

_INNER_NUM, _INNER_BASE = b"INNER_NUM", b"INNER_BASE"
_OFFSETS = 1 << 40
"""More offsets than a queue can have."""


class SalvageLedger:
    """Records of the sources and of the store made of them; a :class:`~rmqctl.repair.copied.CopyLedger`.

    Args:
        sources: the files of the log of each source, and those beside it.
        made: the files of the new log.
        ends: of sources whose log ends before old records: the physical offset where; none of those is taken.
        named: source, file and physical offset of records of which a finding says that they are not taken.
        advance: called with bytes passed.
    """

    def __init__(
        self,
        sources: Sequence[Sequence[StoreFile]],
        made: Sequence[StoreFile],
        ends: Mapping[int, int],
        named: Collection[tuple[int, str, int | None]] = (),
        advance: Callable[[int], object] = lambda size: None,
    ) -> None:
        self.files = [(number, file) for number, files in enumerate(sources) for file in files]
        self.made, self.ends, self.named = made, ends, named
        self.advance = advance
        self._topics = TextIds()

    def before(self) -> Iterator[Rows]:
        """Yield the records of all sources."""
        for number, (_, file) in enumerate(self.files):
            yield from self._rows(number, file)

    def after(self) -> Iterator[Rows]:
        """Yield the records of the new store."""
        for number, file in enumerate(self.made):
            yield from self._rows(number, file)

    def garbage(self, missing: Rows, holders: Rows) -> Flags:
        """Which records a broker had cut off; and whose message has the place, with other bytes that no CRC covers."""
        found = np.zeros(len(missing), np.bool_)
        for row, (one, holder) in enumerate(zip(missing, holders, strict=True)):
            source, file = self.files[one["file"]]
            fields, physical = self._fields(one, of_copy=False), file.base + int(one["position"])
            found[row] = self.ends.get(source, physical + 1) <= physical == fields.get("physical_offset")
            if not found[row] and fields and holder["file"] >= 0:
                found[row] = _message(fields) == _message(self._fields(holder, of_copy=True))
        return found

    def given_up(self, missing: Rows, holders: Rows) -> Flags:
        """Which records a finding names; where a source named earlier has another in the place, that one counts."""
        found = np.zeros(len(missing), np.bool_)
        for row, (one, holder) in enumerate(zip(missing, holders, strict=True)):
            source, file = self.files[one["file"]]
            place = source, file.name, file.base + int(one["position"])
            found[row] = (holder["file"] >= 0 and source > 0) or place in self.named
        return found

    def may_move(self, moved: Rows) -> Flags:
        """Every record: of two that state one place of a queue the second gets another, and queues may begin at 0."""
        return np.ones(len(moved), np.bool_)

    def name(self, record: np.void, *, of_copy: bool) -> str:
        """Return what a record says of itself, and its file and position."""
        fields, file = self._fields(record, of_copy=of_copy), self._file(record, of_copy=of_copy)
        return f"{record_name(fields) if fields else 'a record'} in {file.name} at {record['position']:,}"

    def _file(self, record: np.void, *, of_copy: bool) -> StoreFile:
        return self.made[record["file"]] if of_copy else self.files[record["file"]][1]

    def _fields(self, record: np.void, *, of_copy: bool) -> dict[str, Any]:
        at = int(record["position"])
        with closing(self._file(record, of_copy=of_copy).open()) as source:
            found = next((one for one in records_anywhere(source, stretches=[(at, at + 1)]) if one.at == at), None)
        return decode_record(found.raw)[0] if found is not None and found.is_whole else {}

    # --- records ------------------------------------------------------------------------------------------

    def _rows(self, number: int, file: StoreFile) -> Iterator[Rows]:
        for block in whole_blocks(file):
            yield self._columns(number, block)
            self.advance(int(block.total_size.sum()))

    def _columns(self, number: int, block: Block) -> Rows:
        topics = self._topics.numbers(block.data, block.topic_at, block.topic_size)
        unqueued = np.isin(block["sys_flag"] & TRANSACTION, UNQUEUED)
        queue = np.where(unqueued, -1, topics << 16 ^ block["queue_id"])
        offset = np.where(unqueued, block["physical_offset"], block["queue_offset"])
        identity, records = self._identities(block, topics)
        return rows_of(identity, (queue * _OFFSETS + offset).astype(np.uint64), number, block.position, records)

    def _identities(self, block: Block, topics: Ints) -> tuple[list[int], list[int]]:
        """Return what is kept of each record as a number, and how many messages it has."""
        identities, counts, data = [], [], memoryview(block.data.data)
        heads = np.broadcast_to(head_sizes()[block.variant], (len(block),))
        columns = (block.at, heads, block.body_size, topics, block.properties_at, block.properties_size)
        for at, head, body, topic, text_at, size in zip(*(column.tolist() for column in columns), strict=True):
            text, count = sound_text(bytes(data[text_at : text_at + size])), 1
            if stored_property_crc(text) is not None:
                text = text[:-PROPERTY_CRC_SIZE]
            if is_inner_batch(int.from_bytes(data[at + SYS_FLAG_AT : at + SYS_FLAG_AT + 4], "big")):
                text, count = _of_batch(text)
            kept = data[at + MAGIC_AT : at + QUEUE_OFFSET_AT], data[at + PHYSICAL_AT + 8 : at + head - _AFTER_HOSTS]
            digest = blake2b(b"".join((*kept, b"%d %d " % (topic, body), text)), digest_size=8)
            identities.append(int.from_bytes(digest.digest(), "little"))
            counts.append(count)
        for row in stand_ins(block).tolist():
            counts[row] = -counts[row]
        return identities, counts


def _message(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a message is by its body's CRC, and when it was sent."""
    return fields.get("body_crc"), fields.get("body"), fields.get("born_timestamp")


_AFTER_HOSTS = 12
"""Bytes of the last two header fields: the place of a half message, and BODYLEN."""


def whole_blocks(file: StoreFile) -> Iterator[Block]:
    """Yield the whole records of a file of a log: those of the chain, then those that lie where it has none."""
    between = list[tuple[int, int]]()
    with closing(file.open()) as source:
        for block in scan(source, Extent(file.name, file.base, size=file.size)):
            ok = crc_flags(block)[1]
            bad = block.take(~ok)
            between += zip(bad.position.tolist(), (bad.position + bad.total_size).tolist(), strict=True)
            between += [(gap.position, gap.end) for gap in block.gaps]
            between += [(blank.position, blank.end) for blank in block.blanks]
            sound = block.take(ok)
            between += _zeros_on(sound)
            yield sound
        for found in outermost(source, file.base, between):
            yield block_of(found, file.name, file.base)


def _zeros_on(block: Block) -> Iterator[tuple[int, int]]:
    """Yield what stands in properties from a zero byte on, which is none of theirs: others may lie there."""
    texts = LogBlock(block).properties
    if texts.data.all():
        return
    for row in np.unique(np.searchsorted(texts.start, np.flatnonzero(texts.data == 0), side="right") - 1).tolist():
        end = int(block.position[row] + block.total_size[row])
        yield end - len(texts[row]) + texts[row].find(0), end


def sound_text(text: bytes) -> bytes:
    """Return properties without what follows a zero byte in them: no encoder writes one (spec 14)."""
    return text if 0 not in text else text[: max(text.rfind(PAIR_END, 0, text.index(0)), -1) + 1]


def _of_batch(text: bytes) -> tuple[bytes, int]:
    """Properties of an inner batch without the offset that they state, and how many messages it has."""
    pairs = split_properties(text)
    number = dict(pairs).get(_INNER_NUM, b"")
    count = int(number) if number.isdigit() and 0 < len(number) < 6 else 1
    return join_properties([pair for pair in pairs if pair[0] != _INNER_BASE], closed=True), count
