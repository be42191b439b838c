"""A plan ends with a start of a broker on its outcome: what that would refuse or cut is said, or mended another way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, overlaid, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at

BASE, BATCH = "5.5.0-clean", "LabBatchCq"


def older_topics(root: Path, *, named: bool) -> bytes:
    """topics.json without the batch topic, or with it as a plain one."""
    document = json.loads((root / "config/topics.json").read_text("utf-8"))
    if named:
        document["topicConfigTable"][BATCH].pop("attributes", None)
    else:
        del document["topicConfigTable"][BATCH]
    return json.dumps(document).encode()


def planned(root: Path, room: Path) -> Repair:
    conf = golden.write_broker_conf(BASE, room / "broker.conf")
    store = open_store_at(str(root), broker_conf=str(conf))
    repair = plan_repair(store, RepairOptions(), room)
    start = recover(overlaid(store, repair.plan.edits), Release(5, 5, 0))
    assert (start.starts, start.lost) == (True, []), start.error
    return repair


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("emptied", [False, True])
def test_topics_that_lack_a_batch_topic(named: bool, emptied: bool, tmp_path: Path) -> None:
    """Emptied with an older .bak, or itself older: 5.5.0 starts only if it knows that the queues are for batches."""
    root = golden.unpack(BASE, tmp_path)
    older = older_topics(root, named=named)
    (root / "config/topics.json").write_bytes(b"" if emptied else older)
    (root / "config/topics.json.bak").write_bytes(older)
    repair = planned(root, tmp_path)
    assert repair.refusal == ""
    step = next(s for s in repair.plan.steps if s.file == "config/topics.json")
    assert BATCH in step.what
    before, after = json.loads(older)["topicConfigTable"], None
    for edit in step.edits:
        after = getattr(edit, "content", None) or getattr(edit, "after", None) or after
    assert after is not None
    table = json.loads(after)["topicConfigTable"]
    assert table[BATCH]["attributes"]["queue.type"] == "BatchCQ"
    assert {name: table[name] for name in before if name != BATCH} == {n: before[n] for n in before if n != BATCH}


def test_a_start_that_fails_is_said(rmqctl: Callable[..., Result], tmp_path: Path) -> None:
    """Without the step that mends the topics, the plan says so and ends with 1."""
    root = golden.unpack(BASE, tmp_path)
    older = older_topics(root, named=False)
    (root / "config/topics.json").write_bytes(older)
    conf = golden.write_broker_conf(BASE, tmp_path / "broker.conf")
    result = rmqctl("repair", root, "--broker-conf", conf, "--skip", "queue.orphan", "-o", "json")
    assert result.exit_code == 1
    assert "would not start" in json.loads(result.stdout)["summary"]["refusal"]
    assert BATCH in json.loads(result.stdout)["summary"]["refusal"]
