"""What a person sees: no identifier is broken or cut at any width, and in a pipe a row is a line.

Identifiers are those of the JSON of the same answer. A sample of stores runs always, all of them where tests may be
slow: golden ones at all widths, and every damaged variant of the recovery oracles of both families at 80 columns and
in a pipe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from fixtures import damage, golden, kafka_damage
from rmqctl.findings import all_kinds
from tests.conftest import Rmqctl

WIDTHS = (60, 80, 100, 120, 200, 0)
"""Columns; 0: a pipe."""
_NAMES = ("topic", "group", "file", "id", "key", "transactional_id", "partition")
_EPOCH = re.compile(r"(?<![\w.])1[5-9][0-9]{11}(?![\w.])")
_NAME = 30
"""Cells of an indent or a name before a word."""
_TABLES = (("topics",), ("lag",))
_NOTICES = (("verify", "--all"), ("repair", "--all"))
_OTHERS = (("verify",), ("repair",), ("recover",), ("info",))
FAMILIES = {"rocketmq": ("4.9.8", "5.5.0"), "kafka": ("3.9.2", "4.3.1")}
FEW = {"clean/crc-body-mid-batch", "crash/torn-tail-body", "clean/totalsize-flip-mid", "crash/body-flip"}


def _cases() -> Iterator[Any]:
    for family, releases in FAMILIES.items():
        for release in releases:
            found = golden.recovery_oracle(release)["variants"]
            names = list(found) if family == "rocketmq" else [each["variant"] for each in found]
            for number, name in enumerate(["clean/", "crash/", *names]):
                is_few = (number < 2 and release in {"5.5.0", "4.3.1"}) or name in FEW
                marks = () if is_few else (pytest.mark.slow,)
                yield pytest.param(family, release, name, id=f"{release}-{name}", marks=marks)


def _store(family: str, release: str, variant: str, place: Path) -> Path:
    root = golden.unpack(f"{release}-{variant.partition('/')[0]}", place)
    if variant.endswith("/"):
        return root
    found = golden.recovery_oracle(release)["variants"]
    if family == "rocketmq":
        damage.apply(found[variant]["recipe"], root)
    else:
        kafka_damage.apply(next(each["recipe"] for each in found if each["variant"] == variant), root)
    return root


@pytest.mark.parametrize(("family", "release", "variant"), list(_cases()))
def test_identifiers_stay_whole(
    family: str, release: str, variant: str, rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _store(family, release, variant, tmp_path)
    is_sound = variant.endswith("/")
    for words in (*_TABLES, *_NOTICES, *(_OTHERS if is_sound else ())):
        names = _identifiers(rmqctl(*words[:1], root, "-o", "jsonl").stdout) if words in _TABLES + _NOTICES else set()
        if words in _TABLES:
            names = {name for name in names if "/" not in name}
        for width in WIDTHS if is_sound else (80, 0):
            if width:
                monkeypatch.setenv("COLUMNS", str(width))
            else:
                monkeypatch.delenv("COLUMNS")
            text = rmqctl(*words, root).stdout
            words_shown = set(re.split(r"[\s,:;`()]+", text))
            missing = {name for name in names if name not in words_shown and name not in text}
            assert not missing, f"{words} at {width}"
            assert not _EPOCH.findall(text), f"{words} at {width}"
            assert not [line for line in text.splitlines() if width and not _fits(line, width)], f"{words} at {width}"


def _identifiers(lines: str) -> set[str]:
    """Names in rows, those of objects in them, too; of a partition its number says nothing."""
    found: set[str] = set()
    for line in lines.splitlines():
        row = json.loads(line)
        if row.get("kind") != "summary":
            found |= {row[name] for name in _NAMES if isinstance(row.get(name), str)}
    return found


def _fits(line: str, width: int) -> bool:
    """Whether a line passes the margin only for its last word, after an indent or a name, or for a command to copy."""
    head, _, word = line.rpartition(" ")
    return cell_len(line) <= width or "rmqctl " in line or (len(head) <= _NAME and word != "")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_flood_folds(width: int, rmqctl: Rmqctl, golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden("5.5.0-clean")
    rows = [json.loads(line) for line in rmqctl("dump", root, "-o", "jsonl").stdout.splitlines()]
    bodies = [row for row in rows if row["kind"] == "message" and row["body_size"] > 8 and row["size"] < 4000][:300]
    for row in bodies:
        with (root / row["file"]).open("r+b") as file:
            file.seek(row["position"] + 84 + (24 if "[" in row["born_host"] else 0) + 8)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 0x55]))
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
    else:
        monkeypatch.delenv("COLUMNS")
    text = rmqctl("verify", root, "--no-notes").stdout
    assert len(text.splitlines()) < 40
    errors = [row for row in _findings(rmqctl, root) if row["severity"] == "error"]
    most = max(sum(row["id"] == name for row in errors) for name in {row["id"] for row in errors})
    assert most > 100
    assert f"and {most - 3} more in" in text
    assert rmqctl("verify", root, "--all").stdout.count("error  ") == len(errors)


def _findings(rmqctl: Rmqctl, root: Path) -> list[dict[str, Any]]:
    return list(json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"])


def test_a_pipe_finds_ids_and_topics(rmqctl: Rmqctl, golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    root = golden("5.3.3-crash")
    damage.apply([{"op": "write", "file": "commitlog/00000000000000262144", "offset": 72659, "hex": "6f"}], root)
    assert "newer-than-checkpoint" in rmqctl("verify", root).stdout
    lines = rmqctl("dump", root, "--damaged").stdout.splitlines()
    assert sum("SCHEDULE_TOPIC_XXXX" in line for line in lines) == len(lines) - 2


def test_every_notice_of_an_error_says_what_to_do(rmqctl: Rmqctl, golden: Any) -> None:
    root = golden("4.3.1-clean")
    kafka_damage.apply([{"op": "xor", "file": "idem-0/00000000000000000000.log", "offset": 187, "hex": "20"}], root)
    text = rmqctl("verify", root, "--no-notes").stdout
    assert f"  rmqctl repair {root} --only batch.crc\n" in text
    assert f"\nNext: rmqctl repair {root}   (shows the plan, writes nothing)\n" in text
    shown = rmqctl("repair", root, "--only", "batch.crc")
    assert shown.stdout.startswith("step 1  batch.crc  idem-0, offsets 1 to 7\n")
    assert f"add --apply to carry this out: rmqctl repair {root} --only batch.crc --apply\n" in shown.stderr
    assert {kind.id for kind in all_kinds()} > {"batch.crc"}
