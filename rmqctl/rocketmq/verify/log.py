"""Checks of the commit log alone: body and property CRC, queue offsets, store times, bodies, properties.

One :class:`LogChecker` looks at one split of the log. Splits are checked in any order, in any
process; what spans them (queue offsets, store time) is kept as a small :class:`LogSummary` and
joined in log order by :func:`join_summaries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from formats.rocketmq.message import SysFlag
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import Pairs, TextIds, pairs_of, properties_of, topic_numbers
from rmqctl.rocketmq.commitlog import LogBlock
from rmqctl.rocketmq.crc import crc32

CRC_MASK = 0x7FFFFFFF
