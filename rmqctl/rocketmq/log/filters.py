"""Which records a user wants: tests on columns first, on the text of the few that are left last.

A :class:`Filter` is the common filters of the command line. On a block of records it works by
columns, cheapest test first, and looks at properties and bodies only of records that passed so far.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.errors import DecodeError
from formats.rocketmq.index import index_key, key_hash, tag_index_key
from formats.rocketmq.message import SysFlag
from formats.rocketmq.properties import split_properties
from formats.text import java_hash
from rmqctl.errors import WrongUsage
from rmqctl.filters import DEFAULT_MAX_BODY, Filters, Names, within
from rmqctl.rocketmq.log.block import Block, Ints, by_variant, gather, head_sizes
from rmqctl.rocketmq.log.columns import TextIds, Texts, rows_of, topic_numbers
from rmqctl.rocketmq.log.record import inner_messages, open_body

_KEYS, _TAGS, _UNIQUE_KEY = b"KEYS", b"TAGS", b"UNIQ_KEY"
Flags = npt.NDArray[np.bool_]
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_WORD = 8
_V2_SHIFT = 2  # bit of Block.variant
_SAME = ("tag", "properties", "after", "before", "from_offset", "to_offset", "grep", "damaged")
_CONTENT = ("topics", "topic_like", "queue_id", "key", "key_like", "tag", "properties", "after", "before", "grep")


@dataclass(frozen=True, slots=True)
class Filter:
    """The common filters; a record passes when every one that is set holds.

    Attributes:
        topics, topic_like: the topic is one of these, or one of these patterns matches it.
        queue_id: the number of its queue.
        key: one part of KEYS, or UNIQ_KEY, equals this.
        keys, key_like: one of them is one of these, or one of these patterns matches it.
        tag: TAGS equals this.
        properties: each name has this value.
        after, before: bounds of the store time in epoch ms, ``after`` inclusive, ``before`` exclusive.
        from_offset, to_offset: bounds of the physical offset in bytes, ``from_offset`` inclusive,
            ``to_offset`` exclusive.
        grep: found in the body, decompressed.
        damaged: only damage is wanted.
        strict: read properties as brokers up to 4.9.0 do.
        max_body: bytes that a compressed body may grow to; nothing is found in a longer one.
    """

    topics: tuple[str, ...] = ()
    queue_id: int | None = None
    key: str | None = None
    tag: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    after: int | None = None
    before: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    grep: re.Pattern[bytes] | None = None
    damaged: bool = False
    strict: bool = False
    max_body: int = DEFAULT_MAX_BODY
    topic_like: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    key_like: tuple[str, ...] = ()

    @classmethod
    def of(cls, filters: Filters, *, strict: bool = False, max_body: int = DEFAULT_MAX_BODY) -> Filter:
        """Return what a user asks for, without the limit.

        Args:
            strict: read properties as brokers up to 4.9.0 do.
            max_body: bytes that a compressed body may grow to.
        """
        topics, keys = filters.topics, filters.keys
        same = {name: getattr(filters, name) for name in _SAME}
        if len(keys.exact) == 1 and not keys.like:
            same |= {"key": keys.exact[0]}
        else:
            same |= {"keys": keys.exact, "key_like": keys.like}
        return cls(topics.exact, filters.queue, strict=strict, max_body=max_body, topic_like=topics.like, **same)

    def includes_topic(self, topic: str | None) -> bool:
        """Whether messages of a topic are wanted."""
        return Names(self.topics, self.topic_like).include(topic)

    @property
    def looks_at_content(self) -> bool:
        """Whether records are chosen by what they say, not only by where they lie."""
        return any(getattr(self, name) not in (None, ()) for name in _CONTENT)

    def select(self, block: Block) -> Ints | None:
        """Rows of the block that pass, ascending; None when all do, as nothing is asked of a record."""
        rows = self._by_header(block)
        wanted = self._pair_bytes()
        if wanted or self._names_of_keys:
            rows = _all_rows(block) if rows is None else rows
            rows = rows[self._by_properties(block, rows, wanted)]
        if self.grep is not None:
            rows = _all_rows(block) if rows is None else rows
            rows = rows[[self._body_matches(block, int(row)) for row in rows]] if len(rows) else rows
        return rows

    def includes_offset(self, physical_offset: int) -> bool:
        """Whether a physical offset lies inside the bounds."""
        low, high = self.from_offset, self.to_offset
        return (low is None or physical_offset >= low) and (high is None or physical_offset < high)

    def includes_damage(self, topic: str | None, queue_id: int | None) -> bool:
        """Whether damage is to be shown: all of it without content filters, else what is known to be of the topic.

        When only damage is asked for, what is not known to be of another topic or queue is shown too.

        Args:
            topic, queue_id: of the damage, None where nobody knows.
        """
        if not self.looks_at_content:
            return True
        other_topic = topic is not None and not self.includes_topic(topic)
        other_queue = None not in {self.queue_id, queue_id} and self.queue_id != queue_id
        return self.damaged and not other_topic and not other_queue

    def includes_row(self, row: Mapping[str, Any]) -> bool:
        """Whether a row that is no message passes; one that does not say what is asked for does not.

        Index entries pass by the hash of topic and key, or of topic and tag; queue units by the hash of the tag.
        """
        if row["kind"] == "finding":
            return self.includes_damage(row.get("topic"), row.get("queue_id"))
        return not self.damaged and all(self._row_tests(row))

    def _row_tests(self, row: Mapping[str, Any]) -> Iterator[bool]:
        by_key = self.key is not None or bool(self._names_of_keys)
        hashed = row["kind"] == "index_entry" and (by_key or self.tag is not None)
        if hashed:
            yield row["key_hash"] in self._index_hashes()
        elif by_key:
            yield False
        elif self.tag is not None:
            yield row.get("tags_code") == java_hash(self.tag)
        yield not (self.properties or self.grep)
        yield hashed or self.includes_topic(row.get("topic"))
        yield self.queue_id is None or row.get("queue_id") == self.queue_id
        yield within(row.get("store_timestamp"), self.after, self.before)
        yield within(row.get("physical_offset"), self.from_offset, self.to_offset)

    def _index_hashes(self) -> set[int]:
        """Return what an index file may hold for the keys and the tag in any of the topics.

        Raises:
            WrongUsage: they are patterns, and an index file has only hashes.
        """
        for option, like in (("--topic", self.topic_like), ("--key", self.key_like)):
            if like:
                raise WrongUsage(
                    option, f"is the pattern {like[0]!r}, and an index file holds hashes; give whole names."
                )
        wanted = self.keys if self.key is None else (self.key,)
        keys = [index_key(topic, key) for topic in self.topics for key in wanted]
        tags = [tag_index_key(topic, self.tag) for topic in self.topics if self.tag is not None]
        return {key_hash(text) for text in keys + tags}

    # --- tests on columns ---------------------------------------------------------------------

    def _by_header(self, block: Block) -> Ints | None:
        rows = self._by_offset(block)
        if self.after is not None or self.before is not None:
            times = block["store_timestamp"]
            good = self._in_time(times if rows is None else times[rows])
            rows = rows if good.all() else _narrow(rows, good)
        if self.queue_id is not None:
            rows = _narrow(rows, (block["queue_id"] if rows is None else block["queue_id"][rows]) == self.queue_id)
        if self.topics or self.topic_like:
            rows = self._by_topic(block, rows)
        return rows

    def _by_offset(self, block: Block) -> Ints | None:
        if self.from_offset is None and self.to_offset is None:
            return None
        physical = block.physical
        low = 0 if self.from_offset is None else int(np.searchsorted(physical, self.from_offset))
        high = len(physical) if self.to_offset is None else int(np.searchsorted(physical, self.to_offset))
        return np.arange(low, high) if high - low < len(physical) else None

    def _in_time(self, times: Ints) -> Flags:
        good = np.ones(len(times), np.bool_)
        if self.after is not None:
            good &= times >= self.after
        if self.before is not None:
            good &= times < self.before
        return good

    def _by_topic(self, block: Block, rows: Ints | None) -> Ints:
        sizes = block.topic_size if rows is None else block.topic_size[rows]
        topics = set(map(_encoded, self.topics))
        if self.topic_like:
            ids = TextIds()
            topic_numbers(block if rows is None else block.take(rows), ids)
            topics = {text for text in ids.texts if self.includes_topic(_decoded(text))}
        found = [_with_topic(block, _narrow(rows, sizes == len(text)), text) for text in topics]
        if not found:
            return np.zeros(0, np.int64)
        return found[0] if len(found) == 1 else np.sort(np.concatenate(found))

    # --- tests on properties and bodies -------------------------------------------------------

    def _pair_bytes(self) -> list[bytes]:
        """Texts of which each must stand in the properties of a record that passes."""
        wanted = [text for text in (self.key, self.tag) if text is not None]
        wanted += [f"{name}\x01{value}" for name, value in self.properties]
        return list(map(_encoded, wanted))

    def _by_properties(self, block: Block, rows: Ints, wanted: list[bytes]) -> list[int] | Ints:
        """Places in ``rows`` of the records whose properties pass: a byte search, then the pairs of what it finds.

        An inner batch passes when one of its messages does.
        """
        if not len(rows):
            return rows
        texts = Texts.of(block.data, block.properties_at[rows], block.properties_size[rows])
        longest = max(wanted, key=len, default=b"")
        places = _holding(texts.data.tobytes(), texts.start, longest) if longest else np.arange(len(rows))
        passed = [i for i in places.tolist() if self._text_passes(texts[i])]
        batches = np.flatnonzero((block["sys_flag"][rows] & _INNER_BATCH) != 0).tolist()
        if not batches:
            return passed
        return sorted({*passed, *(i for i in batches if self._batch_passes(block, int(rows[i])))})

    def _text_passes(self, properties: bytes) -> bool:
        return self._pairs_pass(dict(split_properties(properties, strict=self.strict)))

    def _batch_passes(self, block: Block, row: int) -> bool:
        try:
            body = _body(block, row, self.max_body) or b""
            return any(self._text_passes(message["properties"]) for message in inner_messages(body))
        except DecodeError:
            return False

    def _pairs_pass(self, pairs: dict[bytes, bytes]) -> bool:
        if self.key is not None:
            key = _encoded(self.key)
            if not key or (key != pairs.get(_UNIQUE_KEY) and key not in pairs.get(_KEYS, b"").split(b" ")):
                return False
        if names := self._names_of_keys:
            parts = [pairs.get(_UNIQUE_KEY, b""), *pairs.get(_KEYS, b"").split(b" ")]
            if not any(part and names.include(_decoded(part)) for part in parts):
                return False
        if self.tag is not None and pairs.get(_TAGS) != _encoded(self.tag):
            return False
        return all(pairs.get(_encoded(name)) == _encoded(value) for name, value in self.properties)

    @property
    def _names_of_keys(self) -> Names:
        return Names(self.keys, self.key_like)

    def _body_matches(self, block: Block, row: int) -> bool:
        body = _body(block, row, self.max_body)
        return body is not None and self.grep is not None and self.grep.search(body) is not None


def _body(block: Block, row: int, limit: int) -> bytes | None:
    """Return the body of one record, decompressed; None where that fails, or it grows beyond the limit."""
    one = block.take(np.array([row]))
    at = int(one.body_at[0])
    return open_body(block.data[at : at + int(one.body_size[0])].tobytes(), int(one["sys_flag"][0]), limit).data


def _encoded(text: str) -> bytes:
    """Text of the command line as the bytes that stand in a record."""
    return text.encode("utf-8", "surrogateescape")


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _all_rows(block: Block) -> Ints:
    return np.arange(len(block))


def _narrow(rows: Ints | None, good: Flags) -> Ints:
    return np.flatnonzero(good) if rows is None else rows[good]


def _with_topic(block: Block, rows: Ints, text: bytes) -> Ints:
    """Which of the rows have this topic, all being of its length: its end is compared first, then all of it."""
    size = len(text)
    at = _topic_at(block, rows)
    if size >= _WORD:
        keep = gather(block.data, at + (size - _WORD), ">u8") == int.from_bytes(text[-_WORD:], "big")
        rows, at = rows[keep], at[keep]
    if size in {0, _WORD} or not len(rows):
        return rows
    return rows[(rows_of(block.data, at, size) == np.frombuffer(text, np.uint8)).all(axis=1)]


def _topic_at(block: Block, rows: Ints) -> Ints:
    """Where the topics of these rows start in the block's data."""
    variant = block.variant[rows]
    return block.at[rows] + by_variant(head_sizes(), variant) + block.body_size[rows] + 1 + (variant >> _V2_SHIFT)


def _holding(raw: bytes, starts: Ints, wanted: bytes) -> Ints:
    """Numbers of the texts joined in ``raw`` that may hold the bytes, ascending."""
    found, at = [], raw.find(wanted)
    while at >= 0:
        found.append(at)
        at = raw.find(wanted, at + 1)
    return np.unique(np.searchsorted(starts, np.array(found, np.int64), side="right") - 1) if found else starts[:0]
