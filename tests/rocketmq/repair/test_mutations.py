"""Plans of the planner made wrong on purpose, one thing each: the judge accepts the plan and refuses every mutation."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.message import body_crc, decode_record, encode_record
from rmqctl.repair.edits import Create, Edit, Overwrite, Plan, Quarantine, Step
from rmqctl.rocketmq.recovery.plan import overlaid
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.books import books_of
from rmqctl.rocketmq.repair.placeholder import Setting, placeholder
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.rocketmq.repair.queue_references import QueueReference
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at

SIZE = 131072
CLEAN, CRASH = "4.9.8-clean", "4.9.8-crash"
TRUTH = [row for row in golden.truth(CLEAN) if row["kind"] == "msg"]
ONE, OTHER = 11395, 69753
"""Two records of 427 bytes."""
BLANK = bytes.fromhex("cbd43194")
Image = bytearray
"""The whole log, byte 0 first."""
SIZES = {row["commitLogOffset"]: row["storeSize"] for row in TRUTH}
MIDDLE = next(at for at in SIZES if at > SIZE + 40_000)
TOPIC = next(row["topic"].encode() for row in TRUTH if row["commitLogOffset"] == MIDDLE)
AFTER = MIDDLE + SIZES[MIDDLE]
BEFORE = max(at for at in SIZES if at < MIDDLE)
END = max(SIZES) + SIZES[max(SIZES)]


def log_of(root: Path) -> Image:
    return Image(b"".join(file.read_bytes() for file in sorted((root / "commitlog").iterdir())))


def put(root: Path, at: int, data: bytes) -> None:
    with (root / "commitlog" / f"{at // SIZE * SIZE:020d}").open("r+b") as file:
        file.seek(at % SIZE)
        file.write(data)


# --- damages ------------------------------------------------------------------------------------------


def exchanged(root: Path) -> None:
    log = log_of(root)
    put(root, ONE, bytes(log[OTHER : OTHER + 427]))
    put(root, OTHER, bytes(log[ONE : ONE + 427]))


def overwritten(root: Path) -> None:
    """One message is gone for good."""
    put(root, MIDDLE, bytes(SIZES[MIDDLE]))


def without_magic(root: Path) -> None:
    put(root, MIDDLE + 4, bytes(4))


def ended(root: Path) -> None:
    put(root, MIDDLE + 4, BLANK)


def misnamed(root: Path) -> None:
    (root / "commitlog" / f"{SIZE:020d}").rename(root / "commitlog" / f"{9 * SIZE:020d}")


def without_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "LabOrders" / "1")


def without_index(root: Path) -> None:
    shutil.rmtree(root / "index")


# --- what is wrong with a plan --------------------------------------------------------------------------


@dataclass
class Case:
    """A damaged store, and the right plan for it."""

    root: Path
    store: StoreFiles
    repair: Repair

    @property
    def sound(self) -> Image:
        return log_of(golden.pristine(CLEAN))

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.repair.plan.steps

    def problems(self, plan: Plan) -> list[str]:
        after = overlaid(self.store, plan.edits)
        start = recover(after, release_range(self.store).highest)
        return books_of(self.store, plan, self.repair.before, start=start).problems

    def rewritten(self, change: Callable[[Image], None]) -> tuple[Step, ...]:
        """The steps with another outcome for the log, under the same names."""
        after = Image()
        tree = overlaid(self.store, self.repair.plan.edits).tree
        before = log_of(self.root)
        for name in sorted(f"commitlog/{file.name}" for file in (self.root / "commitlog").iterdir()):
            source = tree.open(name)
            after += source.read_at(0, source.size())
            source.close()
        change(after)
        edits = [
            Overwrite(f"commitlog/{at:020d}", 0, bytes(before[at : at + SIZE]), bytes(after[at : at + SIZE]))
            for at in range(0, len(before), SIZE)
            if before[at : at + SIZE] != after[at : at + SIZE]
        ]
        names = tuple(name for step in self.steps for name in step.gives_up)
        others = (step for step in self.steps if not step.file.startswith("commitlog/"))
        return Step("log", "commitlog", "mutated", "on purpose", tuple(edits), gives_up=names), *others


Mutation = Callable[[Case], tuple[Step, ...]]


def image(change: Callable[[Image, Image], None]) -> Mutation:
    """Another outcome for the log; the change gets it, and the sound log."""
    return lambda case: case.rewritten(lambda log: change(log, case.sound))


def at(place: int, data: Callable[[Image], bytes]) -> Mutation:
    """Other bytes at one place of the outcome, made from the sound log."""

    def change(log: Image, sound: Image) -> None:
        new = data(sound)
        log[place : place + len(new)] = new

    return image(change)


def record(sound: Image, place: int, **fields: Any) -> bytes:
    """The record of a place of the sound log with other fields."""
    known = decode_record(bytes(sound[place : place + SIZES[place]]))[0] | fields
    known["body_crc"] = body_crc(known["body"])
    return encode_record(known | {"total_size": len(encode_record(known))})


def stand_in(place: int) -> bytes:
    row = next(row for row in TRUTH if row["commitLogOffset"] == place)
    claim = QueueReference(row["topic"], row["queueId"], row["queueOffset"], place, row["storeSize"])
    made = placeholder(claim, row["storeSize"], Setting())
    assert made is not None
    return made


def edits(keep: Callable[[Edit], bool]) -> Mutation:
    """Some edits left out."""
    return lambda case: tuple(
        replace(step, edits=tuple(edit for edit in step.edits if keep(edit))) for step in case.steps
    )


def more(make: Callable[[Case], list[Edit]], names: tuple[str, ...] = ()) -> Mutation:
    """A step more."""
    return lambda case: (*case.steps, Step("more", "store", "mutated", "on purpose", tuple(make(case)), gives_up=names))


def named(*names: str) -> Mutation:
    """Other names of what is given up."""
    return lambda case: (*case.steps[:-1], replace(case.steps[-1], gives_up=(*case.steps[-1].gives_up, *names)))


def unit(case: Case, after: Callable[[bytes], bytes]) -> list[Edit]:
    """The unit of the first message of a queue that nothing is wrong with, changed."""
    name = "consumequeue/LabLog/0/00000000000000001000"
    before = (case.root / name).read_bytes()[:20]
    return [Overwrite(name, 0, before, after(before))]


def renamed(case: Case) -> Iterator[Step]:
    """Each file that is made gets a name two files on."""
    for step in case.steps:
        yield replace(
            step,
            edits=tuple(
                replace(edit, file=f"commitlog/{8 * SIZE:020d}")
                if isinstance(edit, Create) and edit.file.startswith("commitlog/") else edit
                for edit in step.edits
                if isinstance(edit, Create | Quarantine)
            ),
        )  # fmt: skip


def spoilt_copy(case: Case) -> tuple[Step, ...]:
    """The file gets its name, and one of its records other properties."""
    (file,) = [e.file for s in case.steps for e in s.edits if isinstance(e, Create) and e.file.startswith("commitlog/")]
    place = next(at for at in SIZES if at > SIZE + 5000)
    sound = case.sound
    text = decode_record(bytes(sound[place : place + SIZES[place]]))[0]["properties"]
    before = bytes(sound[place : place + SIZES[place]])
    after = record(sound, place, properties=text[:-3] + b"\2\2\2")
    return (*case.steps, Step("more", file, "mutated", "on purpose", (Overwrite(file, place - SIZE, before, after),)))


def restamped(log: Image, sound: Image) -> None:
    """Both stay where they are not at home, and say that they are."""
    log[ONE : ONE + 427] = record(sound, OTHER, physical_offset=ONE)
    log[OTHER : OTHER + 427] = record(sound, ONE, physical_offset=OTHER)


MUTATIONS: dict[str, tuple[str, Callable[[Path], None], Mutation]] = {
    "one of two is not put back": (CLEAN, exchanged, at(OTHER, lambda log: bytes(log[ONE : ONE + 427]))),
    "one is put back eight bytes on": (CLEAN, exchanged, at(OTHER, lambda log: bytes(8) + bytes(log[OTHER : OTHER + 419]))),
    "half of one is put back": (CLEAN, exchanged, at(OTHER + 200, lambda _: bytes(227))),
    "both stay, with the places in which they lie": (CLEAN, exchanged, image(restamped)),
    "the header of the other": (CLEAN, exchanged, at(OTHER, lambda log: bytes(log[ONE : ONE + 84] + log[OTHER + 84 : OTHER + 427]))),
    "the body of the other": (CLEAN, exchanged, at(OTHER, lambda log: bytes(log[OTHER : OTHER + 84] + log[ONE + 84 : ONE + 427]))),
    "another queue offset": (CLEAN, exchanged, at(OTHER, lambda log: record(log, OTHER, queue_offset=999))),
    "another queue": (CLEAN, exchanged, at(OTHER, lambda log: record(log, OTHER, queue_id=1))),
    "a placeholder for one that is there": (CLEAN, exchanged, at(OTHER, lambda _: stand_in(OTHER))),
    "zeros for one that is there": (CLEAN, exchanged, at(OTHER, lambda _: bytes(427))),
    "shorter properties": (CLEAN, exchanged, at(OTHER, lambda log: record(
        log, OTHER, properties=decode_record(bytes(log[OTHER : OTHER + 427]))[0]["properties"][:-5]).ljust(427, b"\0"))),
    "a bit of a body": (CLEAN, exchanged, image(lambda log, _: log.__setitem__(OTHER + 100, log[OTHER + 100] ^ 1))),
    "a message that never was": (CLEAN, overwritten, at(MIDDLE, lambda log: record(log, MIDDLE, body=b"x" * len(
        decode_record(bytes(log[MIDDLE : MIDDLE + SIZES[MIDDLE]]))[0]["body"])))),
    "the message after it is lost, too": (CLEAN, overwritten, at(AFTER, lambda _: stand_in(AFTER))),
    "a name of one that is kept": (CLEAN, overwritten, named("LabOrders/2@4 at 11395 #00000000")),
    "the log ends there": (CLEAN, overwritten, image(lambda log, _: log.__setitem__(slice(MIDDLE, None), bytes(len(log) - MIDDLE)))),
    "another body with a CRC that fits": (CLEAN, without_magic, at(MIDDLE, lambda log: record(log, MIDDLE, body=bytes(
        reversed(decode_record(bytes(log[MIDDLE : MIDDLE + SIZES[MIDDLE]]))[0]["body"]))))),
    "another topic": (CLEAN, without_magic, at(MIDDLE, lambda log: record(log, MIDDLE, topic=TOPIC[:-1] + b"z"))),
    "another queue offset in a healed one": (CLEAN, without_magic, at(MIDDLE, lambda log: record(log, MIDDLE, queue_offset=7))),
    "the file ends at a damaged record": (CLEAN, ended, at(MIDDLE, lambda _: (2 * SIZE - MIDDLE).to_bytes(4, "big") + BLANK)),
    "a file under another name": (CLEAN, misnamed, lambda case: tuple(renamed(case))),
    "a file that is only moved away": (CLEAN, misnamed, edits(
        lambda edit: isinstance(edit, Quarantine) or not edit.file.startswith("commitlog/"))),
    "a file with its name, and one record changed": (CLEAN, misnamed, spoilt_copy),
    "a dropped unit": (CLEAN, without_queue, more(lambda case: unit(case, lambda _: bytes(20)))),
    "a unit that leads elsewhere": (CLEAN, without_queue, more(lambda case: unit(case, lambda old: bytes(7) + b"\5" + old[8:]))),
    "another queue moved away": (CLEAN, without_queue, more(lambda _: [Quarantine("consumequeue/LabLog/1")])),
    "all queues moved away": (CLEAN, without_queue, more(lambda _: [Quarantine("consumequeue")])),
    "an index file moved away": (CLEAN, without_queue, more(
        lambda case: [Quarantine(f"index/{min((case.root / 'index').iterdir()).name}")])),
    "the checkpoint forgets the index": (CRASH, without_index, lambda case: (*(
        step for step in case.steps if step.file != "checkpoint"), Step("more", "checkpoint", "mutated", "on purpose", (
        Overwrite("checkpoint", 16, (case.root / "checkpoint").read_bytes()[16:24], (1).to_bytes(8, "big")),)))),
    "another topic in one that is put back": (CLEAN, exchanged, at(OTHER, lambda log: record(log, OTHER, topic=b"LabLoh"))),
    "another place in the log": (CLEAN, exchanged, at(OTHER, lambda log: record(log, OTHER, physical_offset=OTHER + 8))),
    "another store time": (CLEAN, exchanged, at(OTHER, lambda log: record(log, OTHER, store_timestamp=1_700_000_000_000))),
    "a half message": (CLEAN, exchanged, at(OTHER, lambda log: record(log, OTHER, sys_flag=4))),
    "a third one is lost": (CLEAN, exchanged, at(MIDDLE, lambda _: stand_in(MIDDLE))),
    "a third one is zeros": (CLEAN, exchanged, at(MIDDLE, lambda _: bytes(SIZES[MIDDLE]))),
    "one is put back in both places": (CLEAN, exchanged, at(ONE, lambda log: record(log, OTHER, physical_offset=ONE))),
    "a message after the end of the log": (CLEAN, exchanged, at(END, lambda log: record(log, MIDDLE, physical_offset=END))),
    "a copy of a record after the end of the log": (CLEAN, exchanged, at(END, lambda log: record(log, MIDDLE))),
    "a name of none": (CLEAN, exchanged, named("LabLog/2@20 at 1 #00000000")),
    "the message before it is lost, too": (CLEAN, overwritten, at(BEFORE, lambda _: stand_in(BEFORE))),
    "the first message of the log is lost, too": (CLEAN, overwritten, at(0, lambda _: stand_in(0))),
    "the last message of the log is lost, too": (CLEAN, overwritten, at(max(SIZES), lambda _: bytes(SIZES[max(SIZES)]))),
    "another queue in a healed one": (CLEAN, without_magic, at(MIDDLE, lambda log: record(log, MIDDLE, queue_id=3))),
    "a healed one says another place": (CLEAN, without_magic, at(MIDDLE, lambda log: record(log, MIDDLE, physical_offset=ONE))),
    "a healed one, and none after it": (CLEAN, without_magic, at(AFTER, lambda _: bytes(SIZES[AFTER]))),
    "a file that is moved away, and nothing else": (CLEAN, misnamed, edits(lambda edit: isinstance(edit, Quarantine))),
    "a file with its name, and another moved away": (CLEAN, misnamed, more(lambda _: [Quarantine(f"commitlog/{2 * SIZE:020d}")])),
    "a file in the middle moved away": (CLEAN, without_queue, more(lambda _: [Quarantine(f"commitlog/{SIZE:020d}")])),
    "the first file moved away": (CLEAN, without_queue, more(lambda _: [Quarantine(f"commitlog/{0:020d}")])),
    "a unit with another size": (CLEAN, without_queue, more(lambda case: unit(case, lambda old: old[:8] + b"\0\0\1\0" + old[12:]))),
}  # fmt: skip


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Case]:
    """Stores with one damage each and their right plans, made once."""
    made: dict[str, Case] = {}

    def case(base: str, damage: Callable[[Path], None]) -> Case:
        key = f"{base} {damage.__name__}"
        if key not in made:
            room = tmp_path_factory.mktemp("case")
            root = golden.unpack(base, room)
            damage(root)
            store = open_store_at(str(root), broker_conf=str(golden.write_broker_conf(base, room / "broker.conf")))
            (room / "built").mkdir()
            made[key] = Case(root, store, plan_repair(store, RepairOptions(), room / "built"))
            assert made[key].problems(made[key].repair.plan) == []
        return made[key]

    return case


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_of_a_right_plan_is_refused(name: str, cases: Callable[[str, Callable[[Path], None]], Case]) -> None:
    base, damage, mutation = MUTATIONS[name]
    case = cases(base, damage)
    steps = mutation(case)
    assert steps != case.steps
    assert case.problems(replace(case.repair.plan, steps=steps)) != []
