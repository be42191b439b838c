"""Names of index files: local time, 17 digits (spec 4.4). Their order is that of the files, so a new one comes last."""

from __future__ import annotations

from datetime import datetime

from rmqctl.rocketmq.index_files import NAME_DIGITS

_HOUR_MS = 3_600_000
LAST_TIME = 253_370_764_800_000
"""The first millisecond of the year 9999, UTC: later years, which only damage gives, have no name of 17 digits."""


def next_name(last: str, milliseconds: int) -> str:
    """Local time as a file name, moved on until it comes behind the last one.

    A broker takes its clock; here it is the store time of the first record, so that the same messages
    make the same files. A time that no clock shows counts as the nearest that one does.
    """
    milliseconds = min(max(milliseconds, 0), LAST_TIME)
    while (name := _time_name(milliseconds)) <= last:
        if _time_name(milliseconds + _HOUR_MS) <= last:  # the clock was set back: go on behind the last name
            return f"{int(last) + 1:0{NAME_DIGITS}d}"
        milliseconds += 1
    return name


def _time_name(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds // 1000).astimezone()
    return f"{moment:%Y%m%d%H%M%S}{milliseconds % 1000:03d}"
