"""Properties of many records at once, as of each one alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from formats.rocketmq.properties import split_properties
from rmqctl.rocketmq.log import columns
from rmqctl.rocketmq.log.columns import Pairs, Texts, pairs_of

PIECES = [b"KEYS", b"TAGS", b"k", b"\x01", b"\x02", b"\x01v\x02", b"", b"\x00"]


def texts_of(parts: list[bytes], between: bytes = b"#") -> Texts:
    """The texts cut out of a window in which something stands between them."""
    data = np.frombuffer(between + between.join(parts) + between, np.uint8)
    size = np.array([len(p) for p in parts], np.int64)
    return Texts.of(data, np.cumsum(size + len(between)) - size, size)


def rows(pairs: Pairs, count: int) -> list[list[tuple[bytes, bytes]]]:
    found: list[list[tuple[bytes, bytes]]] = [[] for _ in range(count)]
    for i, owner in enumerate(pairs.owner.tolist()):
        at, size = int(pairs.name_at[i]), int(pairs.name_size[i])
        found[owner].append((pairs.data[at : at + size].tobytes(), pairs.value(i)))
    return found


def check(parts: list[bytes]) -> None:
    texts = texts_of(parts)
    assert [texts[i] for i in range(len(parts))] == parts
    pairs, expected = pairs_of(texts), [split_properties(part) for part in parts]
    assert rows(pairs, len(parts)) == expected
    for name in (b"KEYS", b"TAGS", b"k", b"none of these"):
        named = pairs.named(name)
        values = {int(o): named.value(i) for i, o in enumerate(named.owner)}
        assert values == {i: dict(e)[name] for i, e in enumerate(expected) if name in dict(e)}
        assert named.owner.tolist() == sorted(set(named.owner.tolist()))


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=9).map(b"".join), min_size=1, max_size=30))
def test_texts_of_any_kind(parts: list[bytes]) -> None:
    check(parts)


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map(b"".join),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from(b"\x00\x01\x02\x03kT")), max_size=3),
)
def test_texts_that_look_alike_but_for_a_few_bytes(text: bytes, changes: list[tuple[int, int, int]]) -> None:
    parts = [bytearray(text) for _ in range(20)]
    for row, at, byte in changes:
        if text:
            parts[row % len(parts)][at % len(text)] = byte
    check([bytes(p) for p in parts])


def test_one_producers_texts_are_split_once() -> None:
    parts = [b"KEYS\x01k%03d\x02TAGS\x01a\x02KEYS\x01later%02d" % (i, i) for i in range(columns._MANY)]
    check(parts)
    pairs = columns._pairs_alike(texts_of(parts))
    assert pairs is not None
    assert pairs.named(b"KEYS").value(3) == b"later03"
    assert columns._pairs_alike(texts_of([*parts, b"x"])) is None
