"""`doctor`: real incidents, each made on a copy of a golden store; what the first lines say was written by hand."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from rmqctl.errors import TooDamaged
from rmqctl.rocketmq.family import RocketMQ
from tests.conftest import Rmqctl


def emptied(directory: str) -> Callable[[Path], object]:
    """All that lies in a directory is gone."""

    def change(root: Path) -> None:
        shutil.rmtree(root / directory)
        (root / directory).mkdir()

    return change


def zeroed(file: str, low: int, high: int) -> Callable[[Path], object]:
    """A hole of zeros."""

    def change(root: Path) -> None:
        with (root / file).open("r+b") as opened:
            opened.seek(low)
            opened.write(bytes(high - low))

    return change


def removed(file: str) -> Callable[[Path], object]:
    return lambda root: (root / file).unlink()


def flipped(file: str, offset: int) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        data = bytearray((root / file).read_bytes())
        data[offset] ^= 0x20
        (root / file).write_bytes(data)

    return change


INCIDENTS = {
    "consumequeue gone": ("5.5.0-crash", emptied("consumequeue"), "queue", "repair"),
    "hole in the log": ("5.5.0-clean", zeroed("commitlog/00000000000000262144", 40960, 45056), "log.", "repair"),
    "partition.metadata lost": ("3.9.2-clean", removed("plain-none-0/partition.metadata"), "plain-none-0", "repair"),
    "a batch with a wrong CRC": (
        "3.9.2-clean",
        flipped("plain-none-0/00000000000000000047.log", 1200),
        "plain-none-0: The bytes of the batch do not match its CRC-32C",
        "repair",
    ),
    "hanging transaction": ("3.9.2-clean", lambda root: None, "Transaction tx-hang-1 never ended", "transactions"),
}


@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_first_lines_name_what_is_wrong(incident: str, rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    name, change, said, verb = INCIDENTS[incident]
    root = golden(name)
    change(root)
    told = rmqctl(root)
    lines = told.stdout.splitlines()
    assert told.exit_code == 1
    assert said in " ".join(lines[:3])
    commands = [line.removeprefix("Next:").strip() for line in lines if line[5:].lstrip().startswith("rmqctl ")]
    assert 1 <= len(commands) <= 5
    first = shlex.split(commands[0])
    assert first[:2] == ["rmqctl", verb]
    for command in commands:
        assert rmqctl(*shlex.split(command)[1:]).exit_code in {0, 1}
    assert json.loads(rmqctl("doctor", root, "-o", "json").stdout)["next"] == commands


def test_a_sound_store_ends_with_0(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    told = rmqctl("doctor", golden("5.5.0-clean"))
    assert told.exit_code == 0
    assert told.stdout.startswith("Nothing is wrong.\n")
    assert "Next:" not in told.stdout


def test_what_is_no_store_is_an_error(rmqctl: Rmqctl, tmp_path: Path) -> None:
    assert rmqctl("doctor", tmp_path).exit_code == 11
    assert rmqctl(tmp_path).exit_code == 11


def test_a_large_log_is_looked_at_less(
    rmqctl: Rmqctl, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqctl import doctor

    root = golden("5.5.0-clean")
    monkeypatch.setattr(doctor, "LEVELS", ((1, "full"), (1 << 30, "structure")))
    text = " ".join(rmqctl("doctor", root).stdout.split())
    assert "Nothing is wrong as far as level structure looks." in text
    assert "Not looked at: the bodies of messages." in text
    assert f"Next: rmqctl verify {root}" in text


def test_what_cannot_be_asked_is_no_all_clear(
    rmqctl: Rmqctl, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(self: RocketMQ, **_: object) -> NoReturn:
        raise TooDamaged("config/consumerOffset.json", "it is no JSON")

    monkeypatch.setattr(RocketMQ, "lag", damaged)
    done = rmqctl("doctor", golden("5.5.0-clean"))
    assert done.exit_code == 1
    assert "Not looked at: lag: config/consumerOffset.json" in " ".join(done.stdout.split())
    assert "Nothing is wrong" not in done.stdout
