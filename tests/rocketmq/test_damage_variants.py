"""``verify`` of every damaged variant names the planted damage and nothing unrelated (``damage_table``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from tests.rocketmq.damage_table import Variant, variants

ALL = [variant for release in golden.RELEASES for variant in variants(release)]


@pytest.mark.parametrize("release", golden.RELEASES)
def test_the_table_lists_every_variant(release: str) -> None:
    assert [variant.name for variant in variants(release)] == list(golden.recovery_oracle(release)["variants"])


@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=lambda v: f"{v.release}-{v.name}")
def test_planted_damage_is_named(damaged: tuple[Variant, Path], rmqctl: Any) -> None:
    variant, root = damaged
    result = rmqctl("verify", root, "-o", "json")
    assert result.exit_code in (0, 1), result.stderr
    assert variant.objections(json.loads(result.stdout)["findings"], root) == []
