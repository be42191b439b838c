"""One cause, one notice: what follows from a cause says so, is folded under its notice, and stays a row of its own."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures import damage, kafka_damage
from fixtures import golden as stores
from tests.commands import incidents
from tests.conftest import Rmqctl


def _findings(rmqctl: Rmqctl, root: Path) -> list[dict[str, Any]]:
    done = rmqctl("verify", root, "--no-notes", "-o", "json")
    return list(json.loads(done.stdout)["findings"])


def test_a_log_that_was_cut_is_one_notice(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = incidents.make("R7", tmp_path)
    found = _findings(rmqctl, root)
    under = Counter(row["id"] for row in found if row.get("folded_under") == "queue.ahead")
    assert under == {"log.gap": 1, "index.beyond-log": 2, "checkpoint.ahead": 1, "timer.log": 1}
    assert {row["cause"] for row in found if "folded_under" in row} == {
        "the log ends before what queues point to, too: it was cut there, or its last files are gone"
    }
    text = " ".join(rmqctl("verify", root, "--no-notes").stdout.split())
    assert "From the same cause: log.gap (" in text
    assert "index.beyond-log (2 index files)" in text
    assert not any(f"error {name} " in text for name in under)
    each = rmqctl("verify", root, "--no-notes", "--all").stdout
    assert each.count("\nerror  ") + each.startswith("error  ") == sum(row["severity"] == "error" for row in found)


def test_units_that_point_too_far_alone_fold_nothing(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root = golden("5.5.0-clean")
    damage.apply(stores.recovery_oracle("5.5.0")["variants"]["clean/cq-ahead-of-log"]["recipe"], root)
    found = _findings(rmqctl, root)
    assert "queue.ahead" in {row["id"] for row in found}
    assert not [row for row in found if "cause" in row]


def test_topics_are_unknown_because_the_metadata_cannot_be_read(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = incidents.make("K9", tmp_path)
    strays = [row for row in _findings(rmqctl, root) if row["id"] == "directory.stray"]
    assert len(strays) == 36
    assert {row["folded_under"] for row in strays} == {"metadata.replay"}
    text = " ".join(rmqctl("verify", root, "--no-notes").stdout.split())
    assert "From the same cause: directory.stray (36 partitions" in text
    assert "warning directory.stray" not in text


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 40))])
def test_a_hole_of_zeros_in_the_log_is_the_cause(seed: int, rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root, chance = golden("5.5.0-clean"), random.Random(seed)
    file = root / "commitlog" / f"{131072 * chance.randrange(3):020}"
    size = chance.choice((512, 4096, 8192))
    low = chance.randrange(0, 100_000 - size, 512)
    data = bytearray(file.read_bytes())
    data[low : low + size] = bytes(size)
    file.write_bytes(data)
    end = low + size + len(data[low + size :]) - len(data[low + size :].lstrip(b"\0"))
    first = low - len(data[:low]) + len(data[:low].rstrip(b"\0"))
    found = [row for row in _findings(rmqctl, root) if row["file"].startswith("commitlog/")]
    assert found
    wanted = f"{end - first:,} bytes at {first:,} are zeros, as where a page never reached the disk"
    assert {row.get("cause") for row in found if row["offset"] < end and row["offset"] + row["size"] > first} == {
        wanted
    }
    assert not [row for row in found if row["offset"] >= end and "cause" in row]


def test_a_flipped_bit_is_no_hole(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root = golden("5.5.0-clean")
    damage.apply(stores.recovery_oracle("5.5.0")["variants"]["clean/body-flip-mid"]["recipe"], root)
    assert not [row for row in _findings(rmqctl, root) if "cause" in row]


def test_a_notice_says_what_is_at_stake_by_topic(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root = golden("5.5.0-crash")
    low, high = 262144, 393216
    gone = Counter[str]()
    for queue in (root / "consumequeue").glob("*/*"):
        for file in queue.iterdir():
            units = np.fromfile(file, np.dtype([("offset", ">i8"), ("size", ">i4"), ("tag", ">i8")]))
            inside = (units["offset"] >= low) & (units["offset"] < high) & (units["size"] > 0)
            gone[queue.parent.name] += int(inside.sum())
    damage.apply(stores.recovery_oracle("5.5.0")["variants"]["crash/delete-mid-file"]["recipe"], root)
    text = " ".join(rmqctl("verify", root, "--no-notes").stdout.split())
    first = ", ".join(f"{topic} {count}" for topic, count in gone.most_common(2))
    assert f"At stake: at least {gone.total()} messages: {first}, " in text
    assert "A start of a 5.5.0 broker makes it no worse." in text


def test_a_notice_says_what_a_start_loses_there(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root = golden("5.5.0-crash")
    damage.apply(stores.recovery_oracle("5.5.0")["variants"]["crash/magic-flip-mid"]["recipe"], root)
    lost = json.loads(rmqctl("recover", root, "-o", "json").stdout)["lost"]
    text = " ".join(rmqctl("verify", root, "--no-notes").stdout.split())
    largest = max(lost["by_topic"], key=lost["by_topic"].__getitem__)
    said = f"{lost['messages']} messages: {largest} {lost['by_topic'][largest]}, "
    assert f"Here a start of a 5.5.0 broker ends the log, and loses {said}" in text
    assert "A broker: " not in text


def test_a_batch_with_a_wrong_crc_counts_its_records(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root = golden("4.3.1-crash")
    variants = {each["variant"]: each["recipe"] for each in stores.recovery_oracle("4.3.1")["variants"]}
    kafka_damage.apply(variants["crash/crc-body-last-batch"], root)
    (row,) = (row for row in _findings(rmqctl, root) if row["id"] == "batch.crc")
    assert row["messages"] == 4
    text = " ".join(rmqctl("verify", root, "--no-notes").stdout.split())
    assert "At stake: 4 records of plain-none" in text
    assert "Here a start of a 4.3.1 broker cuts 4 records: plain-none-0 4" in text
