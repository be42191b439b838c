"""Questions for what lies after the last thing that is known: releases, offsets; and names of another family's form."""

from __future__ import annotations

import json

import pytest

from fixtures import golden
from tests.conftest import Rmqctl


@pytest.mark.parametrize(
    ("store", "release", "hint"),
    [
        ("5.5.0-clean", "9.9.9", "known here are 3.2.6 and 4.4 to 5.5.1"),
        ("5.5.0-clean", "3.5.8", "known here are 3.2.6 and 4.4 to 5.5.1"),
        ("5.5.0-clean", "4.3.1", "known here are 3.2.6 and 4.4 to 5.5.1"),
        ("5.5.0-clean", "5.1.9", "5.1.4"),
        ("4.3.1-clean", "5.3.3", "known here are 0.8 to 4.4.0"),
        ("4.3.1-clean", "4.3.2", "4.3.1"),
    ],
)
@pytest.mark.parametrize("verb", ["recover", "verify"])
def test_a_release_that_is_not_known_is_refused(verb: str, store: str, release: str, hint: str, rmqctl: Rmqctl) -> None:
    said = rmqctl(verb, golden.pristine(store), "--as-release", release)
    assert said.exit_code == 2
    assert f"{release} is no release of" in said.stderr
    assert hint in said.stderr


def test_two_numbers_are_the_newest_known_patch(rmqctl: Rmqctl) -> None:
    for store, series, patch in (("4.3.1-clean", "4.3", "4.3.1"), ("5.5.0-clean", "5.1", "5.1.4")):
        said = rmqctl("recover", golden.pristine(store), "--as-release", series, "-o", "json")
        assert json.loads(said.stdout)["release"] == patch
        root = golden.pristine(store)
        assert f"rmqctl verify {root}\n" in rmqctl("recover", root, "--as-release", series).stdout


@pytest.mark.parametrize(
    ("store", "release", "why"),
    [
        ("4.3.1-clean", "3.9.2", "metadata.version has level 30, and 3.9.2 supports 1 to 21"),
        ("4.3.1-clean", "4.1", "metadata.version has level 30, and 4.1.2 supports 7 to 27"),
        ("4.3.1-clean", "4.4.0", None),
        ("3.9.2-clean", "4.0.0", None),
        ("3.9.2-clean", "4.3.1", "is less than 1,048,576, the least that it takes"),
    ],
)
def test_a_broker_does_not_start_on_features_that_it_does_not_support(
    store: str, release: str, why: str | None, rmqctl: Rmqctl
) -> None:
    said = rmqctl("recover", golden.pristine(store), "--as-release", release, "-o", "json")
    found = json.loads(said.stdout)
    assert (found["starts"], said.exit_code) == (why is None, 0 if why is None else 1)
    assert why is None or why in found["error"]


def test_metadata_after_its_end_says_so(rmqctl: Rmqctl) -> None:
    root = golden.pristine("4.3.1-clean")
    assert "the metadata ends at offset 425" in rmqctl("metadata", root, "--at", 99999).stderr
    assert "ends at" not in rmqctl("metadata", root, "--at", 425).stderr


def test_names_and_formats_of_the_other_family_lead_to_the_right_ones(rmqctl: Rmqctl) -> None:
    root = golden.pristine("4.3.1-clean")
    assert "of Kafka TOPIC/PARTITION: txn-a/0" in rmqctl("query-offset", root, "txn-a-0", 5).stderr
    assert "leave out --format rocketmq" in rmqctl("dump", root, "--format", "rocketmq").stderr
