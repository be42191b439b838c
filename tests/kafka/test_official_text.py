"""`dump -o kafka-dump-log` equals what the official tool of the release printed, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogFile, Partition, read_directory
from rmqctl.kafka.dump.official import OfficialDump, Options
from rmqctl.release import Release
from tests.conftest import Rmqctl
from tests.kafka.batches import batch, record, segment

EXCEPTIONS = {
    (
        "2.8.2-crash",
        "__consumer_offsets-0/00000000000000000000.index",
    ): "the tool dies of an index that is all zeros over an empty log",
    (
        "3.9.2-crash",
        "empty-topic-0/00000000000000000000.index",
    ): "the tool dies of an index that is all zeros over an empty log",
    (
        "4.3.1-crash",
        "empty-topic-0/00000000000000000000.index",
    ): "the tool dies of an index that is all zeros over an empty log",
}
"""Files whose text differs, with the reason. Reports are compared as sets: the tool prints them in the order of a hash map."""

Files = dict[str, tuple[Partition | None, LogFile]]


def files_of(root: Path) -> Files:
    found = read_directory(LocalTree(root))
    inside: Files = {file.name: (partition, file) for partition in found.partitions for file in partition.files}
    return {**{file.name: (None, file) for file in found.files}, **inside}


def by_file(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    text: list[str] = []
    name = None
    for line in lines:
        if line.startswith("Dumping "):
            if name is not None:
                yield name, text
            name, text = line.removeprefix("Dumping "), []
        else:
            text.append(line)
    if name is not None:
        yield name, text


def ends(lines: list[str]) -> list[str]:
    """Lines without empty ones at the end, of which the recording has one more or less."""
    return "\n".join(lines).rstrip("\n").split("\n")


def reports(lines: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    head = ""
    for line in filter(None, lines):
        if line.startswith("  "):
            found[head].append(line)
        else:
            head = line
            found.setdefault(head, [])
    return found


def test_text_equals_the_official_tools(golden_name: str) -> None:
    release = Release.parse(golden_name.partition("-")[0])
    files, compared, died = files_of(golden.pristine(golden_name)), 0, 0
    dump = OfficialDump(Options())
    for options, stream, lines in golden.dump_text(golden_name):
        if stream == "stderr":
            if any("\tat " in line for line in lines):
                died += 1
            else:
                assert reports(dump.end()) == reports(lines)
            continue
        decoders = tuple(o[2:].replace("-", "_") for o in options.split() if o.endswith("-decoder"))
        dump = OfficialDump(Options(deep_iteration=True, print_data_log=True, decoders=decoders), release)
        for name, wanted in by_file(lines):
            if (golden_name, name) not in EXCEPTIONS:
                printed = "\n".join(dump.lines(*files[name], name, is_alone=True)).split("\n")
                assert ends(printed) == ends([f"Dumping {name}", *wanted]), name
                compared += 1
        assert not dump.is_damaged
    assert compared > 100
    assert died == sum(name == golden_name for name, _ in EXCEPTIONS)


def printed(rmqctl: Rmqctl, *arguments: object, code: int = 0) -> list[str]:
    result = rmqctl("dump", *arguments, "-o", "kafka-dump-log")
    assert result.exit_code == code, result.stderr
    return result.stdout.splitlines()


def test_a_whole_directory(rmqctl: Rmqctl) -> None:
    root = golden.pristine("4.3.1-clean")
    decoders = (
        "--offsets-decoder",
        "--transaction-log-decoder",
        "--cluster-metadata-decoder",
        "--share-group-state-decoder",
    )
    lines = printed(rmqctl, root, "--print-data-log", *decoders)
    recorded = dict(
        pair for _, stream, text in golden.dump_text("4.3.1-clean") if stream == "stdout" for pair in by_file(text)
    )
    wanted = "\n".join(line for name in sorted(recorded) for line in (f"Dumping {name}", *recorded[name]))
    assert sorted(lines) == sorted(wanted.splitlines())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    directory.mkdir()
    file = directory / f"{0:020d}.log"
    file.write_bytes(b"".join(segment(5)))
    return file


def test_options(log: Path, rmqctl: Rmqctl) -> None:
    shallow = printed(rmqctl, log)
    assert [line.split()[0] for line in shallow] == ["Dumping", "Log", *["baseOffset:"] * 5]
    deep = printed(rmqctl, log, "--deep-iteration")
    assert len(deep) == len(shallow) + 15
    assert "payload" not in deep[3]
    assert deep[3].startswith(
        "| offset: 0 CreateTime: 1700000000000 keySize: 2 valueSize: 7 sequence: -1 headerKeys: []"
    )
    assert printed(rmqctl, log, "--print-data-log")[3] == deep[3] + " key: k0 payload: value 0"
    assert printed(rmqctl, log, "--value-decoder-class", "StringDecoder")[3].endswith("payload: value 0")
    assert printed(rmqctl, log, "--print-data-log", "--skip-record-metadata")[3] == "| key: k0 payload: value 0"
    assert len(printed(rmqctl, log, "--max-bytes", "250")) == 4
    assert printed(rmqctl, log, "--as-release", "3.0.0")[1] == "Starting offset: 0"
    assert rmqctl("dump", log, "--value-decoder-class", "org.example.Mine").exit_code == 2
    assert rmqctl("dump", golden.pristine("5.3.3-clean"), "-o", "kafka-dump-log").exit_code == 2


def test_it_survives_damage(log: Path, rmqctl: Rmqctl) -> None:
    parts = segment(5)
    log.write_bytes(
        parts[0] + b"\xff" * 30 + b"".join(parts[1:]) + batch(15, [record(0, b"a", b"b")], records_count=2) + b"x" * 9
    )
    lines = printed(rmqctl, log, "--deep-iteration", code=1)
    (middle,) = [line for line in lines if line.startswith("Found 30 invalid bytes at")]
    assert f"position {len(parts[0])} of {log.name}: size is -1" in middle
    assert "| the records of this batch cannot be read: 2 records are stated, but the bytes end after 1" in lines
    assert lines[-1] == f"Found 9 invalid bytes at the end of {log.name}"


def test_indexes(log: Path, rmqctl: Rmqctl) -> None:
    index = log.with_suffix(".index")
    entries = [(5, len(segment(5)[0])), (7, 100), (8, 2 * len(segment(5)[0]))]
    index.write_bytes(b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries) + bytes(80))
    result = rmqctl("dump", index, "-o", "kafka-dump-log")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == [f"offset: {o} position: {p}" for o, p in entries]
    assert "offset 7 is at position 100, where no batch is" in result.stderr
    assert printed(rmqctl, index, "--verify-index-only", code=1) == [f"Dumping {index}"]
    assert printed(rmqctl, index, "--index-sanity-check")[1] == f"{index} passed sanity check."
    index.write_bytes(bytes(7))
    assert rmqctl("dump", index, "-o", "kafka-dump-log", "--index-sanity-check").exit_code in {0, 1}


def test_dialects_between_the_recorded_ones() -> None:
    """4.0 prints transactions as 3.9 did; 4.1 and 4.2 print them, and a change of leader, as JSON (read in their classes)."""
    files = files_of(golden.pristine("4.3.1-clean"))

    def text(release: str, name: str, decoder: str) -> list[str]:
        options = Options(deep_iteration=True, print_data_log=True, decoders=(decoder,))
        return list(OfficialDump(options, Release.parse(release)).lines(*files[name], name, is_alone=True))

    states = next(
        n for n in sorted(files) if n.startswith("__transaction_state") and n.endswith(".log") and files[n][1].size
    )
    of = {release: text(release, states, "transaction_log_decoder") for release in ("3.9.2", "4.0.0", "4.1.0", "4.2.0")}
    assert any("transaction_metadata::transactionalId=" in line for line in of["4.0.0"])
    assert of["4.0.0"] == of["3.9.2"] != of["4.1.0"] == of["4.2.0"]
    assert any('key: {"type":"0","data":{"transactionalId":' in line for line in of["4.1.0"])
    metadata = next(n for n in sorted(files) if n.startswith("__cluster_metadata") and n.endswith(".log"))
    leaders = {
        r: [x for x in text(r, metadata, "cluster_metadata_decoder") if "eaderChange" in x or "LEADER" in x] for r in of
    }
    assert all("controlType: LEADER_CHANGE(2)" in line for line in leaders["4.0.0"])
    assert leaders["4.1.0"] and all(" LeaderChange: {" in line for line in leaders["4.1.0"])
