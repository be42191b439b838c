"""Repairs of log directories: what brokers were started on is mended, nothing sound is lost, and all can be taken back."""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.kafka.coordinator_messages import TRANSACTION_KEY, TRANSACTION_VALUE, TransactionStatus
from formats.kafka.messages import encode
from formats.kafka.metadata_messages import METADATA_RECORDS, frame
from rmqctl.kafka.directory.directory import LogDirectories
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.kafka.repair.survey import Survey
from rmqctl.kafka.state.internal_topics import transactions
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from rmqctl.repair import apply, undo
from tests.conftest import Rmqctl
from tests.kafka.batches import batch, record
from tests.kafka.repair.judged import (
    LEFT,
    NOTHING,
    OTHER_ID,
    RELEASES,
    Verdict,
    batches,
    damaged,
    documented,
    judge,
    opened,
    undamaged,
    variants,
)
from tests.repair.stores import state_of

FEW = ("crash/zero-hole-64", "crash/middle-log-deleted", "crash/only-swap-of-older")
RELEASE = Release(3, 9, 2)


def cases() -> list[object]:
    found = list[object]()
    for release in RELEASES:
        for variant in variants(release):
            is_slow = release != "3.9.2" or variant not in FEW
            found.append(pytest.param(release, variant, marks=[pytest.mark.slow] if is_slow else []))
    return found


@pytest.mark.parametrize(("release", "variant"), cases())
def test_what_brokers_were_started_on_is_mended(release: str, variant: str, tmp_path: Path) -> None:
    found = judge(release, variant, tmp_path)
    if variant.endswith(OTHER_ID):
        assert found.errors == LEFT
        assert_it_is_set_aside(found, variants(release)[variant])
    else:
        assert found.errors == []
        assert not found.repair.refusal, "a broker starts and cuts nothing"
    assert found.lost == 0, "every batch whose own bytes were not destroyed is there"
    assert found.row == documented(release).get(variant, NOTHING), "docs/internals/losses.md says otherwise"


def assert_it_is_set_aside(found: Verdict, recorded: dict[str, Any]) -> None:
    """Hold a plan that leaves an id to what the broker did: it is not the planner's to say whose the records are.

    A topic of this name with that id may have been deleted, and made again under another one, before the metadata log
    was cut off where it begins now.
    """
    (added,) = (name for name in recorded["logdir_entries_added"] if name.endswith("-stray"))
    directory = added.partition(".")[0]
    end = recorded["loaded"][directory]["logEndOffset"]
    assert f"take 1 partition with {end} records of the result out of service, as -stray, the first {directory}:" in (
        found.repair.refusal
    )
    assert [step.file for step in found.repair.left] == [f"{directory}/partition.metadata"]
    assert "so it is not written over; a broker sets the directory aside" in found.repair.left[0].why


def test_the_table_of_losses_is_that_of_the_variants() -> None:
    for release in RELEASES:
        table = documented(release)
        assert len(table) == 63
        assert table.keys() <= variants(release).keys()


def _overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_few_zeros_after_a_segment_in_the_middle_are_bridged(tmp_path: Path) -> None:
    """A broker that recovers the segment cuts them and deletes all segments after it."""
    root = golden.unpack("4.3.1-crash", tmp_path)
    partition = root / "txn-a-0"
    middle, after = sorted(partition.glob("*.log"))[-2:]
    last = next(b for b in reversed(golden.truth("4.3.1-crash")) if b.get("file") == f"txn-a-0/{middle.name}")
    middle.write_bytes(middle.read_bytes()[: last["position"]] + bytes(3))
    staged = tmp_path / "staged"
    staged.mkdir()
    found = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), staged)
    assert not found.refusal
    apply(found.plan, lock=".lock")
    assert {f.kind.id for f in found.after} <= {"transaction.open"}
    assert after.read_bytes()
    assert recover(Replicas(LogDirectories([opened(root)])), Release(4, 3, 1)).is_harmless


def test_the_room_of_a_growing_index_that_ends_inside_an_entry_is_mended(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-crash", tmp_path)
    index = next(root.glob("empty-topic-0/*.index"))
    index.write_bytes(bytes(9612))
    staged = tmp_path / "staged"
    staged.mkdir()
    found = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), staged)
    assert [step.id for step in found.plan.steps] == ["offset-index.size"]
    assert not found.after


def test_undo_gives_back_every_byte_and_time(tmp_path: Path) -> None:
    root = damaged("3.9.2", "crash/zero-insert-200-between-batches", tmp_path)
    _overwrite(root / "txn-a-0/00000000000000000103.log", 600, bytes(300))
    (root / "plain-none-0/leader-epoch-checkpoint").write_text("garbage")
    (root / "lost+found").mkdir()
    before = state_of(root)
    staged = tmp_path / "staged"
    staged.mkdir()
    found = plan_repair(opened(root), RepairOptions(RELEASE), staged)
    done = apply(found.plan, lock=".lock")
    assert not found.refusal
    assert {f.kind.id for f in found.after} == set()
    start = recover(Replicas(LogDirectories([opened(root)])), RELEASE)
    assert start.is_harmless
    assert done.journal is not None
    undo(done.journal)
    assert state_of(root) == before


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_damage_in_derived_files_leaves_the_logs_alone(seed: int, tmp_path: Path) -> None:
    root, draw = golden.unpack("3.9.2-crash", tmp_path), random.Random(seed)
    endings = (".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint", "partition.metadata")
    derived = [p for p in sorted(root.rglob("*")) if p.name.endswith(endings) and p.stat().st_size]
    for path in draw.sample(derived, 40):
        data = bytearray(path.read_bytes())
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(min(len(data), 200))] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(data[: draw.choice([len(data), max(len(data) - draw.randrange(30), 0)])]))
    logs = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in root.rglob("*.log")}
    staged = tmp_path / "staged"
    staged.mkdir()
    apply(plan_repair(opened(root), RepairOptions(RELEASE), staged).plan, lock=".lock")
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in root.rglob("*.log")} == logs


def test_the_bytes_of_a_plan_have_the_names_of_their_fields(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-crash", tmp_path)
    _overwrite(root / "plain-none-0/00000000000000000050.log", 16, b"\1")
    _overwrite(root / "plain-none-0/00000000000000000050.index", 4, b"\1\2\3\4")
    shown = rmqctl("repair", root, "-o", "hex").stdout
    assert "magic: 2" in shown
    assert "position: 16909060 0x4-0x7.4" in shown
    assert "position: 476 0x4-0x7.4" in shown


def test_a_replica_gives_back_what_was_destroyed(tmp_path: Path) -> None:
    root = golden.unpack("3.9.2-crash", tmp_path)
    place = root / "plain-none-0"
    _overwrite(place / "00000000000000000047.log", 300, bytes(700))
    (place / "00000000000000000091.log").unlink()
    staged = tmp_path / "staged"
    staged.mkdir()
    other = Replicas(LogDirectories([opened(golden.pristine("3.9.2-crash"))]))
    found = plan_repair(opened(root), RepairOptions(RELEASE, replicas=(other,)), staged)
    assert sum(step.loses for step in found.plan.steps) == 0
    apply(found.plan, lock=".lock")
    assert batches(opened(root)) == undamaged("3.9.2-crash")
    for log in place.glob("*.log"):
        assert log.read_bytes() == (golden.pristine("3.9.2-crash") / "plain-none-0" / log.name).read_bytes()


def test_a_torn_end_comes_back_from_a_deleted_copy_as_far_as_the_checkpoints_say(
    rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """The torn batch is begun in the log, and a broker cuts nothing below its checkpoints; salvage takes the same."""
    root = golden.unpack("3.9.2-crash", tmp_path)
    log = root / "ooo-ts-0/00000000000000000119.log"
    data, end = log.read_bytes(), opened(root).partition("ooo-ts", 0)
    assert end is not None
    count = int(Survey(end).columns["last_offset"][-1]) + 1
    log.with_name(f"{log.name}.deleted").write_bytes(data)
    log.write_bytes(data[:526])
    staged = tmp_path / "staged"
    staged.mkdir()
    found = plan_repair(opened(root), RepairOptions(RELEASE), staged)
    copy = f"ooo-ts-0/{log.name}.deleted"
    assert [step.what for step in found.plan.steps] == [
        f"restore bytes 271 to 526 from {copy}",
        f"end the log at offset {count}: 34 offsets from {copy}",
    ]
    assert found.books is not None
    assert found.books.balances
    assert not found.books.given_up
    aside = tmp_path / "aside" / "ooo-ts-0"
    aside.mkdir(parents=True)
    shutil.copy(log.with_name(f"{log.name}.deleted"), aside / log.name)
    assert rmqctl("salvage", root, aside.parent, tmp_path / "made").exit_code in {0, 1}
    saved = opened(tmp_path / "made").partition("ooo-ts", 0)
    assert saved is not None
    assert int(Survey(saved).columns["last_offset"][-1]) + 1 == count


def test_another_history_is_no_replica(tmp_path: Path) -> None:
    root = golden.unpack("3.9.2-crash", tmp_path)
    _overwrite(root / "plain-none-0/00000000000000000047.log", 300, bytes(700))
    staged = tmp_path / "staged"
    staged.mkdir()
    other = Replicas(LogDirectories([opened(golden.pristine("4.3.1-crash"))]))
    found = plan_repair(opened(root), RepairOptions(RELEASE, replicas=(other,)), staged)
    assert not any("restore" in step.what for step in found.plan.steps)


def test_a_hanging_transaction_is_ended_on_request(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("3.9.2-crash", tmp_path)

    def rows(*line: object) -> list[dict[str, Any]]:
        return [json.loads(text) for text in rmqctl(*line, "-o", "jsonl").stdout.splitlines()]

    shown = rows("producers", root, "txn-a/0")
    hanging = next(row for row in shown if row["current_txn_first_offset"] >= 0)
    wanted = f"txn-a-0:{hanging['producer_id']}"
    end = {row["partition"]: row for row in rows("topics", root, "--topic", "txn-a")}[0]
    assert rmqctl("repair", root, "--abort-transaction", wanted, "--apply").exit_code == 0
    after = rows("producers", root, "txn-a/0")
    row = next(row for row in after if row["producer_id"] == hanging["producer_id"])
    assert row["current_txn_first_offset"] == -1
    now = {row["partition"]: row for row in rows("topics", root, "--topic", "txn-a")}[0]
    assert now["log_end_offset"] == end["log_end_offset"] + 1
    assert rmqctl("verify", root).exit_code == 0
    assert rmqctl("repair", root, "--abort-transaction", wanted).exit_code == 13, "it is ended already"
    assert rmqctl("repair", root, "--abort-transaction", "txn-a-0").exit_code == 2


@pytest.mark.parametrize("is_there", [False, True])
def test_a_hanging_transaction_is_ended_in_each_of_its_partitions(
    is_there: bool, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    root = golden.unpack("3.9.2-clean", tmp_path)
    index = root / "__consumer_offsets-0" / "00000000000000000000.txnindex"
    if is_there:
        index.touch()
    assert "never ended" in rmqctl("doctor", root).stdout
    places = [f"{name}:1008" for name in ("txn-a-0", "txn-a-1", "__consumer_offsets-0")]
    options = [word for place in places for word in ("--abort-transaction", place)]
    done = rmqctl("repair", root, *options, "--apply")
    assert done.exit_code == 0
    assert "3 transactions changed" in done.stdout
    assert struct.unpack(">hqqqq", index.read_bytes()) == (0, 1008, 5, 7, 8), "brokers index every abort"
    assert rmqctl("verify", root).exit_code == 0
    assert rmqctl("doctor", root).stdout.startswith("Nothing is wrong.")


HANGING = 2003
"""The producer of tx-hang-2, in golden directories."""


def noted(status: TransactionStatus, partitions: tuple[str, ...] = ("txn-a-0",), **fields: int) -> bytes:
    """A batch of ``__transaction_state`` for the end of its log: a state of tx-hang-2."""
    names = {name.rpartition("-")[0] for name in partitions}
    value = {
        "producerId": HANGING, "producerEpoch": 0, "transactionTimeoutMs": 900_000, "transactionStatus": int(status),
        "transactionPartitions": [
            {"topic": t, "partitionIds": [int(p.rpartition("-")[2]) for p in partitions if p.startswith(f"{t}-")]}
            for t in sorted(names)
        ] or None,
        "transactionLastUpdateTimestampMs": LATER, "transactionStartTimestampMs": LATER - 50, **fields,
    }  # fmt: skip
    key = b"\0\0" + encode(TRANSACTION_KEY, 0, {"transactionalId": "tx-hang-2"})
    version = int("clientTransactionVersion" in fields)
    return record(0, key, bytes([0, version]) + encode(TRANSACTION_VALUE, version, value))


LATER = 1795229999999
DONE = (TransactionStatus.CompleteCommit, ())


@pytest.mark.parametrize(
    ("states", "exit_code", "told"),
    [
        ([], 1, "the coordinator of tx-hang-2 has it open: should the producer come back and commit"),
        ([(TransactionStatus.PrepareCommit,)], 13, "a broker that starts writes its COMMIT marker"),
        ([(TransactionStatus.PrepareCommit,), DONE], 13, "only its marker is missing here"),
        ([(TransactionStatus.PrepareAbort,)], 1, "has aborted it, too"),
        ([(TransactionStatus.PrepareCommit, ("txn-b-0",))], 13, "the coordinator of tx-hang-2 has committed it"),
        ([(TransactionStatus.Empty, (), 3)], 1, "has fenced the producer, so that it cannot commit it"),
    ],
)
def test_no_transaction_is_aborted_that_its_coordinator_has_committed(
    states: list[Any], exit_code: int, told: str, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    root = golden.unpack("3.9.2-crash", tmp_path)
    log = next(log for log in replicas(root).of("__transaction_state") if "tx-hang-2" in transactions([log]))
    path = max((root / log.partition.directory).glob("*.log"))
    end = log.replayed.log_end_offset
    for number, (status, *more) in enumerate(states):
        fields = {"producerEpoch": more[1]} if len(more) > 1 else {}
        made = noted(status, *more[:1], **fields)
        with path.open("ab") as file:
            file.write(batch(end + number, [made], partition_leader_epoch=4))
    found = rmqctl("repair", root, "--abort-transaction", f"txn-a-0:{HANGING}", "-o", "json")
    assert found.exit_code == exit_code
    assert told in " ".join(found.output.split())


def _state(status: str, at: int, *partitions: str, **fields: int) -> bytes:
    times = {"transactionLastUpdateTimestampMs": LATER + at, "transactionStartTimestampMs": LATER + at}
    return noted(TransactionStatus[status], partitions, **times, **fields)


HERE = "txn-a-0"
FIRST = [_state("PrepareCommit", 0, HERE), _state("CompleteCommit", 1)]
SECOND = [*FIRST, _state("Ongoing", 1000, HERE), _state("PrepareCommit", 1001, HERE)]
OWN_EPOCHS = {"producerEpoch": 1, "clientTransactionVersion": 2}


@pytest.mark.parametrize(
    ("states", "marked", "epochs", "exit_code", "told"),
    [
        (SECOND, 2000, (0, 0), 13, "a broker that starts writes its COMMIT marker"),
        ([*SECOND, _state("CompleteCommit", 1002)], 2000, (0, 0), 13, "kafka-transactions.sh abort where the brokers run"),
        (FIRST, -50, (0, 0), 1, "what is open was written after it"),
        (
            [*SECOND[:3], _state("PrepareCommit", 1001, HERE, **OWN_EPOCHS), _state("CompleteCommit", 1002, **OWN_EPOCHS)],
            -50, (1, 1), 1, "what is open was written after it",
        ),
        ([*SECOND, _state("CompleteCommit", 1002)], -50, (1, 0), 1, "what is open was written after it"),
    ],
)  # fmt: skip
def test_clocks_of_two_brokers_do_not_say_what_a_commit_was_of(
    states: list[bytes], marked: int, epochs: tuple[int, int], exit_code: int, told: str, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    root = golden.unpack("3.9.2-crash", tmp_path)
    found = replicas(root)
    log = next(log for log in found.of("__transaction_state") if "tx-hang-2" in transactions([log]))
    data = next(log for log in found.served if log.partition.label == HERE)
    end, last = log.replayed.log_end_offset, data.replayed.log_end_offset
    with max((root / log.partition.directory).glob("*.log")).open("ab") as file:
        for number, made in enumerate(states):
            file.write(batch(end + number, [made], partition_leader_epoch=4))
    one: dict[str, Any] = {"producer_id": HANGING, "partition_leader_epoch": int(data.replayed.epochs[-1][0])}
    with max((root / data.partition.directory).glob("*.log")).open("ab") as file:
        for number, (made, attributes, time, epoch) in enumerate([
            (record(0, b"\0\0\0\1", b"\0\0\0\0\0\4"), 0x30, LATER + marked, epochs[0]),
            (record(0, b"k", b"late"), 0x10, LATER + 1000, epochs[1]),
        ]):  # fmt: skip
            times = {"base_timestamp": time, "max_timestamp": time}
            file.write(batch(last + number, [made], attributes=attributes, producer_epoch=epoch, **times, **one))
    done = rmqctl("repair", root, "--abort-transaction", f"{HERE}:{HANGING}", "-o", "json")
    assert (done.exit_code, told in " ".join(done.output.split())) == (exit_code, True), done.output


def ends(root: Path) -> dict[tuple[str, int], int]:
    return {
        (log.partition.topic, log.partition.partition or 0): log.replayed.log_end_offset
        for log in replicas(root).served
    }


def replicas(root: Path) -> Replicas:
    return Replicas(LogDirectories([opened(root)]))


def test_no_offset_is_given_twice_where_the_end_of_a_log_was_lost(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    before = ends(root)
    last = max((root / "plain-none-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-100])  # its last batch is torn
    for path in (root / "txn-a-0").glob(f"{max((root / 'txn-a-0').glob('*.log')).stem}.*"):
        path.unlink()  # its last segment is gone, without a trace but the checkpoints
    rmqctl("repair", root, "--apply")
    assert ends(root) == before
    assert recover(replicas(root), Release(4, 3, 1)).is_harmless
    assert rmqctl("verify", root).exit_code in {0, 1}


@pytest.mark.parametrize(("ending", "later"), [(".deleted", ""), (".cleaned", "9 123"), (".deleted", "gone")])
def test_the_end_of_a_log_comes_back_from_a_file_that_a_broker_left_over(
    ending: str, later: str, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """Only of the leader epoch that the log had there: what an earlier leader had at an offset is another record."""
    root = golden.unpack("3.9.2-clean", tmp_path)
    log = root / f"plain-none-1/{92:020d}.log"
    whole = log.read_bytes()
    log.with_name(log.name + ending).write_bytes(whole)
    log.write_bytes(whole[:1658] + b"damage" + whole[1664:1763])  # a whole batch is damaged, and the last one torn
    epochs = root / "plain-none-1/leader-epoch-checkpoint"
    version, count, *entries = epochs.read_text().split("\n")
    if later == "gone":
        epochs.unlink()
    elif later:
        epochs.write_text("\n".join([version, str(int(count) + 1), *entries[:-1], later, ""]))
    made = rmqctl("repair", root, "--apply", "-o", "json")
    assert made.exit_code == 0, made.output
    (step,) = (step for step in json.loads(made.stdout)["steps"] if step["id"] == "checkpoint.beyond-end")
    source = f"from plain-none-1/{log.name}{ending}"
    assert (
        step["what"]
        == "end the log at offset 127"
        + {
            "": f": 8 offsets {source}",
            "9 123": f": 4 offsets {source}, empty batches for the others",
            "gone": " with an empty batch for 119 to 126",
        }[later]
    )
    loses = sum(step["loses"] for step in json.loads(made.stdout)["steps"])
    assert loses == {"": 0, "9 123": 4, "gone": 8}[later], "what comes back is not given up, and what does not is"
    assert later or log.read_bytes() == whole
    assert ends(root)["plain-none", 1] == 127


def test_a_log_of_which_only_left_over_files_are_there_comes_back(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-crash", tmp_path)
    (log,) = (root / "default-geom-0").glob("*.log")
    whole = log.read_bytes()
    log.rename(f"{log}.deleted")
    assert "directory.lost-log" in rmqctl("verify", root, "-o", "jsonl").stdout
    other = tmp_path / "other"
    golden.copy_tree(root, other)
    (other / "default-geom-0/leader-epoch-checkpoint").write_text("0\n2\n0 0\n4 3\n")
    assert rmqctl("repair", root, "--apply", "-o", "json").exit_code == 0
    assert log.read_bytes() == whole
    rmqctl("repair", other, "--apply", "-o", "json")
    assert not list((other / "default-geom-0").glob("*.log")), "another leader wrote there later"


def test_a_wrong_checkpoint_moves_no_end(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    before, path = ends(root), root / "replication-offset-checkpoint"
    path.write_text(path.read_text().replace("plain-none 0 ", "plain-none 0 9"))
    rmqctl("repair", root, "--apply")
    assert ends(root) == before
    assert "plain-none 0 9" not in path.read_text()


def test_a_first_segment_without_bytes_is_found_and_comes_back_from_a_replica(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-crash", tmp_path)
    first = min((root / "plain-none-0").glob("*.log"))
    data = first.read_bytes()
    first.write_bytes(b"")
    assert "segment.emptied" in rmqctl("verify", root, "-o", "jsonl").stdout
    rmqctl("repair", root, "--apply", "--from", golden.pristine("4.3.1-crash"))
    assert first.read_bytes() == data
    first.unlink()
    assert "segment.missing" in rmqctl("verify", root, "-o", "jsonl").stdout
    rmqctl("repair", root, "--apply")
    assert ends(root)["plain-none", 0] == ends(golden.pristine("4.3.1-crash"))["plain-none", 0]
    assert replicas(root).find("plain-none", 0).log_start_offset == 0  # type: ignore[union-attr]


def test_an_empty_segment_of_a_log_that_looks_compacted_is_a_warning(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Compaction leaves such segments and missing offsets between batches; nothing here says whether it ran."""
    log = tmp_path / "c-0"
    log.mkdir()
    (log / f"{0:020d}.log").touch()
    batches = (batch(base, [record(0, None, b"v")], partition_leader_epoch=0) for base in (100, 104, 110))
    (log / f"{100:020d}.log").write_bytes(b"".join(batches))
    found = [json.loads(line) for line in rmqctl("verify", log, "-o", "jsonl").stdout.splitlines()]
    severities = {row["severity"] for row in found if row.get("id") == "segment.emptied"}
    assert severities == {"warning"}


def test_destroyed_metadata_is_bridged_and_what_is_here_made_again(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Offsets 96 to 101 make a topic and two partitions, 245 is a heartbeat of the controller."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    for path in (root / "__cluster_metadata-0").glob("*.checkpoint"):
        path.unlink()
    before, survey = replicas(root).image, Survey(opened(root).metadata_log)  # type: ignore[arg-type]
    assert before is not None
    for lost in (survey.batch(20), survey.batch(56)):
        _overwrite(root / survey.files[0].name, lost.position, bytes(lost.size))
    assert rmqctl("repair", root, "--apply").exit_code == 0
    after = replicas(root).image
    assert after is not None
    assert (after.topics, after.partitions.keys(), after.offset) == (
        before.topics,
        before.partitions.keys(),
        before.offset,
    )
    assert after.problems == []
    found = recover(replicas(root), Release(4, 3, 1))
    assert found.is_harmless
    assert not any(partition.is_stray for partition in found.partitions)


def test_a_base_offset_that_claims_millions_of_metadata_records_is_left(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Base offsets lie outside the CRC: whatever later batches say, no such number of records is made."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    survey = Survey(opened(root).metadata_log)  # type: ignore[arg-type]
    log = root / survey.files[0].name
    first = survey.batch(20)
    _overwrite(log, first.position, bytes(first.size))
    for row in range(21, len(survey)):
        moved = survey.batch(row)
        _overwrite(log, moved.position, (moved.base_offset + 20_000_000).to_bytes(8, "big"))
    plan = rmqctl("repair", root, "-o", "json").stdout
    assert "are too many to fill with records; restore it with --from another controller" in plan


def test_metadata_that_other_controllers_have_is_not_bridged(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, sound = golden.unpack("4.3.1-clean", tmp_path), golden.pristine("4.3.1-clean")
    log = root / "__cluster_metadata-0/00000000000000000000.log"
    for path in log.parent.glob("*.checkpoint"):
        path.unlink()
    survey = Survey(opened(root).metadata_log)  # type: ignore[arg-type]
    message = next(m for m in METADATA_RECORDS.values() if m.name == "RegisterControllerRecord")
    zero = "AAAAAAAAAAAAAAAAAAAAAA"
    values = {"controllerId": 2, "incarnationId": zero, "zkMigrationReady": False, "endPoints": [], "features": []}
    first = survey.batch(20)
    _overwrite(log, first.position, bytes(first.size))
    data = log.read_bytes()
    last = survey.batch(len(survey) - 1)
    value = frame(message, 0, encode(message, 0, values))
    log.write_bytes(
        data[: last.end] + batch(last.last_offset + 1, [record(0, None, value)], partition_leader_epoch=last.epoch)
    )
    left = rmqctl("repair", root, "-o", "json").stdout
    assert "with records that change nothing" not in left
    assert rmqctl("repair", root, "--apply", "--from", sound).exit_code in {0, 1}
    assert log.read_bytes()[: last.end] == (sound / log.relative_to(root)).read_bytes()[: last.end]


def test_a_damaged_snapshot_goes_where_the_metadata_log_has_all_of_it(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    before = replicas(root).image
    assert before is not None
    assert before.snapshot is not None
    _overwrite(root / before.snapshot, 300, b"\xa5")
    assert "metadata.replay" in rmqctl("verify", root, "-o", "jsonl").stdout
    assert rmqctl("repair", root, "--apply").exit_code == 0
    after = replicas(root).image
    assert after is not None
    assert (after.problems, after.topics, after.offset) == ([], before.topics, before.offset)
    assert after.snapshot != before.snapshot


def test_what_a_broker_reads_beside_logs_is_made_again(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """The id of the metadata log, that of a directory, and files of a partition that waits to be deleted."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    (root / "__cluster_metadata-0/partition.metadata").write_text("garbage")
    identity = root / "meta.properties"
    identity.write_text(identity.read_text().replace("directory.id=", "directory.id=&"))
    waiting = min(root.glob("goner-0.*-delete"))
    (waiting / "partition.metadata").write_text("garbage")
    (waiting / "leader-epoch-checkpoint").write_text("garbage")
    (waiting / "abc.log").touch()
    assert not recover(replicas(root), Release(4, 3, 1)).starts
    sound = {path: path.read_bytes() for path in root.rglob("*.log")}
    assert rmqctl("repair", root, "--apply").exit_code == 0
    assert recover(replicas(root), Release(4, 3, 1)).is_harmless
    assert (root / "__cluster_metadata-0/partition.metadata").read_text().endswith("topic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert all(path.read_bytes() == data for path, data in sound.items() if path.exists())
    assert {path.name for path in sound if not path.exists()} == {"abc.log"}


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint", "abc.log"])
def test_a_directory_that_waits_to_be_deleted_can_keep_a_broker_from_starting(name: str, tmp_path: Path) -> None:
    """Released brokers do not start on any of these."""
    root = golden.unpack("4.3.1-crash", tmp_path)
    (min(root.glob("goner-0.*-delete")) / name).write_text("garbage")
    assert not recover(replicas(root), Release(4, 3, 1)).starts


@pytest.mark.parametrize("keeps_directory", [False, True])
def test_a_partition_that_is_gone_comes_back_from_a_replica(
    keeps_directory: bool, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """All of it: segments that a replica has with damage are mended, and producers are known as before."""
    root, other = golden.unpack("4.3.1-clean", tmp_path), golden.unpack("4.3.1-clean", tmp_path / "other")
    producers = rmqctl("producers", root, "idem/0", "-o", "jsonl").stdout
    data = {path: path.read_bytes() for path in (root / "idem-0").glob("*.log")}
    before = {path for path in root.rglob("*") if path.is_file() and path.parent.name != "idem-0"}
    shutil.rmtree(root / "idem-0")
    if keeps_directory:
        (root / "idem-0").mkdir()
    first = min((other / "idem-0").glob("*.log"))
    _overwrite(first, 40, bytes([first.read_bytes()[40] ^ 4]))
    plan = rmqctl("repair", root, "-o", "json").stdout
    assert [row["file"] for row in json.loads(plan)["left"] if "--from REPLICA" in row["why"]] == ["idem-0/"]
    assert "idem-0 has offset 132" in plan
    assert rmqctl("repair", root, "--apply", "--from", other).exit_code == 0
    assert {path: path.read_bytes() for path in (root / "idem-0").glob("*.log")} == data
    assert rmqctl("producers", root, "idem/0", "-o", "jsonl").stdout == producers
    assert recover(replicas(root), Release(4, 3, 1)).is_harmless
    assert rmqctl("undo", root).exit_code == 0
    assert {path for path in root.rglob("*") if path.is_file()} == before


def test_producers_are_not_forgotten_where_all_snapshots_are_gone(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    end = max((root / "txn-a-0").glob("*.snapshot"))
    data = end.read_bytes()
    for path in (root / "txn-a-0").glob("*.snapshot"):
        path.unlink()
    assert rmqctl("repair", root, "--apply").exit_code == 0
    assert end.read_bytes() == data


def test_directories_that_no_broker_serves_never_stop_a_plan(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Files that are gone or damaged in -delete, -stray and -future directories: the rest is mended, a broker starts."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    for state in ("delete", "stray", "future"):
        aside = root / f"txn-a-0.{'ab' * 16}-{state}"
        shutil.copytree(root / "txn-a-0", aside)
        max(aside.glob("*.txnindex")).unlink(missing_ok=True)
        (aside / "partition.metadata").write_text("garbage")
        (aside / "leader-epoch-checkpoint").write_text("garbage")
        _overwrite(min(aside.glob("*.log")), 100, bytes(50))
        max(aside.glob("*.log")).write_bytes(b"garbage")
    log = min((root / "plain-none-0").glob("*.log"))
    sound = log.read_bytes()
    _overwrite(log, 100, bytes([sound[100] ^ 1]))
    done = rmqctl("repair", root, "--apply", "-o", "json")
    left = json.loads(done.stdout[: done.stdout.rindex("}") + 1])["left"]
    assert {row["file"].rpartition("-")[2] for row in left} == {"delete/", "stray/", "future/"}
    assert log.read_bytes() == sound
    assert recover(replicas(root), Release(4, 3, 1)).starts


def test_the_id_of_a_topic_comes_from_a_replica(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """A second log directory of a broker has no metadata log."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    shutil.rmtree(root / "__cluster_metadata-0")
    path = root / "idem-0/partition.metadata"
    data = path.read_bytes()
    path.write_text("garbage")
    for other in root.glob("idem-[1-9]*"):
        shutil.rmtree(other)
    (left,) = json.loads(rmqctl("repair", root, "-o", "json").stdout)["left"]
    assert (left["file"], "--from" in left["why"]) == ("idem-0/partition.metadata", True)
    rmqctl("repair", root, "--apply", "--from", golden.pristine("4.3.1-clean"))
    assert path.read_bytes() == data
    found = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    assert {row["id"] for row in found if row["severity"] != "note"} == {"metadata.missing-log"}


def test_partitions_stay_where_only_a_snapshot_that_says_nothing_denied_them(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("3.9.2-clean", tmp_path)
    snapshot = root / "__cluster_metadata-0/00000000000000000392-0000000002.checkpoint"
    snapshot.write_bytes(b"")
    here = {path.name for path in root.iterdir()}
    done = rmqctl("repair", root, "-o", "json")
    assert [step["file"] for step in json.loads(done.stdout)["steps"]] == [str(snapshot.relative_to(root))]
    assert rmqctl("repair", root, "--apply").exit_code == 0
    assert {path.name for path in root.iterdir()} == here
    assert rmqctl("recover", root).exit_code == 0
