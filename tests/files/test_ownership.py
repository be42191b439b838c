from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rmqctl.errors import Refused
from rmqctl.files.new_files import Ownership, inherit, make_directories

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
BROKER, GROUP = 4321, 4322


def owner(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(0o750)
    if os.geteuid() == 0:
        os.chown(root, BROKER, GROUP)
    return root


@as_root
def test_a_new_file_belongs_to_whom_its_directory_belongs(store: Path) -> None:
    (store / "file").write_bytes(b"x")
    inherit(store / "file")
    assert owner(store / "file") == (BROKER, GROUP, 0o640)


@as_root
def test_every_new_directory_follows_the_one_it_is_made_in(store: Path) -> None:
    make_directories(store / "a" / "b" / "c")
    assert {owner(p) for p in (store / "a", store / "a/b", store / "a/b/c")} == {(BROKER, GROUP, 0o750)}


@as_root
def test_a_whole_tree_is_given_and_links_are_not_followed(store: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"x")
    before = owner(outside)
    made = tmp_path / "made"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "file").write_bytes(b"x")
    (made / "link").symlink_to(outside)
    Ownership.of(store).give_all(made)
    assert owner(outside) == before
    assert owner(made / "deep" / "file") == (BROKER, GROUP, 0o640)
    assert owner(made / "deep") == owner(made) == (BROKER, GROUP, 0o750)
    assert os.lstat(made / "link").st_uid == BROKER


def test_directories_that_everybody_may_write_to_make_none_of_their_kind(store: Path) -> None:
    store.chmod(0o1777)
    make_directories(store / "new")
    assert owner(store / "new")[2] == 0o775
    (store / "new" / "file").write_bytes(b"")
    inherit(store / "new" / "file")
    assert owner(store / "new" / "file")[2] == 0o664


@as_root
def test_an_owner_is_named_or_numbered(store: Path) -> None:
    like = Ownership.of(store)
    assert Ownership.named("5001:5002", like) == Ownership(5001, 5002, 0o750, must=True)
    assert Ownership.named(":5002", like) == Ownership(BROKER, 5002, 0o750, must=True)
    assert Ownership.named("root", like) == Ownership(0, 0, 0o750, must=True)


def test_unknown_names_are_refused_with_a_sentence(store: Path) -> None:
    like = Ownership.of(store)
    with pytest.raises(Refused, match="knows no user nobody-here"):
        Ownership.named("nobody-here", like)
    with pytest.raises(Refused, match="knows no group none-such"):
        Ownership.named("0:none-such", like)


def test_only_root_gives_away(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Refused, match="only root"):
        Ownership.named("0", Ownership.of(store))
