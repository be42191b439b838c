"""``verify`` of every damaged variant names the planted damage and nothing unrelated (``damage_table``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from tests.rocketmq.damage_table import Variant, variants

ALL = [variant for release in golden.RELEASES for variant in variants(release)]


@pytest.mark.parametrize("release", golden.RELEASES)
def test_the_table_lists_every_variant(release: str) -> None:
    assert [variant.name for variant in variants(release)] == list(golden.recovery_oracle(release)["variants"])


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One working copy of each store: every variant damages it and then takes the damage back."""
    directory = tmp_path_factory.mktemp("damaged")
    return {name: golden.unpack(name, directory) for name in golden.BROKER_STORES}


@pytest.fixture
def damaged(request: pytest.FixtureRequest, copies: dict[str, Path]) -> Iterator[tuple[Variant, Path]]:
    variant: Variant = request.param
    recipe = golden.recovery_oracle(variant.release)["variants"][variant.name]["recipe"]
    root = copies[variant.base]
    damage.apply(recipe, root)
    try:
        yield variant, root
    finally:
        damage.undo(recipe, golden.pristine(variant.base), root)


@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=lambda v: f"{v.release}-{v.name}")
def test_planted_damage_is_named(damaged: tuple[Variant, Path], rmqctl: Any) -> None:
    variant, root = damaged
    result = rmqctl("verify", root, "-o", "json")
    assert result.exit_code in (0, 1), result.stderr
    assert variant.objections(json.loads(result.stdout)["findings"], root) == []
