"""Log directories under damage that moves and exchanges whole batches, and repairs of them counted by brute force.

Nothing of the library finds batches here: every byte of every file is tried, by length and CRC, before and after. A
repair is judged by the undamaged directory: no whole batch gone that no step names, none that was never there, no
transaction with another outcome, unnamed.

``python -m tests.kafka.repair.attacked FIRST LAST`` prints what is wrong with the repairs of these seeds.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np
from crc32c import crc32c

from fixtures import golden
from rmqctl.errors import Refused
from rmqctl.files.tree import LocalTree, Tree
from rmqctl.findings import Severity
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from rmqctl.repair import apply, undo
from rmqctl.repair.edited_file import Overlay
from tests.repair.stores import state_of

STORES = ("4.3.1-clean", "3.9.2-crash", "4.3.1-crash", "3.9.2-clean")
OF_ALL_RELEASES = 700_000
"""The first seed whose store is one of all golden ones; those below were drawn when there were four."""
_TRANSACTIONAL, _CONTROL = 16, 32
_NO_OP = bytes([1, 20, 0])
_MOST_TRIES = 6
_DOUBT = "its base offset is wrong, and nothing here says which"
"""Said of a last batch that stays where it says: it may have had another offset before."""
Batch = tuple[str, bytes]
"""A partition's directory and all bytes of a batch."""


# --- every whole batch, by brute force ------------------------------------------------------------------


def whole(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield every whole batch in some bytes, at any byte, those inside of others too."""
    count = len(data) - 26 + 1
    if count <= 0:
        return
    view = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(view[16 : 16 + count] <= 2)
    lengths = np.ndarray((count,), ">i4", data, 8, (1,))[at].astype(np.int64)
    at = at[(lengths >= 14) & (at + lengths + 12 <= len(data))]
    for position in at.tolist():
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        batch = data[position : position + size]
        if batch[16] == 2 and size >= 61:
            is_whole = crc32c(batch[21:]) == int.from_bytes(batch[17:21], "big")
        else:
            is_whole = batch[16] < 2 and crc32(batch[16:]) == int.from_bytes(batch[12:16], "big")
        if is_whole and batch[0] < 0x80:
            yield position, batch


def outermost(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the whole batches that have no byte in common with one before."""
    end = 0
    for position, batch in whole(data):
        if position >= end:
            end = position + len(batch)
            yield position, batch


def name_of(batch: Batch) -> str:
    """What a step calls a batch that it gives up."""
    directory, data = batch
    first = last = int.from_bytes(data[:8], "big")
    at = 12
    if data[16] >= 2:
        last, at = first + int.from_bytes(data[23:27], "big", signed=True), 17
    offsets = f"{first}" if first == last else f"{first}..{last}"
    return f"{directory}@{offsets} #{data[at : at + 4].hex()}"


def logs_of(tree: Tree) -> Iterator[tuple[str, str, bytes]]:
    """Yield directory, name and bytes of every file that may hold batches, names in order."""
    for entry in sorted(tree.entries(""), key=lambda e: e.name):
        for file in sorted(tree.entries(entry.path), key=lambda e: e.name) if entry.is_directory else ():
            if ".log" in file.name and not file.is_directory:
                source = tree.open(file.path)
                yield entry.name, file.name, source.read_at(0, source.size())
                source.close()


def batches_of(tree: Tree) -> dict[Batch, list[tuple[str, int]]]:
    """Every whole batch of a log directory that lies in no other, with its places."""
    found = defaultdict[Batch, list[tuple[str, int]]](list)
    for directory, name, data in logs_of(tree):
        for position, batch in outermost(data):
            found[directory, batch].append((name, position))
    return dict(found)


def served(tree: Tree) -> set[Batch]:
    """Return the batches that lie in the segment in use that their base offset belongs to."""
    found, bases = set[Batch](), defaultdict[str, list[int]](list)
    logs = [(d, int(name[:20]), data) for d, name, data in logs_of(tree) if name[20:] == ".log" and name[:20].isdigit()]
    for directory, base, _ in logs:
        bases[directory].append(base)
    for directory, base, data in logs:
        beyond = min((other for other in bases[directory] if other > base), default=1 << 63)
        found |= {(directory, b) for _, b in outermost(data) if base <= int.from_bytes(b[:8], "big") < beyond}
    return found


@cache
def undamaged(name: str) -> Mapping[Batch, list[tuple[str, int]]]:
    return batches_of(LocalTree(str(golden.pristine(name))))


# --- outcomes of transactions ---------------------------------------------------------------------------


def outcomes(tree: Tree) -> dict[Batch, str]:
    """What became of each transactional batch of data in the segments in use: by the next marker of its producer."""
    waiting = defaultdict[tuple[str, int], list[Batch]](list)
    found = dict[Batch, str]()
    for directory, name, data in logs_of(tree):
        if not name.endswith(".log"):
            continue
        for _, batch in outermost(data):
            attributes = int.from_bytes(batch[21:23], "big") if batch[16] == 2 else 0
            producer = directory, int.from_bytes(batch[43:51], "big", signed=True)
            if not attributes & _TRANSACTIONAL:
                continue
            if not attributes & _CONTROL:
                waiting[producer].append((directory, batch))
                found[directory, batch] = "open"
            elif batch[57:61] != bytes(4):
                key = batch.find(b"\x08\x00\x00\x00", 61)  # of 4 bytes: version 0 and type
                how = "committed" if batch[key + 4 : key + 5] == b"\x01" else "aborted"
                found |= dict.fromkeys(waiting.pop(producer, ()), how)
    return found


# --- damage ---------------------------------------------------------------------------------------------


@dataclass
class Attack:
    """Damage on a copy of a log directory, bit by bit.

    Attributes:
        done: a sentence for each damage.
    """

    root: Path
    draw: random.Random
    done: list[str] = field(default_factory=list)

    def log(self, *, besides: Path | None = None) -> Path:
        """Draw a segment with batches, each partition with the same chance for each of its segments."""
        found = [
            path
            for path in sorted(self.root.glob("*/*.log"))
            if path.stat().st_size and path != besides and "-delete/" not in str(path)
        ]
        own = [path for path in found if besides is not None and path.parent == besides.parent]
        return self.draw.choice(own if own and self.draw.random() < 0.6 else found)

    def stretch(self, path: Path) -> tuple[int, int]:
        """Draw some bytes of a segment: a batch or several, a page or a part of one, or any."""
        data = path.read_bytes()
        found = list(outermost(data))
        how = self.draw.random()
        if how < 0.5 and found:
            first = self.draw.randrange(len(found))
            last = min(first + self.draw.choice([0, 0, 0, 1, 3]), len(found) - 1)
            return found[first][0], found[last][0] + len(found[last][1])
        size = self.draw.choice([512, 1024, 4096])
        if how < 0.85:
            at = self.draw.randrange(max(len(data) // size, 1)) * size
            return at, min(at + size, len(data))
        at = self.draw.randrange(len(data))
        return at, min(at + self.draw.randrange(1, size), len(data))

    def run(self, count: int) -> None:
        """Do some damage, each of any kind."""
        for _ in range(count):
            kind = self.draw.choice(KINDS)
            said = kind(self)
            if said:
                self.done.append(f"{kind.__name__}: {said}")


def _short(path: Path) -> str:
    return f"{path.parent.name}/{int(path.name[:20])}.log" if path.name[:20].isdigit() else str(path.name)


def _write(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def misdirected(attack: Attack) -> str:
    """Bytes of one place are written over another one."""
    one = attack.log()
    other = attack.log(besides=one) if attack.draw.random() < 0.7 else one
    begin, end = attack.stretch(one)
    to = attack.stretch(other)[0]
    _write(other, to, one.read_bytes()[begin:end][: max(other.stat().st_size - to, 1)])
    return f"{begin} to {end} of {_short(one)} over {to} of {_short(other)}"


def exchanged(attack: Attack) -> str:
    """Two places have each other's bytes."""
    one = attack.log()
    other = attack.log(besides=one) if attack.draw.random() < 0.6 else one
    begin, end = attack.stretch(one)
    to = attack.stretch(other)[0]
    size = min(end - begin, other.stat().st_size - to)
    if one == other and abs(begin - to) < size:
        return ""
    first, second = one.read_bytes()[begin : begin + size], other.read_bytes()[to : to + size]
    _write(one, begin, second)
    _write(other, to, first)
    return f"{size} bytes at {begin} of {_short(one)} and {to} of {_short(other)}"


def turned(attack: Attack) -> str:
    """Two batches that touch have each other's place."""
    path = attack.log()
    data = path.read_bytes()
    found = list(outermost(data))
    if len(found) < 2:
        return ""
    n = attack.draw.randrange(len(found) - 1)
    (at, one), (_, two) = found[n : n + 2]
    _write(path, at, two + one)
    return f"the batches at {at} of {_short(path)}"


def stale(attack: Attack) -> str:
    """A page has what another segment has in its place."""
    path = attack.log()
    others = [p for p in sorted(path.parent.glob("*.log")) if p != path and p.stat().st_size]
    begin, end = attack.stretch(path)
    older = attack.draw.choice(others).read_bytes()[begin:end] if others else b""
    if not older:
        return ""
    _write(path, begin, older)
    return f"{begin} to {begin + len(older)} of {_short(path)}"


def shifted(attack: Attack) -> str:
    """Bytes are put in or taken out."""
    path = attack.log()
    data, at = path.read_bytes(), attack.stretch(path)[0]
    size = attack.draw.choice([1, 7, 12, 33, 61, 100])
    if attack.draw.random() < 0.5:
        path.write_bytes(data[:at] + data[at + size :])
        return f"{size} bytes taken out at {at} of {_short(path)}"
    path.write_bytes(data[:at] + attack.draw.choice([bytes, attack.draw.randbytes])(size) + data[at:])
    return f"{size} bytes put in at {at} of {_short(path)}"


def foreign(attack: Attack) -> str:
    """A segment holds another one's batches, or batches of another partition follow its end."""
    path = attack.log()
    other = attack.log()
    if path == other:
        return ""
    if attack.draw.random() < 0.5:
        path.write_bytes(other.read_bytes())
        return f"{_short(path)} holds {_short(other)}"
    begin, end = attack.stretch(other)
    with open(path, "ab") as file:
        file.write(other.read_bytes()[begin:end])
    return f"{begin} to {end} of {_short(other)} after {_short(path)}"


def zeroed(attack: Attack) -> str:
    """Bytes are zeros."""
    path = attack.log()
    begin, end = attack.stretch(path)
    _write(path, begin, bytes(end - begin))
    return f"{begin} to {end} of {_short(path)}"


def removed(attack: Attack) -> str:
    """Bytes are gone."""
    path = attack.log()
    begin, end = attack.stretch(path)
    data = path.read_bytes()
    path.write_bytes(data[:begin] + data[end:])
    return f"{begin} to {end} of {_short(path)}"


def doubled(attack: Attack) -> str:
    """A batch stands in the log once more."""
    path = attack.log()
    data = path.read_bytes()
    begin, end = attack.stretch(path)
    at = len(data) if attack.draw.random() < 0.5 else attack.stretch(path)[0]
    path.write_bytes(data[:at] + data[begin:end] + data[at:])
    return f"{begin} to {end} once more at {at} of {_short(path)}"


def lost_file(attack: Attack) -> str:
    """Any file of a partition is gone."""
    path = attack.draw.choice([p for p in sorted(attack.log().parent.iterdir()) if p.is_file()])
    path.unlink()
    return f"{path.parent.name}/{path.name}"


def cut(attack: Attack) -> str:
    """A segment ends early."""
    path = attack.log()
    at = attack.draw.choice([0, *attack.stretch(path)])
    with open(path, "r+b") as file:
        file.truncate(at)
    return f"{_short(path)} at {at}"


def _files(path: Path) -> list[Path]:
    return [p for p in sorted(path.parent.glob(f"{path.name[:20]}.*")) if p.suffix != ".snapshot"]


def lost_segment(attack: Attack) -> str:
    """All files of a segment are gone."""
    path = attack.log()
    for file in _files(path):
        file.unlink()
    return _short(path)


def renamed(attack: Attack) -> str:
    """A segment, or only its log, has another name."""
    path = attack.log()
    base = int(path.name[:20])
    to = attack.draw.choice([base + 1, base + 1000, max(base - 3, 0), base ^ 1 << attack.draw.randrange(12)])
    files = _files(path) if attack.draw.random() < 0.5 else [path]
    if (path.parent / f"{to:020d}.log").exists():
        return ""
    for file in files:
        file.rename(file.with_name(f"{to:020d}{file.suffix}"))
    return f"{len(files)} files of {_short(path)} as {to}"


def swapped_names(attack: Attack) -> str:
    """Two segments have each other's name."""
    path = attack.log()
    other = attack.log(besides=path)
    if other == path:
        return ""
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)
    return f"{_short(path)} and {_short(other)}"


def left_over(attack: Attack) -> str:
    """A segment waits to be deleted, renamed or swapped in."""
    path = attack.log()
    ending = attack.draw.choice([".deleted", ".swap", ".cleaned"])
    path.rename(path.with_name(path.name + ending))
    return f"{_short(path)}{ending}"


def epochs(attack: Attack) -> str:
    """Leader epochs of one or two batches are others."""
    path = attack.log()
    found = [at for at, batch in outermost(path.read_bytes()) if batch[16] == 2]
    if not found:
        return ""
    first = attack.draw.randrange(len(found))
    places = found[first : first + attack.draw.choice([1, 2, 3]) : attack.draw.choice([1, 2])]
    for at in places:
        _write(path, at + 12, attack.draw.choice([0, 1, 3, 5, 8, 1 << 20]).to_bytes(4, "big"))
    return f"at {places} of {_short(path)}"


def offsets(attack: Attack) -> str:
    """The base offset of a batch is another."""
    path = attack.log()
    found = list(outermost(path.read_bytes()))
    if not found:
        return ""
    at, batch = attack.draw.choice(found)
    bit = 1 << attack.draw.randrange(40)
    _write(path, at, (int.from_bytes(batch[:8], "big") ^ bit).to_bytes(8, "big"))
    return f"bit {bit} at {at} of {_short(path)}"


def flipped(attack: Attack) -> str:
    """A bit, or a few bytes, are others."""
    path = attack.log()
    data = bytearray(path.read_bytes())
    at = attack.draw.randrange(len(data))
    if attack.draw.random() < 0.5:
        data[at] ^= 1 << attack.draw.randrange(8)
    else:
        data[at : at + 9] = attack.draw.randbytes(len(data[at : at + 9]))
    path.write_bytes(data)
    return f"{at} of {_short(path)}"


def derived(attack: Attack) -> str:
    """A file beside the logs has wrong bytes."""
    beside = [p for p in sorted(attack.log().parent.iterdir()) if p.suffix != ".log" and p.is_file()]
    found = [path for path in beside if path.stat().st_size]
    if not found:
        return ""
    path = attack.draw.choice(found)
    data = bytearray(path.read_bytes()[: 1 << 16])
    at = attack.draw.randrange(len(data))
    _write(path, at, bytes([data[at] ^ 1 << attack.draw.randrange(8)]))
    return f"{at} of {path.parent.name}/{path.name}"


KINDS: list[Callable[[Attack], str]] = [
    misdirected, exchanged, turned, stale, shifted, foreign, zeroed, removed, doubled, lost_file, cut, lost_segment,
    renamed, swapped_names, left_over, epochs, offsets, flipped, derived,
]  # fmt: skip


@dataclass
class AttackOnOne(Attack):
    """Damage on one partition, if other partitions may give the bytes."""

    directory: str = ""

    def log(self, *, besides: Path | None = None) -> Path:
        """Draw a segment of the partition with batches; the other one of two is of any."""
        if besides is not None:
            return super().log(besides=besides)
        return self.draw.choice(
            [path for path in sorted((self.root / self.directory).glob("*.log")) if path.stat().st_size]
        )


def attacked_everywhere(seed: int, room: Path) -> tuple[Path, list[str], str]:
    """Return a golden directory with damage in every partition of a topic of users, what was done, and its name.

    Each damage is drawn until a plan for it alone mends all: what a plan leaves may keep a broker from starting.
    """
    draw, name = random.Random(seed), STORES[seed % len(STORES)]
    alone, release = golden.unpack(name, room / "alone"), Release.parse(name.partition("-")[0])
    sound = {path: path.read_bytes() for path in alone.rglob("*") if path.is_file()}
    root, done = golden.unpack(name, room / "all"), list[str]()
    logs = {path.parent.name for path in alone.glob("*/*.log") if path.stat().st_size}
    for directory in sorted(one for one in logs if not one.startswith("__") and not one.endswith("-delete")):
        for _ in range(_MOST_TRIES):
            attack = AttackOnOne(alone, draw, directory=directory)
            attack.run(1)
            changed = {p for p in alone.rglob("*") if p.is_file() and (p not in sound or p.read_bytes() != sound[p])}
            changed |= {path for path in sound if not path.exists()}
            here = {path.relative_to(alone).parts[0] for path in changed} == {directory}
            if here and attack.done and _is_mended(alone, release, room):
                done += attack.done
                shutil.rmtree(root / directory)
                shutil.copytree(alone / directory, root / directory, copy_function=shutil.copy2)
            for path in changed:
                path.write_bytes(sound[path]) if path in sound else path.unlink()
            if here and done and attack.done and done[-1] == attack.done[-1]:
                break
    shutil.rmtree(alone)
    return root, done, name


def attacked_at_once(seed: int, name: str, room: Path) -> tuple[Path, dict[str, str]]:
    """Return a golden directory with damage in every partition of users, and what was done, by their directories.

    A partition in which a plan leaves an error, or which a start on the result harms, is as it was: it may keep a
    broker from starting. The others, whatever was given up there, are damaged and mended side by side.
    """
    draw, release = random.Random(seed), Release.parse(name.partition("-")[0])
    root, done = golden.unpack(name, room / "all"), dict[str, str]()
    logs = {path.parent.name for path in root.glob("*/*.log") if path.stat().st_size}
    for directory in sorted(one for one in logs if not one.startswith("__") and not one.endswith("-delete")):
        before = _stamps(root)
        attack = AttackOnOne(root, draw, directory=directory)
        attack.run(1)
        changed = {path.parent.name for path, _ in before.items() ^ _stamps(root).items()}
        for other in changed if changed != {directory} or not attack.done else ():
            _put_back(root, name, other)
            done.pop(other, None)
        if changed == {directory} and attack.done:
            done[directory] = attack.done[0]
    for _ in range(_MOST_TRIES):
        if not (bad := _left_in(root, release, room) & done.keys()):
            break
        for directory in bad:
            _put_back(root, name, directory)
            del done[directory]
    return root, done


def _stamps(root: Path) -> dict[Path, tuple[int, int]]:
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in root.glob("*/*") if p.is_file()}


def _put_back(root: Path, name: str, directory: str) -> None:
    shutil.rmtree(root / directory, ignore_errors=True)
    shutil.copytree(golden.pristine(name) / directory, root / directory, copy_function=shutil.copy2)


def _left_in(root: Path, release: Release, room: Path) -> set[str]:
    """Partitions in which a plan leaves an error or a doubt, or which a start on the result cuts or sets aside."""
    (staged := room / "staged").mkdir()
    try:
        found = plan_repair(read_directory(LocalTree(str(root))), RepairOptions(release), staged)
        result = Replicas(LogDirectories([read_directory(Overlay(LocalTree(str(root)), found.plan.edits))]))
        start = recover(result, release)
        harmed = {one.loaded.partition.directory for one in start.partitions if one.lost.records or one.is_stray}
    finally:
        shutil.rmtree(staged)
    names = {f.file.partition("/")[0] for f in found.after if f.level is Severity.ERROR}
    names |= {f"{f.topic}-{f.partition}" for f in found.after if f.level is Severity.ERROR and f.topic is not None}
    names |= {step.file.partition("/")[0] for step in found.left if step.id == "repair.books"}
    return names | harmed | {step.file.partition("/")[0] for step in found.left if _DOUBT in step.what}


def _is_mended(root: Path, release: Release, room: Path) -> bool:
    (staged := room / "staged").mkdir()
    try:
        found = plan_repair(read_directory(LocalTree(str(root))), RepairOptions(release), staged)
    except Refused:
        return False
    finally:
        shutil.rmtree(staged)
    is_left = any(finding.level is Severity.ERROR for finding in found.after) or found.refusal
    return bool(found.plan.steps) and not is_left


# --- the verdict ----------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """One repair.

    Attributes:
        done: the damage.
        lost: whole batches that are gone, and no step names them.
        invented: batches that were never there and do not say what they are, and those of other logs that are now served.
        outcomes: transactional batches with another outcome, and no step names it.
        errors: what a verification still calls an error, and what a broker would not like.
        refused: why there is no plan; empty where there is one.
    """

    seed: int
    done: list[str]
    repair: Repair | None = None
    lost: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    refused: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, made up or decided without a word."""
        return not (self.lost or self.invented or self.outcomes)


def store_of(seed: int) -> str:
    """The golden store that a seed damages."""
    stores = STORES if seed < OF_ALL_RELEASES else golden.KAFKA_NAMES
    return stores[seed % len(stores)]


def attacked(seed: int, room: Path) -> tuple[Path, Attack, str]:
    """Return a damaged copy of a golden directory, what was done to it, and its name."""
    draw, name = random.Random(seed), store_of(seed)
    root = golden.unpack(name, room)
    if draw.random() < 0.3:
        marker = root / ".kafka_cleanshutdown"
        marker.unlink() if marker.exists() else marker.touch()
    attack = Attack(root, draw)
    attack.run(draw.choice([1, 1, 1, 2, 3]))
    return root, attack, name


def judge(seed: int, room: Path, *, applies: bool = False) -> Verdict:
    """Damage a directory, plan its repair, and count.

    Args:
        applies: carry the plan out and take it back, too.
    """
    root, attack, name = attacked(seed, room)
    return judge_root(Verdict(seed, attack.done), root, name, room, applies=applies)


def judge_root(verdict: Verdict, root: Path, name: str, room: Path, *, applies: bool = False) -> Verdict:
    """Plan the repair of a damaged directory, and count.

    Args:
        name: the golden directory that it was.
    """
    staged = room / "staged"
    staged.mkdir()
    directory = read_directory(LocalTree(str(root)))
    try:
        found = plan_repair(directory, RepairOptions(Release.parse(name.partition("-")[0])), staged)
    except Refused as refused:
        verdict.refused = str(refused)
        return verdict
    verdict.repair = found
    below = LocalTree(str(root))
    before = batches_of(below), outcomes(below), served(below)
    after: Tree = Overlay(below, found.plan.edits)
    _count(verdict, name, before, after)
    if applies and found.plan.steps:
        state, foreseen = state_of(root), batches_of(after)
        applied = apply(found.plan, journal_dir=room / "journals", force=True, lock=".lock")
        assert batches_of(LocalTree(str(root))) == foreseen
        assert applied.journal is not None
        undo(applied.journal)
        assert state_of(root) == state
    return verdict


def _count(
    verdict: Verdict,
    name: str,
    before: tuple[dict[Batch, list[tuple[str, int]]], dict[Batch, str], set[Batch]],
    after: Tree,
) -> None:
    repair = verdict.repair
    assert repair is not None
    truth, left = undamaged(name), batches_of(after)
    named = {given for step in repair.plan.steps for given in step.gives_up}
    bodies = {(directory, data[17:]) for directory, data in left if (directory, data) in truth}
    copies = {data for _, data in left}
    for batch, places in before[0].items():
        is_there = batch in left or batch[1] in copies or _is_placeholder(batch)
        if is_there or (batch[0], batch[1][17:]) in bodies or _is_named(batch, named):
            continue
        if not any(batch[1] in data for data in copies):  # it may be one inside of a wrapper that was healed
            verdict.lost.append(f"{name_of(batch)} {len(batch[1])} bytes, at {places}")
    for batch, places in left.items():
        if batch not in before[0] and batch not in truth and not _is_placeholder(batch):
            verdict.invented.append(f"{name_of(batch)} {len(batch[1])} bytes, at {places}")
    foreign = served(after) - before[2] - truth.keys()
    verdict.invented += [f"{name_of(batch)} of another log" for batch in foreign if batch in before[0]]
    texts = " ".join(f"{step.what} {step.why}" for step in (*repair.plan.steps, *repair.left))
    right = outcomes(LocalTree(str(golden.pristine(name))))
    for batch, how in outcomes(after).items():
        producer = int.from_bytes(batch[1][43:51], "big")
        if (
            batch in right
            and how not in {right[batch], before[1].get(batch, how)}
            and f"producer {producer}" not in texts
        ):
            verdict.outcomes.append(
                f"{name_of(batch)} of {producer}: {before[1].get(batch)}, then {how}, was {right[batch]}"
            )
    verdict.errors = [f"{f.kind.id} {f.file}: {f.message}" for f in repair.after if f.level is Severity.ERROR]
    verdict.errors += [repair.refusal] if repair.refusal else []


def _is_named(batch: Batch, named: set[str]) -> bool:
    """Whether steps give a batch up; a message of magic 0 or 1 is called by those inside, too, which end with its own."""
    directory, data = batch
    if data[16] >= 2 or name_of(batch) in named:
        return name_of(batch) in named
    ending = f"..{int.from_bytes(data[:8], 'big')} #{data[12:16].hex()}"
    return any(name.startswith(f"{directory}@") and name.endswith(ending) for name in named)


def _is_placeholder(batch: Batch) -> bool:
    """Whether a batch has no records, or says that it stands for none."""
    data = batch[1]
    if data[16] != 2:
        return False
    if data[57:61] == bytes(4):
        return True
    if int.from_bytes(data[21:23], "big") & _CONTROL:
        return b"\x08\x00\x00\x7f\xff" in data[61:80] or batch[1][43:51] != b"\xff" * 8
    return batch[0].startswith("__cluster_metadata") and _NO_OP in data


def main(first: int, last: int) -> None:
    """Print what is wrong with the repairs of some seeds."""
    bad = refused = 0
    for seed in range(first, last):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as room:
            verdict = judge(seed, Path(room))
        refused += bool(verdict.refused)
        if verdict.is_good and not verdict.errors and not verdict.refused:
            continue
        bad += not verdict.is_good
        print(f"--- {seed} ({store_of(seed)}): {'; '.join(verdict.done)}")
        for kind in ("lost", "invented", "outcomes", "errors"):
            for text in getattr(verdict, kind)[:6]:
                print(f"    {kind}: {text}")
        for step in verdict.repair.plan.steps if verdict.repair is not None and not verdict.is_good else ():
            print(f"    step {step.id} {step.file}: {step.what}; loses {step.loses}")
        if verdict.refused:
            print(f"    refused: {verdict.refused}")
        sys.stdout.flush()
    print(f"{last - first} repairs, {bad} not right, {refused} refused")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
