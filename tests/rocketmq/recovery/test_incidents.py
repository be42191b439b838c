"""Starts of which brokers make something worse than the log: what real ones did is what the replay says."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from fixtures import golden
from tests.conftest import Rmqctl


@pytest.mark.parametrize("release", ["4.9.8", "5.3.3", "5.5.0"])
def test_a_queue_that_never_reached_the_disk_is_numbered_wrong(release: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    """A 4.9.7 broker left 26 messages in no queue, and gave offsets 50 to 69 to messages 76 to 95 (R3; #10108)."""
    root = golden.unpack("4.9.8-clean", tmp_path)
    queue = root / "consumequeue" / "LabOrders" / "1"
    (queue / "00000000000000001000").write_bytes(bytes(1000))
    (queue / "00000000000000002000").write_bytes(bytes(1000))
    (root / "abort").touch()
    said = rmqctl("recover", root, "--as-release", release, "-o", "json")
    found = json.loads(said.stdout)
    assert said.exit_code == 1
    assert found["undispatched"]["by_topic"] == {"LabOrders": 26}
    assert found["renumbered"] == {"LabOrders/1": {"messages": 20, "stated": 76, "placed": 50}}
    assert found["queues"]["LabOrders/1"]["max_offset"] == 70
    assert "76 becomes 50" in rmqctl("recover", root, "--as-release", release).stdout
    assert "would never give consumers 26 messages" in rmqctl("verify", root).stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("store", "name", "stops"),
    [
        ("4.9.8-clean", "delayOffset.json", True),
        ("5.5.0-clean", "delayOffset.json", True),
        ("5.5.0-clean", "timermetrics", True),
        ("5.5.0-clean", "consumerOrderInfo.json", True),
        ("5.5.0-clean", "topicQueueMapping.json", True),
        ("4.9.8-clean", "timermetrics", False),
        ("4.9.8-clean", "consumerOrderInfo.json", False),
    ],
)
def test_a_configuration_of_zeros_without_a_backup_ends_the_start(
    store: str, name: str, stops: bool, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """Brokers of 4.9.7 and 5.5.0 exit with 253 (R5; #6096); a release that does not know a file does not load it."""
    root = golden.unpack(store, tmp_path)
    path = root / "config" / name
    path.write_bytes(bytes(127))
    path.with_name(f"{name}.bak").write_bytes(b'{"offsetTable":{"1":2')
    found = json.loads(rmqctl("recover", root, "--as-release", store[:5], "-o", "json").stdout)
    assert found["starts"] is not stops
    if stops:
        assert name in found["error"]
        assert rmqctl("verify", root).exit_code == 1
        path.with_name(f"{name}.bak").write_bytes(b"")  # an empty backup counts as none, and that is no failure
        assert json.loads(rmqctl("recover", root, "-o", "json").stdout)["starts"]


def test_messages_after_the_last_file_of_the_log_are_lost_too(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """The log was cut and its last file removed (R7; #10668): `recover`, `repair` and `verify` count the same."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    *_, cut, gone = sorted((root / "commitlog").iterdir())
    gone.unlink()
    begin = 330182
    cut.write_bytes(cut.read_bytes()[: begin - int(cut.name)].ljust(cut.stat().st_size, b"\0"))
    (root / "abort").touch()
    lost = [row for row in golden.truth("5.5.0-clean") if row["kind"] == "msg" and row["commitLogOffset"] >= begin]
    found = json.loads(rmqctl("recover", root, "-o", "json").stdout)["lost"]
    assert (found["messages"], found["by_topic"]) == (
        len(lost),
        dict(sorted(Counter(r["topic"] for r in lost).items())),
    )
    assert f"cut {len(lost)} messages off" in " ".join(rmqctl("verify", root).stdout.split())
    assert f"{len(lost)} messages were gone before" in " ".join(rmqctl("repair", root).stdout.split())


def test_garbage_that_points_after_the_log_is_no_lost_message(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """The record is in the log, and gets its unit again."""
    root = golden.unpack("5.5.0-crash", tmp_path)
    before = json.loads(rmqctl("recover", root, "-o", "json").stdout)
    queue = next((root / "consumequeue" / "LabOrders" / "0").iterdir())
    last = max(n for n in range(0, queue.stat().st_size, 20) if queue.read_bytes()[n : n + 20].strip(b"\0"))
    data = bytearray(queue.read_bytes())
    data[last] ^= 0x10
    queue.write_bytes(data)
    found = json.loads(rmqctl("recover", root, "-o", "json").stdout)
    assert (found["lost"], found["queues"]) == (before["lost"], before["queues"])


def test_garbage_after_the_end_of_a_queue_is_no_lost_message(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-crash", tmp_path)
    before = json.loads(rmqctl("recover", root, "-o", "json").stdout)
    queue = max((root / "consumequeue" / "LabOrders" / "0").iterdir())
    end = 20 * (len(queue.read_bytes().rstrip(b"\0")) // 20 + 1)
    assert end < queue.stat().st_size
    with queue.open("r+b") as file:
        file.seek(end)
        file.write(random.Random(7).randbytes(queue.stat().st_size - end))
    assert json.loads(rmqctl("recover", root, "-o", "json").stdout)["lost"] == before["lost"]
