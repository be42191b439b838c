"""Two stores side by side: logs by physical offset, what is left by queue offset, then the queues."""

from __future__ import annotations

from rmqctl.rocketmq.diff.driver import Diff, DiffOptions, Side

__all__ = ["Diff", "DiffOptions", "Side"]
