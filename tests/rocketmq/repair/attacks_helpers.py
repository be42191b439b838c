"""Every kind of damage that repair is held to, two and three at once, on all golden stores, and what a plan makes of it.

``python -m tests.rocketmq.repair.attacks_helpers STORE FIRST LAST`` judges seeds in memory and prints what is wrong,
and the counts.
"""

from __future__ import annotations

import random
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from fixtures import golden
from fixtures.random_damage import PAGE, UNIT, Recipe, Subject, possible
from tests.rocketmq.repair.misdirected_helpers import Account, Misdirector, accounted

Kinds = dict[str, Callable[[random.Random], Recipe]]
LARGE = 64 << 10
OTHER, NEWER = "5.1.4-crash", "5.3.3-crash"
"""The store of another broker, and the one that is it for the first."""
DATABASES = ("consumequeue_rocksdb", "rocksdbstore", "kvStore", "config", "consumequeue")
"""Directories in which RocksDB databases lie."""
HEADS = {"TOTALSIZE": (0, 4), "MAGICCODE": (4, 4), "QUEUEOFFSET": (20, 8), "PHYSICALOFFSET": (28, 8)}


class Attacker(Misdirector):
    """Misdirected, exchanged, stale, shifted, foreign and missing pages, records, files and names, one to three at once."""

    @property
    def all_kinds(self) -> Kinds:
        more = (
            self.log_swapped, self.log_inserted, self.log_removed, self.log_burst, self.log_zeros, self.log_field, self.log_cut,
            self.queue_lost, self.queues_exchanged, self.units_exchanged, self.unit_missing, self.unit_doubled, self.queue_zeros,
            self.queue_cut, self.queue_unit, self.queue_misnamed, self.queue_directory_misnamed, self.index_any,
            self.index_header, self.index_misnamed, self.index_lost, self.checkpoint, self.config_any, self.topics_lost,
        )  # fmt: skip
        return {**self.kinds, **{kind.__name__: kind for kind in more}}

    def attack(self, seed: int) -> tuple[list[str], Recipe]:
        """Names of the kinds of damage, and what to do; the kinds come in turn, what is beside them is random."""
        rng, kinds = random.Random(f"attacked {self.name} {seed}"), self.all_kinds
        names = [list(kinds)[seed // 2 % len(kinds)]]
        names += rng.choices(list(kinds), k=rng.choice((0, 0, 1, 1, 2)))
        recipe = [edit for name in names for edit in kinds[name](rng)]
        return names, possible(recipe, self.root)

    def queue_misnamed(self, rng: random.Random) -> Recipe:
        """A queue file under the name of another place, or of none."""
        file = Path(self._used(rng)[0])
        name = rng.choice((f"{int(file.name) + self.queue_size * rng.choice((1, 3)):020d}", f"{file.name}.bak", "7"))
        return self._renamed(str(file), str(file.with_name(name)))

    def queue_directory_misnamed(self, rng: random.Random) -> Recipe:
        """All files of a queue in the directory of another number, or of another topic."""
        directory = Path(self._used(rng)[0]).parent
        to = rng.choice((directory.with_name("9"), directory.parent.with_name("Elsewhere") / directory.name))
        files = [file for file in self.queues if Path(file).parent == directory]
        moved = [edit for file in files for edit in self._renamed(file, str(to / Path(file).name))]
        return [*moved, {"op": "rmtree", "path": str(directory)}]

    def index_misnamed(self, rng: random.Random) -> Recipe:
        file = Path(rng.choice(self.index))
        name = rng.choice((f"{int(file.name) + rng.choice((-1, 1, 10**6)):017d}", f"{file.name}x"))
        return self._renamed(str(file), str(file.with_name(name)))

    def index_lost(self, _: random.Random) -> Recipe:
        return [{"op": "rmtree", "path": "index"}]

    def topics_lost(self, rng: random.Random) -> Recipe:
        """topics.json and its .bak: gone, or without a byte."""
        files = [f"config/topics.json{end}" for end in ("", ".bak")]
        files = [file for file in files if (self.root / file).exists()]
        if rng.random() < 0.6:
            return [{"op": "delete", "file": file} for file in files]
        return [{"op": "truncate", "file": file, "length": 0} for file in files]

    def _renamed(self, file: str, to: str) -> Recipe:
        if (self.root / to).exists():
            return []
        return [{"op": "create", "file": to, "hex": self._content(file).hex()}, {"op": "delete", "file": file}]


class Besieger(Attacker):
    """More kinds, and two or three at once: misdirected writes across files, older pages, files and parts, other stores' parts."""

    def __init__(self, store: str, other: Path | None = None) -> None:
        is_same = store.rpartition("-")[0] == OTHER.rpartition("-")[0]  # the one went on from the other
        super().__init__(_subject(store), other or golden.pristine(NEWER if is_same else OTHER))
        self.log = sorted(
            (name for part in self.root.glob("commitlog*") for name in self._files(part.name)),
            key=lambda n: Path(n).name,
        )
        self._by_base = {int(Path(name).name): name for name in self.log}
        self.queues = [name for name in self.queues if len(Path(name).parts) == 4 and Path(name).name.isdigit()]
        self.databases = [
            d for d in DATABASES if (self.root / d).is_dir() and any((self.root / d).rglob("*.sst"))
        ]  # fmt: skip

    def _at(self, physical: int) -> tuple[str, int]:
        base = physical // self.log_size * self.log_size
        return self._by_base.get(base, f"commitlog/{base:020d}"), physical % self.log_size

    @property
    def siege_kinds(self) -> Kinds:
        """All that the store has the parts for."""
        more = (
            self.write_astray, self.write_into_another_part, self.large_pages_exchanged, self.page_older, self.file_older,
            self.files_swapped, self.queue_of_another, self.queues_swapped, self.head_bit, self.queue_older, self.index_older,
            self.index_foreign, self.config_foreign, self.config_older, self.checkpoint_future, self.checkpoint_foreign,
            self.abort_toggled, self.part_flip,
        )  # fmt: skip
        kinds = {**self.all_kinds, **{kind.__name__: kind for kind in more}}
        has_units = any(any(self._content(name)) for name in self.queues)
        without = [] if has_units else ["queue", "unit", "files_swapped"]
        without += [] if self.index else ["index"]
        without += [] if self.config else ["config", "topics"]
        kinds = {name: kind for name, kind in kinds.items() if not name.startswith(tuple(without))}
        if self.databases:
            more = (self.database_foreign, self.database_page, self.database_file_lost, self.database_lost)
            kinds |= {kind.__name__: kind for kind in more}
        return kinds

    def attack(self, seed: int) -> tuple[list[str], Recipe]:
        """Two or three kinds of damage at once; the first comes in turn."""
        rng, kinds = random.Random(f"besieged {self.name} {seed}"), self.siege_kinds
        names = [list(kinds)[seed % len(kinds)], *rng.choices(list(kinds), k=rng.choice((1, 1, 2)))]
        recipe = [edit for name in names for edit in kinds[name](rng)]
        return names, possible(recipe, self.root)

    # --- misdirected writes -----------------------------------------------------------------------------

    def write_astray(self, rng: random.Random) -> Recipe:
        """A page written to its place in another file of the log; sometimes its own place keeps what it had before."""
        size = rng.choice((PAGE, PAGE, min(LARGE, self.log_size)))
        one, other = rng.sample(self._filled(), 2)
        at = rng.randrange(self.log_size // size) * size
        data = self._content(one)[at : at + size]
        found = self._write(other, at, data)
        return found + self._write(one, at, bytes(len(data))) if rng.random() < 0.4 else found

    def write_into_another_part(self, rng: random.Random) -> Recipe:
        """A page of one part in a file of another: log, queues, index, checkpoint."""
        parts = [files for files in (self.log, self.queues, self.index, ["checkpoint"]) if files]
        source, target = (rng.choice(files) for files in rng.sample(parts, 2))
        data, room = self._content(source), len(self._content(target))
        at = rng.randrange(max(len(data) // PAGE, 1)) * PAGE
        to = rng.randrange(max(room // PAGE, 1)) * PAGE
        return self._write(target, to, data[at : at + min(PAGE, room - to)])

    def large_pages_exchanged(self, rng: random.Random) -> Recipe:
        one, other = (rng.randrange(-(-self.end // LARGE)) * LARGE for _ in range(2))
        return self._put(one, self._read(other, LARGE)) + self._put(other, self._read(one, LARGE))

    # --- older states -----------------------------------------------------------------------------------

    def page_older(self, rng: random.Random) -> Recipe:
        """A large page as it was when the log ended in it, or before it came there."""
        at = rng.randrange(-(-self.end // LARGE)) * LARGE
        ends = [p for p in self._size if at < p < at + LARGE] or [at]
        end = rng.choice((at, rng.choice(ends)))
        return self._put(end, bytes(at + LARGE - end))

    def file_older(self, rng: random.Random) -> Recipe:
        """A file of the log as a backup had it when the log ended in it."""
        file = rng.choice(self._filled())
        base = int(Path(file).name)
        end = rng.choice([p for p in self._size if base <= p < base + self.log_size]) - base
        return self._write(file, end, bytes(len(self._content(file)) - end))

    def queue_older(self, rng: random.Random) -> Recipe:
        """A queue file, or all of a topic, as it was some units before."""
        file = self._used(rng)[0]
        files = [file] if rng.random() < 0.5 else [q for q in self.queues if Path(q).parts[1] == Path(file).parts[1]]
        part, found = rng.random(), Recipe()
        for name in files:
            content = self._content(name)
            keeps = int(len(content) // UNIT * part) * UNIT
            found += self._whole(name, content[:keeps].ljust(len(content), b"\0"))
        return found

    def index_older(self, rng: random.Random) -> Recipe:
        """The header of an index file as it was some entries before, its slots as they are, or without one slot."""
        file = rng.choice(self.index)
        content = self._content(file)
        count = struct.unpack_from(">i", content, 36)[0]
        older = rng.randrange(1, max(count, 2))
        return self._write(file, 8, content[:8]) + self._write(file, 36, struct.pack(">i", older))

    def config_older(self, rng: random.Random) -> Recipe:
        """A configuration file as its .bak is, or all of them so."""
        files = [f for f in self.config if not f.endswith(".bak") and f"{f}.bak" in self.config]
        files = files if rng.random() < 0.3 else rng.sample(files, min(len(files), 1))
        return [{"op": "create", "file": f, "hex": self._content(f"{f}.bak").hex()} for f in files]

    def checkpoint_future(self, rng: random.Random) -> Recipe:
        """All times of the checkpoint in the future: a day, or what no clock says."""
        time = self.times[-1] + rng.choice((86_400_000, 10**12, 1 << 61))
        return self._write("checkpoint", 0, struct.pack(">3q", *[time] * 3))

    def abort_toggled(self, _: random.Random) -> Recipe:
        has = (self.root / "abort").exists()
        return [{"op": "delete", "file": "abort"} if has else {"op": "create", "file": "abort", "hex": ""}]

    # --- exchanged ----------------------------------------------------------------------------------------

    def files_swapped(self, rng: random.Random) -> Recipe:
        """Two files of the log exchanged, and a queue lost."""
        return self.files_exchanged(rng) + self.queue_lost(rng)

    def queue_of_another(self, rng: random.Random) -> Recipe:
        """The directory of a queue once more as that of another, in its place or beside it."""
        one, other = Path(self._used(rng)[0]).parent, Path(self._used(rng)[0]).parent
        new = {str(other / Path(name).name): name for name in self.queues if Path(name).parent == one}
        return self._put_in_place([other] if rng.random() < 0.6 else [], new)

    def queues_swapped(self, rng: random.Random) -> Recipe:
        """The directories of two queues exchanged."""
        one, other = Path(self._used(rng)[0]).parent, Path(self._used(rng)[0]).parent
        to = {one: other, other: one}
        new = {str(to[Path(n).parent] / Path(n).name): n for n in self.queues if Path(n).parent in to}
        return self._put_in_place([one, other], new) if one != other else []

    def _put_in_place(self, emptied: list[Path], new: dict[str, str]) -> Recipe:
        """Files with the contents of others; what else is in some directories goes."""
        made = [{"op": "create", "file": to, "hex": self._content(name).hex()} for to, name in new.items()]
        return self._without(emptied, new) + made

    def _without(self, emptied: list[Path], new: Iterable[str]) -> Recipe:
        gone = (
            str(p.relative_to(self.root)) for d in emptied for p in sorted((self.root / d).rglob("*")) if p.is_file()
        )
        kept = set(new)
        return [{"op": "delete", "file": name} for name in gone if name not in kept]

    def head_bit(self, rng: random.Random) -> Recipe:
        """One bit in what a record says of its size, kind and place; sometimes in all records of a run."""
        place, size = HEADS[rng.choice(list(HEADS))]
        first, bit = rng.randrange(len(self.records)), rng.randrange(8 * size)
        found = Recipe()
        for record in self.records[first : first + rng.choice((1, 1, 1, 2, 5))]:
            at = record["commitLogOffset"] + place
            was = int.from_bytes(self._read(at, size), "big")
            found += self._put(at, (was ^ 1 << bit).to_bytes(size, "big"))
        return found

    # --- parts of other stores ------------------------------------------------------------------------------

    def index_foreign(self, rng: random.Random) -> Recipe:
        """An index file of another broker, in the place of one or beside it."""
        foreign = rng.choice(sorted((self.other / "index").iterdir()))
        name = rng.choice((rng.choice(self.index), f"index/{foreign.name}"))
        return [{"op": "create", "file": name, "hex": foreign.read_bytes().hex()}]

    def config_foreign(self, rng: random.Random) -> Recipe:
        """A configuration file of another broker, or all that it has of those that are here."""
        names = [f for f in self.config if (self.other / f).exists()]
        names = names if rng.random() < 0.3 else [rng.choice(names)]
        return [{"op": "create", "file": f, "hex": (self.other / f).read_bytes().hex()} for f in names]

    def checkpoint_foreign(self, _: random.Random) -> Recipe:
        return [{"op": "create", "file": "checkpoint", "hex": (self.other / "checkpoint").read_bytes().hex()}]

    def part_flip(self, rng: random.Random) -> Recipe:
        """A bit, or a page of zeros, in a file of timers, compaction or whatever else lies there."""
        parts = ("timerlog", "timerwheel", "compaction", "batchconsumequeue", "config")
        files = [f for part in parts if (self.root / part).exists() for f in self._files(part)]
        files += ["timerwheel"] if (self.root / "timerwheel").is_file() else []
        files = [f for f in files if self._content(f)]
        if not files:
            return []
        file = rng.choice(files)
        content = self._content(file)
        used = [at for at in range(0, len(content), 512) if any(content[at : at + 512])] or [0]
        at = rng.choice(used)
        if rng.random() < 0.5:
            return self._write(file, at, bytes(min(PAGE, len(content) - at)))
        return self._flip(rng, file, min(at + rng.randrange(512), len(content) - 1))

    def database_foreign(self, rng: random.Random) -> Recipe:
        """A database of another store in the place of one."""
        part = rng.choice(self.databases)
        others = [
            root for name in golden.DATABASE_STORES + golden.SPECIAL_STORES[2:] if name != self.name
            and any((root := golden.pristine(name)).joinpath(part).rglob("*.sst"))
        ]  # fmt: skip
        if not others:
            return []
        root = rng.choice(others)
        files = [path for path in sorted((root / part).rglob("*")) if path.is_file()]
        made = [{"op": "create", "file": str(p.relative_to(root)), "hex": p.read_bytes().hex()} for p in files]
        return self._without([Path(part)], (edit["file"] for edit in made)) + made

    def _database_file(self, rng: random.Random) -> str:
        files = [f for part in self.databases for f in self._files(part) if self._content(f)]
        return rng.choice([f for f in files if "LOG" not in Path(f).name] or files)

    def database_page(self, rng: random.Random) -> Recipe:
        """A page of zeros, a bit, or a cut in a file of a database."""
        file = self._database_file(rng)
        size = len(self._content(file))
        at = rng.randrange(size)
        return rng.choice((
            self._flip(rng, file, at),
            self._write(file, at // PAGE * PAGE, bytes(min(PAGE, size - at // PAGE * PAGE))),
            [{"op": "truncate", "file": file, "length": at}],
        ))  # fmt: skip

    def database_file_lost(self, rng: random.Random) -> Recipe:
        return [{"op": "delete", "file": self._database_file(rng)}]

    def database_lost(self, rng: random.Random) -> Recipe:
        return [{"op": "rmtree", "path": rng.choice(self.databases)}]


def _subject(name: str) -> Subject:
    found = Subject.golden(name)
    sizes = {
        key: str(
            next(path for path in sorted(found.root.rglob("*")) if path.is_file() and part in path.parts).stat().st_size
        )
        for key, part in (("mappedFileSizeCommitLog", "commitlog"), ("mappedFileSizeConsumeQueue", "consumequeue"))
        if key not in found.settings
    }
    return Subject(found.name, found.root, found.records, {**sizes, **found.settings})


# --- what a plan makes of it ------------------------------------------------------------------------------------


def besieged(damager: Besieger, recipe: Recipe, room: Path) -> Account:
    """Damage a copy of a store, plan, and count; the copy is as before afterwards."""
    root = room / damager.name
    if not root.exists():
        golden.copy_tree(damager.root, root)
    try:
        return accounted(damager, recipe, room)
    finally:
        for path in sorted(root.rglob("*"), reverse=True):
            if path.is_dir() and not (damager.root / path.relative_to(root)).exists():
                path.rmdir()


def main(name: str, first: int, last: int) -> None:
    """Print what is wrong with the repairs of some seeds."""
    totals = Counter[str]()
    with tempfile.TemporaryDirectory() as room:
        damager = Besieger(name)
        for seed in range(first, last):
            names, recipe = damager.attack(seed)
            totals.update(stores=1, damages=len(names))
            try:
                found = besieged(damager, recipe, Path(room))
            except Exception as error:  # noqa: BLE001 -- the other seeds go on
                print(f"{name} {seed} {names}: {type(error).__name__}: {error}", flush=True)
                continue
            totals.update(good=int(found.is_good), named=found.named, moved=found.moved, healed=found.healed)
            totals.update(stranded=len(found.stranded), foreign=len(found.foreign))
            if not found.is_good or found.stranded or found.foreign:
                wrong = {
                    key: (len(value), value[:3])
                    for key in (
                        "lost",
                        "changed",
                        "invented",
                        "adopted",
                        "sacrificed",
                        "refused",
                        "stranded",
                        "foreign",
                    )
                    if (value := getattr(found, key))
                }
                print(f"{name} {seed} {names}: {wrong}", flush=True)
    print(name, dict(totals), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
