"""The walk through the index against the broker's own loop, written out over bytes, and on bytes of any kind."""

from __future__ import annotations

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from formats.rocketmq.index import key_hash
from rmqctl.explain import Trace
from rmqctl.files.tree import Entry, LocalTree
from rmqctl.rocketmq.index import IndexFile
from rmqctl.rocketmq.query.index_walk import End, IndexQuery, Walk, walk_index
from rmqctl.rocketmq.store.geometry import IndexGeometry

GEOMETRY = IndexGeometry(7, 40)
HEADER, ENTRY = struct.Struct(">4q2i"), struct.Struct(">iqii")
START = 1_700_000_000_000
ENDLESS = 100_000


class Writer:
    """Index files as a broker writes them (IndexService.buildIndex, IndexFile.putKey; spec 4.3, 4.4)."""

    def __init__(self) -> None:
        self.files: list[bytearray] = []
        self.count = GEOMETRY.entries

    def put(self, text: str, physical: int, time: int) -> None:
        if self.count >= GEOMETRY.entries:
            self._new()
        data, hashed, slot = self.files[-1], key_hash(text), 40 + 4 * (key_hash(text) % GEOMETRY.slots)
        begin, _, first, _, used, _ = HEADER.unpack_from(data)
        (old,) = struct.unpack_from(">i", data, slot)
        difference = min(max((time - begin) // 1000, 0), 2**31 - 1) if begin > 0 else 0
        ENTRY.pack_into(data, GEOMETRY.entry_at(self.count), hashed, physical, difference, old)
        struct.pack_into(">i", data, slot, self.count)
        begin, first = (time, physical) if self.count <= 1 else (begin, first)
        self.count += 1
        HEADER.pack_into(data, 0, begin, time, first, physical, used + (old == 0), self.count)

    def _new(self) -> None:
        data = bytearray(GEOMETRY.file_size)
        if self.files:
            _, end, _, physical, _, _ = HEADER.unpack_from(self.files[-1])
            HEADER.pack_into(data, 0, end, end, physical, physical, 0, 1)
        self.files.append(data)
        self.count = 1


def broker_answer(files: list[bytes], query: IndexQuery) -> list[int] | None:
    """What the loop of IndexService.queryOffset collects; None where it would never end."""
    found: list[int] = []
    for data in reversed(files):
        begin, end, _, _, _, count = HEADER.unpack_from(data)
        count = max(count, 1)
        touches = query.begin < begin and query.end > end
        touches = touches or begin <= query.begin <= end or begin <= query.end <= end
        if touches and not select(data, begin, count, query, found):
            return None
        if begin < query.begin or len(found) >= query.limit:
            break
    return found


def select(data: bytes, begin: int, count: int, query: IndexQuery, found: list[int]) -> bool:
    """IndexFile.selectPhyOffset; False where it would never end."""
    (number,) = struct.unpack_from(">i", data, 40 + 4 * (query.hash % GEOMETRY.slots))
    if number <= 0 or number > count or count <= 1:
        return True
    for _ in range(ENDLESS):
        if len(found) >= query.limit:
            return True
        if number >= GEOMETRY.entries:
            return True  # IndexOutOfBoundsException, logged
        hashed, physical, difference, previous = ENTRY.unpack_from(data, GEOMETRY.entry_at(number))
        if difference < 0:
            return True
        time = begin + difference * 1000
        if hashed == query.hash and query.begin <= time <= query.end:
            found.append(physical)
        if previous <= 0 or previous > count or previous == number or time < query.begin:
            return True
        number = previous
    return False


def walked(directory: Path, files: list[bytes], query: IndexQuery) -> Walk:
    opened = []
    for number, data in enumerate(files):
        name = f"{20_231_114_221_320_000 + number}"
        (directory / name).write_bytes(data)
        opened.append(IndexFile.open(LocalTree(directory), Entry(name, name, False, len(data)), GEOMETRY))
    try:
        return walk_index(opened, query, Trace())
    finally:
        for file in opened:
            file.close()


KEYS = st.sampled_from(["T#a", "T#b", "T#Aa", "T#BB", "T#AaBB", "T#BBBB", "U#a", "T#tbaekxa"])
STEPS = st.sampled_from([0, 1, 300, 999, 1000, 1001, 5000, 90_000, -1, -2500, -70_000])
PUTS = st.lists(st.tuples(KEYS, STEPS), max_size=130)
TIMES = st.integers(START - 5000, START + 400_000) | st.sampled_from([0, START, 1 << 62, (1 << 63) - 1])


@given(puts=PUTS, key=KEYS, begin=TIMES, end=TIMES, most=st.integers(1, 70))
def test_answers_as_the_broker_with_clock_steps_and_roll_overs(
    tmp_path_factory: object, puts: list[tuple[str, int]], key: str, begin: int, end: int, most: int
) -> None:
    writer, time = Writer(), START
    for number, (text, step) in enumerate(puts):
        time += step
        writer.put(text, number * 100, time)
    query = IndexQuery(key, begin, end, most)
    files = [bytes(f) for f in writer.files]
    assert walked(_directory(tmp_path_factory), files, query).offsets == broker_answer(files, query)


def test_both_ends_of_the_time_asked_for_count(tmp_path: Path) -> None:
    writer, times = Writer(), [START, START + 1000, START + 2000]
    for time in times:
        writer.put("T#a", time - START, time)
    files = [bytes(file) for file in writer.files]
    moments = [time + more for time in times for more in (-1, 0, 1)]
    for begin in moments:
        for end in (moment for moment in moments if moment >= begin):
            query = IndexQuery("T#a", begin, end, 64)
            wanted = [time - START for time in reversed(times) if begin <= time <= end]
            assert walked(tmp_path, files, query).offsets == broker_answer(files, query) == wanted


def test_a_chain_goes_on_within_the_second_in_which_the_time_asked_for_begins(tmp_path: Path) -> None:
    writer = Writer()
    for number, time in enumerate((START, START + 1000, START + 1000, START + 2000)):
        writer.put("T#a", number * 100, time)
    files = [bytes(file) for file in writer.files]
    query = IndexQuery("T#a", START + 1000, START + 5000, 64)
    assert walked(tmp_path, files, query).offsets == broker_answer(files, query) == [300, 200, 100]


@given(
    entries=st.lists(
        st.tuples(st.sampled_from([0, 3]), st.integers(-2, 40), st.integers(-3, 45)), min_size=1, max_size=39
    ),
    slots=st.lists(st.integers(-2, 45), min_size=7, max_size=7),
    count=st.integers(-1, 60),
    most=st.integers(1, 64),
    begin=st.sampled_from([0, START, START + 3000]),
)
def test_any_bytes_give_the_brokers_answer_or_a_circle(
    tmp_path_factory: object, entries: list[tuple[int, int, int]], slots: list[int], count: int, most: int, begin: int
) -> None:
    data = bytearray(GEOMETRY.file_size)
    HEADER.pack_into(data, 0, START, START + 60_000, 0, 9000, 0, count)
    struct.pack_into(">7i", data, 40, *slots)
    query = IndexQuery("T#a", begin, 1 << 62, most)
    for number, (kind, difference, previous) in enumerate(entries, 1):
        hashed = query.hash if kind else 1
        ENTRY.pack_into(data, GEOMETRY.entry_at(number), hashed, number * 100, difference, previous)
    walk = walked(_directory(tmp_path_factory), [bytes(data)], query)
    expected = broker_answer([bytes(data)], query)
    assert walk.endless == (expected is None)
    assert expected is None or walk.offsets == expected


def test_a_chain_may_lead_to_the_next_free_entry_and_no_further(tmp_path: Path) -> None:
    """The count in the header is the number of the next entry: `prevIndexRead > indexHeader.getIndexCount()`."""
    for previous, end, entries in ((3, End.FIRST, 3), (4, End.RANGE, 2)):
        writer = Writer()
        for number in range(2):
            writer.put("T#a", 100 * number, START)
        ENTRY.pack_into(writer.files[0], GEOMETRY.entry_at(1), key_hash("T#a"), 0, 0, previous)
        walk = walked(tmp_path, [bytes(writer.files[0])], IndexQuery("T#a", 0, 1 << 62))
        assert (walk.chains[0].end, walk.chains[0].entries) == (end, entries)
        assert walk.offsets == [100, 0]


def test_a_circle_with_matches_fills_the_answer_as_a_broker_does(tmp_path: Path) -> None:
    writer = Writer()
    for number in range(3):
        writer.put("T#a", 100 * number, START)
    ENTRY.pack_into(writer.files[0], GEOMETRY.entry_at(1), key_hash("T#a"), 0, 0, 3)
    walk = walked(tmp_path, [bytes(writer.files[0])], IndexQuery("T#a", 0, 1 << 62, 7))
    assert walk.offsets == [200, 100, 0, 200, 100, 0, 200]
    assert walk.chains[0].end is End.LIMIT


def test_a_circle_without_matches_is_left(tmp_path: Path) -> None:
    writer = Writer()
    for number in range(3):
        writer.put("T#a", 100 * number, START)
    for number, previous in ((1, 3), (2, 1), (3, 2)):
        ENTRY.pack_into(writer.files[0], GEOMETRY.entry_at(number), 1, 0, 0, previous)
    walk = walked(tmp_path, [bytes(writer.files[0])], IndexQuery("T#a", 0, 1 << 62))
    assert walk.endless
    assert walk.chains[0].entries <= 7


def test_never_more_than_the_broker_allows(tmp_path: Path) -> None:
    writer = Writer()
    for number in range(100):
        writer.put("T#a", number, START)
    walk = walked(tmp_path, [bytes(f) for f in writer.files], IndexQuery("T#a", 0, 1 << 62, 1000))
    assert walk.offsets == list(range(99, 35, -1))


def test_reads_only_header_slot_and_chain_of_a_full_size_file(tmp_path: Path) -> None:
    geometry = IndexGeometry.default()
    path = tmp_path / "20231114221320000"
    hashed = key_hash("T#a")
    with open(path, "wb") as file:
        file.truncate(geometry.file_size)
        file.write(HEADER.pack(START, START, 0, 1900, 1, 21))
        for number in range(1, 21):
            file.seek(geometry.entry_at(number))
            file.write(ENTRY.pack(hashed, number * 100, 0, number - 1))
        file.seek(40 + 4 * (hashed % geometry.slots))
        file.write(struct.pack(">i", 20))
    opened = IndexFile.open(LocalTree(tmp_path), Entry(path.name, path.name, False, geometry.file_size), geometry)
    sizes: list[int] = []
    source = opened._source
    assert source is not None
    read = source.read_at

    def counted(offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(offset, size)

    source.read_at = counted  # type: ignore[method-assign]
    walk = walk_index([opened], IndexQuery("T#a", 0, 1 << 62), Trace())
    opened.close()
    assert walk.offsets == list(range(2000, 0, -100))
    assert sum(sizes) == 4 + 20 * 20


def _directory(factory: object) -> Path:
    directory: Path = factory.mktemp("index")  # type: ignore[attr-defined]
    return directory
