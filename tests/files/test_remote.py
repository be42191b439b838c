"""Remote trees and files: the same bytes, names and scan as on this machine, and errors that say what to do."""

from __future__ import annotations

import pickle
import re
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import golden
from rmqctl.errors import IOFailure, MissingExtra, NotAStore
from rmqctl.files.local import ByteSource, LocalFile
from rmqctl.files.remote import RemoteFile, RemoteTree, is_url, join_url, open_tree, protocol_of, split_url
from rmqctl.files.tree import LocalTree, Tree, read_all
from rmqctl.installation import line_for_extra
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_path, open_store

STORE = "5.3.3-crash"


@pytest.fixture
def memory() -> str:
    """The URL of an empty directory in memory."""
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def uploaded() -> str:
    url = f"memory://{uuid.uuid4().hex}/store"
    fsspec.filesystem("memory").put(str(golden.pristine(STORE)), url.removeprefix("memory:/"), recursive=True)
    return url


def put(url: str, data: bytes) -> str:
    with fsspec.open(url, "wb") as file:
        file.write(data)
    return url


def listing(tree: Tree, path: str = "") -> list[tuple[str, bool, int]]:
    """Every path below one, whether it is a directory, and its size if it is a file."""
    found = []
    for entry in tree.entries(path):
        found.append((entry.path, entry.is_directory, 0 if entry.is_directory else entry.size))
        if entry.is_directory:
            found += listing(tree, entry.path)
    return found


def scanned(tree: Tree) -> list[tuple[Any, ...]]:
    """Everything the scan of the commit log yields."""
    found: list[tuple[Any, ...]] = []
    for item in CommitLog(open_store(tree).log_files).walk():
        block = item.block
        found += [(block.file, p, "message") for p in block.position.tolist()]
        found += [(block.file, g.position, g.end, g.why) for g in block.gaps]
        found += [(f.id, f.file, f.offset, f.message) for f in item.findings]
    return found


class Counted:
    """A file system that remembers which ranges were asked for."""

    def __init__(self) -> None:
        self.inner = fsspec.filesystem("memory")
        self.ranges: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def cat_file(self, path: str, start: int, end: int) -> Any:
        self.ranges.append((start, end))
        return self.inner.cat_file(path, start=start, end=end)


def test_a_remote_store_lists_and_scans_like_the_local_one(uploaded: str) -> None:
    local, remote = LocalTree(golden.pristine(STORE)), open_tree(uploaded)
    assert isinstance(remote, RemoteTree)
    assert [row for row in listing(remote) if not row[1]] == [row for row in listing(local) if not row[1]]
    expected = scanned(local)
    assert len(expected) > 500
    assert scanned(remote) == expected


def test_what_is_not_there_is_nothing(uploaded: str, memory: str) -> None:
    tree = open_tree(uploaded)
    assert tree.stat("nothing") is None
    assert tree.entries("nothing") == []
    assert tree.entries("checkpoint") == []
    assert open_tree(memory).entries("") == []
    assert read_all(tree, "nothing") is None
    with pytest.raises(NotAStore):
        open_store(open_tree(memory))


def test_entries_know_size_kind_and_time(uploaded: str) -> None:
    tree = open_tree(uploaded)
    checkpoint, log = tree.stat("checkpoint"), tree.stat("commitlog")
    assert checkpoint is not None
    assert log is not None
    assert (checkpoint.name, checkpoint.path, checkpoint.size, checkpoint.is_directory) == (
        "checkpoint",
        "checkpoint",
        4096,
        False,
    )
    assert checkpoint.mtime_ms > 1_500_000_000_000
    assert log.is_directory
    assert tree.child("commitlog").entries("")[0].path == "0" * 20


def test_missing_files_raise_with_the_url(uploaded: str) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        open_tree(uploaded).open("commitlog/nothing").size()
    assert caught.value.filename == f"{uploaded}/commitlog/nothing"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 200_000)), max_size=8))
def test_reads_in_any_order_equal_the_bytes(reads: list[tuple[int, int]]) -> None:
    data = bytes(range(251)) * 1000
    source = RemoteFile(put(f"memory://{uuid.uuid4().hex}/file", data))
    for offset, size in reads:
        assert source.read_at(offset, size) == data[offset : offset + size]
        buffer = bytearray(size)
        assert source.read_into(offset, memoryview(buffer)) == len(data[offset : offset + size])


def test_a_file_read_from_front_to_back_is_fetched_in_large_pieces(memory: str) -> None:
    put(f"{memory}/file", bytes(40 << 20))
    counted = Counted()
    source = RemoteFile(f"{memory}/file", filesystem=counted)
    for offset in range(0, 40 << 20, 1 << 20):
        assert len(source.read_at(offset, (1 << 20) + 100)) == min((1 << 20) + 100, (40 << 20) - offset)
    assert len(counted.ranges) <= 5
    assert all(a[1] == b[0] for a, b in zip(counted.ranges, counted.ranges[1:], strict=False))
    assert max(end - start for start, end in counted.ranges) <= 16 << 20


def test_reads_here_and_there_fetch_little(memory: str) -> None:
    put(f"{memory}/file", bytes(4 << 20))
    counted = Counted()
    source = RemoteFile(f"{memory}/file", filesystem=counted)
    for offset in (0, 3 << 20, 1 << 20, 40):
        source.read_at(offset, 4)
    assert sum(end - start for start, end in counted.ranges) <= 4 * (64 << 10)


def test_a_growing_file_is_longer_when_asked_again(memory: str) -> None:
    source = RemoteFile(put(f"{memory}/file", b"12345"))
    assert source.size() == 5
    assert source.read_at(0, 100) == b"12345"
    put(f"{memory}/file", b"1234567")
    assert source.size() == 7
    assert source.read_at(5, 100) == b"67"


def test_a_file_that_shrinks_reads_short(memory: str) -> None:
    class Shrinking(Counted):
        def cat_file(self, path: str, start: int, end: int) -> Any:
            put(f"memory://{path}", b"123")
            raise OSError(22, "Requested Range Not Satisfiable")

    put(f"{memory}/file", b"12345")
    assert RemoteFile(f"{memory}/file", filesystem=Shrinking()).read_at(4, 1) == b""


def test_trees_and_files_travel_as_url_and_options(uploaded: str) -> None:
    tree = RemoteTree(uploaded, {"skip_instance_cache": True})
    source = tree.open("checkpoint")
    expected = source.read_at(0, 4096)
    state = pickle.dumps((tree, source))
    assert b"MemoryFileSystem" not in state
    other, again = pickle.loads(state)
    assert listing(other) == listing(tree)
    assert again.name == "checkpoint"
    assert again.read_at(0, 4096) == expected


def test_pyarrow_file_systems_work_as_objects(tmp_path: Path) -> None:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    root = golden.pristine(STORE)
    tree = RemoteTree("", filesystem=SubTreeFileSystem(str(root), LocalFileSystem()))
    assert [row for row in listing(tree, "config") if not row[1]] == listing(LocalTree(root), "config")
    assert read_all(tree, "checkpoint") == (root / "checkpoint").read_bytes()
    assert listing(pickle.loads(pickle.dumps(tree)), "index") == listing(LocalTree(root), "index")


def test_pyarrow_speaks_protocols_that_fsspec_does_not() -> None:
    assert open_tree("mock:///store").entries("") == []


def test_an_archive_is_a_tree(tmp_path: Path) -> None:
    import shutil

    archive = shutil.make_archive(str(tmp_path / "store"), "zip", golden.pristine("4.5.2-clean"))
    tree = open_tree(f"zip://::file://{archive}")
    assert listing(tree.child("index")) == listing(LocalTree(golden.pristine("4.5.2-clean") / "index"))
    assert read_all(tree, "checkpoint") == (golden.pristine("4.5.2-clean") / "checkpoint").read_bytes()


def test_file_urls_are_local_paths(tmp_path: Path) -> None:
    (tmp_path / "%RETRY%ab").mkdir()
    (tmp_path / "my store").mkdir()
    for url, path in (
        (f"file://{tmp_path}/%RETRY%ab", tmp_path / "%RETRY%ab"),
        (f"file://{tmp_path}/my%20store", tmp_path / "my store"),
        (f"file://localhost{tmp_path}", tmp_path),
        (str(tmp_path), tmp_path),
    ):
        tree = open_tree(url)
        assert isinstance(tree, LocalTree)
        assert Path(tree.root) == path
    source: ByteSource = LocalFile(__file__)
    assert open_tree(f"file://{Path(__file__).parent}").open(Path(__file__).name).read_at(0, 9) == source.read_at(0, 9)
    source.close()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("s3://bucket/a/b", ("s3://", "bucket/a/b", "")),
        ("simplecache::s3://bucket/a", ("simplecache::s3://", "bucket/a", "")),
        ("zip://a::s3://bucket/x.zip", ("zip://", "a", "::s3://bucket/x.zip")),
    ],
)
def test_urls_are_taken_apart_and_put_together(url: str, parts: tuple[str, str, str]) -> None:
    assert split_url(url) == parts
    assert "".join(parts) == url
    assert join_url(url, "") == url
    assert join_url(url, "c/d") == f"{parts[0]}{parts[1]}/c/d{parts[2]}"
    assert is_url(url)


@pytest.mark.parametrize("path", ["/store", "store", "C:\\store", "a::b", "c:/x", "%RETRY%g/0", ""])
def test_paths_are_no_urls(path: str) -> None:
    assert not is_url(path)


def test_protocols() -> None:
    assert protocol_of("S3://bucket/a") == "s3"
    assert protocol_of("simplecache::gs://bucket/a") == "gs"


def test_stores_parts_and_files_open_by_url(uploaded: str) -> None:
    store = open_path(uploaded)
    assert isinstance(store, StoreFiles)
    part = open_path(f"{uploaded}/commitlog/{0:020d}")
    assert isinstance(part, StoreFiles)
    assert (part.root, part.selection) == (uploaded, f"commitlog/{0:020d}")
    with pytest.raises(NotAStore, match="nothing is there; check the spelling"):
        open_path(f"{uploaded}/nothing")


def test_an_unknown_protocol_names_known_ones() -> None:
    with pytest.raises(NotAStore, match=r"no file system is known for nope://; give .* s3://"):
        open_tree("nope://host/path").entries("")


def missing(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Act as if a package were not installed."""

    def refuse(url: str, **options: Any) -> Any:
        try:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        except ModuleNotFoundError as error:
            raise ImportError("please install it") from error

    monkeypatch.setattr("fsspec.core.url_to_fs", refuse)


def test_s3_without_s3fs_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch, "s3fs")
    with pytest.raises(MissingExtra, match=re.escape(line_for_extra("s3"))) as caught:
        open_tree("s3://bucket/store").entries("")
    assert caught.value.exit_code == 14


def test_other_protocols_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch, "smbclient.session")
    with pytest.raises(MissingExtra, match=r"type: .*pip install smbprotocol") as caught:
        open_tree("smb://host/store").entries("")
    assert caught.value.exit_code == 14


class Failing:
    """A file system that fails in one way at everything."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def invalidate_cache(self, path: str) -> None:
        pass

    def info(self, path: str) -> Any:
        raise self.error

    def ls(self, path: str, *, detail: bool) -> Any:
        raise self.error


def test_refusals_keep_their_class_and_get_the_url() -> None:
    tree = RemoteTree("s3://bucket/store", filesystem=Failing(PermissionError("Access Denied.")))
    with pytest.raises(PermissionError) as caught:
        tree.entries("commitlog")
    assert (caught.value.filename, caught.value.strerror) == ("s3://bucket/store/commitlog", "Access Denied")
    with pytest.raises(PermissionError):
        tree.stat("lock")


def test_system_errors_get_the_url() -> None:
    with pytest.raises(OSError, match="timed out") as caught:
        RemoteTree("hdfs://host/store", filesystem=Failing(OSError(110, "timed out"))).stat("lock")
    assert caught.value.filename == "hdfs://host/store/lock"


def test_errors_of_other_packages_become_one_sentence() -> None:
    class NoCredentialsError(Exception):
        pass

    tree = RemoteTree("s3://bucket/store", filesystem=Failing(NoCredentialsError("Unable to locate credentials")))
    with pytest.raises(IOFailure, match=r"cannot read s3://bucket/store/lock: .*credentials; set AWS_ACCESS_KEY_ID"):
        tree.stat("lock")


def test_a_file_of_unknown_length_is_refused() -> None:
    class Endless(Failing):
        def info(self, path: str) -> Any:
            return {"name": path, "size": None, "type": "file"}

    with pytest.raises(IOFailure, match="does not say its length"):
        RemoteFile("http://host/file", filesystem=Endless(ValueError())).size()


def test_local_paths_never_load_fsspec() -> None:
    import subprocess
    import sys

    code = "import sys; from rmqctl.files.remote import open_tree; open_tree('.').entries(''); print('fsspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
