"""What the broker does with its own topics while a store is open: transactions, delayed delivery, the timer wheel."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.rocketmq.engine import timer_delivery
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.delivery import Delivery
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.message import PutResult
from rmqctl.rocketmq.engine.routing import TIMER_TOPIC
from rmqctl.rocketmq.engine.timer import TimerWheel
from rmqctl.rocketmq.engine.transaction import Transactions
from rmqctl.rocketmq.store import RocketMQStore

if TYPE_CHECKING:
    from rmqctl.rocketmq.engine.engine import StoreEngine


class SystemTopics:
    """State of the system topics of one open store.

    Attributes:
        transactions: half messages that ended.
        delivery: how far each delay level is.
        wheel: None where timer messages are not served.
    """

    def __init__(self, root: Path, config: StoreConfig, disk: Disk, store: RocketMQStore | None) -> None:
        """
        Raises:
            IOFailure: a timer file cannot be made.
            OSError: a file cannot be read.
        """
        self.transactions, self.delivery = Transactions(), Delivery.of(store)
        self.wheel = TimerWheel(root, config, disk) if config.timer and config.is_5 else None
        self._caught_up = False
        self._lock = threading.Lock()

    def deliver(self, engine: StoreEngine) -> list[PutResult]:
        """Deliver delayed and timer messages whose time has come, by the engine's clock; one caller at a time.

        Raises:
            IOFailure: the system refuses.
        """
        now = engine.config.clock.now()
        with self._lock:
            found = list(self.delivery.deliver(engine, now))
            wheel = self._wheel_of(engine)
            if wheel is not None:
                found += timer_delivery.deliver(engine, wheel, now)
            return found

    def finish(self, engine: StoreEngine) -> None:
        """Bring the wheel up to date and write it down; everything is dispatched.

        Messages whose slot has been read already keep waiting in their topic, where the next start finds them.

        Raises:
            IOFailure: the system refuses.
        """
        wheel = self._wheel_of(engine)
        if wheel is not None:
            next(timer_delivery.turn(engine, wheel), None)
            present = wheel.floor(engine.config.clock.now())
            waiting = wheel.next_time(present)
            wheel.move(present if waiting is None else waiting)
            wheel.save(engine.config.clock.now())

    def expire(self, min_offset: int) -> list[Path]:
        """Delete files of the timer log that hold only messages in front of the log.

        Raises:
            IOFailure: a file cannot be deleted.
        """
        with self._lock:
            return self.wheel.expire(min_offset) if self.wheel is not None else []

    def _wheel_of(self, engine: StoreEngine) -> TimerWheel | None:
        """The wheel; made where timer messages came without it, caught up with its log the first time."""
        if (TIMER_TOPIC.encode(), 0) not in engine.reput.queues.simple:
            return self.wheel
        if self.wheel is None and engine.config.is_5:
            self.wheel = TimerWheel(engine.root, engine.config, engine.disk)
        if self.wheel is not None and not self._caught_up:
            self._caught_up = True
            unit = self.wheel.last_unit()
            (record,) = engine.reading.records([unit.physical_offset]) if unit is not None else (None,)
            if record is not None and record.topic == TIMER_TOPIC:
                self.wheel.skip_to(record.fields["queue_offset"] + 1)
        return self.wheel

    def close(self) -> None:
        """Close the timer files."""
        if self.wheel is not None:
            self.wheel.close()
