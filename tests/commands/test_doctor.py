"""`doctor`: real incidents, each made on a copy of a golden store; what the first lines say was written by hand."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from fixtures import golden as stores
from rmqctl.errors import TooDamaged
from rmqctl.rocketmq.family import RocketMQStore
from tests.commands import incidents
from tests.conftest import Rmqctl

FACTS: dict[str, tuple[str, ...]] = {
    "R1": ("21 queues", "no files at all", "queues 1,083 messages again and loses nothing", "all queues are gone",
           "emptied, or its volume is not mounted", "no queue file shows how long queue files are; give --broker-conf FILE"),
    "R2": ("commitlog/00000000000000655360: A file has no bytes", "Before 5.1.3 an empty last file stops the broker"),
    "R3": ("LabOrders/1, offset 50", "46 records", "keeps from its consumers 26 messages: LabOrders 26", "numbers 20 "),
    "R5": ("will not start: neither config/delayOffset.json nor its .bak", "A repair gives up nothing"),
    "R6": ("2 index files: An index file, read only by queries by key, is cut", "0 bytes, 22,040 expected",
           "loses nothing", "2 of 3 index files", "1 of them without bytes, as where the disk was full",
           "666 messages with keys"),
    "R7": ("Units point beyond the end of the log", "the log ends at 330182", "another replica may have them"),
    "R8": ("14 messages of LabOrders in 4 queues", "4,096 bytes at 40,960 are zeros", "a page never reached the disk",
           "LabOrders/0 68 to 73, LabOrders/1 60 to 62, LabOrders/2 61 to 63, LabOrders/3 61 to 62",
           "after a kill it loses 560 messages", "A repair alone gives up 14: LabOrders 14; --from REPLICA"),
    "R9": ("LabLog 1, LabOrders 1: A consumer group's offset is", "647260483", "ends at 138"),
    "K1": ("plain-none-0: An offset index", "00000000000000000091.index at 0, 10,485,760 bytes", "loses nothing"),
    "K4": ("Transaction tx-hang-1 never ended, since 2026-11-21T01:38:53", "txn-a-0 offset 106 (7 records)",
           "txn-a-1 offset 82 (4 records)", "__consumer_offsets-0 offset 5 (2 records)"),
    "K6": ("plain-none-0: partition.metadata is missing", "1oaEsPE_TxuhODVUIk7dtQ", "132 records"),
    "K8": ("plain-none-0, offsets 63 to 68: The bytes of the batch do not match", "gives up 6: plain-none 6; --from REPLICA"),
    "K9": ("The broker will not start: snapshot __cluster_metadata-0/00000000000000000392-0000000002.checkpoint",
           "(0 bytes)", "A repair mends all of it and gives up nothing"),
    "K11": ("plain-none-0: The topic id of a partition is not that", "PpAdk7k-TC6ipwdJ-ngB5Q", "rT1tPNESSWOy5GiTEFCgtA",
            "keeps from its consumers 14 records", "directory.topic-id 1 would be left"),
    "K2": ("clicks-0: Records are stamped later than the year 9999", "250 records from offset 150",
           "at most the year 58692", "Retention by time ends at the segment", "A repair can do nothing"),
}  # fmt: skip
"""What the first lines say, written by hand from what is known of each incident."""
NEXT = {"K2": "explain batch.future-time", "K4": "transactions {}", "K11": "explain directory.topic-id"}
"""What comes next where that is not a plan of `repair`: it would leave what is wrong as it is."""
PAGES = {
    "R1": "file-deleted", "R2": "disk-full", "R3": "consumers-stall", "R5": "file-deleted", "R6": "index-lost",
    "R7": "file-deleted", "R8": "missing-messages", "R9": "consumers-stall", "K1": "index-lost", "K4": "hanging-transaction",
    "K6": "partition-offline", "K8": "segment-corrupt", "K9": "metadata-lost", "K11": "partition-offline", "K2": "segment-corrupt",
}  # fmt: skip
"""The page of the emergency guide that cures it."""
FIRST = 8
"""Lines of 80 columns that people read first."""


@pytest.mark.parametrize("incident", FACTS)
def test_the_first_lines_say_what_is_wrong_what_it_costs_and_what_to_type(
    incident: str, rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    root = incidents.make(incident, tmp_path)
    told = rmqctl(root)
    assert told.exit_code == 1
    lines = told.stdout.splitlines()
    first = lines[: lines.index("")]
    assert len(first) <= FIRST
    said = re.sub(r"\s+", " ", " ".join(first))
    assert [fact for fact in FACTS[incident] if fact not in said] == []
    assert first[-1] == f"Next: rmqctl {NEXT.get(incident, 'repair {}').format(root)}"
    assert lines[-1] == f"Page: emergency/{PAGES[incident]}"
    commands = json.loads(rmqctl("doctor", root, "-o", "json").stdout)["next"]
    assert 1 <= len(commands) <= 5
    printed = [line[6:] for line in lines if line[6:].startswith("rmqctl ")]
    assert printed == commands
    for command in commands:
        assert rmqctl(*shlex.split(command)[1:]).exit_code in {0, 1}


def test_directories_of_two_clusters_are_named_and_no_plan_is_offered(
    rmqctl: Rmqctl, golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first = golden("3.9.2-clean")
    second = tmp_path / "second"
    second.mkdir()
    (first / "z-lz4-0").rename(second / "z-lz4-0")
    meta = (first / "meta.properties").read_text()
    meta = meta.replace("AbCdEfGhQxSTU-V_wXyZ01", "ZZZZEfGhQxSTU-V_wXyZ99").replace("directory.id=1", "directory.id=2")
    (second / "meta.properties").write_text(meta)
    told = rmqctl(f"{first},{second}")
    assert told.exit_code == 1
    lines = told.stdout.splitlines()
    top = lines[: lines.index("")]
    said = " ".join(" ".join(top).split())
    assert said.startswith("The broker will not start: ")
    assert "cluster.id ZZZZEfGhQxSTU-V_wXyZ99, in the meta.properties of" in said
    assert "it is AbCdEfGhQxSTU-V_wXyZ01" in said
    assert f"{first} has 36 partitions, {second} has 1 partition (z-lz4-0)" in said
    assert "Is a wrong volume mounted? Then mount the right one and change nothing." in said
    assert top[-1] == "Next: rmqctl explain directory.meta-properties"
    assert not [line for line in lines if "rmqctl repair" in line]


def test_a_sound_store_ends_with_0(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    told = rmqctl("doctor", golden("5.5.0-clean"))
    assert told.exit_code == 0
    assert told.stdout.startswith("Nothing is wrong.\n")
    assert "Next:" not in told.stdout


def test_a_repair_that_would_be_refused_is_not_promised(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root = golden("5.1.4-clean")
    (root / "batchconsumequeue/LabBatchCq/0/00000000000000000000").unlink()  # nothing shows now how long they are
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 13
    asked = " ".join(rmqctl("doctor", root).stdout.split())
    assert "A repair gives up nothing; --apply is refused: no batch queue file shows how long" in asked
    assert "mends all of it" not in asked
    assert json.loads(rmqctl("doctor", root, "-o", "json").stdout)["repair"]["refusal"].endswith("13,800,000 bytes")
    shown = rmqctl("repair", root)
    assert "add --apply" not in shown.stderr
    assert "nothing was written, and --apply is refused: no batch queue file" in shown.stderr


def test_a_repair_that_does_nothing_is_not_what_comes_next(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = stores.unpack("4.3.1-clean", tmp_path)
    shutil.rmtree(root / "__cluster_metadata-0")
    told = rmqctl("doctor", root).stdout
    assert "A repair can do nothing" in told
    assert "Next: rmqctl explain metadata.missing-log\n" in told
    assert f"rmqctl repair {root}" not in told


def test_what_is_no_store_is_an_error(rmqctl: Rmqctl, tmp_path: Path) -> None:
    assert rmqctl("doctor", tmp_path).exit_code == 11
    assert rmqctl(tmp_path).exit_code == 11


def test_a_large_log_is_looked_at_less(
    rmqctl: Rmqctl, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqctl import doctor

    root = golden("5.5.0-clean")
    monkeypatch.setattr(doctor, "LEVELS", ((1, "full"), (1 << 30, "structure")))
    text = " ".join(rmqctl("doctor", root).stdout.split())
    assert "Nothing is wrong as far as level structure looks." in text
    assert "Not looked at: the bodies of messages." in text
    assert f"Next: rmqctl verify {root}" in text


def test_what_cannot_be_asked_is_no_all_clear(
    rmqctl: Rmqctl, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(self: RocketMQStore, **_: object) -> NoReturn:
        raise TooDamaged("config/consumerOffset.json", "it is no JSON")

    monkeypatch.setattr(RocketMQStore, "lag", damaged)
    done = rmqctl("doctor", golden("5.5.0-clean"))
    assert done.exit_code == 1
    assert "Not looked at: lag: config/consumerOffset.json" in " ".join(done.stdout.split())
    assert "Nothing is wrong" not in done.stdout


def test_other_verbs_say_the_cost_of_an_incident_first(
    rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cut, hole = incidents.make("R7", tmp_path / "cut"), incidents.make("R8", tmp_path / "hole")
    lines = rmqctl("recover", cut).stdout.splitlines()
    assert lines[1:3] == ["  starts", "  LOSES 479 messages, 181,776 bytes:"]
    assert "  and 21 more (--all)" in lines
    every = rmqctl("recover", cut, "--all").stdout.splitlines()
    assert len([line for line in every if line.startswith(("  deletes ", "  cuts "))]) == 24
    assert "step 1  log.bad-record  14 messages of LabOrders in 4 queues" in rmqctl("repair", hole).stdout.splitlines()
    text = " ".join(rmqctl("verify", hole).stdout.split())
    assert "At stake: at least 14 messages of LabOrders (offsets: LabOrders/0 68 to 73, LabOrders/1 60 to 62" in text
    assert "After a kill it cuts the log and loses 560 messages: LabLog 318" in text
    (hole / "abort").write_bytes(b"")
    after = json.loads(rmqctl("recover", hole, "-o", "json").stdout)
    assert after["lost"]["messages"] == 560
