"""Logs that were cut and have grown again, or were made again: who reads on notices, and says how to go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fixtures import golden
from rmqctl.errors import Refused
from rmqctl.pipeline.data_source import Following, places_of
from rmqctl.pipeline.export import Export, ExportChoices
from rmqctl.pipeline.export_task import ExportTask
from rmqctl.pipeline.outputs import output_at
from rmqctl.tables import LostMessages, StreamStart, tables_of
from tests.pipeline import truths

ROCKET, KAFKA = "4.5.2-clean", "4.3.1-clean"
PARTITION = "z-zstd-1"


def following(format: str, root: Path, *, fail: bool = True, **options: str) -> Following:
    found = tables_of(format, {"path": str(root), **options})
    return Following(found.path, found.log(), StreamStart(fail_on_loss=fail))


def read(stream: Following, start: Any, end: Any) -> list[dict[str, Any]]:
    return [row for part in stream.parts(start, end) for batch in stream.read(part) for row in batch.to_pylist()]


# --- RocketMQ ---------------------------------------------------------------------------------------


class Log:
    """A RocketMQ log whose tail goes and comes again, with other store times, as a broker writes it anew."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.true = truths.expected(ROCKET)
        self.files = sorted((root / "commitlog").iterdir())
        self.sound = {path: path.read_bytes() for path in self.files}
        self.cut_at: int = self.true[-21]["physical_offset"]

    def cut(self) -> None:
        self._write(lambda row, data: bytes(len(data)))

    def grow_again(self, count: int) -> list[int]:
        """Write so many of the records that were cut, an hour later; their offsets."""
        again = [row["physical_offset"] for row in self.true if row["physical_offset"] >= self.cut_at][:count]

        def later(row: dict[str, Any], data: bytes) -> bytes:
            if row["physical_offset"] not in again:
                return bytes(len(data))
            time = int.from_bytes(data[56:64], "big") + 3_600_000
            return data[:56] + time.to_bytes(8, "big") + data[64:]

        self._write(later)
        return again

    def _write(self, change: Callable[[dict[str, Any], bytes], bytes]) -> None:
        for path, sound in self.sound.items():
            data = bytearray(sound)
            for row in self.true:
                if row["file"] == path.name and row["physical_offset"] >= self.cut_at:
                    begin, end = row["position"], row["position"] + row["size"]
                    data[begin:end] = change(row, bytes(data[begin:end]))
            path.write_bytes(data)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    root = golden.unpack(ROCKET, tmp_path)
    shutil.rmtree(root / "consumequeue")
    return Log(root)


def test_a_log_that_ends_before_where_it_was_read_ends_the_stream(log: Log) -> None:
    stream = following("rocketmq", log.root)
    end = stream.latest(stream.first())
    assert stream.latest(end) == end
    log.cut()
    with pytest.raises(LostMessages, match=f"ends at {log.cut_at} now"):
        stream.latest(end)
    with pytest.raises(LostMessages, match="failOnDataLoss"):
        stream.parts(stream.first(), end)


def test_a_log_that_ends_before_where_it_was_read_loses_no_record_that_comes(log: Log) -> None:
    stream = following("rocketmq", log.root, fail=False)
    end = stream.latest(stream.first())
    log.cut()
    with pytest.warns(UserWarning, match=f"goes on at {log.cut_at}"):
        back = stream.latest(end)
    assert places_of(back) == {"physical_offset": log.cut_at}
    assert read(stream, end, back) == []
    again = log.grow_again(9)
    assert [row["physical_offset"] for row in read(stream, back, stream.latest(back))] == again


@pytest.mark.parametrize("more", [0, 5])
def test_a_log_that_was_cut_and_grew_again_ends_the_stream(log: Log, more: int) -> None:
    """It reaches up to where it was read, or beyond, with records of the same places and sizes."""
    stream = following("rocketmq", log.root)
    at = {"physical_offset": log.true[-1 - more]["physical_offset"]}
    end = at | {"marks": stream.log.marks(at)}
    log.grow_again(21)
    with pytest.raises(LostMessages, match="another record"):
        stream.latest(end)
    with pytest.warns(UserWarning, match="earlier release"):
        stream.latest(dict(at))  # of an earlier release


def test_a_log_whose_first_files_expire_is_the_same(log: Log) -> None:
    stream = following("rocketmq", log.root)
    at = {"physical_offset": int(log.files[1].name)}
    end = at | {"marks": stream.log.marks(at)}
    assert end["marks"]
    log.files[0].unlink()
    assert places_of(stream.latest(end)) == places_of(stream.latest(stream.first()))


# --- Kafka ------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    root = golden.unpack(KAFKA, tmp_path)
    for name in ("high", "cleaner"):
        for path in root.glob(f"{name}*-checkpoint"):
            path.unlink()
    return root


def kafka(directory: Path, **more: Any) -> Following:
    return following("kafkalog", directory, topic=PARTITION.rpartition("-")[0], **more)


def batches(directory: Path, partition: str) -> tuple[Path, list[tuple[int, int]]]:
    """The last segment of a partition, and where its batches begin: position and base offset."""
    path = max((directory / partition).glob("*.log"))
    data, found, at = path.read_bytes(), [], 0
    while at + 12 <= len(data):
        found.append((at, int.from_bytes(data[at : at + 8], "big")))
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return path, found


def cut(directory: Path, epoch: int | None = None, partition: str = PARTITION) -> int:
    """Cut a partition in its last segment; with an epoch, have a leader write the same again. The offset of the cut."""
    path, known = batches(directory, partition)
    position, offset = known[len(known) // 2]
    data = bytearray(path.read_bytes())
    if epoch is None:
        del data[position:]
    else:
        for at, _ in known[len(known) // 2 :]:
            data[at + 12 : at + 16] = epoch.to_bytes(4, "big")
        (directory / partition / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n{epoch} {offset}\n")
    path.write_bytes(data)
    return offset


def test_a_partition_that_ends_before_where_it_was_read_ends_the_stream(directory: Path) -> None:
    stream = kafka(directory)
    end = stream.latest(stream.first())
    assert stream.latest(end) == end
    offset = cut(directory)
    with pytest.raises(LostMessages, match=f"{PARTITION} ends at {offset} now"):
        stream.latest(end)
    with pytest.warns(UserWarning, match="goes on at"):
        assert kafka(directory, fail=False).latest(end)[PARTITION] == offset


def test_a_partition_that_was_cut_and_grew_again_ends_the_stream(directory: Path) -> None:
    stream = kafka(directory)
    end = stream.latest(stream.first())
    offset = cut(directory, 7)
    with pytest.raises(LostMessages, match="another batch"):
        stream.latest(end)
    on = kafka(directory, fail=False)
    with pytest.warns(UserWarning, match=f"goes on at {offset}"):
        back = on.latest(end)
    rows = read(on, back, on.latest(back))
    assert [row["offset"] for row in rows] == list(range(offset, end[PARTITION]))
    (directory / "cleaner-offset-checkpoint").write_text(f"0\n1\nz-zstd 1 {offset}\n")
    assert stream.latest(end)[PARTITION] == end[PARTITION]  # compaction writes batches anew, too


def test_a_topic_that_was_made_again_ends_the_stream(directory: Path) -> None:
    stream = kafka(directory)
    end = stream.latest(stream.first())
    path = directory / PARTITION / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with pytest.raises(LostMessages, match="made again"):
        stream.latest(end)
    with pytest.warns(UserWarning, match="goes on at 0"):
        assert kafka(directory, fail=False).latest(end)[PARTITION] == 0
    shutil.rmtree(directory / PARTITION)
    with pytest.raises(LostMessages, match="no longer here"):
        stream.latest(end)


# --- exports ----------------------------------------------------------------------------------------


def export(format: str, root: Path, out: Path, work: Callable[[ExportTask, list[Any]], None], **choices: Any) -> int:
    column = "physical_offset" if format == "rocketmq" else "offset"
    options = ExportChoices(columns=(column, "topic"), partition_by=(), split_size=128 << 10, **choices)
    made = Export(tables_of(format, {"path": str(root)}), output_at(str(out)), options)
    return made.run(made.plan(2), work).rows


def work(task: ExportTask, parts: list[Any]) -> None:
    for part in parts:
        list(task.run(part))


def test_an_export_is_not_continued_from_another_log(log: Log, tmp_path: Path) -> None:
    out = tmp_path / "out"
    rows = export("rocketmq", log.root, out, work)
    assert export("rocketmq", log.root, out, work, incremental=True) == rows
    log.grow_again(21)
    with pytest.raises(Refused, match=r"another record lies in front.*--overwrite"):
        export("rocketmq", log.root, out, work, incremental=True)
    log.cut()
    with pytest.raises(Refused, match=f"ends at {log.cut_at} now"):
        export("rocketmq", log.root, out, work, incremental=True)
    assert export("rocketmq", log.root, out, work, overwrite=True) == rows - 21


def test_an_export_that_was_broken_off_does_not_go_on_in_another_log(log: Log, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def broken(task: ExportTask, parts: list[Any]) -> None:
        work(task, parts)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export("rocketmq", log.root, out, broken)
    again = log.grow_again(21)
    ran = list[int]()
    export("rocketmq", log.root, out, lambda task, parts: (ran.append(len(parts)), work(task, parts))[1])
    assert ran[0] > 1
    assert set(again) < {
        n for path in out.rglob("*.parquet") for n in pq.read_table(path)["physical_offset"].to_pylist()
    }


def test_a_log_that_is_cut_while_it_is_exported_is_no_export(log: Log, tmp_path: Path) -> None:
    def cutting(task: ExportTask, parts: list[Any]) -> None:
        work(task, parts)
        log.cut()

    with pytest.raises(Refused, match="changed while it was exported"):
        export("rocketmq", log.root, tmp_path / "out", cutting)
    assert not (tmp_path / "out" / "_manifest.json").exists()


def test_an_export_keeps_partitions_that_are_gone(directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    rows = export("kafkalog", directory, out, work)
    shutil.rmtree(directory / PARTITION)
    assert export("kafkalog", directory, out, work, incremental=True) == rows
    offset = cut(directory, partition="z-zstd-0")
    with pytest.raises(Refused, match=f"z-zstd-0 ends at {offset} now"):
        export("kafkalog", directory, out, work, incremental=True)


# --- no false alarms --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*golden.NAMES, *golden.KAFKA_NAMES])
def test_a_log_as_it_is_has_not_changed(name: str) -> None:
    """Whatever its end looks like, crashed, compacted or with open transactions, and wherever it was read up to."""
    format = "rocketmq" if name in golden.NAMES else "kafkalog"
    for options in [{}] if format == "rocketmq" else [{}, {"readCommitted": "true"}]:
        log = tables_of(format, {"path": str(golden.pristine(name)), **options}).log()
        begin, ends = log.begin(), [log.end(), log.end(growing=False)]
        for places in [begin, *ends, *(log.end(begin, size) for size in (1, 5_000, 200_000))]:
            assert log.changes(places, log.marks(places)) == []
            assert log.changes(places, {}) == []
