"""Two and three kinds of damage at once, on stores of every kind; each case here was lost, adopted or refused once."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from fixtures import damage, golden
from fixtures.random_damage import Recipe
from formats.rocketmq.message import decode_record
from rmqctl.rocketmq.log.record import LogReader, record_name
from rmqctl.rocketmq.repair.plan import RepairOptions, overlaid, plan_repair
from rmqctl.rocketmq.state.config import configured_topics
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.repair.attacks_helpers import OTHER, Besieger, besieged
from tests.rocketmq.repair.judged import seeds
from tests.rocketmq.repair.misdirected_helpers import Account, whole

PAGE = 4096


def file_of(name: str, number: int) -> bytes:
    """A file of the log of a golden store."""
    return sorted((golden.pristine(name) / "commitlog").iterdir())[number].read_bytes()


def put(number: int, size: int, at: int, data: bytes) -> Recipe:
    return [{"op": "write", "file": f"commitlog/{number * size:020d}", "offset": at, "hex": data.hex()}]


def whole_file(number: int, size: int, data: bytes) -> Recipe:
    return [{"op": "create", "file": f"commitlog/{number * size:020d}", "hex": data.hex()}]


def accounted(name: str, recipe: Recipe, room: Path) -> Account:
    """What a plan makes of a damage; nothing is wrong with it."""
    found = besieged(Besieger(name), recipe, room)
    assert (found.lost, found.changed, found.invented, found.adopted, found.refused) == ([], [], [], [], [])
    return found


@pytest.mark.parametrize("number", [0, 2])
def test_another_brokers_file_with_one_place_in_common_is_told_from_ones_own(number: int, tmp_path: Path) -> None:
    """Two logs begin with a record of the same place, topic and queue where the same was sent first."""
    found = accounted("5.3.3-clean", whole_file(number, 131072, file_of(OTHER, number)), tmp_path)
    assert (found.foreign, found.named > 290) == ([], True)


@pytest.mark.parametrize(("name", "number"), [("5.5.0-rdbcqmix-clean", 2), ("5.5.0-rdbmsg-clean", 4)])
def test_another_brokers_file_is_not_put_after_the_end_though_its_records_say_so(
    name: str, number: int, tmp_path: Path
) -> None:
    """Units lead into the place whose name it has, and none to where it would go."""
    found = accounted(name, whole_file(1, 65536, file_of(OTHER, number)), tmp_path)
    assert (found.foreign, found.moved) == ([], 0)


def test_another_brokers_file_is_not_put_after_newer_records(tmp_path: Path) -> None:
    """No unit says it where the database of queues is lost."""
    recipe = [*whole_file(1, 65536, file_of(OTHER, 2)), {"op": "rmtree", "path": "consumequeue"}]
    found = accounted("5.5.0-rdbcfg-clean", recipe, tmp_path)
    assert (found.foreign, found.moved) == ([], 0)


@pytest.mark.parametrize(
    ("name", "number", "lost", "is_known"),
    [
        ("5.3.3-crash", 4, ["index"], True), ("5.3.3-clean", 2, ["index"], True), ("5.3.3-clean", 0, ["index"], False),
        ("5.3.3-clean", 0, [], True), ("4.9.8-crash", 0, [], True),
    ],
)  # fmt: skip
def test_another_brokers_file_is_known_by_queue_offsets_or_the_index_where_no_unit_is_left(
    name: str, number: int, lost: list[str], is_known: bool, tmp_path: Path
) -> None:
    """They repeat those of the files in front, and the index leads to none of its records. Where there is no index nothing
    says of the first file and the rest which are the other's.
    """
    recipe = whole_file(number, 131072, file_of(OTHER, number))
    recipe += [{"op": "rmtree", "path": part} for part in ("consumequeue", *lost)]
    found = accounted(name, recipe, tmp_path)
    assert (found.sacrificed, found.foreign == []) == ([], is_known)


@pytest.mark.parametrize("name", golden.NAMES)
def test_no_file_is_anothers_where_only_queues_are_lost(name: str, tmp_path: Path) -> None:
    found = accounted(name, [{"op": "rmtree", "path": "consumequeue"}], tmp_path)
    assert (found.named, found.sacrificed) == (0, [])


def test_another_brokers_file_of_another_length_has_no_unit(tmp_path: Path) -> None:
    shorter = file_of("5.5.0-rdblite-clean", 0)[57446 : 57446 + 259]  # so no store time breaks beside it
    recipe = [*whole_file(0, 65536, file_of(OTHER, 0)), *put(0, 65536, 37773, shorter)]
    assert accounted("5.5.0-rdblite-clean", recipe, tmp_path).foreign == []


def test_records_of_another_time_between_two_gaps_are_not_of_here(tmp_path: Path) -> None:
    """No unit says it: the queues of a broker that was killed are empty. What was destroyed gets its placeholders."""
    data = file_of(OTHER, 0)[61440 : 61440 + PAGE]
    found = accounted("5.5.0-rocksdb-crash", put(0, 65536, 61440, data), tmp_path)
    assert (found.foreign, found.sacrificed, found.named, found.stand_ins) == ([], [], 9, 21)


def test_records_go_home_where_no_other_record_is_left(tmp_path: Path) -> None:
    """The second file over the first, and zeros in its own place; no unit says that its records belong there."""
    data = file_of("5.5.0-rocksdb-crash", 1)
    recipe = [*put(0, 65536, 0, data), *put(1, 65536, 0, bytes(65536))]
    found = accounted("5.5.0-rocksdb-crash", recipe, tmp_path)
    assert (found.named, found.stranded, found.moved) == (0, [], 239)


def test_records_go_home_where_those_in_front_have_expired(tmp_path: Path) -> None:
    """The last file over the one in front of it, all others expired: nothing says where queues begin."""
    root = golden.unpack("4.9.8-crash", tmp_path)
    *expired, front, last = sorted(path for path in (root / "commitlog").iterdir() if any(path.read_bytes()))
    for path in expired:
        path.unlink()
    was = last.read_bytes()
    front.write_bytes(was)
    last.write_bytes(bytes(len(was)))
    shutil.rmtree(root / "consumequeue")
    store = open_store_at(str(root))
    repair = plan_repair(store, RepairOptions(), tmp_path)
    assert (repair.books.given_up, repair.books.problems) == (0, [])
    with LogReader(overlaid(store, repair.plan.edits).log_files) as made:
        assert made.read(int(last.name), len(was)) == was


def test_what_is_given_up_as_of_another_log_is_not_put_back(tmp_path: Path) -> None:
    """Units lead to other records all over the place that it says, so it belongs there no more than where it lay."""
    lost = bytes(16384)
    astray = file_of("5.5.0-rocksdb-clean", 1)[24576 : 24576 + PAGE]
    recipe = [*whole_file(1, 65536, file_of(OTHER, 0)), *put(0, 65536, 0, lost), *put(0, 65536, 24576, astray)]
    found = accounted("5.5.0-rocksdb-clean", recipe, tmp_path)
    assert (found.foreign, found.sacrificed, found.moved) == ([], [], 21)


def test_what_is_given_up_under_a_file_that_is_too_long_has_its_name(tmp_path: Path) -> None:
    """The foreign file in front says that it has the places of the next one, too."""
    end = file_of("5.5.0-rdbcqmix-clean", 1).rstrip(b"\0")
    record = next(found for _, found in whole(file_of(OTHER, 2)) if len(found.raw) < 600)
    recipe = [*whole_file(0, 65536, file_of(OTHER, 0)), *put(1, 65536, len(end) + 1, record.raw)]
    assert accounted("5.5.0-rdbcqmix-clean", recipe, tmp_path).named > 300


def test_what_is_given_up_after_a_record_of_a_file_that_is_too_long_has_its_name(tmp_path: Path) -> None:
    """A longer record of the foreign file in front seems to lie around what is after the end of the log."""
    name, end = "5.5.0-rdbmsg-clean", 38694
    found = list(whole(file_of(name, 0)))
    _, copy = next(one for one in found if one[0] == 14118)
    recipe = [*whole_file(0, 65536, file_of(OTHER, 0)), *put(1, 65536, end, copy.raw)]
    assert accounted(name, recipe, tmp_path).named > 300


def test_a_blank_record_of_another_file_keeps_nothing_from_going_home(tmp_path: Path) -> None:
    """The second halves of two files exchanged: one blank record ends the other file exactly, in front of where units lead."""
    half, halves = 65536, [file_of("5.5.0-clean", number)[65536:] for number in (1, 0)]
    recipe = [edit for number, data in enumerate(halves) for edit in put(number, 131072, half, data)]
    found = accounted("5.5.0-clean", recipe, tmp_path)
    assert (found.named, found.stranded, found.moved) == (0, [], 152)


def test_a_first_file_whose_bytes_lie_one_place_on_is_moved_back_and_no_other_brokers(tmp_path: Path) -> None:
    """It has another name, too, no queue is left, and the index leads to none of its records. Its first bytes, one place on,
    say 0 where a record says its own.
    """
    name = "5.5.0-rdbincr-crash"
    data = b"\0" + file_of(name, 0)[:-1]
    file = "commitlog/00000000000000000000"
    recipe = [{"op": "create", "file": f"{file}.bak", "hex": data.hex()}, {"op": "delete", "file": file}]
    found = accounted(name, recipe, tmp_path)
    assert (found.moved, found.named, found.stranded) == (185, 0, [])


def test_a_record_that_has_come_home_under_another_brokers_records_stays(tmp_path: Path) -> None:
    """The chain leads through these, and over it."""
    name, base, copy = "5.1.4-crash", 393216, 321913
    log = {int(path.name): path.read_bytes() for path in (golden.pristine(name) / "commitlog").iterdir()}
    home, record = next(one for one in whole(log[base]) if one[0] == 475442 - base)
    recipe = [
        *whole_file(3, 131072, file_of("5.3.3-crash", 1)),
        *put(2, 131072, 13489, bytes(131072 - 13489)),
        *put(2, 131072, copy - 262144, record.raw),
    ]
    found = accounted(name, recipe, tmp_path)
    assert (found.moved, found.stranded) == (1, []), home


@pytest.mark.parametrize("size", [65536, 16384])
def test_the_last_records_of_two_files_go_home_over_the_blank_records_of_each_other(size: int, tmp_path: Path) -> None:
    """Their last pages exchanged, and no unit left: one ends five bytes in front of the blank record, one after it."""
    pages = [(number, file_of("5.5.0-clean", number)[-size:]) for number in (0, 2)]
    recipe = put(0, 131072, 131072 - size, pages[1][1]) + put(2, 131072, 131072 - size, pages[0][1])
    found = accounted("5.5.0-clean", [*recipe, {"op": "rmtree", "path": "consumequeue"}], tmp_path)
    assert (found.named, found.stranded, found.sacrificed) == (0, [], [])
    assert found.moved > size // 500


def test_records_go_home_into_a_file_that_is_made_again_where_nothing_else_is_wrong(tmp_path: Path) -> None:
    """Another broker's file in the place of the last but one, with a page of that; it goes into quarantine."""
    name, page = "5.5.0-rdbmsg-crash", slice(32768, 32768 + 8192)
    foreign = bytearray(file_of(OTHER, 4))
    foreign[40960 : 40960 + 8192] = file_of(name, 2)[page]
    found = accounted(name, whole_file(2, 65536, bytes(foreign)), tmp_path)
    assert (found.stranded, found.sacrificed, found.foreign) == ([], [], [])
    assert found.moved > 8


def test_records_without_a_body_that_go_home_with_those_beside_them_are_accounted_for(tmp_path: Path) -> None:
    """Those that 3.x writes where a transaction ends; nothing but their lengths proves them."""
    data = file_of("3.2.6-crash", 3)
    found = accounted("3.2.6-crash", whole_file(3, len(data), (b"\xff" * 512 + data)[: len(data)]), tmp_path)
    assert (found.named, found.moved) == (0, 73)


def test_topics_that_a_start_makes_from_the_log_get_into_the_configuration(tmp_path: Path) -> None:
    """The broker was killed before its database of queues had a row, and its configuration is gone."""
    accounted("5.5.0-rdbincr-crash", [{"op": "rmtree", "path": "config"}], tmp_path)


def test_exchanged_files_go_home_though_most_queues_are_lost(tmp_path: Path) -> None:
    """The units that are left lead into the one of them only; the other is no other broker's for that."""
    name = "5.5.0-rdbcfgv2-crash"
    recipe = [edit for one, other in ((0, 1), (1, 0)) for edit in put(one, 65536, 0, file_of(name, other))]
    recipe += [{"op": "rmtree", "path": f"consumequeue/{topic}"} for topic in ("VtwoOrders", "VtwoLog")]
    found = accounted(name, recipe, tmp_path)
    assert (found.named, found.stranded, found.moved) == (0, [], 353)


@pytest.mark.parametrize("length", [20, 5])
def test_a_whole_copy_of_a_record_goes_home_over_one_whose_properties_are_damaged(length: int, tmp_path: Path) -> None:
    """Zeros over a page that begins in them, and both pages of the log in the place of others, too."""
    data = file_of("5.1.4-clean", 0)
    at = next(at + len(found.raw) for at, found in whole(data) if at + len(found.raw) > 98304) - length
    recipe = [*put(0, 131072, at, bytes(PAGE)), *put(1, 131072, 65536, data[at - PAGE : at + PAGE])]
    found = accounted("5.1.4-clean", recipe, tmp_path)
    assert (found.named, found.sacrificed, found.stranded) == (0, [], [])


@pytest.mark.parametrize("letters", [b"v" * 20, bytes(20)])
def test_a_copy_with_the_crc_of_the_whole_record_goes_home_over_one_without(letters: bytes, tmp_path: Path) -> None:
    """Letters in the properties: nothing but that CRC shows that they are not the record's own."""
    name = "5.5.0-propcrc-clean"
    at, record = list(whole(file_of(name, 0)))[3]
    end = len(file_of(name, 1).rstrip(b"\0"))
    recipe = [*put(0, 65536, at + len(record.raw) - 60, letters), *put(1, 65536, end + 100, record.raw)]
    found = accounted(name, recipe, tmp_path)
    assert (found.named, found.moved, found.sacrificed, found.stranded) == (0, 1, [], [])


def test_units_of_another_brokers_database_make_no_placeholders(tmp_path: Path) -> None:
    """The first file of the log is zeros, and no unit leads to a record of the other."""
    recipe = Besieger("5.5.0-rdbcfg-clean").attack(760011)[1]
    found = accounted("5.5.0-rdbcfg-clean", recipe, tmp_path)
    assert (found.stand_ins, found.named) == (0, 0)


def copied(part: bytes, instead: bytes, *, is_home: bool) -> tuple[Recipe, bytes]:
    """A record once more after the end of the log, one of the two with other properties: recipe, and the true record."""
    name = "4.9.8-clean"
    at, record = list(whole(file_of(name, 0)))[5]
    damager = Besieger(name)
    head, _, rest = record.raw.rpartition(part)
    other = head + instead + rest
    base, place = divmod(damager.end + 100, damager.log_size)
    recipe = put(base, damager.log_size, place, record.raw if is_home else other)
    return recipe + (put(0, damager.log_size, at, other) if is_home else []), record.raw


@pytest.mark.parametrize("is_home", [True, False])
def test_of_two_copies_of_a_record_the_one_with_the_tags_of_its_unit_is_kept(is_home: bool, tmp_path: Path) -> None:
    """Both read well, and no CRC covers the tags."""
    recipe, _ = copied(b"TAGS\x01Aa", b"TAGS\x01@a", is_home=is_home)
    found = accounted("4.9.8-clean", recipe, tmp_path)
    assert (found.named, found.moved, found.stranded) == (0, int(is_home), [])


@pytest.mark.parametrize("is_home", [True, False])
def test_a_copy_of_a_record_with_other_keys_is_given_up_by_name(is_home: bool, tmp_path: Path) -> None:
    """No unit says which of the two is the true one, so the one at home stays."""
    recipe, raw = copied(b"k5 shared", b"k4 shared", is_home=is_home)
    root = golden.unpack("4.9.8-clean", tmp_path)
    damage.apply(recipe, root)
    repair = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path)
    assert repair.books.problems == []
    assert [name for step in repair.plan.steps for name in step.gives_up] == [record_name(decode_record(raw)[0])]


def renamed(name: str, file: str, to: str) -> Recipe:
    content = (golden.pristine(name) / file).read_bytes().hex()
    return [{"op": "create", "file": to, "hex": content}, {"op": "delete", "file": file}]


def test_a_queue_file_under_the_name_of_another_place_gets_its_right_one(tmp_path: Path) -> None:
    queue = "consumequeue/LabLog/1"
    root = golden.unpack("4.9.8-clean", tmp_path)
    (root / queue / f"{0:020d}").rename(root / queue / f"{6000:020d}")
    plan = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path).plan
    what = f"give it its right name: {queue}/{6000:020d} as {0:020d}"
    assert [(step.id, step.what) for step in plan.steps] == [("queue.stale-tail", what)]


def test_a_record_keeps_its_place_in_a_queue_whose_file_says_another(tmp_path: Path) -> None:
    """The one in front of it is destroyed, so only the unit of a misnamed file says where that was."""
    queue = "consumequeue/SCHEDULE_TOPIC_XXXX/6"
    recipe = [
        {"op": "truncate", "file": f"commitlog/{0:020d}", "length": 0},
        *renamed("3.2.6-clean", f"{queue}/{0:020d}", f"{queue}/{1200:020d}"),
        *put(1, 32768, 21105, file_of("3.2.6-clean", 2)[66435 - 65536 :][:370]),
    ]  # fmt: skip
    assert accounted("3.2.6-clean", recipe, tmp_path).stranded == []


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_offset_that_no_queue_can_have_reached_is_put_right_where_nothing_is_missing(
    is_whole: bool, tmp_path: Path
) -> None:
    """The last record of a queue, to which no unit leads: all records in front are whole, or one of them is not."""
    base, at = 524288, 27575
    root = golden.unpack("4.9.8-crash", tmp_path)
    path = root / "commitlog" / f"{base:020d}"
    was = path.read_bytes()
    data = bytearray(was)
    data[at + 20 : at + 28] = (base + at).to_bytes(8, "big")
    if not is_whole:
        front = max(place for place, _ in whole(was[:at]))
        data[front:at] = bytes(at - front)
    path.write_bytes(data)
    store = open_store_at(str(root))
    repair = plan_repair(store, RepairOptions(), tmp_path)
    assert repair.books.problems == []
    with LogReader(overlaid(store, repair.plan.edits).log_files) as log:
        fields = log.fields(base + at)
        assert fields is not None
        assert (fields["topic"], fields["queue_offset"]) == (b"LabLog", 174 if is_whole else base + at)
    assert (repair.refusal == "") == is_whole


def test_placeholders_in_front_of_all_other_records_have_the_store_time_of_the_next(tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(131072))
    store = open_store_at(str(root))
    repair = plan_repair(store, RepairOptions(), tmp_path)
    assert {step.id for step in (*repair.plan.steps, *repair.left)}.isdisjoint({"log.store-time"})
    with LogReader(overlaid(store, repair.plan.edits).log_files) as log:
        assert log.store_timestamp(0) == log.store_timestamp(131072) != 0


@pytest.mark.parametrize("without", [[], ["LabOrders"]])
def test_topics_that_a_broker_makes_only_when_it_needs_them_are_written_with_the_others(
    without: list[str], tmp_path: Path
) -> None:
    """A broker that starts serves none of the half messages that it had given up, until it gives up another."""
    root = golden.unpack("5.5.0-crash", tmp_path)
    file, copy = root / "config" / "topics.json", root / "config" / "topics.json.bak"
    table = json.loads(file.read_text("utf-8"))
    wanted = "TRANS_CHECK_MAX_TIME_TOPIC"
    for topic in (wanted, *without):
        del table["topicConfigTable"][topic]
    copy.unlink()
    file.write_text(json.dumps(table), "utf-8") if without else file.unlink()
    store = open_store_at(str(root))
    made = overlaid(store, plan_repair(store, RepairOptions(), tmp_path).plan.edits)
    topics = configured_topics(made)
    assert topics is not None
    assert topics[wanted]["readQueueNums"] == 1


@pytest.mark.parametrize("kind", ["write_astray", "head_bit", "queues_swapped", "files_swapped", "config_foreign"])
@pytest.mark.parametrize("name", ["4.9.8-crash", "5.5.0-clean"])
def test_kinds(name: str, kind: str, tmp_path: Path) -> None:
    damager = Besieger(name)
    assert accounted(name, damager.siege_kinds[kind](random.Random(3)), tmp_path).foreign == []


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("5.3.3-clean", 780002), ("5.5.0-rdbpop-clean", 760004), ("5.5.0-rdbcfg-clean", 760011),
        ("5.5.0-rdbcfg-clean", 790020), ("4.5.2-clean", 790030), ("3.2.6-clean", 790044),
    ],
)  # fmt: skip
def test_what_was_wrong_once(name: str, seed: int, tmp_path: Path) -> None:
    """A unit too few in front of the last record, and the record in front of that healed; exchanged directories; topics
    of which only some have a queue when the configuration is mended; another broker's queues beside a sound file;
    a page of another file with the blank record of that at the very place of this; a key that only later releases read.
    """
    accounted(name, Besieger(name).attack(seed)[1], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*golden.NAMES, *golden.OLD_STORES, *golden.DATABASE_STORES])
def test_random_attacks(name: str, tmp_path: Path) -> None:
    """``RMQCTL_SEEDS`` says which."""
    damager = Besieger(name)
    for seed in seeds("760000-760012"):
        accounted(name, damager.attack(seed)[1], tmp_path)
