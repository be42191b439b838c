"""What commands print as JSON is what docs/schemas says, on stores of real brokers, sound and damaged."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from commands import COMMANDS, cli
from docs import schemas
from fixtures import golden as golden_stores

COMMON = """
    doctor {S}; doctor {D}; info {S}; verify {S}; verify {D}; topics {S}; lag {S}; offsets {S} show; recover {S}; recover {D}
    info {S} --at {T}; topics {S} --at {T}; lag {S} --at {T}
    recover {D} --all; repair {S}; repair {D}; rebuild {S}; undo {S} --list; diff {S} {D}; dump {D}; salvage {D} {OUT}; stats {S}
"""
OF_KIND = {
    "rocketmq": f"""{COMMON}
        query-key {{S}} LabOrders order-3; query-time {{S}} LabOrders/0 2020-01-01; query-offset {{S}} LabOrders/0 1 -n 3
        trace {{S}} LabOrders/0@1; preflight {{S}} --to 5.5.0; preflight {{S}} --to 4.9.7
    """,
    "kafka": f"""{COMMON}
        producers {{S}}; transactions {{S}}; metadata {{S}}; query-key {{S}} txn-a k1; query-time {{S}} txn-a/0 earliest
        producers {{S}} --at {{T}}; transactions {{S}} --at {{T}}; metadata {{S}} --at {{T}}
        query-offset {{S}} txn-a/0 0 -n 3; trace {{S}} txn-a/0@1; elect {{S}} {{D}}
        preflight {{S}} --to 4.3.1; preflight {{S}} --to 3.9.2
    """,
    "": "explain log.body-crc; explain batch.crc; explain miss.no-index; formats; formats record; config",
}
FEW = {"rocketmq": ("5.5.0-clean",), "kafka": ("4.3.1-clean",), "": ("",)}
ALL = {
    "rocketmq": (
        "4.5.2-crash",
        "4.9.8-clean",
        "4.9.8-crash",
        "5.1.4-clean",
        "5.3.3-crash",
        "5.5.0-clean",
        "5.5.0-crash",
    ),
    "kafka": ("2.8.2-clean", "2.8.2-crash", "3.9.2-crash", "4.3.1-clean", "4.3.1-crash"),
    "": ("",),
}
WITHOUT = {
    "produce", "convert", "export", "bundle", "browse", "pipeline", "completion", "report", "sql", "query-id", "watch"
}  # fmt: skip
"""They say only what they made, or what the words of a query or another command say."""


Documents = dict[str, dict[str, list[Any]]]
"""What each command said, by kind of store."""


def documents(stores: dict[str, tuple[str, ...]], into: Path) -> Documents:
    """Run every line on every store."""
    found: Documents = {}
    for kind, name in ((kind, name) for kind, names in stores.items() for name in names):
        room = into / (name or "none")
        places: dict[str, Any] = {"OUT": room / "salvaged", "T": "2026-11-21T01:47:36Z"} | (
            dict(zip("SD", _stores(kind, name, room), strict=True)) if name else {}
        )
        for line in re.split(r"[;\n]\s*", OF_KIND[kind].strip()):
            words = shlex.split(line.format(**places))
            ended = CliRunner().invoke(cli, [*words, "-o", "json"])
            if ended.exit_code in (0, 1):
                found.setdefault(words[0], {}).setdefault(kind, []).append(json.loads(ended.stdout))
            else:
                assert isinstance(ended.exception, SystemExit), f"{line}: {ended.output}"
    return found


def _stores(kind: str, name: str, room: Path) -> Iterator[Path]:
    """A golden store, and a copy with a flipped byte in the middle of its largest log file."""
    for place in ("sound", "damaged"):
        yield golden_stores.unpack(name, room / place)
    logs = "commitlog/*" if kind == "rocketmq" else "[a-z]*-0/*.log"
    largest = max((room / "damaged").rglob(logs), key=lambda path: path.stat().st_blocks)
    with largest.open("r+b") as file:
        data = file.read(1 << 16)
        at = len(data.rstrip(b"\0")) // 2
        file.seek(at)
        file.write(bytes([data[at] ^ 0x55]))


@pytest.mark.slow
def test_schemas_are_those_of_the_documents(tmp_path: Path, update_golden: bool) -> None:
    made = {
        command: schemas.text_of(schemas.schema_of(command, COMMANDS[command][1], of_kind))
        for command, of_kind in documents(ALL, tmp_path).items()
    }
    if update_golden:
        for old in schemas.DIRECTORY.glob("*.json"):
            old.unlink()
        for command, text in made.items():
            (schemas.DIRECTORY / f"{command}.json").write_text(text, "utf-8")
    there = {path.stem: path.read_text("utf-8") for path in schemas.DIRECTORY.glob("*.json")}
    assert there.keys() == made.keys()
    wrong = [name for name in made if made[name] != there[name]]
    assert wrong == [], "type: pytest tests/commands/test_schemas.py -m '' --update-golden"


def test_documents_keep_to_the_schemas(tmp_path: Path) -> None:
    found = documents(FEW, tmp_path)
    assert found.keys() == {path.stem for path in schemas.DIRECTORY.glob("*.json")}
    for command, of_kind in found.items():
        schema = json.loads((schemas.DIRECTORY / f"{command}.json").read_text("utf-8"))
        assert schema["description"] == COMMANDS[command][1]
        for kind, said in of_kind.items():
            own = next((one for one in schema.get("anyOf", ()) if one["title"] == kind), schema)
            for document in said:
                jsonschema.validate(document, {**own, "additionalProperties": False} if "properties" in own else own)


def test_every_command_has_one() -> None:
    assert set(COMMANDS) - {path.stem for path in schemas.DIRECTORY.glob("*.json")} == WITHOUT
