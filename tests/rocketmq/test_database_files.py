"""Files of a database read without the library: the same rows where nothing is damaged, and else what is left of them."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import golden as stores
from formats.rocketmq.rocksdb_files import (
    CHECKSUM_DELTA,
    InternalKeyEnd,
    LogPiece,
    ManifestField,
    ManifestTag,
    Write,
    WriteBatchHeader,
)
from rmqctl.errors import IOFailure
from rmqctl.files.tree import Entry
from rmqctl.rocketmq.store.database_files import SalvagedDatabase, salvaged_database
from rmqctl.rocketmq.store.database_rows import fits
from rmqctl.rocketmq.store.databases import MESSAGES, Database, databases_of, new_database, open_database
from rmqctl.rocketmq.store.locate import open_store_at

rocksdict = pytest.importorskip("rocksdict")
Golden = Callable[[str], Path]
Families = dict[str, dict[bytes, bytes]]
POP, META = "kvStore", "config/metadata"


@dataclass
class Salvaged:
    families: Families
    lost: list[str]


def salvaged(root: Path, path: str) -> Salvaged:
    store = open_store_at(str(root))
    with (
        tempfile.TemporaryDirectory() as room,
        salvaged_database(store, path, partial(fits, path), Path(room)) as found,
    ):
        return Salvaged(rows_of(found), found.lost)


def rows_of(database: Database) -> Families:
    found = {family: dict(database.rows(family)) for family in database.families}
    assert all(database.get(family, key) == rows[key] for family, rows in found.items() for key in list(rows)[:3])
    return {family: rows for family, rows in found.items() if rows}


def opened(root: Path, path: str) -> Families:
    with open_database(open_store_at(str(root)), path, "comparing") as database:
        return rows_of(database)


@pytest.mark.parametrize("name", [*stores.DATABASE_STORES, "5.5.0-rocksdb-clean"])
def test_the_rows_are_those_of_the_library(name: str) -> None:
    root = stores.pristine(name)
    for path in databases_of(open_store_at(str(root))):
        found = salvaged(root, path)
        assert (found.families, found.lost) == (opened(root, path), []), path


@pytest.mark.parametrize("name", ["5.5.0-rdbcfg-clean", "5.5.0-rdbpop-clean", "5.5.0-rdbcfgv2-crash"])
@pytest.mark.parametrize("gone", ["MANIFEST-*", "CURRENT", "OPTIONS-*"])
def test_without_a_manifest(name: str, gone: str, golden: Golden) -> None:
    root = golden(name)
    path = {"rdbcfg": META, "rdbpop": POP, "rdbcfgv2": "config/rdb"}[name.split("-")[1]]
    before = opened(root, path)
    for file in (root / path).glob(gone):
        file.write_bytes(b"\xa5" * file.stat().st_size)
    found = salvaged(root, path)
    rows = {family: before[family].items() - found.families.get(family, {}).items() for family in before}
    assert rows == {family: set() for family in before}
    assert bool(found.lost) == (gone == "MANIFEST-*")


def pieces(records: list[bytes]) -> bytes:
    """A log of records that fit into one block each."""
    return b"".join(
        LogPiece.build({"checksum": masked(b"\x01" + record), "size": len(record), "kind": 1}) + record
        for record in records
    )


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + CHECKSUM_DELTA) & 0xFFFFFFFF


def edit(*fields: tuple[int, object]) -> bytes:
    return b"".join(ManifestField.build({"tag": tag, "value": value}) for tag, value in fields)


writes = st.lists(
    st.tuples(st.sampled_from([0, 1, 4, 5, 7, 8]), st.binary(max_size=3), st.binary(max_size=300)), max_size=30
)


@given(writes)
@settings(max_examples=15)
def test_files_built_from_the_schemas_alone(made: list[tuple[int, bytes, bytes]]) -> None:
    """A manifest, and a log of one batch: the library reads the rows that are read here."""
    tag, key = ManifestTag, b"k" + InternalKeyEnd.build({"kind": 1, "sequence": 1})
    table: dict[str, object] = {"first_key": key, "last_key": key, "level": 0, "size": 900}
    table |= {"number": 7, "first_sequence": 0, "last_sequence": 0, "details": [{"kind": 1, "value": None}]}
    batch = WriteBatchHeader.build({"sequence": 1, "count": len(made), "writes": b"".join(
        Write.build({"kind": kind, "family": 1, "key": key, "value": value}) for kind, key, value in made
    )})  # fmt: skip
    edits = [
        edit((tag.COMPARATOR, b"leveldb.BytewiseComparator")),
        edit((tag.FAMILY, 1), (tag.FAMILY_ADD, b"timer"), (tag.COMPARATOR, b"leveldb.BytewiseComparator")),
        edit((tag.NEW_FILE, table)),
        edit((tag.DELETED_FILE, {"level": 0, "number": 7})),
        edit((tag.LOG_NUMBER, 4), (tag.PREVIOUS_LOG, 0), (tag.NEXT_FILE, 9), (tag.LAST_SEQUENCE, 0)),
        edit((tag.FAMILY, 1), (tag.LOG_NUMBER, 4)),
    ]
    expected: Families = {"default": {}, "timer": {}}
    for kind, key, value in made:
        rows = expected["timer" if kind in (4, 5, 8) else "default"]
        rows[key] = value
        if kind in (0, 4, 7, 8):
            del rows[key]
    with tempfile.TemporaryDirectory() as directory:
        root, place = Path(directory), Path(directory, POP)
        place.mkdir()
        (root / "commitlog").mkdir()
        (place / "CURRENT").write_text("MANIFEST-000005\n")
        (place / "MANIFEST-000005").write_bytes(pieces(edits))
        (place / "000004.log").write_bytes(pieces([batch]))
        expected = {family: rows for family, rows in expected.items() if rows}
        assert salvaged(root, POP).families == opened(root, POP) == expected


def many(directory: Path, count: int) -> dict[bytes, bytes]:
    """A database of one table with many blocks."""
    rows = {b"key-%06d" % n: random.Random(n).randbytes(40) for n in range(count)}
    directory.mkdir(parents=True)
    with new_database(directory, ()) as database:
        for key, value in rows.items():
            database.put("default", key, value)
    return rows


@pytest.fixture
def large(golden: Golden) -> tuple[Path, dict[bytes, bytes], Path]:
    root = golden("5.5.0-rdbmsg-clean")
    rows = many(root / "config" / "rdb", 5000)
    return root, rows, next((root / "config" / "rdb").glob("*.sst"))


@pytest.mark.parametrize("place", ["data", "index", "footer", "cut"])
def test_damage_costs_a_block(place: str, large: tuple[Path, dict[bytes, bytes], Path]) -> None:
    root, rows, table = large
    data = bytearray(table.read_bytes())
    at = {"data": len(data) // 3, "index": len(data) - 3000, "footer": len(data) - 2, "cut": len(data) // 2}[place]
    if place == "cut":
        del data[at:]
    else:
        data[at] ^= 0x40
    table.write_bytes(data)
    found = salvaged(root, "config/rdb")
    left = found.families["default"]
    assert left.items() <= rows.items()
    assert found.lost
    assert len(left) > {"data": 4800, "index": 4900, "footer": 4900, "cut": 2000}[place]
    assert place != "data" or found.lost == [f"1 block of {table.name}"]


def test_a_table_that_shrinks_while_it_is_read(
    large: tuple[Path, dict[bytes, bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks that are gone are counted; a map of the file would kill the process."""
    root, rows, table = large
    take, size = SalvagedDatabase.take, table.stat().st_size

    def take_and_cut(*arguments: Any) -> None:
        take(*arguments)
        if table.stat().st_size == size:
            os.truncate(table, size // 3)

    monkeypatch.setattr(SalvagedDatabase, "take", take_and_cut)
    found = salvaged(root, "config/rdb")
    assert 1000 < len(found.families["default"]) < 2000
    assert found.families["default"].items() <= rows.items()
    assert len(found.lost) == 1
    assert found.lost[0].endswith(f" blocks of {table.name}")


def test_what_the_block_raises_is_not_taken_for_a_lack_of_room(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_database(tmp_path, ()) as database:
        database.put("default", b"key", b"value" * (1 // 0))
    with pytest.raises(KeyError), new_database(tmp_path / "new", ()) as database:
        database.put("no such family", b"key", b"value")


def test_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(IOFailure, match="cannot write a RocksDB database"), new_database(tmp_path / "file", ()):
        pass


def test_a_cut_write_ahead_log(golden: Golden) -> None:
    root = golden("5.5.0-rdbcfgv2-crash")
    before = opened(root, "config/rdb")
    log = max((root / "config/rdb").glob("*.log"), key=lambda file: file.stat().st_size)
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    found = salvaged(root, "config/rdb")
    assert found.families == opened(root, "config/rdb")
    assert found.families != before


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_bytes_end(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever stands in the files, reading ends and raises nothing."""
    root = tmp_path_factory.mktemp("any")
    (root / "commitlog").mkdir()
    place = root / POP
    place.mkdir()
    source = stores.pristine("5.5.0-rdbpop-clean") / POP
    chosen = data.draw(st.sampled_from(sorted(file.name for file in source.iterdir())))
    for file in source.iterdir():
        content = bytearray(file.read_bytes())
        if file.name == chosen and content:
            for _ in range(data.draw(st.integers(1, 4))):
                at = data.draw(st.integers(0, len(content) - 1))
                content[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
        (place / file.name).write_bytes(content)
    rows = salvaged(root, POP).families.get("popState", {})
    assert rows.items() <= opened(stores.pristine("5.5.0-rdbpop-clean"), POP)["popState"].items()


@pytest.mark.parametrize("kind", ["snappy", "lz4", "lz4hc", "zstd"])
def test_compressed_blocks(kind: str, golden: Golden) -> None:
    root = golden("5.5.0-rdbmsg-clean")
    place = root / POP
    place.mkdir()
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(getattr(rocksdict.DBCompressionType, kind)())
    tables = rocksdict.BlockBasedOptions()
    tables.set_format_version(5)
    tables.set_checksum_type(rocksdict.ChecksumType.crc32c())
    options.set_block_based_table_factory(tables)
    database = rocksdict.Rdict(str(place), options=options)
    rows = {b"key-%06d" % n: b"the same value again and again %d" % (n // 50) for n in range(3000)}
    for key, value in rows.items():
        database[key] = value
    for key in list(rows)[100:120]:
        del database[key], rows[key]
    database.flush()
    database.delete_range(b"key-000500", b"key-000600")
    database.close()
    rows = {key: value for key, value in rows.items() if not b"key-000500" <= key < b"key-000600"}
    found = salvaged(root, POP)
    assert (found.families, found.lost) == ({"default": rows}, [])


def test_a_broker_that_opens_a_database_meanwhile_does_not_damage_it(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB writes a new manifest and names it in CURRENT; the old one goes later."""
    root = golden("5.5.0-rdbmsg-clean")
    store, directory = open_store_at(str(root)), root / MESSAGES
    kind = type(store.tree)
    listed = kind.entries
    (old,) = directory.glob("MANIFEST-*")

    def entries(tree: Any, path: str, *, sizes: bool = True) -> list[Entry]:
        found = listed(tree, path, sizes=sizes)
        if path == MESSAGES:
            shutil.copy(old, directory / "MANIFEST-000999")
            (directory / "CURRENT").write_text("MANIFEST-000999\n", "utf-8")
        return found

    with open_database(store, MESSAGES, "reading") as database:
        rows = sum(1 for family in database.families for _ in database.rows(family))
    monkeypatch.setattr(kind, "entries", entries)
    with open_database(store, MESSAGES, "reading") as database:
        assert sum(1 for family in database.families for _ in database.rows(family)) == rows
