"""Questions for what lies after the last thing that is known: releases, offsets; and names of another family's form."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from tests.conftest import Rmqctl


@pytest.mark.parametrize("release", ["9.9.9", "4.3.1"])
def test_a_release_that_is_too_new_is_named(rmqctl: Rmqctl, tmp_path: Path, release: str) -> None:
    made = rmqctl("produce", tmp_path / "s", "--topic", "T", "--count", 3, "--small")
    assert made.exit_code == 0
    for root in (tmp_path / "s", golden.pristine("4.3.1-clean")):
        said = rmqctl("recover", root, "--as-release", release)
        assert ("newer than any release known here" in said.stderr) is (release == "9.9.9")
        assert f"rmqctl verify {root}\n" in said.stdout


def test_metadata_after_its_end_says_so(rmqctl: Rmqctl) -> None:
    root = golden.pristine("4.3.1-clean")
    assert "the metadata ends at offset 425" in rmqctl("metadata", root, "--at", 99999).stderr
    assert "ends at" not in rmqctl("metadata", root, "--at", 425).stderr


def test_names_and_formats_of_the_other_family_lead_to_the_right_ones(rmqctl: Rmqctl) -> None:
    root = golden.pristine("4.3.1-clean")
    assert "of Kafka TOPIC/PARTITION: txn-a/0" in rmqctl("query-offset", root, "txn-a-0", 5).stderr
    assert "leave out --format rocketmq" in rmqctl("dump", root, "--format", "rocketmq").stderr
