"""The books of a conversion: a message that is left out or changed is missed, on damaged stores nothing else is."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.convert import to_kafka
from rmqctl.files.new_files import MARK
from rmqctl.rocketmq.salvage.salvage import Writer
from tests.conftest import Rmqctl
from tests.repair.test_copied import misplace, spoil

ADD, PUT = to_kafka._Partition.add, Writer.put


def add_but_one(part: Any, record: Any) -> None:
    if not (part.queue.topic == "LabOrders" and record.offset == 7):
        ADD(part, record)


def add_another(part: Any, record: Any) -> None:
    is_one = part.queue.topic == "LabOrders" and record.offset == 7
    ADD(part, record._replace(value=b"x") if is_one else record)


@pytest.mark.parametrize(("wrong", "said"), [(add_but_one, "is not in the result"), (add_another, "was in no source")])
def test_what_kafka_lacks_is_missed(
    wrong: Any, said: str, rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(to_kafka._Partition, "add", wrong)
    done = rmqctl("convert", golden.pristine("4.9.8-clean"), tmp_path / "new", "--small")
    assert done.exit_code == 13 and said in done.stderr and "LabOrders/0@7" in done.stderr
    assert "do not balance" in (tmp_path / "new" / MARK).read_text()


def test_what_rocketmq_lacks_is_missed(rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(writer: Writer, queue: int, offset: int, data: bytes, time: int) -> None:
        if offset != 11:
            PUT(writer, queue, offset, data, time)

    monkeypatch.setattr(Writer, "put", put)
    done = rmqctl("convert", golden.pristine("4.3.1-clean"), tmp_path / "new", "--small")
    assert done.exit_code == 13 and "@11 is not in the result" in done.stderr
    assert "do not balance" in (tmp_path / "new" / MARK).read_text()


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.slow] if n else []) for n in range(16)])
@pytest.mark.parametrize("name", ["5.5.0-clean", "4.3.1-crash"])
def test_conversions_of_damaged_stores_balance(name: str, seed: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, draw = golden.unpack(name, tmp_path), random.Random(seed)
    (spoil if name == "5.5.0-clean" else misplace)(root, draw)
    done = rmqctl("convert", root, tmp_path / "new", "--small", "--offsets-partitions", 2, "-o", "json")
    assert done.exit_code in (0, 1), done.stderr
    books = json.loads(done.stdout)["summary"]["books"]
    assert books["balances"] and books["kept"] > 500
