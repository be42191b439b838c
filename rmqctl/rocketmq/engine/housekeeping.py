"""What a broker does by its own schedule: delivering what is due, deleting old files (spec 7, 2.13).

Sources: DefaultMessageStore.CleanCommitLogService (every 10 s), UtilAll.isItTimeToDo,
ScheduleMessageService, TimerMessageStore.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rmqctl.rocketmq.engine.flush import Service
from rmqctl.rocketmq.engine.message import MessageRefused, PutStatus
from rmqctl.rocketmq.store import COMMIT_LOG, QUEUES

if TYPE_CHECKING:
    from rmqctl.rocketmq.engine.config import StoreConfig
    from rmqctl.rocketmq.engine.engine import StoreEngine

DELIVER_MS, CLEAN_MS = 500, 10_000


@dataclass(frozen=True, slots=True)
class Usage:
    """How full the disks of a store are.

    Attributes:
        exceeds: old files are deleted at any hour.
        at_once: and whatever their age.
        full: messages are refused.
    """

    exceeds: bool
    at_once: bool
    full: bool


class Housekeeping:
    """The schedule of one open engine; :meth:`services` starts it.

    Attributes:
        full: the disk is so full that messages are refused; looked at every 10 s.
    """

    def __init__(self, engine: StoreEngine) -> None:
        self._engine = engine
        self.full = False

    def services(self) -> list[Service]:
        """Threads that deliver and delete."""
        return [Service("deliver", DELIVER_MS, self.deliver), Service("clean", CLEAN_MS, self.clean)]

    def deliver(self) -> None:
        """One turn: deliver what is due, unless the disk is too full for it.

        Raises:
            IOFailure: the system refuses.
        """
        try:
            if not self.full:
                self._engine.deliver_due()
        except MessageRefused as error:
            if error.status is not PutStatus.SERVICE_NOT_AVAILABLE:
                raise

    def clean(self) -> None:
        """One turn: delete old files in the hours for it, or when a disk fills up.

        Raises:
            IOFailure: a file cannot be deleted.
        """
        config = self._engine.config
        usage = self._usage()
        self.full = usage.full
        if usage.exceeds or is_time(config.delete_when, config.clock.now()):
            self._engine.expire(at_once=usage.at_once)

    def check(self) -> None:
        """
        Raises:
            MessageRefused: the disk is too full for more messages.
        """
        if self.full:
            percent = round(100 * self._engine.config.disk_warning)
            raise MessageRefused(
                PutStatus.SERVICE_NOT_AVAILABLE,
                f"the disk of {self._engine.root} is more than {percent} % full; free space, or let old files expire",
            )

    def _usage(self) -> Usage:
        """The emptiest disk of the log, and that of the queues (CleanCommitLogService.isSpaceToDelete)."""
        engine, config = self._engine, self._engine.config
        logs = [engine.root / path for path in config.commit_log_paths or (COMMIT_LOG,)]
        used = max(min(map(engine.disk.used, logs)), engine.disk.used(engine.root / QUEUES))
        return usage_of(used, config)


def usage_of(used: float, config: StoreConfig) -> Usage:
    """What a used part of the disk means."""
    forcibly = used > config.disk_clean_forcibly
    return Usage(used > config.disk_max_used, forcibly and config.clean_forcibly, used > config.disk_warning)


def is_time(hours: str, now_ms: int) -> bool:
    """Whether the local hour is one of ``04;16``."""
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    return f"{now.hour:02d}" in [hour.strip() for hour in hours.split(";")]


__all__ = ["Housekeeping", "Usage", "is_time", "usage_of"]
