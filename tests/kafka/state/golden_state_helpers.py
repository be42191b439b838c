"""What tests share with test_golden_state: WRITTEN_LATER."""

from __future__ import annotations

WRITTEN_LATER = {("3.9.2-clean", "__consumer_offsets-0"), ("4.3.1-clean", "__consumer_offsets-0")}
"""A group was written down once more when the broker stopped, after it was asked."""
