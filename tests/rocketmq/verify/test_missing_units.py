"""Records without a right unit in columns, against a list of them."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.rocketmq.queues.files import UNIT
from rmqctl.rocketmq.verify.missing import Key, Missing, MissingUnits

KEYS = [("A", 0), ("A", 1), ("B", 0)]
offsets = st.integers(0, 40)
sizes = st.integers(0, 2)  # 0: an empty unit
records = st.lists(
    st.tuples(st.sampled_from(KEYS), offsets, st.integers(0, 1 << 50), sizes, st.integers()), max_size=30
)


def listed(rows: list[tuple[Key, int, int, int, int]]) -> list[Missing]:
    found = []
    for key, offset, physical, size, code in rows:
        units = ((physical ^ 1, size, 7), (physical, 100, code & 0xFFFF)) if size else (None, None)
        found.append(Missing(key, offset, physical, physical + 100, *units))
    return found


def in_columns(rows: list[tuple[Key, int, int, int, int]]) -> MissingUnits:
    found = MissingUnits()
    keys = sorted({row[0] for row in rows}, reverse=True)
    units = np.array([(row[2] ^ 1, row[3], 7) for row in rows], UNIT)
    offset, physical = (np.array([row[at] for row in rows], np.int64) for at in (1, 2))
    codes = np.array([row[4] & 0xFFFF for row in rows], np.int64)
    numbers = np.array([keys.index(row[0]) for row in rows], np.int64)
    found.add_wrong(keys, numbers, offset, physical, np.full(len(rows), 100), units, codes)
    return found


@given(st.lists(records, max_size=4))
def test_columns_say_what_a_list_says(splits: list[list[tuple[Key, int, int, int, int]]]) -> None:
    """Joined split by split, chosen, by queue and by offset."""
    wanted = [one for rows in splits for one in listed(rows)]
    found = MissingUnits()
    for rows in splits:
        found.join(pickle.loads(pickle.dumps(in_columns(rows))))
    assert [*found] == wanted
    assert found.offset.tolist() == [one.offset for one in wanted]
    assert found.end.tolist() == [one.end for one in wanted]
    assert found.is_wrong.tolist() == [one.actual is not None for one in wanted]
    even = found.where(found.physical % 2 == 0)
    assert [*even] == [one for one in wanted if one.physical % 2 == 0]
    assert [*even.of_queues(lambda key: key[0] == "A")] == [one for one in [*even] if one.key[0] == "A"]
    by_queue = found.by_queue()
    assert {key: [*own] for key, own in by_queue.items()} == {
        key: [one for one in wanted if one.key == key] for key in {one.key for one in wanted}
    }
    assert [*found.by_offset()] == sorted(wanted, key=lambda one: one.offset)
