"""SYSFLAG overwritten: a message that its queue still points to must not become one that no consumer gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.findings import Severity
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.repair.heal import mend_compression
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

SIZE = 131072
SYSFLAG, TRANSACTION, COMPRESSED = 36, 0xC, 0x1
HALF, ROLLBACK = 0x4, 0xC
NOTHING_BUT_ONE_BIT, GARBAGE, NOT_COMPRESSED = (HALF, ROLLBACK), (0x6D584, 0x4148E), 0x40001


def messages(base: str) -> list[dict[str, Any]]:
    return [r for r in golden.truth(base) if r["kind"] == "msg" and r["storedBodyLen"] and not r["sysFlag"] & 0xFC]


def chosen(base: str) -> Iterator[dict[str, Any]]:
    """The first of a queue, one in the middle, a compressed one, and the last of a queue."""
    found = messages(base)
    yield next(r for r in found if r["queueOffset"] == 0 and not r["sysFlag"])
    yield next(r for r in found if r["queueOffset"] == 9 and not r["sysFlag"])
    yield next(r for r in found if r["storedBodyLen"] != r["bodyLen"])
    if base.endswith("clean"):  # its unit is there: that of a crashed store's last record is not
        yield next(r for r in reversed(found) if not r["sysFlag"])


@pytest.fixture
def overwritten(tmp_path: Path) -> Callable[[str, dict[str, Any], int], tuple[Path, Path, int]]:
    """A store with another SYSFLAG in one record; its root, the file, and where the record lies in it."""

    def write(base: str, record: dict[str, Any], flags: int) -> tuple[Path, Path, int]:
        root = golden.unpack(base, tmp_path)
        at = record["commitLogOffset"]
        file = root / "commitlog" / f"{at // SIZE * SIZE:020d}"
        with file.open("r+b") as log:
            log.seek(at % SIZE + SYSFLAG)
            log.write(flags.to_bytes(4, "big"))
        return root, file, at % SIZE

    return write


@pytest.mark.parametrize(
    ("base", "number"), [(b, n) for b in ("4.9.8-clean", "5.5.0-crash") for n in range(len(list(chosen(b))))]
)
@pytest.mark.parametrize("flags", [*NOTHING_BUT_ONE_BIT, *GARBAGE])
def test_what_has_a_place_in_a_queue_is_no_half_message(
    base: str, number: int, flags: int, overwritten: Callable[..., tuple[Path, Path, int]], tmp_path: Path
) -> None:
    record = list(chosen(base))[number]
    root, file, at = overwritten(base, record, flags)
    apply(plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path).plan, journal_dir=tmp_path / "journal")
    before = (golden.pristine(base) / "commitlog" / file.name).read_bytes()
    after = file.read_bytes()
    if record["storedBodyLen"] != record["bodyLen"]:  # a garbled field; with few bits wrong the rest is believed
        assert after[at + SYSFLAG + 3] & COMPRESSED == (flags in GARBAGE)
        after = after[: at + SYSFLAG] + before[at + SYSFLAG : at + SYSFLAG + 4] + after[at + SYSFLAG + 4 :]
    assert after[at : at + record["storeSize"]] == before[at : at + record["storeSize"]]
    found = Verification(open_store_at(str(root)), VerifyOptions()).findings()
    assert [f for f in found if f.level is Severity.ERROR] == []


def test_a_body_that_is_not_compressed_is_not_called_so(
    overwritten: Callable[..., tuple[Path, Path, int]], tmp_path: Path
) -> None:
    """A client cannot open it, and throws away the messages that come with it."""
    base = "5.5.0-clean"
    root, file, _ = overwritten(base, next(r for r in messages(base) if not r["sysFlag"]), NOT_COMPRESSED)
    apply(plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path).plan, journal_dir=tmp_path / "journal")
    assert file.read_bytes() == (golden.pristine(base) / "commitlog" / file.name).read_bytes()


def test_the_codec_that_opens_the_body_counts() -> None:
    record = next(r for r in messages("5.5.0-clean") if r["storedBodyLen"] != r["bodyLen"])
    at = record["commitLogOffset"]
    file = golden.pristine("5.5.0-clean") / "commitlog" / f"{at // SIZE * SIZE:020d}"
    raw = file.read_bytes()[at % SIZE :][: record["storeSize"]]
    assert mend_compression(raw) is None
    wrong = raw[:SYSFLAG] + (0x701).to_bytes(4, "big") + raw[SYSFLAG + 4 :]
    mended = mend_compression(wrong)
    assert mended is not None
    assert mended.record[SYSFLAG + 3] & COMPRESSED
    assert mend_compression(mended.record) is None


@pytest.mark.parametrize(
    ("base", "flags"),
    [("5.5.0-clean", flags) for flags in (0x101, 0x201, 0x701, 0x601, 0x300)] + [("4.5.2-clean", 0)],
)
def test_compression_is_what_the_others_of_the_store_say(
    base: str, flags: int, overwritten: Callable[[str, dict[str, Any], int], tuple[Path, Path, int]], tmp_path: Path
) -> None:
    """A zlib body with another type, or without the flag: the type that all others name, and the flag."""
    record = next(r for r in messages(base) if r["storedBodyLen"] != r["bodyLen"])
    root, file, _ = overwritten(base, record, flags)
    apply(plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path).plan, journal_dir=tmp_path / "journal")
    assert file.read_bytes() == (golden.pristine(base) / "commitlog" / file.name).read_bytes()


@pytest.mark.parametrize("at", [20, 24, 26, 27])
def test_the_queue_offset_of_an_inner_batch(at: int, tmp_path: Path) -> None:
    """The records of its queue around it tell it, or its unit and its own property."""
    for record in [r for r in golden.truth("5.5.0-clean") if r["kind"] == "msg" and r["topic"] == "LabBatchCq"][:4]:
        root = golden.unpack("5.5.0-clean", tmp_path / str(record["commitLogOffset"]))
        file = root / "commitlog" / f"{record['commitLogOffset'] // SIZE * SIZE:020d}"
        content = bytearray(file.read_bytes())
        content[record["commitLogOffset"] % SIZE + at] ^= 0x04
        before = (golden.pristine("5.5.0-clean") / "commitlog" / file.name).read_bytes()
        file.write_bytes(content)
        (tmp_path / f"built-{record['commitLogOffset']}").mkdir()
        built = tmp_path / f"built-{record['commitLogOffset']}"
        apply(plan_repair(open_store_at(str(root)), RepairOptions(), built).plan, journal_dir=built / "journal")
        assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["4.9.8-crash", "5.5.0-clean"])
@pytest.mark.parametrize("at", [52, 68])
def test_a_port_that_is_none(name: str, at: int, tmp_path: Path) -> None:
    """The three bytes in front of its last: the upper two are put right, the address and the rest stay."""
    root = golden.unpack(name, tmp_path)
    record = next(t for t in golden.truth(name) if t["kind"] == "msg" and t["commitLogOffset"] > 3000)
    path, place = root / "commitlog" / f"{0:020d}", record["commitLogOffset"] + at
    before = path.read_bytes()
    path.write_bytes(before[:place] + b"\xd5\x83" + before[place + 2 :])
    repair = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path)
    assert [step.id for step in repair.plan.steps if step.id.startswith("log.")] == ["log.port"]
    apply(repair.plan, journal_dir=tmp_path / "journal")
    assert path.read_bytes() == before
