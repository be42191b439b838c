"""Everything that can be wrong with a RocketMQ store: importing this puts all of it in the table."""

from __future__ import annotations

from rmqctl.rocketmq.findings import derived as derived
from rmqctl.rocketmq.findings import log as log
from rmqctl.rocketmq.findings import state as state
