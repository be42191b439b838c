"""Records as columns against the reference, for batches no golden directory holds."""

from __future__ import annotations

import gzip

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import DecodeError
from formats.kafka.record_batch import Codec
from rmqctl.files.local import BytesSource
from rmqctl.kafka.log import reference
from rmqctl.kafka.log.codecs import inflate
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.log.scan import Extent, scan
from tests.kafka.batches import batch, message, record

COMPRESS = {
    Codec.NONE: bytes,
    Codec.GZIP: gzip.compress,
    Codec.SNAPPY: lambda data: pa.Codec("snappy").compress(data, asbytes=True),
    Codec.LZ4: lz4.frame.compress,
    Codec.ZSTD: zstandard.compress,
}


def decoded(data: bytes) -> list[Records]:
    return [group for block in scan(BytesSource(data), Extent("x")) for group in records_of(block)]


def rows(groups: list[Records]) -> list[reference.Record]:
    return [
        reference.Record(
            int(g.offset[i]), int(g.timestamp[i]), int(g.sequence[i]), g.key(i), g.value(i), tuple(g.headers_of(i))
        )
        for g in groups
        for i in range(len(g))
    ]


optional = st.none() | st.binary(max_size=300)
records = st.lists(
    st.tuples(
        optional,
        optional,
        st.integers(-(1 << 54), 1 << 54),
        st.lists(st.tuples(st.binary(max_size=9), optional), max_size=3),
    ),
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(records, st.sampled_from(list(Codec)), st.booleans()), min_size=1, max_size=40))
def test_random_batches(
    made: list[tuple[list[tuple[bytes | None, bytes | None, int, list[tuple[bytes, bytes | None]]]], Codec, bool]],
) -> None:
    data, wanted = b"", []
    for number, (items, codec, stamped) in enumerate(made):
        parts = [record(i, *item) for i, item in enumerate(items)]
        payload = COMPRESS[codec](b"".join(parts)) if parts else b""
        fields = {"attributes": codec | (8 if stamped else 0), "base_sequence": 2147483640, "producer_id": 1}
        one = batch(number * 100, parts, payload, **fields)
        data += one
        wanted += list(reference.records_of_batch(one))
    assert len(wanted) == sum(len(items) for items, _, _ in made)
    assert rows(decoded(data)) == wanted


def test_a_record_per_batch_and_many_in_one() -> None:
    single = b"".join(batch(i, [record(0, b"k", b"v%d" % i)]) for i in range(5000))
    many = batch(5000, [record(i, None, b"x" * (i % 300), i) for i in range(9000)])
    found = rows(decoded(single + many))
    assert [r.offset for r in found] == list(range(14000))
    assert found[4999].value == b"v4999"
    assert found[-1].value == b"x" * (8999 % 300)


@pytest.mark.parametrize(
    ("change", "kept", "says"),
    [
        ({"records_count": 4}, 3, "4 records are stated"),
        ({"records_count": 2}, 2, "bytes are left after the last"),
        ({"records_count": -1}, 0, "states -1 records"),
        ({"records_count": 1 << 30}, 3, "are stated, but the bytes end"),
        ({"attributes": 5}, 0, "codec 5 is unknown"),
        ({"attributes": 1}, 0, "gzip"),
        ({"attributes": 4}, 0, "zstd"),
    ],
)
def test_a_batch_that_does_not_add_up(change: dict[str, int], kept: int, says: str) -> None:
    three = [record(i, b"k", b"v") for i in range(3)]
    (group,) = decoded(batch(0, three) + batch(3, three, **change) + batch(6, three))
    assert group.batch.tolist() == [0] * 3 + [1] * kept + [2] * 3
    assert list(group.failures) == [1]
    assert says in str(group.failures[1])


@pytest.mark.parametrize("at", range(16))
def test_damage_inside_a_record_keeps_those_before(at: int) -> None:
    one = record(1, b"key", b"value", 5, [(b"h", b"v")])
    for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
        broken = one[:at] + bytes([byte]) + one[at + 1 :]
        data = batch(0, [record(0, b"a", b"b"), broken, record(2, b"c", b"d")])
        groups = decoded(data * 40)
        want = []
        try:
            for found in reference.records_of_batch(data):
                want += [found]
        except DecodeError:
            assert len(groups[0].failures) == 40
        else:
            assert not groups[0].failures
        assert rows(groups) == want * 40


def test_numbers_longer_than_8_bytes_are_read() -> None:
    data = batch(0, [record(0, b"k", b"v", -(1 << 62)), record(1, b"k", b"v", 1 << 62)])
    found = rows(decoded(data))
    assert [r.timestamp - 1700000000000 for r in found] == [-(1 << 62), 1 << 62]


@pytest.mark.parametrize("codec", [c for c in Codec if c])
def test_a_bomb_is_not_inflated(codec: Codec) -> None:
    bomb = COMPRESS[codec](bytes(3 << 20))
    assert len(inflate(codec, bomb)) == 3 << 20
    with pytest.raises(DecodeError, match="inflates to more"):
        inflate(codec, bomb, limit=1 << 20)
    data = batch(0, [record(0, None, None)], bomb, attributes=codec)
    (block,) = scan(BytesSource(data), Extent("x"))
    (group,) = records_of(block, limit=1 << 20)
    assert "inflates to more" in str(group.failures[0])


@pytest.mark.parametrize("codec", [c for c in Codec if c])
def test_a_cut_stream_is_an_error(codec: Codec) -> None:
    whole = COMPRESS[codec](bytes(range(256)) * 40)
    for size in range(1, len(whole)):
        with pytest.raises(DecodeError):
            inflate(codec, whole[:size])


def test_lz4_of_magic_0_has_another_header_checksum() -> None:
    inner = message(4, b"k", b"v", 0)
    frame = lz4.frame.compress(inner)
    wrong = frame[:14] + bytes([frame[14] ^ 0xFF]) + frame[15:]
    assert inflate(Codec.LZ4, wrong, 0) == inner
    with pytest.raises(DecodeError):
        inflate(Codec.LZ4, wrong, 1)


def test_snappy_in_frames() -> None:
    part = pa.Codec("snappy").compress(b"abc" * 100, asbytes=True)
    framed = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + (len(part).to_bytes(4, "big") + part) * 3
    assert inflate(Codec.SNAPPY, framed) == b"abc" * 300


@pytest.mark.parametrize(
    ("wrapper", "inner", "offsets"),
    [
        (12, (0, 1, 2), [10, 11, 12]),  # relative to the last one
        (12, (0, 2), [10, 12]),  # gaps of compaction
        (0, (0, 1, 2), [0, 1, 2]),  # some librdkafka
    ],
)
def test_wrappers_of_magic_1(wrapper: int, inner: tuple[int, ...], offsets: list[int]) -> None:
    inside = b"".join(message(i, b"k", b"v", timestamp=50 + i) for i in inner)
    data = message(wrapper, None, gzip.compress(inside + message(9, b"k", b"v")[:20]), attributes=1, timestamp=99)
    (block,) = scan(BytesSource(data), Extent("x"))
    assert block["base_offset"].tolist() == [offsets[0]]
    assert block["records_count"].tolist() == [len(inner)]
    found = rows(decoded(data))
    assert [r.offset for r in found] == offsets
    assert [r.timestamp for r in found] == [50 + i for i in inner]
    stamped = message(wrapper, None, gzip.compress(inside), attributes=9, timestamp=99)
    assert {r.timestamp for r in rows(decoded(stamped))} == {99}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "without a value"),
        (gzip.compress(b""), "without messages"),
        (gzip.compress(message(0, None, gzip.compress(message(0, b"", b"")), attributes=1)), "inside a compressed"),
        (gzip.compress(message(30, b"k", b"v")), "lower than the last"),
        (b"junk", "gzip"),
    ],
    ids=["null", "empty", "wrapped", "offset", "junk"],
)
def test_wrappers_that_cannot_be_read(value: bytes | None, says: str) -> None:
    data = message(20, None, value, attributes=1)
    (block,) = scan(BytesSource(data), Extent("x"))
    assert block["base_offset"].tolist() == [20]
    assert block["records_count"].tolist() == [-1]
    (group,) = records_of(block)
    assert says in str(group.failures[0])


def test_taking_records_keeps_their_headers() -> None:
    data = batch(0, [record(i, b"k", b"v", 0, [(b"n%d" % i, b"x")] * i) for i in range(5)])
    (group,) = decoded(data)
    some = group.take(np.array([1, 3, 4]))
    assert [some.headers_of(i) for i in range(3)] == [[(b"n%d" % i, b"x")] * i for i in (1, 3, 4)]
