"""Transcripts: commands and exactly what they print, one file a subject, in `tests/transcripts`.

A line ``$ rmqctl ...`` runs a command; what follows is its output, stdout and stderr as they came, then
``[exit N]`` where N is not 0. ``$ store NAME`` unpacks a golden store into the directory that commands run in,
``$ mkdir NAME`` makes an empty one, ``$ write FILE TEXT`` a small file, ``$ damage FILE OFFSET HEX`` overwrites bytes. Lines with ``#`` at the start are comments.
`pytest --update-golden` rewrites the files.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import cli
from fixtures import golden as golden_stores
from tests.conftest import Rmqctl

DIRECTORY = Path(__file__).parent / "transcripts"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("file", sorted(DIRECTORY.glob("*.transcript")), ids=lambda file: file.stem)
def test_transcript(
    file: Path, rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update_golden: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = file.read_text("utf-8")
    actual = "".join(_played(expected, rmqctl))
    if update_golden:
        file.write_text(actual, "utf-8")
    assert actual == expected or update_golden


def test_every_command_has_a_transcript() -> None:
    lines = [line for file in DIRECTORY.glob("*.transcript") for line in file.read_text("utf-8").splitlines()]
    shown = {line.split()[2] for line in lines if line.startswith("$ rmqctl ") and len(line.split()) > 2}
    assert not cli.commands.keys() - shown


_ALLOCATED = re.compile(r"(bytes[_ ]allocated\"?:?,? +)[0-9][0-9.]*( [KMG]?i?B)?")
_TIMES = re.compile(r"\([0-9.]+ s(?:, (?:[0-9,]+ a second|nothing to do))?\)|(?<=\"seconds\":)[0-9.]+")


def _played(text: str, rmqctl: Rmqctl) -> Iterator[str]:
    """The transcript with fresh output: comments and commands are kept, the rest is made anew."""
    for line in text.splitlines():
        if line.startswith("#"):
            yield f"{line}\n"
        elif line.startswith("$ "):
            yield f"{line}\n{_output(shlex.split(line[2:]), rmqctl)}"


def _output(words: list[str], rmqctl: Rmqctl) -> str:
    match words:
        case ["rmqctl", *args]:
            result = rmqctl(*args)
            text = result.output if result.output.endswith("\n") or not result.output else f"{result.output}\n"
            text = _ALLOCATED.sub(r"\1(as the file system likes)", text)
            text = _TIMES.sub("(as long as it took)", text).replace(f"{Path.cwd().resolve()}/", "")
            return text + (f"[exit {result.exit_code}]\n" if result.exit_code else "")
        case ["store", name]:
            golden_stores.unpack(name, Path())
        case ["mkdir", name]:
            Path(name).mkdir(parents=True)
        case ["damage", name, offset, data]:
            with Path(name).open("r+b") as file:
                file.seek(int(offset))
                file.write(bytes.fromhex(data))
        case ["write", name, content]:
            Path(name).write_bytes(os.fsencode(content))
        case _:
            pytest.fail(f"a transcript cannot say {shlex.join(words)!r}")
    return ""
