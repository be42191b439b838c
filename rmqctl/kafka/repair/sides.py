"""One side of a plan: the whole batches of a log directory as it is, or as it would be, wherever they lie.

A batch is whole where its length and its CRC say so. It is at home where a reader of the log meets it: on the chain of
a segment in use that its base offset belongs to, and in order with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from formats.kafka.record_batch import Attributes
from rmqctl.files.local import ByteSource
from rmqctl.files.tree import Tree
from rmqctl.kafka.directory.directory import LogDirectory, LogFile, Partition, read_directory
from rmqctl.kafka.directory.file_names import meaning_of
from rmqctl.kafka.log.block import INT_MAX, Block, Flags, Ints
from rmqctl.kafka.log.scan import Extent, scan_inside
from rmqctl.kafka.repair.columns import Chunk, Columns
from rmqctl.kafka.repair.survey import longest_ascent
from rmqctl.repair.books import Stretches

_LOG = ".log"
_NAMES = (
    "base_offset", "last_offset", "records_count", "attributes", "partition_leader_epoch", "producer_id", "crc",
    "producer_epoch", "base_sequence", "last_sequence",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Torn:
    """A batch on the chain of a file whose CRC does not match, as its header says."""

    position: int
    end: int
    base_offset: int
    last_offset: int
    is_control: bool


@dataclass
class FileBatches:
    """The whole batches of one file, those inside of damaged ones too.

    Attributes:
        columns: header fields; ``position``, ``size`` and ``magic`` too, ``is_followed``: 1 for those on the chain of
            the file; ascending by position.
        torn: what is not whole, and can be followed.
        hidden: batches, but for placeholders, after bytes that cannot be followed.
    """

    file: str
    columns: Columns
    torn: list[Torn]
    hidden: int = 0

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    @cached_property
    def _is_disjoint(self) -> bool:
        """Whether no batch begins in another one."""
        pairs = self.columns.stretches("position", "size")
        return all((at[1:] >= at[:-1] + size[:-1]).all() for _, (at, size) in pairs)

    def overlapping(self, stretches: Stretches | None) -> Ints:
        """Return the rows of the batches that have a byte in the stretches, ascending; None: of all."""
        if stretches is None:
            return np.arange(len(self))
        if not self._is_disjoint:
            begins, ends = (np.array([stretch[side] for stretch in stretches], np.int64) for side in (0, 1))
            position = self["position"]
            after = np.searchsorted(begins, position + self["size"], "left")
            return np.flatnonzero(np.searchsorted(ends, position, "right") < after)
        rows = list[Ints]()
        for begin, end in stretches:
            low, high = self.columns.search("position", begin, "right"), self.columns.search("position", end)
            if low and self.columns.value("position", low - 1) + self.columns.value("size", low - 1) > begin:
                low -= 1
            rows.append(np.arange(low, max(low, high)))
        return np.unique(np.concatenate([np.zeros(0, np.int64), *rows]))


def whole_records(tree: Tree, file: str, stretches: Stretches | None) -> int | None:
    """Count the whole batches of a file that have a byte in some parts of it, and lie in no other one.

    None where it is not there.
    """
    if not is_log(file) or tree.stat(file) is None:
        return None
    found, number, end = batches_in(tree, file), 0, -1
    for position, size in found.columns.rows(("position", "size"), found.overlapping(stretches)):
        if position + size > end:
            number, end = number + 1, position + size
    return number


def batches_in(tree: Tree, file: str) -> FileBatches:
    """Find the whole batches of a file at any byte of it; a file that cannot be read has none."""
    parts, torn, breaks = list[Chunk](), list[Torn](), list[int]()
    try:
        source = tree.open(file)
        try:
            is_sorted = _scan(source, file, parts, torn, breaks)
        finally:
            source.close()
    except OSError:
        is_sorted = False
    columns = Columns(parts)
    if not is_sorted:
        columns = columns.take(np.argsort(columns["position"], kind="stable"))
    hidden = columns["position"] > min(breaks, default=INT_MAX)
    stands_in = (columns["attributes"] & int(Attributes.CONTROL) != 0) & (columns["producer_id"] < 0)
    hidden &= (columns["is_followed"] != 0) & (columns["records_count"] != 0) & ~stands_in
    return FileBatches(file, columns, torn, int(hidden.sum()))


def _scan(source: ByteSource, file: str, parts: list[Chunk], torn: list[Torn], breaks: list[int]) -> bool:
    """Add the batches of a file, and return whether they came in the order of their places.

    What the chain leaves to a gap the scan has searched, torn ones are searched here.
    """
    is_sorted = True
    for block, inside in scan_inside(source, Extent(file, None)):
        breaks.extend(gap.position for gap in block.gaps)
        sound = block if block.crc_ok.all() else block.take(block.crc_ok)
        parts.extend(_part(sound, is_followed=True))
        torn.extend(_torn(block, row) for row in np.flatnonzero(~block.crc_ok).tolist())
        for one in inside:
            parts.extend(_part(one, is_followed=False))
            is_sorted = False
    return is_sorted


def _part(block: Block, *, is_followed: bool) -> Iterator[Chunk]:
    columns = {name: block[name] for name in _NAMES}
    columns |= {"position": block.position, "size": block.size, "magic": block.magic}
    return Columns.packed(columns | {"is_followed": np.full(len(block), is_followed, np.int64)})


def _torn(block: Block, row: int) -> Torn:
    one = block.take(np.array([row]))
    position, base = int(one.position[0]), int(one.frame_offset[0])
    last = int(one["last_offset"][0])
    return Torn(position, position + int(one.size[0]), base, last, bool(one.flag(Attributes.CONTROL)[0]))


@dataclass
class Home:
    """The batches that readers of a partition's log meet, in its order.

    Attributes:
        files, sizes: of the segments in use, ascending; bytes.
        columns: as of :class:`FileBatches`, and ``file``, a number of ``files``; by base offset, which is by file and
            position, too.
    """

    files: Sequence[str]
    columns: Columns
    sizes: Sequence[int]

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def touches(self) -> Flags:
        """Which batches begin where the one before ends, if that is the end of the segment before, shape (n - 1,).

        Segments without a byte between them are passed over, as cleaners leave them.
        """
        sizes, found = np.array(self.sizes, np.int64), np.zeros(max(len(self) - 1, 0), np.bool_)
        ordinal = np.cumsum(sizes > 0)
        for at, (position, size, file) in self.columns.stretches("position", "size", "file"):
            ends = position + size
            inside = (file[1:] == file[:-1]) & (position[1:] == ends[:-1])
            begins = ordinal[file[1:]] == ordinal[file[:-1]] + 1
            begins &= (position[1:] == 0) & (ends[:-1] == sizes[file[:-1]])
            found[at : at + len(inside)] = inside | begins
        return found

    @cached_property
    def follows(self) -> Flags:
        """Which of them go on with the next offset, too, shape (n - 1,)."""
        found = self.touches.copy()
        for at, (base, last) in self.columns.stretches("base_offset", "last_offset"):
            found[at : at + len(base) - 1] &= base[1:] == last[:-1] + 1
        return found

    @cached_property
    def _by_crc(self) -> tuple[Ints, Ints]:
        """The CRCs of the batches, ascending, and their rows."""
        found = self.columns["crc"] & 0xFFFFFFFF
        rows = np.argsort(found, kind="stable")
        return found[rows], rows

    def of_crc(self, crc: int) -> list[int]:
        """Return the rows of the batches that state a CRC, ascending."""
        crcs, rows = self._by_crc
        found: list[int] = rows[slice(*(int(np.searchsorted(crcs, crc, side)) for side in ("left", "right")))].tolist()
        return found

    @cached_property
    def is_thinned(self) -> bool:
        """Whether offsets are missing between batches that touch, as compaction leaves them, more than once.

        A damaged base offset leaves as many on one side as two batches both have on its other side.
        """
        count, columns = 0, self.columns.stretches("base_offset", "last_offset")
        for at, (base, last) in columns:
            missing = (base[1:] - last[:-1] - 1) * self.touches[at : at + len(base) - 1]
            is_wrong = missing < 0
            beside = np.append(is_wrong[1:], False) | np.append(False, is_wrong[:-1])[: len(is_wrong)]
            count += int(((missing > 0) & ~beside).sum())
        return count > 2

    def row(self, base_offset: int) -> int | None:
        """Return the row of the batch that begins with an offset."""
        at = self.columns.search("base_offset", base_offset)
        return at if at < len(self) and self.columns.value("base_offset", at) == base_offset else None

    def holder(self, offset: int) -> int | None:
        """Return the row of the batch whose offsets hold one."""
        at = self.columns.search("base_offset", offset, "right") - 1
        return at if at >= 0 and self.columns.value("last_offset", at) >= offset else None

    def place(self, row: int) -> tuple[str, int, int]:
        """File, position and size of a batch."""
        file, position, size = (self.columns.value(name, row) for name in ("file", "position", "size"))
        return self.files[file], position, size

    def has(self, file: str, position: int) -> bool:
        """Whether one of these batches begins at a place of a file."""
        if file not in self.files:
            return False
        wanted = self.files.index(file)
        begin, end = self.columns.search("file", wanted), self.columns.search("file", wanted, "right")
        while begin < end:  # positions ascend within a file
            middle = (begin + end) // 2
            at = self.columns.value("position", middle)
            if at == position:
                return True
            begin, end = (middle + 1, end) if at < position else (begin, middle)
        return False


class Side:
    """A log directory before or after a plan.

    Args:
        below: the other side, for files that the plan leaves as they are.
        changed: names of the files that it does not.
    """

    def __init__(self, tree: Tree, below: Side | None = None, changed: frozenset[str] = frozenset()) -> None:
        self.tree, self.below, self.changed = tree, below, changed
        self._files: dict[str, FileBatches] = {}
        self._homes: dict[str, Home] = {}

    @cached_property
    def directory(self) -> LogDirectory:
        return read_directory(self.tree)

    def partition(self, name: str) -> Partition | None:
        """Return the partition in a directory of this name."""
        return next((p for p in self.directory.partitions if p.directory == name), None)

    def names(self) -> Iterator[str]:
        """Every file that may hold batches."""
        yield from (file.name for file in self.directory.all_files() if is_log(file.name))
        for other in self.directory.others:
            yield from (e.path for e in self.tree.entries(other) if not e.is_directory and is_log(e.path))

    def batches(self, file: str) -> FileBatches:
        """Return the whole batches of a file."""
        if self.below is not None and file not in self.changed:
            return self.below.batches(file)
        found = self._files.get(file)
        if found is None:
            found = self._files[file] = batches_in(self.tree, file)
        return found

    def home(self, directory: str) -> Home:
        """Return the batches that readers of a partition meet."""
        found = self._homes.get(directory)
        if found is None:
            partition = self.partition(directory)
            found = self._homes[directory] = _home(partition.logs if partition is not None else [], self.batches)
        return found

    def bytes_at(self, file: str, position: int, size: int) -> bytes:
        """Return bytes of a file; fewer where it ends, or cannot be read."""
        try:
            source = self.tree.open(file)
            try:
                return source.read_at(position, size)
            finally:
                source.close()
        except OSError:
            return b""

    def size(self, file: str) -> int:
        """Bytes of a file; 0 where it is not there."""
        entry = self.tree.stat(file)
        return 0 if entry is None or entry.is_directory else entry.size


def _home(logs: Sequence[LogFile], batches: Callable[[str], FileBatches]) -> Home:
    parts = list[Chunk]()
    for number, (file, following) in enumerate(pairwise([*logs, None])):
        assert file is not None
        end = file.base + INT_MAX if following is None else min(following.base - 1, file.base + INT_MAX)
        for chunk in batches(file.name).columns.chunks:
            base = chunk.column("base_offset")
            here = (chunk.column("is_followed") != 0) & (base >= file.base) & (base <= end)
            parts.extend(chunk.kept(here, file=number))
    columns = Columns(parts)
    if any((base[1:] <= base[:-1]).any() for _, (base,) in columns.stretches("base_offset")):
        columns = columns.take(longest_ascent(columns["base_offset"]))
    return Home([file.name for file in logs], columns, [file.size for file in logs])


def is_log(file: str) -> bool:
    """Whether a file is a segment's log by its name, in use or left over."""
    name = file.rpartition("/")[2]
    return "/" in file and (_LOG in name or meaning_of(name).kind.value == _LOG[1:])


def identity_of(directory: str, data: bytes) -> bytes:
    """Return a digest of a batch and of the partition that it lies in."""
    digest = blake2b(directory.encode("utf-8", "surrogateescape"), digest_size=16)
    digest.update(b"\0")
    digest.update(data)
    return digest.digest()


def name_of(directory: str, first: int, last: int, crc: int) -> str:
    """Return what people and steps call a batch: its partition, its offsets and its CRC."""
    offsets = f"{first}" if first == last else f"{first}..{last}"
    return f"{directory}@{offsets} #{crc & 0xFFFFFFFF:08x}"
