"""Files of a database read without the library: the same rows where nothing is damaged, and else what is left of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import golden as stores
from rmqctl.rocketmq.store.database_files import Salvaged, salvaged_rows
from rmqctl.rocketmq.store.database_rows import fits
from rmqctl.rocketmq.store.databases import databases_of, open_database, write_database
from rmqctl.rocketmq.store.locate import open_store_at

rocksdict = pytest.importorskip("rocksdict")
Golden = Callable[[str], Path]
Families = dict[str, dict[bytes, bytes]]
POP, META = "kvStore", "config/metadata"


def salvaged(root: Path, path: str) -> Salvaged:
    found = salvaged_rows(open_store_at(str(root)), path, lambda family, key, value: fits(path, family, key, value))
    found.families = {family: rows for family, rows in found.families.items() if rows}
    return found


def opened(root: Path, path: str) -> Families:
    with open_database(open_store_at(str(root)), path, "comparing") as database:
        return {family: rows for family in database.families if (rows := dict(database.rows(family)))}


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


def many(directory: Path, count: int) -> dict[bytes, bytes]:
    """A database of one table with many blocks."""
    rows = {b"key-%06d" % n: random.Random(n).randbytes(40) for n in range(count)}
    directory.mkdir(parents=True)
    write_database(directory, {"default": rows.items()})
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
