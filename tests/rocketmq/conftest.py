"""What tests share: one working copy of each store, damaged by a variant and mended again; stores of rare formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fixtures import damage, golden
from tests.rocketmq.damage_table import Variant
from tests.rocketmq.rare_stores_helpers import RARE


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


@pytest.fixture
def rare(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack a rare store by kind."""

    def unpack(kind: str) -> Path:
        golden.extract(RARE / f"5.3.3-{kind}.tar.xz", tmp_path)
        return tmp_path / f"5.3.3-{kind}"

    return unpack
