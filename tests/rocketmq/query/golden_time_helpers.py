"""What tests share with test_golden_time: release_of."""

from __future__ import annotations

from rmqctl.release import Release


def release_of(name: str) -> Release:
    return Release.parse(name.split("-", maxsplit=1)[0])
