"""File sizes of a store: from broker.conf, else from the files themselves, else the broker's defaults.

No size is stored in a store (spec 14.18), and broker.conf (Java properties text) is no part of it. Files of a
sequence all have one length, so the commonest length is the size. How many slots and entries an index file has is not
stored either: its header names the physical offsets of the first and the last entry, so the place of such an entry in
the file gives the size of the slot area; a candidate is accepted when entries and slots then agree with each other
(spec 4.1, 14.18).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from formats.java_properties import parse_properties
from formats.layout import plan_of
from formats.rocketmq.batch_consumequeue import BatchConsumeQueueUnit
from formats.rocketmq.consumequeue import ConsumeQueueUnit
from formats.rocketmq.index import IndexEntry, IndexHeader, IndexSlot
from rmqctl.files.local import ByteSource, BytesSource
from rmqctl.files.tree import Entry, Tree
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, QUEUES_EXT, StoreFiles, sequence

DEFAULT_SLOTS, DEFAULT_ENTRIES = 5_000_000, 20_000_000
SLOT_SIZE = IndexSlot.sizeof()
_PROBES = 64
_SMALL = 1 << 15
"""Bytes of a file of which every geometry may be tried."""
_MAJORITY = 2, 3
_CHUNK = 1 << 20

HEADER = plan_of(IndexHeader).runs[0]
ENTRY = plan_of(IndexEntry).runs[0]


@dataclass(frozen=True, slots=True)
class IndexGeometry:
    """Slots and entries of an index file, entry 0 (never used) included."""

    slots: int
    entries: int

    @classmethod
    def default(cls) -> IndexGeometry:
        """Return the broker's defaults, maxHashSlotNum and maxIndexNum."""
        return cls(DEFAULT_SLOTS, DEFAULT_ENTRIES)

    @property
    def file_size(self) -> int:
        """Bytes in a file."""
        return self.entries_at + self.entries * ENTRY.packer.size

    @property
    def entries_at(self) -> int:
        """Where entry 0 would lie, in bytes."""
        return HEADER.packer.size + SLOT_SIZE * self.slots

    def entry_at(self, number: int) -> int:
        """Where an entry lies, in bytes."""
        return self.entries_at + number * ENTRY.packer.size


Look = Callable[[ByteSource, int], IndexGeometry | None]


def detect_index_geometry(tree: Tree, files: Iterable[Entry]) -> IndexGeometry | None:
    """Return the geometry that index files prove; None when none does.

    If no file is sound enough to prove it by all its entries, a majority of the entries of one counts.
    """
    return _found(tree, files, (geometry_of_file, _by_majority))


def assumed_index_geometry(tree: Tree, files: Iterable[Entry]) -> IndexGeometry:
    """Return the likeliest geometry where no entry proves one: a usual one of the files' length, else the broker's
    default.
    """
    return _found(tree, files, (_by_length,)) or IndexGeometry.default()


def _found(tree: Tree, files: Iterable[Entry], ways: Sequence[Look]) -> IndexGeometry | None:
    """Return the first geometry that the ways find, one after the other, in files of the commonest length first."""
    usable = [e for e in files if not e.is_directory and e.size > HEADER.packer.size]
    lengths = Counter(e.size for e in usable)
    usable.sort(key=lambda e: -lengths[e.size])  # stable: by name where lengths are as common
    looked = (_looked_at(tree, entry, look) for look in ways for entry in usable)
    return next((geometry for geometry in looked if geometry is not None), None)


def _looked_at(tree: Tree, entry: Entry, look: Look) -> IndexGeometry | None:
    """Return what one way finds in one file; None for a file that cannot be read: another may show it."""
    try:
        source = tree.open(entry.path)
    except PermissionError:
        return None
    try:
        return look(source, entry.size)
    except FileNotFoundError:
        return None
    finally:
        source.close()


def geometry_of_file(source: ByteSource, size: int) -> IndexGeometry | None:
    """Return the geometry that the entries of one file of ``size`` bytes prove; None when they do not."""
    header = read_header(source)
    count = header["index_count"] - 1
    if count < 1:
        return IndexGeometry.default() if size == IndexGeometry.default().file_size else None
    for geometry in _filling(size, _candidates(source, size, count, header)):
        if count < geometry.entries and _agrees(source, geometry, count, header):
            return geometry
    return None


def _filling(size: int, candidates: Iterable[int]) -> Iterator[IndexGeometry]:
    """Yield the geometries with these numbers of slots that fill a file exactly."""
    for slots in candidates:
        entries, rest = divmod(size - HEADER.packer.size - SLOT_SIZE * slots, ENTRY.packer.size)
        if rest == 0 and slots > 0 and entries > 0:
            yield IndexGeometry(slots, entries)


def _by_majority(source: ByteSource, size: int) -> IndexGeometry | None:
    """Return the geometry that most entries of a damaged file prove, whatever its header says."""
    header = read_header(source)
    candidates = list(_candidates(source, size, max(header["index_count"] - 1, 1), header))
    if size <= _SMALL:
        whole = source.read_at(0, size)
        source = BytesSource(whole)
        candidates += range(1, (size - HEADER.packer.size) // SLOT_SIZE)
    best, most = None, 0
    for geometry in _filling(size, dict.fromkeys(candidates)):
        agreeing, sampled = _agreeing(source, geometry, header)
        if agreeing > most and _is_most(agreeing, sampled) and _is_most(*_slots_with_entries(source, geometry)):
            best, most = geometry, agreeing
    return best


def _is_most(part: int, whole: int) -> bool:
    return part * _MAJORITY[1] >= whole * _MAJORITY[0]


def _slots_with_entries(source: ByteSource, geometry: IndexGeometry) -> tuple[int, int]:
    """How many of the used slots hold the number of an entry, and how many are used.

    Entries that lie where too large a geometry has its slots are no such numbers: a file that a kill left without
    header and slots proves nothing by the few that look like one.
    """
    import numpy as np  # late, for the start of lookups that read few records

    good = used = 0
    for begin, end in source.data_ranges(HEADER.packer.size, geometry.entries_at):
        for at in range(begin - begin % SLOT_SIZE, end, _CHUNK):
            slots = np.frombuffer(source.read_at(at, min(_CHUNK, end - at) // SLOT_SIZE * SLOT_SIZE), ">i4")
            used += int(np.count_nonzero(slots))
            good += int(np.count_nonzero((slots > 0) & (slots < geometry.entries)))
    return good, used


def _by_length(source: ByteSource, size: int) -> IndexGeometry | None:
    """Return the geometry with the usual four entries a slot, or nearly, that has a file's length.

    None where the file could not hold what its header counts: it was cut.
    """
    header, room = read_header(source), size - HEADER.packer.size
    ratio = DEFAULT_ENTRIES // DEFAULT_SLOTS
    wanted = room // (SLOT_SIZE + ENTRY.packer.size * ratio)
    near = (wanted + step for step in range(ENTRY.packer.size // SLOT_SIZE))
    found = next(_filling(size, near), None)
    holds = found is not None and 0 <= header["index_count"] <= found.entries
    return found if holds else None


def read_header(source: ByteSource) -> dict[str, int]:
    """Return the header of an index file by field name; zeros where the file is too short for one."""
    raw = source.read_at(0, HEADER.packer.size).ljust(HEADER.packer.size, b"\0")
    return dict(zip(HEADER.names, HEADER.packer.unpack(raw), strict=True))


def _candidates(source: ByteSource, size: int, count: int, header: dict[str, int]) -> Iterator[int]:
    """Numbers of slots worth testing: the default, one in proportion, then those that put a known entry where it is."""
    yield DEFAULT_SLOTS
    ratio = DEFAULT_ENTRIES // DEFAULT_SLOTS  # most who change one setting change the other with it
    slots, rest = divmod(size - HEADER.packer.size, SLOT_SIZE + ENTRY.packer.size * ratio)
    if rest == 0:
        yield slots
    for number, offset in ((count, header["end_phy_offset"]), (1, header["begin_phy_offset"])):
        before = HEADER.packer.size + ENTRY.packer.size * number + 4
        for at in _find(source, size, offset.to_bytes(8, "big", signed=True), before):
            slots, rest = divmod(at - before, SLOT_SIZE)
            if rest == 0:
                yield slots
    if header["end_phy_offset"] == 0:  # keys of the log's first record alone: its offset is no pattern to look for
        for at in _words(source, size):
            yield (at - HEADER.packer.size - ENTRY.packer.size) // SLOT_SIZE


def _words(source: ByteSource, size: int) -> Iterator[int]:
    """Places after the header of the first 32-bit words that are not zero."""
    found = 0
    for begin, end in source.data_ranges(HEADER.packer.size, size):
        for position in range(begin, end, _CHUNK):
            chunk = source.read_at(position, min(_CHUNK, end - position))
            for at in range(-position % SLOT_SIZE, len(chunk) if any(chunk) else 0, SLOT_SIZE):
                if any(chunk[at : at + SLOT_SIZE]):
                    yield position + at
                    found += 1
                    if found == _PROBES:
                        return


def _find(source: ByteSource, size: int, pattern: bytes, start: int) -> Iterator[int]:
    """Places of a pattern in the file from ``start`` on, read in chunks; zeros alone are no pattern."""
    if not any(pattern):
        return
    for begin, end in source.data_ranges(start, size):
        position = begin
        while position < end:
            chunk = source.read_at(position, _CHUNK + len(pattern) - 1)
            at = chunk.find(pattern)
            while 0 <= at < _CHUNK:
                yield position + at
                at = chunk.find(pattern, at + 1)
            position += _CHUNK


def _agreeing(source: ByteSource, geometry: IndexGeometry, header: dict[str, int]) -> tuple[int, int]:
    """How many of a sample of entries fit their slots and their place in the chain, and how many were looked at."""
    last = _last_entry(source, geometry, header["index_count"] - 1)
    if last < 1:
        return 0, 1
    numbers = sorted({1, last, *(1 + (last - 1) * probe // (_PROBES - 1) for probe in range(_PROBES))})
    return sum(_fits(source, geometry, number, last) for number in numbers), len(numbers)


def _last_entry(source: ByteSource, geometry: IndexGeometry, stated: int) -> int:
    """Return the number of the last entry: the stated one if none comes after it, else the one before zeros."""

    def is_there(number: int) -> bool:
        return any(source.read_at(geometry.entry_at(number), ENTRY.packer.size))

    if (
        0 < stated < geometry.entries
        and is_there(stated)
        and not (stated + 1 < geometry.entries and is_there(stated + 1))
    ):
        return stated
    return bisect_left(range(1, geometry.entries), 1, key=lambda number: int(not is_there(number)))


def _fits(source: ByteSource, geometry: IndexGeometry, number: int, last: int) -> bool:
    """Whether an entry is one: its fields are possible, and the chain of its slot can reach it."""
    raw = source.read_at(geometry.entry_at(number), ENTRY.packer.size)
    if len(raw) < ENTRY.packer.size or not any(raw):
        return False
    entry = dict(zip(ENTRY.names, ENTRY.packer.unpack(raw), strict=True))
    if entry["key_hash"] < 0 or entry["physical_offset"] < 0 or not 0 <= entry["previous"] < number:
        return False
    slot = HEADER.packer.size + SLOT_SIZE * (entry["key_hash"] % geometry.slots)
    return number <= int.from_bytes(source.read_at(slot, SLOT_SIZE), "big", signed=True) <= last


def _agrees(source: ByteSource, geometry: IndexGeometry, count: int, header: dict[str, int]) -> bool:
    """Whether a sample of entries lies in the header's range and is reachable from its slots."""
    numbers = sorted({1, count, *(1 + (count - 1) * probe // (_PROBES - 1) for probe in range(_PROBES))})
    low, high = header["begin_phy_offset"], header["end_phy_offset"]
    for number in numbers:
        raw = source.read_at(geometry.entry_at(number), ENTRY.packer.size)
        if len(raw) < ENTRY.packer.size or not any(raw):  # zeros: a place that holds no entry yet
            return False
        entry = dict(zip(ENTRY.names, ENTRY.packer.unpack(raw), strict=True))
        if not (entry["key_hash"] >= 0 and low <= entry["physical_offset"] <= high):
            return False
        if not 0 <= entry["previous"] < number:
            return False
        slot = HEADER.packer.size + SLOT_SIZE * (entry["key_hash"] % geometry.slots)
        if not number <= int.from_bytes(source.read_at(slot, SLOT_SIZE), "big", signed=True) <= count:
            return False
    return True


# --- broker -----------------------------------------------------------------------------------------


OLD_NAMES = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Settings as releases up to 4.4 spell them (MessageStoreConfig) -> as all later ones do."""


def read_broker_conf(path: Path) -> dict[str, str]:
    """Return settings of a broker.conf by name; see :func:`parse_broker_conf`."""
    from rmqctl.files.settings import read_settings

    return with_new_names(read_settings(path))


def parse_broker_conf(text: str) -> dict[str, str]:
    """Return settings in the text of a broker.conf, spaces around them gone.

    A setting under the name that old releases gave it is there under its present name, too.
    """
    return with_new_names(parse_properties(text))


def with_new_names(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings without spaces around them, those of old names under the new ones, too."""
    settings = {name.strip(): value.strip() for name, value in given.items()}
    for old, new in OLD_NAMES.items():
        if old in settings:
            settings.setdefault(new, settings[old])
    return settings


def integer(settings: Mapping[str, str], name: str) -> int | None:
    """Return a positive whole number among the settings; None when absent or not one."""
    value = settings.get(name, "").strip()
    return int(value) if value.isascii() and value.isdigit() and int(value) > 0 else None


def flag(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return a true/false setting; anything but ``true`` is false, as Java's Boolean.parseBoolean has it."""
    value = settings.get(name)
    return default if value is None else value.strip().lower() == "true"


# --- file sizes of a store --------------------------------------------------------------------------


COMMIT_LOG_FILE_SIZE = 1 << 30
QUEUE_FILE_SIZE = 6_000_000
QUEUE_EXT_FILE_SIZE = 50_331_648
BATCH_QUEUE_FILE_SIZE = 13_800_000
TIMER_LOG_FILE_SIZE = 104_857_600
QUEUE_UNIT_SIZE = ConsumeQueueUnit.sizeof()
BATCH_UNIT_SIZE = plan_of(BatchConsumeQueueUnit).runs[0].packer.size
_SAMPLE = 64


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes in bytes and counts, and how they were known.

    Attributes:
        source: ``broker-conf``, ``detected`` or ``default``: the weakest way any of them was known
            among the files that are there, or that should be: a log with messages has queue files.
    """

    commit_log_file_size: int
    queue_file_size: int
    index_slots: int
    index_entries: int
    queue_ext_file_size: int
    batch_queue_file_size: int
    timer_log_file_size: int
    source: str

    def row(self) -> dict[str, int | str]:
        """As the JSON object of the contract."""
        return asdict(self)


def geometry_of(store: StoreFiles) -> Geometry:
    """Sizes of the store's files."""
    ways: list[str] = []
    conf = store.settings
    log = _pick(conf, "mappedFileSizeCommitLog", (f.size for f in store.log_files), COMMIT_LOG_FILE_SIZE, ways)
    known = len(ways)
    queue = _pick(
        conf, "mappedFileSizeConsumeQueue", _queue_sizes(store, QUEUES, QUEUE_UNIT_SIZE), QUEUE_FILE_SIZE, ways
    )
    if known == len(ways) and not store.is_rocksdb and any(f.size > 0 for f in store.log_files):
        ways.append("default")  # there are messages, and each has a unit in a file
    ext = _pick(conf, "mappedFileSizeConsumeQueueExt", _queue_sizes(store, QUEUES_EXT), QUEUE_EXT_FILE_SIZE, ways)
    batch = _pick(
        conf, "mapperFileSizeBatchConsumeQueue", _queue_sizes(store, BATCH_QUEUES, BATCH_UNIT_SIZE),
        BATCH_QUEUE_FILE_SIZE, ways,
    )  # fmt: skip
    timer = _pick(conf, "mappedFileSizeTimerLog", _sizes(store.tree, "timerlog"), TIMER_LOG_FILE_SIZE, ways)
    index = _index(store, ways)
    source = next((way for way in ("default", "detected", "broker-conf") if way in ways), "default")
    queue = -(-queue // QUEUE_UNIT_SIZE) * QUEUE_UNIT_SIZE if "mappedFileSizeConsumeQueue" in conf else queue
    return Geometry(log, queue, index.slots, index.entries, ext, batch, timer, source)


def _pick(conf: object, key: str, sizes: Iterable[int], default: int, ways: list[str]) -> int:
    """Return a size from the settings, else the commonest of the files, else the default; notes the way taken."""
    configured = integer(conf, key)  # type: ignore[arg-type]
    if configured:
        ways.append("broker-conf")
        return configured
    counts = Counter(size for size in sizes if size > 0)
    if counts:
        ways.append("detected")
        return max(counts, key=lambda size: (counts[size], size))
    return default


def index_geometry(store: StoreFiles) -> IndexGeometry:
    """Slots and entries of the store's index files."""
    return _index(store, [])


def _index(store: StoreFiles, ways: list[str]) -> IndexGeometry:
    slots, entries = integer(store.settings, "maxHashSlotNum"), integer(store.settings, "maxIndexNum")
    if slots and entries:
        ways.append("broker-conf")
        return IndexGeometry(slots, entries)
    found = detect_index_geometry(store.tree, store.index_files)
    if found is not None:
        ways.append("detected")
        return found
    if any(e.size > 0 for e in store.index_files):
        ways.append("default")
    return assumed_index_geometry(store.tree, store.index_files)


def _queue_sizes(store: StoreFiles, kind: str, unit_size: int = 1) -> Iterator[int]:
    """Lengths of the files of a sample of queues; no broker is set to one that is not a number of units."""
    for queue in islice(store.queues(kind), _SAMPLE):
        yield from (f.size for f in queue.files()[0] if f.size % unit_size == 0)


def _sizes(tree: Tree, path: str) -> Iterator[int]:
    yield from (f.size for f in sequence(tree, path, path)[0])
