"""What all tests share: the command line in this process, golden output, golden stores, patience of hypothesis."""

from __future__ import annotations

import os
import shutil
import signal
import sys
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
    parser.addoption(
        "--every", type=sample, default=(1, 0), metavar="N[+K]", help="only every Nth case of each test, from the Kth"
    )


def sample(text: str) -> tuple[int, int]:
    """Read ``N`` or ``N+K``: every Nth case, and the number of the first, which is 0 where none is given."""
    every, _, first = text.partition("+")
    if int(every) < 1:
        raise ValueError(text)
    return int(every), int(first or 0)


@pytest.hookimpl(trylast=True)  # of what -k and -m leave: else a test whose first case is a fast one gives no slow one
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all but every Nth case of a parametrized test: a sample of tables with hundreds of rows.

    N samples from N numbers in a row have every case; a test of less than N cases gives one to each.
    """
    every, first = config.getoption("--every")
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for some in cases.values() for item in some[first % min(every, len(some)) :: every]}
    if left := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item in kept]


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


@pytest.fixture(autouse=True, scope="session")
def _roomy_disk() -> Iterator[None]:
    """Let half of each disk be free, however full that of the machine is: `doctor` warns of a full one."""
    measured = shutil.disk_usage

    def roomy(path: str | os.PathLike[str]) -> object:
        found = measured(path)
        return found._replace(free=max(found.free, found.total // 2))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shutil, "disk_usage", roomy)
        yield
