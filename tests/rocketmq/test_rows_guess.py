"""Files are known for what they are by name and content, wherever they lie."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from formats.rocketmq.consumequeue import PRE_BLANK, ConsumeQueueUnit
from rmqctl.errors import NotAStore
from rmqctl.files.local import BytesSource
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.kinds import first_offset, kind_of
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.dump.sources import file_source, identify
from rmqctl.rocketmq.store.file_kinds import FileKind, kind_at
from tests.rocketmq.log_files import log_of, record
from tests.rocketmq.rows_dledger_helpers import batch, entries, ext

NAME = "0" * 20
KINDS = {
    "commitlog": FileKind.COMMIT_LOG,
    "commitlog-a": FileKind.COMMIT_LOG,
    "commitlog-b": FileKind.COMMIT_LOG,
    "commitlog-c": FileKind.COMMIT_LOG,
    "consumequeue": FileKind.QUEUE,
    "batchconsumequeue": FileKind.BATCH_QUEUE,
    "index": FileKind.INDEX,
    "timerlog": FileKind.TIMER_LOG,
    "config": FileKind.CONFIG,
    "compaction": FileKind.CONFIG,
}


@pytest.mark.parametrize("name", ["4.5.2-clean", "5.1.4-crash", "5.5.0-clean", "5.5.0-multipath-clean"])
def test_every_file_of_real_stores(name: str) -> None:
    root = golden.pristine(name)
    for path in sorted(p for p in root.rglob("*") if p.is_file() and "rocksdb" not in p.parts[-2]):
        top = path.relative_to(root).parts[0]
        expected = {"timercheck": FileKind.TIMER_CHECK}.get(path.name, KINDS.get(top))
        if top == "commitlog" and not any(path.read_bytes()):
            expected = FileKind.COMMIT_LOG
        if len(path.relative_to(root).parts) == 1:
            expected = FileKind(top.removesuffix(".bak").replace("timerwheel", "timer-wheel"))
        assert kind_of(path.name, LocalTree(root).open(str(path.relative_to(root)))) is expected, path


def unit(physical: int) -> bytes:
    return bytes(ConsumeQueueUnit.build({"physical_offset": physical, "size": 126, "tags_code": 5}))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (log_of([record()]), FileKind.COMMIT_LOG),
        (b"\xff" * 64 + log_of([record()], 64), FileKind.COMMIT_LOG),
        (bytes(4096), FileKind.COMMIT_LOG),
        (unit(0) + unit(126) + bytes(60), FileKind.QUEUE),
        (PRE_BLANK * 3 + unit(9), FileKind.QUEUE),
        (batch(0) + batch(3), FileKind.BATCH_QUEUE),
        (ext(7) + ext(8), FileKind.QUEUE_EXT),
        (entries([b"a"]), FileKind.DLEDGER_DATA),
        (entries([None, b"a"]), FileKind.DLEDGER_DATA),
        (b"\xff\xff\xff\xff" + struct.pack(">i", 64) + bytes(56), FileKind.DLEDGER_DATA),
        (b"".join(struct.pack(">iqiqq", 1, n * 100, 100, n, 1) for n in range(3)), FileKind.DLEDGER_INDEX),
        (b"garbage, garbage, garbage, garbage, garbage", None),
        (b"", FileKind.COMMIT_LOG),
    ],
)
def test_files_named_by_offset(data: bytes, kind: FileKind | None) -> None:
    assert kind_of(NAME, BytesSource(data)) is kind


def test_a_copy_under_another_name_is_known_by_its_content(tmp_path: Path) -> None:
    log = log_of([record(), record()], 1 << 30)
    (tmp_path / "copy.bin").write_bytes(log)
    rows = list(Dump.of_file(LocalTree(tmp_path), "copy.bin", Request()).rows())
    assert [(r["kind"], r["position"]) for r in rows] == [("message", 0), ("message", len(log) // 2)]
    assert first_offset(BytesSource(log)) == 1 << 30
    assert first_offset(BytesSource(b"\xff" * 64 + log_of([record()], 64))) == 0


def test_a_file_of_no_kind(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotAStore, match=r"notes\.txt"):
        Dump.of_file(LocalTree(tmp_path), "notes.txt", Request())


@given(st.binary(max_size=300), st.sampled_from([NAME, "20261121014405104", "x", "checkpoint", "a.json", "timercheck"]))
def test_any_bytes_are_dumped_or_refused(data: bytes, name: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / name).write_bytes(data)
        try:
            dump = Dump.of_file(LocalTree(directory), name, Request())
        except NotAStore:
            return
        assert all(row["kind"] for row in dump.rows())


@pytest.mark.parametrize("head", [bytes(4096), b"\xff" * 4096, log_of([record()]).ljust(4096, b"\0")])
def test_the_place_in_a_store_counts_more_than_damaged_bytes(tmp_path: Path, head: bytes) -> None:
    """Rows and annotated bytes of a file go by the same kind."""
    path = f"timerlog/{NAME}"
    (tmp_path / "timerlog").mkdir()
    (tmp_path / path).write_bytes(head)
    file, kind = identify(LocalTree(tmp_path), path, path)
    assert kind is FileKind.TIMER_LOG is kind_at(path)
    list(file_source(LocalTree(tmp_path), path, path, Request())())  # type: ignore[operator]
    assert file.base == int(NAME)
