"""The books of new stores: what a salvage leaves out, changes or makes up is seen, and what it may leave out is named."""

from __future__ import annotations

import random
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c

from fixtures import golden
from fixtures.damaged import sound_store
from formats.errors import DecodeError
from formats.rocketmq.message import decode_record
from rmqctl.errors import Unbalanced
from rmqctl.files.new_files import MARK
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.replication.union import Union
from rmqctl.opening import open_store
from rmqctl.repair import copied
from rmqctl.rocketmq.salvage import salvage as of_rocketmq
from rmqctl.rocketmq.salvage.salvage import Salvaged, SalvageOptions, salvage
from rmqctl.rocketmq.store.locate import open_store as open_rocketmq
from tests.conftest import Rmqctl
from tests.kafka.salvage.salvage_helpers import one, partition


def salvaged(into: Path, *roots: Path) -> Salvaged:
    return salvage([open_rocketmq(LocalTree(root)) for root in roots], into, SalvageOptions())


def kafka(into: Path, *roots: Path) -> dict[str, Any]:
    first, *others = [open_store(str(root)) for root in roots]
    answer = first.salvage(into, replicas=others)
    answer.prepare()
    assert answer.summary is not None
    return dict(answer.summary())


# --- salvages made wrong on purpose -------------------------------------------------------------------


def left_out(writer: Any, *row: Any, **more: Any) -> None:
    if writer.written.messages == 7:
        writer.written.messages += 1
    else:
        RECORD(writer, *row, **more)


def changed(writer: Any, data: bytearray, source: int) -> int:
    data[17 if writer.written.messages == 9 else 16] ^= writer.written.messages == 9
    return APPEND(writer, data, source)


def made_up(writer: Any, data: bytearray, source: int) -> int:
    if writer.written.messages == 9:
        APPEND(writer, bytearray(data), source)
    return APPEND(writer, data, source)


RECORD, APPEND = of_rocketmq.Writer._record, of_rocketmq.Writer._append


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("_record", left_out, "is not in the result"),
        ("_append", changed, "was in no source"),
        ("_append", made_up, "stands there twice"),
    ],
)
def test_a_wrong_copy_of_a_store_stays_marked(
    name: str, wrong: Any, said: str, rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound_store(tmp_path / "store", 60)
    monkeypatch.setattr(of_rocketmq.Writer, name, wrong)
    done = rmqctl("salvage", tmp_path / "store", tmp_path / "into")
    assert done.exit_code == 13, done.output
    assert said in done.stderr and " in commitlog/" in done.stderr
    assert "do not balance" in (tmp_path / "into" / MARK).read_text()
    assert rmqctl("topics", tmp_path / "into").exit_code == 0, "it can be read"
    assert rmqctl("produce", tmp_path / "into", "--topic", "T").exit_code == 13


@pytest.mark.parametrize("rows", [[1], [0, 5], [3, 4, 5]])
def test_a_batch_that_no_rule_leaves_out_is_missed(
    rows: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = partition(tmp_path / "k", "t-0", [one(2 * n) for n in range(6)])
    whole = Union.__init__

    def without(union: Union, copies: Any) -> None:
        whole(union, copies)
        keep = np.setdiff1d(np.arange(len(union.batches)), rows)
        union.copy, union.batches = union.copy[keep], union.batches.take(keep)

    monkeypatch.setattr(Union, "__init__", without)
    with pytest.raises(Unbalanced, match=f"t-0@{2 * rows[0]}\\.\\.{2 * rows[0] + 1} #.* is not in the result"):
        kafka(tmp_path / "into", root)
    assert (tmp_path / "into" / MARK).exists()


# --- what may stay out ----------------------------------------------------------------------------------


def test_what_a_later_leader_overwrote_is_garbage(tmp_path: Path) -> None:
    old = partition(tmp_path / "a", "t-0", [one(0), one(2), one(4, text=b"old"), one(6, text=b"old")])
    new = partition(tmp_path / "b", "t-0", [one(0), one(2), one(4, epoch=1, text=b"new")])
    books = kafka(tmp_path / "into", old, new)["books"]
    assert (books["kept"], books["garbage"], books["given_up"]) == (6, 4 + 4, 0)


def test_the_batch_of_another_source_is_given_up_by_name(tmp_path: Path) -> None:
    one_root = partition(tmp_path / "a", "t-0", [one(0), one(2, text=b"mine"), one(4)])
    other = partition(tmp_path / "b", "t-0", [one(0), one(2, text=b"your"), one(4)])
    summary = kafka(tmp_path / "into", one_root, other)
    assert summary["books"]["given_up"] == 2 and summary["books"]["balances"]
    (name,) = summary["gives_up"]
    assert name.startswith("t-0@2..3 #") and "t-0/" in name


def test_segments_that_were_to_replace_others_are_taken_where_those_are_gone(tmp_path: Path) -> None:
    root = partition(tmp_path / "k", "t-0", [one(0), one(2)])
    (root / "t-0" / f"{4:020d}.log.swap").write_bytes(one(4) + one(6))
    (root / "t-0" / f"{0:020d}.log.cleaned").write_bytes(one(0))
    (root / "t-0" / f"{8:020d}.log.deleted").write_bytes(one(8))
    summary = kafka(tmp_path / "into", root)
    books = summary["books"]
    assert (summary["records"], books["kept"], books["garbage"], books["given_up"]) == (8, 8, 4, 0)


def test_a_batch_inside_a_torn_one_is_saved(tmp_path: Path) -> None:
    inner = one(4)
    outer = bytearray(one(2, text=b"x" * 300))
    outer[-200 : -200 + len(inner)] = inner
    root = partition(tmp_path / "k", "t-0", [one(0), bytes(outer), one(6)])
    summary = kafka(tmp_path / "into", root)
    assert (summary["records"], summary["books"]["kept"]) == (6, 6), summary


def test_two_messages_of_one_place_and_size_are_both_saved(tmp_path: Path) -> None:
    """A flipped queue offset: both have the same store time, since one millisecond saw them."""
    root = sound_store(tmp_path / "store", 30)
    file = root / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    found = [(at, fields) for _, at, fields in whole(root) if fields["topic"] == b"Topic0" and not fields["queue_id"]]
    (first, one_of), (second, other) = found[0], found[1]
    data[second + 20 : second + 28] = data[first + 20 : first + 28]
    raw = bytearray(data[first : first + one_of["total_size"]])
    body = raw.index(one_of["body"])
    raw[body] ^= 1
    raw[8:12] = (zlib.crc32(raw[body : body + len(one_of["body"])]) & 0x7FFFFFFF).to_bytes(4, "big")
    if len(raw) <= other["total_size"]:
        data[second : second + len(raw)] = raw
    file.write_bytes(data)
    saved = salvaged(tmp_path / "into", root)
    assert saved.books.balances and saved.books.moved == 1
    assert saved.books.kept + saved.books.moved + saved.books.garbage == saved.books.whole_before


@pytest.mark.parametrize("most", [1, 300])
def test_what_is_spilled_is_counted_alike(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden.pristine("5.3.3-crash")
    in_memory = salvaged(tmp_path / "a", root).books
    monkeypatch.setattr(copied, "_IN_MEMORY", most)
    assert salvaged(tmp_path / "b", root).books == in_memory
    assert in_memory.kept == in_memory.whole_before > 1000
    assert not [path for path in (tmp_path / "b").iterdir() if path.name.startswith("tmp")]


# --- random damage, against brute force -----------------------------------------------------------------

Whole = tuple[str, int, dict[str, Any]]
_LAYOUT = b"\xda\xa3\x20"


def whole(root: Path) -> Iterator[Whole]:
    """Every whole record of a log, none inside of another."""
    for file in sorted((root / "commitlog").iterdir()):
        data, end = file.read_bytes(), 0
        at = data.find(_LAYOUT) - 4
        while at > -5:
            size = int.from_bytes(data[at : at + 4], "big")
            if at >= end and 60 < size <= len(data) - at and data[at + 7] in (0xA7, 0xAB):
                fields, read = decoded(data[at : at + size])
                place = int(file.name) + at if file.name.isdigit() else -1
                is_sound = (zlib.crc32(fields["body"]) & 0x7FFFFFFF) == fields["body_crc"] if fields else False
                if read == size and is_sound and (fields["body"] or fields["physical_offset"] == place):
                    yield file.name, at, fields
                    end = at + size
            at = data.find(_LAYOUT, at + 5) - 4


def decoded(raw: bytes) -> tuple[dict[str, Any], int]:
    try:
        return decode_record(raw)
    except DecodeError:
        return {}, 0


def message(fields: dict[str, Any]) -> tuple[Any, ...]:
    return fields["topic"], fields["queue_id"], fields["born_timestamp"], fields["body"]


def spoil(root: Path, draw: random.Random) -> None:
    """Pages and records at wrong places, files under wrong names, flipped bits, bytes put in."""
    for _ in range(draw.randrange(1, 4)):
        files = sorted((root / "commitlog").iterdir())
        file, other = draw.choice(files), draw.choice(files)
        data, size = bytearray(file.read_bytes()), draw.choice([512, 4096])
        at, to = (draw.randrange(max(len(data) - size, 1)) for _ in range(2))
        match draw.randrange(8):
            case 0:
                data[to : to + size] = data[at : at + size]
            case 1:
                data[at : at + size], data[to : to + size] = data[to : to + size], data[at : at + size]
            case 2:
                data[at : at + size] = other.read_bytes()[to : to + size].ljust(size, b"\0")
            case 3:
                data[at : at + size] = bytes(size)
            case 4:
                data[at] ^= 1 << draw.randrange(8)
            case 5:
                data[at:] = draw.randbytes(17) + data[at:-17]
            case 6:
                file.rename(file.with_name(f"{file.name}.bak"))
                continue
            case _:
                (root / "commitlog" / f"{file.name}~").write_bytes(data)
                continue
        file.write_bytes(data)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.slow] if n > 3 else []) for n in range(40)])
def test_every_whole_message_is_in_the_salvaged_store(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    root = golden.unpack(draw.choice(["4.9.8-clean", "5.3.3-crash", "5.5.0-clean", "4.5.2-clean"]), tmp_path)
    spoil(root, draw)
    found = list(whole(root))
    wanted = Counter({message(fields): 1 for _, _, fields in found})
    saved = salvaged(tmp_path / "into", root)
    there = Counter({message(fields): 1 for _, _, fields in whole(tmp_path / "into")})
    assert sum((wanted - there).values()) <= saved.books.given_up == len(saved.books.gives_up)


def batches(root: Path) -> Iterator[tuple[str, int, int, bytes]]:
    """Partition, first and last offset and content of every whole batch, none inside of another."""
    for file in sorted(root.glob("[!_]*-[0-9]/*.log")):
        data, end = file.read_bytes(), 0
        for at in range(len(data) - 60):
            if at < end or data[at + 16] != 2:
                continue
            base, length, epoch = struct.unpack_from(">qii", data, at)
            stored, _, delta = struct.unpack_from(">Ihi", data, at + 17)
            if min(base, epoch) < 0 or not 49 <= length <= len(data) - at - 12:
                continue
            if crc32c(data[at + 21 : at + 12 + length]) == stored:
                yield file.parent.name, base, base + delta, data[at + 16 : at + 12 + length]
                end = at + 12 + length


def misplace(root: Path, draw: random.Random) -> None:
    """Batches and pages at wrong places, segments under wrong names, flipped bits."""
    for _ in range(draw.randrange(1, 4)):
        files = sorted(file for file in root.glob("[!_]*-[0-9]/*.log") if file.stat().st_size > 200)
        file = draw.choice(files)
        siblings = [other for other in files if other.parent == file.parent]
        other, data, size = draw.choice(siblings), bytearray(file.read_bytes()), draw.choice([60, 512, 2048])
        at, to = draw.randrange(len(data)), draw.randrange(len(data))
        match draw.randrange(6):
            case 0:
                data[to : to + size] = data[at : at + size]
            case 1:
                data[at : at + size] = bytes(len(data[at : at + size]))
            case 2:
                file.write_bytes(other.read_bytes())
                other.write_bytes(data)
                continue
            case 3:
                file.rename(file.with_name(f"{int(file.stem) + 1:020d}.log"))
                continue
            case 4:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            case 5:
                data = data[:at] + data[at + size :]
        file.write_bytes(data)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.slow] if n > 3 else []) for n in range(40)])
def test_every_whole_batch_is_in_the_salvaged_directory(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    roots = [golden.unpack("4.3.1-crash", tmp_path / str(n)) for n in range(draw.choice([1, 1, 2]))]
    for root in roots:
        misplace(root, draw)
    summary = kafka(tmp_path / "into", *roots)
    there = {(name, content) for name, _, _, content in batches(tmp_path / "into")}
    missing = [found for root in roots for found in batches(root) if (found[0], found[3]) not in there]
    names = [name.partition(" ")[0] for name in summary["gives_up"]]
    for name, first, last, _ in missing:
        said = f"{name}@{first}" + (f"..{last}" if last > first else "")
        assert said in names
    assert summary["books"]["balances"]
