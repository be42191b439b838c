"""Queues of rare stores (V2 and IPv6 records, extension units, DLedger, compaction): every message, and by tag."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.release import Release
from rmqctl.rocketmq.query.offset import OffsetQuestion
from rmqctl.rocketmq.query.queue_rows import offset_rows
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.rare_stores_helpers import KINDS, truth


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_and_those_of_a_tag(kind: str, rare: Callable[[str], Path]) -> None:
    queues: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for record in truth(kind):
        queues[record["topic"], record["queue_id"]].append(record)
    with RecoveredStore(open_store_at(str(rare(kind))), Release(5, 3, 3)) as started:
        for (topic, queue_id), records in queues.items():
            for tag in (None, records[0]["tags"]):
                with open_queue(started, topic, queue_id) as view:
                    rows = list(offset_rows(view, OffsetQuestion(0, 1000, tag)))
                wanted = [r["physical_offset"] for r in records if tag in (None, r["tags"])]
                assert [row["physical_offset"] for row in rows[1:]] == wanted
                assert rows[0]["next_offset"] == len(records)
