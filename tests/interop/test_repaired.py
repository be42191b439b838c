"""Stores that were repaired, rebuilt or salvaged, loaded, started and read through by released classes: needs Maven."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from fixtures.random_damage import Subject
from fixtures.worse_damage import WorseDamager
from rmqctl.files.tree import LocalTree
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.log.stand_ins import MARK
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.salvage.salvage import SalvageOptions, salvage
from rmqctl.rocketmq.store.locate import open_store, open_store_at
from tests.interop.brokers_helpers import WORKERS, side_by_side
from tests.interop.conftest import Judges
from tests.interop.judge import RELEASES, Judge, has_java, settings_of
from tests.rocketmq.repair.judged import produced, seeds
from tests.rocketmq.repair.misdirected_helpers import Misdirector

EXPIRED = ("delete-first-file", "delete-commitlog-dir", "delete-last-data-file", "truncate-last")
"""Variants in which messages at an end of the log are gone: queues are shorter afterwards."""
EVERY = 1 if os.environ.get("RMQCTL_INTEROP") == "all" else 10
"""One variant in so many, so that the run stays short; RMQCTL_INTEROP=all takes them all."""
BATCHES = "LabBatchCq"
HALF, ROLLBACK = 0x4, 0xC
"""What the two transaction bits of SYSFLAG say where no queue leads to a message."""

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
Place = tuple[str, int, int]
"""Topic, queue and queue offset."""


def variants(release: str) -> list[str]:
    """Damaged stores of the recovery oracle."""
    return list(golden.recovery_oracle(release)["variants"])[::EVERY]


def damaged(release: str, name: str, directory: Path) -> tuple[str, Path]:
    """The golden store of a variant by name, and a damaged copy."""
    state, _, variant = name.partition("/")
    root = golden.unpack(f"{release}-{state}", directory / variant)
    damage.apply(golden.recovery_oracle(release)["variants"][name]["recipe"], root)
    return f"{release}-{state}", root


def served(judge: Judge, name: str, root: Path, conf: Mapping[str, str]) -> dict[str, Any]:
    """Load, start, read through and stop with the settings of a broker; what was seen."""
    opened = judge.ask(name, "open", root, *settings_of(conf))
    assert opened, "load failed"
    read = judge.ask(name, "read")
    assert judge.ask(name, "stop", root)
    return {**opened, **read}


def unexplained(answer: dict[str, Any]) -> list[str]:
    """Answers that were not FOUND, but of queues whose messages are all gone.

    Those keep their next offset, by units that point nowhere. A 4.x broker (``ConsumeQueue.correctMinOffset``), and any on a
    log that begins at 0, lets such a queue begin at 0 and answers MESSAGE_WAS_REMOVING; consumers go on at the end.
    """
    alive = {f"{m['topic']}/{m['queue']}" for m in answer["messages"]}
    return [odd for odd in answer["odd"] if "MESSAGE_WAS_REMOVING" not in odd or odd.partition(" ")[0] in alive]


def truth(base: str) -> list[dict[str, Any]]:
    """The messages of a golden store."""
    return Subject.golden(base).records


def messages(records: Iterable[dict[str, Any]]) -> dict[Place, tuple[int, str]]:
    """Physical offset and hash of the body of every message of a sound store that queues lead to; inner batches apart."""
    return {
        (t["topic"], t["queueId"], t["queueOffset"]): (t["commitLogOffset"], t["bodySha256"])
        for t in records
        if t["topic"] != BATCHES and t["sysFlag"] & ROLLBACK not in (HALF, ROLLBACK)
    }


def read(answer: dict[str, Any]) -> dict[Place, tuple[int, str]]:
    """The same of an answer, placeholders apart."""
    return {
        (m["topic"], m["queue"], m["offset"]): (m["physical"], m["body"])
        for m in answer["messages"]
        if m["topic"] != BATCHES and MARK.decode() not in m["properties"]
    }


@pytest.mark.parametrize("release", RELEASES)
def test_repaired_stores(release: str, judges: Judges, tmp_path: Path) -> None:
    judge = judges(release, workers=WORKERS)

    def make() -> Iterator[tuple[str, Callable[[], None]]]:
        for name in variants(release):
            base, root = damaged(release, name, tmp_path / name.replace("/", "-"))
            conf = golden.write_broker_conf(base, tmp_path / "broker.conf")
            with tempfile.TemporaryDirectory() as built:
                plan = plan_repair(open_store_at(str(root), broker_conf=str(conf)), RepairOptions(), Path(built)).plan
                apply(plan, journal_dir=root.parent / "journal")
            yield name, lambda name=name, base=base, root=root: check_repaired(judge, name, base, root)

    assert side_by_side(make()) == []


def check_repaired(judge: Judge, name: str, base: str, root: Path) -> None:
    """Every queue is read from its smallest to its largest offset, and nothing sound is missing."""
    answer = served(judge, name, root, golden.broker_conf(base))
    assert unexplained(answer) == []
    assert answer["afterLoad"]["maxPhy"] == answer["afterStart"]["maxPhy"]
    if not any(part in name for part in (*EXPIRED, "torn-tail")):
        physical = {m["physical"] for m in answer["messages"]}
        assert {place: where for place, (where, _) in messages(truth(base)).items() if where not in physical} == {}
    shutil.rmtree(root.parent)


@pytest.mark.parametrize("release", RELEASES)
def test_salvaged_stores(release: str, judges: Judges, tmp_path: Path) -> None:
    judge = judges(release, workers=WORKERS)

    def make() -> Iterator[tuple[str, Callable[[], None]]]:
        for name in variants(release):
            base, root = damaged(release, name, tmp_path / name.replace("/", "-"))
            into = root.parent / "salvaged"
            if not any((root / "commitlog").glob("*")):
                continue
            saved = salvage([open_store(LocalTree(root), settings=golden.broker_conf(base))], into, SalvageOptions())
            total = saved.written.messages + saved.written.placeholders
            yield (
                name,
                lambda name=name, base=base, into=into, total=total: check_salvaged(judge, name, base, into, total),
            )

    assert side_by_side(make()) == []


def check_salvaged(judge: Judge, name: str, base: str, into: Path, total: int) -> None:
    """As many messages as were written, each at its queue offset with its body."""
    answer = served(judge, name, into, golden.broker_conf(base))
    assert unexplained(answer) == []
    known = {place: body for place, (_, body) in messages(truth(base)).items()}
    found = {place: body for place, (_, body) in read(answer).items()}
    allowed = ("stale-valid-record", "queueoffset-plus-5", "body", "torn-tail", "flip")
    assert {p: b for p, b in found.items() if known.get(p) != b} == {} or any(part in name for part in allowed)
    assert len(found) > 0.4 * len(known)
    assert len(answer["messages"]) <= total
    shutil.rmtree(into.parent)


@pytest.mark.parametrize("release", RELEASES)
def test_rebuilt_stores(release: str, judges: Judges, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    """Queues and index lost, rebuilt in place: the classes serve what they served before, and write nothing anew."""
    judge = judges(release)
    for state in ("clean", "crash"):
        base = f"{release}-{state}"
        before = served(judge, base, golden.unpack(base, tmp_path / "before"), golden.broker_conf(base))
        root = golden.unpack(base, tmp_path / "rebuilt")
        for directory in ("consumequeue", "batchconsumequeue", "index"):
            shutil.rmtree(root / directory, ignore_errors=True)
        conf = golden.write_broker_conf(base, tmp_path / "broker.conf")
        result = rmqctl("rebuild", root, "--broker-conf", conf, "--apply")
        assert result.exit_code == 0, result.output
        after = served(judge, base, root, golden.broker_conf(base))
        assert after["messages"] == before["messages"]
        assert ends(after) == ends(before)
        assert after["odd"] == before["odd"]


def ends(answer: dict[str, Any]) -> dict[str, Any]:
    """First and next offset of every queue that is not empty."""
    return {name: span for name, span in answer["afterStart"]["queues"].items() if span[1]}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("field", ["born_port", "store_port"])
def test_ports_that_are_none(
    release: str, field: str, judges: Judges, tmp_path: Path, rmqctl: Callable[..., Any]
) -> None:
    """A client drops the record and those after it in the same answer; after a repair it gets all of them."""
    judge, root, answer = judges(release), golden.unpack(f"{release}-clean", tmp_path), tmp_path / "answer"
    first = [(t["commitLogOffset"], t["storeSize"]) for t in truth(f"{release}-clean")][:6]
    log = root / "commitlog" / f"{0:020d}"

    def decoded() -> list[int]:
        data = log.read_bytes()
        answer.write_bytes(b"".join(data[at : at + size] for at, size in first))
        found: list[int] = judge.ask("answer", "decode", answer)
        return found

    with log.open("r+b") as file:
        file.seek(first[2][0] + {"born_port": 52, "store_port": 68}[field])
        file.write((70_000).to_bytes(4, "big"))
    assert decoded() == [at for at, _ in first[:2]]
    found = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    assert [f["physical_offset"] for f in found if f.get("id") == "log.port"] == [first[2][0]]
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert decoded() == [at for at, _ in first]


SEEDS = seeds("100" if EVERY == 1 else "4")
"""Random damages, two at once."""


def misdirectors(release: str, _: Path) -> list[WorseDamager]:
    """Whole records, pages and files in the places of others."""
    return [Misdirector(f"{release}-{state}", golden.pristine("5.1.4-crash")) for state in ("clean", "crash")]


def damagers_of(subject: Callable[[Path], Callable[[str], Subject]]) -> Callable[[str, Path], list[WorseDamager]]:
    """Two damages at once to stores of a kind."""
    return lambda release, room: [WorseDamager(subject(room)(f"{release}-{state}")) for state in ("clean", "crash")]


DAMAGERS = {
    "broker": damagers_of(lambda _: Subject.golden),
    "produce": damagers_of(produced),
    "misdirected": misdirectors,
}


@pytest.mark.parametrize("made_by", list(DAMAGERS))
@pytest.mark.parametrize("release", RELEASES)
def test_randomly_damaged_stores(release: str, made_by: str, judges: Judges, tmp_path: Path) -> None:
    """The classes load them, cut nothing and serve every message whose own bytes were sound, or are it again."""
    judge = judges(release, workers=WORKERS)
    damagers = DAMAGERS[made_by](release, tmp_path)

    def make() -> Iterator[tuple[str, Callable[[], None]]]:
        for seed in SEEDS:
            damager, name = damagers[seed % 2], f"random-{seed}"
            root = tmp_path / name / damager.name
            golden.copy_tree(damager.root, root)
            damage.apply(damager.recipe(seed), root)
            intact = {place for place, where in spans(damager).items() if is_intact(damager, root, *where)}
            conf = tmp_path / "broker.conf"
            conf.write_text("".join(f"{key}={value}\n" for key, value in damager.subject.settings.items()), "utf-8")
            with tempfile.TemporaryDirectory() as built:
                plan = plan_repair(open_store_at(str(root), broker_conf=str(conf)), RepairOptions(), Path(built)).plan
                apply(plan, journal_dir=root.parent / "journal")
            intact |= {place for place, where in spans(damager).items() if is_intact(damager, root, *where)}
            yield name, partial(check_random, judge, name, damager, root, intact)

    assert side_by_side(make()) == []


def spans(damager: WorseDamager) -> dict[Place, tuple[int, int]]:
    """Physical offset and size of every message of a sound store; inner batches apart."""
    return {
        (t["topic"], t["queueId"], t["queueOffset"]): (t["commitLogOffset"], t["storeSize"])
        for t in damager.records
        if t["topic"] != BATCHES
    }


def is_intact(damager: WorseDamager, root: Path, physical: int, size: int) -> bool:
    """Whether the bytes of a record are those of the sound store."""
    name, at = f"commitlog/{physical // damager.log_size * damager.log_size:020d}", physical % damager.log_size
    if not (root / name).exists():
        return False
    return (root / name).read_bytes()[at : at + size] == (damager.root / name).read_bytes()[at : at + size]


def check_random(judge: Judge, name: str, damager: WorseDamager, root: Path, intact: set[Place]) -> None:
    """Nothing is cut, and what was sound is served as it was."""
    answer = served(judge, name, root, damager.subject.settings)
    assert answer["afterLoad"]["maxPhy"] == answer["afterStart"]["maxPhy"]
    known = {place: where for place, where in messages(damager.records).items() if place in intact}
    assert known
    physical = {m["physical"] for m in answer["messages"]}
    assert {place: where for place, where in known.items() if where[0] not in physical} == {}
    found = read(answer)
    assert {place: where for place, where in known.items() if place in found and found[place] != where} == {}
    shutil.rmtree(root.parent)
