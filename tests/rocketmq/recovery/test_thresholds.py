"""Every rule of recovery that a release changed: the first release that has it, and the last that has it not.

The numbers are those of the description of the format (1.2, 2.1, 2.2, 6.1 to 6.6), which were read from the sources of
the releases.
"""

from __future__ import annotations

from typing import Any

import pytest

from rmqctl.release import Release
from rmqctl.rocketmq.recovery.rules import QueueCut, RecoveryRules, ScanStart, WrongLength


@pytest.mark.parametrize(
    ("rule", "last_without", "first_with", "was", "now"),
    [
        ("wrong_length", "4.5.0", "4.5.1", WrongLength.IGNORE_REST, WrongLength.FAIL),
        ("reput_from_queues", "4.5.0", "4.5.1", False, True),
        ("reput_from_queues", "5.0.0", "4.9.8", False, True),
        ("queue_cut", "3.2.6", "4.4.0", QueueCut.AFTER_CRASH, QueueCut.WHEN_AHEAD),
        ("holds_length", "3.2.6", "4.4.0", False, True),
        ("skips_foreign_queues", "3.2.6", "4.4.0", False, True),
        ("skips_repeated", "3.2.6", "4.4.0", False, True),
        ("room", "3.2.6", "4.4.0", 524_296, 0),
        ("known_v6", "4.5.2", "4.6.0", False, True),
        ("minimum_5", "4.9.8", "5.0.0", False, True),
        ("batch_queues", "4.9.8", "5.0.0", False, True),
        ("index_error_stops", "4.9.8", "5.0.0", False, True),
        ("known_v2", "5.0.0", "5.1.0", False, True),
        ("skips_directories", "5.0.0", "5.1.0", False, True),
        ("drops_empty_last", "5.1.2", "5.1.3", False, True),
        ("precheck", "5.3.1", "5.3.2", False, True),
        ("dispatches_after_queues", "5.3.1", "5.3.2", False, True),
        ("normal_start", "5.3.1", "5.3.2", ScanStart.THIRD_LAST, ScanStart.QUEUES_END),
        ("normal_start", "5.3.3", "5.3.4", ScanStart.QUEUES_END, ScanStart.VALIDATED),
        ("abnormal_start", "5.3.3", "5.3.4", ScanStart.STORE_TIME, ScanStart.VALIDATED_TIME),
        ("abnormal_start", "5.4.0", "5.5.0", ScanStart.VALIDATED_TIME, ScanStart.LOGICS_OFFSET),
        ("cuts_late", "5.3.3", "5.3.4", False, True),
        ("max_files", "5.3.4", "5.4.0", 0, 10),
    ],
)
def test_a_rule_changes_with_its_release(rule: str, last_without: str, first_with: str, was: Any, now: Any) -> None:
    assert getattr(RecoveryRules.of(Release.parse(last_without)), rule) == was
    assert getattr(RecoveryRules.of(Release.parse(first_with)), rule) == now
