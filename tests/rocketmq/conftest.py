"""What tests of damaged stores share: one working copy of each store, damaged by a variant and mended again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import damage, golden
from tests.rocketmq.damage_table import Variant


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One working copy of each store: every variant damages it and then takes the damage back."""
    directory = tmp_path_factory.mktemp("damaged")
    return {name: golden.unpack(name, directory) for name in golden.BROKER_STORES}


@pytest.fixture
def damaged(request: pytest.FixtureRequest, copies: dict[str, Path]) -> Iterator[tuple[Variant, Path]]:
    """The variant that the test is parametrized with, and the root of the store damaged by it."""
    variant: Variant = request.param
    recipe = golden.recovery_oracle(variant.release)["variants"][variant.name]["recipe"]
    root = copies[variant.base]
    damage.apply(recipe, root)
    try:
        yield variant, root
    finally:
        damage.undo(recipe, golden.pristine(variant.base), root)
