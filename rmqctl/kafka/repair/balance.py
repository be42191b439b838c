"""Plans held to their books: what a step gives up gets its names, and what does not balance is planned with less trust.

The next way believes the frames of whole batches in the files that are meant, so that none of them is changed, and in a
compacted log puts nothing in their place; then the batches that would be lost stay where they are, with what is damaged
around them; then the file does, and at last the partition. Only whole batches that lie where no reader meets them are
given up, each by its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmqctl.errors import Refused
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import LogDirectory
from rmqctl.kafka.findings.directory import DIRECTORY_FOREIGN, DIRECTORY_NAME, DIRECTORY_STRAY
from rmqctl.kafka.findings.log import BATCH_LEADER_EPOCH, BATCH_MAGIC, SEGMENT_NAME
from rmqctl.kafka.repair.ledger import KafkaLedger
from rmqctl.kafka.repair.log import UNBALANCED
from rmqctl.kafka.repair.overlaid import changed_by
from rmqctl.kafka.repair.sides import Side, is_log
from rmqctl.kafka.repair.survey import LOG_KINDS
from rmqctl.kafka.verify.driver import PartitionChecked
from rmqctl.repair.books import Books, WholeRecord, balance
from rmqctl.repair.edits import Plan, Quarantine, Step

_AS_A_WHOLE = frozenset({DIRECTORY_STRAY.id, DIRECTORY_FOREIGN.id, DIRECTORY_NAME.id, SEGMENT_NAME.id})
"""Steps that move whole directories or segments out, and may give up what readers met in them."""
_OF_FRAMES = frozenset({BATCH_LEADER_EPOCH, BATCH_MAGIC})
_MOST_KEPT = 1 << 10
_MOST_ROUNDS = 4
"""Batches of a partition, and plans for it, up to which single ones stay where they are; else their whole files do."""


@dataclass
class Cautions:
    """What is planned with less trust than the rest: first a file, then a batch in it, a file as a whole, a partition.

    Attributes:
        believed: logs in which the frames of whole batches stay as they are.
        kept: bytes of whole batches that stay where they are, by the directory of their partition.
        unmoved: directories of partitions in which no batch is put elsewhere.
        left: logs, and directories of partitions, that stay as they are, with the first of what did not balance.
    """

    believed: set[str] = field(default_factory=set)
    kept: dict[str, set[bytes]] = field(default_factory=dict)
    unmoved: set[str] = field(default_factory=set)
    left: dict[str, str] = field(default_factory=dict)
    _rounds: Counter[str] = field(default_factory=Counter)

    def learn(self, directory: LogDirectory, plan: Plan, books: Books) -> bool:
        """Trust that less which does not balance; whether there is another way to try."""
        changed, learned = {edit.file for edit in plan.edits}, False
        for name in sorted(changed_by(plan.edits) & {partition.directory for partition in directory.partitions}):
            mine = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")
            problems = [text for text in books.problems if mine.search(text)]
            if not problems or name in self.left:
                continue
            logs = {file for file in changed if file.startswith(f"{name}/") and is_log(file)}
            logs = {file for file in logs if any(file in text for text in problems)} or logs
            lost = [record for record in books.lost if record.queue == name]
            if logs - self.believed:
                self.believed |= logs
            elif self._keeps(directory, name, lost):
                pass
            elif name not in self.unmoved:
                self.unmoved.add(name)
            else:
                unsound = logs - self.left.keys() or {name}
                self.left |= dict.fromkeys(unsound, problems[0])
            learned = True
        return learned or self._regrets(plan)

    def _regrets(self, plan: Plan) -> bool:
        """Leave the files from which batches are given up beside what stays as it is: that may be what is wrong."""
        beside = {name: "batches beside it stay where they are" for name, kept in self.kept.items() if kept}
        beside |= {name.partition("/")[0]: problem for name, problem in self.left.items()}
        changed = {edit.file for step in plan.steps if step.gives_up for edit in step.edits if is_log(edit.file)}
        more = {file: beside[name] for file in changed if (name := file.partition("/")[0]) in beside}
        self.left |= more
        return bool(more)

    def _keeps(self, directory: LogDirectory, name: str, lost: Sequence[WholeRecord]) -> bool:
        """Let batches that a plan loses stay where they are; whether there are any that it did not know."""
        self._rounds[name] += 1
        kept = self.kept.setdefault(name, set())
        if self._rounds[name] > _MOST_ROUNDS or len(kept) + len(lost) > _MOST_KEPT:
            return False
        side, count = Side(directory.tree), len(kept)
        kept.update(side.bytes_at(record.file, record.position, record.size) for record in lost)
        return len(kept) > count

    def doubted(self, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings for which the log of a partition is mended."""
        return [
            finding
            for finding in findings
            if finding.kind in LOG_KINDS and not (finding.kind in _OF_FRAMES and finding.file in self.believed)
        ]

    def forbids(self, step: Step) -> bool:
        """Whether a step changes what is to stay as it is."""
        if step.id == UNBALANCED and step.file in self.left:
            return True  # that is said of all of it
        return any(edit.file in self.left or edit.file.partition("/")[0] in self.left for edit in step.edits)

    def steps(self) -> Iterator[Step]:
        """Yield what is said of the files and the partitions that stay as they are."""
        for name, problem in sorted(self.left.items()):
            why = f"no way to mend it keeps every whole batch: {problem}; rmqctl salvage reads it"
            yield Step(UNBALANCED, name if is_log(name) else f"{name}/", "left as it is", why)


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
