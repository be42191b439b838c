"""Commands close what they open: a store has thousands of files, and a process a thousand descriptors."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path

import pytest

from fixtures import golden
from tests.conftest import Rmqctl

LOOKS = ["info", "topics", "lag", "verify", "recover", "repair", "rebuild", "doctor", "dump"]


@pytest.mark.parametrize("name", ["5.5.0-crash", "4.3.1-crash", "4.3.1-clean"])
def test_a_command_leaves_no_descriptor_open(rmqctl: Rmqctl, tmp_path: Path, name: str) -> None:
    root = golden.unpack(name, tmp_path)
    for command in LOOKS:  # what a process opens once stays open
        rmqctl(command, root, "-o", "json")
    for command in LOOKS:
        gc.collect()
        before = _open()
        rmqctl(command, root, "-o", "json")
        gc.disable()  # a collection would hide that nobody closed
        try:
            assert _open() - before == Counter(), command
        finally:
            gc.enable()


def _open() -> Counter[str]:
    """What the descriptors of this process lead to, those of files under a path only."""
    found = Counter[str]()
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the listing itself
        if path.startswith("/") and not path.startswith(("/proc", "/dev")):
            found[path] += 1
    return found
