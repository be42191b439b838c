"""One flipped byte costs at most its batch; whatever the bytes are, verify ends and says so."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.verify.driver import Verification

NAME, LOG = "4.3.1-clean", "plain-none-0/00000000000000000094.log"


def few_partitions(into: Path, *partitions: str) -> Path:
    """A directory with some of the partitions of a golden one, and its own files."""
    source = golden.pristine(NAME)
    for path in source.iterdir():
        if path.is_file():
            shutil.copy2(path, into / path.name)
    for name in partitions:
        shutil.copytree(source / name, into / name)
    return into


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return few_partitions(tmp_path, "plain-none-0")


@pytest.mark.parametrize("part", range(8))
def test_one_flipped_byte_costs_at_most_its_batch(small: Path, part: int) -> None:
    path = small / LOG
    sound = path.read_bytes()
    reference = Verification(read_directory(LocalTree(str(small))))
    before = [f for f in reference.findings() if f.file.startswith("plain-none-0")]
    dice = random.Random(part)
    for position in range(part, len(sound), 8):
        changed = bytearray(sound)
        changed[position] ^= dice.randrange(1, 256)
        path.write_bytes(bytes(changed))
        checked = Verification(read_directory(LocalTree(str(small))))
        new = [f for f in checked.findings() if f.file.startswith("plain-none-0") and f not in before]
        assert new, f"byte {position} of {LOG} was flipped, and nothing says so"
        assert checked.summary()["messages"] >= reference.summary()["messages"] - 10


@pytest.mark.parametrize("seed", range(12))
def test_random_bytes_in_any_file(tmp_path: Path, seed: int) -> None:
    root = few_partitions(tmp_path, "plain-none-0", "txn-a-0", "mixed.codec-v1-x-0", "__cluster_metadata-0")
    dice = random.Random(seed)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for path in dice.sample(files, 8):
        data = bytearray(path.read_bytes())
        for _ in range(dice.randrange(1, 6)):
            match dice.randrange(4):
                case 0 if data:
                    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
                case 1:
                    del data[dice.randrange(len(data) + 1) :]
                case 2:
                    at = dice.randrange(len(data) + 1)
                    data[at:at] = dice.randbytes(dice.randrange(1, 40))
                case _:
                    at = dice.randrange(len(data) + 1)
                    data[at : at + 40] = bytes(40)
        path.write_bytes(bytes(data))
    checked = Verification(read_directory(LocalTree(str(root))))
    for finding in checked.findings():
        assert finding.message
        assert finding.offset >= 0
        assert finding.size >= 0
