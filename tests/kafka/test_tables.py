"""The tables of log directories without Spark: the rows of ``dump`` and of the verbs, whatever the splits."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.errors import IOFailure, WrongUsage
from rmqctl.filters import Filters, Rendering
from rmqctl.kafka.filters import Wanted
from rmqctl.opening import open_store
from rmqctl.tables import BadOption, tables_of

STORES = ("2.8.2-crash", "3.9.2-clean", "4.3.1-crash")


def rows(name: str, path: Path, **options: str) -> list[dict[str, Any]]:
    source = tables_of("kafkalog", {"path": str(path), **options}).table(name)
    found = [row for part in source.parts() for batch in source.read(part) for row in batch.to_pylist()]
    assert all(list(row) == source.schema().names for row in found)
    return [{key: _plain(value) for key, value in row.items()} for row in found]


def _plain(value: Any) -> Any:
    return round(value.replace(tzinfo=UTC).timestamp() * 1000) if isinstance(value, datetime) else value


def dumped(path: Path, *args: str) -> list[dict[str, Any]]:
    """The batches and records of ``dump``, but for copies of partitions that no broker serves."""
    store: Any = open_store(str(path))
    plain = {log.partition.directory for log in store.replicas.all}
    found = store.dump(rendering=Rendering(records="--records" in args)).rows
    return [row for row in found if row.get("file", "").partition("/")[0] in plain]


def raw(text: Any) -> bytes | None:
    if text is None:
        return None
    return base64.b64decode(text["base64"]) if isinstance(text, dict) else str(text).encode()


@pytest.mark.parametrize("name", STORES)
def test_records_are_those_of_dump_whatever_the_splits(name: str) -> None:
    root = golden.pristine(name)
    expected = [row for row in dumped(root, "--records") if row["kind"] == "record"]
    batches = {(row["file"], row["position"]): row for row in dumped(root) if row["kind"] == "batch"}
    found = rows("records", root)
    keys = (
        "file",
        "topic",
        "partition",
        "batch_position",
        "offset",
        "sequence",
        "key_size",
        "value_size",
        "control_type",
    )
    assert [{key: row[key] for key in keys} for row in found] == [{key: row[key] for key in keys} for row in expected]
    seen = set()
    for row, true in zip(found, expected, strict=True):
        assert (row["key"], row["value"]) == (raw(true["key"]), raw(true["value"]))
        assert [(h["name"], h["value"]) for h in row["headers"]] == [(n, raw(v)) for n, v in true["headers"]]
        assert row["timestamp"] == (None if true["timestamp"] == -1 else true["timestamp"])
        batch = batches[row["file"], row["batch_position"]]
        for key in (
            "magic",
            "compression",
            "timestamp_type",
            "leader_epoch",
            "producer_id",
            "producer_epoch",
            "crc_ok",
        ):
            assert row[key] == batch[key], key
        place = row["file"], row["batch_position"]
        assert row["batch_size"] == (None if place in seen else batch["size"])
        seen.add(place)
    assert rows("records", root, splitSize="5000") == found


@pytest.mark.parametrize("name", STORES)
def test_batches_are_those_of_dump(name: str) -> None:
    root = golden.pristine(name)
    expected = [row for row in dumped(root) if row["kind"] == "batch"]
    for row in expected:
        del row["kind"]
        for key in ("base_timestamp", "max_timestamp", "delete_horizon"):
            row[key] = None if row[key] == -1 else row[key]
    assert rows("batches", root) == expected
    assert rows("batches", root, splitSize="1KiB") == expected


def test_small_tables_are_the_verbs(rmqctl: Any) -> None:
    root = golden.pristine("4.3.1-clean")
    for table, verb in (("topics", "topics"), ("consumer_offsets", "lag"), ("transactions", "transactions")):
        said = [json.loads(line) for line in rmqctl(verb, root, "-o", "jsonl").stdout.splitlines()]
        found = rows(table, root)
        assert found
        for row, true in zip(found, said, strict=True):
            assert {k: v for k, v in row.items() if v is not None} == {
                k: v
                for k, v in true.items()
                if k in row and v is not None and not (k.endswith(("timestamp", "update")) and v == -1)
            }


def test_findings_are_those_of_verify(tmp_path: Path) -> None:
    root = golden.unpack("3.9.2-clean", tmp_path)
    log = max(root.glob("*/*.log"), key=lambda file: file.stat().st_size)
    data = bytearray(log.read_bytes())
    data[200:260] = bytes(60)
    log.write_bytes(data)
    true = [row for row in open_store(str(root)).verify().rows if row is not None]
    found = rows("findings", root)
    assert [{k: v for k, v in row.items() if v is not None} for row in found] == [
        {k: v for k, v in row.items() if k != "kind"} for row in true
    ]
    assert rows("records", root)  # damage ends nothing


@pytest.mark.parametrize(("name", "skip"), [("2.8.2-crash", "true"), ("4.3.1-crash", "true"), ("4.3.1-crash", "false")])
def test_options_choose_records(name: str, skip: str) -> None:
    root = golden.pristine(name)
    every = rows("records", root)
    topic = max({row["topic"] for row in every}, key=lambda t: sum(row["topic"] == t for row in every))
    own = [row for row in every if row["topic"] == topic]
    middle = own[len(own) // 2]
    for options, keep in (
        ({"topic": topic}, lambda r: r["topic"] == topic),
        ({"topic": topic, "partition": "0"}, lambda r: r["topic"] == topic and r["partition"] == 0),
        ({"fromOffset": "20", "toOffset": "70"}, lambda r: 20 <= r["offset"] < 70),
        (
            {"after": str(middle["timestamp"])},
            lambda r: r["timestamp"] is not None and r["timestamp"] >= middle["timestamp"],
        ),
        (
            {"before": str(middle["timestamp"])},
            lambda r: r["timestamp"] is None or r["timestamp"] < middle["timestamp"],
        ),
    ):
        found = rows("records", root, splitSize="8KiB", skip=skip, columns="topic,partition,offset", **options)
        assert found == [{k: r[k] for k in ("topic", "partition", "offset")} for r in every if keep(r)], options


def test_a_limit_is_that_of_all_partitions() -> None:
    store = open_store(str(golden.pristine("4.3.1-clean")))
    for count in (5, 90):
        limited = store.as_tables(Filters(topic="z-zstd", limit=count)).table("records")
        found = [row for part in limited.parts() for batch in limited.read(part) for row in batch.to_pylist()]
        assert [row["offset"] for row in found] == list(range(count))
    with pytest.raises(WrongUsage, match="several partitions"):
        store.as_tables(Filters(topic="z-zstd", limit=200))


def test_index_entries_spare_reading(tmp_path: Path) -> None:
    root = golden.pristine("4.3.1-clean")

    def stretches(**options: str) -> list[Any]:
        parts = tables_of("kafkalog", {"path": str(root), "splitSize": "1KiB", **options}).table("records").parts()
        return [stretch for part in parts for stretch in part]

    def size(found: list[Any]) -> int:
        return sum(stretch.stop - stretch.start for stretch in found)

    whole = size(stretches())
    assert size(stretches(after=str(1 << 50))) == whole  # a lost entry of a time index shows nowhere in it
    assert size(stretches(fromOffset="200")) < whole / 2
    assert size(stretches(toOffset="5")) < whole / 2
    assert size(stretches(toOffset="5", skip="false")) == whole
    assert max(stretch.start for stretch in stretches()) > 0


def test_a_segment_that_retention_deletes_is_an_error(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    table = tables_of("kafkalog", {"path": str(root), "splitSize": "1KiB"}).table("records")
    parts = table.parts()
    next((root / "plain-none-1").glob("*.log")).unlink()
    with pytest.raises(IOFailure, match="deleted after the work was planned"):
        list(chain.from_iterable(map(table.read, parts)))


@pytest.mark.parametrize(("name", "topic"), [("4.3.1-clean", "append_time"), ("2.8.2-clean", "v1-append-time")])
def test_batches_with_append_times_that_are_too_young_are_not_decoded(name: str, topic: str) -> None:
    root = golden.pristine(name)
    every = [row for row in rows("records", root) if row["topic"] == topic]
    times = sorted({row["timestamp"] for row in every})
    for before in (times[0], times[len(times) // 2], times[-1] + 1):
        found = rows("records", root, topic=topic, before=str(before))
        assert found == [row for row in every if row["timestamp"] < before]
    wanted = Wanted(Filters(before=times[len(times) // 2]))
    parts = tables_of("kafkalog", {"path": str(root), "topic": topic}).table("batches").parts()
    blocks = [block for part in parts for stretch in part for block in stretch.blocks()]
    assert 0 < sum(int(wanted.batches(block).sum()) for block in blocks) < sum(len(block) for block in blocks)


def test_read_committed_hides_what_consumers_do_not_get() -> None:
    root = golden.pristine("3.9.2-clean")
    store: Any = open_store(str(root))
    plain = {log.partition.directory for log in store.replicas.all}
    rows_of_dump = store.dump(read_committed=True, rendering=Rendering(records=True)).rows
    shown = [row for row in rows_of_dump if row["kind"] == "record" and row["file"].partition("/")[0] in plain]
    found = rows("records", root, read_committed="true")
    assert [(r["topic"], r["partition"], r["offset"]) for r in found] == [
        (r["topic"], r["partition"], r["offset"]) for r in shown
    ]
    every = rows("records", root)
    assert len(found) < len([row for row in every if row["control_type"] is None])


def test_a_store_gives_its_tables_as_arrow() -> None:
    store = open_store(str(golden.pristine("4.3.1-clean")))
    assert store.tables() == ("records", "batches", "findings", "topics", "consumer_offsets", "transactions", "reading")
    table = store.table("records", topic="__consumer_offsets", columns=["offset", "key"]).read()
    assert table.column_names == ["offset", "key"]
    assert len(table) > 0
    with pytest.raises(WrongUsage, match="records, batches"):
        store.table("messages")
    with pytest.raises(BadOption, match="no column 'keys'"):
        store.table("records", columns=["keys"])
    with pytest.raises(BadOption, match="readCommitted"):
        tables_of("kafkalog", {"path": "x", "readcomitted": "true"})


def test_damaged_indexes_hide_no_record(tmp_path: Path) -> None:
    """What an index says is believed only where a batch says the same."""
    chance, root = random.Random(7), golden.unpack("4.3.1-clean", tmp_path)
    every = rows("records", root, columns="offset,timestamp", topic="z-zstd")
    indexes = [file for file in root.glob("z-zstd-*/*index") if file.stat().st_size > 24]
    for _ in range(8):
        file = chance.choice(indexes)
        old = file.read_bytes()
        data = bytearray(old)
        at = chance.randrange(min(len(data) - 12, 200))
        data[at : at + 8] = chance.choice([bytes(8), chance.randbytes(8), data[at + 4 : at + 12]])
        file.write_bytes(data)
        low, time = (chance.choice(every)[name] for name in ("offset", "timestamp"))
        for options, keep in (
            ({"fromOffset": str(low)}, lambda r, low=low: r["offset"] >= low),
            ({"toOffset": str(low)}, lambda r, low=low: r["offset"] < low),
            ({"after": str(time)}, lambda r, time=time: r["timestamp"] >= time),
        ):
            found = rows("records", root, columns="offset,timestamp", topic="z-zstd", splitSize="2K", **options)
            assert found == [row for row in every if keep(row)], (file, at, options)
        file.write_bytes(old)
