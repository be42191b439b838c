"""Damaged log directories, repaired in memory and judged: which sound batches are lost, what a broker would do.

``python -m tests.kafka.repair.judged`` judges every variant of the recovery oracles and prints the table of
``docs/internals/losses.md``: what each kind of damage destroys, what a broker's start gives up, what is lost after a repair.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fixtures import golden, kafka_damage
from rmqctl.files.tree import LocalTree
from rmqctl.findings import Severity
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, read_directory
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.repair.plan import Repair, RepairOptions, overlaid, plan_repair
from rmqctl.kafka.repair.survey import Survey
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release

RELEASES = ("3.9.2", "4.3.1")
Batch = tuple[str, int, bytes]
"""Partition, base offset, and the bytes under the CRC with the CRC itself."""
Row = tuple[str, str, str]
"""Records destroyed by a variant, given up by the start of a broker, and lost after a repair."""
NOTHING: Row = ("0", "0", "0")
OTHER_ID = "partition-metadata-other-id"
"""Damage that stays: an id that can be read says whose records these are, and brokers set the directory aside."""
LEFT = ["directory.topic-id plain-none-0/partition.metadata"]
"""The error that then stays."""
_CRC_AT = 17
_PAGE = Path(__file__).parents[3] / "docs" / "internals" / "losses.md"
_HEADING = "## Kafka: recorded damage"


@dataclass
class Verdict:
    """One repair.

    Attributes:
        lost: records of batches whose own bytes were not destroyed and that are gone afterwards.
        destroyed, given_up: records of batches with damaged bytes, and those of them that are not as they were.
        errors: what verify still calls an error.
        by_broker: records that the recovery of a broker loses; None where it does not start.
    """

    variant: str
    repair: Repair
    lost: int = 0
    destroyed: int = 0
    given_up: int = 0
    errors: list[str] = field(default_factory=list)
    by_broker: int | None = 0

    @property
    def row(self) -> Row:
        """What the table says of it."""
        return (
            str(self.destroyed),
            "does not start" if self.by_broker is None else str(self.by_broker),
            str(self.given_up),
        )


def opened(root: Path) -> LogDirectory:
    return read_directory(LocalTree(str(root)))


def batches(directory: LogDirectory) -> dict[Batch, int]:
    """Sound batches of the plain partitions, with the number of their records."""
    found = dict[Batch, int]()
    for partition in directory.partitions:
        if not partition.is_plain:
            continue
        survey = Survey(partition)
        for row, count in enumerate(survey.columns["records_count"].tolist()):
            batch = survey.batch(row)
            found[partition.directory, batch.base_offset, survey.bytes_of(batch)[_CRC_AT:]] = count
    return found


@cache
def undamaged(name: str) -> dict[Batch, int]:
    return batches(opened(golden.pristine(name)))


def variants(release: str) -> dict[str, dict[str, Any]]:
    return {found["variant"]: found for found in golden.recovery_oracle(release)["variants"]}


def damaged(release: str, variant: str, into: Path) -> Path:
    root = golden.unpack(f"{release}-{variant.partition('/')[0]}", into)
    kafka_damage.apply(variants(release)[variant]["recipe"], root)
    return root


def judge(release: str, variant: str, room: Path, **options: Any) -> Verdict:
    """Damage a directory, plan its repair, and look at what the plan would make of it."""
    root = damaged(release, variant, room)
    staged = room / "staged"
    staged.mkdir()
    directory = opened(root)
    found = plan_repair(directory, RepairOptions(Release.parse(release), **options), staged)
    after = batches(overlaid(directory, found.plan.steps))
    held = defaultdict[str, list[bytes]](list)
    for path in root.glob("*/*.log*"):
        held[path.parent.name].append(path.read_bytes())
    verdict = Verdict(variant, found, by_broker=_lost_by_broker(root, release))
    verdict.errors = [f"{f.kind.id} {f.file}" for f in found.after if f.level is Severity.ERROR]
    for batch, count in undamaged(f"{release}-{variant.partition('/')[0]}").items():
        is_there = any(batch[2] in data for data in held[batch[0]])
        if not is_there:
            verdict.destroyed += count
        if batch not in after:
            verdict.lost += count if is_there else 0
            verdict.given_up += 0 if is_there else count
    return verdict


def _lost_by_broker(root: Path, release: str) -> int | None:
    """What the start of a broker loses; the oracles hold the replay of it to be right."""
    start = recover(Replicas(LogDirectories([opened(root)])), Release.parse(release))
    return start.lost_records if start.starts and not start.offline else None


def documented(release: str) -> dict[str, Row]:
    """The rows of the table for a release; variants that lose nothing either way have none."""
    first = 1 + 3 * RELEASES.index(release)
    lines = _PAGE.read_text("utf-8").partition(_HEADING)[2].splitlines()
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| c"))
    return {name: (cells[first - 1], cells[first], cells[first + 1]) for name, *cells in rows}


def row(release: str, variant: str) -> Row:
    """The row of a variant for a release.

    Raises:
        AssertionError: the repair is not good.
    """
    with tempfile.TemporaryDirectory() as room:
        found = judge(release, variant, Path(room))
    is_left = variant.endswith(OTHER_ID)
    assert found.errors == (LEFT if is_left else []), (release, variant, found)
    assert not found.lost and bool(found.repair.refusal) == is_left, (release, variant, found)
    return found.row


def main(releases: Sequence[str]) -> None:
    """Print the table, a line as soon as it is known; variants that lose nothing either way are left out."""
    for variant in variants(releases[0]):
        rows = [row(release, variant) if variant in variants(release) else NOTHING for release in releases]
        if any(found != NOTHING for found in rows):
            print(f"| {variant} | {' | '.join(cell for found in rows for cell in found)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or RELEASES)
