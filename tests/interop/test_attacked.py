"""RocketMQ stores with records, pages, files and names in wrong places, repaired, under whole brokers of released versions.

What they serve is what the plan says: no sound record is gone that no step names, none is another, none is served that
was never there, no file of queues or index is taken away, and the log ends where `recover` says.

``python -m tests.interop.test_attacked RELEASE FIRST LAST [more]`` prints what is wrong with these seeds, and counts;
with ``more`` two or three at once of all kinds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import damage, golden
from fixtures.random_damage import Recipe
from formats.rocketmq.message import TRANSACTION, decode_record
from rmqctl.opening import open_store
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.served import indexed
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from tests.interop.brokers_helpers import FAMILIES
from tests.interop.judge import Judge, class_path, has_java, settings_of
from tests.repair.stores import state_of
from tests.rocketmq.repair.attacks_helpers import OTHER, Attacker, Besieger
from tests.rocketmq.repair.misdirected_helpers import Found, census

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
ALL = os.environ.get("RMQCTL_INTEROP") == "all"
MOST_KEYS = 200
MACHINE_LASTS = 25
"""Brokers leave threads in their virtual machine; it is changed after so many."""
Place = tuple[str, int, int]
"""Topic, queue and queue offset."""
Shown = dict[Place, tuple[int, str]]
"""Physical offset and a hash of all bytes of the record."""


class Case(NamedTuple):
    """A repaired store, and what there was before the damage, after it, and after the repair.

    Attributes:
        gives_up: names of records that steps give up.
        left: what is wrong and the plan leaves, by kind.
        foretold: the start on the result.
    """

    root: Path
    sound: dict[bytes, tuple[Found, list[int]]]
    before: dict[bytes, tuple[Found, list[int]]]
    after: dict[bytes, tuple[Found, list[int]]]
    gives_up: list[str]
    left: set[str]
    foretold: Recovery
    store: StoreFiles


def repaired(damager: Attacker, recipe: Recipe, release: str, room: Path) -> tuple[Case | None, str]:
    """Damage a store, repair it, and take that back: what was repaired, and why it was not, "" where it was."""
    root, conf = room / damager.name, golden.write_broker_conf(damager.name, room / "broker.conf")
    golden.copy_tree(damager.root, root)
    damage.apply(recipe, root)
    state, run = state_of(root), CliRunner()
    beside = tuple(sorted(f"commitlog/{f.name}" for f in (root / "commitlog").iterdir() if f.is_file()))
    before = census(open_store_at(str(root), broker_conf=str(conf)), beside)
    words = ["--broker-conf", str(conf), "--apply", "--yes", "-o", "json"]
    made = run.invoke(cli, ["repair", str(root), *words])
    if made.exit_code not in {0, 1} or not made.stdout.startswith("{"):
        why = repr(made.exception) if made.exception and not isinstance(made.exception, SystemExit) else ""
        return None, f"refused, exit {made.exit_code}: {why}{made.output[-600:]}"
    plan = json.loads(made.stdout)
    copy = room / "repaired" / damager.name
    golden.copy_tree(root, copy)
    if Path(f"{root}.rmqctl-journal").exists():
        taken = run.invoke(cli, ["undo", str(root), "--yes"])
        assert taken.exit_code == 0, taken.output
    assert state_of(root) == state, "undo gives something else"
    store = open_store_at(str(copy), broker_conf=str(conf))
    names = [name for step in plan["steps"] for name in step.get("gives_up") or ()]
    left = {step["id"] for step in plan["left"]}
    sound, foretold = census(open_store_at(str(damager.root))), recover(store, Release.parse(release))
    return Case(copy, sound, before, census(store), names, left, foretold, store), plan["summary"]["refusal"]


def served(judge: Judge, case: Case, name: str, settings: Iterable[str]) -> tuple[dict[str, int], list[str]]:
    """Start a broker on a repaired store and read all of it: counts, and what is not as it should be."""
    keys, files = _keys(case), _files(case.root)
    asked = case.root.parent / "keys"
    asked.write_text("".join(f"{topic}\t{key}\n" for topic, key in keys), "utf-8")
    for _ in range(2):  # a port that was free may be taken
        [(_, answer)] = judge.ask_all([(name, "serve", (case.root, asked, *settings))])
        if "BindException" not in answer.get("error", ""):
            break
    if not answer.get("starts"):
        return {}, [f"does not start: {answer}"]
    wrong = []
    if answer["end"] != case.foretold.end:
        wrong.append(f"the log ends at {answer['end']}, foretold was {case.foretold.end}")
    got = {
        (topic, queue, offset): (physical, digest)
        for topic, queue, offset, physical, digest in answer["messages"]
        if physical < answer["end"]  # not what it has delivered since
    }
    want = _expected(case, answer["end"])
    wrong += _told("not served", want.keys() - got.keys())
    wrong += _told("not as the plan leaves it", (p for p in got.keys() & want.keys() if got[p] != want[p]))
    after = {sha256(raw).hexdigest(): record for raw, (record, _) in case.after.items()}
    by_light = {p for p in got.keys() - want.keys() if p[0].startswith("%LMQ%") and got[p][1] in after}
    wrong += _told("served, and in no log", got.keys() - want.keys() - by_light)
    digests = {digest for _, digest in got.values()}
    due = _due(case)
    wrong += _told("lost", (r.message[:4] for r in due if sha256(r.raw).hexdigest() not in digests))
    known = {record.message for record, _ in (*case.before.values(), *case.sound.values())}
    there = {sha256(raw).hexdigest() for raw in (*case.before, *case.sound)}
    wrong += _told(
        "never there",
        (
            place for place, (_, digest) in got.items()
            if digest not in there and digest in after and not after[digest].stands_in and after[digest].message not in known
        ),
    )  # fmt: skip
    ranges = {f"{topic}/{queue}": [low, high] for topic, queue, low, high in case.foretold.ranges()}
    delivered = {f"{m[0]}/{m[1]}" for m in answer["messages"] if m[3] >= answer["end"]}
    ends = {q: (answer["queues"].get(q), span) for q, span in ranges.items() if span[1] and q not in delivered}
    wrong += _told("another range than foretold", (f"{q} {a} {b}" for q, (a, b) in ends.items() if a != b))
    unknown = {p[0] for p in got if p[0] not in answer["topics"] and not p[0].startswith(("%LMQ%", "RMQ_SYS_TRANS_OP"))}
    wrong += _told("topics that it does not know", unknown)
    gone = files - _files(case.root) - {*case.foretold.deleted, *case.foretold.index_deleted}
    wrong += _told("files taken away", gone)
    found = {tuple(line.split("\t", 1)): set(at) for line, at in answer["keys"].items()}
    wrong += _told("keys not found", (k for k, at in keys.items() if not found.get(k, set()) & at))
    errors = (row for row in open_store(str(case.root)).verify().rows if row and row.get("severity") == "error")
    wrong += [f"verify, once it had stopped: {row}" for row in errors if row["id"] not in case.left]
    queued = [raw for raw in case.sound if _is_queued(raw)]
    destroyed = sum(raw not in case.before for raw in queued)
    counts = {
        "messages": len(queued), "whole": len(due), "destroyed": destroyed, "given up": len(queued) - destroyed - len(due),
        "put back": sum(
            r.physical in case.after[raw][1] and r.physical not in places
            for raw, (r, places) in case.before.items() if raw in case.after
        ),
        "healed": sum(raw in case.after and raw not in case.before for raw in case.sound),
        "placeholders": sum(after[digest].stands_in for digest in digests & after.keys()),
        "keys": len(keys),
    }  # fmt: skip
    return counts, wrong


def _due(case: Case) -> list[Found]:
    """Messages of the sound store that lay whole somewhere in the damaged one, that queues have, and that no step names."""
    return [
        record for raw, (record, _) in case.sound.items()
        if raw in case.before and _is_queued(raw) and not record.is_named(case.gives_up)
    ]  # fmt: skip


def _is_queued(raw: bytes) -> bool:
    return decode_record(raw)[0]["sys_flag"] & TRANSACTION not in UNQUEUED


def _expected(case: Case, end: int) -> Shown:
    """What queues have of the records that lie where they say, in front of the end of the log."""
    found = Shown()
    for raw, (record, places) in case.after.items():
        if record.physical in places and record.physical < end and _is_queued(raw):
            place = record.topic.decode("utf-8", "surrogateescape"), record.queue_id, record.queue_offset
            found[place] = record.physical, sha256(raw).hexdigest()
    return found


def _keys(case: Case) -> dict[tuple[str, str], set[int]]:
    """Topic and key of records to which an index file leads that a start leaves, with their places in the log."""
    names = {file for file in _files(case.root) if file.startswith("index/")} - {*case.foretold.index_deleted}
    known = set(indexed(case.store, names).tolist())
    found = dict[tuple[str, str], set[int]]()
    for raw, (record, _) in case.after.items():
        if record.physical in known and len(found) < MOST_KEYS:
            pairs = (pair.split(b"\1") for pair in decode_record(raw)[0]["properties"].split(b"\2"))
            named = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
            for key in named.get(b"KEYS", b"").split():
                if key.isascii():
                    found.setdefault((record.topic.decode(), key.decode()), set()).add(record.physical)
    return found


def _files(root: Path) -> set[str]:
    """Files of queues and index."""
    parts = ("consumequeue", "batchconsumequeue", "index")
    return {str(path.relative_to(root)) for part in parts for path in (root / part).rglob("*") if path.is_file()}


def _told(what: str, found: Iterable[Any]) -> list[str]:
    some = sorted(found)
    return [f"{what}: {len(some)}, {some[:4]}"] if some else []


def judged(
    release: str, seeds: Iterable[int], room: Path, work: Path, kind: type[Attacker] = Attacker
) -> tuple[Counter[str], list[str]]:
    """The counts of some seeds together, and what is not as it should be, under brokers of a release."""
    damagers = [kind(f"{FAMILIES[release]}-{state}", golden.pristine(OTHER)) for state in ("clean", "crash")]
    classes, counts, wrong = class_path_once(release, work), Counter[str](), list[str]()
    seeds = list(seeds)
    for first in range(0, len(seeds), MACHINE_LASTS):
        with Judge(classes, room / f"java-{first}", program="ServedStore") as judge:
            for seed in seeds[first : first + MACHINE_LASTS]:
                damager, place = damagers[seed % 2], room / str(seed)
                place.mkdir()
                names, recipe = damager.attack(seed)
                case, refusal = repaired(damager, recipe, release, place)
                counts.update(stores=1, damages=len(names), refused=bool(refusal))
                if case is None or refusal:
                    print(f"{release} {seed} {damager.name} {names}: {refusal}", flush=True)
                else:
                    found, texts = served(judge, case, str(seed), settings_of(golden.broker_conf(damager.name)))
                    counts.update(found)
                    texts = [f"{release} {seed} {damager.name} {names}: {text}" for text in texts]
                    print(*texts, sep="\n", end="\n" * bool(texts), flush=True)
                    wrong += texts
                shutil.rmtree(place)
    return counts, wrong


_CLASSES = dict[tuple[str, Path], str]()


def class_path_once(release: str, work: Path) -> str:
    """The classes of a release, compiled once a directory."""
    if (release, work) not in _CLASSES:
        _CLASSES[release, work] = class_path(release, work, "ServedStore")
    return _CLASSES[release, work]


@pytest.mark.parametrize("release", list(FAMILIES))
def test_a_broker_serves_what_the_plan_says(release: str, tmp_path: Path, compiled: Path) -> None:
    """``RMQCTL_DAMAGED_STARTS`` is the number of stores of each release."""
    stores = int(os.environ.get("RMQCTL_DAMAGED_STARTS", "80" if ALL else "6"))
    counts, wrong = judged(release, range(90_000, 90_000 + stores), tmp_path, compiled)
    assert wrong == []
    assert counts["refused"] == 0


def main(release: str, first: int, last: int, kind: type[Attacker]) -> None:
    """Print what is wrong with some seeds, and the counts."""
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as room:
        counts, wrong = judged(release, range(first, last), Path(room), Path(work), kind)
        print(release, dict(counts), f"{len(wrong)} wrong", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Besieger if sys.argv[4:] == ["more"] else Attacker)
