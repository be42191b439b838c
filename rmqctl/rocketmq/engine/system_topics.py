"""What the broker does with its own topics while a store is open: transactions, delayed delivery, the timer wheel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.delivery import Delivery, text_of
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.routing import TIMER_TOPIC
from rmqctl.rocketmq.engine.timer import TimerWheel, Waiting
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

    def finish(self, engine: StoreEngine) -> None:
        """Bring the wheel up to date and write it down; everything is dispatched.

        Raises:
            IOFailure: the system refuses.
        """
        if self.wheel is not None:
            if (TIMER_TOPIC.encode(), 0) in engine.reput.queues.simple:
                self._turn(engine, self.wheel)
            self.wheel.save(engine.config.clock.now())

    @staticmethod
    def _turn(engine: StoreEngine, wheel: TimerWheel) -> None:
        """Put timer messages that are not yet there into the wheel, as if each was when it was stored."""
        for placed in engine.reading.placed(TIMER_TOPIC, 0, wheel.queue_offset):
            record = placed.record
            size = int(record.fields["total_size"])
            waiting = Waiting(record.physical_offset, size, placed.queue_offset, text_of(record))
            wheel.enqueue(waiting, record.store_timestamp)

    def close(self) -> None:
        """Close the timer files."""
        if self.wheel is not None:
            self.wheel.close()
