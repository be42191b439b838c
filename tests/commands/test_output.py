"""The output layer: the same rows as table, JSON, JSON lines and CSV."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from commands import _progress
from commands._answer import write
from commands._app import Output
from commands._cells import cell, instant, printable, said, size
from commands._guard import complain, on_screen
from commands._interactive import Choices, _total
from commands._json import encode
from commands._progress import progress
from commands._rows import keys_of
from commands._screen import fold, pad
from fixtures import damage
from rmqctl.answer import Answer, Section, _nearest
from rmqctl.opening import open_store
from rmqctl.repair.edits import Plan, Step
from tests.conftest import Rmqctl
from tests.rocketmq.log_files import log_of, record

Show = Callable[..., str]
ROW = {
    "topic": "TopicTest",
    "store_timestamp": 1_700_000_000_123,
    "body_size": 65_536,
    "keys": ["a", "b"],
    "tags": None,
}


@pytest.fixture
def show(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Show:
    def run(kind: str, rows: Any, *, width: int = 100, local_time: bool = False, **options: Any) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        out = Output(kind, local_time)
        if isinstance(rows, dict):
            out.document(rows)
        else:
            out.show(rows, **options)
        return capsysbinary.readouterr().out.decode()

    return run


# JSON

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_json_values_come_back(value: Any) -> None:
    assert json.loads(encode(value)) == value


@given(st.binary())
def test_bytes_are_text_or_base64(data: bytes) -> None:
    shown = json.loads(encode({"body": data}))["body"]
    assert (shown.encode() if isinstance(shown, str) else base64.b64decode(shown["base64"])) == data


def test_file_name_that_is_not_utf_8() -> None:
    name = b"topic\xff".decode("utf-8", "surrogateescape")
    assert json.loads(encode({"file": name, "n": 1 << 70})) == {"file": {"base64": "dG9waWP/"}, "n": 1 << 70}


def test_numbers_of_numpy() -> None:
    assert encode({"a": np.int64(5), "b": (np.bool_(True),)}) == b'{"a":5,"b":[true]}\n'


def test_jsonl(show: Show) -> None:
    assert show("jsonl", [{"a": 1}, None, {"b": b"x"}]) == '{"a":1}\n{"b":"x"}\n'
    assert show("jsonl", []) == ""


@pytest.mark.parametrize("count", [0, 1, 3, 5000])
def test_json_is_one_document(show: Show, count: int) -> None:
    rows = [{"n": n} for n in range(count)]
    assert json.loads(show("json", rows)) == rows


def test_documents(show: Show) -> None:
    document = {"kind": "rocketmq-store", "commit_log": {"files": 4, "bytes_allocated": 262_144}}
    assert json.loads(show("json", document)) == document
    assert show("jsonl", document).count("\n") == 1
    assert show("table", document).splitlines() == [
        "kind  rocketmq-store",
        "commit log",
        "  files            4",
        "  bytes allocated  256 KiB",
    ]
    assert show("csv", document).startswith("kind,commit_log\r\n")


def test_none_writes_what_is_held(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    seen = []

    def rows() -> Iterator[dict[str, int] | None]:
        yield {"n": 1}
        yield None
        seen.append(capsysbinary.readouterr().out)

    assert Output("jsonl").show(rows()) == 1
    assert seen == [b'{"n":1}\n']


# CSV


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(), min_size=1), min_size=1))
def test_csv_cells_come_back(rows: list[dict[str, str]]) -> None:
    from commands import _csv

    lines = [_csv._line([_csv._cell(row.get(key)) for key in "abc"]).decode() for row in rows]
    parsed = list(csv.reader(io.StringIO("".join(lines), newline="")))
    assert parsed == [[row.get(key, "") for key in "abc"] for row in rows]


def test_csv(show: Show) -> None:
    rows = [ROW | {"ok": True}, {"kind": "finding", "topic": 'say "hi", all'}]
    assert show("csv", rows).split("\r\n") == [
        "kind,topic,store_timestamp,body_size,keys,tags,ok",
        ',TopicTest,1700000000123,65536,"[""a"",""b""]",,true',
        'finding,"say ""hi"", all",,,,,',
        "",
    ]


def test_csv_keys_that_come_late_are_not_lost(show: Show) -> None:
    rows = [{"n": n} for n in range(1500)] + [{"n": 1500, "late": [1]}]
    table = list(csv.reader(io.StringIO(show("csv", rows), newline="")))
    assert table[0] == ["n", "other"]
    assert table[1] == ["0", ""]
    assert table[-1] == ["1500", '{"late":[1]}']


def test_csv_with_a_given_header(show: Show) -> None:
    assert show("csv", [{"a": 1, "b": 2}], csv_columns=["b", "c"]) == "b,c\r\n2,\r\n"
    assert show("csv", [], csv_columns=["b", "c"]) == "b,c\r\n"


# tables


def test_table(show: Show) -> None:
    assert show("table", [ROW, ROW | {"body_size": 5, "topic": "主题"}], title="Topics").splitlines() == [
        "Topics",
        "",
        "                                       body",
        "topic      store timestamp             size  keys  tags",
        "---------  ------------------------  ------  ----  ----",
        "TopicTest  2023-11-14T22:13:20.123Z  64 KiB  a, b",
        "主题       2023-11-14T22:13:20.123Z     5 B  a, b",
    ]


def test_table_chooses_columns(show: Show) -> None:
    assert show("table", [ROW], columns=["body_size", "topic"]).splitlines()[-1] == "64 KiB  TopicTest"


def test_table_without_rows_is_empty(show: Show) -> None:
    assert show("table", []) == ""


FINDINGS = [
    {
        "message": f"stored 90706087{n}, computed 2088001802",
        "offset": n * 1000,
        "file": f"commitlog/{n:020}",
        "level": 1,
    }
    for n in range(5)
]


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 100, 200])
def test_table_breaks_no_word_and_passes_the_margin_only_for_one(show: Show, width: int) -> None:
    text = show("table", FINDINGS, width=width)
    for line in text.splitlines():
        assert cell_len(line) <= max(width, len("message  ") + 30)
    for row in FINDINGS:
        for word in row["file"], str(row["offset"]), *str(row["message"]).split():
            assert word in text.replace("\n", " ").split(" ")


def test_what_gives_way_where_a_table_is_too_wide(show: Show) -> None:
    assert show("table", FINDINGS, width=90).splitlines()[0].split() == ["message", "offset", "file", "level"]
    assert show("table", FINDINGS, width=81).splitlines()[:4] == [
        "every row: level 1",
        "",
        "message                                offset  file",
        "-------------------------------------  ------  ------------------------------",
    ]
    assert show("table", FINDINGS, width=70).splitlines()[4:6] == [
        "stored 907060870, computed           0  commitlog/00000000000000000000",
        "2088001802",
    ]
    assert show("table", FINDINGS, width=50).splitlines()[4:6] == [
        "     0  commitlog/00000000000000000000",
        "    stored 907060870, computed 2088001802",
    ]
    assert show("table", FINDINGS, width=36).splitlines()[2:6] == [
        "message  stored 907060870, computed",
        "         2088001802",
        "offset   0",
        "file     commitlog/00000000000000000000",
    ]


def test_times_and_last_columns_follow_prose_below_a_row(show: Show) -> None:
    rows = [{"topic": "A" * n, "queue": n, "store_timestamp": n, "records": n, "bytes": n} for n in (4, 5)]
    assert show("table", rows, width=30).splitlines() == [
        "topic  queue  records  bytes",
        "-----  -----  -------  -----",
        "AAAA       4        4    4 B",
        "    store timestamp 1970-01-01T00:00:00.004Z",
        "AAAAA      5        5    5 B",
        "    store timestamp 1970-01-01T00:00:00.005Z",
    ]


def test_a_row_is_a_line_where_stdout_is_no_terminal(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    Output("table").show([{**row, "level": "x " * 200} for row in FINDINGS])
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert len(lines) == 2 + len(FINDINGS)
    assert all(row["file"] in line for row, line in zip(FINDINGS, lines[2:], strict=True))


def test_narrow_table_becomes_blocks(show: Show) -> None:
    assert show("table", [ROW, ROW | {"topic": "B"}], width=10).splitlines() == [
        "every row:",
        "store",
        "timestamp",
        "2023-11-14T22:13:20.123Z,",
        "body size",
        "64 KiB,",
        "keys a, b,",
        "tags none",
        "",
        "topic",
        "---------",
        "TopicTest",
        "B",
    ]
    rows = [{"topic": "T" * 20, "group": "G" * n} for n in (20, 21)]
    assert show("table", rows, width=30).splitlines() == [
        "every row: topic",
        "T" * 20,
        "",
        "group",
        "---------------------",
        "G" * 20,
        "G" * 21,
    ]
    rows = [{"topic": "T" * n, "group": "G" * n} for n in (20, 21)]
    assert show("table", rows, width=30).splitlines() == [
        *(f"topic  {'T' * 20}", f"group  {'G' * 20}"),
        "",
        *(f"topic  {'T' * 21}", f"group  {'G' * 21}"),
    ]


def test_widths_come_from_what_is_shown(show: Show) -> None:
    rows = [{"n": 1, "text": "short"}] * 600 + [{"n": 10**12, "text": "much longer than before"}]
    lines = show("table", rows).splitlines()
    assert lines[:3] == ["n  text", "-  -----", "1  short"]
    assert lines[-1] == f"{10**12}  much longer than before"


def test_numbers_stay_in_one_piece(show: Show) -> None:
    rows = [{"text": "x" * 30, "n": 1}] * 600 + [{"text": "", "n": 10**12}]
    assert show("table", rows, width=34).splitlines()[-1].split() == ["n", str(10**12)]


def test_colour_changes_nothing_but_colour(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"severity": "error", "file": "a"}]
    plain = show("table", rows)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    coloured = show("table", rows)
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("store_timestamp", 0, "1970-01-01T00:00:00.000Z"),
        ("time", -1, "1969-12-31T23:59:59.999Z"),
        ("store_timestamp", 1 << 62, str(1 << 62)),
        ("store_timestamp", -(1 << 62), str(-(1 << 62))),
        ("size", 126, "126 B"),
        ("bytes", 1536, "1.5 KiB"),
        ("commit_log_file_size", 1 << 30, "1 GiB"),
        ("body_size", -1, "-1 B"),
        ("queue_offset", 65_536, "65536"),
        ("ok", True, "yes"),
        ("ok", False, "no"),
        ("seconds", 0.25, "0.25"),
        ("lag_ms", 0, "0 ms"),
        ("lag_ms", -999, "-999 ms"),
        ("lag_ms", 7_000, "7s"),
        ("lag_ms", 7_250, "7.2s"),
        ("timeout_ms", 1_434_819, "23m 54s"),
        ("lag_ms", 176_400_000, "2d 1h"),
        ("tags", None, ""),
        ("body", b"\xff", "base64:/w=="),
        ("properties", {"A": "b", "C": 1}, "A=b, C=1"),
        ("topic", "a\x1b[31mb\nc", r"a\x1b[31mb\nc"),
    ],
)
def test_cells(key: str, value: Any, text: str) -> None:
    assert cell(key, value) == text


def test_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from commands import _cells

    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    _cells._second.cache_clear()
    try:
        assert instant(1_700_000_000_123, local_time=True) == "2023-11-15T06:13:20.123+08:00"
    finally:
        monkeypatch.undo()
        time.tzset()
        _cells._second.cache_clear()


@given(st.integers(0, 1 << 62))
def test_size_is_near(count: int) -> None:
    number, unit = size(count).split()
    factor = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
    assert abs(float(number) * factor - count) <= 0.051 * factor


@given(st.text())
def test_printable_holds_no_control_characters(text: str) -> None:
    assert printable(text).isprintable()


@given(st.text(st.characters(categories=["L", "N", "Zs"]), max_size=80), st.integers(2, 20))
def test_fold_fits_and_keeps_every_letter(text: str, width: int) -> None:
    assert all(cell_len(line) <= width or " " not in line.strip() for line in fold(text, width))
    lines = fold(text, width, anywhere=True)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(cell_len(pad(line, width)) == width for line in lines)


def test_keys_stay_beside_their_neighbours() -> None:
    assert keys_of([{"kind": 1, "z": 1}, {"kind": 1, "id": 2}, {"z": 1, "end": 2}]) == ["kind", "id", "z", "end"]


# what is wanted of rows


def test_rows_are_chosen(show: Show, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    rows = [{"a": n, "b": str(n), "c": None if n == 2 else -n} for n in range(4)]
    Output("jsonl", columns=("c", "a"), sort="-c", limit=3).show(rows)
    assert [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()] == [
        {"c": 0, "a": 0},
        {"c": -1, "a": 1},
        {"c": -3, "a": 3},
    ]
    Output("csv", columns=("b",), sort="a").show(rows)
    assert capsysbinary.readouterr().out == b"b\r\n0\r\n1\r\n2\r\n3\r\n"
    with pytest.raises(SystemExit) as stopped:
        Output(columns=("help",)).show(rows)
    assert stopped.value.code == 0 and capsysbinary.readouterr().out == b"a\nb\nc\n"
    for bad in (Output(columns=("aa",)), Output(sort="bb")):
        with pytest.raises(click.BadParameter, match="is no column here"):
            bad.show(rows)


def test_a_limit_leaves_the_exit_status_alone(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root = golden("5.5.0-clean")
    offsets = root / "config/consumerOffset.json"
    text = offsets.read_text()
    changed = re.sub(r'("LabOrders@Lab_grpFull":\{[^}]*?3:)\d+', r"\g<1>99999", text)
    assert changed != text
    offsets.write_text(changed)
    whole = rmqctl("lag", root, "-o", "jsonl")
    assert whole.exit_code == 1
    first = rmqctl("lag", root, "-o", "jsonl", "-n", 1)
    assert first.exit_code == 1 and first.stdout == whole.stdout.splitlines()[0] + "\n"


@pytest.mark.parametrize(
    ("words", "environment", "coloured"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color", "never"), {"CLICOLOR_FORCE": "1"}, False),
        ((), {"CLICOLOR_FORCE": "1"}, True),
        ((), {"CLICOLOR_FORCE": "0"}, False),
        ((), {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour(
    words: tuple[str, ...], environment: dict[str, str], coloured: bool, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in rmqctl("formats", *words).stdout) is coloured


# progress


def test_no_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Reading", 100) as advance:
        advance(50)
    assert capsys.readouterr() == ("", "")


def test_lines_say_how_far_long_work_is_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with freeze_time("2026-11-20T08:00:00Z") as clock:
        with progress("verify", 8 << 20) as advance:
            for seconds in (10, 19, 11, 5, 35):
                clock.tick(seconds)
                advance(1 << 20)
        with progress("repair", None, unit=_progress.STAGES) as advance:
            clock.tick(130)
            advance(0, "log")
    assert capsys.readouterr().err.splitlines() == [
        "rmqctl: verify: 3 MiB of 8 MiB, 76.8 KiB/s, 40s so far, about 1m 7s left",
        "rmqctl: verify: 5 MiB of 8 MiB, 64 KiB/s, 1m 20s so far, about 48s left",
        "rmqctl: repair: log, 2m 10s so far",
    ]


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("Reading", 2 << 20) as advance:
        advance(1 << 20)
    assert "Reading" in terminal.getvalue()
    assert not _progress._shown


def test_what_is_known_before_the_end_stands_below_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("verify", 2 << 20) as advance:
        advance(0, "so far 3 errors in [red]/0\x1b[31m " + "x" * 200)
        advance(1 << 20)
    *_, bar, note = terminal.getvalue().replace("\x1b[2K", "").split("\n")[:2]
    assert "1.0/2.0 MiB" in bar
    assert note.startswith("so far 3 errors in [red]/0\\x1b[31m x")
    assert note.endswith("…")


def test_verify_says_the_first_finding_before_the_last_byte(golden: Any) -> None:
    root = golden("5.3.3-crash")
    damage.apply([{"op": "write", "file": "commitlog/00000000000000262144", "offset": 72659, "hex": "6f"}], root)
    told = list[str]()
    answer = open_store(str(root)).verify()
    answer.on_stage, answer.on_advance = told.append, lambda size: told.append("") if size else None
    list(answer)
    said = [text for text in told if text]
    assert said[0] == "so far 1 error; first log.body-crc, SCHEDULE_TOPIC_XXXX/8, offset 1"
    assert told.index(said[0]) < len(told) - 1


def test_a_name_in_a_sentence_cannot_drive_a_terminal(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write(Output("table"), Answer(sections=lambda: [Section(lines=["topic \x1b[31mred\x07 has no queue"], folds=True)]))
    assert capsysbinary.readouterr().out == b"topic \\x1b[31mred\\x07 has no queue\n"


def test_nor_can_one_in_what_is_said_beside_the_results(
    rmqctl: Rmqctl, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    complain("the store knows no topic \x1b[31mred\x07")
    assert capsysbinary.readouterr().err == b"rmqctl: the store knows no topic \\x1b[31mred\\x07\n"
    odd = tmp_path / "commitlog" / "\x1b[31m"
    odd.parent.mkdir()
    odd.write_bytes(log_of([record()], 4096))
    assert "\x1b" not in rmqctl("dump", odd, "-o", "hex").output


def test_nor_can_one_in_what_repair_asks() -> None:
    step = Step("log.gap", "a", "do", "why", loses=1, gives_up=("\x1b[31mT/0@1",))
    assert _total(Plan(Path(), "", (step,)), 0, Choices()).endswith(r"with this step 1: \x1b[31mT/0@1")


@pytest.mark.parametrize("width", [40, 60, 100])
def test_sentences_of_a_section_are_broken_where_the_terminal_ends(
    width: int, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    sentence = "log.body-crc: The rest of the record is intact. Restore the body from a replica, or accept the loss."
    sections = [Section(lines=[sentence], folds=True), Section(lines=["x" * 200])]
    write(Output("table"), Answer(sections=lambda: sections))
    *folded, whole = capsysbinary.readouterr().out.decode().splitlines()
    assert " ".join(folded) == sentence and max(map(len, folded)) <= width
    assert whole == "x" * 200


@pytest.mark.parametrize("width", [60, 80, 120])
def test_one_long_name_among_others_does_not_make_blocks_of_all_rows(
    width: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = ["plain", "订单主题-上海", "esc\x1b[31mred", "L" * 127, "Orders"]
    rows = [{"topic": name, "messages": 20_000 + n, "max_offset": 20_000 + n} for n, name in enumerate(names)]
    Output("table").show(rows)
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if cell_len(line) > width] == ["L" * 127]
    at = lines.index("L" * 127)
    assert lines[at + 1].split() == ["20,003", "20003"]
    assert len(lines) == 2 + len(names) + 1 + (lines[0].split()[0] != "topic")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("commitlog/00000000000000524288 has 135168 bytes, not 131072", "has 135,168 bytes, not 131,072"),
        ("1310720 empty slots follow 0 entries", "1,310,720 empty slots follow 0 entries"),
        ("the first points to 437541, but the log ends at 330182", "points to 437541, but the log ends at 330182"),
        ("stored CRC 3860620991, computed 1", "CRC 3860620991, computed 1"),
        ("offset 262144 records", "offset 262144 records"),
        ("stamped after the year 9999, at most 1790000000399000", "at most the year 58692"),
        ("a\x1b[31m 22040 expected", r"a\x1b[31m 22,040 expected"),
    ],
)
def test_amounts_in_sentences_have_separators_and_places_have_none(text: str, shown: str) -> None:
    assert said(text).endswith(shown)


def test_what_is_said_on_stderr_breaks_at_words_and_keeps_commands_whole() -> None:
    said = "rmqctl: tx-1 keeps a transaction open in txn-a-0; type: kafka-transactions.sh --topic txn-a --partition 0"
    assert list(on_screen(said, 40)) == [
        "rmqctl: tx-1 keeps a transaction open",
        "  in txn-a-0; type:",
        "  kafka-transactions.sh --topic txn-a --partition 0",
    ]
    assert list(on_screen(said, 200)) == list(on_screen(said, 0)) == [said]
    plain = "rmqctl: nothing was written; add --apply to carry this out: rmqctl repair store --apply"
    assert list(on_screen(plain, 60))[-1] == "  rmqctl repair store --apply"
    assert list(on_screen("rmqctl: no command here, and a name-that-is-longer-than-the-screen", 30)) == [
        "rmqctl: no command here, and",
        "  a",
        "  name-that-is-longer-than-the-screen",
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(-2, 12))
def test_a_step_is_about_the_finding_that_is_nearest_of_several_the_first(offsets: list[int], place: int) -> None:
    rows = [{"offset": offset, "number": number} for number, offset in enumerate(sorted(offsets))]
    assert _nearest(rows, place) is min(rows, key=lambda row: abs(row["offset"] - place))


@given(st.lists(st.text("abc", max_size=9), min_size=1, max_size=30), st.integers(8, 40), st.integers(0, 6))
def test_lines_after_the_first_leave_room_for_their_indent(words: list[str], width: int, hang: int) -> None:
    first, *rest = fold(" ".join(words), width, hang=hang)
    longest = max(map(len, words))
    assert len(first) <= max(width, longest)
    assert all(len(line) <= max(width - hang, longest) for line in rest)
    assert " ".join([first, *rest]).split() == " ".join(words).split()
