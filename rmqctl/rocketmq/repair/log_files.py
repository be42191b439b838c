"""Files of the log that are missing, under a wrong name, of another broker, or without a use (spec 1.2, 7).

Missing files in the middle of the log come from a replica, or are made again, empty: what lay in them is mended as any
destroyed range. Files under a wrong name get their right one, or go where no broker stumbles over them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cache
from itertools import zip_longest
from pathlib import Path

import numpy as np

from formats.rocketmq.message import Magic
from rmqctl.files.local import ByteSource
from rmqctl.files.tree import LocalTree
from rmqctl.findings import Finding
from rmqctl.repair.edits import Create, Edit, Quarantine, SetTimes, Step, placed
from rmqctl.rocketmq.findings.log import (
    LOG_FILE_LENGTH,
    LOG_FILE_NAME,
    LOG_GAP,
    LOG_MISSING,
    LOG_PHYSICAL_OFFSET,
    LOG_QUEUE_OFFSET,
    LOG_STORE_TIME,
)  # fmt: skip
from rmqctl.rocketmq.log.block import GapKind, Ints
from rmqctl.rocketmq.log.commitlog import STRAY, CommitLog, Misplaced, files_to_rename, has_data, misplaced_files
from rmqctl.rocketmq.log.measure import lie_in, merged, whole_records
from rmqctl.rocketmq.log.record import HEAD_SEEN, LogReader, magic_of, physical_of
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.repair.damage import Break, Holes, Key
from rmqctl.rocketmq.repair.log_repair import Replica
from rmqctl.rocketmq.repair.queue_references import (
    LIGHT_QUEUE,
    Place,
    QueueReference,
    Range,
    leads_to,
    place_of,
    references_into,
)
from rmqctl.rocketmq.repair.served import indexed
from rmqctl.rocketmq.store.files import (
    COMMIT_LOG,
    OFFSET_DIGITS,
    StoreFile,
    StoreFiles,
    odd_place,
)
from rmqctl.rocketmq.store.geometry import Geometry
from rmqctl.text import number_of

# --- those that are missing in the middle ------------------------------------------------------------


_MOST_MISSING = 64
"""Files that a gap may have where the log has fewer."""


def missing_steps(store: StoreFiles, geometry: Geometry, replica: Replica | None) -> Iterator[Step]:
    """One step a missing file; files without records of their own after a gap go into quarantine instead.

    A gap of more files than the log has is left: what follows it may be another log's.
    """
    if not store.log_files:
        yield from _no_log(store, geometry, replica)
        return
    for name in pointless_files(store):
        why = "the file in front of it is missing, and nothing sound follows"
        yield Step(LOG_GAP.id, name, "move to quarantine", why, (Quarantine(name),))
    gone = set(pointless_files(store))
    files = [f for f in store.log_files if f.name not in gone]
    log = CommitLog(files, file_size=geometry.commit_log_file_size)
    gaps = [gap for gap in (log.gap_before(at) for at in range(1, len(files))) if gap is not None]
    most = max(_MOST_MISSING, len(files)) * geometry.commit_log_file_size
    for gap in gaps:
        if gap.size > most and replica is None:
            count, after = (
                number_of(gap.size // geometry.commit_log_file_size, "file"),
                (gap.physical_offset or 0) + gap.size,
            )
            what = f"left as it is: {count} in front of {after:0{OFFSET_DIGITS}d} are missing"
            why = "give --from REPLICA, or move the files behind the gap away if they are another store's"
            yield Step(LOG_GAP.id, gap.file, what, why)
        else:
            yield from _made_again(gap, geometry.commit_log_file_size, replica)


def _no_log(store: StoreFiles, geometry: Geometry, replica: Replica | None) -> Iterator[Step]:
    """Make a log where there is none: the replica's files, else an empty one after all that queues point to.

    With a log that begins there a broker takes the messages for expired; without one it would destroy the queues,
    and give their offsets out again.
    """
    if odd := odd_place(store):
        why = "mount the disk, or put the directory in its place, and repair again; or give --commitlog DIR"
        yield Step(LOG_MISSING.id, COMMIT_LOG, f"left as it is: {odd}", why)
        return
    if replica is not None:
        for file in replica.store.log_files:
            name = f"{COMMIT_LOG}/{file.base:0{OFFSET_DIGITS}d}"
            data = replica.file(file.base, file.size, is_last=file is replica.store.log_files[-1])
            if data is not None:
                edits = (Create(name, data, size=file.size),)
                yield Step(LOG_MISSING.id, name, "take the file from the replica", _has_the_file(replica), edits)
        return
    claims = references_into(store, [(0, 1 << 62)])
    size, end = geometry.commit_log_file_size, claims.end
    if "mappedFileSizeCommitLog" not in store.settings or not end:
        why = (
            "give --from REPLICA, --commitlog DIR if it lies elsewhere, or --broker-conf FILE for the size of its files"
        )
        yield Step(LOG_MISSING.id, COMMIT_LOG, "left as it is: no file of the commit log is there", why)
        return
    name = f"{COMMIT_LOG}/{-(-end // size) * size:0{OFFSET_DIGITS}d}"
    what = "begin an empty log behind everything that queues point to"
    why = "all messages are lost, but queues keep their offsets: a broker without a log would destroy the queues"
    yield Step(LOG_MISSING.id, name, what, why, (Create(name, size=size),), loses=len(claims))


def _made_again(gap: Finding, size: int, replica: Replica | None) -> Iterator[Step]:
    """One step a file of a gap: the replica's, else an empty one. What lay in it is a destroyed range like any other,
    to which records that lie elsewhere come home.
    """
    begin = gap.physical_offset or 0
    for base in range(begin, begin + gap.size - size + 1, size):
        name = f"{gap.file.rpartition('/')[0]}/{base:0{OFFSET_DIGITS}d}"
        data = replica.file(base, size) if replica is not None else None
        if data is not None and replica is not None:
            what, why = "restore the file from the replica", _has_the_file(replica)
        else:
            what, why = "make the file anew, without a record", "no other record moves"
        yield Step(LOG_GAP.id, name, what, why, (Create(name, data or b"", size=size),))


def _has_the_file(replica: Replica) -> str:
    return f"{replica.store.root} has the file, and all its records are sound"


# --- those under a wrong name get their right one ----------------------------------------------------


def misplaced_steps(store: StoreFiles, geometry: Geometry, units: StoreFiles) -> Iterator[Step]:
    """Right names for files that have a wrong one; those whose place another file has go into quarantine.

    Args:
        units: the store with the queues that bear witness.
    """
    found = misplaced_files(store, geometry.commit_log_file_size)
    moved = files_to_rename(store, found)
    homes = {one.home for one in moved}
    denied = [one for one in moved if _is_denied(units, one, homes)]
    moved = [one for one in moved if one not in denied]
    places = {one.name for one in moved}
    for one in found:
        if one in moved:
            continue
        is_named = one.file.base != STRAY and one.file.base % one.file.size == one.home % one.file.size
        if one in denied:
            what = "move another broker's file to quarantine"
            why = f"its records say {one.name}, but no unit leads to one, and other units or its times deny it"
        elif one.file.name in places or not (is_named and holds_records(store, one.file.name)):
            what = "move to quarantine"
            why = f"its {number_of(one.records, 'record', 'say')} that {one.name} is their file, which is there"
        else:
            continue
        yield Step(_id(one), one.file.name, what, why, (Quarantine(one.file.name),))
    if moved:
        yield _renamed(moved)


def _is_denied(store: StoreFiles, one: Misplaced, homes: Container[int]) -> bool:
    """Whether units lead elsewhere from the places in queues of the records of a file, or into the place whose name it
    has, and none leads to where its records say; or all of these are older than the file that would be in front.

    Args:
        homes: places that the records of misplaced files say: units that lead into one lead to those.
    """
    asked, others, source, times = 0, 0, one.file.open(), list[int]()
    try:
        for block in scan(source, Extent(one.file.name, one.home)):
            for row in range(min(len(block), _MOST_ASKED)):
                physical = int(block["physical_offset"][row])
                led = leads_to(store, place_of(block.record(row)))
                if led == physical:
                    return False
                asked, others = asked + 1, others + (led is not None)
                times.append(int(block["store_timestamp"][row]))
            if others:
                break
    finally:
        source.close()
    if others >= _LEAST or asked < _LEAST or one.file.base == STRAY:
        return others >= _LEAST
    front = [file for file in store.log_files if file.base < one.home and file.name != one.file.name]
    with LogReader(front[-1:]) as log:
        before = log.store_timestamp(front[-1].base) if front else None
    if before is not None and max(times) < before:
        return True
    if one.file.base in homes:
        return False
    return len(references_into(store, [(one.file.base, one.file.base + one.file.size)])) >= _LEAST


def _renamed(moved: list[Misplaced]) -> Step:
    """One step, since a file may have the name that another should have."""
    away: list[Edit] = [Quarantine(one.file.name) for one in moved]
    back: list[Edit] = []
    for one in moved:
        back += placed(one.name, path_of(one.file))
    records = sum(one.records for one in moved)
    names = ", ".join(f"{one.file.name} as {one.name.rpartition('/')[2]}" for one in moved)
    why = f"{number_of(records, 'record', 'say')} so, and no other file has that place"
    return Step(_id(moved[0]), moved[0].file.name, f"give it its right name: {names}", why, (*away, *back))


def shifted_steps(store: StoreFiles, room: Callable[[], Path]) -> Iterator[Step]:
    """Write files of the log once more whose bytes all lie too far on, or not far enough; each has its right name.

    Args:
        room: makes a directory for what is built.
    """
    for file in store.log_files:
        shift, count = (0, 0) if file.lead else _shift(file)
        if shift:
            built = room() / f"{file.base:0{OFFSET_DIGITS}d}"
            _shifted(file, shift, built)
            entry = file.tree.stat(file.path)
            times = (SetTimes(file.name, entry.mtime_ms * 1_000_000),) if entry is not None else ()
            what = f"move all bytes of the file by {-shift:+,}"
            why = f"{number_of(count, 'record')} in all parts of it that were looked at say so"
            edits = (Quarantine(file.name), Create(file.name, source=built), *times)
            yield Step(LOG_PHYSICAL_OFFSET.id, file.name, what, why, edits)


def _shift(file: StoreFile) -> tuple[int, int]:
    """How many bytes after their place the records of a file lie, and how many of them say so; 0 where not all parts of
    it agree.
    """
    found = Counter[int]()
    step = max(file.size // _PARTS, _PART)
    with closing(file.open()) as source:
        if _begins_at_home(file, source):
            return 0, 0
        for begin in range(0, file.size, step):
            part = Counter(
                file.base + at - physical_of(raw)
                for at, raw in whole_records(source, file.base, [(begin, min(begin + _PART, file.size))])
            )
            found += part
            if part and (part.most_common(1)[0][0] != found.most_common(1)[0][0] or part.most_common(1)[0][0] == 0):
                return 0, 0
    shift, count = found.most_common(1)[0] if found else (0, 0)
    is_most = count >= _LEAST and count >= (1 - _MOST_OWN) * found.total()
    return (shift, count) if is_most and abs(shift) < file.size // _PARTS else (0, 0)


def _begins_at_home(file: StoreFile, source: ByteSource) -> bool:
    """Whether the first bytes of a file are a record that lies where it says; so quick is most of the log looked at."""
    head = source.read_at(0, HEAD_SEEN)
    is_message = len(head) == HEAD_SEEN and magic_of(head) in {Magic.MESSAGE_V1, Magic.MESSAGE_V2}
    return is_message and physical_of(head) == file.base


def _shifted(file: StoreFile, shift: int, built: Path) -> None:
    """Write a file with all bytes ``shift`` places nearer to its begin; zeros take the room that this leaves."""
    with closing(file.open()) as source, built.open("wb") as out:
        for begin, end in source.data_ranges(max(shift, 0), file.size + min(shift, 0)):
            out.seek(begin - shift)
            for at in range(begin, end, _PIECE):
                out.write(source.read_at(at, min(_PIECE, end - at)))
        out.truncate(file.size)


# --- those of another broker in the place of one's own ------------------------------------------------

_PARTS, _PART = 16, 64 << 10
"""How many parts of a file are compared with the queues, and bytes of each."""
_PIECE = 1 << 20
_MOST_ASKED = 64
"""Records of a block whose places in queues are looked at."""
_LEAST, _MOST_OWN, _MOST_BROKEN = 3, 0.1, 0.75
"""Records, units and queues that must be there to judge by; the part of records and units that may agree by chance; the
part of queues that must break.
"""


def foreign_steps(store: StoreFiles, findings: Iterable[Finding], order: Callable[[], Holes]) -> Iterator[Step]:
    """Move such files away; what the queues know of the messages that were there gets placeholders.

    Their records are whole, and lie where they say. But no unit of the queues leads to one of them, and store times or
    queue offsets break where the file begins or ends. Where no unit leads into the file at all, most queues must break
    there, and some of them repeat offsets; or the index leads into it, but to no record, and to those of another file.

    Args:
        findings: of a verification of the store.
        order: says how queue offsets run through the log.
    """
    breaks = {f.file for f in findings if f.kind in (LOG_STORE_TIME, LOG_QUEUE_OFFSET, LOG_FILE_LENGTH)}
    files, index = store.log_files, cache(lambda: indexed(store))
    beside = {
        file.name for number, file in enumerate(files) for near in files[number : number + 2] if near.name in breaks
    }
    for number, (file, after) in enumerate(zip_longest(files, files[1:])):
        if file.name not in beside or file.lead:
            continue
        size = min(file.size, after.base - file.base) if after is not None else file.size
        beside_it = "and its store times or queue offsets do not go with the files beside it"
        why = ""
        if records := _foreign(store, file, size):
            looked_at = number_of(records, "record")
            why = f"no unit of the queues leads to one of {looked_at} of it that were looked at, {beside_it}"
        elif references_into(store, [(file.base, file.base + size)]):
            continue
        elif file.name in breaks and (queues := _repeats(files, number, order())):
            why = f"the files in front have given out offsets of {number_of(queues, 'queue')} that it repeats"
        elif _is_unknown(index(), files, file, size):
            why = f"the index leads into it, to none of its records, and to those of other files, {beside_it}"
        if why:
            what = "move another broker's file to quarantine"
            yield Step(LOG_QUEUE_OFFSET.id, file.name, what, why, (Quarantine(file.name),))


def _is_unknown(known: Ints, files: Sequence[StoreFile], file: StoreFile, size: int) -> bool:
    """Whether the index leads into a file, but not to its records, and to most records of another that it leads into.

    Args:
        known: physical offsets that the index has, ascending.
        size: up to where the next file begins.
    """
    led, records, found = _led_by(known, file, size)
    if min(led, records) < _LEAST or found > _MOST_OWN * led:
        return False
    others = (_led_by(known, other, other.size) for other in files if other.name != file.name)
    return any(led >= _LEAST and found > led // 2 for led, _, found in others)


def _led_by(known: Ints, file: StoreFile, size: int) -> tuple[int, int, int]:
    """Return how often the index leads into the parts of a file that are looked at, how many records lie there where
    they say, and to how many of these the index leads.
    """
    parts = _parts(file, size)
    records = [at for begin, end in parts for at, _, _ in _records(file, begin, end)]
    inside = known[lie_in(known, parts)]
    return len(inside), len(records), int(np.isin(inside, records).sum())


def _repeats(files: Sequence[StoreFile], number: int, order: Holes) -> int:
    """In how many queues a file repeats offsets, where most queues break at its begin, and at that of the file after
    it; 0 for one that may be of this log.

    The last file must follow two that go on from each other, else one in front may be the other broker's.
    """
    found = [b for b in _broken(files[number], order) if b.missing < 0 < b.offset]
    last = max(at for at, file in enumerate(files) if has_data(file))
    if number < last:
        is_odd = bool(_broken(files[number + 1], order))
    else:
        is_odd = number > 1 and not _broken(files[number - 1], order)
    return len(found) if is_odd and len(found) >= _LEAST else 0


def _broken(file: StoreFile, order: Holes) -> list[Break]:
    """Where queues do not go on from the files in front of a file; empty where most of them do."""
    first = dict[Key, int]()
    for physical, _, place in _records(file, file.base, file.base + min(file.size, _PART)):
        first.setdefault(place[:2], physical)
    places = set(first.values())
    found = [b for b in order.breaks if b.before in places and b.after < file.base]
    return found if len(found) >= max(_LEAST, _MOST_BROKEN * len(first)) else []


def _foreign(store: StoreFiles, file: StoreFile, size: int) -> int:
    """How many records of a file were looked at that show it to be another broker's; 0 for one of this log.

    Args:
        size: up to where the next file begins.
    """
    ranges = _parts(file, size)
    units = {(c.physical, c.size, c.place) for c in _units_into(store, ranges)}
    records = {found for begin, end in ranges for found in _records(file, begin, end)}
    if min(len(units), len(records)) < _LEAST or units & {min(records), max(records)}:  # a page of it, not all
        return 0
    return len(records) if len(units & records) <= _MOST_OWN * min(len(units), len(records)) else 0


def _parts(file: StoreFile, size: int) -> list[Range]:
    """Return the parts of a file that are compared with the queues."""
    step = max(size // _PARTS, _PART)
    return [(file.base + at, file.base + min(at + _PART, size)) for at in range(0, size, step)]


def _units_into(store: StoreFiles, ranges: list[Range]) -> Iterator[QueueReference]:
    return (c for c in references_into(store, ranges).every() if not c.topic.startswith(LIGHT_QUEUE))


def has_foreign_queues(store: StoreFiles) -> bool:
    """Whether the queues are another broker's: their units lead into the records of most files of the log, and to those
    of none.

    A record that lies where it says outranks units, and those that lead to none of all that are looked at say nothing
    of what was destroyed either.
    """
    files, denied, known = [file for file in store.log_files if has_data(file)], 0, 0
    for file in files[:: -(-len(files) // _PARTS) or 1]:
        ranges = _parts(file, file.size)
        records = {(at, size) for begin, end in ranges for at, size, _ in _records(file, begin, end)}
        spans = merged((at, at + size) for at, size in records)
        begins = [begin for begin, _ in spans]
        units = {(unit.physical, unit.size) for unit in _units_into(store, ranges)} if records else set()
        inside = {unit for unit in units if unit[0] < spans[max(bisect_right(begins, unit[0]) - 1, 0)][1]}
        few = min(len(inside), len(records))
        if file.lead or len(inside & records) > _MOST_OWN * few:
            return False
        denied, known = denied + (few >= _LEAST), known + (len(records) >= _LEAST)
    return 2 * denied > known


def _records(file: StoreFile, begin: int, end: int) -> Iterator[tuple[int, int, Place]]:
    """Records of a part of a file that lie where they say, with their sizes and their places in queues.

    The places alone may be the same by chance, as those of the first records of two logs are.
    """
    source = file.open()
    try:
        for block in scan(source, Extent(file.name, file.base, begin - file.base, end - file.base)):
            for row in np.flatnonzero(block["physical_offset"] == block.physical).tolist():
                yield block.physical_of(row), int(block.total_size[row]), place_of(block.record(row))
    finally:
        source.close()


def path_of(file: StoreFile) -> Path:
    """Return where a file lies on this machine."""
    assert isinstance(file.tree, LocalTree)
    return Path(file.tree.full(file.path))


# --- what lies in them --------------------------------------------------------------------------------


def _id(one: Misplaced) -> str:
    """Return what `verify` finds: a name off the grid, or records that lie elsewhere."""
    is_name = one.file.base == STRAY or one.file.base % one.file.size != one.home % one.file.size
    return (LOG_FILE_NAME if is_name else LOG_PHYSICAL_OFFSET).id


def holds_records(store: StoreFiles, name: str) -> bool:
    """Whether a record lies in a file of the log, even one of another place, that other files do not have."""
    own = next((f for f in store.log_files if f.name == name), None)
    if own is None:
        return True
    with LogReader([f for f in store.log_files if f.name != name]) as others:
        return _holds_own(own, others, or_damage=False)


def _holds_own(file: StoreFile, others: LogReader, *, or_damage: bool) -> bool:
    """Whether anything lies in a file but copies of records that other files have where the records say.

    Args:
        or_damage: bytes that are no record count, too.
    """
    source = file.open()
    try:
        for block in scan(source, Extent(file.name, file.base)):
            if or_damage and any(gap.resumed or gap.why is not GapKind.ZERO_TAIL for gap in block.gaps):
                return True
            for stated, begin, count in zip(block["physical_offset"], block.at, block.total_size, strict=True):
                if others.read(int(stated), int(count)) != block.data[begin : begin + count].tobytes():
                    return True
            for _, raw in whole_records(source, stretches=[(gap.position, gap.end) for gap in block.gaps]):
                if others.read(physical_of(raw), len(raw)) != raw:
                    return True
    finally:
        source.close()
    return False


def pointless_files(store: StoreFiles) -> list[str]:
    """Files of the log after a gap that hold nothing of their own: a broker does not find the end for them."""
    files = store.log_files
    size = max((f.size for f in files), default=0)
    for at in range(1, len(files)):
        if files[at].base - files[at - 1].base > size:
            with LogReader(files[:at]) as front:
                if not any(has_data(f) and _holds_own(f, front, or_damage=True) for f in files[at:]):
                    return [f.name for f in files[at:]]
    return []
