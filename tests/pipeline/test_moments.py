"""A log changes at any moment of an export or of a batch of a stream: all rows of one of its states, or an error.

Retention deletes its first file, or it is cut and grows again, at every access to its files in turn.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pyarrow.parquet as pq
import pytest

from fixtures import golden
from rmqctl.errors import RmqctlError
from rmqctl.files import local
from rmqctl.files.remote import connect
from rmqctl.files.tree import LocalTree
from rmqctl.pipeline.data_source import Following
from rmqctl.pipeline.export import Export, ExportChoices, here
from rmqctl.pipeline.outputs import output_at
from rmqctl.tables import StreamStart, tables_of
from tests.pipeline.test_cut_logs import Log, cut
from tests.pipeline.test_export_commit import bucket  # noqa: F401 - a fixture

Places = list[tuple[Any, ...]]
Make = Callable[[], Places]
STORES = {"rocketmq": "4.5.2-clean", "kafkalog": "4.3.1-clean"}
COLUMNS = {"rocketmq": ("physical_offset", "store_timestamp"), "kafkalog": ("topic", "offset", "leader_epoch")}
PARTITION = "z-zstd-1"


def of(format: str, root: Path) -> dict[str, str]:
    return {"path": str(root), "splitSize": "64K" if format == "rocketmq" else "2K"}


@contextmanager
def at_access(step: int, change: Callable[[], object]) -> Iterator[list[int]]:
    """Change something in front of one access to files; gives the number of those there were."""
    counted, is_at_work = [0], [False]
    calls = [(local, "opened"), (local.LocalFile, "read_at"), (local.LocalFile, "read_into"), (LocalTree, "entries")]
    real = [getattr(owner, name) for owner, name in calls]

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **more: Any) -> Any:
            if counted[0] == step and not is_at_work[0]:
                is_at_work[0] = True
                change()
                is_at_work[0] = False
            counted[0] += not is_at_work[0]
            return call(*args, **more)

        return act

    for (owner, name), call in zip(calls, real, strict=True):
        setattr(owner, name, watched(call))
    try:
        yield counted
    finally:
        for (owner, name), call in zip(calls, real, strict=True):
            setattr(owner, name, call)


class Changing:
    """A store that something happens to, and what it holds before and after it."""

    def __init__(self, format: str, how: str, room: Path) -> None:
        self.format, self.how = format, how
        self.sound = golden.unpack(STORES[format], room / "sound")
        topic = PARTITION.rpartition("-")[0]
        for path in sorted(self.sound.glob("*-*/") if format == "kafkalog" else [self.sound / "consumequeue"]):
            if not path.name.startswith(topic):
                shutil.rmtree(path)
        for name in ("high", "cleaner"):
            for path in self.sound.glob(f"{name}*-checkpoint"):
                path.unlink()
        self.root = room / "changing"
        self.again()
        self.before = self.rows()
        self.change()
        self.after = self.rows()

    def again(self) -> Path:
        shutil.rmtree(self.root, ignore_errors=True)
        golden.copy_tree(self.sound, self.root)
        return self.root

    def change(self) -> None:
        if self.how == "cut" and self.format == "rocketmq":
            Log(self.root).grow_again(9)
        elif self.how == "cut":
            cut(self.root, epoch=7)
        elif self.format == "rocketmq":
            min((self.root / "commitlog").iterdir()).unlink()
        else:
            first = min((self.root / PARTITION).glob("*.log"))
            for path in (self.root / PARTITION).glob(f"{first.stem}.*"):
                path.unlink()

    def rows(self) -> Places:
        tables = tables_of(self.format, {**of(self.format, self.root), "columns": ",".join(COLUMNS[self.format])})
        table = tables.table(tables.names[0])
        return sorted(tuple(row.values()) for part in table.parts() for b in table.read(part) for row in b.to_pylist())


@pytest.fixture(params=["rocketmq", "kafkalog"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["retention", "cut"])
def changing(request: pytest.FixtureRequest, format: str, tmp_path: Path) -> Changing:
    return Changing(format, request.param, tmp_path)


def exported(changing: Changing, out: str) -> Places:
    """Rows of a new export by its manifest."""
    asked = ExportChoices(columns=COLUMNS[changing.format], partition_by=(), split_size=64 << 10)
    made = Export(tables_of(changing.format, of(changing.format, changing.root)), output_at(out), asked)
    made.run(made.plan(2), here(1))
    return read(out, COLUMNS[changing.format])


def read(out: str, columns: tuple[str, ...]) -> Places:
    output = output_at(out)
    manifest, found = output.manifest(), []
    for file in manifest.files if manifest else ():
        with output.open(file.path) as stream:
            found += [tuple(row.values()) for row in pq.read_table(stream, columns=list(columns)).to_pylist()]
    return sorted(found)


def followed(changing: Changing) -> Places:
    """Rows of the first batch of a stream."""
    tables = tables_of(
        changing.format, {**of(changing.format, changing.root), "columns": ",".join(COLUMNS[changing.format])}
    )
    stream = Following(tables.path, tables.log(), StreamStart())
    start = stream.first()
    parts = stream.parts(start, stream.latest(start))
    return sorted(tuple(row.values()) for part in parts for b in stream.read(part) for row in b.to_pylist())


def check(changing: Changing, make: Make, stride: int) -> None:
    """Hold what comes of a change in front of every access, or every so many, to what the log held at some time."""
    step, ended, seen = 0, False, set[str]()
    while not ended:
        changing.again()
        with at_access(step, changing.change) as accesses:
            try:
                found = make()
            except RmqctlError as error:
                seen.add(type(error).__name__)
            else:
                assert found in (changing.before, changing.after), f"{step}: {len(found)} rows"
                seen.add("before" if found == changing.before else "after")
        ended = accesses[0] <= step
        step += stride
    assert "before" in seen  # with nothing that happened, at last


@pytest.mark.parametrize("stride", [43, pytest.param(1, marks=pytest.mark.slow)])
def test_a_batch_of_a_stream(changing: Changing, stride: int) -> None:
    check(changing, lambda: followed(changing), stride)


@pytest.mark.parametrize(
    ("place", "stride"),
    [("local", 43), *(pytest.param(place, 1, marks=pytest.mark.slow) for place in ("local", "memory"))],
)
def test_an_export(changing: Changing, place: str, stride: int, tmp_path: Path) -> None:
    check(changing, lambda: exported(changing, _new(place, tmp_path)), stride)


@pytest.mark.slow
def test_an_export_to_s3(changing: Changing, bucket: str) -> None:  # noqa: F811
    check(changing, lambda: exported(changing, f"{bucket}/{token_hex(4)}"), 7)


def _new(place: str, room: Path) -> str:
    if place == "local":
        shutil.rmtree(room / "out", ignore_errors=True)
        return str(room / "out")
    filesystem, path = connect("memory://moments", {})
    if filesystem.exists(path):
        filesystem.rm(path, recursive=True)
    return "memory://moments/out"
