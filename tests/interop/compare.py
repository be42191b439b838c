"""What rmqctl says of a store, in the words of the judge's answers."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqctl.explain import Trace
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.queue_ends import queue_rows
from rmqctl.rocketmq.index import index_files
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.query.key import KeyQuery, by_key_in
from rmqctl.rocketmq.query.offset import get_message
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.query.time import Boundary, offset_by_time
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.geometry import geometry_of, index_geometry
from rmqctl.rocketmq.store.locate import open_store_at

FIELDS = {
    "physical": "physical_offset", "size": "size", "topic": "topic", "queue": "queue_id", "offset": "queue_offset", "id": "message_id",
    "born": "born_timestamp", "stored": "store_timestamp", "flag": "flag", "reconsumed": "reconsume_times",
    "prepared": "prepared_transaction_offset", "properties": "properties",
}  # fmt: skip
"""Names of the judge -> names in ``rmqctl dump``."""


def geometry(root: Path) -> list[str]:
    """File sizes of a store as settings of a broker."""
    sizes = geometry_of(open_store_at(str(root)))
    return [
        f"mappedFileSizeCommitLog={sizes.commit_log_file_size}",
        f"mappedFileSizeConsumeQueue={sizes.queue_file_size}",
        f"maxHashSlotNum={sizes.index_slots}",
        f"maxIndexNum={sizes.index_entries}",
        f"mapperFileSizeBatchConsumeQueue={sizes.batch_queue_file_size}",
    ]


def dumped(rmqctl: Callable[..., Any], root: Path) -> dict[int, dict[str, Any]]:
    """Every message of the log as ``rmqctl dump`` shows it, by physical offset."""
    rows = [json.loads(line) for line in rmqctl("dump", root, "--body", "-o", "jsonl").stdout.splitlines()]
    return {row["physical_offset"]: _message(row) for row in rows if row["kind"] == "message"}


def _message(row: dict[str, Any]) -> dict[str, Any]:
    body = row["body"]
    data = base64.b64decode(body["base64"]) if isinstance(body, dict) else (body or "").encode()
    found = {ours: row[theirs] for ours, theirs in FIELDS.items()}
    return {**found, "id": row["message_id"], "body": hashlib.sha256(data).hexdigest()}


def ranges(root: Path) -> dict[str, list[int]]:
    """Smallest and next offset of every queue, as ``rmqctl topics`` shows them."""
    rows = queue_rows(open_store_at(str(root)))
    return {f"{row.topic}/{row.queue_id}": [row.min_offset, row.max_offset] for row in rows}


class Answers:
    """Questions to a store that is not running, answered as a broker of a release would."""

    def __init__(self, root: Path, release: str, settings: dict[str, str] | None = None) -> None:
        self.store, self.release = open_store_at(str(root)), Release.parse(release)
        self.store.settings = {**self.store.settings, **(settings or {})}

    @contextmanager
    def opened(self) -> Iterator[Answers]:
        """With its files open, as long as questions are asked."""
        self.files = index_files(self.store, index_geometry(self.store))
        with LogReader(self.store.log_files) as self.log, RecoveredStore(self.store, self.release) as self.started:
            yield self
        for file in self.files:
            file.close()

    def key(self, topic: str, key: str, most: int, begin: int, end: int) -> list[int]:
        """``queryMessage``: physical offsets."""
        question = KeyQuery(topic, key, begin=begin, end=end, max=most)
        return [r.physical_offset for r in by_key_in(self.files, self.log, question, Trace(on=False)).raw]

    def time(self, topic: str, queue: int, time: int, boundary: str = "") -> int:
        """``getOffsetInQueueByTime``."""
        with open_queue(self.started, topic, queue) as view:
            return offset_by_time(view, time, Boundary.UPPER if boundary == "UPPER" else Boundary.LOWER)

    def get(self, topic: str, queue: int, offset: int, most: int) -> dict[str, Any]:
        """``getMessage``."""
        with open_queue(self.started, topic, queue) as view:
            answer = get_message(view, offset, most)
        return {
            "status": answer.status, "next": answer.next_offset, "min": answer.min_offset, "max": answer.max_offset,
            "found": [unit.physical_offset for unit in answer.units],
        }  # fmt: skip
