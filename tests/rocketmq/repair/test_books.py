"""The judge of plans over real stores: plans that are wrong on purpose are refused, those of the planner accepted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from formats.rocketmq.message import body_crc, decode_record, encode_record
from rmqctl.repair.books import Books
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Plan, Quarantine, Step
from rmqctl.rocketmq.log.record import record_name
from rmqctl.rocketmq.recovery.plan import overlaid
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.books import books_of
from rmqctl.rocketmq.repair.placeholder import Setting, filler, placeholder
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.rocketmq.repair.queue_references import QueueReference
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from tests.conftest import Rmqctl

BASE = "4.9.8-clean"
SIZE = 131072
TRUTH = [row for row in golden.truth(BASE) if row["kind"] == "msg"]


def file_of(physical: int) -> str:
    return f"commitlog/{physical // SIZE * SIZE:020d}"


@dataclass
class Bench:
    """A store to be damaged, and edits made from what lies in it."""

    root: Path
    store: StoreFiles

    def raw(self, row: dict[str, Any]) -> bytes:
        return self.read(row["commitLogOffset"], row["storeSize"])

    def read(self, physical: int, size: int) -> bytes:
        with (self.root / file_of(physical)).open("rb") as file:
            file.seek(physical % SIZE)
            return file.read(size)

    def put(self, physical: int, after: bytes) -> Overwrite:
        return Overwrite(file_of(physical), physical % SIZE, self.read(physical, len(after)), after)

    def harm(self, physical: int, data: bytes) -> None:
        damage.overwrite(self.root / file_of(physical), physical % SIZE, data)

    def books(self, *edits: Edit, names: Sequence[str] = (), started: bool = False) -> Books:
        plan = Plan(self.root, "test", (Step("x", "commitlog", "does", "why", edits, gives_up=tuple(names)),))
        found = [f for f in Verification(self.store, VerifyOptions()).findings() if f.level != "note"]
        start = None
        if started:
            start = recover(overlaid(self.store, edits), release_range(self.store).highest)
        return books_of(self.store, plan, found, start=start)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return opened(BASE, tmp_path)


def opened(base: str, directory: Path) -> Bench:
    root = golden.unpack(base, directory)
    conf = golden.write_broker_conf(base, directory / "broker.conf")
    return Bench(root, open_store_at(str(root), broker_conf=str(conf)))


def changed(raw: bytes, **fields: Any) -> bytes:
    """A record with other fields, its body CRC right for its body."""
    known = decode_record(raw)[0] | fields
    known["body_crc"] = body_crc(known["body"])
    return encode_record(known | {"total_size": len(encode_record(known))})


def named(raw: bytes) -> str:
    return record_name(decode_record(raw)[0])


ONE, OTHER = next(
    (a, b)
    for a in TRUTH[400:]
    for b in TRUTH
    if a["storeSize"] == b["storeSize"] and a["topic"] != b["topic"] and len(a["topic"]) == len(b["topic"])
    if a["commitLogOffset"] > b["commitLogOffset"] + SIZE
)
"""Two records of one size, of different topics, in different files."""
LAST = TRUTH[-1]
END = LAST["commitLogOffset"] + LAST["storeSize"]


# --- wrong plans for a sound store --------------------------------------------------------------------


def claim(row: dict[str, Any]) -> QueueReference:
    return QueueReference(row["topic"], row["queueId"], row["queueOffset"], row["commitLogOffset"], row["storeSize"])


def stand_in(row: dict[str, Any]) -> bytes:
    record = placeholder(claim(row), row["storeSize"], Setting())
    assert record is not None
    return record


def edited(at: int, by: Callable[[bytes], bytes]) -> Callable[[Bench], list[Edit]]:
    """One record, number ``at`` of the log, overwritten."""
    row = TRUTH[at]
    return lambda bench: [bench.put(row["commitLogOffset"], by(bench.raw(row)))]


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


def moved(bench: Bench, row: dict[str, Any], to: int, **fields: Any) -> Overwrite:
    return bench.put(to, changed(bench.raw(row), **fields) if fields else bench.raw(row))


def shifted(bench: Bench) -> list[Edit]:
    data = (bench.root / file_of(SIZE)).read_bytes()
    return [Overwrite(file_of(SIZE), 0, data, (bytes(8) + data)[:SIZE])]


WRONG: dict[str, Callable[[Bench], list[Edit]]] = {
    "zeros over a record": edited(50, lambda raw: bytes(len(raw))),
    "zeros over its last byte": edited(50, lambda raw: raw[:-1] + b"\0"),
    "a byte of its body": edited(51, flipped(95)),
    "a byte of its properties": edited(52, lambda raw: flipped(len(raw) - 5)(raw)),
    "its body and its CRC": edited(53, lambda raw: changed(raw, body=decode_record(raw)[0]["body"][::-1])),
    "its queue offset": edited(54, lambda raw: changed(raw, queue_offset=decode_record(raw)[0]["queue_offset"] + 1)),
    "its queue": edited(55, lambda raw: changed(raw, queue_id=decode_record(raw)[0]["queue_id"] ^ 1)),
    "its topic": edited(56, lambda raw: changed(raw, topic=decode_record(raw)[0]["topic"][::-1])),
    "where it says that it lies": edited(57, lambda raw: changed(raw, physical_offset=7)),
    "its store time": edited(58, lambda raw: changed(raw, store_timestamp=1)),
    "its flags": edited(59, lambda raw: changed(raw, flag=77)),
    "its SYSFLAG": edited(60, lambda raw: changed(raw, sys_flag=decode_record(raw)[0]["sys_flag"] | 8)),
    "its magic": edited(61, lambda raw: raw[:4] + bytes(4) + raw[8:]),
    "a placeholder over it": lambda bench: [bench.put(ONE["commitLogOffset"], stand_in(ONE))],
    "a filler over it": lambda bench: [
        bench.put(ONE["commitLogOffset"], filler(ONE["commitLogOffset"], ONE["storeSize"], Setting()) or b"")
    ],
    "another record over it": lambda bench: [moved(bench, OTHER, ONE["commitLogOffset"])],
    "another record over it, with its place": lambda bench: [
        moved(bench, OTHER, ONE["commitLogOffset"], physical_offset=ONE["commitLogOffset"])
    ],
    "another body in it": lambda bench: [
        bench.put(ONE["commitLogOffset"], changed(bench.raw(OTHER), **{
            key: decode_record(bench.raw(ONE))[0][key]
            for key in ("topic", "queue_id", "queue_offset", "physical_offset", "properties")
        })[: ONE["storeSize"]].ljust(ONE["storeSize"], b"\0"))
    ],
    "two records exchanged": lambda bench: [
        moved(bench, OTHER, ONE["commitLogOffset"]), moved(bench, ONE, OTHER["commitLogOffset"]),
    ],
    "a copy behind the end": lambda bench: [moved(bench, ONE, END)],
    "a record that never was": lambda bench: [moved(bench, ONE, END, physical_offset=END)],
    "a record that never was, new topic": lambda bench: [
        moved(bench, ONE, END, physical_offset=END, topic=b"NeverThere", queue_offset=0)
    ],
    "zeros from a record to the end": lambda bench: [
        bench.put(TRUTH[-3]["commitLogOffset"], bytes(END - TRUTH[-3]["commitLogOffset"]))
    ],
    "a cut too early": lambda bench: [
        Cut(file_of(LAST["commitLogOffset"]), SIZE, LAST["commitLogOffset"] % SIZE - 1),
        Extend(file_of(LAST["commitLogOffset"]), LAST["commitLogOffset"] % SIZE - 1, SIZE),
    ],
    "a file in quarantine": lambda bench: [Quarantine(file_of(SIZE))],
    "all files in quarantine": lambda bench: [Quarantine("commitlog")],
    "a file made anew with zeros": lambda bench: [Quarantine(file_of(SIZE)), Create(file_of(SIZE), size=SIZE)],
    "a file under another name": lambda bench: [
        Quarantine(file_of(SIZE)), Create(file_of(9 * SIZE), source=bench.root / file_of(SIZE)),
    ],
    "a file twice": lambda bench: [Create(file_of(9 * SIZE), source=bench.root / file_of(SIZE))],
    "two files exchanged": lambda bench: [
        Quarantine(file_of(0)), Quarantine(file_of(SIZE)),
        Create(file_of(0), source=bench.root / file_of(SIZE)), Create(file_of(SIZE), source=bench.root / file_of(0)),
    ],
    "a file moved by eight bytes": shifted,
    "a file of another store": lambda bench: [
        Quarantine(file_of(SIZE)), Create(file_of(SIZE), source=golden.pristine("5.5.0-clean") / file_of(SIZE)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_plan_for_a_sound_store_is_refused(bench: Bench, name: str) -> None:
    books = bench.books(*WRONG[name](bench))
    assert not books.balances
    assert books.refusal() is not None


def test_names_make_up_for_what_is_gone_and_for_nothing_else(bench: Bench) -> None:
    raw = bench.raw(ONE)
    edit = bench.put(ONE["commitLogOffset"], stand_in(ONE))
    books = bench.books(edit, names=[named(raw)])
    assert (books.balances, books.given_up, books.placeholders, books.loses) == (True, 1, 1, 1)
    assert not bench.books(edit, names=[named(bench.raw(OTHER))]).balances
    assert not bench.books(edit, names=[named(raw), named(bench.raw(OTHER))]).balances, "the other one is kept"
    rows = [row for row in TRUTH if SIZE <= row["commitLogOffset"] < 2 * SIZE]
    names = [named(bench.raw(row)) for row in rows]
    assert bench.books(Quarantine(file_of(SIZE)), names=names).given_up == len(rows)
    assert not bench.books(Quarantine(file_of(SIZE)), names=names[1:]).balances
    body = decode_record(raw)[0]["body"]
    falsified = bench.put(ONE["commitLogOffset"], changed(raw, body=body[::-1]))
    assert not bench.books(falsified, names=[named(raw)]).balances, "what is there now was never written"


# --- wrong plans for a damaged store ------------------------------------------------------------------


def stamped(bench: Bench, raw: bytes, row: dict[str, Any]) -> bytes:
    """A record with the place of another in queue and log."""
    return changed(
        raw, topic=row["topic"].encode(), queue_id=row["queueId"], queue_offset=row["queueOffset"],
        physical_offset=row["commitLogOffset"],
    )  # fmt: skip


def test_a_record_that_belongs_elsewhere_is_not_healed_into_the_message_of_its_place(bench: Bench) -> None:
    own, foreign = bench.raw(ONE), bench.raw(OTHER)
    at = ONE["commitLogOffset"]
    bench.harm(at, foreign)
    restamped = stamped(bench, foreign, ONE)[: len(own)].ljust(len(own), b"\0")
    assert not bench.books(bench.put(at, restamped)).balances
    only_place = changed(foreign, physical_offset=at)
    assert not bench.books(bench.put(at, only_place)).balances
    good = bench.books(bench.put(at, stand_in(ONE)))
    assert (good.balances, good.garbage, good.placeholders, good.loses) == (True, 1, 1, 1)
    assert not bench.books(bench.put(at, own)).balances, "nothing in the store says what it was"


def test_exchanged_records_go_home_and_nowhere_else(bench: Bench) -> None:
    own, foreign = bench.raw(ONE), bench.raw(OTHER)
    bench.harm(ONE["commitLogOffset"], foreign)
    bench.harm(OTHER["commitLogOffset"], own)
    here, there = ONE["commitLogOffset"], OTHER["commitLogOffset"]
    good = bench.books(bench.put(here, own), bench.put(there, foreign))
    assert (good.balances, good.moved, good.loses) == (True, 2, 0)
    assert not bench.books(bench.put(here, own)).balances, "the other one is written over"
    assert not bench.books(bench.put(here, stamped(bench, foreign, ONE)), bench.put(there, foreign)).balances
    assert not bench.books(bench.put(here, bytes(len(own)))).balances
    assert bench.books(bench.put(here, own), bench.put(there, stand_in(OTHER)), names=[named(foreign)]).balances


def test_a_damaged_body_is_healed_by_its_own_crc_only(bench: Bench) -> None:
    raw, at = bench.raw(ONE), ONE["commitLogOffset"]
    bench.harm(at + 100, bytes([raw[100] ^ 4]))
    assert bench.books(bench.put(at + 100, raw[100:101])).healed == 1
    harmed = bench.raw(ONE)
    body = decode_record(harmed)[0]["body"]
    assert not bench.books(bench.put(at, changed(harmed, body=body))).balances, "a new CRC for a wrong body"
    assert not bench.books(bench.put(at, changed(raw, body=body[::-1]))).balances


def test_a_header_is_healed_where_the_rest_proves_it(bench: Bench) -> None:
    raw, at = bench.raw(ONE), ONE["commitLogOffset"]
    bench.harm(at, bytes(36))
    healed = bench.books(bench.put(at, raw))
    assert not healed.balances, "with the CRC all proof of the body is gone"
    bench.harm(at, raw[:12].replace(raw[:8], bytes(8)) + bytes(24))
    healed = bench.books(bench.put(at, raw))
    assert (healed.balances, healed.healed, healed.loses) == (True, 1, 0)


def test_a_file_under_a_wrong_name_is_not_given_up_in_silence(bench: Bench) -> None:
    right, wrong = file_of(SIZE), "commitlog/stray"
    shutil.move(bench.root / right, bench.root / wrong)
    bench = replace(bench, store=open_store_at(str(bench.root)))
    back: list[Edit] = [Quarantine(wrong), Create(right, source=bench.root / wrong)]
    good = bench.books(*back)
    assert (good.balances, good.loses) == (True, 0)
    assert good.moved == sum(row["file"] == Path(right).name for row in TRUTH)
    assert not bench.books(Quarantine(wrong)).balances
    other: list[Edit] = [Quarantine(wrong), Create(file_of(9 * SIZE), source=bench.root / wrong)]
    assert not bench.books(*other).balances


def test_what_a_start_would_cut_of_the_result(bench: Bench) -> None:
    row = next(row for row in TRUTH if row["commitLogOffset"] > 3 * SIZE and row["storeSize"] > 250)
    raw, at = bench.raw(row), row["commitLogOffset"]
    (bench.root / "abort").touch()
    bench = replace(bench, store=open_store_at(str(bench.root)))
    assert bench.books(bench.put(at, stand_in(row)), names=[named(raw)], started=True).balances
    shorter = placeholder(claim(row), len(raw) - 30, Setting())
    assert shorter is not None
    books = bench.books(bench.put(at, shorter + bytes(30)), names=[named(raw)], started=True)
    assert "would cut" in books.problems[0]


def test_index_files_that_a_start_would_delete(tmp_path: Path) -> None:
    bench = opened("4.9.8-crash", tmp_path)
    checkpoint = (bench.root / "checkpoint").read_bytes()
    early = checkpoint[:16] + (1).to_bytes(8, "big") + checkpoint[24:]
    books = bench.books(Overwrite("checkpoint", 0, checkpoint, early), started=True)
    assert any("index" in problem for problem in books.problems), books.problems


# --- right plans ---------------------------------------------------------------------------------------


VARIANTS = [
    "4.9.8/crash/zero-page-mid", "5.5.0/clean/delete-mid-file", "4.9.8/clean/checkpoint-zero",
    "5.5.0/crash/queueoffset-plus-5-last-file", "4.9.8/crash/index-all-deleted", "4.5.2/crash/torn-tail",
    "5.1.4/crash/body-flip-mid", "5.5.0/crash/delete-first-file", "4.9.8/clean/abort-added+checkpoint-zero",
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_plans_of_the_planner_balance(variant: str, tmp_path: Path) -> None:
    release, state, name = variant.split("/")
    base = f"{release}-{state}"
    root = golden.unpack(base, tmp_path)
    found = golden.recovery_oracle(release)["variants"].get(f"{state}/{name}")
    if found is None:
        pytest.skip("the oracle has no such variant")
    damage.apply(found["recipe"], root)
    conf = golden.write_broker_conf(base, tmp_path / "broker.conf")
    repair = planned(open_store_at(str(root), broker_conf=str(conf)), tmp_path)
    assert repair.books.problems == []
    assert repair.books.kept == repair.books.whole_before - repair.books.moved


def planned(store: StoreFiles, directory: Path) -> Repair:
    built = directory / "built"
    built.mkdir()
    return plan_repair(store, RepairOptions(), built)


def test_a_plan_that_does_not_balance_is_shown_and_not_carried_out(
    bench: Bench, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ONE["commitLogOffset"]
    bench.harm(at + 4, bytes(4))
    before = bench.raw(ONE)

    def wrong(*_: object, **__: object) -> Books:
        return Books(10, problems=[f"record {number} is lost" for number in range(7)])

    monkeypatch.setattr("rmqctl.rocketmq.repair.plan.books_of", wrong)
    shown = rmqctl("repair", bench.root, "-o", "json")
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["summary"]["books"]["balances"] is False
    for options in ([], ["--force"]):
        result = rmqctl("repair", bench.root, "--apply", "--yes", *options)
        assert result.exit_code == 13
        assert "record 4 is lost; and 2 more" in result.stderr
        assert bench.raw(ONE) == before


def test_books_in_the_answer_of_the_command(bench: Bench, rmqctl: Rmqctl) -> None:
    bench.harm(ONE["commitLogOffset"] + 4, bytes(4))
    found = json.loads(rmqctl("repair", bench.root, "-o", "json").stdout)["summary"]["books"]
    assert found == {
        "whole_before": len(TRUTH) - 1, "kept": len(TRUTH) - 1, "moved": 0, "garbage": 0, "given_up": 0,
        "placeholders": 0, "healed": 1, "transactions_changed": 0, "balances": True,
    }  # fmt: skip
    table = " ".join(rmqctl("repair", bench.root).stdout.split())
    assert f"records: {len(TRUTH) - 1:,} whole before, {len(TRUTH) - 1:,} kept, 1 healed; the books balance" in table
    neutralized = rmqctl("repair", bench.root, "--neutralize", str(OTHER["commitLogOffset"]), "-o", "json")
    summary = json.loads(neutralized.stdout)["summary"]
    assert (summary["loses"], summary["books"]["given_up"], summary["books"]["balances"]) == (1, 1, True)


@pytest.mark.parametrize("variant", ["4.9.8/clean/body-flip-mid", "5.5.0/crash/totalsize-zero-mid"])
def test_a_start_that_is_carried_out_names_what_it_cuts(variant: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    release, state, name = variant.split("/")
    bench = opened(f"{release}-{state}", tmp_path)
    damage.apply(golden.recovery_oracle(release)["variants"][f"{state}/{name}"]["recipe"], bench.root)
    start = recover(bench.store, release_range(bench.store).highest)
    cut = [message for message in start.lost if bench.store.log_files]
    result = rmqctl("recover", bench.root, "--apply", "--yes", "-o", "json")
    found = json.loads(result.stdout)
    names = [name for step in found["steps"] for name in step["gives_up"]]
    assert found["books"]["balances"] is True
    assert found["books"]["given_up"] == len(names)
    assert len(cut) - 1 <= len(names) <= len(cut), "the one at which it stops may be damaged"
    assert found["loses"] == found["books"]["given_up"] + (len(cut) - len(names))


def test_a_rebuild_keeps_all_records(bench: Bench, rmqctl: Rmqctl) -> None:
    shutil.rmtree(bench.root / "consumequeue")
    found = json.loads(rmqctl("rebuild", bench.root, "--apply", "--yes", "--force", "-o", "json").stdout)["summary"][
        "books"
    ]
    assert (found["whole_before"], found["kept"], found["balances"]) == (len(TRUTH), len(TRUTH), True)


def test_only_the_place_of_exchanged_records_is_not_written_over(bench: Bench) -> None:
    """Each says where it belongs, and its unit leads there: a PHYSICALOFFSET that is changed makes two wrong messages."""
    own, foreign = bench.raw(ONE), bench.raw(OTHER)
    here, there = ONE["commitLogOffset"], OTHER["commitLogOffset"]
    bench.harm(here, foreign)
    bench.harm(there, own)
    edits = [
        bench.put(here, changed(foreign, physical_offset=here)),
        bench.put(there, changed(own, physical_offset=there)),
    ]
    assert not bench.books(*edits).balances
    bench.harm(here, changed(own, physical_offset=here ^ 0x20))
    assert bench.books(bench.put(here, own)).healed == 1, "its unit leads here"


def test_a_tail_of_other_properties_makes_no_other_message(bench: Bench) -> None:
    """A page that ends inside a record: what lies there now has the body and the place of one that is at home."""
    raw = bench.raw(OTHER)
    free = END + 100
    bench.harm(free, raw[:-1] + bytes([raw[-1] ^ 1]))
    gone = bench.put(free, bytes(len(raw)))
    assert not bench.books(gone).balances, "nothing says which of the two has the true properties"
    assert (bench.books(gone, names=[named(raw)]).given_up, bench.books(gone, names=[named(raw)]).balances) == (1, True)
    bench.harm(free, raw[:-1] + b"\0")
    books = bench.books(bench.put(free, bytes(len(raw))))
    assert (books.balances, books.garbage) == (True, 1), "a zero shows which"


def test_a_copy_with_sound_properties_is_no_garbage_where_those_at_home_are_damaged(bench: Bench) -> None:
    raw, at, free = bench.raw(OTHER), OTHER["commitLogOffset"], END + 100
    text = decode_record(raw)[0]["properties"]
    bench.harm(at + len(raw) - 5, bytes(5))
    bench.harm(free, raw)
    blanked = with_properties(raw, text[:-5] + b"\x02" * 5)
    for kept in ([], [bench.put(at, blanked)]):
        assert not bench.books(*kept, bench.put(free, bytes(len(raw)))).balances
        named_ones = bench.books(*kept, bench.put(free, bytes(len(raw))), names=[named(raw)])
        assert (named_ones.balances, named_ones.given_up) == (True, 1)
    good = bench.books(bench.put(at, raw), bench.put(free, bytes(len(raw))))
    assert (good.balances, good.moved, good.garbage, good.loses) == (True, 1, 1, 0)


@pytest.mark.parametrize("body", [b"p", b"placeholder", b"placeholder: the message stored here was destroyed", b"-1,"])
def test_a_message_that_only_reads_like_a_placeholder_is_given_up_by_name(bench: Bench, body: bytes) -> None:
    for own in ({}, {"properties": b""}):
        raw = changed(bench.raw(ONE), body=body, physical_offset=END, **own)
        bench.harm(END, raw)
        for over in (bytes(len(raw)), filler(END, len(raw), Setting()) or b""):
            assert not bench.books(bench.put(END, over)).balances
            assert bench.books(bench.put(END, over), names=[named(raw)]).given_up == 1


def with_properties(raw: bytes, text: bytes) -> bytes:
    """A record with other properties, as long as it says it is."""
    return changed(raw, properties=text)


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_whole_record_with_shorter_properties_is_another_record(bench: Bench, cut: int) -> None:
    """Its structure and its body are sound: nothing is wrong with it, so nothing is healed."""
    raw, at = bench.raw(ONE), ONE["commitLogOffset"]
    text = decode_record(raw)[0]["properties"]
    for shorter in (text[:-cut], text[cut:]):
        books = bench.books(bench.put(at, with_properties(raw, shorter).ljust(len(raw), b"\0")))
        assert (books.balances, books.healed) == (False, 0)
    same = bench.books(bench.put(at, with_properties(raw, text[:-cut].ljust(len(text), b"\x02"))))
    assert (same.balances, same.healed) == (False, 0)


def test_what_verify_doubts_in_a_record_is_no_licence_for_the_rest_of_it(bench: Bench) -> None:
    raw, at = bench.raw(ONE), ONE["commitLogOffset"]
    text = decode_record(raw)[0]["properties"]
    harmed = with_properties(raw, text[:9] + bytes(3) + text[12:])
    bench.harm(at, harmed)
    assert bench.books(bench.put(at, with_properties(raw, text[:9] + b"\x02" * 3 + text[12:]))).healed == 1
    assert not bench.books(bench.put(at, with_properties(raw, text[:9] + b"abc" + text[12:]))).balances
    assert not bench.books(bench.put(at, with_properties(raw, b"\x02" * len(text)))).balances


def test_a_queue_offset_is_not_healed_against_the_unit_of_its_place(bench: Bench) -> None:
    """Neighbours say what is due; a unit that leads from there to another record says that this is none of them."""
    row = next(r for r in TRUTH[500:] if r["topic"] == "LabOrders")
    raw, at = bench.raw(row), row["commitLogOffset"]
    bench.harm(at, changed(raw, queue_offset=row["queueOffset"] + 4))
    assert bench.books(bench.put(at, raw)).healed == 1
    assert not bench.books(bench.put(at, changed(raw, queue_offset=row["queueOffset"] + 3))).balances


def queue_of(row: dict[str, Any]) -> tuple[str, int]:
    """File of the queue of a message and the place of its unit in it."""
    at = row["queueOffset"] * 20
    return f"consumequeue/{row['topic']}/{row['queueId']}/{at // 1000 * 1000:020d}", at % 1000


def test_the_only_unit_of_a_whole_record_is_not_taken_away(bench: Bench) -> None:
    row = next(r for r in reversed(TRUTH) if r["topic"] == "LabOrders")
    file, at = queue_of(row)
    unit = (bench.root / file).read_bytes()[at : at + 20]
    elsewhere = TRUTH[3]["commitLogOffset"].to_bytes(8, "big") + unit[8:]
    for after in (bytes(20), elsewhere):
        books = bench.books(Overwrite(file, at, unit, after))
        assert (books.balances, named(bench.raw(row)) in books.problems[0]) == (False, True)
    assert not bench.books(Quarantine("consumequeue/LabOrders")).balances
    assert not bench.books(Quarantine(file)).balances
    gone = bench.books(
        Overwrite(file, at, unit, bytes(20)),
        bench.put(row["commitLogOffset"], stand_in(row)),
        names=[named(bench.raw(row))],
    )
    assert gone.balances, "what is given up needs none"
    assert bench.books(Overwrite(file, at, unit, unit[:12] + bytes(8))).balances, "its tags code is built again"


def test_one_record_that_must_not_be_healed_keeps_no_other_from_it(bench: Bench, tmp_path: Path) -> None:
    healable = TRUTH[600]
    bench.harm(ONE["commitLogOffset"], bench.raw(OTHER))
    bench.harm(healable["commitLogOffset"] + 4, bytes(4))
    books = planned(bench.store, tmp_path).books
    assert (books.balances, books.healed) == (True, 1)
