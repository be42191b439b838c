"""Which replica may lead: what each choice loses, against histories of clusters in which it is known what was acknowledged."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures import golden
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.replication.copies import Copy, EpochChain, copy_of
from rmqctl.kafka.replication.elect import Disk, follow
from rmqctl.kafka.store import KafkaStore
from rmqctl.opening import open_store
from rmqctl.release import Release
from tests.conftest import Rmqctl
from tests.kafka.batches import batch, message, record
from tests.kafka.salvage.salvage_helpers import one, partition

NO_PARTITION = "found directory lost+found, which is not in the form of topic-partition"


def elect(*roots: Path) -> dict[str, Any]:
    stores = [open_store(str(root)) for root in roots]
    answer = stores[0].elect(stores[1:])
    assert answer.document is not None
    found = json.loads(json.dumps(answer.document()))
    return {**found["logs"][0], "is_no": answer.is_no} if found["logs"] else found


def lost(found: dict[str, Any]) -> list[int]:
    return [choice["lost"]["records"] for choice in found["choices"]]


def test_replica_that_lags_loses_what_it_has_not(tmp_path: Path, rmqctl: Rmqctl) -> None:
    a = partition(tmp_path / "a", "t-0", [one(0), one(2)])
    b = partition(tmp_path / "b", "t-0", [one(0), one(2), one(4), one(6)])
    found = elect(a, b)
    assert (lost(found), found["best"], found["no_loss"], found["is_no"]) == ([4, 0], str(b), True, False)
    assert found["choices"][0]["lost"]["offsets"] == [[4, 7]]
    (relation,) = found["relations"]
    assert (relation["common_end"], relation["first_divergence"]) == (4, 4)
    assert (relation["only_a"]["records"], relation["only_b"]["records"], relation["different"]) == (0, 4, 0)
    assert rmqctl("elect", a, b).exit_code == 0
    done = rmqctl("elect", a, b, "-o", "jsonl")
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == [
        "relation", "choice", "choice", "verdict", "summary",
    ]  # fmt: skip


def test_a_disk_on_which_no_broker_starts_leads_nothing(tmp_path: Path) -> None:
    roots = [golden.unpack("4.3.1-clean", tmp_path / name) for name in "ab"]
    (roots[0] / "lost+found").mkdir()
    stores = [open_store(str(root)) for root in roots]
    answer = stores[0].elect(stores[1:])
    assert answer.document is not None
    for log in answer.document()["logs"]:
        refused, other = log["choices"]
        assert refused["error"] == f"a 4.3.1 broker does not start on {roots[0]}: {NO_PARTITION}"
        assert (refused["no_loss"], other["error"], log["best"]) == (False, None, str(roots[1]))


def test_later_epoch_wins_over_a_longer_log(tmp_path: Path) -> None:
    old = partition(tmp_path / "old", "t-0", [one(0), one(2), one(4), one(6)], "0\n1\n0 0\n")
    new = partition(tmp_path / "new", "t-0", [one(0), one(2), one(4, epoch=3, text=b"n")], "0\n2\n0 0\n3 4\n")
    found = elect(old, new)
    assert (lost(found), found["best"], found["is_no"]) == ([2, 0], str(new), False)
    assert found["choices"][1]["superseded"]["records"] == 4
    assert found["relations"][0]["common_end"] == 4
    assert found["relations"][0]["different"] == 0


def test_what_was_committed_and_overwritten_is_lost_with_the_later_epoch_too(tmp_path: Path) -> None:
    old = partition(tmp_path / "old", "t-0", [one(0), one(2), one(4), one(6)])
    (old / "replication-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    new = partition(tmp_path / "new", "t-0", [one(0), one(2), one(4, epoch=3, text=b"n")])
    found = elect(old, new)
    assert (lost(found), found["is_no"], found["salvage"]) == ([2, 2], True, False)
    assert found["choices"][1]["lost_committed"] == 2


def test_each_lacks_what_the_other_has_and_salvage_gives_both(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole = [one(at, text=b"%d" % at) for at in range(0, 12, 2)]
    torn = bytearray(whole[1])
    torn[65] ^= 1
    a = partition(tmp_path / "a", "t-0", [whole[0], bytes(torn), *whole[2:]])
    b = partition(tmp_path / "b", "t-0", whole[:4])
    found = elect(a, b)
    assert (lost(found), found["is_no"], found["salvage"]) == ([10, 4], True, True)
    done = rmqctl("elect", a, b)
    assert done.exit_code == 1
    assert f"rmqctl salvage {a} {b} INTO" in " ".join(done.stdout.split())
    assert rmqctl("salvage", a, b, tmp_path / "into", "--as-release", "4.3.1").exit_code == 1
    assert (tmp_path / f"into/t-0/{0:020d}.log").read_bytes() == b"".join(whole)


def test_epoch_without_a_batch_supersedes_nothing(tmp_path: Path) -> None:
    """B is elected in epoch 1 at offset 4, writes nothing and dies; A goes on in epoch 3."""
    whole = [one(at) for at in range(0, 8, 2)] + [one(8, epoch=3), one(10, epoch=3)]
    a = partition(tmp_path / "a", "t-0", whole, "0\n2\n0 0\n3 8\n")
    b = partition(tmp_path / "b", "t-0", whole[:2], "0\n2\n0 0\n1 4\n")
    found = elect(a, b)
    assert (lost(found), found["best"], found["is_no"]) == ([0, 8], str(a), False)
    assert [choice["superseded"]["records"] for choice in found["choices"]] == [0, 0]
    for number, roots in enumerate(permutations((a, b))):
        into = tmp_path / str(number)
        open_store(str(roots[0])).salvage(into, replicas=[open_store(str(roots[1]))]).prepare()
        assert (into / f"t-0/{0:020d}.log").read_bytes() == b"".join(whole)


def test_log_of_the_last_leader_counts_against_one_that_wrote_in_between(tmp_path: Path) -> None:
    """B leads in epoch 1, and nobody fetches what it writes; A, which has more of epoch 0, leads again in epoch 3."""
    whole = [one(at) for at in range(0, 8, 2)] + [one(8, epoch=3)]
    a = partition(tmp_path / "a", "t-0", whole)
    b = partition(tmp_path / "b", "t-0", [*whole[:2], one(4, epoch=1, text=b"b")])
    found = elect(b, a)
    assert (lost(found), found["best"], found["gone"]) == ([6, 0], str(a), [])
    assert [choice["superseded"]["records"] for choice in found["choices"]] == [0, 2]


def test_what_is_superseded_is_counted_once_and_not_where_the_choice_has_it(tmp_path: Path) -> None:
    old = [one(0), one(2), one(4), one(6)]
    a, b = (partition(tmp_path / name, "t-0", old) for name in "ab")
    c = partition(tmp_path / "c", "t-0", [*old[:2], one(4, epoch=3, text=b"n")])
    found = elect(a, b, c)
    assert [choice["superseded"]["records"] for choice in found["choices"]] == [0, 0, 4]


def watermarked(root: Path, batches: Sequence[bytes], high_watermark: int) -> Path:
    """A log directory whose checkpoint says up to where its partition was committed."""
    partition(root, "t-0", batches)
    (root / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {high_watermark}\n")
    return root


def test_committed_records_that_no_copy_has_are_gone_with_every_choice(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole = [one(at) for at in range(0, 8, 2)]
    a, b = watermarked(tmp_path / "a", whole, 12), watermarked(tmp_path / "b", whole[:3], 10)
    found = elect(a, b)
    assert (found["gone"], found["no_loss"], found["is_no"], found["salvage"]) == ([[8, 11]], False, True, False)
    assert (lost(found), [choice["no_loss"] for choice in found["choices"]]) == ([0, 2], [False, False])
    done = rmqctl("elect", a, b)
    assert done.exit_code == 1
    assert "t-0: offsets 8 to 11 are in no replica any more, with every choice" in " ".join(done.stdout.split())
    assert "nothing is lost" not in done.stdout


@pytest.mark.parametrize("emptied", [0, 4, 8])
def test_segment_that_is_empty_on_every_disk_is_gone(emptied: int, tmp_path: Path) -> None:
    roots = [watermarked(tmp_path / name, [], 12) for name in "ab"]
    for root in roots:
        for base in (0, 4, 8):
            batches = [] if base == emptied else [one(base), one(base + 2)]
            (root / f"t-0/{base:020d}.log").write_bytes(b"".join(batches))
    found = elect(*roots)
    assert (found["gone"], found["no_loss"]) == ([[emptied, emptied + 3]], False)
    (root, _) = roots
    (root / f"t-0/{emptied:020d}.log").write_bytes(one(emptied) + one(emptied + 2))
    found = elect(*roots)
    assert (found["gone"], found["no_loss"], lost(found)) == ([], True, [0, 4])


def test_segments_that_compaction_emptied_are_no_loss(tmp_path: Path) -> None:
    roots = [watermarked(tmp_path / name, [], 12) for name in "ab"]
    for root in roots:
        (root / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 12\n")
        for base in (0, 4, 8, 12):
            (root / f"t-0/{base:020d}.log").write_bytes(one(base) if base == 4 else b"")
    found = elect(*roots)
    assert (found["gone"], found["no_loss"], found["is_no"]) == ([], True, False)


def controllers(room: Path, ends: Sequence[int]) -> list[Path]:
    """Disks of three voters, of each as many records of the metadata log."""
    roots = []
    for node, end in enumerate(ends, 1):
        root = partition(room / str(node), "__cluster_metadata-0", [one(at) for at in range(0, end, 2)])
        (root / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id=AbCdEfGhQxSTU-V_wXyZ01\n")
        roots.append(root)
    return roots


def test_metadata_log_whose_leader_the_first_voters_elect(tmp_path: Path, rmqctl: Rmqctl) -> None:
    roots = controllers(tmp_path / "1", (4, 4, 8))
    found = elect(*roots)
    assert (found["best"], found["no_loss"], found["start_first"]) == (str(roots[2]), False, [str(roots[2])])
    assert [choice["no_loss"] for choice in found["choices"]] == [False, False, True]
    done = rmqctl("elect", *roots)
    said = " ".join(done.stdout.split())
    assert done.exit_code == 1
    assert "the first 2 of 3 voters that are up elect its leader" in said
    assert f"start {roots[2]} first" in said
    found = elect(*controllers(tmp_path / "2", (4, 8, 8)))
    assert (found["no_loss"], found["start_first"], found["is_no"]) == (True, [], False)


def test_topics_of_one_name_and_two_ids_are_two(tmp_path: Path) -> None:
    a = partition(tmp_path / "a", "t-0", [one(0)])
    b = partition(tmp_path / "b", "t-0", [one(0), one(2)])
    for root, topic_id in ((a, "P5_r7Dr8-9Wa9toeWPBNsw"), (b, "GcUx6sMjIXSKFvb9VaNxdQ")):
        (root / "t-0/partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    store = open_store(str(a))
    verdicts = [row for row in store.elect([open_store(str(b))]) if row["kind"] == "verdict"]
    assert [(row["log"], row["no_loss"]) for row in verdicts] == [
        ("t-0 (GcUx6sMjIXSKFvb9VaNxdQ)", True),
        ("t-0 (P5_r7Dr8-9Wa9toeWPBNsw)", True),
    ]


def test_records_that_were_deleted_on_purpose_are_no_loss(tmp_path: Path) -> None:
    whole = [one(at) for at in range(0, 8, 2)]
    a = partition(tmp_path / "a", "t-0", whole)
    b = partition(tmp_path / "b", "t-0", [])
    (b / f"t-0/{0:020d}.log").unlink()
    (b / f"t-0/{4:020d}.log").write_bytes(b"".join(whole[2:]))
    assert lost(elect(a, b)) == [0, 4]
    (b / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    assert lost(elect(a, b)) == [0, 0]


def test_answers_to_offsets_for_leader_epoch() -> None:
    chain = EpochChain([(0, 0), (2, 10), (5, 30), (4, 30)])
    assert chain.entries == [(0, 0), (2, 10), (5, 30)]
    assert [chain.end_of(epoch, 40) for epoch in (0, 1, 2, 4, 5, 9)] == [
        (0, 10), (0, 10), (2, 30), (2, 30), (5, 40), (-1, -1),
    ]  # fmt: skip
    assert chain.end_of(-1, 40) == (-1, -1)
    assert EpochChain([(3, 20)]).end_of(1, 40) == (1, 20)


# --- followers --------------------------------------------------------------------------------------


def copies(*roots: Path) -> list[Copy]:
    """The copies of one partition as brokers have loaded them."""
    found = []
    for root in roots:
        store = open_store(str(root))
        assert isinstance(store, KafkaStore)
        (log,) = store.replicas.served
        loaded = Disk(str(root), store.replicas, recover(store.replicas, Release(4, 3, 1))).loaded(log)
        found.append(copy_of(log, "t-0", loaded=loaded))
    return found


def test_follower_asks_again_where_the_leader_does_not_know_its_epoch(tmp_path: Path) -> None:
    """KIP-279: after two fast elections the epochs of both have holes."""
    mine = [one(0), one(2, epoch=1, text=b"a"), one(4, epoch=3, text=b"b"), one(6, epoch=3, text=b"b")]
    theirs = [one(0), one(2, epoch=2, text=b"c"), one(4, epoch=2, text=b"c")]
    a, b = partition(tmp_path / "a", "t-0", mine), partition(tmp_path / "b", "t-0", theirs)
    found = follow(*copies(a, b))
    assert found.steps == ((3, 2, 6, 4), (1, 0, 2, 2))
    assert (found.cut_to, found.cut.count, found.alone.count) == (2, 6, 6)


def test_copy_without_epochs_cuts_to_its_high_watermark(tmp_path: Path) -> None:
    old = partition(tmp_path / "old", "t-0", [message(at, b"k", b"v") for at in range(6)])
    (old / "replication-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    found = follow(*copies(old, old))
    assert (found.cut_to, found.cut.count, found.alone.count, found.steps) == (4, 2, 0, ())


def stopped(root: Path, batches: Sequence[bytes], epochs: str = "", high_watermark: int = 0) -> Path:
    """A log directory that was stopped in order: its broker checks no batch, and takes its epochs from the checkpoint."""
    partition(root, "t-0", batches, epochs)
    (root / f"t-0/{0:020d}.index").touch()
    (root / ".kafka_cleanshutdown").touch()
    (root / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {high_watermark}\n")
    return root


def test_copy_whose_epoch_checkpoint_is_gone_cuts_to_its_high_watermark(tmp_path: Path) -> None:
    batches = [one(0), one(2), one(4), one(6)]
    whole = stopped(tmp_path / "whole", batches, "0\n1\n0 0\n", 8)
    for number, epochs in enumerate(["", "0\n0\n"]):
        found = follow(*copies(stopped(tmp_path / str(number), batches, epochs, 4), whole))
        assert (found.cut_to, found.cut.count, found.alone.count, found.steps) == (4, 4, 0, ())


def test_epochs_of_a_checkpoint_count_as_a_broker_has_them(tmp_path: Path) -> None:
    batches = [one(0), one(2), one(4, epoch=3), one(6, epoch=3)]
    behind = stopped(tmp_path / "behind", batches, "0\n1\n0 0\n", 8)
    whole = stopped(tmp_path / "whole", batches, "0\n2\n0 0\n3 4\n", 8)
    found = follow(*copies(behind, whole))
    assert (found.steps, found.cut_to, found.cut.count, found.alone.count) == (((0, 0, 4, 4),), 4, 4, 0)


@pytest.mark.parametrize(("epochs", "unknown"), [("0 0\n2 2\n9 6", -1), ("0 0\n9 2", 9)])
def test_follower_with_an_epoch_that_the_leader_does_not_know(epochs: str, unknown: int, tmp_path: Path) -> None:
    """It is refused for ever, unless the entry goes with what it cuts at the end of the leader."""
    batches = [one(0), one(2, epoch=2), one(4, epoch=2), one(6, epoch=2)]
    copy = stopped(tmp_path / "copy", batches, f"0\n{epochs.count(chr(10)) + 1}\n{epochs}\n", 8)
    leader = stopped(tmp_path / "leader", batches[:3], "0\n2\n0 0\n2 2\n", 6)
    found = follow(*copies(copy, leader), last_epoch=4)
    assert (found.steps, found.cut_to, found.unknown_epoch) == (((9, -1, -1, 6),), 6, unknown)
    assert follow(*copies(copy, leader), last_epoch=8).unknown_epoch == -1
    assert follow(*copies(copy, leader)).unknown_epoch == -1


def test_leader_gives_up_epochs_above_the_one_in_which_it_is_elected(tmp_path: Path) -> None:
    batches = [one(0), one(2, epoch=2), one(4, epoch=2)]
    copy = stopped(tmp_path / "copy", batches, "0\n2\n0 0\n2 2\n", 6)
    leader = stopped(tmp_path / "leader", batches[:2], "0\n3\n0 0\n2 2\n9 3\n", 4)
    found = follow(*copies(copy, leader), last_epoch=4)
    assert (found.steps, found.cut_to, found.unknown_epoch) == (((2, 2, 4, 4),), 4, -1)


def test_recover_names_the_partition_that_is_never_in_sync(rmqctl: Rmqctl, tmp_path: Path) -> None:
    roots = [golden.unpack("4.3.1-clean", tmp_path / name) for name in "ab"]
    path = roots[0] / "plain-none-0/leader-epoch-checkpoint"
    assert (
        json.loads(rmqctl("recover", *roots[:1], "--leader", roots[1], "-o", "json").stdout)["leader"]["lost"][
            "records"
        ]
        == 0
    )
    path.write_text("0\n2\n0 0\n64 50\n")
    done = rmqctl("recover", roots[0], "--leader", roots[1], "-o", "json")
    found = json.loads(done.stdout)["leader"]["partitions"]
    assert (done.exit_code, found["plain-none-0"]["unknown_epoch"], found["plain-none-1"]["unknown_epoch"]) == (
        1,
        64,
        None,
    )
    said = " ".join(rmqctl("recover", roots[0], "--leader", roots[1]).stdout.split())
    assert "plain-none-0 knows leader epoch 64" in said
    assert rmqctl("rebuild", roots[0], "--checkpoint", "--topic", "plain-none", "--apply").exit_code == 0
    done = rmqctl("recover", roots[0], "--leader", roots[1], "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["leader"]["partitions"]["plain-none-0"]["cut"]["records"]) == (0, 0)


def test_copy_is_cut_again_where_a_fetch_after_the_cut_meets_another_epoch(tmp_path: Path) -> None:
    batches = [one(0), one(2, epoch=2), one(4, epoch=3)]
    copy = stopped(tmp_path / "copy", batches, "0\n3\n0 0\n2 2\n3 4\n")
    leader = stopped(tmp_path / "leader", [*batches[:2], one(4, epoch=4)], "0\n3\n0 0\n3 2\n4 3\n")
    found = follow(*copies(copy, leader))
    assert found.steps == ((3, 3, 3, 3), (2, 0, 2, 2))
    assert (found.cut_to, found.cut.count) == (2, 4)


def test_batch_whose_leader_epoch_is_damaged_is_not_lost(tmp_path: Path) -> None:
    copy = stopped(tmp_path / "copy", [one(0), one(2, epoch=5)], "0\n2\n0 0\n5 2\n")
    leader = stopped(tmp_path / "leader", [one(0), one(2, epoch=7)], "0\n1\n0 0\n")
    found = follow(*copies(copy, leader))
    assert (found.cut_to, found.cut.count, found.alone.count) == (2, 2, 0)
    assert found.steps == ((5, 0, 4, 2),)


def test_end_of_a_log_after_an_orderly_stop_is_that_of_its_last_batch_sound_or_not(tmp_path: Path) -> None:
    torn = bytearray(one(2))
    torn[-1] ^= 1
    copy = stopped(tmp_path / "copy", [one(0), bytes(torn)], "0\n1\n0 0\n")
    leader = stopped(tmp_path / "leader", [one(0)], "0\n1\n0 0\n")
    found = follow(*copies(copy, leader))
    assert (found.end, found.cut_to, found.cut.count) == (4, 2, 0)
    choices = elect(copy, leader)["choices"]
    assert [choice["log_end_offset"] for choice in choices] == [4, 2]


def test_segments_after_one_that_is_cut_while_it_is_loaded_stay(tmp_path: Path) -> None:
    """A segment without an index is checked by itself: later ones are not dropped."""
    torn = bytearray(one(2))
    torn[-1] ^= 1
    root = stopped(tmp_path / "a", [one(0), bytes(torn)], "0\n1\n0 0\n")
    (root / f"t-0/{0:020d}.index").unlink()
    (root / f"t-0/{4:020d}.log").write_bytes(one(4))
    (root / f"t-0/{4:020d}.index").touch()
    (copy,) = copies(root)
    assert (copy.served.base.tolist(), copy.end) == ([0, 4], 6)


def test_leader_on_which_no_broker_starts_is_named(rmqctl: Rmqctl, tmp_path: Path) -> None:
    a = partition(tmp_path / "a", "t-0", [one(0)])
    b = partition(tmp_path / "b", "t-0", [one(0), one(2)])
    (b / "lost+found").mkdir()
    done = rmqctl("recover", a, "--leader", b, "--as-release", "3.9.2", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["leader"]["partitions"]) == (1, {})
    assert f"a 3.9.2 broker does not start on {b}: {NO_PARTITION}" in " ".join(done.stderr.split())


def test_copy_before_the_first_offset_of_the_leader_begins_again(tmp_path: Path) -> None:
    a = partition(tmp_path / "a", "t-0", [one(0), one(2)])
    b = partition(tmp_path / "b", "t-0", [])
    (b / f"t-0/{0:020d}.log").rename(b / f"t-0/{8:020d}.log")
    (b / f"t-0/{8:020d}.log").write_bytes(one(8))
    found = follow(*copies(a, b))
    assert (found.cut_to, found.cut.count) == (8, 4)


@pytest.mark.parametrize("seed", range(15))
def test_what_a_follower_keeps_is_the_leaders(seed: int, tmp_path: Path) -> None:
    replicas, _ = history(seed)
    roots = [partition(tmp_path / str(n), "t-0", [data for _, _, data in r.log]) for n, r in enumerate(replicas)]
    for a, b in permutations(copies(*roots), 2):
        found = follow(a, b)
        kept = a.batches.take(a.batches.last < found.cut_to)
        assert np.isin(kept.keys(), b.batches.keys()).all()
        cut = a.batches.take(a.batches.last >= found.cut_to)
        if len(a.chain.entries):
            assert not np.isin(cut.keys(), b.batches.keys()).any()


def test_recover_says_what_a_follower_loses(rmqctl: Rmqctl, tmp_path: Path) -> None:
    old = partition(tmp_path / "old", "t-0", [one(0), one(2), one(4), one(6)])
    new = partition(tmp_path / "new", "t-0", [one(0), one(2), one(4, epoch=3, text=b"n")])
    for root in (old, new):  # of the time of ZooKeeper: a KRaft node would lack its metadata log
        (root / "meta.properties").write_text("version=0\nbroker.id=4\ncluster.id=AbCdEfGhQxSTU-V_wXyZ01\n")
    done = rmqctl("recover", old, "--leader", new, "--as-release", "3.9.2", "-o", "json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["lost"]["records"] == 0
    assert found["leader"]["path"] == str(new)
    assert found["leader"]["lost"] == {"records": 4, "bytes": 2 * len(one(0)), "by_topic": {"t": 4}}
    assert found["leader"]["partitions"]["t-0"]["cut_to"] == 4
    assert found["leader"]["partitions"]["t-0"]["lost"]["offsets"] == [[4, 7]]
    assert rmqctl("recover", new, "--leader", old, "--as-release", "3.9.2", "-o", "json").exit_code == 1
    assert rmqctl("recover", old, "--leader", old, "--as-release", "3.9.2").exit_code == 0
    assert "loses 4 records that the leader has not" in rmqctl("recover", old, "--leader", new).stdout.replace(
        "\n", " "
    )
    assert rmqctl("recover", old, "--leader", new, "--compare").exit_code == 2


# --- histories --------------------------------------------------------------------------------------


@dataclass
class Replica:
    """A replica: its batches as (base, epoch, bytes), and how far it knows the log to be committed."""

    log: list[tuple[int, int, bytes]] = field(default_factory=list)
    known: int = 0

    @property
    def end(self) -> int:
        return self.log[-1][0] + 2 if self.log else 0


def history(seed: int) -> tuple[list[Replica], dict[int, bytes]]:
    """Three replicas after leaders came and went, always from those in sync; what was acknowledged, by offset."""
    draw = random.Random(seed)
    replicas, acknowledged = [Replica() for _ in range(3)], dict[int, bytes]()
    in_sync, leader, epoch = {0, 1, 2}, 0, 0
    for _ in range(draw.randrange(5, 40)):
        step = draw.random()
        if step < 0.6:
            append(draw, replicas, leader, epoch, in_sync, acknowledged)
        elif step < 0.75 and len(in_sync) > 2:
            in_sync.discard(draw.choice([r for r in in_sync if r != leader]))
        elif step < 0.9:
            for other in {0, 1, 2} - in_sync:  # cut where the leader's log parts from it, then fetch the rest
                replicas[other].log = list(replicas[leader].log)
                in_sync.add(other)
        elif len(in_sync) >= 2:
            in_sync.discard(leader)
            leader, epoch = draw.choice(sorted(in_sync)), epoch + 1
    return replicas, acknowledged


def append(
    draw: random.Random,
    replicas: list[Replica],
    leader: int,
    epoch: int,
    in_sync: set[int],
    acknowledged: dict[int, bytes],
) -> None:
    """The leader takes a batch; mostly those in sync get it, too, and where there are two it is acknowledged."""
    head = replicas[leader]
    records = [record(i, None, b"%d" % draw.randrange(10**9)) for i in range(2)]
    head.log.append((head.end, epoch, batch(head.end, records, partition_leader_epoch=epoch)))
    if draw.random() > 0.75:
        return
    for other in in_sync:
        replicas[other].log = list(head.log)
    if len(in_sync) >= 2:
        acknowledged |= {base: data for base, _, data in head.log}
        for other in in_sync:
            replicas[other].known = draw.choice([replicas[other].known, head.end])


@pytest.mark.parametrize("seed", range(20))
def test_what_was_acknowledged_is_with_the_best_choice_or_in_the_union(seed: int, tmp_path: Path) -> None:
    replicas, acknowledged = history(seed)
    draw = random.Random(1000 + seed)
    roots = []
    for number, replica in enumerate(replicas):
        root = partition(tmp_path / str(number), "t-0", [data for _, _, data in replica.log])
        (root / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {replica.known}\n")
        roots.append(root)
    damaged = draw.randrange(3)
    path = roots[damaged] / f"t-0/{0:020d}.log"
    data = bytearray(path.read_bytes())
    for _ in range(draw.randrange(1, 4)):
        if data:
            at, size = draw.randrange(len(data)), draw.randrange(1, 60)
            data[at : at + size] = draw.randbytes(len(data[at : at + size]))
    path.write_bytes(data[: draw.choice([len(data), draw.randrange(len(data) + 1)])])
    found = elect(*roots)
    if found["no_loss"]:
        best = open_store(found["best"])
    else:
        into = tmp_path / "into"
        others = [open_store(str(root)) for root in roots[1:]]
        open_store(str(roots[0])).salvage(into, replicas=others, as_release=Release(4, 3, 1)).prepare()
        best = open_store(str(into))
    assert isinstance(best, KafkaStore)
    log = best.replicas.find("t", 0)
    kept = dict[int, bytes]()
    if log is not None:
        for _, block in log.blocks():
            kept |= {int(base): block.raw(row) for row, base in enumerate(block["base_offset"].tolist())}
    intact = {  # what some disk still has
        base: data
        for n, replica in enumerate(replicas)
        for base, _, data in replica.log
        if n != damaged and acknowledged.get(base) == data
    }
    assert {base: data for base, data in intact.items() if kept.get(base) != data} == {}
