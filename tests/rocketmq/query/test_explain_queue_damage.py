"""``query-offset --explain`` names the true cause for every damaged variant that hides a message from its queue.

One row a kind of damage; variants that hide nothing have no row, and the test holds that too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.release import Release
from rmqctl.rocketmq.query.offset import OffsetQuestion
from rmqctl.rocketmq.query.queue_rows import offset_rows
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.locate import open_store_at

GONE, DAMAGED, UNQUEUED = "record-gone", "record-damaged", "no-queue-unit"
CAUSES = {
    "bodylen-negative-last-file": {DAMAGED},
    "cq-all-deleted": {"queue-missing"},
    "cq-and-batchcq-all-deleted": {"queue-missing"},
    "cq-first-file-deleted": {UNQUEUED},
    "cq-garbage-unit-in-last-file-mid": {"beyond-log"},
    "cq-last-5-units-zeroed": {UNQUEUED},
    "cq-last-file-deleted": {UNQUEUED},
    "cq-mid-file-deleted": {UNQUEUED},
    "cq-one-queue-deleted": {"queue-missing"},
    "cq-topic-deleted": {"queue-missing"},
    "cq-wrong-phy-into-log": {GONE},
    "cq-zero-unit-in-last-file-mid": {"queue-hole"},
    "delete-commitlog-dir": {GONE},
    "delete-first-file": {"before-min-offset", "record-expired"},
    "delete-last-data-file": {"beyond-log", GONE},
    "delete-mid-file": {GONE},
    "magic-flip-mid": {GONE},
    "magic-flip-first-record-of-mid-file": {GONE},
    "magic-flip-first-record-of-last-file": {GONE},
    "topiclen-negative-last-file": {DAMAGED},
    "torn-tail": {DAMAGED},
    "torn-tail-only-header": {DAMAGED},
    "totalsize-flip-mid": {DAMAGED},
    "totalsize-huge-mid": {DAMAGED},
    "totalsize-zero-mid": {DAMAGED},
    "truncate-last-data-file-in-data": {"beyond-log", GONE, DAMAGED},
    "truncate-last-file-to-zero": {"beyond-log"},
    "zero-page-last-file": {GONE, DAMAGED},
    "zero-page-mid": {GONE, DAMAGED},
}
"""Kind of damage -> ids (without ``miss.``) of the last sentence for the messages that it hides."""
CUT = "cut-at-start"
"""What is said of a message that a start of the broker takes away; ``--as-found`` names what is wrong."""
LATE = {UNQUEUED, "beyond-max-offset"}
"""What may be said of the last record of a crashed store, which had no unit yet: it is in the log, or torn."""


def variants(*releases: str) -> list[tuple[str, str]]:
    return [(release, name) for release in releases for name in golden.recovery_oracle(release)["variants"]]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("damaged")
    return {name: golden.unpack(name, directory) for name in golden.BROKER_STORES}


@pytest.fixture(scope="module")
def records() -> dict[str, list[dict[str, Any]]]:
    return {name: list(_queued(name)) for name in golden.BROKER_STORES}


def _queued(name: str) -> Iterator[dict[str, Any]]:
    """Records with a unit of their own in a simple queue."""
    for record in golden.truth(name):
        if record["kind"] == "msg" and record["sysFlag"] & 0xC not in (4, 0xC) and not record["sysFlag"] & 0x80:
            yield record


EVERY = variants(*golden.RELEASES)
FAST = [v for v in EVERY if v[0] == "5.5.0" and v[1].startswith("crash/")]
SLOW = [pytest.param(v, marks=pytest.mark.slow) for v in EVERY if v not in FAST]


@pytest.mark.parametrize("variant", [*FAST, *SLOW], ids=" ".join)
def test_the_true_cause_is_named(
    variant: tuple[str, str], copies: dict[str, Path], records: dict[str, list[dict[str, Any]]]
) -> None:
    release, name = variant
    found = golden.recovery_oracle(release)["variants"][name]
    root, every = copies[found["base"]], records[found["base"]]
    damage.apply(found["recipe"], root)
    try:
        causes = _causes(root, release, [*every[::17], *every[-3:-1]])
        last = _causes(root, release, every[-1:])
        as_found = _causes(root, release, [*every[::17], *every[-3:-1]], as_found=True)
    finally:
        damage.undo(found["recipe"], golden.pristine(found["base"]), root)
    kinds = name.partition("/")[2].split("+")
    expected = set().union(*(CAUSES.get(kind, set()) for kind in kinds))
    assert as_found <= expected
    expected = expected | {CUT}
    assert causes <= expected
    assert last <= expected | (LATE if found["base"].endswith("crash") else set())


def _causes(root: Path, release: str, sample: list[dict[str, Any]], *, as_found: bool = False) -> set[str]:
    """Ids of the conclusions for the messages that their queue does not give."""
    found = set()
    store = open_store_at(str(root))
    store.settings = golden.broker_conf(f"{release}-clean")
    with RecoveredStore(store, Release.parse(release), as_found=as_found) as started:
        for record in sample:
            with open_queue(started, record["topic"], record["queueId"]) as view:
                rows = list(offset_rows(view, OffsetQuestion(record["queueOffset"], explain=True)))
            if not any(_is(row, record) for row in rows):
                found.add(rows[-1]["id"].removeprefix("miss."))
    return found


def _is(row: dict[str, Any], record: dict[str, Any]) -> bool:
    """Whether a row is the record, by its place or by its key: damage may have changed either."""
    if row["kind"] != "message":
        return False
    return row["physical_offset"] == record["commitLogOffset"] or row["unique_key"] == record["uniqKey"] is not None
