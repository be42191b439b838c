"""The page on releases, from the tables of the program and the stores of real brokers: `docs/releases.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from rmqctl.kafka.directory.releases import KNOWN as KAFKA
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.rules import RecoveryRules
from rmqctl.rocketmq.state.releases import FIRST_PATCH
from rmqctl.rocketmq.state.releases import KNOWN as ROCKETMQ

ROOT = Path(__file__).parents[1]
HEAD = """# Releases

## Brokers

`--as-release` takes any release of these tables; without it the release counts that the files show (`rmqctl info
--explain`). Another one is refused, not guessed. A test prints this page from the tables of the program. *Real stores*:
stores of a broker of this release, with what it was asked and answered, are read by the tests. *Real starts*: brokers
of this release were started on more than a hundred damaged stores, and `recover` gives the same answers.
"""
VERSIONS = """## Versions of rmqctl

Names of commands and options, exit codes, JSON keys, and ids of findings and reasons are the interface.

* Before 1.0 a release may change them; [CHANGELOG](../CHANGELOG.md) says so under *Changed* or *Removed*.
* 1.0 comes when JSON keys and ids are frozen: no key and no id was changed or taken away for two minor releases.
* From then on they change with the major version only. What is to go keeps working until then, and the command says on
  stderr what takes its place. More keys, ids, options and commands may come with any minor version; a script ignores
  keys that it does not know.
* Layout of tables, wording, and modules of the library that `rmqctl.open` does not lead to may change at any time.
* A new release of a broker comes with a minor version. Python versions follow those that get fixes; 3.11 is the oldest.
"""
FEATURES: Mapping[str, Callable[[RecoveryRules], bool]] = {
    "V2 records": lambda rules: rules.known_v2,
    "IPv6 hosts": lambda rules: rules.known_v6,
    "batch queues": lambda rules: rules.batch_queues,
    "a bad index file stops it": lambda rules: rules.index_error_stops,
    "drops an empty last file": lambda rules: rules.drops_empty_last,
}


def page() -> str:
    """The page, from the tables."""
    stores, starts = seen("rocketmq"), seen("rocketmq", "recovery")
    rows = [
        [_span(family), rules.normal_start, rules.abnormal_start]
        + ["yes" if has(rules) else "" for has in FEATURES.values()]
        + [_of(stores, family), _of(starts, family)]
        for rules, family in ((RecoveryRules.of(group[0]), group) for group in families())
    ]
    head = [
        "release",
        "reads the log, after a clean exit, from",
        "after a crash from",
        *FEATURES,
        "real stores",
        "real starts",
    ]
    text = [HEAD, "### RocketMQ", "", *table(head, rows), ""]
    stores, starts = seen("kafka"), seen("kafka", "recovery")
    series = [[Release(*numbers, patch) for patch in range(newest + 1)] for numbers, newest in sorted(KAFKA.items())]
    rows = [[_span(group), _of(stores, group), _of(starts, group)] for group in series]
    text += ["### Kafka", "", *table(["release", "real directories", "real starts"], rows), "", VERSIONS]
    return "\n".join(text)


def families() -> list[list[Release]]:
    """Releases of RocketMQ in order, those that follow each other and start alike together."""
    known = [
        Release(*series, patch)
        for series, newest in sorted(ROCKETMQ.items())
        for patch in range(FIRST_PATCH.get(series, 0), newest + 1)
    ]
    same = groupby(known, key=lambda release: replace(RecoveryRules.of(release), release=known[0]))
    return [list(group) for _, group in same]


def seen(family: str, kind: str = "tar") -> set[Release]:
    """The releases of which there are stores, or recorded starts (``recovery``)."""
    files = [*(ROOT / "fixtures" / family).iterdir()]
    files += (ROOT / "fixtures" / "interop").iterdir() if family == "rocketmq" else []
    named = (file.name for file in files if f".{kind}" in file.name and file.name[0].isdigit())
    return {Release.parse(".".join(name.partition("-")[0].split(".")[:3])) for name in named}


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _span(group: list[Release]) -> str:
    return str(group[0]) if len(group) == 1 else f"{group[0]} to {group[-1]}"


def _of(releases: set[Release], group: list[Release]) -> str:
    return ", ".join(str(release) for release in sorted(releases & set(group)))
