"""A store on S3, as an emulator on this machine has it, reads like the store on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.errors import NotAStore
from rmqctl.files.remote import RemoteTree, open_tree
from rmqctl.files.tree import LocalTree, Tree
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.geometry import geometry_of
from rmqctl.rocketmq.store.locate import open_store

pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'rmqctl[s3]'")
pytest.importorskip("moto.server", reason="the S3 emulator is not installed: pip install 'moto[server]'")
pytest.importorskip("flask", reason="the S3 emulator is not whole: pip install 'moto[server]'")

STORE = "5.5.0-propcrc-clean"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def options(endpoint: str) -> dict[str, str]:
    return {"endpoint_url": endpoint, "key": "test", "secret": "test"}


@pytest.fixture(scope="module")
def store(options: dict[str, str]) -> str:
    import s3fs

    system = s3fs.S3FileSystem(**options)
    system.mkdir("bucket")
    root = golden.pristine(STORE)
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        system.pipe_file(f"bucket/stores/{STORE}/{path.relative_to(root)}", path.read_bytes())
    return f"s3://bucket/stores/{STORE}"


def files(tree: Tree, path: str = "") -> list[tuple[str, int]]:
    found = []
    for entry in tree.entries(path):
        found += files(tree, entry.path) if entry.is_directory else [(entry.path, entry.size)]
    return found


def records(tree: Tree) -> list[tuple[str, int]]:
    log = CommitLog(open_store(tree).log_files)
    return [(item.block.file, p) for item in log.walk() for p in item.block.position.tolist()]


def test_a_store_on_s3_scans_like_the_local_one(store: str, options: dict[str, str]) -> None:
    remote, local = open_tree(store, options), LocalTree(golden.pristine(STORE))
    assert files(remote) == files(local)
    assert records(remote) == records(local)
    assert len(records(remote)) == len([t for t in golden.truth(STORE) if t["kind"] == "msg"])
    assert geometry_of(open_store(remote)) == geometry_of(open_store(local))
    assert [q.path for q in open_store(remote).queues()] == [q.path for q in open_store(local).queues()]


def test_what_is_not_on_s3_is_no_store(options: dict[str, str]) -> None:
    for url in ("s3://bucket/other", "s3://no-such-bucket/store"):
        with pytest.raises(NotAStore):
            open_store(open_tree(url, options))


def test_a_missing_object_raises_with_its_url(store: str, options: dict[str, str]) -> None:
    tree = open_tree(store, options)
    assert tree.stat("abort") is None
    with pytest.raises(FileNotFoundError) as caught:
        tree.open("abort").size()
    assert caught.value.filename == f"{store}/abort"


def test_ranges_behind_the_end_are_empty(store: str, options: dict[str, str]) -> None:
    source = open_tree(store, options).open("checkpoint")
    assert source.read_at(4090, 100) == (golden.pristine(STORE) / "checkpoint").read_bytes()[4090:]
    assert source.read_at(5000, 10) == b""


def test_an_object_cut_while_it_is_read_reads_short(options: dict[str, str], store: str) -> None:
    import s3fs

    system = s3fs.S3FileSystem(**options)
    system.pipe_file("bucket/cut", bytes(1 << 20))
    source = RemoteTree("s3://bucket", options).open("cut")
    assert source.size() == 1 << 20
    system.pipe_file("bucket/cut", b"123")
    assert source.read_at(1 << 19, 10) == b""
    assert source.size() == 3


def test_the_environment_is_enough(store: str, endpoint: str) -> None:
    code = (
        "import sys, json, pickle; from rmqctl.files.remote import open_tree;"
        "tree = pickle.loads(pickle.dumps(open_tree(sys.argv[1])));"
        "print(json.dumps([[e.path, e.size] for e in tree.entries('commitlog')]))"
    )
    env = {**os.environ, **KEYS, "FSSPEC_S3_ENDPOINT_URL": endpoint}
    done = subprocess.run([sys.executable, "-c", code, store], env=env, capture_output=True, text=True, check=True)
    local = LocalTree(golden.pristine(STORE)).entries("commitlog")
    assert json.loads(done.stdout) == [[e.path, e.size] for e in local]


def test_an_endpoint_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    code = (
        "from rmqctl.errors import RmqctlError\n"
        "from rmqctl.files.remote import open_tree\n"
        "try: open_tree('s3://bucket/store').stat('lock')\n"
        "except (RmqctlError, OSError) as error: print('caught', error)"
    )
    env = {**os.environ, **KEYS, "FSSPEC_S3_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("caught cannot read s3://bucket/store/lock: EndpointConnectionError")
    assert "FSSPEC_S3_ENDPOINT_URL" in done.stdout


def test_a_walk_reads_it_as_on_disk(store: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views, messages, bytes and a search; the lines around them name the path."""
    pytest.importorskip("textual", reason="textual is not installed: pip install 'rmqctl[tui]'")
    from tests.browse.walking import Walk, walk

    for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(name, value)

    def screens(root: str) -> list[list[str]]:
        taken: list[list[str]] = []

        async def steps(w: Walk) -> None:
            for view in ("findings", "groups", "segments"):
                await w.choose(view)
                taken.append(w.lines[2:-4])
            await w.choose("RocksA", "0")
            taken.append(w.lines[2:-4])
            await w.press("enter", "b")
            taken.append(w.lines[2:-4])
            await w.find("@9")
            taken.append(w.lines[2:-4])

        walk(root, steps)
        return taken

    assert screens(store) == screens(str(golden.pristine(STORE)))
