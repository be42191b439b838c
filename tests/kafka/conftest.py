"""Golden log directories, scanned once a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectory, read_directory


@pytest.fixture(params=golden.KAFKA_NAMES)
def golden_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def directory(golden_name: str) -> Iterator[LogDirectory]:
    return read_directory(LocalTree(golden.pristine(golden_name)))  # type: ignore[return-value]
