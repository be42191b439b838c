"""Records that stand where others were destroyed (`repair`, `salvage`), and how they say so.

A placeholder keeps the place of a message in its queue, a filler only room in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from formats.rocketmq.message import ROLLBACK, TRANSACTION, SysFlag
from formats.rocketmq.properties import split_properties
from rmqctl.rocketmq.log.block import Block, Ints

MARK = b"RMQCTL_PLACEHOLDER"
"""Name of the property that says that a record stands for a destroyed message."""
SHORT_MARK = b"RMQCTL"
"""Its name where the whole one leaves no room for a body."""
FLAG = int.from_bytes(b"RMQC", "big")
"""FLAG of a record that has room for neither; brokers do not read that field, and few clients set it."""
FILLER_TOPIC = b"RMQCTL_FILLER"
TEXT = b"placeholder: the message stored here was destroyed"
"""The body, as far as there is room; zero bytes follow."""
OPERATION = b"-1,"
"""The body in the topic of operations on half messages: it names none."""
CRC_PROPERTY = b"__CRC32#"
_FILLER_TOPICS = {FILLER_TOPIC, b"R"}
_LETTERS = (0, 1, 4, 8)
"""Where of a body is looked first, before it is compared whole."""


def is_filler(fields: Mapping[str, Any]) -> bool:
    """Whether a record fills room for which no message is known.

    Args:
        fields: of `decode_record`.
    """
    if fields["sys_flag"] & TRANSACTION != ROLLBACK or fields["topic"] not in _FILLER_TOPICS:
        return False
    if fields["topic"] == FILLER_TOPIC or _says_so(fields["body"]):
        return True
    # of the fewest bytes it has no room to say so; what 3.x writes where a transaction is rolled back has properties
    return not fields["body"] and {name for name, _ in split_properties(fields["properties"])} <= {CRC_PROPERTY}


def is_marked(fields: Mapping[str, Any]) -> bool:
    """Whether a record says that it stands where others were destroyed: by its property or its FLAG, or as a filler.

    Args:
        fields: of `decode_record`.
    """
    names = {name for name, _ in split_properties(fields["properties"])}
    return fields["flag"] == FLAG or not names.isdisjoint((MARK, SHORT_MARK)) or is_filler(fields)


def stand_ins(block: Block) -> Ints:
    """Return the rows of the records that are marked (:func:`is_marked`), ascending; few are looked at one by one."""
    flags, data = block["sys_flag"], block.data
    maybe = (flags & TRANSACTION == ROLLBACK) & np.isin(block.topic_size, [len(name) for name in _FILLER_TOPICS])
    maybe |= flags & SysFlag.INNER_BATCH != 0
    begin, size = block.body_at, block.body_size
    for text in (TEXT, OPERATION):
        rows = np.flatnonzero(size)
        for at in (letter for letter in _LETTERS if letter < len(text)):
            letters = data[np.minimum(begin[rows] + at, len(data) - 1)]
            rows = rows[(size[rows] <= at) | (letters == text[at])]
        maybe[rows] = True
    empty = np.flatnonzero(size == 0)
    if len(empty):
        maybe[empty] |= block["flag"][empty] == FLAG
    found = np.flatnonzero(maybe)
    return found[[is_marked(block.record(row)) for row in found.tolist()]] if len(found) else found


def _says_so(body: bytes) -> bool:
    text = body.rstrip(b"\0")
    return bool(text) and TEXT.startswith(text) and (text == TEXT or len(text) == len(body))
