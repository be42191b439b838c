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
from rmqctl.kafka.repair.survey import longest_ascent

_LOG = ".log"
_NAMES = (
    "base_offset", "last_offset", "records_count", "attributes", "partition_leader_epoch", "producer_id", "crc",
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
        columns: header fields; ``position``, ``size`` and ``magic`` too; ascending by position, shape (n,).
        is_followed: on the chain of the file, shape (n,).
        torn: what is not whole, and can be followed.
        hidden: batches after bytes that cannot be followed.
    """

    file: str
    columns: dict[str, Ints]
    is_followed: Flags
    torn: list[Torn]
    hidden: int = 0

    def __len__(self) -> int:
        return len(self.is_followed)

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]


def batches_in(tree: Tree, file: str) -> FileBatches:
    """Find the whole batches of a file at any byte of it; a file that cannot be read has none."""
    parts, torn, breaks = list[tuple[dict[str, Ints], Flags]](), list[Torn](), list[int]()
    try:
        source = tree.open(file)
        try:
            _scan(source, file, parts, torn, breaks)
        finally:
            source.close()
    except OSError:
        pass
    none = np.zeros(0, np.int64)
    columns = {name: np.concatenate([none, *(part[name] for part, _ in parts)]) for name in _COLUMNS}
    followed = np.concatenate([none.astype(np.bool_), *(flags for _, flags in parts)])
    order = np.argsort(columns["position"], kind="stable")
    hidden = int((followed & (columns["position"] > min(breaks))).sum()) if breaks else 0
    return FileBatches(file, {name: column[order] for name, column in columns.items()}, followed[order], torn, hidden)


_COLUMNS = (*_NAMES, "position", "size", "magic")


def _scan(
    source: ByteSource, file: str, parts: list[tuple[dict[str, Ints], Flags]], torn: list[Torn], breaks: list[int]
) -> None:
    """Add the batches of a file; what the chain leaves to a gap the scan has searched, torn ones are searched here."""
    for block, inside in scan_inside(source, Extent(file, None)):
        breaks.extend(gap.position for gap in block.gaps)
        parts.append(_part(block.take(block.crc_ok), is_followed=True))
        torn.extend(_torn(block, row) for row in np.flatnonzero(~block.crc_ok).tolist())
        parts.extend(_part(one, is_followed=False) for one in inside)


def _part(block: Block, *, is_followed: bool) -> tuple[dict[str, Ints], Flags]:
    columns = {name: block[name] for name in _NAMES}
    columns |= {"position": block.position, "size": block.size, "magic": block.magic}
    return columns, np.full(len(block), is_followed)


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
        columns: as of :class:`FileBatches`, and ``file``, a number of ``files``; by base offset, shape (n,).
    """

    files: Sequence[str]
    columns: dict[str, Ints]
    sizes: Sequence[int]

    def __len__(self) -> int:
        return len(self.columns["position"])

    @cached_property
    def _sizes(self) -> Ints:
        return np.array(self.sizes, np.int64)

    @cached_property
    def touches(self) -> Flags:
        """Which batches begin where the one before ends, if that is the end of the segment before, shape (n - 1,)."""
        c = self.columns
        ends, position, file = c["position"] + c["size"], c["position"], c["file"]
        inside = (file[1:] == file[:-1]) & (position[1:] == ends[:-1])
        found: Flags = inside | (
            (file[1:] == file[:-1] + 1) & (position[1:] == 0) & (ends[:-1] == self._sizes[file[:-1]])
        )
        return found

    @cached_property
    def follows(self) -> Flags:
        """Which of them go on with the next offset, too, shape (n - 1,)."""
        found: Flags = self.touches & (self.columns["base_offset"][1:] == self.columns["last_offset"][:-1] + 1)
        return found

    @cached_property
    def is_thinned(self) -> bool:
        """Whether offsets are missing between batches that touch, as compaction leaves them, more than once."""
        return int((self.touches & ~self.follows).sum()) > 2

    def row(self, base_offset: int) -> int | None:
        """Return the row of the batch that begins with an offset."""
        bases = self.columns["base_offset"]
        at = int(np.searchsorted(bases, base_offset))
        return at if at < len(bases) and bases[at] == base_offset else None

    def holder(self, offset: int) -> int | None:
        """Return the row of the batch whose offsets hold one."""
        at = int(np.searchsorted(self.columns["base_offset"], offset, "right")) - 1
        return at if at >= 0 and int(self.columns["last_offset"][at]) >= offset else None

    def place(self, row: int) -> tuple[str, int, int]:
        """File, position and size of a batch."""
        c = self.columns
        return self.files[int(c["file"][row])], int(c["position"][row]), int(c["size"][row])

    @cached_property
    def _places(self) -> Ints:
        places: Ints = np.sort(self.columns["file"] << 40 | self.columns["position"])
        return places

    def at(self, file: str, positions: Ints) -> Flags:
        """Which of the places of a file hold one of these batches, shape (n,)."""
        if file not in self.files or not len(self):
            return np.zeros(len(positions), np.bool_)
        wanted = (np.int64(self.files.index(file)) << 40) | positions
        at = np.minimum(np.searchsorted(self._places, wanted), len(self._places) - 1)
        found: Flags = self._places[at] == wanted
        return found


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
    parts = list[dict[str, Ints]]()
    for number, (file, following) in enumerate(pairwise([*logs, None])):
        assert file is not None
        found = batches(file.name)
        base = found["base_offset"]
        here = found.is_followed & (base >= file.base) & (base - file.base <= INT_MAX)
        if following is not None:
            here &= base < following.base
        part = {name: column[here] for name, column in found.columns.items()}
        parts.append(part | {"file": np.full(int(here.sum()), number, np.int64)})
    none = np.zeros(0, np.int64)
    columns = {name: np.concatenate([none, *(part[name] for part in parts)]) for name in (*_COLUMNS, "file")}
    bases = columns["base_offset"]
    if len(bases) > 1 and not (np.diff(bases) > 0).all():
        ordered = longest_ascent(bases.tolist())
        columns = {name: column[ordered] for name, column in columns.items()}
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
