"""Several stores in one answer: paths, patterns and inventories; rows with the store's name, sums, unreadable stores."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqctl as library
from fixtures import golden
from rmqctl import questions
from rmqctl.errors import NotAStore, WrongUsage

Run = Callable[..., Any]
INVENTORY = """
[[store]]
path = "one/store"
name = "a"
cluster = "lab"
role = "master"

[[store]]
path = "two/store"
cluster = "lab"
release = "4.9.8"

[[store]]
path = "gone"
"""


@pytest.fixture
def stores(rmqctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, count in (("one", 100), ("two", 50)):
        Path(name).mkdir()
        assert not rmqctl(
            "produce", f"{name}/store", "--topic", "Orders", "--count", count, "--key", "k{n}", "--small"
        ).exit_code
    Path("fleet.toml").write_text(INVENTORY, "utf-8")
    return tmp_path


def rows(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_topics_of_several_stores_and_their_sum(rmqctl: Run, stores: Path) -> None:
    result = rmqctl("topics", "*/store", "--by-topic", "-o", "jsonl")
    assert not result.exit_code
    assert [(row["store"], row["messages"]) for row in rows(result)] == [("one/store", 100), ("two/store", 50)]
    table = rmqctl("topics", "*/store", "--by-topic").stdout
    assert "Sum by topic" in table
    assert "150" in table


def test_an_inventory_names_stores_and_what_cannot_be_read_is_a_row(rmqctl: Run, stores: Path) -> None:
    result = rmqctl("verify", "@fleet.toml", "-o", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    a, two, gone = document["stores"]
    assert (a["store"], a["cluster"], a["role"], a["sound"]) == ("a", "lab", "master", True)
    assert two["start"]["release"] == "4.9.8"
    assert gone["store"] == "gone"
    assert "nothing is there" in gone["error"]
    assert document["summary"]["stores"] == 3
    assert document["summary"]["unreadable"] == 1
    assert document["summary"]["messages"] == 150


def test_each_store_says_what_it_says_alone(rmqctl: Run, stores: Path) -> None:
    log = next(Path("two/store/commitlog").iterdir())
    data = bytearray(log.read_bytes())
    at = data.index(b"k7")
    data[at + 1] ^= 1
    log.write_bytes(data)
    together = rows(rmqctl("verify", "one/store", "two/store", "-o", "jsonl"))
    alone = rows(rmqctl("verify", "two/store", "-o", "jsonl"))
    found = [{k: v for k, v in row.items() if k != "store"} for row in together if row.get("store") == "two/store"]
    assert found[:-1] == alone[:-1]
    assert found[-1]["findings"] == alone[-1]["findings"]
    assert alone[:-1], "the damage is found"
    assert rmqctl("verify", "one/store", "two/store").exit_code == 1
    assert rmqctl("verify", "one/store").exit_code == 0
    for verb in ("recover", "doctor"):
        by_name = {row["store"]: row for row in rows(rmqctl(verb, "*/store", "-o", "jsonl")) if "store" in row}
        own = json.loads(rmqctl(verb, "two/store", "-o", "json").stdout)
        shared = own.keys() & by_name["two/store"].keys() - {"kind", "path", "room", "next", "checked", "troubles"}
        assert len(shared) > 3
        assert {k: by_name["two/store"][k] for k in shared} == {k: own[k] for k in shared}


def test_which_stores_hold_a_key(rmqctl: Run, stores: Path) -> None:
    found = rows(rmqctl("query-key", "*/store", "Orders", "k70", "-o", "jsonl"))
    alone = rows(rmqctl("query-key", "one/store", "Orders", "k70", "-o", "jsonl"))
    assert found == [{"store": "one/store", **row} for row in alone]
    assert len(found) == 1, "the other store has 50 messages"
    both = rmqctl("query-key", "*/store", "Orders", "k7", "-o", "jsonl")
    assert [row["store"] for row in rows(both)] == ["one/store", "two/store"]
    assert (both.exit_code, both.stderr) == (0, "")
    table = rmqctl("query-key", "one/store", "two/store", "Orders", "k70")
    assert (table.exit_code, table.stderr) == (0, "")
    assert "one/store" in table.stdout
    assert "two/store" not in table.stdout
    nowhere = rmqctl("query-key", "*/store", "Orders", "nowhere")
    assert (nowhere.exit_code, nowhere.stdout) == (1, "")
    assert nowhere.stderr == "rmqctl: nothing found in 2 stores; one alone says why\n"
    unread = rmqctl("query-key", "@fleet.toml", "Orders", "k70", "-o", "jsonl")
    assert unread.exit_code == 1, "a store that cannot be read may hold it"
    assert "nothing is there" in rows(unread)[-1]["error"]
    assert "follows one store" in rmqctl("query-key", "*/store", "Orders", "k7", "--explain").stderr


def test_rebuild_of_several_says_how_many_files_differ(rmqctl: Run, stores: Path) -> None:
    unit = next(path for path in Path("two/store/consumequeue").rglob("0*") if path.is_file())
    data = bytearray(unit.read_bytes())
    data[11] ^= 1
    unit.write_bytes(data)
    result = rmqctl("rebuild", "*/store", "-o", "json")
    assert result.exit_code == 1
    one, two = json.loads(result.stdout)["stores"]
    assert (one["current"], two["current"]) == (True, False)
    assert [row["file"] for row in two["changes"] if row["change"] == "replace"] == [str(unit.relative_to("two/store"))]
    table = rmqctl("rebuild", "*/store").stdout
    assert "2 stores: 1 current" in table
    assert "Next: rmqctl rebuild two/store" in table


def test_lag_is_summed_over_brokers(rmqctl: Run, stores: Path) -> None:
    for name in ("one", "two"):
        config = Path(name) / "store" / "config"
        config.mkdir(exist_ok=True)
        table = {"offsetTable": {"Orders@g": {"0": 0, "1": 0, "2": 0, "3": 0}}}
        (config / "consumerOffset.json").write_text(json.dumps(table), "utf-8")
    result = rmqctl("lag", "one/store", "two/store", "-o", "jsonl")
    assert sum(row["lag"] for row in rows(result)) == 150
    assert "150" in rmqctl("lag", "one/store", "two/store").stdout.split("Sum by group and topic")[1]


def test_directories_of_one_kafka_broker_are_one_store(rmqctl: Run, stores: Path) -> None:
    assert not rmqctl("produce", "k1", "--format", "kafka", "--topic", "T", "--partitions", 2, "--small").exit_code
    shutil.copytree("k1", "copy")
    assert len({row["store"] for row in rows(rmqctl("topics", "k1", "copy", "-o", "jsonl"))}) == 2, "a copy is another"
    Path("k2").mkdir()
    shutil.move("k1/T-1", "k2/T-1")
    meta = Path("k1/meta.properties").read_text("utf-8").splitlines()
    other = [line if not line.startswith("directory.id") else "directory.id=AAAAAAAAAAAAAAAAAAAAAQ" for line in meta]
    Path("k2/meta.properties").write_text("\n".join(other) + "\n", "utf-8")
    together = rows(rmqctl("topics", "k1", "k2", "-o", "jsonl"))
    assert [row["partition"] for row in together if row["topic"] == "T"] == [0, 1]
    assert not any("store" in row for row in together)
    several = rows(rmqctl("topics", "k1", "k2", "one/store", "-o", "jsonl"))
    assert {row["store"] for row in several} == {"k1,k2", "one/store"}


def test_a_volume_of_another_cluster_is_named(rmqctl: Run, stores: Path) -> None:
    assert not rmqctl("produce", "k1", "--format", "kafka", "--topic", "T", "--small").exit_code
    shutil.copytree("k1", "k2")
    assert "taken for two stores" not in rmqctl("verify", "k1", "k2").stderr
    meta = Path("k2/meta.properties")
    meta.write_text(re.sub("cluster.id=.*", "cluster.id=ZZZZEfGhQxSTU-V_wXyZ99", meta.read_text("utf-8")), "utf-8")
    result = rmqctl("doctor", "k1", "k2")
    assert "k1 and k2 are taken for two stores: both are of node 1, of clusters" in result.stderr
    assert "rmqctl doctor k1,k2" in result.stderr
    assert rmqctl("doctor", "k1,k2").exit_code == 1


def test_what_stands_above_the_stores_of_an_inventory_is_of_each_that_has_no_other(rmqctl: Run, stores: Path) -> None:
    Path("fleet.toml").write_text(
        'cluster = "lab"\n[[store]]\npath = "one/store"\n[[store]]\npath = "two/store"\ncluster = "own"\n', "utf-8"
    )
    found = rows(rmqctl("info", "@fleet.toml", "-o", "jsonl"))
    assert [row["cluster"] for row in found if "store" in row] == ["lab", "own"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify", "none*"], "nothing has such a name"),
        (["verify", "@nowhere.toml"], "nowhere.toml"),
        (["verify", "@bad.toml"], "is no inventory in TOML"),
        (["verify", "@empty.toml"], "has no table [[store]]"),
        (["verify", "@typo.toml"], "has the key 'pth'"),
        (["verify", "@above.toml"], "has the key 'clustr' above its stores"),
        (["verify", "@disk.toml"], "true needs a host"),
        (["rebuild", "one/store", "two/store", "--topic", "Orders"], "compared with their logs"),
        (["recover", "one/store", "two/store", "--apply"], "one line a store"),
        (["topics", "one/store", "k", "--as-found"], "is for RocketMQ"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(rmqctl: Run, stores: Path, arguments: list[str], says: str) -> None:
    assert not rmqctl("produce", "k", "--format", "kafka", "--topic", "T", "--small").exit_code
    Path("bad.toml").write_text("[[store", "utf-8")
    Path("empty.toml").write_text("x = 1", "utf-8")
    Path("disk.toml").write_text('[[store]]\npath = "one/store"\nown_disk = true\n', "utf-8")
    Path("above.toml").write_text('clustr = "lab"\n[[store]]\npath = "one/store"\n', "utf-8")
    Path("typo.toml").write_text('[[store]]\npth = "one/store"\n', "utf-8")
    result = rmqctl(*arguments)
    assert result.exit_code in {2, 10, 11}
    assert says in result.stderr


def test_columns_are_of_rows_and_not_of_sums(rmqctl: Run, stores: Path) -> None:
    result = rmqctl(
        "topics", "one/store", "two/store", "--by-topic", "--columns", "store,messages", "--sort", "-messages"
    )
    assert not result.exit_code
    assert result.stdout.split()[:3] == ["store", "messages", "---------"]
    assert "queues" in result.stdout, "in the sums"


def test_the_library_asks_all(stores: Path) -> None:
    fleet = library.open_all(["@fleet.toml"])
    found = list(fleet.ask(questions.Topics(by_topic=True)))
    assert [row["store"] for row in found] == ["a", "two/store", "gone"]
    with pytest.raises(WrongUsage, match="one store at a time"):
        fleet.ask(questions.QueryId("x"))
    with pytest.raises(NotAStore):
        library.open_all(["no*/where"])


def test_what_breaks_off_is_a_row_and_no_end(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = library.open_all(["one/store", "two/store"])
    first = fleet.stores[0][1]

    def broken(question: questions.Question[Any]) -> Any:
        answer = type(first).ask(first, question)
        rows = iter(answer.rows)

        def some() -> Any:
            yield next(rows)
            raise OSError(5, "Input/output error", "one/store/commitlog")

        answer.rows = some()
        return answer

    monkeypatch.setattr(first, "ask", broken)
    answer = fleet.ask(questions.Topics())
    found = [(row["store"], "error" in row) for row in answer]
    assert found == [("one/store", False), ("one/store", True), *[("two/store", False)] * 4]
    assert answer.is_no


def test_an_inventory_alone_is_looked_at_by_doctor(rmqctl: Run, stores: Path) -> None:
    assert rmqctl("@fleet.toml").stdout == rmqctl("doctor", "@fleet.toml").stdout
    assert rmqctl("*/store").stdout == rmqctl("doctor", "*/store").stdout


def test_two_sets_of_stores_are_compared_in_pairs(rmqctl: Run, stores: Path) -> None:
    for backup in ("mon", "tue"):
        for broker in ("one", "two"):
            shutil.copytree(f"{broker}/store", f"{backup}/{broker}/store")
    assert not rmqctl("diff", "mon/*/store", "tue/*/store").exit_code
    assert not rmqctl("produce", "tue/two/store", "--topic", "Orders", "--count", 3, "--yes").exit_code
    shutil.move("tue/one", "tue/three")
    result = rmqctl("diff", "mon/*/store", "tue/*/store", "-o", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    found = {row["store"]: row for row in document["stores"]}
    assert list(found) == ["one", "two", "three"]
    assert "no store that is called alike in B" in found["one"]["error"]
    assert "no store that is called alike in A" in found["three"]["error"]
    assert (found["two"]["equal"], found["two"]["summary"]["records"]["only_b"]["records"]) == (False, 3)
    assert (found["two"]["a"], found["two"]["b"]) == ("mon/two/store", "tue/two/store")
    assert (document["summary"]["stores"], document["summary"]["equal"], document["summary"]["only_b"]) == (3, 0, 3)
    table = rmqctl("diff", "mon/*/store", "tue/*/store").stdout
    assert "Next: rmqctl diff mon/two/store tue/two/store" in table
    alone = json.loads(rmqctl("diff", "mon/two/store", "tue/two/store", "-o", "json").stdout)
    assert found["two"]["findings"] == alone["findings"]


def test_sets_pair_by_the_names_of_inventories(rmqctl: Run, stores: Path) -> None:
    shutil.copytree("one/store", "copy")
    Path("b.toml").write_text('[[store]]\npath = "copy"\nname = "a"\n', "utf-8")
    result = rmqctl("diff", "@fleet.toml", "@b.toml", "-o", "jsonl")
    assert result.exit_code == 1
    kinds = {row["store"]: row for row in rows(result) if row["kind"] == "store"}
    assert kinds["a"]["equal"]
    assert "error" in kinds["two/store"]
    assert "nothing is there" in kinds["gone"]["error"]


def test_results_of_single_hosts_are_summed_up_as_the_stores_would_be(rmqctl: Run, stores: Path) -> None:
    log = next(Path("two/store/commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[data.index(b"k7") + 1] ^= 1
    log.write_bytes(data)
    Path("results").mkdir()
    for name in ("one", "two"):
        Path(f"results/{name}.json").write_text(rmqctl("verify", f"{name}/store", "-o", "json").stdout, "utf-8")
    Path("results/other.json").write_text("[1]", "utf-8")
    here = json.loads(rmqctl("verify", "one/store", "two/store", "gone", "-o", "json").stdout)
    result = rmqctl("verify", "@results/*.json", "-o", "json")
    assert result.exit_code == 1
    there = json.loads(result.stdout)
    seconds = re.compile(r'"seconds": ?[\d.]+')
    for mine, own in zip(there["stores"][:1] + there["stores"][2:], here["stores"][:2], strict=True):
        for key in {"findings", "sound", "start"} & set(own):
            assert seconds.sub("", json.dumps(mine[key])) == seconds.sub("", json.dumps(own[key]))
    assert [row["store"] for row in there["stores"]] == ["one", "other", "two"]
    assert "no document of" in there["stores"][1]["error"]
    counted = ("stores", "sound", "unreadable", "messages", "bytes", "errors", "warnings")
    assert [there["summary"][name] for name in counted] == [here["summary"][name] for name in counted]
    Path("sums.json").write_text(json.dumps(here), "utf-8")
    again = json.loads(rmqctl("verify", "@sums.json", "-o", "json").stdout)
    assert [row["store"] for row in again["stores"]] == ["one/store", "two/store", "gone"]
    assert again["summary"] == here["summary"]
    table = rmqctl("verify", "@results/*.json").stdout
    assert "two:\nerror  " in table
    assert "Next:" not in table
    refused = rmqctl("topics", "@results/*.json")
    assert refused.exit_code == 1
    assert "does not answer `topics`" in refused.stdout
    assert "is a result of verify" in rmqctl("doctor", "@results/one.json").stdout


def test_a_dump_of_several_files_is_one_answer(rmqctl: Run) -> None:
    root = golden.pristine("5.5.0-clean")
    whole = rmqctl("dump", root, "-o", "jsonl").stdout
    assert rmqctl("dump", f"{root}/commitlog/*", "-o", "jsonl").stdout == whole
    files = sorted((root / "commitlog").iterdir())
    assert rmqctl("dump", *files, "-o", "jsonl").stdout == whole
    assert len(rmqctl("dump", f"{root}/commitlog/*", "-o", "jsonl", "-n", "400").stdout.splitlines()) == 400
    nothing = rmqctl("dump", f"{root}/commitlog/*", "--key", "no-such")
    assert (nothing.exit_code, nothing.stderr.count("nothing matched")) == (1, 1)
    queues = rmqctl("dump", f"{root}/consumequeue/LabOrd*/[01]", "-o", "jsonl")
    rows = [json.loads(line) for line in queues.stdout.splitlines()]
    assert {(row["topic"], row["queue_id"]) for row in rows} == {("LabOrders", 0), ("LabOrders", 1)}
    assert rmqctl("dump", f"{root}/commitlog/*", "--follow").exit_code == 2
    assert rmqctl("dump", f"{root}/no-such*").exit_code == 11


def test_parts_of_one_store_are_looked_at_once(rmqctl: Run) -> None:
    root = golden.pristine("5.5.0-clean")
    rows = json.loads(rmqctl("info", f"{root}/commitlog/*", "-o", "json").stdout)["stores"]
    assert [row["store"] for row in rows] == [str(root)]


def offsets_of(place: str, table: dict[str, dict[str, int]]) -> None:
    config = Path(place) / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}), "utf-8")


def test_what_a_broker_lacks_is_said_and_replicas_count_once(rmqctl: Run, stores: Path) -> None:
    none = {"0": 0, "1": 0, "2": 0, "3": 0}
    offsets_of("one/store", {"Orders@g": none})
    offsets_of("two/store", {"Other@g": {"0": 0}})
    shutil.copytree("one/store", "slave/store")
    result = rmqctl("lag", "one/store", "two/store", "--topic", "Orders", "-o", "jsonl")
    assert "two/store: group g has stored no offset of Orders, of which 50 messages lie there" in result.stderr
    text = "".join(
        f'[[store]]\npath = "{path}/store"\nname = "{path}"\ncluster = "{cluster}"\n{more}'
        for path, cluster, more in (
            ("one", "x", 'role = "master"\n'), ("slave", "x", 'role = "slave"\nreplica_of = "one"\n'), ("two", "y", ""),
        )
    )  # fmt: skip
    Path("roles.toml").write_text(text, "utf-8")
    offsets_of("two/store", {"Orders@g": none})
    result = rmqctl("lag", "@roles.toml")
    sums = [line.split() for line in result.stdout.split("Sum by group and topic")[1].splitlines() if "Orders" in line]
    assert sums == [["x", "g", "Orders", "4", "100", "0"], ["y", "g", "Orders", "4", "50", "0"]]
    assert "not in the sums, being replicas of others here: slave" in result.stderr
    shutil.rmtree("one")
    result = rmqctl("lag", "@roles.toml")
    assert "100" in result.stdout.split("Sum by group and topic")[1], "the replica stands in"
    assert "not in the sums" not in result.stderr
    assert "the sums lack what cannot be read: one" in result.stderr


def test_copies_of_a_kafka_partition_count_once(rmqctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three brokers of a cluster, each with some of the partitions, one copy shorter than the others."""
    monkeypatch.chdir(tmp_path)
    alone = list[dict[str, Any]]()
    for node in range(3):
        root = golden.unpack("4.3.1-clean", Path(f"n{node}"))
        meta = root / "meta.properties"
        meta.write_text(re.sub(r"node\.id=\d+", f"node.id={node}", meta.read_text("utf-8")), "utf-8")
        places = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("__"))
        for number, place in enumerate(places):
            if number % 3 == node:
                shutil.rmtree(place)
        if node == 1:
            log = max(root.glob("idem-*/*.log"), key=lambda path: path.stat().st_size)
            shorter = int(log.parent.name[-1])
            with log.open("r+b") as file:
                file.truncate(log.stat().st_size // 2)
        alone += ({"store": node, **row} for row in json.loads(rmqctl("topics", root, "-o", "json").stdout))
        Path(f"s{node}").symlink_to(root)
    best = {}
    for row in alone:
        key = row["topic"], row["partition"]
        ends = [(one["log_end_offset"], one["records"]) for one in (best.get(key, row), row)]
        if key not in best or ends[0] < ends[1]:
            best[key] = row
    assert len({row["records"] for row in alone if row["topic"] == "idem" and row["partition"] == shorter}) == 2
    expected: dict[str, list[int]] = {}
    for (topic, _), row in best.items():
        sums = expected.setdefault(topic, [0, 0, 0])
        expected[topic] = [n + more for n, more in zip(sums, (1, row["records"], row["bytes"]), strict=True)]
    for options in ([], ["--by-topic"]):
        result = rmqctl("topics", "s0", "s1", "s2", *options)
        lines = [line.split() for line in result.stdout.split("Sum by topic")[1].splitlines()]
        sums = {line[0]: [int(n) for n in line[1:3]] for line in lines if line and line[0] in expected}
        assert sums == {topic: numbers[:2] for topic, numbers in expected.items()}
        assert f"{len(alone) - len(best):,} copies of partitions are not in the sums" in result.stderr
        counted = rows(rmqctl("topics", "s0", "s1", "s2", *options, "-o", "jsonl"))
        assert sum(row["counted"] for row in counted) == len(best)
        assert not any("parts" in row for row in counted)
        if not options:
            assert {(row["topic"], row["partition"], int(row["store"][1])) for row in counted if row["counted"]} == {
                (*key, row["store"]) for key, row in best.items()
            }


def test_of_two_replicas_without_their_master_one_counts(rmqctl: Run, stores: Path) -> None:
    shutil.copytree("one", "three")
    text = "".join(
        f'[[store]]\npath = "{path}"\nname = "{name}"\ncluster = "x"\n{more}'
        for path, name, more in (
            ("gone", "m", ""), ("one/store", "s1", 'replica_of = "m"\n'), ("three/store", "s2", 'replica_of = "m"\n'),
        )
    )  # fmt: skip
    Path("roles.toml").write_text(text, "utf-8")
    result = rmqctl("topics", "@roles.toml", "--by-topic")
    assert "x        Orders       4       100" in result.stdout.split("Sum by topic")[1]
    assert "not in the sums, being replicas of others here: s2" in result.stderr
