"""`offsets`: what is set is what `lag` reads, counts are those of messages read one by one, and undo gives every byte back."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden
from formats.rocketmq.config_json import parse_config
from rmqctl.answer import Intent
from rmqctl.errors import Refused
from rmqctl.filters import Filters
from rmqctl.kafka.engine.batch import BatchHead, build_batch
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.repair.files import appended
from rmqctl.kafka.state.internal_topics import share_states
from rmqctl.kafka.verbs.planning import hold
from rmqctl.opening import open_store
from rmqctl.positions import Key, Position, Wanted, positions_in
from rmqctl.repair import Plan, Step, apply, pending, resume, undo
from rmqctl.repair.journal_directory import line_of, rows_of
from tests.repair.faults import CountingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.stores import state_of

Rmqctl = Callable[..., Result]
JSON, V1, V2, KAFKA = "5.3.3-clean", "5.5.0-rdbcfg-clean", "5.5.0-rdbcfgv2-clean", "4.3.1-clean"
GROUPS = {JSON: "Lab_grpLag", V1: "Cfg_grpLag", V2: "Vtwo_grpLag", KAFKA: "g-classic"}
ALL = tuple(GROUPS)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param in {V1, V2}:
        pytest.importorskip("rocksdict")
    return golden.unpack(request.param, tmp_path)


def positions(root: Path, group: str) -> dict[tuple[str, int], int | None]:
    """What `lag` says, which shares nothing with `offsets` but the reading of what is stored."""
    rows = open_store(str(root)).lag(group=group)
    return {
        (r["topic"], r["queue_id"] if "queue_id" in r else r["partition"]): r["consumer_offset"]
        for r in rows
        if not r["topic"].startswith("%")
    }


def changes(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["changes"]


def messages(root: Path, topic: str, queue: int, low: int, high: int) -> int:
    """Messages of a queue from one offset up to another, each read."""
    if low >= high:
        return 0
    rows = open_store(str(root)).query_offset(topic, queue, low, Filters(limit=high - low))
    offsets = (r.get("queue_offset", r.get("offset")) for r in rows if r["kind"] in {"message", "record"})
    return sum(low <= offset < high for offset in offsets)


@pytest.mark.parametrize("store", ALL, indirect=True)
@pytest.mark.parametrize("to", ["earliest", "latest", "-2", "+3", "7"])
def test_set_is_what_lag_reads_and_undo_gives_every_byte_back(store: Path, to: str, rmqctl: Rmqctl) -> None:
    group, before = GROUPS[store.name], state_of(store)
    old = positions(store, group)
    planned = changes(rmqctl("offsets", store, "set", "--group", group, "--to", to, "-o", "json"))
    assert state_of(store) == before, "a dry run wrote"
    made = changes(rmqctl("offsets", store, "set", "--group", group, "--to", to, "-o", "json", "--apply", "--yes"))
    assert made == planned
    number = "partition" if store.name == KAFKA else "queue_id"
    now = positions(store, group)
    for row in made:
        topic, queue, new = row["topic"], row[number], row["to_offset"]
        assert now[topic, queue] == new
        wanted = {"earliest": row["min_offset"], "latest": row["max_offset"], "7": 7}.get(to)
        wanted = old[topic, queue] + int(to) if wanted is None else wanted  # type: ignore[operator]
        assert new == min(max(wanted, row["min_offset"]), row["max_offset"])
        was = old[topic, queue]
        assert was == row["from_offset"]
        assert was is not None
        assert row["read_again"] == messages(store, topic, queue, new, was)
        assert row["skipped"] == messages(store, topic, queue, was, new)
        assert row["lag"] == messages(store, topic, queue, new, row["max_offset"])
    changed = {(row["topic"], row[number]) for row in made}
    assert {k: v for k, v in now.items() if k not in changed} == {k: v for k, v in old.items() if k not in changed}
    if made:
        assert rmqctl("undo", store, "--yes").exit_code == 0
    shutil.rmtree(store.with_name(f"{store.name}.rmqctl-journal"), ignore_errors=True)
    assert state_of(store) == before


def test_every_other_position_and_field_stays_and_the_bak_has_what_was_there(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(JSON, tmp_path)
    file = root / "config/consumerOffset.json"
    old = file.read_bytes()
    assert rmqctl("offsets", root, "set", "--group", "Lab_grpLag", "--to", "1", "--apply", "--yes").exit_code == 0
    assert Path(f"{file}.bak").read_bytes() == old
    before, after = parse_config(old), parse_config(file.read_bytes())
    assert after["offsetTable"].pop("LabLog@Lab_grpLag") == {"0": 1, "1": 1, "2": 1}
    del before["offsetTable"]["LabLog@Lab_grpLag"]
    assert after == before


def test_a_file_that_is_damaged_is_written_from_its_bak(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(JSON, tmp_path)
    file = root / "config/consumerOffset.json"
    shutil.copy(file, f"{file}.bak")
    kept = file.read_bytes()
    file.write_bytes(b'{"offsetTable":{')
    assert rmqctl("offsets", root, "set", "--group", "Lab_grpLag", "--to", "1", "--apply", "--yes").exit_code == 0
    assert Path(f"{file}.bak").read_bytes() == kept
    assert set(positions(root, "Lab_grpLag").values()) == {1}
    assert positions(root, "Lab_grpFull")


def test_a_file_that_nobody_can_read_is_not_written_anew(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(JSON, tmp_path)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).write_bytes(b"{")
    before = state_of(root)
    refused = rmqctl("offsets", root, "set", "--group", "new", "--topic", "LabLog", "--to", "1", "--apply", "--yes")
    assert refused.exit_code == 13
    assert state_of(root) == before


@pytest.mark.parametrize("store", ALL, indirect=True)
def test_a_group_gets_the_positions_of_another(store: Path, rmqctl: Rmqctl) -> None:
    group = GROUPS[store.name]
    done = rmqctl("offsets", store, "copy", "--group", group, "--to-group", "blue-green", "--apply", "--yes")
    assert done.exit_code == 0, done.stderr
    stored = {key: offset for key, offset in positions(store, group).items() if offset is not None}
    new = {key: offset for key, offset in positions(store, "blue-green").items() if key in stored}
    low = {k: (v, new[k]) for k, v in stored.items() if v and new[k] != v}
    assert low == {}
    assert rmqctl("verify", store, "--level", "full").exit_code == 0


@pytest.mark.parametrize("store", ALL, indirect=True)
def test_what_export_prints_is_what_import_takes(store: Path, rmqctl: Rmqctl, tmp_path: Path) -> None:
    printed = rmqctl("offsets", store, "export")
    document = tmp_path / "positions.json"
    document.write_text(printed.stdout, "utf-8")
    group = GROUPS[store.name]
    before = positions(store, group)
    assert changes(rmqctl("offsets", store, "import", document, "-o", "json")) == []
    assert rmqctl("offsets", store, "set", "--group", group, "--to", "latest", "--apply", "--yes").exit_code == 0
    back = changes(rmqctl("offsets", store, "import", document, "-o", "json", "--apply", "--yes"))
    assert {row["group"] for row in back} == {group}
    assert positions(store, group) == before


def test_merge_takes_the_lowest_so_that_nothing_is_skipped(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(KAFKA, tmp_path)
    ahead = [Position(Key("g-classic", "plain-none", n), 60) for n in range(3)]
    for keep, wanted in (("lowest", {}), ("highest", {0: 60, 1: 60, 2: 60})):
        with open_store(str(root)).offsets("merge", source=ahead, keep=keep) as answer:
            assert {row["partition"]: row["to_offset"] for row in answer} == wanted


def test_clamp_brings_back_what_lies_outside(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(JSON, tmp_path)
    file = root / "config/consumerOffset.json"
    text = file.read_text("utf-8")
    assert text.count(":42") == 1
    file.write_text(text.replace(":42", ":4200000"), "utf-8")
    assert rmqctl("lag", root, "--group", "Lab_grpLag").exit_code == 1
    (row,) = changes(rmqctl("offsets", root, "clamp", "-o", "json", "--apply", "--yes"))
    assert (row["from_offset"], row["to_offset"], row["note"]) == (4_200_000, 139, "4200000 is after the end")
    assert rmqctl("lag", root, "--group", "Lab_grpLag").exit_code == 0
    assert changes(rmqctl("offsets", root, "clamp", "--group", "*", "-o", "json")) == []


@pytest.mark.parametrize("store", [JSON, V1, KAFKA], indirect=True)
def test_a_time_means_what_query_time_answers(store: Path, rmqctl: Rmqctl) -> None:
    group = GROUPS[store.name]
    found, number = open_store(str(store)), "partition" if store.name == KAFKA else "queue_id"
    topic = next(topic for topic, _ in positions(store, group))
    row = next(r for r in found.topics(topic=topic) if r[number] == 0)
    first, last = (
        row.get("first_store_timestamp", row.get("first_timestamp")),
        row.get("last_store_timestamp", row.get("last_timestamp")),
    )
    time = (first + last) // 2
    answer = next(r for r in found.query_time(topic, 0, time) if r["kind"] == "time_answer")
    wanted = answer.get("queue_offset", answer.get("offset"))
    made = changes(
        rmqctl("offsets", store, "set", "--group", group, "--topic", topic, "--queue", "0", "--to", time, "-o", "json")
    )
    assert [r["to_offset"] for r in made] == [wanted]


def test_positions_go_from_one_family_to_the_other(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, logs = golden.unpack(JSON, tmp_path), tmp_path / "logs"
    assert rmqctl("convert", root, logs, "--as-release", "4.3.1").exit_code == 0
    assert rmqctl("offsets", root, "set", "--group", "Lab_grpLag", "--to", "20", "--apply", "--yes").exit_code == 0
    done = rmqctl("offsets", logs, "copy", "--from", root, "--group", "Lab_grpLag", "--apply", "--yes")
    assert done.exit_code == 0, done.stderr
    assert set(positions(logs, "Lab_grpLag").values()) == {20}
    back = changes(rmqctl("offsets", root, "copy", "--from", logs, "--group", "Lab_grpLag", "-o", "json"))
    assert back == []


def test_groups_of_brokers_change_only_when_named(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(JSON, tmp_path)
    every = changes(rmqctl("offsets", root, "set", "--group", "*", "--to", "earliest", "-o", "json"))
    assert "CID_RMQ_SYS_TRANS" not in {row["group"] for row in every}
    named = changes(rmqctl("offsets", root, "set", "--group", "CID_RMQ_SYS_TRANS", "--to", "earliest", "-o", "json"))
    assert {row["group"] for row in named} == {"CID_RMQ_SYS_TRANS"}


# --- kafka ------------------------------------------------------------------------------------------------


def test_a_commit_is_a_sound_batch_in_the_right_partition(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(KAFKA, tmp_path)
    parts = sorted(root.glob("__consumer_offsets-*"))
    sizes = {part.name: (part / f"{0:020}.log").stat().st_size for part in parts}
    for group in ("g-classic", "blue-green", "g-9", "Ω"):
        words = ("--group", group, "--topic", "plain-none", "--to", "5", "--apply", "--yes")
        assert rmqctl("offsets", root, "set", *words).exit_code == 0
        hashed = 0
        for unit in memoryview(group.encode("utf-16-le")).cast("H"):
            hashed = (31 * hashed + unit) & 0xFFFFFFFF
        number = abs(hashed - (1 << 32) if hashed >> 31 else hashed) % len(parts)
        grown = {part.name for part in parts if (part / f"{0:020}.log").stat().st_size > sizes[part.name]}
        assert grown == {f"__consumer_offsets-{number}"}
        sizes |= {name: (root / name / f"{0:020}.log").stat().st_size for name in grown}
        *_, last = (row for row in open_store(str(root / next(iter(grown)))).dump() if row["kind"] == "batch")
        assert (last["crc_ok"], last["producer_id"], last["control"], last["count"]) == (True, -1, False, 3)
    assert rmqctl("verify", root).exit_code == 0
    assert open_store(str(root)).recover().is_no is False


def test_what_other_replicas_would_not_have_is_refused(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(KAFKA, tmp_path)
    for log in root.glob("__cluster_metadata-0"):
        shutil.rmtree(log)
    words = ("offsets", root, "set", "--group", "g-classic", "--to", "5")
    refused = rmqctl(*words)
    assert refused.exit_code == 13
    assert "--only-replica" in refused.stderr
    assert rmqctl(*words, "--only-replica").exit_code == 0


def test_a_share_group_begins_where_it_is_set(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(KAFKA, tmp_path)
    was = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    states = share_states(open_store(str(root)).replicas.of("__share_group_state"))  # type: ignore[attr-defined]
    planned = json.loads(rmqctl("offsets", root, "set", "--group", "g-share", "--to", "3", "-o", "json").stdout)
    starts = [state.start_offset for state in states.values()]
    assert sorted(change["from_offset"] for change in planned["changes"]) == sorted(starts)
    assert planned["summary"]["read_again"] == sum(state.start_offset - 3 + state.done for state in states.values())
    done = rmqctl("offsets", root, "set", "--group", "g-share", "--to", "3", "--apply", "--yes")
    assert done.exit_code == 0, done.stderr
    rows = [json.loads(row) for row in rmqctl("lag", root, "--group", "g-share", "-o", "jsonl").stdout.splitlines()]
    assert {(row["consumer_offset"], row["lag"] == row["log_end_offset"] - 3) for row in rows} == {(3, True)}
    now = share_states(open_store(str(root)).replicas.of("__share_group_state"))  # type: ignore[attr-defined]
    for key, state in now.items():
        before = states[key]
        assert (state.snapshot_epoch, state.state_epoch) == (before.snapshot_epoch + 1, before.state_epoch)
        assert (state.leader_epoch, state.batches, state.complete) == (before.leader_epoch, (), 0)
    assert rmqctl("verify", root).exit_code == 0
    assert rmqctl("undo", root, "--yes").exit_code == 0
    assert {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()} == was


def test_what_a_share_group_has_done_is_neither_skipped_nor_left(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(KAFKA, tmp_path)
    (row,) = json.loads(
        rmqctl(
            "offsets", root, "set", "--group", "g-share", "--topic", "x-delete", "--to", "latest", "-o", "json"
        ).stdout
    )["changes"]  # it was at 8 of 12, and had all of them
    assert (row["from_offset"], row["to_offset"], row["read_again"], row["skipped"]) == (8, 12, 0, 0)


def test_a_share_group_gets_no_state_that_its_coordinator_did_not_make(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(KAFKA, tmp_path)
    refused = rmqctl("offsets", root, "set", "--group", "g-share", "--topic", "plain-none", "--to", "0")
    assert refused.exit_code == 13
    assert "has no state of plain-none-0" in refused.stderr


def test_the_books_know_a_commit_from_any_other_batch(tmp_path: Path) -> None:
    root = golden.unpack(KAFKA, tmp_path)
    store = open_store(str(root))
    replicas = store.replicas  # type: ignore[attr-defined]
    log = replicas.of("__consumer_offsets")[1]
    file, end = log.segments[-1].log, log.loaded.log_end_offset
    forged = build_batch(BatchHead(end), [Record(end, 1, -1, b"\0\1junk", b"\0\3junk", ())])
    step = Step(
        "offsets.commit",
        file.name,
        f"commit from offset {end} on: x",
        "y",
        tuple(appended(file.name, file.size, forged)),
    )
    _, books = hold(Plan(root, "forged", (step,)), replicas, replicas.release, {})
    assert not books.balances


# --- kills ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ALL, indirect=True)
def test_killed_at_every_request_it_can_be_finished_and_taken_back(store: Path) -> None:
    """A kill before and after every request of the run; both ways on lead to exactly before and after."""
    with open_store(str(store)).offsets(
        "set", groups=[GROUPS[store.name]], to="earliest", intent=Intent(is_real=True)
    ) as answer:
        answer.prepare()
        assert answer.plan is not None
        saved, journals = store.with_name("saved"), store.with_name(f"{store.name}.rmqctl-journal")
        shutil.copytree(store, saved, symlinks=True)

        def restore() -> None:
            shutil.rmtree(journals, ignore_errors=True)
            for place in (store,):
                shutil.rmtree(place)
                shutil.copytree(saved, place, symlinks=True)

        before = state_of(store, directories=False)
        layer = CountingLayer()
        apply(answer.plan, layer=layer, lock=answer.lock)
        after = {name: known[0] for name, known in files(store)}
        for at in range(0, len(layer.requests), 3):
            for way, ends in ((resume, after), (undo, {n: k[0] for n, k in before.items() if isinstance(k, tuple)})):
                restore()
                with pytest.raises(Killed):
                    apply(answer.plan, layer=KillingLayer(at, "after"), lock=answer.lock)
                journal = pending(store)
                if journal is not None:
                    with pytest.raises(Refused, match="broken off"), open_store(str(store)).offsets("clamp") as again:
                        again.prepare()
                    way(journal, layer=QuickLayer())
                    assert {n: k[0] for n, k in files(store)} == ends


_DYING = """
import os, signal, sys
from commands import cli
from rmqctl.files.writing import FileLayer

act = FileLayer.request
for line in sys.stdin:
    left, *words = line.split()
    left, child = int(left), os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

        def request(self, operation, path, do):
            global left
            if left == 0 and operation != "fsync":
                os.kill(os.getpid(), signal.SIGKILL)
            left -= operation != "fsync"
            return act(self, operation, path, do)

        FileLayer.request = request
        cli(words, prog_name="rmqctl")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""For each line a command in a process of its own, which is killed when it asks for something after so many requests."""


STRIDES = {JSON: 2, V1: 9, V2: 6, KAFKA: 7}
"""After how many requests more each process is killed."""


@pytest.mark.slow
@pytest.mark.parametrize("store", ALL, indirect=True)
def test_a_process_that_is_killed_leaves_what_can_be_finished_and_taken_back(
    store: Path, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """kill -9 before writes, renames and removals of an import into all groups, and into one that is new."""
    if store.name == KAFKA:
        (store / ".lock").touch()  # which a node leaves, as does who is killed
    before, document = state_of(store), json.loads(rmqctl("offsets", store, "export").stdout)
    old = shown(store)
    for row in document["positions"]:
        row["consumer_offset"] = max(row["consumer_offset"] - 2, 0)
    document["positions"] += [
        {**row, "group": "new"} for row in document["positions"] if row["group"] == GROUPS[store.name]
    ]
    (tmp_path / "positions.json").write_text(json.dumps(document))
    words = ("offsets", store, "import", tmp_path / "positions.json", "--apply", "--yes")
    planned = json.loads(rmqctl(*words[:4], "-o", "json").stdout)["changes"]
    number = "partition" if store.name == KAFKA else "queue_id"
    new = {**old, **{(row["group"], row["topic"], row[number]): row["to_offset"] for row in planned}}
    assert len({group for group, *_ in new.items() - old.items()}) > len(GROUPS)
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    outcomes = Counter[str]()
    with subprocess.Popen(
        [sys.executable, "-c", _DYING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as dying:  # fmt: skip
        assert dying.stdin is not None
        assert dying.stdout is not None
        for turn, at in enumerate(itertools.count(0, STRIDES[store.name])):
            print(at, *words, file=dying.stdin, flush=True)
            status = int(dying.stdout.readline())
            assert status in {0, -signal.SIGKILL}
            is_pending = pending(store) is not None
            if is_pending and turn % 2:
                assert rmqctl("undo", store, "--resume").exit_code == 0
                outcomes["finished"] += 1
                assert shown(store) == new
            if is_pending or status == 0 or state_of(store) != before:
                outcomes["taken back"] += 1
                assert rmqctl("undo", store).exit_code == 0, at
            assert state_of(store) == before, at
            shutil.rmtree(store.with_name(f"{store.name}.rmqctl-journal"), ignore_errors=True)
            if status == 0:
                break
        dying.stdin.close()
    assert min(outcomes["finished"], outcomes["taken back"] - outcomes["finished"]) > 1
    assert {entry.name for entry in tmp_path.iterdir()} == {store.name, "positions.json"}


def shown(root: Path) -> dict[tuple[str, str, int], int]:
    """What is stored of all groups, by another store object each time."""
    with open_store(str(root)).offsets() as answer:
        return {Key(*position.key): position.offset for position in positions_in(answer)}


def files(root: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    return ((name, known) for name, known in state_of(root).items() if isinstance(known, tuple))


# --- usage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set",), "--to"),
        (("set", "--to", "5"), "--group"),
        (("set", "--to", "soon", "--group", "Lab_grpLag"), "earliest or latest"),
        (("copy", "--group", "a"), "--to-group"),
        (("copy",), "--group"),
        (("import",), "FILE"),
        (("clamp", "--to", "5"), "goes with set"),
        (("show", "--apply"), "only looks"),
        (("set", "--to", "5", "--group", "a", "--only-replica"), "is for Kafka"),
    ],
)
def test_what_is_missing_is_named(words: tuple[str, ...], says: str, rmqctl: Rmqctl) -> None:
    refused = rmqctl("offsets", golden.pristine(JSON), *words)
    assert refused.exit_code == 2
    assert says in refused.stderr


@pytest.mark.parametrize(
    ("unchanged", "unknown", "said"),
    [(1, 0, "1 position is"), (2, 1, "2 positions are"), (0, 2, ", and 1 more"), (0, 3, ", and 2 more")],
)
def test_what_stays_as_it_is_is_counted_in_words(unchanged: int, unknown: int, said: str) -> None:
    wanted = Wanted(unchanged=unchanged, unknown=[Key("g", "t", queue) for queue in range(unknown)])
    expected = [f"{said} there already"] if unchanged else []
    expected += [f"left out, for the queue is not here: g in t/0{'' if unchanged else said}"] if unknown else []
    assert list(wanted.sentences()) == expected


def test_nothing_that_matches_is_a_no(rmqctl: Rmqctl) -> None:
    for words in ((), ("clamp",), ("set", "--to", "5")):
        assert rmqctl("offsets", golden.pristine(JSON), *words, "--group", "nobody").exit_code == 1


def test_two_groups_do_not_become_one_by_copy() -> None:
    both = [Position(Key(group, "LabLog", 0), offset) for group, offset in (("a", 1), ("b", 2))]
    store = open_store(str(golden.pristine(JSON)))
    with pytest.raises(Refused, match="merge"):
        store.offsets("copy", source=both, to_group="one").prepare()
    with store.offsets("merge", source=both, to_group="one") as answer:
        assert [row["to_offset"] for row in answer] == [1]


@pytest.mark.parametrize(
    "document",
    [
        "[" * 200_000,
        '{"kind": "consumer-offsets", "family": "rocketmq", "positions": null}',
        '{"kind": "consumer-offsets", "family": "rocketmq", "positions": [5]}',
        '{"kind": "consumer-offsets", "family": 7, "positions": []}',
        (
            '{"kind": "consumer-offsets", "family": "rocketmq", "positions": '
            '[{"group": "g", "topic": "LabLog", "queue_id": true, "consumer_offset": 1}]}'
        ),
        (
            '{"kind": "consumer-offsets", "family": "kafka", "positions": '
            '[{"group": "\\ud800", "topic": "LabLog", "partition": 0, "consumer_offset": 1}]}'
        ),
    ],
    ids=["deep", "no list", "no object", "no family", "no number", "no text"],
)
def test_what_export_would_not_print_is_not_imported(document: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    (tmp_path / "document").write_text(document)
    refused = rmqctl("offsets", golden.pristine(JSON), "import", tmp_path / "document")
    assert refused.exit_code == 2
    assert "is not what export prints" in refused.stderr


@pytest.mark.parametrize(
    ("name", "topic", "group"),
    [
        (JSON, "LabLog", "a@b"),
        (JSON, "LabLog", ""),
        (JSON, "LabLog", "\udcff"),
        (KAFKA, "z-lz4", "\udcff"),
        (KAFKA, "z-lz4", "x" * 32768),
    ],
)
def test_a_group_gets_no_first_position_by_a_name_that_no_broker_reads(
    name: str, topic: str, group: str, rmqctl: Rmqctl
) -> None:
    refused = rmqctl("offsets", golden.pristine(name), "set", "--group", group, "--topic", topic, "--to", "1")
    assert refused.exit_code == 13, refused.stderr
    assert "is no name of a group" in refused.stderr


def test_a_line_of_a_journal_keeps_names_that_are_not_utf_8() -> None:
    row = {"why": "\udcff in LabLog/0"}
    assert list(rows_of(line_of(row, 0))) == [row]
