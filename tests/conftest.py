"""What all tests share: the command line in this process, golden output, golden stores, patience of hypothesis."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory
from hypothesis import HealthCheck, settings

from commands import cli
from fixtures import golden as golden_stores

Rmqctl = Callable[..., Result]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background ignores it, and so would its children
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # nobody's own defaults

settings.register_profile(
    "rmqctl", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("rmqctl")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected output of transcripts")
    parser.addoption("--every", type=int, default=1, metavar="N", help="only every Nth case of each test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all but every Nth case of a parametrized test: a sample of tables with hundreds of rows."""
    every = config.getoption("--every")
    seen: Counter[str] = Counter()
    left: list[pytest.Item] = []
    for item in items if every > 1 else ():
        name = item.nodeid.partition("[")[0]
        if seen[name] % every:
            left.append(item)
        seen[name] += 1
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def pytest_sessionfinish() -> None:
    """Remove unpacked bundles: a worker of xdist ends without the end of a process, at which they would go."""
    if (archives := sys.modules.get("rmqctl.files.archives")) is not None:
        for directory in archives._DIRECTORIES:
            directory.cleanup()


@pytest.fixture
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether expected output is to be rewritten instead of compared."""
    return bool(pytestconfig.getoption("--update-golden"))


@pytest.fixture
def rmqctl(monkeypatch: pytest.MonkeyPatch) -> Rmqctl:
    """Run ``rmqctl`` with arguments in this process, 100 columns wide, without colour; bugs raise."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    return run


def run(*args: object) -> Result:
    """Run the command line in this process."""
    result = CliRunner().invoke(cli, [str(arg) for arg in args], prog_name="rmqctl")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def clock() -> Iterator[FrozenDateTimeFactory]:
    """The clock of this machine, which stands at 1,700,000,000 seconds of the epoch until ``tick`` or ``move_to``."""
    import pyarrow.compute as pc  # noqa: F401 - whose first import wants the true classes of time

    with freeze_time("2023-11-14T22:13:20Z") as stopped:
        assert isinstance(stopped, FrozenDateTimeFactory)
        yield stopped


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack a golden store by name into the test's own directory."""
    return lambda name: golden_stores.unpack(name, tmp_path)


@pytest.fixture(params=[pytest.param(100, marks=pytest.mark.slow), 6])
def cuts(request: pytest.FixtureRequest) -> int:
    """At how many moments of a run the power is cut."""
    return request.param
