"""The tables of settings, from the jars: ``python -m tests.interop.settings_table rocketmq DIRECTORY`` prints one.

A line is a name and what each release that changed it made of it: ``name 4.9.7=16 5.3.3=32 5.5.0-`` came with 4.9.7 or
earlier, has another default from 5.3.3 on, and is gone in 5.5.0. A default that depends on the machine is ``*``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop import judge, kafka_node

RELEASES = {
    "rocketmq": ("4.9.7", "5.1.4", "5.3.3", "5.5.0"),
    "kafka": ("2.8.2", "3.3.2", "3.9.2", "4.0.0", "4.3.1", "4.4.0"),
}
_MACHINES = (("-XX:ActiveProcessorCount=1", "-Duser.home=/a"), ("-XX:ActiveProcessorCount=40", "-Duser.home=/b"))
_OF_THE_HOST = ("brokerName", "brokerIP1", "brokerIP2", "rocketmqHome")


def settings(jars: str) -> dict[str, str]:
    """Name and default of the settings in the jars of one release."""
    source = judge.PROJECT / "SettingNames.java"
    asked = [["java", *machine, "-cp", jars, str(source)] for machine in _MACHINES]
    found = [subprocess.run(words, check=True, capture_output=True, text=True).stdout for words in asked]
    one, other = (dict(line.split("\t") for line in text.strip("\n").split("\n")) for text in found)
    return {name: "*" if value != other[name] or name in _OF_THE_HOST else value for name, value in one.items()}


def lines(by_release: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The table of several releases, in their order."""
    names = sorted({name for known in by_release.values() for name in known})
    return [" ".join([name, *_changes(name, by_release)]) for name in names]


def _changes(name: str, by_release: Mapping[str, Mapping[str, str]]) -> Sequence[str]:
    found, last = [], None
    for release, known in by_release.items():
        value = known[name].replace(" ", "%20") if name in known else None
        if value != last:
            found.append(f"{release}-" if value is None else f"{release}={value}")
        last = value
    return found


def jars_of(family: str, release: str, work: Path) -> str:
    """The jars of a release."""
    if family == "kafka":
        return kafka_node.jars_of(release, work)
    return judge.class_path(release, work, "StartedBroker")


if __name__ == "__main__":
    family, work = sys.argv[1], Path(sys.argv[2])
    print("\n".join(lines({release: settings(jars_of(family, release, work)) for release in RELEASES[family]})))
