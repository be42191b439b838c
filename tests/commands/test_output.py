"""The output layer: the same rows as table, JSON, JSON lines and CSV."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from commands import _progress
from commands._answer import write
from commands._app import Output
from commands._cells import cell, instant, printable, size
from commands._json import encode
from commands._progress import progress
from commands._rows import keys_of
from commands._screen import fold, pad
from rmqctl.answer import Answer, Section

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
        "kind                        rocketmq-store",
        "commit_log.files            4",
        "commit_log.bytes_allocated  256 KiB",
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


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 200])
def test_table_never_passes_the_margin_and_loses_nothing(show: Show, width: int) -> None:
    rows = [
        {"message": "stored 907060870, computed 2088001802", "offset": n * 1000, "file": "commitlog/" + "0" * 20}
        for n in range(5)
    ]
    text = show("table", rows, width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    squeezed = "".join(text.split())
    for row in rows:
        for word in str(row["offset"]), "stored", "2088001802":
            assert word in squeezed


def test_narrow_table_becomes_blocks(show: Show) -> None:
    text = show("table", [ROW, ROW], width=40)
    block = [
        "topic            TopicTest",
        "store_timestamp  2023-11-14T22:13:20.123",
        "                 Z",
        "body_size        64 KiB",
        "keys             a, b",
    ]
    assert text.splitlines() == [*block, "", *block]


def test_later_rows_keep_the_widths_of_the_first(show: Show) -> None:
    rows = [{"n": 1, "text": "short"}] * 600 + [{"n": 10**12, "text": "much longer than before"}]
    lines = show("table", rows).splitlines()
    assert lines[0] == "            n  text"
    assert lines[-4:] == [
        "1000000000000  much",
        "               longer",
        "               than",
        "               before",
    ]


def test_numbers_stay_in_one_piece(show: Show) -> None:
    rows = [{"text": "x" * 30, "n": 1}] * 600 + [{"text": "", "n": 10**12}]
    assert show("table", rows, width=34).splitlines()[-1].split() == [str(10**12)]


def test_colour_changes_nothing_but_colour(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"severity": "error", "file": "a"}]
    plain = show("table", rows)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    coloured = show("table", rows)
    assert "\x1b[" in coloured
    import re

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
    lines = fold(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(cell_len(pad(line, width)) == width for line in lines)


def test_keys_stay_beside_their_neighbours() -> None:
    assert keys_of([{"kind": 1, "z": 1}, {"kind": 1, "id": 2}, {"z": 1, "end": 2}]) == ["kind", "id", "z", "end"]


# progress


def test_no_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Reading", 100) as advance:
        advance(50)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("Reading", 2 << 20) as advance:
        advance(1 << 20)
    assert "Reading" in terminal.getvalue()
    assert not _progress._shown


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
