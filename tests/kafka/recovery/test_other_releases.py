"""Log directories that another release takes over: the verdict of `preflight` against whole brokers of that release."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden

RECORDED = Path(golden.__file__).parent / "interop"
CELLS: list[dict[str, Any]] = json.loads(lzma.decompress((RECORDED / "kafka.matrix.json.xz").read_bytes()))
Rmqctl = Callable[..., Result]


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log directories with features at other levels (``tests/interop/record_matrix.py``)."""
    return golden.extract(RECORDED / "kafka-levels.tar.xz", tmp_path_factory.mktemp("levels"))


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell['store']}-as-{cell['release']}")
def test_a_broker_of_another_release_does_what_is_foreseen(cell: dict[str, Any], levels: Path, rmqctl: Rmqctl) -> None:
    logs = levels / cell["store"]
    logs = logs if logs.exists() else golden.pristine(cell["store"])
    found = json.loads(rmqctl("preflight", logs, "--to", cell["release"], "-o", "json").stdout)
    assert found["starts"] == cell["starts"], (found["error"], cell.get("error"))
    if not cell["starts"]:
        return
    serves = any(not topic.startswith("__") for topic, *_ in cell["ends"])
    verdict = (
        "unknown" if cell["store"].startswith("2.8.2") else "loses"
    )  # no release since reads its metadata, if it has any
    assert found["verdict"] == ("starts" if serves else verdict)
