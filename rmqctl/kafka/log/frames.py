"""Following the frames of a window from batch to batch, and finding a batch again after damage.

The chain hops by the size in each frame and checks the CRC on its way. A batch whose CRC is wrong
still counts where a frame, or the end of the file, follows it; else its size is not to be trusted
either. The search accepts only what proves itself: sizes that add up and a CRC that matches.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np
from crc32c import crc32c
from isal.isal_zlib import crc32

from formats.kafka import message_set
from formats.kafka.record_batch import (
    CRC_FROM,
    FRAME_HEAD,
    HEADER_SIZE,
    MIN_LEGACY_LENGTH,
    PEEK,
    Attributes,
    Codec,
    header_dtype,
    header_plan,
)
from rmqctl.kafka.log.block import INT_MAX, Bytes8, Flags, Gap, GapKind, Ints
from rmqctl.text import number_of

MAX_BATCH = 128 << 20
"""Largest batch that is read; brokers accept 1 MiB by default."""

_FRAME = header_plan().runs[0].only("batch_length", "magic", "crc")
_LEGACY = message_set.head_plan(0).runs[0].only("message_size", "crc", "magic")
_CRC = header_plan().runs[0].only("crc")
_MIN_LENGTH = HEADER_SIZE - FRAME_HEAD
_MIN_MESSAGE = {magic: size - FRAME_HEAD for magic, size in message_set.OVERHEAD.items()}
_KNOWN_ATTRIBUTES = int(
    Attributes.CODEC
    | Attributes.LOG_APPEND_TIME
    | Attributes.TRANSACTIONAL
    | Attributes.CONTROL
    | Attributes.DELETE_HORIZON
)
_ALIKE, _ALIKE_SIZE, _SINGLY = 8, 1 << 16, 64
_PROOF_ALLOWANCE, _PROOF_FACTOR = 256 << 20, 4


@dataclass(slots=True)
class Found:
    """What following the frames of one window gave.

    Attributes:
        starts: where batches start in the window, in order; each ends where the next one starts, but for
        ends: number of batches so far, and the end of the last of them, where no batch follows it.
        bad: numbers of the batches whose CRC does not match.
        gaps: damage whose end was found here.
        after: where the chain (or the search) stands, in bytes from the start of the window.
        need: bytes that the next window must hold from there; 0 for the usual size.
    """

    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: list[tuple[int, int]] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    after: int = 0
    need: int = 0

    def columns(self) -> tuple[Ints, Ints]:
        """Start and size of each batch, shape (n,)."""
        at = np.array(self.starts, np.int64)
        size = np.diff(at, append=0)
        for count, end in self.ends:
            if count:
                size[count - 1] = end - at[count - 1]
        return at, size


class Chain:
    """The chain's state from window to window.

    Attributes:
        gap: damage whose end has not been found yet, or None while batches follow each other.
        size: bytes in the file.
        base: base offset of the segment, None where nothing says it; a batch found after damage must fit it.
    """

    def __init__(self, size: int, base: int | None = None, *, check_crc: bool = True) -> None:
        self.size, self.base, self.check_crc = size, base, check_crc
        self.gap: Gap | None = None
        self.proof_left = _PROOF_ALLOWANCE + _PROOF_FACTOR * size

    def window(self, data: Bytes8, position: int, stop: int) -> _Window:
        """Return the window ``data`` at ``position`` for batches that start before ``stop``; to be followed."""
        return _Window(self, data, position, stop)


def batches_of_files(data: Bytes8, start: Ints, size: Ints) -> tuple[Ints, Ints, Flags]:
    """Follow the batches of files that stand in ``data`` one after the other as if they were one, with every CRC.

    Returns:
        Start and size of the batches that were met, shape (n,), and which files hold nothing but sound batches; those
        of others are not all there.
    """
    window, beyond = _Window(Chain(len(data)), data, 0, len(data)), start + size
    whole = np.ones(len(size), np.bool_)
    while window.at < len(data):
        window.hop(len(data))
        if window.at < len(data):
            broken = int(np.searchsorted(beyond, window.at, "right"))
            whole[broken] = False
            window.end_run()
            window.at = int(beyond[broken])
    window.end_run()
    at, sizes = window.found.columns()
    file = np.searchsorted(beyond, at, "right")
    whole[file[at + sizes > beyond[file]]] = False
    covered = np.zeros(len(size), np.int64)
    np.add.at(covered, file, sizes)
    return at, sizes, whole & (covered == size)


def whole_among(data: Bytes8, at: Ints) -> tuple[Ints, Ints]:
    """Return which of some candidates prove themselves by their CRC; those that lie in another are its own.

    Returns:
        Start and size of each, ascending, shape (n,).
    """
    window, found, end = _Window(Chain(len(data)), data, 0, len(data)), list[tuple[int, int]](), 0
    for start, size in zip(at.tolist(), sizes_of(data, at).tolist(), strict=True):
        if start >= end and window.proves(start, size):
            found.append((start, size))
            end = start + size
    places = np.array(found, np.int64).reshape(-1, 2)
    return places[:, 0], places[:, 1]


def sizes_of(data: Bytes8, at: Ints) -> Ints:
    """Return the bytes that frames state for all of their batches, shape (n,)."""
    view = memoryview(data)  # type: ignore[arg-type]
    return np.array([FRAME_HEAD + _LEGACY.unpack_from(view, start)[0] for start in at.tolist()], np.int64)


class _Window:
    """One window, and the place the chain has reached in it."""

    def __init__(self, chain: Chain, data: Bytes8, position: int, stop: int) -> None:
        self.chain, self.data, self.position = chain, data, position
        self.view = self._whole = memoryview(data)  # type: ignore[arg-type]
        self.limit = chain.size - position  # bytes to the end of the file
        self.stop = min(stop - position, self.limit)
        self.found = Found()
        self.at = 0
        self._candidates: Ints | None = None

    def follow(self) -> Found:
        """Follow the frames; what the window gives."""
        self.view = self._whole
        while self._advance():
            pass
        return self.found

    def _advance(self) -> bool:
        """Take one step; False when the window has given what it can."""
        if self.chain.gap is not None:
            return self._resume()
        self._hop()
        if self.at >= self.stop:
            return self._leave(self.at)
        return self._examine()

    def _leave(self, at: int, need: int = 0) -> bool:
        if self.chain.gap is None:
            self.found.ends.append((len(self.found.starts), at))
        self.found.after, self.found.need = at, need
        return False

    def end_run(self) -> None:
        """Note that no batch follows the last one that was taken."""
        count, ends = len(self.found.starts), self.found.ends
        if not ends or ends[-1][0] != count:
            ends.append((count, self.at))

    def hop(self, arrived: int) -> None:
        """Take what follows each other in the first bytes, which are all that have been read so far."""
        self.view = self._whole[:arrived]
        self._hop()

    def _hop(self) -> None:
        """Take sound batches of magic 2 and then sound messages, as long as they follow each other."""
        begin = -1
        while self.at != begin:
            begin = self.at
            self._hop_batches()
            self._hop_messages()

    def _hop_batches(self) -> None:
        """Hop from batch to batch; now and then look whether many of one size follow, which are taken at once."""
        singly = _SINGLY
        while True:
            taken = self._take_alike()
            singly = _SINGLY if taken else singly * 2
            if self._hop_singly(singly) < singly:
                return

    def _take_alike(self) -> int:
        """Take the batches of one size that stand here; how many."""
        at, last = self.at, min(self.stop - 1, len(self.view) - HEADER_SIZE)
        if at > last:
            return 0
        length, magic, _ = _FRAME.unpack_from(self.view, at)
        size = length + FRAME_HEAD
        if magic != 2 or length < _MIN_LENGTH or size > _ALIKE_SIZE:
            return 0
        count = min((last - at) // size + 1, (len(self.view) - at) // size)
        if count < _ALIKE:
            return 0
        heads = np.ndarray((count,), header_dtype(), self.data, at, (size,))
        alike = (heads["batch_length"] == length) & (heads["magic"] == magic)
        if self.chain.check_crc and alike[:_ALIKE].all():
            view, stop = self.view, at + (count if alike.all() else int(np.argmin(alike))) * size
            computed = [crc32c(view[p + CRC_FROM : p + size]) for p in range(at, stop, size)]
            alike[: len(computed)] &= heads["crc"][: len(computed)] == computed
        run = count if alike.all() else int(np.argmin(alike))
        if run < _ALIKE:
            return 0
        self.found.starts.frombytes(np.arange(at, at + run * size, size, dtype=np.int64).tobytes())
        self.at = at + run * size
        return run

    def _hop_singly(self, most: int) -> int:
        view, unpack, check = self.view, _FRAME.unpack_from, crc32c if self.chain.check_crc else None
        add, at, end = self.found.starts.append, self.at, len(view)
        last, before = min(self.stop - 1, end - HEADER_SIZE), len(self.found.starts)
        for _ in range(most):
            if at > last:
                break
            length, magic, crc = unpack(view, at)
            to = at + length + FRAME_HEAD
            if magic != 2 or length < _MIN_LENGTH or to > end:
                break
            if check is not None and check(view[at + CRC_FROM : to]) != crc:
                break
            add(at)
            at = to
        self.at = at
        return len(self.found.starts) - before

    def _hop_messages(self) -> None:
        view, unpack, check = self.view, _LEGACY.unpack_from, self.chain.check_crc
        found, at = self.found, self.at
        last, end = min(self.stop - 1, len(view) - message_set.OVERHEAD[0]), len(view)
        while at <= last:
            length, crc, magic = unpack(view, at)
            to = at + FRAME_HEAD + length
            if not 0 <= magic < 2 or length < _MIN_MESSAGE[magic] or to > end:
                break
            if check and crc32(view[at + message_set.CRC_FROM : to]) != crc:
                break
            found.starts.append(at)
            at = to
        self.at = at

    # --- one place that is no sound batch -------------------------------------------------------

    def _examine(self) -> bool:
        """Look at the bytes the chain stands on: more is needed, a batch with a wrong CRC, or damage."""
        at, left = self.at, self.limit - self.at
        if len(self.view) - at < min(HEADER_SIZE, left):
            return self._leave(at, HEADER_SIZE)
        if left < PEEK:
            return self._open(_rest_kind(self.view[at:]), f"{number_of(left, 'byte', 'are')} left, too few for a batch")
        length, _, magic = _LEGACY.unpack_from(self.view, at)
        problem = self._problem(length, magic, left)
        if problem is not None:
            return self._open(*problem)
        need = FRAME_HEAD + length
        if len(self.view) - at < need + HEADER_SIZE and len(self.view) < self.limit:
            return self._leave(at, min(need + HEADER_SIZE, left))
        if not self._goes_on(at + need):
            return self._open(GapKind.CRC, "the CRC does not match, and no batch follows where this one ends", need)
        self._take_bad(at, need, magic)
        return True

    def _problem(self, length: int, magic: int, left: int) -> tuple[GapKind, str, int | None] | None:
        """Why a frame is none, as a broker's reader sees it; None where it may be one."""
        stated = FRAME_HEAD + length
        if length < MIN_LEGACY_LENGTH:
            if not any(self.view[self.at : self.at + PEEK]):
                return GapKind.ZEROS, "zeros where a batch was expected", None
            return GapKind.SIZE, f"size is {length}, less than the {MIN_LEGACY_LENGTH} of any batch", None
        if magic < 0:
            return GapKind.MAGIC, f"magic {magic} is none that is known", stated
        if length < (least := _MIN_MESSAGE.get(magic, _MIN_LENGTH)):
            return GapKind.SIZE, f"size is {length}, less than the {least} of a batch of magic {magic}", stated
        if stated > min(left, MAX_BATCH):
            return GapKind.CUT, f"a batch of {stated} bytes, but the file ends after {left}", stated
        return None

    def _take_bad(self, at: int, size: int, magic: int) -> None:
        """Take a batch that the fast loops left: its CRC is wrong, or its magic is above 2."""
        found = self.found
        (crc,) = _CRC.unpack_from(self.view, at)
        if magic < 2 or crc32c(self.view[at + CRC_FROM : at + size]) != crc:
            found.bad.append(len(found.starts))
        found.starts.append(at)
        self.at = at + size

    def _goes_on(self, at: int) -> bool:
        """Whether what stands at ``at`` may follow a batch: a frame, zeros, a rest too short for one, the end."""
        left = self.limit - at
        rest = self.view[at : at + HEADER_SIZE]
        if left <= PEEK or not any(rest):
            return True
        return bool(len(_frames_among(self.data, np.array([at]), self.limit, None)))

    def _open(self, why: GapKind, detail: str, stated: int | None = None) -> bool:
        here = self.position + self.at
        self.found.ends.append((len(self.found.starts), self.at))
        self.chain.gap = Gap(here, here, why, detail, stated=stated)
        self.at += 1
        return True

    # --- after damage ---------------------------------------------------------------------------

    def _resume(self) -> bool:
        """Find the next batch that proves itself; or move the search on."""
        candidates = self._of_window()
        for at in candidates[np.searchsorted(candidates, self.at) :].tolist():
            size = FRAME_HEAD + _LEGACY.unpack_from(self.view, at)[0]
            if at + size > len(self.view):  # the file holds it, the window does not
                if not self._may_prove(size):
                    continue
                return self._leave(at, size)
            if self.proves(at, size):
                self._close_gap(at)
                return True
        end = len(self.view)
        return self._leave(self.limit if end >= self.limit else max(end - HEADER_SIZE + 1, self.at))

    def _of_window(self) -> Ints:
        if self._candidates is None:
            self._candidates = candidates(self.data, self.limit, self.chain.base)
        return self._candidates

    def _may_prove(self, size: int) -> bool:
        """Whether the file's allowance for CRCs of what may be no batch still covers ``size`` bytes."""
        self.chain.proof_left -= size
        return self.chain.proof_left >= 0

    def proves(self, at: int, size: int) -> bool:
        """Whether the CRC of a batch of this size matches, while the file's allowance lasts."""
        if not self._may_prove(size):
            return False
        _, crc, magic = _LEGACY.unpack_from(self.view, at)
        if magic < 2:
            return bool(crc32(self.view[at + message_set.CRC_FROM : at + size]) == crc)
        (crc,) = _CRC.unpack_from(self.view, at)
        return bool(crc32c(self.view[at + CRC_FROM : at + size]) == crc)

    def _close_gap(self, place: int) -> None:
        gap = self.chain.gap
        assert gap is not None
        gap.end, gap.resumed = self.position + place, True
        if gap.position >= 0:
            self.found.gaps.append(gap)
        self.chain.gap, self.at = None, place


def candidates(data: Bytes8, limit: int, base: int | None) -> Ints:
    """Where a batch may start in a window: the header is inside, sizes are plausible; ascending.

    Args:
        limit: bytes from the start of ``data`` to the end of the file; no batch crosses it.
        base: base offset of the segment, None where it is unknown.
    """
    count = len(data) - message_set.OVERHEAD[0] + 1
    if count <= 0 or not data.any():
        return np.zeros(0, np.int64)
    hits = np.flatnonzero(data[PEEK - 1 : PEEK - 1 + count] <= 2)
    if not len(hits):
        return hits
    lengths = np.ndarray((count,), ">u4", data, 8, (1,))[hits]
    hits = hits[(lengths >= MIN_LEGACY_LENGTH) & (lengths <= min(limit, MAX_BATCH))]
    return _frames_among(data, hits, limit, base)


def _frames_among(data: Bytes8, at: Ints, limit: int, base: int | None) -> Ints:
    """Those of the places where a header stands whose fields go together; a header must be inside ``data``."""
    from formats.kafka.record_batch import BatchFrame
    from formats.layout import plan_of

    def read(places: Ints, dtype: np.dtype[np.void]) -> np.ndarray:
        return np.ndarray((len(data) - dtype.itemsize + 1,), dtype, data, 0, (1,))[places]

    at = at[at <= len(data) - message_set.OVERHEAD[0]]
    if not len(at):
        return at
    frame = read(at, plan_of(BatchFrame).runs[0].dtype)
    offset, size = frame["base_offset"].astype(np.int64), frame["batch_length"].astype(np.int64) + FRAME_HEAD
    good = (at + size <= limit) & (size <= MAX_BATCH)
    if base is not None:  # else its CRC proves a batch whose base offset is damaged, negative as it may be
        good &= (offset >= base) & (offset - base <= INT_MAX)
    found = []
    modern = at[good & (frame["magic"] == 2) & (size >= HEADER_SIZE) & (at <= len(data) - HEADER_SIZE)]
    if len(modern):
        head = read(modern, header_dtype())
        found.append(modern[_header_is_plausible(head)])
    for magic in (0, 1):
        overhead = message_set.OVERHEAD[magic]
        messages = at[good & (frame["magic"] == magic) & (size >= overhead) & (at <= len(data) - overhead)]
        if len(messages):
            found.append(messages[_message_is_plausible(read(messages, message_set.head_plan(magic).runs[0].dtype))])
    return np.sort(np.concatenate(found)) if found else at[:0]


def _header_is_plausible(head: np.ndarray) -> Flags:
    attributes, count, delta = head["attributes"], head["records_count"], head["last_offset_delta"]
    good = (attributes & ~_KNOWN_ATTRIBUTES) == 0
    good &= (attributes & int(Attributes.CODEC)) <= int(Codec.ZSTD)
    good &= (count >= 0) & (delta >= 0) & (count.astype(np.int64) <= delta.astype(np.int64) + 1)
    good &= (head["producer_id"] >= -1) & (head["partition_leader_epoch"] >= -1)
    return good


def _message_is_plausible(head: np.ndarray) -> Flags:
    key, room = head["key_size"].astype(np.int64), head["message_size"].astype(np.int64) + FRAME_HEAD
    overhead = head.dtype.itemsize + 4
    return (key >= -1) & (np.maximum(key, 0) + overhead <= room)


def _rest_kind(rest: memoryview) -> GapKind:
    return GapKind.CUT if any(rest) else GapKind.ZEROS
