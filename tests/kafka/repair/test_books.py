"""The judge of Kafka plans: plans made wrong on purpose are refused, each for what is wrong with it; right ones are not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from fixtures import golden
from formats.kafka.directory_files import format_partition_metadata
from formats.kafka.messages import uuid_bytes, uuid_text
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories
from rmqctl.kafka.engine.batch import Ending, end_marker
from rmqctl.kafka.recovery.plan import recovery_plan
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.repair.balance import balanced
from rmqctl.kafka.repair.bridge import empty_batch, filler
from rmqctl.kafka.repair.ledger import KafkaLedger
from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from rmqctl.repair.books import Books, balance
from rmqctl.repair.edited_file import Overlay
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Plan, Quarantine, Step
from tests.kafka.batches import batch, record
from tests.kafka.repair.attacked import name_of, outermost
from tests.kafka.repair.judged import RELEASES, damaged, opened, variants

RELEASE = Release(4, 3, 1)
TXN, PLAIN = "txn-a-0", "plain-none-0"


class Place:
    """A golden log directory of a few partitions, and edits of its segments.

    Attributes:
        logs: segments of the partition with transactions, ascending; plain: those of one without.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs, self.plain = (sorted((root / name).glob("*.log")) for name in (TXN, PLAIN))

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    def batches(self, path: Path) -> list[tuple[int, bytes]]:
        return list(outermost(path.read_bytes()))

    def over(self, path: Path, at: int, data: bytes) -> Edit:
        return Overwrite(self.name(path), at, path.read_bytes()[at : at + len(data)], data)

    def again(self, path: Path, data: bytes) -> list[Edit]:
        return [Quarantine(self.name(path)), Create(self.name(path), data)]

    def after(self, path: Path, data: bytes) -> list[Edit]:
        size = path.stat().st_size
        name = self.name(path)
        return [Extend(name, size, size + len(data)), Overwrite(name, size, bytes(len(data)), data)]

    def markers(self, kind: int) -> Iterator[tuple[Path, int, bytes]]:
        """Markers that end a transaction so: 0 ABORT, 1 COMMIT."""
        for path in self.logs:
            for at, data in self.batches(path):
                if int.from_bytes(data[21:23], "big") & 0x30 == 0x30 and _kind(data) == kind:
                    yield path, at, data


def _kind(marker: bytes) -> int:
    return marker[marker.find(b"\x08\x00\x00\x00", 61) + 4]


def _closed(data: bytes) -> bytes:
    """A batch of magic 2 with a CRC that matches."""
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


@pytest.fixture(scope="module")
def golden_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("books") / "store"
    source = golden.pristine("4.3.1-crash")
    root.mkdir()
    for name in (TXN, PLAIN, "txn-b-0", "mixed.codec-v1-x-0"):
        shutil.copytree(source / name, root / name)
        (root / name / "partition.metadata").unlink(missing_ok=True)
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    return root


@pytest.fixture
def place(golden_place: Path, tmp_path: Path) -> Place:
    shutil.copytree(golden_place, tmp_path / "store")
    return Place(tmp_path / "store")


def judged(place: Place, *edits: Edit, what: str = "mend it", gives_up: tuple[str, ...] = ()) -> Books:
    directory = opened(place.root)
    plan = Plan(place.root, "a wrong plan", (Step("a.step", edits[0].file, what, "", edits, 0, gives_up),))
    ledger = KafkaLedger(plan, directory, RELEASE)
    return balance(plan, directory.tree, ledger, after=ledger.after.tree)


# --- wrong plans ----------------------------------------------------------------------------------------


def zeros_over_a_sound_batch(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[0])[3]
    return [p.over(p.plain[0], at, bytes(len(data)))]


def a_bridge_over_a_sound_batch(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[0])[3]
    first = int.from_bytes(data[:8], "big")
    made = filler(first, first + int.from_bytes(data[23:27], "big"), 0, 5, len(data))
    assert made is not None
    return [p.over(p.plain[0], at, made)]


def the_epoch_of_a_sound_batch(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[0])[3]
    return [p.over(p.plain[0], at + 12, (int.from_bytes(data[12:16], "big") + 1).to_bytes(4, "big"))]


def the_epochs_of_all_batches_from_one_on(p: Place) -> list[Edit]:
    return [p.over(p.plain[1], at + 12, (7).to_bytes(4, "big")) for at, _ in p.batches(p.plain[1])[2:]]


def the_offset_of_the_last_batch(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[-1])[-1]
    return [p.over(p.plain[-1], at, (int.from_bytes(data[:8], "big") + 4).to_bytes(8, "big"))]


def the_offset_of_a_batch_in_the_middle(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[0])[2]
    return [p.over(p.plain[0], at, (int.from_bytes(data[:8], "big") + 9).to_bytes(8, "big"))]


def a_unique_batch_taken_out(p: Place) -> list[Edit]:
    data = p.plain[0].read_bytes()
    at, gone = p.batches(p.plain[0])[3]
    return p.again(p.plain[0], data[:at] + data[at + len(gone) :])


def an_end_cut_off(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[-1])[-1]
    return [Cut(p.name(p.plain[-1]), at + len(data), at)]


def a_segment_cut_to_nothing(p: Place) -> list[Edit]:
    return [Cut(p.name(p.plain[1]), p.plain[1].stat().st_size, 0)]


def a_segment_moved_out(p: Place) -> list[Edit]:
    return [Quarantine(p.name(p.plain[1]))]


def a_partition_moved_out(p: Place) -> list[Edit]:
    return [Quarantine(PLAIN)]


def a_batch_invented_at_the_end(p: Place) -> list[Edit]:
    last = int.from_bytes(p.batches(p.plain[-1])[-1][1][:8], "big")
    return p.after(p.plain[-1], batch(last + 8, [record(0, b"k", b"made up")]))


def a_body_made_up(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[0])[3]
    return [p.over(p.plain[0], at, _closed(data[:-9] + b"made up!!"))]


def a_bit_of_a_sound_record_with_a_new_crc(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[0])[3]
    changed = bytearray(data)
    changed[-3] ^= 1
    return [p.over(p.plain[0], at, _closed(bytes(changed)))]


def a_commit_invented(p: Place) -> list[Edit]:
    return p.after(p.logs[-1], _marker(p, commit=True))


def an_abort_invented(p: Place) -> list[Edit]:
    return p.after(p.logs[-1], _marker(p, commit=False))


def _marker(p: Place, *, commit: bool) -> bytes:
    data = p.batches(p.logs[-1])[-1][1]
    end = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
    return end_marker(Ending(10, 0, commit, 0, 5), end, int.from_bytes(data[12:16], "big"))


def a_commit_into_an_abort(p: Place) -> list[Edit]:
    return _turned(p, 1)


def an_abort_into_a_commit(p: Place) -> list[Edit]:
    return _turned(p, 0)


def _turned(p: Place, kind: int) -> list[Edit]:
    path, at, data = next(p.markers(kind))
    changed = bytearray(data)
    changed[data.find(b"\x08\x00\x00\x00", 61) + 4] = 1 - kind
    return [p.over(path, at, _closed(bytes(changed)))]


def a_commit_for_another_producer(p: Place) -> list[Edit]:
    path, at, data = next(p.markers(1))
    return [p.over(path, at, _closed(data[:43] + (77).to_bytes(8, "big") + data[51:]))]


def _index(p: Place) -> Path:
    return next(path for path in sorted((p.root / TXN).glob("*.txnindex")) if path.stat().st_size >= 68)


def an_entry_of_a_transaction_index_dropped(p: Place) -> list[Edit]:
    path = _index(p)
    return [*p.again(path, path.read_bytes()[34:])]


def a_transaction_index_emptied(p: Place) -> list[Edit]:
    return [Cut(p.name(_index(p)), _index(p).stat().st_size, 0)]


def a_transaction_index_moved_out(p: Place) -> list[Edit]:
    return [Quarantine(p.name(_index(p)))]


def an_entry_that_begins_earlier(p: Place) -> list[Edit]:
    path = max(p.root.glob(f"{TXN}/*.txnindex"), key=lambda path: (path.stat().st_size > 0, path))
    return [p.over(path, path.stat().st_size - 24, bytes(8))]


def a_segment_under_a_wrong_name(p: Place) -> list[Edit]:
    path = p.plain[1]
    return [Quarantine(p.name(path)), Create(f"{PLAIN}/{int(path.name[:20]) + 3:020d}.log", path.read_bytes())]


def a_segment_left_over(p: Place) -> list[Edit]:
    path = p.plain[1]
    return [Quarantine(p.name(path)), Create(f"{p.name(path)}.cleaned", path.read_bytes())]


def two_segments_exchanged(p: Place) -> list[Edit]:
    one, two = p.plain[:2]
    return [*p.again(one, two.read_bytes()), *p.again(two, one.read_bytes())]


def logs_of_two_partitions_exchanged(p: Place) -> list[Edit]:
    """The offset index of each leads to its own."""
    edits: list[Edit] = [Quarantine(p.name(p.logs[0])), Quarantine(p.name(p.plain[0]))]
    return [*edits, Create(p.name(p.logs[0]), source=p.plain[0]), Create(p.name(p.plain[0]), source=p.logs[0])]


def two_batches_turned(p: Place) -> list[Edit]:
    (at, one), (_, two) = p.batches(p.plain[0])[2:4]
    return [p.over(p.plain[0], at, two + one)]


def a_copy_of_a_batch_at_the_end(p: Place) -> list[Edit]:
    return p.after(p.plain[-1], p.batches(p.plain[0])[0][1])


def a_batch_of_another_partition_at_the_end(p: Place) -> list[Edit]:
    last = int.from_bytes(p.batches(p.plain[-1])[-1][1][:8], "big")
    return p.after(p.plain[-1], (last + 20).to_bytes(8, "big") + p.batches(p.logs[0])[0][1][8:])


def a_batch_moved_to_another_partition(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[-1])[-1]
    last = p.logs[-1]
    return [Cut(p.name(p.plain[-1]), at + len(data), at), *p.after(last, data)]


def bytes_put_into_a_sound_batch(p: Place) -> list[Edit]:
    data = p.plain[0].read_bytes()
    at = p.batches(p.plain[0])[3][0] + 70
    return p.again(p.plain[0], data[:at] + bytes(7) + data[at:])


def a_message_of_old_overwritten(p: Place) -> list[Edit]:
    path = next(f for f in sorted((p.root / "mixed.codec-v1-x-0").glob("*.log")) if f.stat().st_size)
    at, data = p.batches(path)[0]
    return [p.over(path, at, bytes(len(data)))]


def a_batch_without_records_in_the_middle(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[0])[3]
    first = int.from_bytes(data[:8], "big")
    made = empty_batch(first, first + int.from_bytes(data[23:27], "big"), 0, 5)
    whole = p.plain[0].read_bytes()
    return p.again(p.plain[0], whole[:at] + made + whole[at + len(data) :])


def a_log_start_in_the_middle(p: Place) -> list[Edit]:
    base = int(p.plain[1].name[:20])
    return [Create("log-start-offset-checkpoint", f"0\n1\n{PLAIN[:-2]} 0 {base + 2}\n".encode())]


def a_directory_of_a_strange_name(p: Place) -> list[Edit]:
    return [Create("no partition/file", b"x")]


def _rewritten(p: Place, number: int, change: Callable[[bytes], bytes]) -> list[Edit]:
    """A batch with other fields, and a CRC that matches."""
    at, data = p.batches(p.plain[0])[number]
    return [p.over(p.plain[0], at, _closed(change(data)))]


def _field(data: bytes, at: int, value: int, size: int) -> bytes:
    return data[:at] + (value % (1 << 8 * size)).to_bytes(size, "big") + data[at + size :]


def the_times_of_a_sound_batch(p: Place) -> list[Edit]:
    return _rewritten(p, 3, lambda data: _field(data, 27, 5, 16))


def a_sound_batch_hidden_as_control(p: Place) -> list[Edit]:
    return _rewritten(p, 3, lambda data: _field(data, 21, 32, 2))


def a_sound_batch_in_a_transaction(p: Place) -> list[Edit]:
    return _rewritten(p, 3, lambda data: _field(data, 43, 5, 8)[:21] + b"\0\x10" + _field(data, 43, 5, 8)[23:])


def more_offsets_for_a_sound_batch(p: Place) -> list[Edit]:
    return _rewritten(p, 3, lambda data: _field(data, 23, int.from_bytes(data[23:27], "big") + 1, 4))


def a_sound_batch_of_magic_1(p: Place) -> list[Edit]:
    at, _ = p.batches(p.plain[0])[3]
    return [p.over(p.plain[0], at + 16, b"\x01")]


def the_length_of_a_sound_batch(p: Place) -> list[Edit]:
    at, data = p.batches(p.plain[0])[3]
    return [p.over(p.plain[0], at + 8, (len(data) - 11).to_bytes(4, "big"))]


def all_offsets_one_later(p: Place) -> list[Edit]:
    edits = list[Edit]()
    for path in p.plain:
        data, base = bytearray(path.read_bytes()), int(path.name[:20])
        for at, one in p.batches(path):
            data[at : at + 8] = (int.from_bytes(one[:8], "big") + 1).to_bytes(8, "big")
        edits += [Quarantine(p.name(path)), Create(f"{PLAIN}/{base + (base > 0):020d}.log", bytes(data))]
    return edits


def all_epochs_one_later(p: Place) -> list[Edit]:
    return [
        p.over(path, at + 12, (int.from_bytes(one[12:16], "big") + 1).to_bytes(4, "big"))
        for path in p.plain
        for at, one in p.batches(path)
    ]


def zeros_between_sound_batches(p: Place) -> list[Edit]:
    data, at = p.plain[0].read_bytes(), p.batches(p.plain[0])[3][0]
    return p.again(p.plain[0], data[:at] + bytes(80) + data[at:])


def noise_between_sound_batches(p: Place) -> list[Edit]:
    data, at = p.plain[-1].read_bytes(), p.batches(p.plain[-1])[-1][0]
    return p.again(p.plain[-1], data[:at] + b"\xfe" * 33 + data[at:])


def the_first_batch_taken_out(p: Place) -> list[Edit]:
    data = p.plain[0].read_bytes()
    return p.again(p.plain[0], data[len(p.batches(p.plain[0])[0][1]) :])


def the_last_byte_taken_off(p: Place) -> list[Edit]:
    size = p.plain[-1].stat().st_size
    return [Cut(p.name(p.plain[-1]), size, size - 1)]


def two_segments_in_one_file_turned(p: Place) -> list[Edit]:
    one, two = p.plain[:2]
    return [*p.again(one, two.read_bytes() + one.read_bytes()), Quarantine(p.name(two))]


def the_end_of_a_segment_in_front_of_the_next(p: Place) -> list[Edit]:
    one, two = p.plain[:2]
    at, data = p.batches(one)[-1]
    return [Cut(p.name(one), at + len(data), at), *p.again(two, data + two.read_bytes())]


def a_log_that_is_cut_by_a_swap(p: Place) -> list[Edit]:
    at, _ = p.batches(p.plain[1])[-2]
    return [Create(f"{p.name(p.plain[1])}.swap", p.plain[1].read_bytes()[:at])]


def a_marker_replaced_by_an_empty_batch(p: Place) -> list[Edit]:
    path, at, data = next(p.markers(0))
    first, whole = int.from_bytes(data[:8], "big"), path.read_bytes()
    return p.again(path, whole[:at] + empty_batch(first, first, 0, 5) + whole[at + len(data) :])


def two_markers_of_different_outcomes_exchanged(p: Place) -> list[Edit]:
    (path, at, data), (other, there, marker) = next(p.markers(0)), next(p.markers(1))
    return [
        *(p.over(path, at + begin, marker[begin:end]) for begin, end in ((17, 21), (21, len(marker)))),
        *(p.over(other, there + begin, data[begin:end]) for begin, end in ((17, 21), (21, len(data)))),
    ]


def a_committed_transaction_in_the_index(p: Place) -> list[Edit]:
    path, _, data = next(p.markers(1))
    producer, end = data[43:51], data[:8]
    begun = next(one for _, one in p.batches(path) if one[43:51] == producer)[:8]
    index = path.with_suffix(".txnindex")
    return p.after(index, b"\0\0" + producer + begun + end + end)


def another_name_for_the_partition(p: Place) -> list[Edit]:
    made = [Create(f"other-0/{path.name}", path.read_bytes()) for path in p.plain]
    return [Quarantine(PLAIN), *made]


def a_deleted_end(p: Place) -> list[Edit]:
    return [Quarantine(p.name(p.plain[-1])), Create(f"{p.name(p.plain[-1])}.deleted", p.plain[-1].read_bytes())]


WRONG: list[Callable[[Place], list[Edit]]] = [
    the_times_of_a_sound_batch, a_sound_batch_hidden_as_control, a_sound_batch_in_a_transaction,
    more_offsets_for_a_sound_batch, a_sound_batch_of_magic_1, the_length_of_a_sound_batch, all_offsets_one_later,
    all_epochs_one_later, zeros_between_sound_batches, noise_between_sound_batches, the_first_batch_taken_out,
    the_last_byte_taken_off, two_segments_in_one_file_turned, the_end_of_a_segment_in_front_of_the_next,
    a_log_that_is_cut_by_a_swap, a_marker_replaced_by_an_empty_batch, two_markers_of_different_outcomes_exchanged,
    a_committed_transaction_in_the_index, another_name_for_the_partition, a_deleted_end,
    zeros_over_a_sound_batch, a_bridge_over_a_sound_batch, the_epoch_of_a_sound_batch,
    the_epochs_of_all_batches_from_one_on, the_offset_of_the_last_batch, the_offset_of_a_batch_in_the_middle,
    a_unique_batch_taken_out, an_end_cut_off, a_segment_cut_to_nothing, a_segment_moved_out, a_partition_moved_out,
    a_batch_invented_at_the_end, a_body_made_up, a_bit_of_a_sound_record_with_a_new_crc, a_commit_invented,
    an_abort_invented, a_commit_into_an_abort, an_abort_into_a_commit, a_commit_for_another_producer,
    an_entry_of_a_transaction_index_dropped, a_transaction_index_emptied, a_transaction_index_moved_out,
    an_entry_that_begins_earlier, a_segment_under_a_wrong_name, a_segment_left_over, two_segments_exchanged,
    logs_of_two_partitions_exchanged,    two_batches_turned, a_copy_of_a_batch_at_the_end, a_batch_of_another_partition_at_the_end,
    a_batch_moved_to_another_partition, bytes_put_into_a_sound_batch, a_message_of_old_overwritten,
    a_batch_without_records_in_the_middle, a_log_start_in_the_middle, a_directory_of_a_strange_name,
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_wrong_plan_does_not_balance(wrong: Callable[[Place], list[Edit]], place: Place) -> None:
    books = judged(place, *wrong(place))
    assert not books.balances
    assert books.refusal() is not None


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_naming_by_the_planner_makes_no_wrong_plan_right(wrong: Callable[[Place], list[Edit]], place: Place) -> None:
    """What is named of itself is only what no reader met."""
    directory, edits = opened(place.root), tuple(wrong(place))
    plan = Plan(place.root, "a wrong plan", (Step("a.step", edits[0].file, "mend it", "", edits),))
    assert not balanced(plan, directory, KafkaLedger(plan, directory, RELEASE))[1].balances


# --- what a step says -----------------------------------------------------------------------------------


def test_a_batch_that_is_given_up_by_name(place: Place) -> None:
    _, data = place.batches(place.plain[-1])[-1]
    books = judged(place, *an_end_cut_off(place), gives_up=(name_of((PLAIN, data)),))
    assert books.balances
    assert books.given_up == books.loses == int.from_bytes(data[57:61], "big")


def test_a_batch_that_is_given_up_by_name_and_stays(place: Place) -> None:
    _, data = place.batches(place.plain[-1])[-2]
    assert not judged(place, *an_end_cut_off(place), gives_up=(name_of((PLAIN, data)),)).balances


def test_a_marker_that_is_named_for_another_offset(place: Place) -> None:
    what = f"{TXN} producer 10 from offset 0: COMMIT of producer 10 at 1"
    assert not judged(place, *a_commit_invented(place), what=what).balances


def test_a_copied_segment_of_another_partition_gets_no_place(place: Place) -> None:
    """Its records were in the directory before, and no reader met them there."""
    data = max((place.root / "txn-b-0").glob("*.log")).read_bytes()
    stray, first = place.plain[0].with_name("copy.log"), int.from_bytes(data[:8], "big")
    end = int.from_bytes(place.batches(place.plain[-1])[-1][1][:8], "big")
    for name in (path for path in place.plain if int(path.stem) >= first):
        name.unlink()
    assert first < end
    stray.write_bytes(data)
    edits = Quarantine(place.name(stray)), Create(f"{PLAIN}/{first:020d}.log", source=stray)
    assert [problem for problem in judged(place, *edits).problems if "which is of txn-b-0" in problem]


def test_an_id_that_can_be_read_is_not_written_over(place: Place) -> None:
    path = place.root / PLAIN / "partition.metadata"
    ids = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    path.write_bytes(format_partition_metadata(ids[0]))
    books = judged(place, *place.again(path, format_partition_metadata(ids[1])))
    assert [problem for problem in books.problems if ids[0] in problem]
    assert judged(place, *place.again(path, format_partition_metadata(ids[0]))).balances


@pytest.mark.parametrize(("bytes_", "is_healed"), [(1, True), (2, True), (3, False)])
def test_an_id_of_which_a_byte_or_two_are_destroyed_is_healed(bytes_: int, is_healed: bool, tmp_path: Path) -> None:
    """The cluster has it, and no topic ever had the other."""
    root = golden.unpack("4.3.1-crash", tmp_path)
    path = root / f"{PLAIN}/partition.metadata"
    sound, (version, stored) = path.read_bytes(), path.read_text().split("topic_id: ")
    wrong = bytearray(uuid_bytes(stored.strip()))
    wrong[5 : 5 + bytes_] = bytes(byte ^ 0x40 for byte in wrong[5 : 5 + bytes_])
    path.write_bytes(format_partition_metadata(uuid_text(bytes(wrong))))
    assert version.startswith("version")
    (tmp_path / "staged").mkdir()
    found = plan_repair(opened(root), RepairOptions(RELEASE), tmp_path / "staged")
    tree = Overlay(LocalTree(str(root)), found.plan.edits)
    assert (tree.open(f"{PLAIN}/partition.metadata").read_at(0, 999) == sound) == is_healed
    assert any(step.file.startswith(PLAIN) for step in found.left) != is_healed


# --- right plans, and what is made of them --------------------------------------------------------------


def _planned(place: Place, room: Path) -> Plan:
    staged = room / "staged"
    staged.mkdir()
    found = plan_repair(opened(place.root), RepairOptions(RELEASE), staged)
    assert found.books is not None
    assert found.books.balances
    return found.plan


@pytest.mark.parametrize("by", [1, -1, 40])
def test_a_bridge_of_a_plan_that_is_longer_or_shorter(by: int, place: Place, tmp_path: Path) -> None:
    path = place.plain[0]
    at, data = place.batches(path)[3]
    with open(path, "r+b") as file:
        file.seek(at + 61)
        file.write(bytes(len(data) - 61))
    plan, name = _planned(place, tmp_path), place.name(path)
    made = path.read_bytes()
    for step in plan.steps:
        for edit in step.edits:
            if isinstance(edit, Overwrite) and edit.file == name:
                made = made[: edit.offset] + edit.after + made[edit.offset + len(edit.after) :]
    first = int.from_bytes(data[:8], "big")
    other = filler(first, first + int.from_bytes(data[23:27], "big"), 0, 5, len(data) + by)
    assert other is not None
    edits = tuple(place.again(path, made[:at] + other + made[at + len(other) :]))
    steps = tuple(step for step in plan.steps if name != step.file)
    directory = opened(place.root)
    wrong = replace(plan, steps=(Step("a.step", name, "bridge", "", edits), *steps))
    ledger = KafkaLedger(wrong, directory, RELEASE)
    assert not balance(wrong, directory.tree, ledger, after=ledger.after.tree).balances


def test_a_bit_that_is_healed_otherwise(place: Place, tmp_path: Path) -> None:
    path = place.plain[0]
    at, data = place.batches(path)[3]
    with open(path, "r+b") as file:
        file.seek(at + 70)
        file.write(bytes([data[70] ^ 4]))
    _planned(place, tmp_path)
    changed = bytearray(data)
    changed[70] ^= 4
    changed[90:97] = b"another"
    assert not judged(place, place.over(path, at, _closed(bytes(changed)))).balances
    assert judged(place, place.over(path, at, data)).balances


# --- what a broker does ---------------------------------------------------------------------------------


VARIANTS = [
    pytest.param(release, name, marks=[pytest.mark.slow] if number % 12 else [])
    for release in RELEASES
    for number, name in enumerate(variants(release))
]


@pytest.mark.parametrize(("release", "variant"), VARIANTS)
def test_what_a_start_cuts_is_named(release: str, variant: str, tmp_path: Path) -> None:
    directory = opened(damaged(release, variant, tmp_path))
    start = recover(Replicas(LogDirectories([directory])), Release.parse(release))
    if not start.starts or start.offline:
        return
    plan = recovery_plan([directory], start)
    ledger = KafkaLedger(plan, directory, Release.parse(release), is_start=True)
    found, books = balanced(plan, directory, ledger)
    assert books.problems == []
    named = {name for step in found.steps for name in step.gives_up if "@" in name}
    assert bool(named) == bool(books.given_up)


def test_whole_records_before_are_those_of_all_the_directory(place: Place, tmp_path: Path) -> None:
    path, (at, data) = place.plain[0], place.batches(place.plain[0])[3]
    changed = bytearray(path.read_bytes())
    changed[at + len(data) - 1] ^= 0x55
    path.write_bytes(changed)
    logs = list(place.root.glob("*/*.log"))
    whole = sum(int.from_bytes(one[57:61], "big") for log in logs for _, one in place.batches(log))
    repair = plan_repair(opened(place.root), RepairOptions(RELEASE), tmp_path)
    assert repair.books is not None
    assert (repair.books.whole_before, repair.books.balances) == (whole, True)
