"""How two stores can differ: A is the one named first, B the other."""

from __future__ import annotations

from rmqctl.findings import Severity, declare

_E, _W = Severity.ERROR, Severity.WARNING


DIFF_MOVED = declare(
    "diff.moved",
    _W,
    "Messages with the same queue, queue offset and body lie at another physical offset: the logs were written apart.",
    "Nothing for salvaged or converted stores (compare those with --by queue); replicas must not differ so.",
)
DIFF_BODY = declare(
    "diff.body",
    _E,
    "Messages of the same topic, queue and queue offset have different bodies.",
    "The stores took different messages: decide which one counts before consumers see both.",
)
DIFF_PROPERTIES = declare(
    "diff.properties",
    _W,
    "Messages of the same topic, queue, queue offset and body have different properties.",
    "Look at both with rmqctl dump.",
)
DIFF_QUEUE_UNIT = declare(
    "diff.queue-unit",
    _E,
    "The queue units of one queue offset lead to different records, or carry different tag codes.",
    "Run verify on both; rebuild --queues makes them again from the log.",
    see="spec 3",
)
DIFF_QUEUE_ONLY_A = declare(
    "diff.queue-only-a",
    _W,
    "Queue units that only A has, although both logs hold their records.",
    "Normal while B has not dispatched yet (its broker does at the next start); else rebuild --queues on B.",
    see="spec 3, 6.7",
)
DIFF_QUEUE_ONLY_B = declare(
    "diff.queue-only-b",
    _W,
    "Queue units that only B has, although both logs hold their records.",
    "Normal while A has not dispatched yet (its broker does at the next start); else rebuild --queues on A.",
    see="spec 3, 6.7",
)
