"""Impossible offsets of consumers are put right by the .bak, or left with what each choice costs (R9; #2743)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.rocketmq.state.config import backed_up_offsets, consumer_offsets
from rmqctl.rocketmq.store.locate import open_store_at
from tests.conftest import Rmqctl

FILE = "config/consumerOffset.json"
FORWARD, BACK = ("LabLog", "Lab_grpLag", 1), ("LabOrders", "Lab_grpFull", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = golden.unpack("5.5.0-clean", tmp_path)
    text = (root / FILE).read_text()
    for (topic, group, queue), offset in ((FORWARD, 647260483), (BACK, -898232391123)):
        pattern = rf'("{topic}@{group}":\{{[^}}]*?\b{queue}:)\d+'
        text = re.sub(pattern, rf"\g<1>{offset}", text, count=1)
    (root / FILE).write_text(text)
    return root


def offsets(root: Path) -> dict[tuple[str, str, int], int]:
    return {(own.topic, own.group, own.queue_id): own.offset for own in consumer_offsets(open_store_at(str(root)))}


def test_findings_name_topic_and_queue(root: Path, rmqctl: Rmqctl) -> None:
    rows = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    messages = [row["message"] for row in rows if row["id"] == "config.consumer-offset"]
    assert messages == [
        "group Lab_grpLag stands at 647260483 of LabLog/1, which ends at 138",
        "group Lab_grpFull stands at -898232391123 of LabOrders/0, and queue offsets begin at 0",
    ]


def test_the_backup_says_what_a_group_had_read(root: Path, rmqctl: Rmqctl) -> None:
    """To the end instead of 37 would skip 101 messages that nobody has read."""
    before = backed_up_offsets(open_store_at(str(root)), FILE)
    assert (before[FORWARD], before[BACK]) == (37, 98)
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert offsets(root) == before
    assert rmqctl("verify", root).exit_code == 0


def test_without_it_nobody_knows(root: Path, rmqctl: Rmqctl) -> None:
    (root / f"{FILE}.bak").unlink()
    before = (root / FILE).read_bytes()
    done = rmqctl("repair", root, "--apply", "--yes")
    said = " ".join(done.stdout.split())
    assert done.exit_code == 1 and (root / FILE).read_bytes() == before
    assert "138 skips what it has not read of 138 messages (offsets 0 to 137), 0 lets it read all again" in said
    assert "2 would be left: config.consumer-offset in LabLog/1, config.consumer-offset in LabOrders/0" in said


def test_what_a_cut_of_the_log_explains_goes_to_the_end(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The backup has the same offset: the group had read all that is left."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    max((root / "commitlog").iterdir()).unlink()
    before = offsets(root)
    rmqctl("repair", root, "--apply", "--yes")
    queue = ("LabOrders", "Lab_grpFull", 0)
    rows = [json.loads(line) for line in rmqctl("topics", root, "-o", "jsonl").stdout.splitlines()]
    (end,) = (row["max_offset"] for row in rows if (row["topic"], row["queue_id"]) == (queue[0], queue[2]))
    assert offsets(root)[queue] == end < before[queue]
