"""Classes of releases, compiled once a run, and a Java process with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.judge import Judge, class_path

Judges = Callable[..., Judge]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that holds the compiled judges."""
    return tmp_path_factory.mktemp("interop")


@pytest.fixture
def judges(compiled: Path, tmp_path: Path) -> Iterator[Judges]:
    """``judges(release, workers=1)``: a Java process with the classes of a release; it ends with the test."""
    with ExitStack() as stack:
        yield lambda release, **given: stack.enter_context(
            Judge(class_path(release, compiled), tmp_path / f"java-{release}", **given)
        )
