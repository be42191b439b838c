"""How far a log can be read without meeting a record that is still being written."""

from __future__ import annotations

import numpy as np

from rmqctl.pipeline.log_parts import log_of
from rmqctl.rocketmq.block import Block
from rmqctl.rocketmq.commitlog import FileContext, LogState, resume_state, walk_file
from rmqctl.rocketmq.crc import body_crcs
from rmqctl.rocketmq.log_end import log_end
from rmqctl.rocketmq.store import RocketMQStore

_BACK = 16 << 20


def log_tip(store: RocketMQStore, known: int | None = None, *, growing: bool = True) -> int:
    """The physical offset behind the last record that has arrived in full.

    A broker writes into a mapped file, so of the last record only a part may be there. In a growing
    log it counts when something follows it, or when its body matches its CRC and no zero stands in
    its properties.

    Args:
        known: an offset that this function gave before; what lies before it is not looked at again.
        growing: somebody may be writing.

    Raises:
        OSError: a file cannot be read.
    """
    contexts = log_of(store).contexts()
    if not contexts:
        return known or 0
    current = next((c for c in contexts if not c.followed), contexts[-1])
    base = current.file.base
    if known is not None:
        return max(_tip(current, max(known - base, 0), growing=growing) or base, known)
    start = max(log_end(store).offset - base - _BACK, 0)
    tip = _tip(current, start, growing=growing)
    if tip is None and start:
        tip = _tip(current, 0, growing=growing)
    return base if tip is None else tip


def _tip(context: FileContext, start: int, *, growing: bool) -> int | None:
    """Behind the last complete record of a file, None where it has none from ``start`` on."""
    base = context.file.base
    state = resume_state(context, start) if start else LogState()
    tip: int | None = None
    for found in walk_file(context, state, start=start):
        block = found.block
        if len(block):
            complete = not growing or _is_complete(block)
            tip = (
                int(block.physical[-1] + block.total_size[-1])
                if complete
                else int(block.physical[-1]) - context.file.lead
            )
        if block.blanks:
            tip = base + context.file.size
    return tip


def _is_complete(block: Block) -> bool:
    """Whether the last record of a block has arrived in full."""
    one = block.take(np.array([len(block) - 1]))
    at = int(one.properties_at[0])
    properties = one.data[at : at + int(one.properties_size[0])]
    return int(body_crcs(one)[0]) == int(one["body_crc"][0]) and bool((properties != 0).all())
