"""Plans held to their books: what a step gives up gets its names, and what does not balance is planned with less trust.

The next way believes the frames of whole batches, so that none of them is changed, and in a compacted log puts nothing
in their place; the last leaves a partition as it is. Only whole batches that lie where no reader meets them are given
up, each by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmqctl.errors import Refused
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import LogDirectory
from rmqctl.kafka.findings.directory import DIRECTORY_FOREIGN, DIRECTORY_NAME, DIRECTORY_STRAY
from rmqctl.kafka.findings.log import BATCH_LEADER_EPOCH, BATCH_MAGIC, SEGMENT_NAME
from rmqctl.kafka.repair.ledger import KafkaLedger
from rmqctl.kafka.repair.overlaid import changed_by
from rmqctl.kafka.repair.sides import is_log
from rmqctl.kafka.repair.survey import LOG_KINDS
from rmqctl.kafka.verify.driver import PartitionChecked
from rmqctl.repair.books import Books, balance
from rmqctl.repair.edits import Plan, Quarantine, Step

_AS_A_WHOLE = frozenset({DIRECTORY_STRAY.id, DIRECTORY_FOREIGN.id, DIRECTORY_NAME.id, SEGMENT_NAME.id})
"""Steps that move whole directories or segments out, and may give up what readers met in them."""
_OF_FRAMES = frozenset({BATCH_LEADER_EPOCH, BATCH_MAGIC})
_BELIEVES, _LEAVES = 1, 2


@dataclass
class Cautions:
    """Which partitions are planned with less trust than the others, by their directories.

    Attributes:
        levels: 1: frames of whole batches stay as they are; 2: the partition does.
        problems: the first of what did not balance.
    """

    levels: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def learn(self, directory: LogDirectory, plan: Plan, books: Books) -> bool:
        """Trust the partitions less whose books do not balance; whether there is another way to try."""
        changed, learned = changed_by(plan.edits), False
        for name in sorted(changed & {partition.directory for partition in directory.partitions}):
            mine = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")
            problem = next((text for text in books.problems if mine.search(text)), None)
            if problem is not None and self.levels.get(name, 0) < _LEAVES:
                self.levels[name] = self.levels.get(name, 0) + 1
                self.problems[name] = problem
                learned = True
        return learned

    def believes_frames(self, name: str) -> bool:
        """Whether the frames of whole batches stay as they are."""
        return self.levels.get(name, 0) >= _BELIEVES

    def doubted(self, name: str, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings for which the log of a partition is mended."""
        against = _OF_FRAMES if self.believes_frames(name) else frozenset()
        return [finding for finding in findings if finding.kind in LOG_KINDS and finding.kind not in against]

    def forbids(self, step: Step) -> bool:
        """Whether a step changes a partition that is to stay as it is."""
        return any(self.levels.get(name, 0) >= _LEAVES for name in changed_by(step.edits))

    def steps(self) -> Iterator[Step]:
        """Yield what is said of the partitions that stay as they are."""
        for name, level in sorted(self.levels.items()):
            if level >= _LEAVES:
                why = f"no way to mend it keeps every whole batch: {self.problems[name]}; rmqctl salvage reads it"
                yield Step("repair.books", f"{name}/", "left as it is", why)


def balanced(
    plan: Plan,
    directory: LogDirectory,
    ledger: KafkaLedger,
    left: Sequence[Step] = (),
    looked: Mapping[str, PartitionChecked] | None = None,
) -> tuple[Plan, Books]:
    """Return a plan whose steps name what they give up, and its books.

    A plan that does what a broker does names all that is gone, and each transaction that it decides otherwise.

    Args:
        left: what is shown with it as left as it is.
        looked: what was found in the partitions of the directory, where they were verified.
    """
    try:
        plan = replace(plan, steps=tuple(_named(plan.steps, ledger)))
        ledger.name_by(plan.steps)
        whole = None
        if looked is not None:
            whole = ledger.at_home_before({name: one.whole for name, one in looked.items()})
        return plan, balance(plan, directory.tree, ledger, whole_before=whole, after=ledger.after.tree, left=left)
    except Refused as refused:  # its steps do not fit each other
        return plan, Books(problems=[str(refused)])


def _named(steps: Sequence[Step], ledger: KafkaLedger) -> Iterator[Step]:
    """Yield the steps with the names of the batches that are gone from the logs that they change.

    Batches that readers met are never given up, but by a broker, and with what is moved out as a whole; nor those of a
    compacted log that a bit keeps from them.
    """
    seen, decided = set[str](), dict[str, list[str]]()
    if ledger.is_start:
        for name in ledger.decided([file for step in steps for file in _files(step, ledger)]):
            decided.setdefault(name.partition(" ")[0], []).append(name)
    for step in steps:
        is_whole, names = ledger.is_start or step.id in _AS_A_WHOLE, list[str]()
        for file in _files(step, ledger):
            if is_log(file) and file not in seen:
                seen.add(file)
                names += [one.name for one in ledger.given_up(file) if is_whole or not ledger.holds_to(one)]
            names += decided.pop(file.rpartition("/")[0], ())
        yield replace(step, gives_up=tuple(dict.fromkeys([*step.gives_up, *names]))) if names else step


def _files(step: Step, ledger: KafkaLedger) -> list[str]:
    """Return the files that a step changes, those in directories that it moves out, too."""
    gone = tuple(f"{edit.file}/" for edit in step.edits if isinstance(edit, Quarantine))
    inside = [f for f in ledger.files(ledger.before.tree) if f.startswith(gone)] if step.id in _AS_A_WHOLE else []
    return list(dict.fromkeys([*(edit.file for edit in step.edits), *inside]))
