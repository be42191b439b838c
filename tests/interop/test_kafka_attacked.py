"""Log directories with batches, segments and names in wrong places, repaired, under released brokers.

What they serve is what the plan says: no sound record is gone that no step names, none is another, and none is served
of another log, or of a transaction with another outcome, that was not served before.

``python -m tests.interop.test_kafka_attacked RELEASE FIRST LAST`` prints what is wrong with these seeds, and with
``many`` after it damages every partition of each directory, and counts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import golden
from rmqctl.opening import open_store
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Brokers, rounds
from tests.interop.kafka_produced_helpers import SETTINGS
from tests.interop.test_kafka_repaired import (
    ISOLATIONS,
    MACHINE_LASTS,
    Key,
    Rows,
    deleted_in,
    destroyed_in,
    original,
    rows_of,
    taken_back,
)
from tests.kafka.repair.attacked import attacked, attacked_at_once, store_of
from tests.repair.stores import state_of

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
STARTS = rounds(2, 50)
WRITTEN_BY = {"4.4.0": "4.3.1"}
"""Releases that no golden directory is of, and that whose directories they take over."""
_NAMED = re.compile(r"^(?P<topic>.+)-(?P<number>\d+)@(?P<first>\d+)(?:\.\.(?P<last>\d+))? #[0-9a-f]{8}$")


def seeds_of(release: str, first: int, last: int) -> list[int]:
    """Return the seeds whose directories a broker of a release starts on."""
    return [n for n in range(first, last) if store_of(n).startswith(WRITTEN_BY.get(release, release))]


def named_in(steps: Iterable[dict[str, object]]) -> set[Key]:
    """The records of the batches that steps give up."""
    found = set[Key]()
    for step in steps:
        for name in step.get("gives_up") or ():  # type: ignore[attr-defined]
            if one := _NAMED.match(name):
                last = int(one["last"] or one["first"])
                found |= {(one["topic"], int(one["number"]), n) for n in range(int(one["first"]), last + 1)}
    return found


def judge_seed(brokers: Brokers, seed: int, room: Path) -> list[str]:
    """Damage a directory, repair it, take that back, start a broker on what it was: what is not as it should be."""
    root, attack, name = attacked(seed, room)
    gone, state = destroyed_in(root, name) | deleted_in(root, name), state_of(root)
    before = {committed: rows_of(root, committed=committed) for committed in ISOLATIONS}
    repaired, plan = _repaired(root, state)
    try:
        if plan is None or "would not start" in plan["summary"]["refusal"] or "would cut" in plan["summary"]["refusal"]:
            return []  # the plan says so, and what is left is not sound
        left = {step["file"].partition("/")[0] for step in plan["left"] if step["id"] == "repair.books"}
        wrong = _served(brokers, repaired, name, gone | named_in(plan["steps"]), before, left)
        return [f"{seed} ({'; '.join(attack.done)}): {text}" for text in wrong]
    finally:
        shutil.rmtree(repaired)
        shutil.rmtree(root)


def _repaired(root: Path, state: dict[str, object]) -> tuple[Path, dict[str, Any] | None]:
    """Repair a directory and take that back: what it was, and the plan, or None where there is none."""
    run = CliRunner()
    made = run.invoke(cli, ["repair", str(root), "--apply", "--yes", "-o", "json"])
    repaired = taken_back(root, state, lambda *words: run.invoke(cli, [str(word) for word in words]))
    return repaired, json.loads(made.stdout) if made.exit_code in {0, 1} else None


def judge_many(brokers: Brokers, name: str, seed: int, room: Path) -> tuple[dict[str, int], list[str]]:
    """Damage every partition of a directory, repair all at once, and start one broker: counts, and what is wrong."""
    root, done = attacked_at_once(seed, name, room)
    gone, state = destroyed_in(root, name) | deleted_in(root, name), state_of(root)
    before = {committed: rows_of(root, committed=committed) for committed in ISOLATIONS}
    repaired, plan = _repaired(root, state)
    assert plan is not None, done
    assert plan["summary"]["refusal"] == "", done
    books = plan["summary"]["books"]
    assert books["balances"], done
    named = named_in(plan["steps"])
    wrong = _served(brokers, repaired, name, gone | named, before, set())
    here = {key for key in original(name, committed=False) if f"{key[0]}-{key[1]}" in done}
    counts = {
        "damages": len(done), "records": len(here), "destroyed": len(here & gone), "given up": len(here & named - gone),
        "moved": books["moved"], "healed": books["healed"],
    }  # fmt: skip
    return counts, [f"{seed} ({done}): {text}" for text in wrong]


def judged_many(release: str, seeds: Iterable[int], room: Path, work: Path) -> tuple[Counter[str], list[str]]:
    """The counts of some seeds together, and what is not as it should be, under brokers of a release."""
    stores = [name for name in golden.KAFKA_NAMES if name.startswith(WRITTEN_BY.get(release, release))]
    counts, wrong = Counter[str](), list[str]()
    for seed in seeds:
        with Brokers(release, work, **SETTINGS) as brokers:
            (place := room / f"{release}-{seed}").mkdir()
            found, texts = judge_many(brokers, stores[seed % len(stores)], seed, place)
            counts.update({**found, "starts": 1})
            wrong += texts
            shutil.rmtree(place, ignore_errors=True)
    return counts, wrong


def _served(
    brokers: Brokers, root: Path, name: str, gone: set[Key], before: dict[bool, Rows], left: set[str]
) -> list[str]:
    """Start a broker on a repaired directory and read all of it.

    Args:
        name: the golden directory that it was before the damage.
        gone: records whose own bytes were destroyed, or that steps give up.
        before: what was to be read before the repair.
        left: partitions that the plan leaves as they are: a client that meets damage there reads no other, either.
    """
    wrong = list[str]()
    logs = {path: path.read_bytes() for path in root.rglob("*.log") if "__cluster_metadata" not in str(path)}
    rows = [row for row in open_store(str(root)).topics() if not row["topic"].startswith("__")]
    stable = {(row["topic"], row["partition"]): row["last_stable_offset"] for row in rows}
    shown = {
        committed: {k: row for k, row in rows_of(root, committed=committed).items() if f"{k[0]}-{k[1]}" not in left}
        for committed in ISOLATIONS
    }
    stable = {key: offset for key, offset in stable.items() if f"{key[0]}-{key[1]}" not in left}
    outcome = brokers.start(root)
    if outcome != "started":
        return [f"{outcome}: {[line for line in brokers.log.splitlines() if 'ERROR' in line][:3]}"]
    try:
        for committed, isolation in ISOLATIONS.items():
            got = {(row[0], row[1], row[2]): repr(row) for row in brokers.ask("everything", isolation, *left)}
            got = {key: row for key, row in got.items() if key[:2] in stable}
            if committed:  # the coordinator aborts what hung at the crash, and readers then come further
                got = {key: row for key, row in got.items() if key[2] < stable[key[:2]]}
            first = original(name, committed=committed)
            lost = {k for k, row in first.items() if k not in gone and got.get(k) != row and k[:2] in stable}
            lost = {key for key in lost if not committed or key[2] < stable[key[:2]]}
            made = {key for key, row in got.items() if row not in {first.get(key), before[committed].get(key)}}
            wrong += [f"{isolation}: lost {sorted(lost)[:5]} of {len(lost)}"] if lost else []
            wrong += [f"{isolation}: never there {sorted(made)[:5]} of {len(made)}"] if made else []
            if got != shown[committed]:
                wrong.append(
                    f"{isolation}: not as rmqctl shows it: {sorted(got.items() ^ shown[committed].items())[:3]}"
                )
        cut = (p for p, data in logs.items() if p.exists() and not p.read_bytes().startswith(data.rstrip(b"\0")))
        wrong += [f"{path} was cut" for path in cut]
    finally:
        brokers.stop()
    return wrong


def judged(release: str, seeds: list[int], room: Path, work: Path) -> list[str]:
    """What is not as it should be with some seeds, under brokers of a release."""
    wrong = list[str]()
    for first in range(0, len(seeds), MACHINE_LASTS):
        with Brokers(release, work, **SETTINGS) as brokers:
            for seed in seeds[first : first + MACHINE_LASTS]:
                (place := room / str(seed)).mkdir()
                wrong += judge_seed(brokers, seed, place)
                shutil.rmtree(place, ignore_errors=True)
    return wrong


@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_serves_what_the_plan_says(release: str, tmp_path: Path, compiled: Path) -> None:
    (tmp_path / "rooms").mkdir()
    assert judged(release, seeds_of(release, 30_000, 30_000 + 2 * STARTS), tmp_path / "rooms", compiled) == []


@pytest.mark.parametrize("release", [*RELEASES, *WRITTEN_BY])
def test_a_broker_serves_what_was_damaged_in_every_partition(release: str, tmp_path: Path, compiled: Path) -> None:
    """``RMQCTL_DAMAGED_STARTS`` is the number of starts of each release, of some twenty damages each."""
    (tmp_path / "rooms").mkdir()
    starts = int(os.environ.get("RMQCTL_DAMAGED_STARTS", rounds(1, 6)))
    counts, wrong = judged_many(release, range(80_000, 80_000 + starts), tmp_path / "rooms", compiled)
    assert wrong == []
    assert counts["damages"] > 10 * starts


def main(release: str, first: int, last: int, how: str = "") -> None:
    """Print what is wrong with some seeds; ``many`` damages every partition of each."""
    with tempfile.TemporaryDirectory() as work:
        for seed in range(first, last) if how == "many" else ():
            with tempfile.TemporaryDirectory() as room:
                counts, wrong = judged_many(release, [seed], Path(room), Path(work))
                print(release, seed, dict(counts), *wrong, sep="\n    ", flush=True)
        if how == "many":
            return
        for seed in seeds_of(release, first, last):
            with tempfile.TemporaryDirectory() as room:
                print(seed, *judged(release, [seed], Path(room), Path(work)), sep="\n    ", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
