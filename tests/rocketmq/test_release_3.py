"""Stores of RocketMQ 3.2.6 (com.alibaba): what its decoder, its store and its starts on damaged copies said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.geometry import with_new_names
from rmqctl.rocketmq.store.locate import open_store
from tests.conftest import Rmqctl

RELEASE = Release(3, 2, 6)
STORES = golden.OLD_STORES
VARIANTS = golden.recovery_oracle("3.2.6")["variants"]
FEW = {
    "crash/none", "clean/none", "crash/totalsize-plus-64-very-last-record", "crash/totalsize-huge-last-file",
    "clean/totalsize-negative-last-file", "clean/totalsize-zero-last-file", "crash/queueoffset-plus-5-last-file",
    "clean/body-flip-last-file", "crash/cq-all-deleted", "crash/cq-queue-id-no-number", "clean/delete-commitlog-dir",
    "clean/other-exit+cq-all-deleted", "crash/extra-file-right-size",
}  # fmt: skip
"""Variants that are judged in every run."""


def store_at(root: Path, name: str) -> Any:
    return open_store(LocalTree(root), settings=with_new_names(golden.broker_conf(name)))


@pytest.mark.parametrize("name", STORES)
def test_every_record_is_that_of_the_decoder(name: str, rmqctl: Rmqctl) -> None:
    done = rmqctl("dump", golden.pristine(name), "--body", "-o", "jsonl")
    rows = [row for line in done.stdout.splitlines() if (row := json.loads(line))["kind"] == "message"]
    told = [row for row in golden.truth(name) if row["kind"] == "msg"]
    fields = {
        "physical_offset": "commitLogOffset", "size": "storeSize", "topic": "topic", "queue_id": "queueId", "queue_offset": "queueOffset",
        "store_timestamp": "storeTimestamp", "born_timestamp": "bornTimestamp", "flag": "flag", "reconsume_times": "reconsumeTimes",
        "prepared_transaction_offset": "preparedTransactionOffset", "message_id": "offsetMsgId", "properties": "properties",
    }  # fmt: skip
    assert [{ours: row[ours] for ours in fields} for row in rows] == [
        {ours: row[theirs] for ours, theirs in fields.items()} for row in told
    ]
    assert len({row["topic"] for row in rows}) > 5


@pytest.mark.parametrize("name", STORES)
def test_nothing_is_wrong_with_it(name: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    sound = [("verify",), ("repair",), ("rebuild", "--queues")]
    sound += [("rebuild", "--index")] * name.endswith(
        "clean"
    )  # the header of the last index file is behind after a kill
    for words in sound:
        done = rmqctl(*words, root, "--broker-conf", golden.write_broker_conf(name, tmp_path / "broker.conf"))
        assert done.exit_code == 0, done.stdout
    found = json.loads(rmqctl("info", root, "-o", "json").stdout)
    assert found["releases"] == ["3.2.6", "3.2.6"]


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize(
    ("left", "releases"), [(("lock",), ["4.4.0", "4.9.8"]), (("lock", "abort.bak", "timerwheel"), ["5.0.0", "5.3.4"])]
)
def test_a_later_broker_that_took_it_over_counts(
    left: tuple[str, ...], releases: list[str], name: str, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """Topics and groups stay as 3.2.6 has written them until one changes."""
    root = golden.unpack(name, tmp_path)
    for file in left:
        (root / file).write_bytes(b"lock" if file == "lock" else b"")
    assert json.loads(rmqctl("info", root, "-o", "json").stdout)["releases"] == releases


@pytest.mark.parametrize("name", STORES)
def test_queues_are_those_of_the_store(name: str, rmqctl: Rmqctl) -> None:
    """After a kill the broker has dispatched the last records again before it answers."""
    told = golden.oracle(name)["store"]
    found = recover(store_at(golden.pristine(name), name), RELEASE)
    assert found.end == told["afterStart"]["maxPhy"]
    ranges = {f"{topic}/{queue}": [low, high] for topic, queue, low, high in found.ranges()}
    assert ranges == {key: ends for key, ends in told["afterStart"]["queues"].items() if ends[1]}
    assert sum(map(len, told["readAll"].values())) == sum(high - low for low, high in ranges.values())


@pytest.mark.parametrize(
    "variant", [v if v in FEW else pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS]
)  # fmt: skip
def test_a_start_is_that_of_the_store(variant: str, tmp_path: Path) -> None:
    case = VARIANTS[variant]
    root, told = golden.unpack(case["base"], tmp_path), case["result"]
    damage.apply(case["recipe"], root)
    found = recover(store_at(root, case["base"]), RELEASE)
    assert found.starts == (told["outcome"] == "started"), found.error
    if found.starts:
        after = told["afterStart"]
        assert found.end == after["maxPhy"]
        ranges = {f"{topic}/{queue}": [low, high] for topic, queue, low, high in found.ranges()}
        assert ranges == {key: ends for key, ends in after["queues"].items() if ends[1]}
        assert {*found.deleted, *found.index_deleted} == {*told["files"]["removed"]} - {"abort"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("3.5.8", "3.5.8 is no release of RocketMQ that is known here; known here are 3.2.6 and 4.4 to 5.5.1."),
        ("3.2.2", "3.2.2 is no release of RocketMQ that is known here; of that series only 3.2.6 is known here."),
        ("3.2", None),
    ],
)
def test_other_releases_of_that_time_are_refused(given: str, said: str | None, rmqctl: Rmqctl) -> None:
    done = rmqctl("recover", golden.pristine("3.2.6-clean"), "--as-release", given)
    assert done.exit_code == (0 if said is None else 2)
    assert said is None or said in done.stderr
