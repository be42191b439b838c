"""The dump command: options, kinds of output, exit codes, following."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.message import encode_record
from tests.rocketmq.log_files import ended, log_of, record

STORE = "5.5.0-clean"
SIZE = 4096


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small store: two files of a log, one message damaged."""
    (tmp_path / "commitlog").mkdir()
    first = bytearray(log_of(record(body=b"body %d" % n, properties=b"KEYS\x01k%d\x02" % n) for n in range(3)))
    first[88] ^= 1
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(ended(bytes(first), SIZE))
    last = log_of([record(topic=b"Other", body=b"\xff")], SIZE)
    (tmp_path / "commitlog" / f"{SIZE:020d}").write_bytes(last.ljust(SIZE, b"\0"))
    return tmp_path


def rows(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_damage_is_shown_and_ends_with_1(root: Path, rmqctl: Any) -> None:
    result = rmqctl("dump", root, "-o", "jsonl")
    assert [row["kind"] for row in rows(result)] == ["message", "finding", "message", "message", "blank", "message"]
    assert result.exit_code == 1


@pytest.mark.parametrize("options", [(), ("--damaged",), ("-n", "1"), ("-n", "2"), ("-n", "4"), ("-n", "9")])
def test_files_of_a_pattern_are_shown_as_the_directory_is(root: Path, rmqctl: Any, options: tuple[str, ...]) -> None:
    """What is damaged does not count as one of so many, and where it is shown the answer is "no"."""
    first = root / "commitlog" / f"{0:020d}"
    (root / "commitlog" / f"{SIZE:020d}").write_bytes(first.read_bytes())
    several, whole = (rmqctl("dump", path, "-o", "jsonl", *options) for path in (f"{first}*", first))
    assert several.stdout == whole.stdout
    several, whole = (
        rmqctl("dump", path, "-o", "csv", *options) for path in (root / "commitlog" / "*", root / "commitlog")
    )
    assert (several.stdout, several.exit_code) == (whole.stdout, whole.exit_code)


def test_csv_of_a_pattern_begins_with_its_columns_where_nothing_matches(root: Path, rmqctl: Any) -> None:
    several, whole = (
        rmqctl("dump", path, "-o", "csv", "--topic", "None") for path in (root / "commitlog" / "*", root / "commitlog")
    )
    assert several.stdout == whole.stdout != ""
    assert several.exit_code == 1


def test_json_is_one_document_of_the_same_rows(root: Path, rmqctl: Any) -> None:
    assert json.loads(rmqctl("dump", root, "-o", "json").stdout) == rows(rmqctl("dump", root, "-o", "jsonl"))


def test_json_of_nothing_is_an_empty_array(root: Path, rmqctl: Any) -> None:
    assert rmqctl("dump", root, "--topic", "None", "-o", "json").stdout == "[]\n"


def test_csv_has_a_line_a_row(root: Path, rmqctl: Any) -> None:
    lines = list(csv.DictReader(io.StringIO(rmqctl("dump", root, "-o", "csv").stdout, newline="")))
    assert [line["kind"] for line in lines] == ["message", "finding", "message", "message", "blank", "message"]
    assert json.loads(lines[0]["properties"]) == {"KEYS": "k0"}


def test_filters_that_match_nothing_end_with_1(root: Path, rmqctl: Any) -> None:
    result = rmqctl("dump", root, "--topic", "None", "-o", "jsonl")
    assert (result.stdout, result.exit_code) == ("", 1)
    assert "nothing matched the filters" in result.stderr


def test_an_unknown_topic_brings_the_nearest_name(rmqctl: Any) -> None:
    for line in (["dump"], ["topics"]):
        result = rmqctl(*line, golden.pristine("5.3.3-clean"), "--topic", "LabOrdres")
        assert result.exit_code == 1
        assert "did you mean LabOrders" in result.stderr


def test_matches_without_damage_end_with_0_and_hidden_damage_is_mentioned(root: Path, rmqctl: Any) -> None:
    data = bytearray((root / "commitlog" / f"{0:020d}").read_bytes())
    data[4] ^= 0xFF
    (root / "commitlog" / f"{0:020d}").write_bytes(data)
    result = rmqctl("dump", root, "--key", "k2", "-o", "jsonl")
    assert (len(rows(result)), result.exit_code) == (1, 0)
    assert result.stderr == "rmqctl: damage in 1 place is not shown because of the filters; see it with --damaged\n"
    result = rmqctl("dump", root, "--damaged", "-o", "jsonl")
    assert ([row["id"] for row in rows(result)], result.exit_code) == (["log.bad-record"], 1)


def test_nothing_damaged_is_no_failure(rmqctl: Any) -> None:
    result = rmqctl("dump", golden.pristine(STORE), "--damaged")
    assert (result.stdout, result.exit_code) == ("", 0)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["--topic", "TopicTest"], 3),
        (["--queue", "1"], 4),
        (["--key", "k1"], 1),
        (["--property", "KEYS=k1"], 1),
        (["--tag", "TagA"], 1),
        (["--grep", "body [12]"], 2),
        (["--after", "1700000000123"], 4),
        (["--before", "1700000000123"], 0),
        (["--after", "2023-11-14T22:13:20.123Z", "--before", "2023-11-15T00:00:00Z"], 4),
        (["--from-offset", "1"], 3),
        (["--from-offset", "1", "--to-offset", "4096"], 2),
        (["-n", "2"], 2),
    ],
)
def test_filters(root: Path, rmqctl: Any, filters: list[str], count: int) -> None:
    found = rows(rmqctl("dump", root, "-o", "jsonl", *filters))
    assert len([row for row in found if row["kind"] == "message"]) == count


def test_bodies(root: Path, rmqctl: Any) -> None:
    found = [r for r in rows(rmqctl("dump", root, "-o", "jsonl", "--body")) if r["kind"] == "message"]
    assert [r["body"] for r in found[1:]] == ["body 1", "body 2", {"base64": "/w=="}]
    found = rows(rmqctl("dump", root, "-o", "jsonl", "--body-limit", "2", "--key", "k1"))
    assert (found[0]["body"], found[0]["body_truncated"]) == ("bo", True)
    found = rows(rmqctl("dump", root, "-o", "jsonl", "--raw-body", "--key", "k1"))
    assert found[0]["raw_body"] == "body 1" and "body" not in found[0]


def test_redacted_output_holds_no_body_key_or_value(rmqctl: Any) -> None:
    plain = rows(rmqctl("dump", golden.pristine(STORE), "-o", "jsonl", "--body"))
    text = rmqctl("dump", golden.pristine(STORE), "-o", "jsonl", "--body", "--redact").stdout
    for row in plain:
        secrets = [row.get("body"), row.get("unique_key"), *row.get("keys", [])]
        assert not [
            s for s in secrets if isinstance(s, str) and len(s) > 8 and json.dumps(s, ensure_ascii=False) in text
        ]
    hidden = [json.loads(line) for line in text.splitlines()]
    assert [r.get("topic") for r in hidden] == [r.get("topic") for r in plain]
    assert {v[:7] for r in hidden for v in r.get("properties", {}).values()} == {"sha256:"}


@pytest.mark.parametrize("choice", ["--columns", "--sort"])
@pytest.mark.parametrize("form", [("-o", "text"), ("-o", "hex"), ("--format-string", "%t")])
def test_nothing_is_chosen_among_columns_that_are_not_there(
    root: Path, rmqctl: Any, choice: str, form: tuple[str, str]
) -> None:
    refused = rmqctl("dump", root, choice, "topic", *form)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"Invalid value for '{choice}'" in refused.stderr


def test_a_table_of_a_life_is_whole(root: Path, rmqctl: Any) -> None:
    refused = rmqctl("trace", root, "TopicTest/1@0", "--columns", "time")
    assert (refused.exit_code, "add -o csv" in refused.stderr) == (2, True)


def test_format_string(root: Path, rmqctl: Any) -> None:
    result = rmqctl("dump", root, "--format-string", r"%t/%p %o %O [%k] %T %S %s %h %i%%\n", "--key", "k1")
    at = len(encode_record(record(body=b"body 0", properties=b"KEYS\x01k0\x02")))
    wanted = f"TopicTest/1 0 {at} [k1] 1700000000123 6 body 1 KEYS=k1 0A00000100002A9F{at:016X}%\n"
    assert result.stdout == wanted
    raw = rmqctl("dump", root, "--format-string", "%s", "--topic", "Other").stdout_bytes
    assert raw == b"\xff"
    result = rmqctl("dump", root, "--format-string", "%s,")
    assert "log.body-crc at commitlog/" in result.stderr and result.exit_code == 1


@pytest.mark.parametrize(
    "args",
    [
        ["--format-string", "%z"],
        ["--format-string", "%s", "-o", "json"],
        ["--follow", "-o", "json"],
        ["--redact", "-o", "hex"],
        ["--grep", "("],
        ["--after", "tomorrow"],
        ["-n", "0"],
        ["--from-offset", "9", "--to-offset", "3"],
    ],
)
def test_wrong_usage(root: Path, rmqctl: Any, args: list[str]) -> None:
    assert rmqctl("dump", root, *args).exit_code == 2


def test_following_needs_a_log(rmqctl: Any) -> None:
    result = rmqctl("dump", golden.pristine(STORE) / "index", "--follow")
    assert result.exit_code == 2 and "needs a log" in result.stderr


def test_hex_shows_the_bytes_of_what_was_asked_for(root: Path, rmqctl: Any) -> None:
    result = rmqctl("dump", root, "--key", "k1", "-o", "hex")
    assert 'topic: "TopicTest"' in result.stdout and "k2" not in result.stdout and result.exit_code == 0
    result = rmqctl("dump", root, "-o", "hex")
    assert result.stdout.count("message TopicTest/1") == 3 and result.exit_code == 1
    result = rmqctl("dump", root, "-o", "hex", "--from-offset", str(SIZE))
    assert "Other/1" in result.stdout and "TopicTest" not in result.stdout


def test_text_shows_nested_values(root: Path, rmqctl: Any) -> None:
    text = rmqctl("dump", root, "-o", "text", "--key", "k1").stdout
    assert text.splitlines()[0].startswith("message commitlog/") and "  properties:\n    KEYS: k1\n" in text


@pytest.mark.parametrize("name", ["5.5.0-clean", "5.1.4-crash"])
@pytest.mark.parametrize("kind", ["table", "json", "jsonl", "csv", "text"])
def test_everything_in_a_store_in_every_kind_of_output(name: str, kind: str, rmqctl: Any) -> None:
    root = golden.pristine(name)
    for path in sorted(root.iterdir()):
        if path.name != "rocksdbstore":
            result = rmqctl("dump", path, "-o", kind, "-n", "20")
            assert result.exit_code == 0 and result.stdout, path


@pytest.mark.parametrize(
    ("name", "data", "code"), [("notes.txt", b"hello", 11), ("empty", b"", 11), ("gone", None, 11)]
)
def test_paths_that_are_nothing(tmp_path: Path, rmqctl: Any, name: str, data: bytes | None, code: int) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    result = rmqctl("dump", tmp_path / name)
    assert result.exit_code == code and result.stderr.startswith("rmqctl: ") and name in result.stderr


def test_release_decides_how_properties_are_read(tmp_path: Path, rmqctl: Any) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log_of([record(properties=b"a\x01b\x01c\x02x\x01y\x02")]))
    new, old = (rows(rmqctl("dump", tmp_path, "-o", "jsonl", "--as-release", r))[0] for r in ("4.9.1", "4.9.0"))
    assert (new["properties"], old["properties"]) == ({"a": "b\x01c", "x": "y"}, {"x": "y"})


def _follow(root: Path, *args: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rmqctl", "dump", str(root), "--follow", "-o", "jsonl", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2])


def test_following_ends_quietly_with_ctrl_c(root: Path) -> None:
    with _follow(root, "--topic", "Other") as process:
        assert process.stdout and process.stderr
        assert json.loads(process.stdout.readline())["topic"] == "Other"
        path = root / "commitlog" / f"{SIZE:020d}"
        data = path.read_bytes().rstrip(b"\0")
        new = encode_record({**record(topic=b"Other", body=b"new"), "physical_offset": SIZE + len(data)})
        path.write_bytes((data + new).ljust(SIZE, b"\0"))
        assert json.loads(process.stdout.readline())["body_size"] == 3
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""
        assert process.wait(10) == 0


def test_following_ends_quietly_when_nobody_reads(root: Path) -> None:
    with _follow(root) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        path = root / "commitlog" / f"{SIZE:020d}"
        data = path.read_bytes().rstrip(b"\0")
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            data += encode_record({**record(body=b"new"), "physical_offset": SIZE + len(data)})
            path.write_bytes(data.ljust(SIZE, b"\0"))
            time.sleep(0.1)
        assert process.wait(1) == 0 and process.stderr.read() == b""


def test_following_stops_at_the_limit(root: Path) -> None:
    with _follow(root, "-n", "2", "--topic", "TopicTest") as process:
        out, _ = process.communicate(timeout=20)
        assert out.count(b'"kind":"message"') == 2
