"""Lives of messages: what the drivers of the golden stores did to each, and what is left of it on damaged copies."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqctl
from fixtures import golden
from rmqctl.rocketmq.query.life import LifeReader
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.state.releases import release_range

CLEAN = [f"{release}-clean" for release in golden.RELEASES]
READ = {"stored", "passed", "waiting"}


def lives(path: Path, message: str) -> list[dict[str, Any]]:
    answer = rmqctl.open(path).trace(message)
    answer.prepare()
    assert answer.document is not None
    return list(answer.document()["lives"])


def reader(path: Path) -> LifeReader:
    store = rmqctl.open(path).files  # type: ignore[union-attr]
    return LifeReader(RecoveredStore(store, release_range(store).highest), bool)


def messages(name: str) -> list[dict[str, Any]]:
    return [record for record in golden.truth(name) if record["kind"] == "msg"]


def fates(name: str) -> dict[str, set[str]]:
    """Fates that a message may have, by its key, from what the producers and the broker did as the driver has it."""
    by_key = defaultdict[str, list[dict[str, Any]]](list)
    for record in messages(name):
        if record["properties"].get("TAGS") and record["properties"].get("KEYS"):
            by_key[record["properties"]["KEYS"]].append(record)
    found = dict[str, set[str]]()
    for key, records in by_key.items():
        tag, topics = records[0]["properties"]["TAGS"], {record["topic"] for record in records}
        given_up = {"given-up"} if "TRANS_CHECK_MAX_TIME_TOPIC" in topics else {"open"}
        known = {
            "Txcommit": READ, "late": READ, "Txrollback": {"rolled-back"}, "Txunknown": given_up, "TxPending": given_up,
            "TxOpen": given_up, "Delay": READ, "DelayPending": {"delayed"}, "Timer": READ, "TimerFar": {"timed"},
            "TimerAbs": {"timed"}, "R": READ,
        }  # fmt: skip
        if tag in known and len({record["uniqKey"] for record in records}) == 1:
            found[key] = {"dead-lettered"} if any(t.startswith("%DLQ%") for t in topics) else known[tag]
    return found


@pytest.mark.parametrize("name", CLEAN)
def test_fates_are_those_that_the_driver_gave(name: str) -> None:
    lives_ = reader(golden.pristine(name))
    expected = fates(name)
    assert len(expected) > 25
    for key, wanted in expected.items():
        (life,), more = lives_.named(key, None, 5)
        assert life.fate in wanted, (key, life.sentence)
        assert not more
    lives_.close()
    lives_.started.close()


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean"])
def test_every_copy_is_a_step_at_its_place(name: str) -> None:
    """Steps name the byte at which each copy lies, in the order of the log."""
    lives_, root = reader(golden.pristine(name)), golden.pristine(name)
    by_unique = defaultdict[str, list[dict[str, Any]]](list)
    for record in messages(name):
        if record["uniqKey"]:
            by_unique[record["uniqKey"]].append(record)
    several = [key for key, records in by_unique.items() if len(records) > 1]
    assert several
    for key in several:
        (life,), _ = lives_.named(key, None, 5)
        copies = [event for event in life.events if "physical_offset" in event.more]
        expected = [(r["commitLogOffset"], r["storeTimestamp"], r["topic"]) for r in by_unique[key]]
        assert [(e.more["physical_offset"], e.time, e.more["topic"]) for e in copies] == expected
        for event in copies:
            assert event.file is not None
            assert event.position is not None
            data = (root / event.file).read_bytes()[event.position :]
            assert int.from_bytes(data[28:36], "big") == event.more["physical_offset"]
    lives_.close()
    lives_.started.close()


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean", "5.3.3-crash"])
def test_units_and_entries_are_where_the_steps_say(name: str) -> None:
    root, lives_ = golden.pristine(name), reader(golden.pristine(name))
    seen = set[str]()
    for record in messages(name)[::17]:
        if record["topic"].startswith(("SCHEDULE", "RMQ_SYS", "rmq_sys", "TRANS_CHECK")) or not record["uniqKey"]:
            continue
        found, _ = lives_.named(record["uniqKey"], None, 5)
        for event in (event for life in found for event in life.events if event.position is not None):
            assert event.file is not None
            data = (root / event.file).read_bytes()[event.position :]
            own = {e.more["physical_offset"] for life in found for e in life.events if "physical_offset" in e.more}
            if event.what == "dispatched":
                assert int.from_bytes(data[:8], "big") in own
            elif event.what == "indexed":
                assert int.from_bytes(data[4:12], "big") in own
            seen.add(event.what)
    assert seen >= {"stored", "dispatched", "indexed"}
    lives_.close()
    lives_.started.close()


def test_a_place_leads_to_the_same_life_as_its_key() -> None:
    root = golden.pristine("5.5.0-clean")
    assert lives(root, "LabTx/1@0") == lives(root, "tx0") == lives(root, lives(root, "tx0")[0]["unique_key"])


def test_a_retry_says_who_popped_the_message_before() -> None:
    """The row of the database goes when the message comes again."""
    pytest.importorskip("rocksdict")
    name, retry = "5.5.0-rdbpop-clean", "%RETRY%Pk_grpPop_PkPop"
    lives_, log = reader(golden.pristine(name)), golden.oracle(name)["clientLog"]
    first = {
        (e["queueId"], e["queueOffset"]): int(e["ck"].split()[1])
        for e in log if e["what"] == "pop" and e["group"] == "Pk_grpPop" and e["ck"].split()[4] == "0"
    }  # fmt: skip
    revived = {row["uniqKey"] for row in messages(name) if row["topic"] == retry}
    found = 0
    for (queue, offset), at in first.items():
        (life,) = lives_.at_place("PkPop", queue, offset)
        if life.identity["unique_key"] in revived:
            times = [e.time for e in life.events if e.what == "popped" and e.more["group"] == "Pk_grpPop"]
            assert times == [at], life.sentence
            found += 1
    assert found > 3


def test_pop_consumers() -> None:
    """Messages that were popped and not acknowledged are in flight; what the lab acknowledged is not."""
    pytest.importorskip("rocksdict")
    name = "5.5.0-rdbpop-clean"
    lives_, log = reader(golden.pristine(name)), golden.oracle(name)["clientLog"]
    topics = {0: "PkPop", 1: "%RETRY%Pk_grpPop_PkPop"}
    popped, done = set[tuple[str, str, int, int]](), set[tuple[str, str, int, int]]()
    for entry in log:
        if entry["what"] in {"pop", "ack"}:
            place = entry["group"], topics[int(entry["ck"].split()[4])], entry["queueId"], entry["queueOffset"]
            (popped if entry["what"] == "pop" else done).add(place)
    revived = {r["uniqKey"] for r in messages(name) if r["topic"] == topics[1]}
    assert len(popped) > 30
    for group, topic, queue, offset in sorted(popped):
        (life,) = lives_.at_place(topic, queue, offset)
        taken = {(event.more["group"]) for event in life.events if event.what == "taken"}
        again = {g for g, t, q, o in popped - done if (t, q, o) == (topics[1], queue, offset)}
        if (group, topic, queue, offset) in done and life.identity["unique_key"] not in revived:
            assert group not in taken
        elif topic == topics[0] and life.identity["unique_key"] not in revived:
            assert group in taken
            assert life.fate == "in-flight"
        del again
    lives_.close()
    lives_.started.close()


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean"])
def test_groups_have_passed_what_lies_in_front_of_their_offsets(name: str) -> None:
    root = golden.pristine(name)
    lives_ = reader(root)
    rows = [row for row in rmqctl.open(root).lag() if row["group"].startswith("Lab_") and row["file"]]  # type: ignore[union-attr]
    assert rows
    for row in rows:
        for offset in {row["min_offset"], row["consumer_offset"] - 1, row["consumer_offset"]}:
            if row["min_offset"] <= offset < row["max_offset"]:
                (life,) = lives_.at_place(row["topic"], row["queue_id"], offset)
                own = {e.what for e in life.events if e.more.get("group") == row["group"] and "offset" in e.text}
                assert ("passed" if offset < row["consumer_offset"] else "not-passed") in own
    lives_.close()
    lives_.started.close()


def test_what_was_deleted_with_its_file(tmp_path: Path) -> None:
    """A group that had passed a deleted message, one that had not; and a unit in front of the log."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    for file in sorted((root / "commitlog").iterdir())[:3]:
        file.unlink()
    (life,) = lives(root, "LabLog/0@20")
    assert life["fate"] == "deleted"
    assert "after group Lab_grpLag passed it" in life["sentence"]
    (life,) = lives(root, "LabLog/0@42")
    assert life["fate"] == "deleted"
    assert "before group Lab_grpLag read it" in life["sentence"]
    (life,) = lives(root, "LabLog/0@151")
    assert life["fate"] == "unwritten"


def test_a_message_that_no_index_holds(tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    for file in (root / "index").iterdir():
        file.unlink()
    (life,) = lives(root, "tx0")
    assert [event["text"] for event in life["events"] if event["what"] == "not-indexed"]
    assert life["fate"] == "stored"


def test_an_older_copy_of_offsets_proves_only_what_was_passed(tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    offsets = root / "config" / "consumerOffset.json"
    offsets.write_bytes(b"{")
    assert lives(root, "LabLog/0@20")[0]["fate"] == "passed"
    (life,) = lives(root, "LabLog/0@149")
    assert life["fate"] == "unknown"
    assert any(event["file"] == "config/consumerOffset.json.bak" for event in life["events"])


def test_a_topic_with_damaged_bytes_leaves_the_fate_unknown(tmp_path: Path) -> None:
    """No CRC covers the topic: the message is found by its key, and nobody can tell whether it waited."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    waiting = next(r for r in messages("5.5.0-clean") if r["topic"] == "SCHEDULE_TOPIC_XXXX")
    for file in (root / "commitlog").iterdir():
        at = waiting["commitLogOffset"] - int(file.name)
        if 0 <= at < file.stat().st_size:
            raw = bytearray(file.read_bytes())
            raw[raw.index(b"SCHEDULE", at) + 3] = 0
            file.write_bytes(raw)
    (life,) = lives(root, waiting["properties"]["KEYS"])
    assert life["fate"] == "unknown"
    assert "bytes that no topic has" in life["sentence"]


@pytest.mark.parametrize(
    "key", ["", " ", "\0", "a/b@c", "LabLog/0@", "x/0@5", "é", "a" * 4000, "%s", "-", "\udcff", "/@"]
)
def test_hostile_keys_find_nothing(key: str) -> None:
    answer = rmqctl.open(golden.pristine("5.5.0-clean")).trace(key)  # type: ignore[union-attr]
    assert list(answer) == []
    assert answer.is_no


def harmed(name: str, into: Path, seed: int) -> Path:
    """A copy with some stretches of its log overwritten."""
    root, chance = golden.unpack(name, into), random.Random(seed)
    end = next(r["phy"] for r in golden.truth(name) if r["kind"] == "end")
    files = sorted((root / "commitlog").iterdir())
    size = files[0].stat().st_size
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(320_000 if end > 480_000 else 0, end)
        file, inside = files[at // size], at % size
        count = min(chance.choice([1, 40, 500, 5000]), size - inside)
        with file.open("r+b") as opened:
            opened.seek(inside)
            opened.write(chance.choice([bytes(count), chance.randbytes(count)]))
    return root


def wrong(lives_: LifeReader, expected: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    for key, wanted in expected.items():
        found, _ = lives_.named(key, None, 5)
        for life in found:
            if life.fate in wanted or life.fate in {"unknown", "deleted"}:
                continue
            if wanted == {"dead-lettered"} and "may hold more" in life.sentence:
                continue  # what is said of it is true, and not all
            yield key, life.sentence


@pytest.mark.parametrize(
    "seed", [*range(4), 214, 228, 452, *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 80))]
)
def test_no_fate_is_wrong_on_damaged_copies(seed: int, tmp_path: Path) -> None:
    name = CLEAN[seed % len(CLEAN)]
    lives_ = reader(harmed(name, tmp_path, seed))
    assert list(wrong(lives_, fates(name))) == []
    lives_.close()
    lives_.started.close()


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_no_fate_is_wrong_where_the_end_of_the_log_is_gone(name: str, part: float, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    file = max((root / "commitlog").iterdir())
    with file.open("r+b") as opened:
        keep = int(part * 100_000)
        opened.seek(keep)
        opened.write(bytes(file.stat().st_size - keep))
    lives_ = reader(root)
    assert list(wrong(lives_, fates(name))) == []
    lives_.close()
    lives_.started.close()
