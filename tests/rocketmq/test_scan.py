"""The scan: the same records, gaps and blanks whatever the window, the split or the damage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import golden
from formats.rocketmq.message import Magic, SysFlag, decode_record, encode_record
from rmqctl.files.local import BytesSource, LocalFile
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.log import chain
from rmqctl.rocketmq.log.block import GapKind
from rmqctl.rocketmq.log.commitlog import FileContext, resume_state
from rmqctl.rocketmq.log.measure import PEEK, is_message_magic, measure, records_from
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.store.files import StoreFile
from tests.rocketmq.log_files import record
from tests.rocketmq.scan_helpers import BASE, Event, events, log


def split_events(data: bytes, cuts: list[int], window: int = 4 << 20) -> list[Event]:
    """The same, from the splits between the cuts."""
    edges = [0, *sorted({c for c in cuts if 0 < c < len(data)}), len(data)]
    return [e for a, b in pairwise(edges) for e in events(data, window=window, start=a, stop=b)]


@pytest.mark.parametrize("name", golden.NAMES)
@pytest.mark.parametrize("window", [4 << 20, 1000])
def test_records_of_real_stores_equal_the_truth(name: str, window: int, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    truth = [t for t in golden.truth(name) if t["kind"] == "msg"]
    found = []
    for path in sorted(root.glob("commitlog*/*"), key=lambda p: p.name):
        for block in scan(LocalFile(path), Extent(path.name, int(path.name)), window):
            assert not [g for g in block.gaps if g.why != "zero-tail"]
            found += block.physical.tolist()
    assert found == [t["commitLogOffset"] for t in truth]


@pytest.mark.parametrize("name", golden.NAMES)
def test_every_real_record_is_rebuilt_byte_for_byte(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    for path in root.glob("commitlog*/*"):
        for block in scan(LocalFile(path), Extent(path.name, int(path.name))):
            for i in range(len(block)):
                raw = block.raw(i)
                fields, after = decode_record(raw)
                assert after == len(raw)
                assert encode_record(fields) == raw


def test_columns_equal_the_decoded_records() -> None:
    for block in scan(BytesSource(log()), Extent("log", BASE), 2000):
        for i in range(len(block)):
            fields = block.record(i)
            for name in ("queue_id", "queue_offset", "store_timestamp", "body_crc", "sys_flag", "physical_offset"):
                assert block[name][i] == fields[name]
            assert block.topic(i) == fields["topic"]
            at = int(block.properties_at[i])
            assert block.data[at : at + int(block.properties_size[i])].tobytes() == fields["properties"]


def damage() -> st.SearchStrategy[list[tuple[str, float, int]]]:
    """A few edits: kind, place as a fraction of the log, a number."""
    kinds = st.sampled_from(["flip", "zero", "noise", "huge", "cut", "drop"])
    return st.lists(
        st.tuples(kinds, st.floats(0, 1, exclude_max=True), st.integers(1, 2**31 - 1)), min_size=0, max_size=4
    )


def apply(data: bytes, edits: list[tuple[str, float, int]]) -> bytes:
    """The log with the edits made."""
    out = bytearray(data)
    for kind, where, number in edits:
        at = int(where * len(out))
        match kind:
            case "flip":
                out[at] ^= number % 255 + 1
            case "zero":
                out[at : at + number % 4096] = bytes(len(out[at : at + number % 4096]))
            case "noise":
                piece = number.to_bytes(4, "big") * (number % 300)
                out[at : at + len(piece)] = piece[: len(out) - at]
            case "huge":
                out[at : at + 4] = (0x7FFFFFF0).to_bytes(4, "big")[: len(out) - at]
            case "cut":
                out[at:] = bytes(len(out) - at)
            case "drop":
                del out[at : at + number % 64]
    return bytes(out)


@settings(max_examples=150)
@given(edits=damage(), cuts=st.lists(st.integers(1, 30 << 10), max_size=5), window=st.integers(80, 9000))
def test_window_and_split_do_not_matter(edits: list[tuple[str, float, int]], cuts: list[int], window: int) -> None:
    data = apply(log(), edits)
    whole = events(data)
    assert events(data, window=window) == whole
    assert split_events(data, cuts) == whole
    assert split_events(data, cuts, window) == whole


@settings(max_examples=150)
@given(edits=damage())
def test_the_scan_tiles_the_file(edits: list[tuple[str, float, int]]) -> None:
    data = apply(log(), edits)
    assert tiles(data) == len(data)


def tiles(data: bytes) -> int:
    """Follow records, gaps and blanks from byte 0; return where they end."""
    at = 0
    for begin, end in pieces(data):
        assert begin == at
        at = end
    return at


def pieces(data: bytes) -> Iterator[tuple[int, int]]:
    found = []
    for block in scan(BytesSource(data), Extent("log", BASE)):
        found += list(zip(block.position.tolist(), (block.position + block.total_size).tolist(), strict=True))
        found += [(g.position, g.end) for g in block.gaps]
        found += [(b.position, b.end) for b in block.blanks]
    yield from sorted(found)


@given(st.binary(max_size=2000))
def test_any_bytes_end(data: bytes) -> None:
    assert tiles(data) == len(data)


def test_chain_and_search_agree() -> None:
    """A split that knows nothing of the chain finds the records the chain found."""
    whole = [e for e in events(log()) if e[1] == "message"]
    for start in range(1, len(log()), 997):
        found = [e for e in events(log(), start=start) if e[1] == "message"]
        assert found == [e for e in whole if e[0] >= start]


def test_a_file_under_a_wrong_name_is_read_through() -> None:
    """No record lies where it says, and the chain still goes through all of them, as a broker's does."""
    right = [p for p, kind, *_ in events(log()) if kind == "message"]
    assert [p for p, kind, *_ in events(log(), base=0) if kind == "message"] == right


def test_copied_record_in_a_body_is_no_record() -> None:
    """A body that holds a whole record with the right physical offset: the chain steps over it."""
    outer, _ = decode_record(log())
    inner = dict(outer)
    head = 88
    inner |= {
        "physical_offset": BASE + head,
        "body": b"x",
        "total_size": 91 + 1 + len(outer["topic"]) + len(outer["properties"]),
    }
    body = encode_record(inner)
    outer["total_size"] += len(body) - len(outer["body"])
    outer["body"] = body
    data = encode_record(outer) + bytes(64)
    assert [p for p, kind, *_ in events(data) if kind == "message"] == [0]
    assert events(data, window=100) == events(data)


def test_a_file_that_shrinks_while_read_ends_early() -> None:
    found = list(scan(BytesSource(log()[:3000]), Extent("log", BASE, size=len(log()))))
    assert found
    assert all(b.start + len(b.data) <= 3000 for b in found if len(b))


@pytest.mark.parametrize("zeros", [997, 998, 999, 1000, 1001, 5000])
@pytest.mark.parametrize("window", [300, 1000, 4096])
def test_a_record_after_many_zeros_is_found(zeros: int, window: int) -> None:
    """It begins with zeros itself: the first byte that is none is not where it begins."""
    data = b"\x22" * 50 + bytes(zeros)
    data += sound(len(data)) + bytes(200)
    assert [p for p, kind, *_ in events(data, window=window) if kind == "message"] == [50 + zeros]
    assert events(data, window=window) == events(data)


def test_splits_that_were_never_written_are_not_read(tmp_path: Path) -> None:
    """A log is made at full length; behind its data, and between two pieces of it, lie holes."""
    path, far = tmp_path / "log", 40 << 20
    with path.open("wb") as out:
        out.write(log())
        out.seek(far)
        out.write(sound(far) + sound(far + 99) + b"torn")
        out.truncate(80 << 20)
    reads: list[int] = []

    class Read(LocalFile):
        def read_into(self, offset: int, buffer: memoryview) -> int:
            reads.append(offset)
            return super().read_into(offset, buffer)

    def found(edges: list[int]) -> list[Event]:
        blocks = [b for start, stop in pairwise(edges) for b in scan(Read(path), Extent("log", BASE, start, stop))]
        events = [(p, "message") for b in blocks for p in b.position.tolist()]
        return events + [(g.position, "gap", g.end, g.why, g.resumed) for b in blocks for g in b.gaps]

    whole = found([0, 80 << 20])
    assert [p for p, kind, *_ in whole if kind == "message" and p >= far] == [far, far + 99]
    assert found(list(range(0, (80 << 20) + 1, 4 << 20))) == whole
    reads.clear()
    assert found([60 << 20, 70 << 20, 80 << 20]) == []
    assert reads == []


class Sparse(BytesSource):
    """A file whose pages, of 512 bytes, are holes where they are zero."""

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        data = self.read_at(0, min(end, self.size()))
        pages = [page for page in range(start // 512 * 512, len(data), 512) if any(data[page : page + 512])]
        for page in pages:
            yield max(page, start), min(page + 512, len(data))


@given(
    damage(), st.lists(st.tuples(st.integers(0, 120), st.integers(1, 60)), max_size=2), st.sampled_from([4096, 4 << 20])
)
@settings(max_examples=40)
def test_holes_do_not_matter(edits: list[tuple[str, float, int]], holes: list[tuple[int, int]], window: int) -> None:
    data = bytearray(apply(log(), edits) + bytes(90_000))
    for page, count in holes:
        data[page * 512 : (page + count) * 512] = bytes(max(min((page + count) * 512, len(data)) - page * 512, 0))
    assert events(Sparse(bytes(data)), window=window) == events(bytes(data), window=window)


def test_little_is_read_of_room_after_the_end(tmp_path: Path) -> None:
    """A broker makes its files at full length; what was never written is a hole."""
    path, read = tmp_path / "log", 0
    with path.open("wb") as out:
        out.write(log())
        out.truncate(1 << 30)

    class Read(LocalFile):
        def read_into(self, offset: int, buffer: memoryview) -> int:
            nonlocal read
            read += len(buffer)
            return super().read_into(offset, buffer)

    found = [p for block in scan(Read(path), Extent("log", BASE)) for p in block.position.tolist()]
    assert found == [p for p, kind, *_ in events(log()) if kind == "message"]
    assert read < len(log()) + (256 << 10)


# --- work that a byte can cause -------------------------------------------------------------------


class Counting(BytesSource):
    """A file that counts the bytes read of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.read = 0

    def read_at(self, offset: int, size: int) -> bytes:
        data = super().read_at(offset, size)
        self.read += len(data)
        return data

    def read_into(self, offset: int, buffer: memoryview) -> int:
        count = super().read_into(offset, buffer)
        self.read += count
        return count


def head(position: int, size: int, body: int, stated: int) -> bytes:
    """The head of a record that claims ``size`` bytes with a body of ``body`` bytes, and to lie at ``stated``."""
    magic = log()[4:8]
    assert position >= 0
    return size.to_bytes(4, "big") + magic + bytes(20) + stated.to_bytes(8, "big") + bytes(48) + body.to_bytes(4, "big")


def sound(position: int, body: int = 7) -> bytes:
    """A whole record of ``body`` + 92 bytes."""
    return head(position, body + 92, body, BASE + position) + b"\x33" * body + b"\1T" + bytes(2)


@pytest.mark.parametrize("shift", [0, 8], ids=["at their place", "from elsewhere"])
@pytest.mark.parametrize("between", [False, True], ids=["alone", "between sound records"])
def test_heads_that_claim_much_cause_little_work(shift: int, between: bool) -> None:
    """Thousands of heads that each claim 2 MiB: each was read again to its end."""
    data, records = bytearray(), 0
    while len(data) < 4 << 20:
        if between:
            data += sound(len(data))
            records += 1
        claim = min(2 << 20, (4 << 20) - len(data))
        data += head(len(data), claim, max(claim - 93, 0), BASE + len(data) + shift).ljust(256, b"\x11")
    source = Counting(bytes(data))
    found = sum(len(block) for block in scan(source, Extent("log", BASE)))
    assert found == records
    assert source.read < 100 * len(data)


@pytest.mark.parametrize("window", [200, 1000, 5000])
@pytest.mark.parametrize("front", [b"", b"\x22" * 50], ids=["in the chain", "after damage"])
def test_a_record_longer_than_a_window(front: bytes, window: int) -> None:
    """Its head lies in one window and its end in another: the lengths at its end are read alone."""
    data = front + sound(len(front), 20_000)
    data += sound(len(data)) + bytes(300)
    starts = [p for p, kind, *_ in events(data, window=window) if kind == "message"]
    assert starts == [len(front), len(front) + 20_092]
    assert events(data, window=window) == events(data)
    short = data[: len(front) + 20_088] + b"\7" + data[len(front) + 20_089 :]
    assert events(short, window=window) == events(short)
    assert [p for p, kind, *_ in events(short, window=window) if kind == "message"] == [len(front) + 20_092]


@pytest.mark.parametrize("header", [bytes(48), b"\xff" * 48, b"\x55" * 48], ids=["zeros", "a blank", "noise"])
@pytest.mark.parametrize("window", [300, 1000, 5000])
def test_a_damaged_entry_header_costs_no_record(header: bytes, window: int) -> None:
    """The record of a DLedger entry proves itself, wherever the window ends, and so does what follows it."""
    data = bytearray()
    for number in range(40):
        start = len(data)
        body = 100 + 40 * number
        entry = (1).to_bytes(4, "big") + (48 + body + 92).to_bytes(4, "big") + number.to_bytes(8, "big")
        entry += (1).to_bytes(8, "big") + (BASE + start).to_bytes(8, "big") + bytes(16)
        data += header if number % 7 == 3 else entry
        data += sound(start + 48, body)
    whole = events(bytes(data), lead=48)
    assert [kind for _, kind, *_ in whole] == ["message"] * 40
    assert events(bytes(data), window=window, lead=48) == whole


@pytest.mark.parametrize("body", [200_000, 3 << 20])
def test_a_split_inside_a_long_record(body: int) -> None:
    """What looks like a record in the body is none: the split looks back to where the long one begins."""
    data = bytearray(sound(0, body) + sound(body + 92))
    inside = len(data) - 60_000
    data[inside : inside + 99] = sound(inside)
    assert split_events(bytes(data), [inside - 1000]) == events(bytes(data))


def test_what_a_split_resumes_from_lies_far_in_front(tmp_path: Path) -> None:
    """The last record, with 500 kB of zeros between it and the split."""
    first = sound(0)
    (tmp_path / "log").write_bytes(first + bytes(500_000))
    context = FileContext(StoreFile("log", BASE, 500_099, LocalTree(tmp_path), "log"), followed=False)
    assert resume_state(context, 400_000).end == BASE + len(first)


# --- records followed from size to size, against the search ---------------------------------------------


V6 = {"sys_flag": int(SysFlag.BORN_HOST_V6), "born_ip": bytes(15) + b"\1"}


def long_log(seed: int, size: int, most: int, *, nested: bool = True) -> bytes:
    """Sound records with bodies of up to ``most`` bytes; of odd seeds some have other layouts.

    Args:
        nested: in some bodies lies a whole record that says it lies there.
    """
    chance, out = Random(seed), bytearray()
    while len(out) < size:
        body = chance.randrange(most)
        one = bytearray(sound(len(out), body))
        if seed % 2 and chance.random() < 0.2:
            fields = record(
                magic=int(chance.choice([Magic.MESSAGE_V1, Magic.MESSAGE_V2])), body=bytes(body),
                physical_offset=BASE + len(out), **chance.choice([{}, V6]),
            )  # fmt: skip
            one = bytearray(encode_record(fields))
        if nested and body > 200 and chance.random() < 0.2:
            one[88 : 88 + 97] = sound(len(out) + 88, 5)
        out += one
    return bytes(out)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 5),
    most=st.sampled_from([1, 60, 300, 2500, 20_000]),
    edits=damage(),
    window=st.sampled_from([40 << 10, 150_001, 4 << 20]),
    usual=st.sampled_from([92, 1 << 10, 16 << 10]),
)
def test_following_gives_what_the_search_gives(
    seed: int, most: int, edits: list[tuple[str, float, int]], window: int, usual: int
) -> None:
    data = apply(long_log(seed, 300 << 10, most), edits) + bytes(500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "_USUAL", usual)
        patch.setattr(chain, "_FOLLOWED", 1 << 40)
        searched = events(data, window=window)
        patch.setattr(chain, "_FOLLOWED", 1)
        assert events(data, window=window) == searched


@given(
    seed=st.integers(0, 5),
    most=st.sampled_from([1, 60, 300, 2500, 20_000]),
    nested=st.booleans(),
    edits=damage(),
    usual=st.just(92) | st.integers(91, 20_000),
)
def test_followed_records_are_those_of_a_simple_walk(
    seed: int, most: int, nested: bool, edits: list[tuple[str, float, int]], usual: int
) -> None:
    data = np.frombuffer(apply(long_log(seed, 300 << 10, most, nested=nested), edits), np.uint8)
    found, behind = records_from(data, 0, BASE, len(data), usual)
    at, walked = 0, list[int]()
    while at + PEEK <= len(data):
        one = measure(data, np.array([at]), len(data))
        stated = int.from_bytes(data[at + 28 : at + 36].tobytes(), "big")
        if not is_message_magic(one.at * 0 + int.from_bytes(data[at + 4 : at + 8].tobytes(), "big"))[0]:
            break
        if stated != BASE + at or not one.whole[0]:
            break
        walked.append(at)
        at += int(one.total_size[0])
    assert found.at.tolist() == walked[: len(found.at)]
    assert found.whole.all()
    assert len(behind.at) <= 1
    if (
        not edits and not nested and most // 2 + 92 <= usual < most + 184
    ):  # of sizes unlike the usual a part is followed
        assert found.at.tolist() == walked


# --- blanks that do not fit -------------------------------------------------------------------------


_BLANK = (int(Magic.BLANK) & 0xFFFFFFFF).to_bytes(4, "big")


def _put(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize("window", [4096, 4 << 20])
@pytest.mark.parametrize("room", [0, 32])
@pytest.mark.parametrize("size", [b"", bytes(4)])
def test_a_record_that_became_a_blank_hides_nothing_behind_it(size: bytes, room: int, window: int) -> None:
    sound = events(log())
    number = len(sound) // 2
    victim, after = sound[number][0], sound[number + 1][0]
    found = events(_put(log(), victim + 4 - len(size), size + _BLANK + bytes(room)), window=window)
    assert found == [*sound[:number], (victim, "gap", after, GapKind.MAGIC, True), *sound[number + 1 :]]


def test_a_blank_of_another_size_ends_the_file_where_nothing_sound_follows() -> None:
    sound = events(log())
    end = len(log()) - 4096
    blank = (4000).to_bytes(4, "big") + _BLANK
    assert events(_put(log(), end, blank)) == [e for e in sound if e[0] < end] + [(end, "blank", 4000)]
    last = sound[-2][0]
    found = events(_put(log(), last + 4, _BLANK))
    assert found[-2][:2] == (last, "gap"), "its PHYSICALOFFSET is its place"
