"""Randomly damaged golden stores, repaired in memory and judged: what a sound record loses, what brokers would do.

``python -m tests.rocketmq.repair.judged RELEASE FIRST LAST`` judges seeds and prints what is wrong, and the totals.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fixtures import damage, golden
from fixtures.worse_damage import WorseDamager
from rmqctl.release import Release
from rmqctl.rocketmq.log.reader import LogReader
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, overlaid, plan_repair
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.store.locate import open_store_at

JUDGES = (Release(4, 9, 8), Release(5, 5, 0))


@dataclass
class Verdict:
    """One repair.

    Attributes:
        sound: messages whose own bytes were sound after the damage; lost: those of them that are not there afterwards.
        unserved: sound messages whose queue unit does not lead to them.
        refused: what brokers would refuse or cut, or what the plan leaves.
        destroyed, healed: messages with damaged bytes, and those of them that are as they were.
    """

    recipe: Any
    sound: int = 0
    lost: list[int] = field(default_factory=list)
    unserved: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    destroyed: int = 0
    healed: int = 0

    @property
    def is_good(self) -> bool:
        """Nothing sound was lost, and brokers serve it."""
        return not (self.lost or self.unserved or self.refused)


class Bench:
    """Working copies of the two stores of a release."""

    def __init__(self, release: str, room: Path) -> None:
        self.names = (f"{release}-clean", f"{release}-crash")
        self.roots = {name: golden.unpack(name, room) for name in self.names}
        self.damagers = {name: WorseDamager(name) for name in self.names}
        self.truths = {name: [t for t in golden.truth(name) if t["kind"] == "msg"] for name in self.names}

    def judge(self, seed: int) -> Verdict:
        """Damage, plan and judge; the copy is as before afterwards."""
        name = self.names[seed % 2]
        root, recipe = self.roots[name], self.damagers[name].recipe(seed)
        conf = golden.write_broker_conf(name, root.parent / f"{name}.conf")
        damage.apply(recipe, root)
        try:
            store = open_store_at(str(root), broker_conf=str(conf))
            verdict = Verdict(recipe)
            before = self._intact(name, store)
            with tempfile.TemporaryDirectory() as built:
                repair = plan_repair(store, RepairOptions(), Path(built))
                after = overlaid(store, repair.plan.edits)
                self._compare(name, before, after, verdict)
                verdict.refused = refusals(repair, after)
            return verdict
        finally:
            damage.undo(recipe, golden.pristine(name), root)

    def _intact(self, name: str, store: RocketMQStore) -> list[bool]:
        """Which messages lie in their place byte for byte."""
        with LogReader(store.log_files) as log:
            found = (log.read(t["commitLogOffset"], t["storeSize"]) for t in self.truths[name])
            hashes = (hashlib.sha256(raw).hexdigest() for raw in found)
            return [h == t["recordSha256"] for h, t in zip(hashes, self.truths[name], strict=True)]

    def _compare(self, name: str, before: list[bool], store: RocketMQStore, verdict: Verdict) -> None:
        after = self._intact(name, store)
        verdict.sound, verdict.destroyed = sum(before), before.count(False)
        verdict.healed = sum(b and not a for a, b in zip(before, after, strict=True))
        for truth, was, is_there in zip(self.truths[name], before, after, strict=True):
            if was and not is_there:
                verdict.lost.append(truth["commitLogOffset"])
            elif was and name.endswith("clean") and not _is_served(store, truth):
                verdict.unserved.append(truth["commitLogOffset"])


def _is_served(store: RocketMQStore, truth: Any) -> bool:
    """Whether the queue unit of a message leads to it; batches have queues of their own."""
    if truth["topic"] == "LabBatchCq" or truth["sysFlag"] & 0xC in (0x4, 0xC):
        return True
    directory = f"consumequeue/{truth['topic']}/{truth['queueId']}"
    size, at = 1000, truth["queueOffset"] * 20
    path = f"{directory}/{at // size * size:020d}"
    if store.tree.stat(path) is None:
        return False
    source = store.tree.open(path)
    try:
        physical, length = struct.unpack(">qi", source.read_at(at % size, 12))
    finally:
        source.close()
    return bool((physical, length) == (truth["commitLogOffset"], truth["storeSize"]))


def refusals(repair: Repair, after: RocketMQStore) -> list[str]:
    """What the plan leaves wrong, and what brokers would refuse or cut."""
    found = [repair.refusal] if repair.refusal else []
    for release in JUDGES:
        start = recover(after, release)
        if not start.starts:
            found.append(f"{release} does not start: {start.error}")
        elif start.lost:
            found.append(f"{release} cuts {len(start.lost)} messages from {start.lost[0].physical} on")
    return found


def main(release: str, first: int, last: int) -> None:
    """Judge seeds and print what is wrong."""
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as room:
        bench = Bench(release, Path(room))
        for seed in range(first, last):
            try:
                verdict = bench.judge(seed)
            except Exception as error:  # noqa: BLE001 -- the other seeds go on
                print(f"{seed}: {type(error).__name__}: {error}", flush=True)
                totals["failed"] += 1
                continue
            totals.update(sound=verdict.sound, destroyed=verdict.destroyed, healed=verdict.healed)
            totals.update(repairs=1, good=int(verdict.is_good), lost=len(verdict.lost), unserved=len(verdict.unserved))
            if not verdict.is_good:
                edits = [
                    {k: v if len(str(v)) < 60 else f"{str(v)[:60]}.." for k, v in e.items()} for e in verdict.recipe
                ]
                told = f"lost {verdict.lost[:3]} unserved {len(verdict.unserved)} {verdict.unserved[:3]}"
                print(f"{seed}: {told} {verdict.refused} {edits}", flush=True)
    print(release, dict(totals), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
