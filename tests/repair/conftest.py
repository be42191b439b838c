from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.repair.stores import make_store
from tests.repair.workshop import Workshop


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow, id="all"), pytest.param(11, id="some")])
def stride(request: pytest.FixtureRequest) -> int:
    """Which of the requests are tried: all, or each so many."""
    return request.param


@pytest.fixture
def shop() -> Iterator[Workshop]:
    """In memory where there is room: these tests copy and remove many small files."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as home:
        shop = Workshop(Path(home) / "home")
        make_store(shop.root)
        yield shop
