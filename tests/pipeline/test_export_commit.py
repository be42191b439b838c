"""Exports that are killed at every step: a reader sees all of the old or all of the new, and the next run mends the rest."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import fsspec
import orjson
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fixtures import golden
from rmqctl.errors import IOFailure, Refused
from rmqctl.files.remote import connect
from rmqctl.pipeline import outputs
from rmqctl.pipeline.export import Export, ExportChoices
from rmqctl.pipeline.export_task import ExportTask
from rmqctl.pipeline.outputs import LocalOutput, RemoteOutput, output_at
from rmqctl.rocketmq.verify.splits import Split
from rmqctl.tables import tables_of
from tests.pipeline import truths
from tests.pipeline.killing import Killed, killed
from tests.power import Recorder

STORE = "5.3.3-clean"
COLUMNS = ("physical_offset", "topic")


def work(task: ExportTask, splits: list[Split]) -> None:
    for split in splits:
        list(task.run(split))


def export(root: Path, out: str, size: int = 128 << 10, **choices: Any) -> int:
    made = Export(
        tables_of("rocketmq", {"path": str(root)}),
        output_at(out),
        ExportChoices(columns=COLUMNS, split_size=size, partition_by=(), **choices),
    )
    return made.run(made.plan(2), work).rows


def listed(out: Path) -> list[int]:
    """What a reader finds who lists directories."""
    if not out.exists():
        return []
    found = ds.dataset(out, format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["physical_offset"]).column(0).to_pylist()) if found.files else []


def named(out: Path) -> list[int]:
    """What a reader finds who goes by the manifest."""
    try:
        manifest = orjson.loads((out / "_manifest.json").read_bytes())
    except FileNotFoundError:
        return []
    tables = [pq.ParquetFile(out / file["path"]).read(["physical_offset"]) for file in manifest["files"]]
    rows = sorted(offset for table in tables for offset in table.column(0).to_pylist())
    assert len(rows) == manifest["rows"]
    return rows


def killed_at(step: int) -> AbstractContextManager[list[int]]:
    """Nothing on the disk changes from a step on; gives the number of steps that were tried."""
    return killed(step, [
        (Path, "replace"), (Path, "unlink"), (Path, "symlink_to"), (Path, "mkdir"), (os, "link"), (shutil, "rmtree"),
        (os, "unlink"), (os, "rmdir"), (Path, "rename"), (outputs, "exchange_paths"),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[int], list[int]]:
    """A store when it was short and when it had grown, and what each holds."""
    grown = golden.unpack(STORE, tmp_path_factory.mktemp("grown"))
    short = golden.unpack(STORE, tmp_path_factory.mktemp("short"))
    for file in sorted((short / "commitlog").iterdir())[2:]:
        file.unlink()
    after = [row["physical_offset"] for row in truths.expected(STORE)]
    bound = sum(file.stat().st_size for file in (short / "commitlog").iterdir())
    return short, grown, [offset for offset in after if offset < bound], after


KINDS = {
    "first": {},
    "overwrite": {"overwrite": True},
    "incremental": {"incremental": True},
    "compact": {"incremental": True, "compact": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_step_leaves_all_of_the_old_or_all_of_the_new(
    kind: str, logs: tuple[Path, Path, list[int], list[int]], tmp_path: Path
) -> None:
    short, grown, before, after = logs
    old = [] if kind == "first" else before
    step, is_over, seen = 0, False, set()
    while not is_over:
        out = tmp_path / f"out-{step}"
        if kind != "first":
            export(short, str(out), 96 << 10)
        with killed_at(step) as tried:
            export(grown, str(out), **KINDS[kind])
        is_over = tried[0] <= step
        found = named(out)
        assert listed(out) == found, step
        assert found in (old, after), step
        seen.add(len(found))
        # whatever is asked for next, with whatever splits, the result holds each message once
        again = [("overwrite", 100 << 10), ("incremental", 64 << 10), (kind, 128 << 10), (kind, 80 << 10)][step % 4]
        if found or again[0] != "incremental":  # which needs something to continue
            choices = KINDS["overwrite" if found and again[0] == "first" else again[0]]
            export(grown, str(out), again[1], **choices)
            assert named(out) == listed(out) == after, step
            assert sorted(path.name for path in out.iterdir()) == ["_manifest.json", "data"], step
        shutil.rmtree(out)
        step += 1
    assert seen == {len(old), len(after)}


def test_one_that_was_broken_off_leaves_the_next_its_work(
    logs: tuple[Path, Path, list[int], list[int]], tmp_path: Path
) -> None:
    short, grown, before, after = logs
    out, run = tmp_path / "out", list[int]()

    def broken(task: ExportTask, splits: list[Split]) -> None:
        run.append(len(splits))
        work(task, splits[:2])
        raise Killed

    def noting(task: ExportTask, splits: list[Split]) -> None:
        run.append(len(splits))
        work(task, splits)

    def make(root: Path, size: int | None, how: Callable[[ExportTask, list[Split]], None], **choices: Any) -> None:
        made = Export(
            tables_of("rocketmq", {"path": str(root)}),
            output_at(str(out)),
            ExportChoices(columns=COLUMNS, split_size=size, **choices),
        )
        made.run(made.plan(2), how)

    with pytest.raises(Killed):
        make(short, 40 << 10, broken)
    make(short, None, noting)  # the same again, of a size that it chooses: goes on
    assert (named(out), run[1]) == (before, run[0] - 2)
    with pytest.raises(Killed):
        make(grown, 30 << 10, broken, overwrite=True)
    assert named(out) == listed(out) == before
    with pytest.raises(Refused, match="--incremental"):
        make(grown, None, work)
    make(grown, None, work, incremental=True)
    assert named(out) == listed(out) == after


def test_remote_outputs_are_switched_by_the_manifest(logs: tuple[Path, Path, list[int], list[int]]) -> None:
    short, grown, before, after = logs
    memory = fsspec.filesystem("memory")
    url = "memory://exports/one"

    def rows() -> list[int]:
        manifest = orjson.loads(memory.cat_file("/exports/one/_manifest.json"))
        found = []
        for file in manifest["files"]:
            with memory.open(f"/exports/one/{file['path']}") as stream:
                found += pq.read_table(stream, columns=["physical_offset"]).column(0).to_pylist()
        return sorted(found)

    export(short, url)
    assert rows() == before
    export(grown, url, incremental=True)
    assert rows() == after
    steps = 0
    while True:
        with killed_remote(steps) as tried:
            export(grown, url, (20 + steps) << 10, overwrite=True)
        assert rows() == after, steps
        if tried[0] <= steps:
            break
        steps += 7
    files = {name for name in memory.find("/exports/one") if name.endswith(".parquet")}
    manifest = orjson.loads(memory.cat_file("/exports/one/_manifest.json"))
    assert files == {f"/exports/one/{file['path']}" for file in manifest["files"]}
    memory.rm("/exports", recursive=True)


@contextmanager
def killed_remote(step: int) -> Iterator[list[int]]:
    tried = [0]
    names = ("create", "write", "remove")
    real = {name: getattr(RemoteOutput, name) for name in names}

    def guarded(name: str) -> Callable[..., Any]:
        def act(*args: Any) -> Any:
            tried[0] += 1
            if tried[0] > step:
                raise Killed
            return real[name](*args)

        return act

    for name in names:
        setattr(RemoteOutput, name, guarded(name))
    try:
        yield tried
    except Killed:
        pass
    finally:
        for name in names:
            setattr(RemoteOutput, name, real[name])


def test_two_at_once_are_refused(logs: tuple[Path, Path, list[int], list[int]], tmp_path: Path) -> None:
    short, out = logs[0], str(tmp_path / "out")
    made = Export(tables_of("rocketmq", {"path": str(short)}), output_at(out), ExportChoices(columns=COLUMNS))
    with LocalOutput(out).alone(), pytest.raises(Refused, match="another export"):
        made.run(made.plan(2), work)
    export(short, out)
    with pytest.raises(Refused, match="changed by another export"):
        made.run(made.plan(2), work)


def test_an_export_of_an_earlier_release_is_left_alone(
    tmp_path: Path, logs: tuple[Path, Path, list[int], list[int]]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "_manifest.json").write_text(orjson.dumps({"version": 1, "layout": {}, "files": []}).decode())
    with pytest.raises(Refused, match="another directory"):
        export(logs[0], str(out), overwrite=True)


def test_all_is_on_the_disk_when_it_is_done(logs: tuple[Path, Path, list[int], list[int]], tmp_path: Path) -> None:
    short, grown, _, _ = logs
    for root, incremental in ((short, False), (grown, True)):
        recorder = Recorder(tmp_path)
        with recorder.recording():
            export(root, str(tmp_path / "deep" / "out"), incremental=incremental)
        assert recorder.unsafe() == []


def remote_rows(memory: Any, url: str) -> list[int]:
    manifest = orjson.loads(memory.cat_file(f"{url}/_manifest.json"))
    found = []
    for file in manifest["files"]:
        with memory.open(f"{url}/{file['path']}") as stream:
            found += pq.read_table(stream, columns=["physical_offset"]).column(0).to_pylist()
    return sorted(found)


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_two_at_one_url(kind: str, logs: tuple[Path, Path, list[int], list[int]], request: Any) -> None:
    """The second is refused, and the first has all of its rows."""
    url = "memory://exports/two" if kind == "memory" else request.getfixturevalue("bucket") + "/two"
    grown, after = logs[1], logs[3]
    other: list[BaseException | None] = []

    def second(task: ExportTask, splits: list[Split]) -> None:
        work(task, splits[:2])
        try:
            export(grown, url, 96 << 10)
        except Refused as error:
            other.append(error)
        work(task, splits[2:])

    made = Export(
        tables_of("rocketmq", {"path": str(grown)}), output_at(url), ExportChoices(columns=COLUMNS, partition_by=())
    )
    made.run(made.plan(2), second)
    assert "another export is at work" in str(other[0])
    filesystem, root = connect(url, {})
    assert remote_rows(filesystem, root) == after
    assert not filesystem.exists(f"{root}/_owner.json")
    export(grown, url, overwrite=True)


@contextmanager
def beside(step: int, act: Callable[[], None]) -> Iterator[list[int]]:
    """Do something in front of one access to a remote output; gives the number of those there were."""
    counted, is_at_work = [0], [False]
    names = ("create", "read", "names", "remove", "claim", "open", "is_empty", "size", "clear")
    real = {name: getattr(RemoteOutput, name) for name in names}

    def watched(name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if counted[0] == step and not is_at_work[0]:
                is_at_work[0] = True
                act()
                is_at_work[0] = False
            counted[0] += not is_at_work[0]
            return real[name](*args, **more)

        return call

    for name in names:
        setattr(RemoteOutput, name, watched(name))
    try:
        yield counted
    finally:
        for name in names:
            setattr(RemoteOutput, name, real[name])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["first", "overwrite", "incremental"])
@pytest.mark.parametrize("place", ["memory", "s3"])
def test_another_export_at_any_step_is_refused_or_whole(
    place: str, kind: str, logs: tuple[Path, Path, list[int], list[int]], request: Any
) -> None:
    """One of the two is made, or one after the other, and nothing of the refused one is left."""
    url = "memory://exports/beside" if place == "memory" else request.getfixturevalue("bucket") + "/beside"
    short, grown, _, after = logs
    filesystem, root = connect(url, {})
    step, stride = (0, 1) if place == "memory" else (2, 5)
    is_over, seen = False, set[tuple[str, ...]]()

    def one(size: int, said: list[str]) -> None:
        try:
            export(grown, url, size, **KINDS[kind])
        except Refused:
            said.append("refused")
        else:
            said.append("made")

    while not is_over:
        if kind != "first":
            export(short, url, 96 << 10)
        said: list[str] = []
        with beside(step, lambda said=said: one(80 << 10, said)) as accesses:  # type: ignore[misc]
            one(96 << 10, said)
        is_over = accesses[0] <= step
        seen.add(tuple(said))
        filesystem.invalidate_cache()
        assert remote_rows(filesystem, root) == after, step
        files = {name for name in filesystem.find(root) if name.endswith(".parquet")}
        named = orjson.loads(filesystem.cat_file(f"{root}/_manifest.json"))["files"]
        assert files == {f"{root}/{file['path']}" for file in named}, step
        assert not filesystem.exists(f"{root}/_owner.json"), step
        filesystem.rm(root, recursive=True)
        step += stride
    assert {("made", "refused"), ("refused", "made"), ("made",)} <= seen <= {
        ("made", "refused"), ("refused", "made"), ("made", "made"), ("made",)
    }  # fmt: skip


def test_the_place_of_an_export_that_was_killed_is_taken_over(logs: tuple[Path, Path, list[int], list[int]]) -> None:
    memory, url = fsspec.filesystem("memory"), "memory://exports/killed"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    owner = {"token": "a", "host": platform.node(), "pid": ended.pid, "since": "2026-11-21T00:00:00+00:00"}
    memory.pipe_file("/exports/killed/_owner.json", orjson.dumps(owner))
    assert export(logs[1], url) == len(logs[3])
    memory.pipe_file("/exports/killed/_owner.json", orjson.dumps(owner | {"host": "elsewhere"}))
    with pytest.raises(Refused, match=r"on elsewhere, process .* delete memory://exports/killed/_owner.json"):
        export(logs[1], url, overwrite=True)

    def robbed(task: ExportTask, splits: list[Split]) -> None:
        work(task, splits)
        memory.pipe_file("/exports/killed/_owner.json", orjson.dumps(owner | {"host": "elsewhere"}))

    memory.rm_file("/exports/killed/_owner.json")
    made = Export(tables_of("rocketmq", {"path": str(logs[0])}), output_at(url), ExportChoices(overwrite=True))
    with pytest.raises(Refused, match="another export is at work"):
        made.run(made.plan(2), robbed)
    assert remote_rows(memory, "/exports/killed") == logs[3]
    memory.rm("/exports", recursive=True)


@pytest.mark.parametrize("what", ["_done", "parquet"])
@pytest.mark.parametrize("place", ["memory", "local"])
def test_what_tasks_have_written_and_is_gone_is_missed(
    place: str, what: str, logs: tuple[Path, Path, list[int], list[int]], tmp_path: Path
) -> None:
    out = "memory://exports/cleared" if place == "memory" else str(tmp_path / "out")

    def cleared(task: ExportTask, splits: list[Split]) -> None:
        work(task, splits)
        filesystem, root = connect(out, {})
        filesystem.invalidate_cache()
        filesystem.rm_file(max(name for name in filesystem.find(root) if what in name))

    made = Export(tables_of("rocketmq", {"path": str(logs[1])}), output_at(out), ExportChoices(columns=COLUMNS))
    with pytest.raises(IOFailure, match="is gone"):
        made.run(made.plan(2), cleared)
    assert output_at(out).manifest() is None


@pytest.mark.parametrize("place", ["memory", "local"])
def test_what_a_loss_of_power_took_is_written_again(
    place: str, logs: tuple[Path, Path, list[int], list[int]], tmp_path: Path
) -> None:
    """The names of notes are on the disk, that of a file of rows is not; no sync has asked for either."""
    out = "memory://exports/cut" if place == "memory" else str(tmp_path / "out")
    filesystem, root = connect(out, {})

    def cut(task: ExportTask, splits: list[Split]) -> None:
        work(task, splits)
        filesystem.invalidate_cache()
        filesystem.rm_file(max(name for name in filesystem.find(root) if "parquet" in name))
        raise Killed

    def run(how: Callable[[ExportTask, list[Split]], None]) -> None:
        tables = tables_of("rocketmq", {"path": str(logs[1])})
        made = Export(tables, output_at(out), ExportChoices(columns=COLUMNS))
        made.run(made.plan(2), how)

    with pytest.raises(Killed):
        run(cut)
    redone = list[Split]()
    run(lambda task, splits: (redone.extend(splits), work(task, splits))[1])
    assert len(redone) == 1
    manifest = output_at(out).manifest()
    assert manifest is not None
    assert manifest.rows == len(logs[3])
    if place == "local":
        assert named(Path(out)) == listed(Path(out)) == logs[3]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'rmqctl[s3]'")
    server_module = pytest.importorskip("moto.server", reason="no S3 emulator: pip install 'moto[server]'")
    pytest.importorskip("flask", reason="the S3 emulator is not whole: pip install 'moto[server]'")
    import s3fs

    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {"endpoint_url": f"http://{host}:{port}", "key": "test", "secret": "test"}
    monkeypatch.setitem(fsspec.config.conf, "s3", settings)
    name = f"bucket-{token_hex(4)}"  # the emulator keeps its buckets as long as this process
    s3fs.S3FileSystem(**settings).mkdir(name)
    yield f"s3://{name}"
    server.stop()
