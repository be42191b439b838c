"""Tables of a Kafka directory, and what is followed, beside a broker whose segments go: all is read as at one moment."""

from __future__ import annotations

import csv
import gc
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import IOFailure
from rmqctl.files.moment import Pin, pinned
from rmqctl.files.tree import LocalTree
from rmqctl.filters import Filters
from rmqctl.kafka.directory import moment
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, read_directory
from rmqctl.kafka.dump.dumping import Follow, _committed_views
from rmqctl.kafka.dump.segments import SegmentDump
from rmqctl.kafka.engine.batch import BatchHead, Ending
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.filters import Wanted
from rmqctl.kafka.log.reference import Record
from rmqctl.tables import tables_of
from tests.conftest import Rmqctl

RECORDS = 300
_SMALL = EngineConfig(log=LogConfig(segment_bytes=4000, index_interval=200))


def _put(engine: KafkaEngine, low: int, high: int) -> None:
    for n in range(low, high):
        engine.append("t", 0, [Record(0, 1_700_000_000_000 + n, -1, b"k", b"value %d" % n)])


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with many segments that counts as in use."""
    root = tmp_path / "logs"
    with KafkaEngine.open(root, _SMALL) as engine:
        engine.make_topic("t", 1, None)
        _put(engine, 0, RECORDS)
    monkeypatch.setattr(LogDirectory, "is_running", lambda self: True)
    return root


def _first(root: Path, count: int) -> list[Path]:
    return sorted((root / "t-0").glob("*.log"))[:count]


def _files(log: Path) -> list[Path]:
    return [file for file in log.parent.glob(f"{log.stem}.*") if file.suffix in {".log", ".index", ".timeindex"}]


def renamed(root: Path) -> None:
    """What retention does first."""
    for log in _first(root, 2):
        for file in _files(log):
            file.rename(f"{file}.deleted")


def unlinked(root: Path) -> None:
    for log in _first(root, 2):
        for file in _files(log):
            file.unlink()


def exchanged(root: Path) -> None:
    """What the cleaner does: the batches of the third segment stand in a file with the name of the first."""
    first, second, third = _first(root, 3)
    for file in _files(third):
        file.rename(first.with_suffix(f"{file.suffix}.swap"))
    for log in (first, second):
        for file in _files(log):
            file.unlink()
    for file in first.parent.glob("*.swap"):
        file.rename(file.with_suffix(""))


CHANGES = (renamed, unlinked, exchanged)
changes = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)


@pytest.fixture
def after_a_look(monkeypatch: pytest.MonkeyPatch, root: Path) -> Callable[..., None]:
    """Segments go once a moment was taken, the first or a later one: the next sees less."""

    def plant(change: Callable[[Path], None], looks: int = 1) -> None:
        taken, left = moment.tree_at_one_moment, [change, *[bool] * (looks - 1)]

        def look(*given: Any) -> Any:
            found = taken(*given)
            if left:
                left.pop()(root)
            return found

        monkeypatch.setattr(moment, "tree_at_one_moment", look)

    return plant


@changes
@pytest.mark.parametrize("query", ["count(*)", "count(distinct offset)"])
def test_sql(query: str, change: Any, rmqctl: Rmqctl, root: Path, after_a_look: Any) -> None:
    after_a_look(change)
    text = f"select (select {query} from records where topic = 't') a, (select sum(log_end_offset - log_start_offset) from topics) b"
    done = rmqctl("sql", root, "--engine", "local", "-o", "jsonl", text)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {"a": RECORDS, "b": RECORDS}


@changes
def test_stats(change: Any, rmqctl: Rmqctl, root: Path, after_a_look: Any) -> None:
    after_a_look(change)
    done = rmqctl("stats", root, "--engine", "local", "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert {row["topic"]: row["records"] for row in json.loads(done.stdout)["topic"]}["t"] == RECORDS


@changes
def test_export(change: Any, rmqctl: Rmqctl, root: Path, tmp_path: Path, after_a_look: Any) -> None:
    after_a_look(change, 2)  # one to see how large it is, one for the plan
    done = rmqctl(
        "export", root, tmp_path / "out", "--engine", "local", "--to", "csv", "--compression", "none", "--topic", "t"
    )
    assert done.exit_code == 0, done.stderr
    texts = [file.read_text() for file in (tmp_path / "out").rglob("*.csv")]
    rows = [row for text in texts for row in csv.DictReader(text.splitlines())]
    assert sorted(int(row["offset"]) for row in rows) == list(range(RECORDS))


@changes
@pytest.mark.parametrize("name", ["records", "batches"])
def test_parts_read_elsewhere_are_whole_or_an_error(name: str, change: Any, root: Path) -> None:
    """By a process that has no longer a way to the files which were kept open: it must not take others for them."""
    table: Any = tables_of("kafkalog", {"path": str(root), "splitSize": "1KiB", "topic": "t"}).table(name)
    parts = table.parts()
    sent = [pickle.dumps(part) for part in parts]
    assert max(map(len, sent)) < 2000
    change(root)
    assert sum(len(batch) for part in parts for batch in table.read(part)) == RECORDS
    del parts, table
    gc.collect()
    again: Any = tables_of("kafkalog", {"path": str(root)}).table(name)
    assert Pin.alive == 0
    with pytest.raises(IOFailure, match="deleted after the work was planned"):
        [batch for part in sent for batch in again.read(pickle.loads(part))]


@changes
def test_a_file_that_could_not_be_kept_open_is_not_taken_for_another(
    change: Any, rmqctl: Rmqctl, root: Path, after_a_look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moment, "pinned", lambda path: None if path.endswith(".log") else pinned(path))
    after_a_look(change)
    done = rmqctl("sql", root, "--engine", "local", "select count(*) from records")
    assert done.exit_code == 10, done.stdout
    assert "deleted after the work was planned" in done.stderr


class _Looks:
    """What is done between two looks, one after the other; then it ends."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)

    def __call__(self, seconds: float) -> None:
        if not self.steps:
            raise KeyboardInterrupt
        self.steps.pop(0)()


def _followed(root: Path, *steps: Callable[[], object]) -> list[Any]:
    """Offsets of batches, and messages of findings."""
    logs = LogDirectories([read_directory(LocalTree(str(root)))])
    seen: list[Any] = []
    rows = Follow(
        SegmentDump(Wanted(Filters())), logs, [p for p in logs.partitions if p.topic == "t"], _Looks(*steps)
    ).rows()
    with pytest.raises(KeyboardInterrupt):
        seen.extend(row.get("base_offset", row.get("message")) for row in rows if row is not None)
    return seen


@changes
def test_follow_reads_what_was_there_when_it_looked(change: Any, root: Path, after_a_look: Any) -> None:
    after_a_look(change)
    assert _followed(root) == list(range(RECORDS))


def test_follow_shows_each_batch_once_whatever_the_cleaner_joins(root: Path) -> None:
    """Segments roll and are joined between two looks, with batches that were not shown yet."""
    assert len(_first(root, 99)) > 4
    last = max((root / "t-0").glob("*.log"))

    def join() -> None:
        with KafkaEngine.open(root, _SMALL) as engine:
            _put(engine, RECORDS, 2 * RECORDS)
        logs = sorted(last.parent.glob("*.log"))
        at = logs.index(last)
        group = logs[at - 1 : at + 2]  # one that was shown, one in part, one that was not
        joined = group[0].with_suffix(".log.swap")
        joined.write_bytes(b"".join(log.read_bytes() for log in group))
        for log in group:
            for file in _files(log):
                file.unlink()
        os.rename(joined, group[0])

    assert _followed(root, join) == list(range(2 * RECORDS))


def test_follow_says_what_it_missed(root: Path) -> None:
    def pass_by() -> None:
        with KafkaEngine.open(root, _SMALL) as engine:
            _put(engine, RECORDS, 2 * RECORDS)
        for log in sorted((root / "t-0").glob("*.log"))[:-2]:
            for file in _files(log):
                file.unlink()

    seen = _followed(root, pass_by)
    begin = int(min((root / "t-0").glob("*.log")).stem)
    missed = f"offsets {RECORDS} to {begin - 1} were deleted before all was shown"
    assert seen == [*range(RECORDS), missed, *range(begin, 2 * RECORDS)]


def test_follow_begins_again_where_a_topic_was_made_again(root: Path) -> None:
    def again() -> None:
        for file in (root / "t-0").iterdir():
            file.unlink()
        (root / "t-0").rmdir()
        with KafkaEngine.open(root, _SMALL) as engine:
            engine.make_topic("t", 1, None)
            _put(engine, 0, 20)
        (root / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")

    assert _followed(root, again) == [*range(RECORDS), *range(20)]


@pytest.mark.parametrize("commit", [True, False])
def test_follow_shows_a_transaction_once_it_is_decided(root: Path, *, commit: bool) -> None:
    head = BatchHead(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    seen: list[Any] = []

    def begin() -> None:
        with KafkaEngine.open(root, _SMALL) as engine:
            engine.append("t", 0, [Record(0, 1_700_000_000_000, -1, b"k", b"of a transaction")], head)
            _put(engine, 0, 5)

    def end() -> None:
        with KafkaEngine.open(root, _SMALL) as engine:
            engine.end_transaction(Ending(7, 0, commit=commit, timestamp=1_700_000_000_000), [("t", 0)])
            _put(engine, 0, 5)

    logs = LogDirectories([read_directory(LocalTree(str(root)))])
    segments = SegmentDump(Wanted(Filters()))
    segments.views = _committed_views(logs)
    looks = _Looks(begin, lambda: seen.append("open"), end)
    rows = Follow(segments, logs, [p for p in logs.partitions if p.topic == "t"], looks).rows()
    with pytest.raises(KeyboardInterrupt):
        seen.extend(row["base_offset"] for row in rows if row is not None)
    first = RECORDS if commit else RECORDS + 1
    assert seen == [*range(RECORDS), "open", *range(first, RECORDS + 6), *range(RECORDS + 7, RECORDS + 12)]
