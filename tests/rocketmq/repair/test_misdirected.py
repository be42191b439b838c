"""Whole records in the places of others: each goes back where it says, and none becomes a message that it is not."""

from __future__ import annotations

import os
import random
import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import damage, golden
from formats.rocketmq.message import decode_record
from rmqctl.release import Release
from rmqctl.repair.edits import Overwrite
from rmqctl.repair.execute import apply, undo
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, overlaid, plan_repair
from rmqctl.rocketmq.salvage.salvage import SalvageOptions, salvage
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.repair.judged import refusals, seeds
from tests.rocketmq.repair.misdirected_helpers import Account, Bookkeeper, Found, Misdirector, census

CLEAN = "4.9.8-clean"
SIZE = 131072
BLANK = bytes.fromhex("cbd43194")
ORDERS, LOG = 11395, 69753
"""Places of two records of 427 bytes, LabOrders/2@4 and LabLog/2@20."""


class Patient:
    """A copy of a sound store, with what it held."""

    def __init__(self, root: Path, room: Path) -> None:
        self.root, self.room = root, room
        self.store = open_store_at(str(root))
        self.sound = census(self.store)
        self.bytes = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}

    def read(self, physical: int, size: int) -> bytes:
        with LogReader(self.store.log_files) as log:
            return log.read(physical, size)

    def put(self, physical: int, data: bytes) -> None:
        file = self.root / "commitlog" / f"{physical // SIZE * SIZE:020d}"
        damage.overwrite(file, physical % SIZE, data)

    def exchange(self, one: int, other: int, size: int) -> None:
        first, second = self.read(one, size), self.read(other, size)
        self.put(one, second)
        self.put(other, first)

    def plan(self) -> tuple[Repair, StoreFiles, dict[bytes, tuple[Found, list[int]]]]:
        """A plan, the store as it leaves it, and the whole records there."""
        store = open_store_at(str(self.root))
        repair = plan_repair(store, RepairOptions(), Path(tempfile.mkdtemp(dir=self.room)))
        after = overlaid(store, repair.plan.edits)
        assert refusals(repair, after) == []
        return repair, after, census(after)

    def gone(self, found: dict[bytes, tuple[Found, list[int]]]) -> list[Found]:
        """Records of the sound store that are not at home."""
        return [one for raw, (one, _) in self.sound.items() if raw not in found or one.physical not in found[raw][1]]


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    return Patient(golden.unpack(CLEAN, tmp_path), tmp_path)


# --- a record over another ------------------------------------------------------------------------


def test_a_record_copied_over_another_does_not_become_it(patient: Patient) -> None:
    patient.put(ORDERS, patient.read(LOG, 427))
    repair, after, found = patient.plan()
    (lost,) = patient.gone(found)
    assert (lost.topic, lost.queue_id, lost.queue_offset, lost.physical) == (b"LabOrders", 2, 4, ORDERS)
    with LogReader(after.log_files) as log:
        record, fields = log.record(ORDERS), log.fields(ORDERS)
    assert record is not None
    assert fields is not None
    assert (fields["topic"], fields["queue_id"], fields["queue_offset"], len(record)) == (b"LabOrders", 2, 4, 427)
    assert b"RMQCTL_PLACEHOLDER" in fields["properties"]
    assert sum(step.loses for step in repair.plan.steps) == 1
    assert not any(step.gives_up for step in repair.plan.steps)  # the copied one is at home


def test_two_records_exchanged_go_back(patient: Patient) -> None:
    patient.exchange(ORDERS, LOG, 427)
    repair, _, found = patient.plan()
    assert (patient.gone(found), sum(step.loses for step in repair.plan.steps)) == ([], 0)
    assert (repair.books.whole_before, repair.books.moved) == (len(patient.sound), 2)


def test_the_last_record_of_the_log_exchanged_with_another_goes_back(patient: Patient) -> None:
    *others, last = (t for t in golden.truth(CLEAN) if t["kind"] == "msg")
    alike = [t for t in others if t["storeSize"] == last["storeSize"]]
    assert len(alike) == 5
    for other in alike:
        patient.exchange(other["commitLogOffset"], last["commitLogOffset"], last["storeSize"])
        repair, _, found = patient.plan()
        assert (patient.gone(found), sum(step.loses for step in repair.plan.steps)) == ([], 0)
        patient.exchange(other["commitLogOffset"], last["commitLogOffset"], last["storeSize"])


@pytest.mark.parametrize("begin", [0, 18909, 299235, 303216, 453675])
def test_neighbours_of_different_lengths_exchanged_in_the_room_of_both_go_back(begin: int, patient: Patient) -> None:
    (one, other) = (
        next(found for found, _ in patient.sound.values() if found.physical == at)
        for at in (begin, after(patient, begin))
    )
    assert len(one.raw) != len(other.raw)
    patient.put(begin, other.raw + one.raw)
    repair, _, found = patient.plan()
    assert (patient.gone(found), sum(step.loses for step in repair.plan.steps)) == ([], 0)


def after(patient: Patient, begin: int) -> int:
    """Where the record after another begins."""
    return begin + next(len(one.raw) for one, _ in patient.sound.values() if one.physical == begin)


@pytest.mark.parametrize("size", [b"", b"\x07\x5b\xcd\x15", (512).to_bytes(4, "big")])
@pytest.mark.parametrize("room", [0, 32, 80])
def test_a_record_that_became_the_end_of_its_file_hides_no_other(size: bytes, room: int, patient: Patient) -> None:
    """A blank record of another size in the middle of a file: what lies behind it is kept and served."""
    one = next(found for found, _ in patient.sound.values() if found.physical > SIZE + 40_000)
    patient.put(one.physical + 4 - len(size), size + BLANK + bytes(room))
    repair, _, found = patient.plan()
    assert repair.books.whole_before == len(patient.sound) - 1
    assert patient.gone(found) == ([] if room == 0 else [one])
    assert sum(step.loses for step in repair.plan.steps) == (room > 0)


@pytest.mark.parametrize("later", [60_000, 86_400_000, 1 << 38])
@pytest.mark.parametrize("number", [-60, -200])
def test_a_store_time_in_the_future_makes_nothing_behind_it_old(number: int, later: int, patient: Patient) -> None:
    """The next record is destroyed, too, and all behind them is older than the one in front: none of it was cut off."""
    one, lost = [found for found, _ in patient.sound.values()][number:][:2]
    patient.put(one.physical + 56, struct.pack(">q", int.from_bytes(one.raw[56:64], "big") + later))
    patient.put(lost.physical, bytes(40))
    repair, _, found = patient.plan()
    assert [gone.physical for gone in patient.gone(found) if gone is not one] == [lost.physical]
    assert sum(step.loses for step in repair.plan.steps) == 1


def test_a_later_record_over_another_of_the_last_file_makes_nothing_behind_it_old(patient: Patient) -> None:
    records = [found for found, _ in patient.sound.values()]
    victim, other = next(
        (one, far) for number, one in enumerate(records[-300:]) for far in records[-300 + number + 100 :]
        if 4 < len(one.raw) - len(far.raw) < 50
    )  # fmt: skip
    patient.put(victim.physical, other.raw)
    repair, _, found = patient.plan()
    assert patient.gone(found) == [victim]
    assert sum(step.loses for step in repair.plan.steps) == 1


def test_where_only_the_physical_offset_differs_the_store_time_must_fit(patient: Patient) -> None:
    """Another message with the same topic, queue and queue offset is not that of the place; a flipped bit is healed."""
    records = [one for one, _ in patient.sound.values()]
    victim, other = next(
        (one, far) for number, one in enumerate(records) for far in records[number + 100 :]
        if (one.topic, one.queue_id, len(one.raw)) == (far.topic, far.queue_id, len(far.raw)) and one.body != far.body
    )  # fmt: skip
    raw = bytearray(other.raw)
    raw[20:28] = struct.pack(">q", victim.queue_offset)
    patient.put(victim.physical, bytes(raw))
    _, _, found = patient.plan()
    assert patient.gone(found) == [victim]
    assert not any(
        one.physical == victim.physical and one.body == raw[88:][: len(one.body)] for one, _ in found.values()
    )
    patient.put(victim.physical, victim.raw[:35] + bytes([victim.raw[35] ^ 4]) + victim.raw[36:])
    _, _, found = patient.plan()
    assert patient.gone(found) == []


def test_of_two_copies_the_one_with_its_own_properties_goes_home(patient: Patient) -> None:
    alike = [one for one, _ in patient.sound.values() if len(one.raw) == 427]
    first, second, third = alike[:3]
    patient.put(first.physical, third.raw[:-12] + bytes(12))
    patient.put(second.physical, third.raw)
    patient.put(third.physical, bytes(427))
    _, _, found = patient.plan()
    assert patient.gone(found) == [first, second]


def test_a_record_over_the_properties_of_one_that_goes_home_costs_only_what_it_lies_over(tmp_path: Path) -> None:
    """In its own place the first would bring the other along, to where that does not belong."""
    patient = Patient(golden.unpack("5.1.4-crash", tmp_path), tmp_path)
    first, second, over = patient.read(0, SIZE), patient.read(SIZE, SIZE), patient.read(56_253, 446)
    patient.put(0, second)
    patient.put(SIZE, first)
    patient.put(2223, over)
    repair, _, found = patient.plan()
    assert repair.books.problems == []
    assert [(one.physical, len(one.raw)) for one in patient.gone(found)] == [(132_735, 896), (133_631, 2246)]


def properties(one: Found) -> bytes:
    return bytes(decode_record(one.raw)[0]["properties"])


def _body(store: StoreFiles, one: Found) -> object:
    """The body of the message at the place that a record names."""
    with LogReader(store.log_files) as log:
        fields = log.fields(one.physical)
    assert fields is not None
    return fields["body"]


@pytest.mark.parametrize("end", [1, 40])
def test_a_file_that_ends_in_properties_keeps_their_message(end: int, patient: Patient) -> None:
    """The rest of the file is lost, and properties have no CRC: the message stands with those that are left."""
    one = next(one for one, _ in patient.sound.values() if one.physical > SIZE + 40_000)
    size = one.physical + len(one.raw) - end - SIZE
    os.truncate(patient.root / f"commitlog/{SIZE:020d}", size)
    repair, after, found = patient.plan()
    assert repair.books.problems == []
    assert _body(after, one) == one.body
    assert set(patient.gone(found)) == {
        lost for lost, _ in patient.sound.values() if one.physical <= lost.physical < 2 * SIZE
    }


# --- pages of records of 512 bytes ------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose records are all 512 bytes long."""
    room = tmp_path_factory.mktemp("pages")
    words = ["--topic", "Even", "--count", "600", "--small", "--as-release", "4.9.8", "--seed", "1"]
    overhead = 0
    for name in ("first", "even"):
        root = room / name
        size = ["--size", str(512 - overhead if overhead else 100)]
        done = CliRunner().invoke(cli, ["produce", str(root), *words, *size], standalone_mode=False)
        assert done.exception is None, done.exception
        with LogReader(open_store_at(str(root)).log_files) as log:
            overhead = len(log.record(0) or b"") - 100
    return root


@pytest.mark.parametrize("is_exchange", [False, True])
def test_a_page_of_records_in_another_file(pages: Path, tmp_path: Path, *, is_exchange: bool) -> None:
    golden.copy_tree(pages, tmp_path / "store")
    patient = Patient(tmp_path / "store", tmp_path)
    files = patient.store.log_files
    size = files[0].size
    one, other = 8192, size + 4096
    first, second = patient.read(one, 4096), patient.read(other, 4096)
    assert len({len(found.raw) for found, _ in patient.sound.values()}) == 1
    for physical, data in ((other, first), *([(one, second)] if is_exchange else [])):
        damage.overwrite(Path(patient.root) / files[physical // size].name, physical % size, data)
    repair, _, found = patient.plan()
    lost = patient.gone(found)
    assert [one.physical for one in lost] == ([] if is_exchange else list(range(other, other + 4096, 512)))
    assert sum(step.loses for step in repair.plan.steps) == len(lost)
    foreign = {one.body for one, places in patient.sound.values() if 8192 <= places[0] < 8192 + 4096}
    assert not [one for one, _ in found.values() if other <= one.physical < other + 4096 and one.body in foreign]


# --- shorter, and inside a body -----------------------------------------------------------------------


@pytest.mark.parametrize("shorter", [1, 2, 7, 8, 25, 49, 50])
def test_a_record_replaced_by_a_shorter_one_gets_one_placeholder_over_its_whole_place(
    shorter: int, patient: Patient
) -> None:
    records = [one for one, _ in patient.sound.values()]
    by_size = {len(one.raw): one for one in records}
    victim, other = next((one, by_size[size]) for one in records[300:] if (size := len(one.raw) - shorter) in by_size)
    patient.put(victim.physical, other.raw)
    repair, after, found = patient.plan()
    assert patient.gone(found) == [victim]
    with LogReader(after.log_files) as log:
        assert len(log.record(victim.physical) or b"") == len(victim.raw)
    assert [step.loses for step in repair.plan.steps if step.loses] == [1]


def test_pages_exchanged_one_of_them_inside_a_large_body(patient: Patient, tmp_path: Path) -> None:
    """They cost the records that they cut in two, by repair and by salvage."""
    inside, outside, page = SIZE + 8192, 2 * SIZE + 5 * 4096, 8192
    patient.exchange(inside, outside, page)
    cut = [
        one for one, _ in patient.sound.values()
        if not (one.physical >= outside and one.physical + len(one.raw) <= outside + page)
        and any(one.physical < at + page and at < one.physical + len(one.raw) for at in (inside, outside))
    ]  # fmt: skip
    assert 2 <= len(cut) <= 3
    whole = [one for one, _ in patient.sound.values() if outside <= one.physical <= outside + page - len(one.raw)]
    assert len(whole) == 30
    _, _, found = patient.plan()
    lost = patient.gone(found)
    assert set(lost) <= set(cut)
    saved = salvage([open_store_at(str(patient.root))], tmp_path / "into", SalvageOptions())
    bodies = {
        (one.topic, one.queue_id, one.queue_offset, one.body)
        for one, _ in census(open_store_at(str(tmp_path / "into"))).values()
    }
    missing = [
        one for one, _ in patient.sound.values() if (one.topic, one.queue_id, one.queue_offset, one.body) not in bodies
    ]
    assert set(missing) <= set(cut)
    assert saved.written.messages == len(patient.sound) - len(missing)


# --- of another broker ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("other", ["5.1.4-clean", "5.5.0-clean"])
def test_a_file_of_another_broker_in_the_place_of_ones_own(other: str, number: int, patient: Patient) -> None:
    """It goes away with all that it holds, named, and its messages are not served."""
    name = f"{number * SIZE:020d}"
    foreign = (golden.pristine(other) / "commitlog" / name).read_bytes()
    (patient.root / "commitlog" / name).write_bytes(foreign)
    before = census(open_store_at(str(patient.root)))
    repair, _, found = patient.plan()
    assert not [one for raw, (one, _) in found.items() if raw not in patient.sound and not one.stands_in]
    names = [name for step in repair.plan.steps for name in step.gives_up]
    strangers = [one for raw, (one, _) in before.items() if raw not in patient.sound]
    assert len(strangers) > 5
    assert all(one.is_named(names) for one in strangers)
    assert all(one.physical // SIZE == number for one in patient.gone(found))


def test_the_last_message_of_a_file_gets_its_placeholder_though_another_brokers_file_ends_earlier(
    keepers: dict[str, Bookkeeper],
) -> None:
    """The blank record of that lies where the last message ended, to which a unit still leads."""
    damager = keepers["5.5.0"].damagers[1]
    data = (damager.other / "commitlog" / f"{3 * SIZE:020d}").read_bytes()
    found = keepers["5.5.0"].account_of(damager, damager._put(2 * SIZE, data))
    _check(found)
    assert found.stand_ins == 309


@pytest.mark.parametrize(("size", "number"), [(512, 145), (4096, 8), (4096, 15), (16384, 4)])
def test_a_later_page_of_another_broker_in_the_last_file_makes_nothing_behind_it_old(
    size: int, number: int, keepers: dict[str, Bookkeeper]
) -> None:
    """It has the same place in the other log, its records are newer than all behind them, and say that they lie there."""
    keeper = keepers["5.5.0"]
    damager, name = keeper.damagers[0], f"{3 * SIZE:020d}"
    begin = number * size
    page = (damager.other / "commitlog" / name).read_bytes()[begin : begin + size]
    found = keeper.account_of(damager, damager._put(int(name) + begin, page))
    _check(found)
    assert found.sacrificed == []


@pytest.mark.parametrize(
    ("release", "other", "pages"),
    [
        ("5.5.0", "5.1.4-clean", [(8192, 0), (8192, 98304)]),
        ("5.5.0", "4.5.2-crash", [(2048, 49152), (2048, 43008)]),
        ("5.5.0", "5.1.4-clean", [(1024, 65536)]),
        ("4.9.8", "5.3.3-clean", [(4096, 8192), (4096, 53248)]),
    ],
)
def test_pages_of_another_broker_cost_what_they_lie_over(
    release: str, other: str, pages: list[tuple[int, int]], keepers: dict[str, Bookkeeper]
) -> None:
    """They have the same place in the other log. The queues lead to what lies behind them, so no cut has left it."""
    keeper = keepers[release]
    data = (golden.pristine(other) / "commitlog" / f"{3 * SIZE:020d}").read_bytes()
    recipe = [step for size, at in pages for step in keeper.damagers[0]._put(3 * SIZE + at, data[at : at + size])]
    found = keeper.account_of(keeper.damagers[0], recipe)
    _check(found)
    assert found.sacrificed == []


@pytest.mark.parametrize(
    ("release", "other", "size", "at", "given_up", "messages"),
    [
        pytest.param("5.5.0", "5.1.4-crash", 1024, 10240, 2, 4, id="else a broker would number a message wrong"),
        pytest.param("4.5.2", "5.5.0-crash", 2048, 2048, 5, 8, id="one record is left behind it"),
        pytest.param("4.5.2", "5.5.0-crash", 512, 0, 1, 2, id="the file begins with it"),
        pytest.param("4.5.2", "4.9.8-crash", 4096, 0, 11, 14, id="all of the file but its last record"),
    ],
)
def test_records_of_another_log_where_they_say_are_given_up_where_units_lead_all_over_their_place(
    release: str, other: str, size: int, at: int, given_up: int, messages: int, keepers: dict[str, Bookkeeper]
) -> None:
    """No unit leads to them: each message whose unit leads into the page gets a placeholder."""
    damager, last = keepers[release].damagers[1], 4 * SIZE
    data = (golden.pristine(other) / "commitlog" / f"{last:020d}").read_bytes()
    found = keepers[release].account_of(damager, damager._put(last + at, data[at : at + size]))
    _check(found)
    assert (found.named, found.stand_ins, found.sacrificed) == (given_up, messages, [])


@pytest.mark.parametrize(
    ("seed", "given_up"),
    [
        pytest.param(700027, 4, id="a sound record lies where another log's record has its properties"),
        pytest.param(700111, 1, id="a gap beside a record of another log is too small for any record"),
        pytest.param(700153, 0, id="four messages are missing that the room of one could hold"),
    ],
)
def test_a_record_of_another_broker_gives_way(seed: int, given_up: int, keepers: dict[str, Bookkeeper]) -> None:
    found = keepers["5.5.0"].account(seed)
    _check(found)
    assert (found.named, found.sacrificed) == (given_up, [])


@pytest.mark.parametrize("state", ["clean", "crash"])
def test_a_record_of_another_broker_behind_the_end_becomes_no_message(state: str, tmp_path: Path) -> None:
    patient = Patient(golden.unpack(f"4.9.8-{state}", tmp_path), tmp_path)
    end = max(one.physical + len(one.raw) for one, _ in patient.sound.values())
    strangers = [one for one, _ in census(open_store_at(str(golden.pristine("5.5.0-crash")))).values()]
    for stranger in (strangers[400], strangers[-1]):
        patient.put(end, stranger.raw)
        repair, _, found = patient.plan()
        assert set(found) == set(patient.sound)
        assert stranger.is_named([name for step in repair.plan.steps for name in step.gives_up])
        patient.put(end, bytes(len(stranger.raw)))


# --- files under wrong names ------------------------------------------------------------------------------


def test_a_misnamed_file_whose_bytes_have_moved_keeps_the_message_whose_properties_went_over_its_end(
    patient: Patient,
) -> None:
    log = patient.root / "commitlog"
    data = (log / f"{SIZE:020d}").read_bytes()
    last = max((one for one, _ in patient.sound.values() if one.physical < 2 * SIZE), key=lambda one: one.physical)
    shift = 2 * SIZE - last.physical - len(last.raw) + 20
    (log / f"{SIZE:020d}").unlink()
    (log / f"{9 * SIZE:020d}").write_bytes((b"\xff" * shift + data)[:SIZE])
    repair, after, found = patient.plan()
    assert repair.books.problems == []
    assert _body(after, last) == last.body
    assert patient.gone(found) == [last]


def test_a_file_to_which_a_single_queue_leads_is_no_other_brokers(patient: Patient) -> None:
    """The units that are left lead to few of its records, and all to records."""
    alike = [one.physical for one, _ in patient.sound.values() if len(one.raw) == 427]
    patient.exchange(alike[0], next(at for at in alike if at > 2 * SIZE), 427)
    for queue in (patient.root / "consumequeue").glob("*/*"):
        if queue.parts[-2:] != ("LabOrders", "1"):
            shutil.rmtree(queue)
    repair, _, found = patient.plan()
    assert (patient.gone(found), sum(step.loses for step in repair.plan.steps)) == ([], 0)


@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
@pytest.mark.parametrize("name", [f"{9 * SIZE:020d}", f"{9 * SIZE + 1:020d}", f"{2 * SIZE:020d}.bak"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_misnamed_and_shifted_comes_home(number: int, name: str, fill: bytes, patient: Patient) -> None:
    log = patient.root / "commitlog"
    data = (log / f"{number * SIZE:020d}").read_bytes()
    (log / f"{number * SIZE:020d}").unlink()
    (log / name).write_bytes((fill * 33 + data)[:SIZE])
    repair, _, found = patient.plan()
    assert (patient.gone(found), sum(step.loses for step in repair.plan.steps)) == ([], 0)
    assert repair.books.whole_before == len(patient.sound)
    written = sum(len(edit.after) for edit in repair.plan.edits if isinstance(edit, Overwrite))
    assert written < 1000  # the whole file is written, not record by record
    saved = salvage([open_store_at(str(patient.root))], patient.room / "into", SalvageOptions())
    assert saved.written.messages == len(patient.sound)


def test_a_misnamed_queue_gets_its_name_once_exchanged_log_files_have_theirs(patient: Patient) -> None:
    """Until then its units lead to other records, which do not say what it is."""
    one, other = (patient.root / "commitlog" / f"{number * SIZE:020d}" for number in (0, 3))
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)
    (patient.root / "consumequeue/Elsewhere").mkdir()
    (patient.root / "consumequeue/LabOrders/1").rename(patient.root / "consumequeue/Elsewhere/1")
    repair, _, found = patient.plan()
    assert [step.id for step in repair.plan.steps] == ["log.physical-offset", "queue.directory-name"]
    assert patient.gone(found) == []


@pytest.mark.parametrize(
    "to", [pytest.param(SIZE + 20480, id="in a large body"), pytest.param(45056, id="over records")]
)
@pytest.mark.parametrize("number", [-2, -1])
@pytest.mark.parametrize("store", ["4.9.8-clean", "5.5.0-crash"])
def test_records_of_a_lost_file_that_lie_in_another_come_home(store: str, number: int, to: int, tmp_path: Path) -> None:
    """Whether files follow it or not: it is made anew for them, and what else was in it is bridged up to them."""
    patient = Patient(golden.unpack(store, tmp_path), tmp_path)
    lost = [file for file in sorted((patient.root / "commitlog").iterdir()) if any(file.read_bytes()[:8])][number]
    base, page = int(lost.name), lost.read_bytes()[4096:20480]
    lost.unlink()
    patient.put(to, page)
    sound = [(one, range(one.physical, one.physical + len(one.raw))) for one, _ in patient.sound.values()]
    here = {one for one, place in sound if base + 4096 <= place.start and place.stop <= base + 20480}
    over = {one for one, place in sound if place.start < to + len(page) and to < place.stop}
    rest = {one for one, place in sound if base <= place.start < base + SIZE} - here
    repair, _, found = patient.plan()
    assert repair.books.problems == []
    assert set(patient.gone(found)) == over | rest
    assert len(here) >= 10
    assert not any(one.is_named([name for step in repair.plan.steps for name in step.gives_up]) for one in here)


@pytest.mark.parametrize("keeps_blank", [True, False])
def test_a_page_of_another_log_after_the_end_does_not_become_the_end(keeps_blank: bool, tmp_path: Path) -> None:
    """Its records say that they lie where they lie, but no unit leads there, and one says a place that another has."""
    patient = Patient(golden.unpack("5.5.0-clean", tmp_path), tmp_path)
    other = (golden.pristine("5.1.4-crash") / "commitlog" / f"{3 * SIZE:020d}").read_bytes()
    at, blank_at = 130_000, other.index(BLANK) - 4
    patient.put(3 * SIZE + at, other[at : None if keeps_blank else blank_at])
    repair, after, found = patient.plan()
    assert set(found) == set(patient.sound)
    names = [name.rpartition(" #")[0] for step in repair.plan.steps for name in step.gives_up]
    assert names == ["LabOrders/2@89 at 523373", "LabOrders/3@89 at 523706"]
    assert (repair.books.problems, repair.books.given_up, repair.books.loses) == ([], 2, 2)
    assert recover(after, Release(5, 5, 0)).end == max(
        one.physical + len(raw) for raw, (one, _) in patient.sound.items()
    )


@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/LabLog", "timerlog"])
def test_the_last_records_of_a_log_stay_after_a_gap(lost: str, tmp_path: Path) -> None:
    """Whatever units are lost: no other record has their places in queues."""
    patient = Patient(golden.unpack("5.5.0-clean", tmp_path), tmp_path)
    places = sorted(one.physical for one, _ in patient.sound.values())
    patient.put(places[-8], bytes(places[-3] - places[-8]))
    shutil.rmtree(tmp_path / "5.5.0-clean" / lost)
    _, _, found = patient.plan()
    assert [one.physical for one in patient.gone(found)] == places[-8:-3]


@pytest.mark.parametrize("is_due", [True, False])
def test_a_record_in_the_damaged_properties_of_another_comes_home_or_is_named(is_due: bool, tmp_path: Path) -> None:
    """No CRC covers properties, so what lies in them is none of what the message says."""
    patient = Patient(golden.unpack("4.5.2-crash", tmp_path), tmp_path)
    record = next(one for one, _ in patient.sound.values() if one.physical == 492131)
    assert patient.read(108479, 84)[4:8] == record.raw[4:8]
    patient.put(109155, record.raw)
    patient.put(492131, bytes(len(record.raw)))
    if not is_due:  # another message lies there now
        patient.put(109155 + 28, (109).to_bytes(8, "big"))
    repair, _, found = patient.plan()
    assert repair.books.problems == []
    names = [name for step in repair.plan.steps for name in step.gives_up]
    assert [one.physical for one in patient.gone(found)] == [108479] + [492131] * (not is_due)
    assert any("@116 at 109 " in name for name in names) is not is_due
    saved = salvage([open_store_at(str(patient.root))], tmp_path / "into", SalvageOptions())
    assert (saved.written.messages, saved.books.problems) == (len(patient.sound), [])


def test_a_damaged_copy_of_a_file_under_the_name_of_one_that_is_misnamed_itself_gives_way(patient: Patient) -> None:
    first, second, third = (patient.root / "commitlog" / f"{number * SIZE:020d}" for number in range(3))
    one, two = second.read_bytes(), third.read_bytes()
    first.write_bytes(one)
    second.write_bytes(two)
    third.write_bytes(one[:33587] + b"\xa5" * 8 + one[33595:])
    repair, _, found = patient.plan()
    assert repair.books.problems == []
    assert {record.physical // SIZE for record in patient.gone(found)} == {0}
    assert [step.what.split(":")[0] for step in repair.plan.steps][:2] == [
        "move to quarantine",
        "give it its right name",
    ]


# --- at random ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keepers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bookkeeper]:
    room = tmp_path_factory.mktemp("misdirected")
    return {release: Bookkeeper(release, room) for release in ("4.5.2", "4.9.8", "5.5.0")}


@pytest.mark.parametrize("seed", range(30))
def test_random_misdirection(seed: int, keepers: dict[str, Bookkeeper]) -> None:
    _check(keepers["4.9.8" if seed % 4 < 2 else "5.5.0"].account(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds("30-200"))
@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_more_random_misdirection(release: str, seed: int, keepers: dict[str, Bookkeeper]) -> None:
    _check(keepers[release].account(seed))


@pytest.mark.slow
def test_another_brokers_file_whose_records_belong_after_the_end(keepers: dict[str, Bookkeeper]) -> None:
    """Units of the queues lead elsewhere from the places that its records claim, so it is no file of this log."""
    _check(keepers["4.9.8"].account(40134))


@pytest.mark.parametrize("kind", ["records_exchanged", "pages_exchanged", "file_shifted", "file_foreign"])
def test_undo_brings_the_damage_back_byte_for_byte(kind: str, patient: Patient) -> None:
    damager = Misdirector(CLEAN, golden.pristine("5.1.4-crash"))
    damage.apply(damager.kinds[kind](random.Random(7)), patient.root)
    before = _content(patient.root)
    repair, _, _ = patient.plan()
    done = apply(repair.plan, journal_dir=patient.room / "journal")
    assert _content(patient.root) != before
    undo(done.journal)
    assert _content(patient.root) == before


def _content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _check(found: Account) -> None:
    assert (found.lost, found.changed, found.invented, found.adopted, found.refused) == ([], [], [], [], []), (
        found.recipe
    )
