"""The judge of plans, with records of a toy family: a mark, the place that it names, a body and its CRC."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from rmqctl.errors import Refused
from rmqctl.files.tree import LocalTree, Tree, read_all
from rmqctl.repair.books import Books, Stretches, WholeRecord, balance
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Plan, Quarantine, Step

MARK, HEAD = 0xAB, 4
SIZE = 200


def record(home: int, body: bytes) -> bytes:
    head = bytes([MARK, home >> 8, home & 0xFF, len(body)])
    return head + body + zlib.crc32(head[1:] + body).to_bytes(4, "big")


class Toy:
    """Files named by the place of their first byte; a body that begins with P says that it is a placeholder."""

    def __init__(self) -> None:
        self.transactions: dict[str, Mapping[str, str]] = {}
        self.starts: list[str] = []
        self.replica: bytes = b""

    def files(self, tree: Tree) -> Iterable[str]:
        return [entry.path for entry in tree.entries("log")]

    def whole(self, tree: Tree, file: str, stretches: Stretches | None) -> Iterator[WholeRecord]:
        data = read_all(tree, file)
        name = file.rpartition("/")[2]
        base = int(name) if name.isdigit() else -1
        for at in (m.start() for m in re.finditer(bytes([MARK]), data)):
            raw = data[at : at + HEAD + data[at + 3] + 4] if at + 3 < len(data) else b""
            home = int.from_bytes(raw[1:3], "big")
            if len(raw) < HEAD + 4 or record(home, raw[HEAD:-4]) != raw:
                continue
            if stretches is None or any(at < end and at + len(raw) > begin for begin, end in stretches):
                yield WholeRecord(
                    hashlib.md5(raw).digest(), f"{home} {raw[HEAD:-4].decode('latin-1')}", file, at, len(raw), 1,
                    is_at_home=base >= 0 and base + at == home, is_placeholder=raw[HEAD:].startswith(b"P"),
                    queue="q", offset=home, span=len(raw),
                )  # fmt: skip

    def at_home(self, tree: Tree, record: WholeRecord) -> bool:
        home = int(record.name.split()[0])
        file = f"log/{home // SIZE * SIZE:05d}"
        if tree.stat(file) is None:
            return False
        at = home % SIZE
        return any(r.identity == record.identity and r.position == at for r in self.whole(tree, file, [(at, at + 1)]))

    def garbage(self, before: Tree, after: Tree, record: WholeRecord) -> str:
        return "a placeholder" if record.is_placeholder else ""

    def made(self, before: Tree, after: Tree, record: WholeRecord, origin: str) -> str:
        was = (read_all(before, origin) or b"")[record.position : record.position + record.size]
        now = read_all(after, record.file)[record.position : record.position + record.size]
        differ = sum(a != b for a, b in zip(was, now, strict=False))
        return "one byte" if differ == 1 and len(was) == len(now) else "replica" if now in self.replica else ""

    def torn(self, tree: Tree, file: str, stretches: Stretches | None) -> Iterator[tuple[int, int]]:
        data, whole = read_all(tree, file), {r.position for r in self.whole(tree, file, None)}
        for m in re.finditer(bytes([MARK]), data):
            at = m.start()
            if at not in whole and (stretches is None or any(b <= at < e for b, e in stretches)):
                yield at, 1

    def outcomes(self, tree: Tree, files: Sequence[str]) -> Mapping[str, str]:
        return self.transactions.get(type(tree).__name__, {})

    def start(self, before: Tree, after: Tree) -> Sequence[str]:
        return self.starts


BODIES = [b"alpha", b"beta", b"gamma", b"delta"]


def log(base: int) -> bytes:
    data = b""
    for body in BODIES:
        data += record(base + len(data), body + b"%d" % base)
    return data.ljust(SIZE, b"\0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    for base in (0, SIZE, 2 * SIZE):
        (tmp_path / "log" / f"{base:05d}").write_bytes(log(base))
    return tmp_path


def put(root: Path, file: str, at: int, after: bytes) -> Overwrite:
    data = (root / file).read_bytes()
    return Overwrite(file, at, data[at : at + len(after)], after)


def judged(root: Path, *edits: Edit, names: Iterable[str] = (), toy: Toy | None = None, **more: int) -> Books:
    plan = Plan(root, "test", (Step("x", "log", "does", "why", edits, gives_up=tuple(names)),))
    return balance(plan, LocalTree(root), toy or Toy(), **more)


FIRST, SECOND = "log/00000", "log/00200"
AT = len(record(0, b"alpha0"))
"""Where the second record of a file lies."""


def test_a_plan_that_touches_no_record_keeps_all(root: Path) -> None:
    books = judged(root, put(root, FIRST, 150, b"x"), whole_before=12)
    assert books.document() == {
        "whole_before": 12, "kept": 12, "moved": 0, "garbage": 0, "given_up": 0, "placeholders": 0, "healed": 0,
        "transactions_changed": 0, "balances": True,
    }  # fmt: skip
    assert books.refusal() is None


def test_a_record_that_is_zeroed_is_lost_unless_a_step_names_it(root: Path) -> None:
    edit = put(root, FIRST, AT, bytes(13))
    books = judged(root, edit)
    assert not books.balances
    assert "14 beta0 in log/00000 at 14 is lost" in books.problems[0]
    refused = books.refusal()
    assert isinstance(refused, Refused)
    assert "do not balance" in str(refused)
    books = judged(root, edit, names=["14 beta0"])
    assert (books.balances, books.given_up, books.loses, books.kept) == (True, 1, 1, 0)


def test_one_byte_of_a_sound_record_is_too_much(root: Path) -> None:
    assert not judged(root, put(root, FIRST, AT + 5, b"z")).balances


def test_a_step_that_gives_up_what_it_keeps_is_wrong_too(root: Path) -> None:
    assert judged(root, put(root, FIRST, 150, b"x"), names=["14 beta0"]).problems == [
        "14 beta0 is given up by a step, and not gone"
    ]


def test_a_copy_of_a_record_that_is_kept_is_garbage(root: Path) -> None:
    (root / FIRST).write_bytes(log(0)[:100] + record(SIZE, b"alpha200").ljust(100, b"\0"))
    books = judged(root, put(root, FIRST, 100, bytes(16)))
    assert (books.balances, books.garbage, books.loses) == (True, 1, 0)


def test_a_record_is_put_back_to_the_place_that_it_names(root: Path) -> None:
    one, other = (record(base + AT, b"beta%d" % base) for base in (0, SIZE))
    data = bytearray(log(0)[:120] + other).ljust(SIZE, b"\0")
    (root / FIRST).write_bytes(data)
    (root / SECOND).write_bytes(log(SIZE)[:AT] + bytes(len(other)) + log(SIZE)[AT + len(other) :])
    back = put(root, SECOND, AT + 2, other)
    assert not judged(root, back).balances, "not where it says"
    assert one != other
    (root / SECOND).write_bytes(log(SIZE)[:16] + bytes(len(other)) + log(SIZE)[16 + len(other) :])
    back = put(root, SECOND, 16, record(SIZE + 16, b"beta200"))
    (root / FIRST).write_bytes(log(0)[:120] + record(SIZE + 16, b"beta200").ljust(80, b"\0"))
    left = judged(root, back)
    assert (left.balances, left.moved) == (True, 1), "the left-over stays where it is"
    books = judged(root, back, put(root, FIRST, 120, bytes(15)))
    assert (books.balances, books.moved, books.garbage, books.loses) == (True, 1, 0, 0)


def test_a_record_that_was_nowhere_is_invented(root: Path) -> None:
    free = 160
    books = judged(root, put(root, FIRST, free, record(free, b"new")))
    assert "nothing proves it" in books.problems[0]
    toy = Toy()
    toy.replica = record(free, b"new")
    assert judged(root, put(root, FIRST, free, record(free, b"new")), toy=toy).healed == 1


def test_a_damaged_record_is_healed_with_a_proof(root: Path) -> None:
    right = record(AT, b"beta0")
    (root / FIRST).write_bytes(log(0)[:AT] + right[:5] + b"#" + right[6:] + log(0)[AT + len(right) :])
    books = judged(root, put(root, FIRST, AT + 5, right[5:6]), whole_before=11)
    assert (books.balances, books.healed, books.loses, books.kept) == (True, 1, 0, 11)


def test_placeholders_are_losses_once(root: Path) -> None:
    stand_in = record(AT, b"P".ljust(5))
    books = judged(root, put(root, FIRST, AT, stand_in), names=["14 beta0"])
    assert (books.balances, books.given_up, books.placeholders) == (True, 1, 1)
    books = judged(root, put(root, FIRST, AT, stand_in))
    assert not books.balances
    elsewhere = record(AT + 1, b"P".ljust(5))
    assert "placeholder" not in str(judged(root, put(root, FIRST, AT, elsewhere)).placeholders)


def test_a_placeholder_over_a_record_that_is_given_up_is_the_same_loss(root: Path) -> None:
    """It lay in the place of another, of which nothing was left."""
    stray = record(SIZE + 1, b"gamma")
    (root / FIRST).write_bytes(log(0)[:AT] + stray + log(0)[AT + len(stray) :])
    stand_in = record(AT, b"P".ljust(5))
    books = judged(root, put(root, FIRST, AT, stand_in), names=[f"{SIZE + 1} gamma"])
    assert (books.balances, books.given_up, books.placeholders, books.loses) == (True, 1, 1, 1)
    assert books.by_queue == {"q": 1}


def test_a_file_gets_its_right_name(root: Path) -> None:
    (root / SECOND).rename(root / "log" / "odd")
    edits = [Quarantine("log/odd"), Create(SECOND, source=root / "log" / "odd")]
    books = judged(root, *edits, whole_before=8)
    assert (books.balances, books.moved, books.whole_before, books.kept) == (True, 4, 12, 8)
    wrong = [Quarantine(SECOND), Create("log/00600", source=root / SECOND)]
    (root / "log" / "odd").rename(root / SECOND)
    assert len(judged(root, *wrong).problems) == 8, "all are lost where they belong, and lie where they do not"


def test_exchanged_names(root: Path) -> None:
    (root / FIRST).write_bytes(log(SIZE))
    (root / SECOND).write_bytes(log(0))
    edits = [
        Quarantine(FIRST), Quarantine(SECOND), Create(FIRST, source=root / SECOND), Create(SECOND, source=root / FIRST),
    ]  # fmt: skip
    books = judged(root, *edits)
    assert (books.balances, books.moved, books.kept) == (True, 8, 0)


def test_quarantine_gives_up_what_is_nowhere_else(root: Path) -> None:
    books = judged(root, Quarantine(SECOND))
    assert len(books.problems) == 4
    names = [r.name for r in Toy().whole(LocalTree(root), SECOND, None)]
    assert judged(root, Quarantine(SECOND), names=names).given_up == 4
    assert not judged(root, Quarantine(SECOND), names=names[1:]).balances
    assert len(judged(root, Quarantine("log")).problems) == 12


def test_a_copy_in_quarantine_is_no_loss(root: Path) -> None:
    (root / "log" / "copy").write_bytes(log(SIZE))
    books = judged(root, Quarantine("log/copy"))
    assert (books.balances, books.garbage) == (True, 4)


def test_a_cut_too_early_loses_what_lies_behind(root: Path) -> None:
    books = judged(root, Cut(FIRST, SIZE, 20), Extend(FIRST, 20, SIZE))
    assert len(books.problems) == 3


def test_torn_records_are_destroyed_by_a_cut(root: Path) -> None:
    (root / FIRST).write_bytes(log(0)[:100] + record(100, b"torn")[:6].ljust(100, b"\0"))
    books = judged(root, put(root, FIRST, 100, bytes(6)))
    assert (books.balances, books.given_up, books.loses) == (True, 0, 1)


def test_transactions_keep_their_outcome_or_are_named(root: Path) -> None:
    toy = Toy()
    toy.transactions = {"LocalTree": {"t-0 producer 5": "committed"}, "Overlay": {"t-0 producer 5": "aborted"}}
    books = judged(root, put(root, FIRST, 150, b"x"), toy=toy)
    assert (books.problems, books.transactions_changed) == (
        ["t-0 producer 5 was committed and is aborted, and no step names it"],
        ["t-0 producer 5"],
    )
    named = judged(root, put(root, FIRST, 150, b"x"), toy=toy, names=["t-0 producer 5"])
    assert (named.balances, named.document()["transactions_changed"]) == (True, 1)


def test_what_a_start_would_take_away(root: Path) -> None:
    toy = Toy()
    toy.starts = ["a start deletes index/1"]
    assert judged(root, put(root, FIRST, 150, b"x"), toy=toy).problems == toy.starts


def test_moving_all_of_a_file_by_a_few_bytes_is_seen_record_by_record(root: Path) -> None:
    (root / FIRST).write_bytes(b"\0" + log(0)[:-1])
    data = (root / FIRST).read_bytes()
    books = judged(root, Overwrite(FIRST, 0, data, log(0)))
    assert (books.balances, books.moved, books.kept) == (True, 4, 0)
    books = judged(root, Overwrite(FIRST, 0, data, b"\0\0" + log(0)[:-2]))
    assert len(books.problems) == 8
