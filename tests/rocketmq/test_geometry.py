"""File sizes: those of every manifest are found from the files alone, and broker.conf wins over them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.errors import Refused
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.engine.opening import settled
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.geometry import (
    BATCH_QUEUE_FILE_SIZE,
    COMMIT_LOG_FILE_SIZE,
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    QUEUE_FILE_SIZE,
    Geometry,
    IndexGeometry,
    detect_index_geometry,
    geometry_of,
)
from rmqctl.rocketmq.store.locate import open_store_at


def _true(name: str) -> dict[str, int]:
    document = golden.manifest(name)
    settings = document.get("brokerConfig") or document["storeConfig"]
    return {
        "commit_log_file_size": settings["mappedFileSizeCommitLog"],
        "queue_file_size": settings["mappedFileSizeConsumeQueue"],
        "index_slots": settings["maxHashSlotNum"],
        "index_entries": settings["maxIndexNum"],
    }


def _found(geometry: Geometry) -> dict[str, int | str]:
    return {name: value for name, value in geometry.row().items() if name in _true("4.5.2-clean")}


@pytest.mark.parametrize("name", golden.NAMES)
def test_sizes_are_found_from_the_files(name: str) -> None:
    geometry = geometry_of(open_store_at(str(golden.pristine(name))))
    expected = _true(name)
    if "rocksdb" in name:
        expected["queue_file_size"] = QUEUE_FILE_SIZE  # there are no queue files
    assert _found(geometry) == expected
    assert geometry.source == "detected"


@pytest.mark.parametrize("name", ["5.1.4-clean", "5.3.3-clean", "5.5.0-clean"])
def test_sizes_of_batch_queues_and_timer_log(name: str) -> None:
    geometry = geometry_of(open_store_at(str(golden.pristine(name))))
    assert (geometry.batch_queue_file_size, geometry.timer_log_file_size) == (460, 2616)


@pytest.mark.parametrize("name", golden.NAMES)
def test_settings_win(name: str, tmp_path: Path) -> None:
    conf = golden.write_broker_conf(name, tmp_path / "broker.conf")
    geometry = geometry_of(open_store_at(str(golden.pristine(name)), broker_conf=str(conf)))
    assert _found(geometry) == _true(name)


def test_queue_files_hold_whole_units(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=1001\n")
    store = open_store_at(str(golden.pristine("4.5.2-clean")), broker_conf=str(conf))
    assert geometry_of(store).queue_file_size == 1020


def test_an_empty_store_has_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    geometry = geometry_of(open_store_at(str(tmp_path)))
    assert (geometry.commit_log_file_size, geometry.queue_file_size) == (COMMIT_LOG_FILE_SIZE, QUEUE_FILE_SIZE)
    assert (geometry.index_slots, geometry.index_entries) == (DEFAULT_SLOTS, DEFAULT_ENTRIES)
    assert geometry.source == "default"


def test_one_file_of_another_length_changes_nothing(tmp_path: Path) -> None:
    root = golden.unpack("5.3.3-clean", tmp_path)
    with open(root / "commitlog" / f"{131072:020d}", "r+b") as file:
        file.truncate(7)
    with open(next((root / "index").iterdir()), "r+b") as file:
        file.truncate(100)
    assert _found(geometry_of(open_store_at(str(root)))) == _true("5.3.3-clean")


@pytest.fixture(scope="module")
def small_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one index file of 22,040 bytes: 500 slots, 1,000 entries."""
    root = tmp_path_factory.mktemp("index") / "store"
    config = StoreConfig.small(index_slots=500, index_entries=1000)
    with StoreEngine.open(root, config=config) as engine:
        for number in range(40):
            engine.put(Message("T", b"body", 0, properties={"KEYS": f"key-{number}"}))
    return root


def check_index(root: Path) -> None:
    geometry = geometry_of(open_store_at(str(root)))
    assert (geometry.index_slots, geometry.index_entries) == (500, 1000)


@pytest.mark.parametrize("seed", range(60))
def test_one_flipped_bit_leaves_the_geometry_of_the_index(seed: int, small_index: Path) -> None:
    chance = random.Random(seed)
    file = next((small_index / "index").iterdir())
    content = file.read_bytes()
    assert len(content) == 22_040
    used = [i for i in range(40, len(content)) if content[i]]
    at = chance.randrange(40) if seed % 2 else chance.choice(used)
    file.write_bytes(content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :])
    try:
        check_index(small_index)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize("damage", [(0, bytes(40)), (0, b"\xff" * 40), (2040, bytes(100)), (40, b"\x01" * 300)])
def test_a_destroyed_part_leaves_the_geometry_of_the_index(damage: tuple[int, bytes], small_index: Path) -> None:
    file = next((small_index / "index").iterdir())
    content = file.read_bytes()
    at, data = damage
    file.write_bytes(content[:at] + data + content[at + len(data) :])
    try:
        check_index(small_index)
    finally:
        file.write_bytes(content)


def test_an_index_whose_entries_are_all_gone_keeps_its_length(small_index: Path) -> None:
    file = next((small_index / "index").iterdir())
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes(22_000))
    try:
        found = geometry_of(open_store_at(str(small_index)))
        assert IndexGeometry(found.index_slots, found.index_entries).file_size == 22_040
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize("keys", [1, 2, 3, 30])
@pytest.mark.parametrize(("slots", "entries"), [(7, 60), (40, 60), (500, 1000)])
def test_an_index_that_a_kill_left_without_header_and_slots_proves_nothing(
    slots: int, entries: int, keys: int, tmp_path: Path
) -> None:
    """Its writer goes on with the sizes asked for where they fit its length, and not where a file shows others."""
    small = StoreConfig.small(index_slots=slots, index_entries=entries)
    with StoreEngine.open(tmp_path / "s", small) as engine:
        for number in range(keys):
            engine.put(Message("T", b"body", 0, properties={"KEYS": f"key-{number}"}))
    file = next((tmp_path / "s/index").iterdir())
    with open(file, "r+b") as raw:
        raw.write(bytes(40 + 4 * slots))
    store = open_store_at(str(tmp_path / "s"))
    assert detect_index_geometry(store.tree, store.index_files) is None
    assert settled(store, small).index_slots == slots


def test_sizes_of_another_length_are_refused_where_the_index_shows_its_own(small_index: Path) -> None:
    store = open_store_at(str(small_index))
    with pytest.raises(Refused, match="index slots 500, not 495"):
        settled(store, StoreConfig.small(index_slots=495, index_entries=1001))  # as long as the files are


@pytest.mark.parametrize("length", [5, 45, 47])
def test_the_only_file_of_a_batch_queue_cut_inside_a_unit(length: int, tmp_path: Path) -> None:
    """Its length is no size of a broker, which does not start on it."""
    root = golden.unpack("5.3.3-crash", tmp_path)
    files = sorted((root / "batchconsumequeue").rglob("0" * 20))
    for file in files:
        with open(file, "r+b") as raw:
            raw.truncate(length)
    store = open_store_at(str(root))
    assert geometry_of(store).batch_queue_file_size == BATCH_QUEUE_FILE_SIZE
    assert f"has {length} bytes, not {BATCH_QUEUE_FILE_SIZE}" in str(recover(store).error)
