"""Randomly damaged stores, repaired in memory and judged: what a sound record loses, what brokers would do.

``python -m tests.rocketmq.repair.judged RELEASE FIRST LAST [produced]`` judges seeds, on golden stores or on those that
`rmqctl produce` makes, and prints what is wrong, and the totals.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from commands import cli
from fixtures import damage, golden
from fixtures.random_damage import Subject
from fixtures.worse_damage import WorseDamager
from rmqctl.release import Release
from rmqctl.rocketmq.log.record import LogReader, open_body
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, overlaid, plan_repair
from rmqctl.rocketmq.store.files import StoreFiles
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


def seeds(default: str) -> range:
    """Those that ``RMQCTL_SEEDS`` asks for: ``LAST`` or ``FIRST-LAST``, without the last."""
    first, _, last = os.environ.get("RMQCTL_SEEDS", default).rpartition("-")
    return range(int(first or 0), int(last))


class Bench:
    """Working copies of two stores of a release, one stopped cleanly and one killed.

    Args:
        make: makes a store by the name ``RELEASE-clean`` or ``RELEASE-crash``; default: the golden one.
    """

    def __init__(self, release: str, room: Path, make: Callable[[str], Subject] = Subject.golden) -> None:
        self.damagers = [WorseDamager(make(f"{release}-{state}")) for state in ("clean", "crash")]
        self.room = room
        for damager in self.damagers:
            golden.copy_tree(damager.root, room / damager.name)

    def judge(self, seed: int) -> Verdict:
        """Damage, plan and judge; the copy is as before afterwards."""
        damager = self.damagers[seed % 2]
        return self.judge_recipe(damager, damager.recipe(seed))

    def judge_recipe(self, damager: WorseDamager, recipe: Any) -> Verdict:
        """The same of a damage that is given."""
        root = self.room / damager.name
        conf = self.room / f"{damager.name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in damager.subject.settings.items()), "utf-8")
        damage.apply(recipe, root)
        try:
            store = open_store_at(str(root), broker_conf=str(conf))
            verdict = Verdict(recipe)
            before = _intact(damager, store)
            with tempfile.TemporaryDirectory() as built:
                repair = plan_repair(store, RepairOptions(), Path(built))
                after = overlaid(store, repair.plan.edits)
                _compare(damager, before, after, verdict)
                verdict.refused = refusals(repair, after)
            return verdict
        finally:
            damage.undo(recipe, damager.root, root)


def produced(room: Path) -> Callable[[str], Subject]:
    """Makes stores with `rmqctl produce`: plain, compressed, delayed and transactional messages, with keys and tags."""

    def make(name: str) -> Subject:
        release, _, state = name.rpartition("-")
        root = room / "sound" / f"produced-{name}"
        for number, options in enumerate(_RUNS):
            is_last = number == len(_RUNS) - 1
            words = [*options.split(), "--as-release", release, "--seed", number, "--small" if not number else "-q"]
            words += ["--crash"] if is_last and state == "crash" else []
            done = CliRunner().invoke(cli, ["produce", str(root), *map(str, words)], standalone_mode=False)
            assert done.exception is None, done.exception
        return Subject(root.name, root, _records(root), _SMALL)

    return make


_RUNS = (
    "--topic Made{0..2} --count 600 --key k-{n} --tag A=2,B=1 --size 1-700 --start-time 2026-11-20T08:00:00Z --interval 20",
    "--topic Packed --count 60 --key p-{n} --size 2K-9K --compress --start-time 2026-11-20T09:00:00Z --interval 20",
    "--topic Sent --count 60 --transaction commit --key t-{n} --start-time 2026-11-20T10:00:00Z --interval 20",
    "--topic Late --count 40 --delay-level 3 --start-time 2026-11-20T11:00:00Z --interval 20",
    "--topic Made{0..2} --count 300 --key z-{n} --size 1-700 --start-time 2026-11-20T12:00:00Z --interval 20",
)
_SMALL = {
    "mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "500", "maxIndexNum": "1000",
}  # fmt: skip


def _records(root: Path) -> list[dict[str, Any]]:
    """The messages of a sound store, as in the truth of a golden store."""
    found = []
    with LogReader(open_store_at(str(root)).log_files) as log:
        for file in log.files:
            physical = file.base
            while (raw := log.record(physical)) is not None and (fields := log.fields(physical)) is not None:
                found.append(
                    {
                        "commitLogOffset": physical, "storeSize": len(raw), "storeTimestamp": fields["store_timestamp"],
                        "topic": fields["topic"].decode(), "queueId": fields["queue_id"],
                        "queueOffset": fields["queue_offset"], "sysFlag": fields["sys_flag"],
                        "recordSha256": hashlib.sha256(raw).hexdigest(),
                        "bodySha256": hashlib.sha256(open_body(fields["body"], fields["sys_flag"]).data or b"").hexdigest(),
                    }
                )  # fmt: skip
                physical += len(raw)
    return found


def _intact(damager: WorseDamager, store: StoreFiles) -> list[bool]:
    """Which messages lie in their place byte for byte."""
    with LogReader(store.log_files) as log:
        found = (log.read(t["commitLogOffset"], t["storeSize"]) for t in damager.records)
        hashes = (hashlib.sha256(raw).hexdigest() for raw in found)
        return [h == t["recordSha256"] for h, t in zip(hashes, damager.records, strict=True)]


def _compare(damager: WorseDamager, before: list[bool], store: StoreFiles, verdict: Verdict) -> None:
    after = _intact(damager, store)
    verdict.sound, verdict.destroyed = sum(before), before.count(False)
    verdict.healed = sum(b and not a for a, b in zip(before, after, strict=True))
    for truth, was, is_there in zip(damager.records, before, after, strict=True):
        if was and not is_there:
            verdict.lost.append(truth["commitLogOffset"])
        elif was and damager.name.endswith("clean") and not _is_served(store, truth, damager.queue_size):
            verdict.unserved.append(truth["commitLogOffset"])


def _is_served(store: StoreFiles, truth: Any, size: int) -> bool:
    """Whether the queue unit of a message leads to it; batches have queues of their own."""
    if truth["topic"] == "LabBatchCq" or truth["sysFlag"] & 0xC in (0x4, 0xC):
        return True
    directory = f"consumequeue/{truth['topic']}/{truth['queueId']}"
    at = truth["queueOffset"] * 20
    path = f"{directory}/{at // size * size:020d}"
    if store.tree.stat(path) is None:
        return False
    source = store.tree.open(path)
    try:
        physical, length = struct.unpack(">qi", source.read_at(at % size, 12))
    finally:
        source.close()
    return bool((physical, length) == (truth["commitLogOffset"], truth["storeSize"]))


def refusals(repair: Repair, after: StoreFiles) -> list[str]:
    """What the plan leaves wrong, and what brokers would refuse or cut."""
    found = [repair.refusal] if repair.refusal else []
    for release in JUDGES:
        start = recover(after, release)
        if not start.starts:
            found.append(f"{release} does not start: {start.error}")
        elif start.lost:
            found.append(f"{release} cuts {len(start.lost)} messages from {start.lost[0].physical} on")
    return found


def main(release: str, first: int, last: int, is_produced: bool) -> None:
    """Judge seeds and print what is wrong."""
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as room:
        bench = Bench(release, Path(room), produced(Path(room)) if is_produced else Subject.golden)
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
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ["produced"])
