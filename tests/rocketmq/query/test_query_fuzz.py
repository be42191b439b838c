"""Lookups and their explanations on stores with bytes of any kind: an answer, never an exception, never without end."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import golden as stores
from rmqctl.explain import Trace, all_misses
from rmqctl.rocketmq.query.explain import conclude_id, explain_key
from rmqctl.rocketmq.query.ids import by_id, parse_message_id
from rmqctl.rocketmq.query.key import KeyQuery, by_key
from rmqctl.rocketmq.store.locate import open_store_at

NAME = "4.9.8-crash"
IDS = {miss.id for miss in all_misses()}


def spoil(root: Path, chance: random.Random) -> None:
    """Flip, zero, fill, cut or delete in some files of the index, the log and the queues."""
    areas = [
        sorted(p for p in (root / area).rglob("*") if p.is_file()) for area in ("index", "commitlog", "consumequeue")
    ]
    for _ in range(chance.randint(1, 6)):
        path = chance.choice(chance.choice(areas))
        if not path.exists() or not path.stat().st_size:
            continue
        at = chance.choice([0, chance.randrange(60), chance.randrange(path.stat().st_size)])
        match chance.randrange(12):
            case 0:
                path.unlink()
            case 1:
                with open(path, "r+b") as file:
                    file.truncate(at)
            case _:
                with open(path, "r+b") as file:
                    file.seek(at)
                    size = chance.choice([1, 4, 8, 40, 400, 5000])
                    file.write(chance.choice([bytes(size), b"\xff" * size, chance.randbytes(size)]))


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 300))])
def test_always_an_answer(seed: int, golden: Callable[[str], Path]) -> None:
    chance, root = random.Random(seed), golden(NAME)
    spoil(root, chance)
    store = open_store_at(str(root))
    records = [t for t in stores.truth(NAME) if t["kind"] == "msg" and t["keys"]]
    for record in chance.sample(records, 3):
        begin = chance.choice([0, record["storeTimestamp"] - 500])
        key = record["keys"].split(" ")[0]
        for query in (
            KeyQuery(record["topic"], key, begin=begin),
            KeyQuery(record["topic"], record["uniqKey"] or key, unique=True, end=record["storeTimestamp"] + 5000),
        ):
            trace = Trace()
            assert explain_key(store, query, by_key(store, query, trace), trace).id in IDS
        for text in (record["offsetMsgId"], record["uniqKey"]):
            wanted, trace = parse_message_id(text), Trace()
            assert conclude_id(store, wanted, by_id(store, wanted, (), trace), trace).id in IDS
