"""Damage that leaves records whole and puts them elsewhere, and an account of whole records that shares nothing with repair.

Pages, records and files of a log copied over others, exchanged, shifted, taken from an older state or another broker's
store, or lost. The account reads every byte of the log before a plan and after it.
"""

from __future__ import annotations

import random
import re
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from fixtures import damage, golden
from fixtures.random_damage import Recipe, Subject, possible
from fixtures.worse_damage import WorseDamager
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, overlaid, plan_repair
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.repair.judged import refusals

_MAGIC = re.compile(b"(?=\xda\xa3\x20[\xa7\xab])")
_HEAD, _MASK = 84, 0x7FFFFFFF
_BLANK = b"\xcb\xd4\x31\x94"
PAGES = (512, 4096, 16384)


@dataclass(frozen=True)
class Found:
    """A whole record: its bytes, and what it says of itself."""

    raw: bytes
    topic: bytes
    queue_id: int
    queue_offset: int
    physical: int
    body: bytes

    @property
    def message(self) -> tuple[bytes, int, int, int, bytes]:
        """All of it but what no CRC of the body covers: properties, times, hosts."""
        return self.topic, self.queue_id, self.queue_offset, self.physical, self.body

    @property
    def stands_in(self) -> bool:
        """Whether it says that it stands for something destroyed."""
        text = self.body.rstrip(b"\0")[:24]
        says_so = len(text) > (self.topic != b"R") * 4 and b"placeholder: the message".startswith(text)
        return b"RMQCTL" in self.raw or b"placeholder: the message" in self.raw or says_so

    def is_named(self, names: list[str]) -> bool:
        """Whether one of the names is its."""
        place = f"{self.topic.decode('latin-1')}/{self.queue_id}@{self.queue_offset}"
        return any(place in name and str(self.physical) in name for name in names)


def whole(data: bytes) -> Iterator[tuple[int, Found]]:
    """Every whole record that begins at any byte, those inside others, too: lengths that add up, and the body's CRC."""
    for match in _MAGIC.finditer(data):
        at = match.start() - 4
        if at >= 0 and (found := _record(data, at)) is not None:
            yield at, found


def _record(data: bytes, at: int) -> Found | None:
    size, magic, crc, queue_id, _, queue_offset, physical, flags = struct.unpack_from(
        ">iiIiiqqi", data.ljust(at + 40, b"\0"), at
    )
    head = _HEAD + 12 * bool(flags & 16) + 12 * bool(flags & 32)
    end = at + size
    if size < head + 4 or end > len(data):
        return None
    length = int.from_bytes(data[at + head : at + head + 4], "big", signed=True)
    place, width = at + head + 4 + length, 2 if magic & 0xFF == 0xAB else 1
    if length < 0 or place + width > end:
        return None
    topic_size = int.from_bytes(data[place : place + width], "big")
    topic = data[place + width : place + width + topic_size]
    rest = place + width + topic_size
    if not topic.isascii() or topic_size == 0 or rest + 2 + int.from_bytes(data[rest : rest + 2], "big") != end:
        return None
    body = data[at + head + 4 : place]
    return (
        Found(data[at:end], topic, queue_id, queue_offset, physical, body)
        if crc == (zlib.crc32(body) & _MASK if body else 0)
        else None
    )


Census = dict[bytes, tuple[Found, list[int]]]


def census(store: StoreFiles, beside: tuple[str, ...] = ()) -> Census:
    """Every whole record of the log with the places where it lies; -1 for a file whose name is no offset."""
    found: dict[bytes, tuple[Found, list[int]]] = {}
    names = [(file.name, file.base, file.tree, file.path) for file in store.log_files]
    names += [(name, -1 << 62, store.tree, name) for name in beside if name not in {n[0] for n in names}]
    for _, base, tree, path in names:
        source = tree.open(path)
        data = source.read_at(0, source.size())
        source.close()
        for at, record in whole(data):
            found.setdefault(record.raw, (record, []))[1].append(max(base + at, -1))
    return found


class Misdirector(WorseDamager):
    """Makes recipes of such damage.

    Args:
        other: another broker's store of the same kind.
    """

    def __init__(self, store: str | Subject, other: Path) -> None:
        super().__init__(store)
        self.other = other
        self._size = {r["commitLogOffset"]: r["storeSize"] for r in self.records}

    @property
    def kinds(self) -> dict[str, Callable[[random.Random], Recipe]]:
        return {
            kind.__name__: kind
            for kind in (
                self.record_copied, self.records_exchanged, self.record_shorter, self.record_behind, self.page_copied,
                self.pages_exchanged, self.page_foreign, self.page_lost, self.page_shifted, self.files_exchanged,
                self.file_misnamed, self.file_shifted, self.file_foreign, self.file_lost, self.page_behind,
                self.neighbours_exchanged, self.record_blank, self.record_blanked, self.record_later, self.page_stale,
                self.blank_copied,
            )
        }  # fmt: skip

    def recipe(self, seed: int) -> Recipe:
        """One to three kinds; those of whole files alone, but for one of the files that come from the log."""
        rng = random.Random(f"misdirected {self.name} {seed}")
        kinds = self.kinds
        first = list(kinds)[seed // 2 % len(kinds)]
        found = kinds[first](rng)
        for _ in range(0 if "file" in first else rng.choice((0, 0, 0, 1, 1, 2))):
            found += kinds[rng.choice([name for name in kinds if "file" not in name])](rng)
        if rng.random() < 0.2:
            found += rng.choice((self.queue_lost, *self.derived_kinds()))(rng)
        return possible(found, self.root)

    # --- records ----------------------------------------------------------------------------------

    def _pair(self, rng: random.Random) -> tuple[int, int, int]:
        """Two places of records of one size; sometimes the last of the log is one of them."""
        by_size: dict[int, list[int]] = {}
        for at, size in self._size.items():
            by_size.setdefault(size, []).append(at)
        last = self.records[-1]
        alike = by_size[last["storeSize"]]
        places = (
            alike if rng.random() < 0.2 and len(alike) > 1 else rng.choice([p for p in by_size.values() if len(p) > 1])
        )
        one, other = rng.sample(places, 2)
        return one, other, self._size[one]

    def _read(self, physical: int, size: int) -> bytes:
        file, at = self._at(physical)
        return self._content(file)[at : at + size]

    def _put(self, physical: int, data: bytes) -> Recipe:
        file, at = self._at(physical)
        return self._write(file, at, data[: self.log_size - at])

    def record_copied(self, rng: random.Random) -> Recipe:
        one, other, size = self._pair(rng)
        return self._put(other, self._read(one, size))

    def records_exchanged(self, rng: random.Random) -> Recipe:
        one, other, size = self._pair(rng)
        return self._put(other, self._read(one, size)) + self._put(one, self._read(other, size))

    def record_shorter(self, rng: random.Random) -> Recipe:
        """A record replaced by a sound one that is 1 to 50 bytes shorter."""
        while True:
            at = rng.choice(list(self._size))
            fits = [p for p, size in self._size.items() if 0 < self._size[at] - size <= 50]
            if fits:
                one = rng.choice(fits)
                return self._put(at, self._read(one, self._size[one]))

    def record_behind(self, rng: random.Random) -> Recipe:
        """Another broker's record behind the end."""
        data = self._foreign(rng)
        record = rng.choice([found for _, found in whole(data) if len(found.raw) < 2000])
        return self._put(self.end, record.raw)

    def neighbours_exchanged(self, rng: random.Random) -> Recipe:
        """Two records that follow each other, in the room of both; often of one queue."""
        pairs = [
            (one, other) for one, other in pairwise(self.records)
            if one["commitLogOffset"] + one["storeSize"] == other["commitLogOffset"]
        ]  # fmt: skip
        same = [p for p in pairs if [p[0][k] == p[1][k] for k in ("topic", "queueId")] == [True, True]]
        one, other = rng.choice(same if same and rng.random() < 0.5 else pairs)
        first = self._read(one["commitLogOffset"], one["storeSize"])
        return self._put(one["commitLogOffset"], self._read(other["commitLogOffset"], other["storeSize"]) + first)

    def record_blank(self, rng: random.Random) -> Recipe:
        """A record whose magic says that the file ends."""
        at = rng.choice(list(self._size))
        return self._put(at + 4, _BLANK) if rng.random() < 0.7 else self._put(at, rng.randbytes(4) + _BLANK)

    def record_blanked(self, rng: random.Random) -> Recipe:
        """A blank record over the begin of another."""
        size = rng.choice((40, 84, 512))
        return self._put(rng.choice(list(self._size)), (size.to_bytes(4, "big") + _BLANK).ljust(size, b"\0"))

    def blank_copied(self, rng: random.Random) -> Recipe:
        """The end of one file over that of a page in another, so that its blank record lies there."""
        ended = [data for data in map(self._content, self.log) if _BLANK in data]
        data = rng.choice(ended)
        at = (data.rindex(_BLANK) - 4) // 512 * 512
        return self._put(self._page(rng, 512), data[at : at + 512])

    def record_later(self, rng: random.Random) -> Recipe:
        """A store time in the future, and sometimes the next record destroyed."""
        number = rng.randrange(len(self.records) - 1)
        one, after = self.records[number], self.records[number + 1]
        time = (one["storeTimestamp"] + rng.choice((1 << 32, 1 << 38, 1000, 86_400_000))).to_bytes(8, "big")
        is_ipv6 = bool(one["sysFlag"] & 16)
        found = self._put(one["commitLogOffset"] + 56 + 12 * is_ipv6, time)
        lost = rng.choice((b"", bytes(8), rng.randbytes(40), bytes(after["storeSize"])))
        return found + (self._put(after["commitLogOffset"], lost) if lost else [])

    # --- pages ------------------------------------------------------------------------------------

    def page_stale(self, rng: random.Random) -> Recipe:
        """A page as it was when the log ended in it."""
        size = rng.choice(PAGES)
        at = self._page(rng, size)
        ends = [p for p in self._size if at < p < at + size]
        return self._put(end := rng.choice(ends), bytes(at + size - end)) if ends else []

    def _page(self, rng: random.Random, size: int) -> int:
        return rng.randrange(self.end // size) * size

    def page_copied(self, rng: random.Random) -> Recipe:
        size = rng.choice(PAGES)
        return self._put(self._page(rng, size), self._read(self._page(rng, size), size))

    def pages_exchanged(self, rng: random.Random) -> Recipe:
        size = rng.choice(PAGES)
        one, other = self._page(rng, size), self._page(rng, size)
        return self._put(one, self._read(other, size)) + self._put(other, self._read(one, size))

    def page_foreign(self, rng: random.Random) -> Recipe:
        """A page of another broker's log, sometimes at its own place."""
        size = rng.choice(PAGES)
        at, data = self._page(rng, size), self._foreign(rng)
        place = at % self.log_size if rng.random() < 0.5 else rng.randrange(len(data) // size) * size
        return self._put(at, data[place : place + size])

    def page_lost(self, rng: random.Random) -> Recipe:
        size = rng.choice(PAGES)
        return self._put(self._page(rng, size), bytes(size))

    def page_shifted(self, rng: random.Random) -> Recipe:
        """The bytes of a page some places on, within it."""
        size, shift = rng.choice(PAGES), rng.choice((1, 4, 33, 200))
        at = self._page(rng, size)
        data = self._read(at, size)
        return self._put(
            at, rng.choice((bytes(shift) + data[:-shift], data[shift:] + bytes(shift), data[shift:] + data[:shift]))
        )

    def page_behind(self, rng: random.Random) -> Recipe:
        """A page of the log once more, behind its end."""
        size = rng.choice(PAGES)
        place = -(-self.end // size) * size
        return (
            []
            if place // self.log_size > self.end // self.log_size
            else self._put(place, self._read(self._page(rng, size), size))
        )

    # --- files ------------------------------------------------------------------------------------

    def _foreign(self, rng: random.Random) -> bytes:
        files = sorted((self.other / "commitlog").iterdir())
        return rng.choice([data for data in (f.read_bytes() for f in files) if any(data[:8])])

    def files_exchanged(self, rng: random.Random) -> Recipe:
        one, other = rng.sample(self._filled(), 2)
        return self._whole(one, self._content(other)) + self._whole(other, self._content(one))

    def file_misnamed(self, rng: random.Random) -> Recipe:
        one = rng.choice(self._filled())
        return self._misnamed(rng, one, self._content(one))

    def file_shifted(self, rng: random.Random) -> Recipe:
        """A file under another name whose bytes lie 33 bytes on."""
        one = rng.choice(self._filled())
        shift = rng.choice((33, 1, 512))
        return self._misnamed(
            rng, one, (rng.choice((bytes(shift), b"\xff" * shift)) + self._content(one))[: self.log_size]
        )

    def _misnamed(self, rng: random.Random, file: str, data: bytes) -> Recipe:
        number = len(self.log) + rng.choice((0, 1, 4))
        name = rng.choice(
            (f"{number * self.log_size:020d}", f"{number * self.log_size + 1:020d}", f"{Path(file).name}.bak")
        )
        return [{"op": "create", "file": f"commitlog/{name}", "hex": data.hex()}, {"op": "delete", "file": file}]

    def file_foreign(self, rng: random.Random) -> Recipe:
        """Another broker's file in the place of one, the one that has the same name or another."""
        one = rng.choice(self._filled())
        same = self.other / "commitlog" / Path(one).name
        data = same.read_bytes() if same.exists() and rng.random() < 0.6 else self._foreign(rng)
        return self._whole(one, data)

    def file_lost(self, rng: random.Random) -> Recipe:
        return [{"op": "delete", "file": rng.choice(self._filled())}]


@dataclass
class Account:
    """What a plan does to whole records.

    Attributes:
        lost: whole records that are gone, and that no step names.
        changed: whole records that lay where they say, and do not any more, though they are there.
        invented: whole records that were not there, say of nothing that they stand for it, and are not those of the
            store before it was damaged.
        adopted: whole records of another log that were put where they say they lie.
        sacrificed: whole records of the store before it was damaged that lay where they say, and are given up by name.
        refused: what brokers would refuse or cut, and what the books of the plan say.
        stranded: those that lay elsewhere, and are given up by name: they could have gone home.
        foreign: whole records of another log that lie where they say, and that the plan leaves there; nothing may show
            that they are not of here, so they alone are no fault.
        named, moved, healed, stand_ins: how many.
    """

    recipe: Any
    lost: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    sacrificed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stranded: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    named: int = 0
    moved: int = 0
    healed: int = 0
    stand_ins: int = 0

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.changed or self.invented or self.adopted or self.sacrificed or self.refused)


class Bookkeeper:
    """Working copies of the two stores of a release, and a store of another broker."""

    def __init__(self, release: str, room: Path) -> None:
        names = [f"{release}-{state}" for state in ("clean", "crash")]
        self.room = room
        other = golden.pristine("5.1.4-crash" if release != "5.1.4" else "5.3.3-crash")
        self.damagers = [Misdirector(name, other) for name in names]
        for name in names:
            golden.copy_tree(golden.pristine(name), room / name)

    def account(self, seed: int) -> Account:
        """Damage, plan and count; the copy is as before afterwards."""
        damager = self.damagers[seed % 2]
        return self.account_of(damager, damager.recipe(seed))

    def account_of(self, damager: Misdirector, recipe: Recipe) -> Account:
        """The same of a damage that is given."""
        return accounted(damager, recipe, self.room)


def accounted(damager: Misdirector, recipe: Recipe, room: Path) -> Account:
    """Damage the copy of a store in a room, plan and count; the copy is as before afterwards."""
    root = room / damager.name
    damage.apply(recipe, root)
    try:
        conf = golden.write_broker_conf(damager.name, room / f"{damager.name}.conf")
        store = open_store_at(str(root), broker_conf=str(conf))
        with tempfile.TemporaryDirectory() as built:
            repair = plan_repair(store, RepairOptions(), Path(built))
            return audited(damager, recipe, store, repair)
    finally:
        damage.undo(recipe, damager.root, root)


def audited(damager: Misdirector, recipe: Recipe, store: StoreFiles, repair: Repair) -> Account:
    """Count the whole records of a store before a plan and after it."""
    result = overlaid(store, repair.plan.edits)
    beside = tuple(
        sorted(f"{part.name}/{entry.name}" for part in Path(store.root).glob("commitlog*") for entry in part.iterdir())
    )
    names = [name for step in repair.plan.steps for name in step.gives_up]
    found = Account(recipe)
    sides = _Sides(census(open_store_at(str(damager.root))), census(store, beside), census(result))
    _of_before(sides, names, found)
    _of_after(sides, found)
    found.refused = [*refusals(repair, result), *repair.books.problems]
    return found


class _Sides:
    """Whole records of the sound store, of the damaged one, and of the mended one."""

    def __init__(self, sound: Census, before: Census, after: Census) -> None:
        self.sound, self.before, self.after = sound, before, after
        self.messages = {record.message for record, places in after.values() if record.physical in places}
        self.known = {record.message for record, _ in (*before.values(), *sound.values())}
        self._true = {record.message for record, _ in sound.values()}
        self._bodies = {(place, record.body) for record, places in sound.values() for place in places}
        mended = ((one, places) for one, places in after.values() if self.is_true(one))
        self.mended = {(place, one.body) for one, places in mended for place in places}

    def is_true(self, record: Found) -> bool:
        """Whether it is of the sound store, though bytes that no CRC covers may be others."""
        return record.message in self._true or (record.physical, record.body) in self._bodies


def _of_before(sides: _Sides, names: list[str], found: Account) -> None:
    sound, after = sides.sound, sides.after
    for raw, (record, places) in sides.before.items():
        was_home = record.physical in places
        is_home = raw in after and record.physical in after[raw][1]
        found.moved += is_home and not was_home
        if is_home and not was_home and not sides.is_true(record):
            found.adopted.append(_told(record, places))
        is_mended = record.message in sides.messages or (places[0], record.body) in sides.mended
        if raw not in after and not (raw not in sound and is_mended):
            if record.is_named(names):
                found.named += 1
                own = [_told(record, places)] if raw in sound else []
                (found.sacrificed if was_home else found.stranded).extend(own)
            elif not record.stands_in:
                found.lost.append(_told(record, places))
        elif raw in after and was_home and not is_home:
            found.changed.append(_told(record, places))


def _of_after(sides: _Sides, found: Account) -> None:
    for raw, (record, places) in sides.after.items():
        is_foreign = record.physical in places and not record.stands_in and not sides.is_true(record)
        if raw in sides.before:
            found.foreign += [_told(record, places)] if is_foreign else []
            continue
        is_healed = raw in sides.sound and record.physical in places
        found.healed += is_healed
        found.stand_ins += record.stands_in
        if not (is_healed or record.stands_in or record.message in sides.known):
            found.invented.append(_told(record, places))


def _told(record: Found, places: list[int]) -> str:
    return f"{record.topic.decode()}/{record.queue_id}@{record.queue_offset} of {record.physical} at {places[0]}"


def main(release: str, first: int, last: int) -> None:
    """Print what is wrong with the repairs of some seeds."""
    good = 0
    totals = [0, 0, 0, 0]
    with tempfile.TemporaryDirectory() as room:
        keeper = Bookkeeper(release, Path(room))
        for seed in range(first, last):
            name = list(keeper.damagers[0].kinds)[seed // 2 % len(keeper.damagers[0].kinds)]
            try:
                found = keeper.account(seed)
            except Exception as error:  # noqa: BLE001 -- the other seeds go on
                print(f"{seed} {name}: {type(error).__name__}: {error}", flush=True)
                continue
            good += found.is_good
            totals = [
                a + b for a, b in zip(totals, (found.named, found.moved, found.healed, found.stand_ins), strict=True)
            ]
            if not found.is_good:
                told = {
                    key: (len(value), value[:3])
                    for key in ("lost", "changed", "invented", "adopted", "sacrificed", "refused")
                    if (value := getattr(found, key))
                }
                print(f"{seed} {name}: {told}", flush=True)
    print(release, f"{good} of {last - first} good; named, moved, healed, stand-ins: {totals}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
