"""What the books of a Kafka plan are made from: whole batches, where they belong, and what became of transactions.

Partitions that a plan changes are scanned once on each side; of files that it leaves alone one scan serves both.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from formats.errors import DecodeError
from formats.kafka.record_batch import CRC_AT, MAGIC_AT, Attributes, control_type
from rmqctl.files.tree import Tree
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, Partition
from rmqctl.kafka.directory.file_names import METADATA_TOPIC, FileKind, meaning_of
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.log.reference import records_of_batch
from rmqctl.kafka.rebuild.rebuild import is_flipped
from rmqctl.kafka.recovery.replay import Recovery, recover
from rmqctl.kafka.repair.bridge import UNKNOWN_TYPE, is_no_op
from rmqctl.kafka.repair.columns import Columns
from rmqctl.kafka.repair.outcomes import Outcomes, outcomes_of, transactions
from rmqctl.kafka.repair.proofs import Proofs
from rmqctl.kafka.repair.sides import Home, Side, identity_of, is_log, name_of
from rmqctl.kafka.state.metadata import topic_names_ever
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from rmqctl.repair.books import Stretches, WholeRecord
from rmqctl.repair.changes import PlannedFile, planned_files
from rmqctl.repair.edited_file import Overlay
from rmqctl.repair.edits import STORE, Plan, Step
from rmqctl.text import number_of

_OF_TRANSACTIONS = frozenset({FileKind.LOG, FileKind.TXN_INDEX})
_FIELDS = ("position", "size", "base_offset", "last_offset", "crc", "records_count", "attributes")
_MOST_OFFSETS = 1 << 20
"""Offsets of a torn batch that are believed."""


class KafkaLedger:
    """The books of one plan for a log directory; a :class:`~rmqctl.repair.books.Ledger`.

    Args:
        release: whose start is replayed on the result.
        replicas: log directories of other nodes, from which bytes may come.
        start: the start on the result, where it has been replayed.
        is_start: the plan does what a broker does when it starts.
    """

    def __init__(
        self,
        plan: Plan,
        below: LogDirectory,
        release: Release,
        settings: Mapping[str, str] | None = None,
        replicas: Sequence[Replicas] = (),
        start: Recovery | None = None,
        *,
        is_start: bool = False,
    ) -> None:
        self.plan, self.release, self.settings, self.is_start = plan, release, settings or {}, is_start
        changed = frozenset(edit.file for edit in plan.edits)
        self.before = Side(below.tree)
        self.after = Side(Overlay(below.tree, plan.edits), self.before, _Within(changed))
        self.proofs = Proofs(self.before, self.after, plan.steps, replicas)
        self._start = start
        self._outcomes: dict[str, Outcomes] = {}

    def name_by(self, steps: Sequence[Step]) -> None:
        """Take the steps of the plan for those of this ledger: they name what they write and give up."""
        self.proofs.steps = steps

    def _side(self, tree: Tree) -> Side:
        return self.before if tree is self.before.tree else self.after

    # --- batches ----------------------------------------------------------------------------------------

    def files(self, tree: Tree) -> Iterable[str]:
        """Every file that may hold batches."""
        return self._side(tree).names()

    def whole(self, tree: Tree, file: str, stretches: Stretches | None) -> Iterator[WholeRecord]:
        """Every whole batch of a file that overlaps the stretches; what lies inside of a whole one is its own."""
        if not is_log(file):
            return
        side, directory = self._side(tree), file.rpartition("/")[0]
        found, home = side.batches(file), side.home(directory)
        for fields in found.columns.rows(_FIELDS, found.overlapping(stretches)):
            yield self._record(side, file, fields, is_at_home=home.has(file, fields[0]))

    def _record(self, side: Side, file: str, fields: Sequence[int], *, is_at_home: bool) -> WholeRecord:
        position, size, first, last, crc, count, attributes = fields
        directory, data = file.rpartition("/")[0], side.bytes_at(file, position, size)
        stands_in = _is_placeholder(directory, data, count, attributes)
        span = max(last - first + 1, 1)
        return WholeRecord(
            identity_of(directory, data),
            name_of(directory, first, last, crc),
            file,
            position,
            size,
            first,
            span if stands_in else count if count >= 0 else 1,
            is_at_home,
            stands_in,
            directory,
            first,
            span,
        )

    def at_home(self, tree: Tree, record: WholeRecord) -> bool:
        """Whether these bytes stand where a reader of the log meets them."""
        side = self._side(tree)
        home = side.home(record.queue)
        row = home.row(record.offset)
        if row is None or home.columns.value("size", row) != record.size:
            return False
        return identity_of(record.queue, side.bytes_at(*home.place(row))) == record.identity

    def garbage(self, before: Tree, after: Tree, record: WholeRecord) -> str:
        """Why nothing is lost with a batch that is gone."""
        return self.proofs.garbage(record) or (self.proofs.swapped(record) if self.is_start else "")

    def made(self, before: Tree, after: Tree, record: WholeRecord, origin: str) -> str:
        """What proves a batch that was not there."""
        return self.proofs.made(record, origin)

    def torn(self, tree: Tree, file: str, stretches: Stretches | None) -> Iterator[tuple[int, int]]:
        """Batches whose CRC does not match, as far as they can be followed, and how many offsets each takes.

        One of a file beside the log takes none that the log has.
        """
        side, is_beside = self._side(tree), not file.endswith(".log")
        for torn in side.batches(file).torn if is_log(file) else ():
            if stretches is None or any(low < torn.end and torn.position < high for low, high in stretches):
                count = max(torn.last_offset - torn.base_offset + 1, 0)
                home = side.home(file.rpartition("/")[0])
                is_there = is_beside and None not in map(home.holder, (torn.base_offset, torn.last_offset))
                yield torn.position, 0 if torn.is_control or is_there else min(count, _MOST_OFFSETS)

    @cached_property
    def _planned(self) -> Sequence[PlannedFile]:
        return planned_files(self.plan)

    @cached_property
    def _touched(self) -> Mapping[str, Stretches]:
        """What changes in the files that keep their places."""
        return {file.name: file.touched() for file in self._planned if file.was_at == file.is_at == STORE}

    def at_home_before(self, elsewhere: Mapping[str, int]) -> int:
        """Return how many records readers meet in the directory as it is, those for which placeholders stand, too.

        Args:
            elsewhere: records of the partitions whose logs the plan does not change, by their directories.

        Raises:
            Refused: the plan does not fit the directory.
        """
        changed = {file.name.rpartition("/")[0] for file in self._planned if is_log(file.name)}
        here = (_records(self.before.home(name).columns) for name in changed)
        return sum(here) + sum(count for name, count in elsewhere.items() if name not in changed)

    def given_up(self, file: str) -> Iterator[WholeRecord]:
        """Yield the batches of a file that the plan gives up: gone from the log, and no garbage.

        Raises:
            Refused: the plan does not fit the directory.
        """
        for record in self.whole(self.before.tree, file, self._touched.get(file)):
            if record.is_placeholder or self.at_home(self.after.tree, record):
                continue
            if not self._stays(record) and not self.garbage(self.before.tree, self.after.tree, record):
                yield record

    def holds_to(self, record: WholeRecord) -> bool:
        """Whether no step may give a batch up by its name: readers met it, or would but for a bit."""
        return record.is_at_home or self.proofs.may_be_its_own(record)

    def _stays(self, record: WholeRecord) -> bool:
        """Whether a batch is where it was, or elsewhere in the file."""
        found = self.after.batches(record.file)
        rows = np.flatnonzero((found["base_offset"] == record.offset) & (found["size"] == record.size))
        places = ((record.file, int(found["position"][row]), record.size) for row in rows.tolist())
        return any(identity_of(record.queue, self.after.bytes_at(*place)) == record.identity for place in places)

    # --- transactions -----------------------------------------------------------------------------------

    def decided(self, files: Sequence[str]) -> list[str]:
        """Return the transactions that have another outcome afterwards, of the partitions to which files belong."""
        before = self.outcomes(self.before.tree, files)
        after = self.outcomes(self.after.tree, files)
        return [name for name, outcome in before.items() if after.get(name) != outcome]

    def outcomes(self, tree: Tree, files: Sequence[str]) -> Mapping[str, str]:
        """What became of each transaction of the partitions to which files belong."""
        found = dict[str, str]()
        wanted = {f.rpartition("/")[0] for f in files if meaning_of(f.rpartition("/")[2]).kind in _OF_TRANSACTIONS}
        for directory in sorted(wanted | self._outcomes.keys()):
            if directory not in self._outcomes:
                self._outcomes[directory] = outcomes_of(self.before, directory)
            known = self._outcomes[directory]
            mine = transactions(directory, known, known)
            if self._side(tree) is self.after and known.producers:
                mine |= self._changed(directory, known)
            found |= mine
        return found

    def _changed(self, directory: str, known: Outcomes) -> Mapping[str, str]:
        """Return the outcomes of after. One by a marker that was there before, or is healed, is no change."""
        now = outcomes_of(self.after, directory, known)
        for producer, ended in now.producers.items():
            was, facts = known.producers.get(producer), dict[int, bool]()
            if was is None or not len(was.bases):
                continue
            at, is_there = was.rows(ended.bases)
            for row in np.flatnonzero(is_there & (was.kinds[at] != ended.kinds)).tolist():
                end = int(ended.ends[row])
                if end not in facts:
                    facts[end] = self._is_fact(directory, end)
                if end != was.ends[at[row]] and facts[end]:
                    ended.kinds[row] = was.kinds[at[row]]
        return transactions(directory, known, now)

    def _is_fact(self, directory: str, end: int) -> bool:
        home = self.after.home(directory)
        row = home.row(end)
        if row is None:
            return False
        file, position, _ = home.place(row)
        record = next(self.whole(self.after.tree, file, [(position, position + 1)]), None)
        return record is not None and self.proofs.is_fact(record, "")

    # --- a start ----------------------------------------------------------------------------------------

    def start(self, before: Tree, after: Tree) -> Sequence[str]:
        """What a start does to the result that it would not do to the directory as it is; ids that are written over."""
        return [*self._ids(), *self._foreign(), *self._hidden(), *self._epochs(), *self._starts(), *self._cuts()]

    def _foreign(self) -> Iterator[str]:
        """Batches that readers meet and did not before, and that another partition has: they are not of this log."""
        for name in sorted({edit.file.rpartition("/")[0] for edit in self.plan.edits if is_log(edit.file)}):
            was, now = self.before.home(name), self.after.home(name)
            base, is_data = now.columns["base_offset"], now.columns["attributes"] & int(Attributes.CONTROL) == 0
            is_data &= now.columns["records_count"] != 0
            new = np.flatnonzero(is_data & ~np.isin(base, was.columns["base_offset"]))
            for row in new[np.diff(new, prepend=-2) > 1].tolist():
                file, position, size = now.place(row)
                fields = [now.columns.value(field, row) for field in _FIELDS]
                if not self.proofs.was_there(self._record(self.after, file, fields, is_at_home=True)):
                    continue  # what is made needs a proof of its own
                other = self._has(int(base[row]), self.after.bytes_at(file, position, size), besides=name)
                if other:
                    yield f"{file} would have the batch at {position:,}, which is of {other}"

    def _has(self, offset: int, data: bytes, besides: str) -> str:
        """Return the partition, but one, that has a batch in the segment of its offset afterwards; "" for none."""
        for partition in self.after.directory.partitions:
            log = next((file for file in reversed(partition.logs) if file.base <= offset), None)
            if log is None or partition.directory == besides:
                continue
            found = self.after.batches(log.name)
            rows = np.flatnonzero((found["base_offset"] == offset) & (found["size"] == len(data)))
            if any(self.after.bytes_at(log.name, at, len(data)) == data for at in found["position"][rows].tolist()):
                return partition.directory
        return ""

    def _hidden(self) -> Iterator[str]:
        """Logs in which readers come to bytes that they cannot follow, and did not before."""
        for name in sorted({edit.file.rpartition("/")[0] for edit in self.plan.edits if is_log(edit.file)}):
            was, now = (_hidden_in(side, name) for side in (self.before, self.after))
            if now > was:
                yield f"{name} has {now:,} batches after bytes that nobody can follow"

    def _epochs(self) -> Iterator[str]:
        """Placeholders of a leader epoch that the log had not reached there, or had left: followers part with it."""
        names = "position", "size", "base_offset", "last_offset", "crc", "records_count", "attributes", "producer_id"
        for name in sorted({edit.file.rpartition("/")[0] for edit in self.plan.edits if is_log(edit.file)}):
            was, now, is_metadata = self.before.home(name), self.after.home(name), name.startswith(METADATA_TOPIC)
            for begin, (*_, count, attributes, producer) in now.columns.stretches(*names, overlap=0):
                may = (count == 0) | ((attributes & int(Attributes.CONTROL) != 0) & (producer < 0)) | is_metadata
                for row in (begin + np.flatnonzero(may)).tolist():
                    if _is_as_before(was, now, row):
                        continue
                    file, position, _ = now.place(row)
                    fields = [now.columns.value(field, row) for field in _FIELDS]
                    record = self._record(self.after, file, fields, is_at_home=True)
                    if record.is_placeholder and not self._has_epoch(now, row, record):
                        yield f"{record.name} of {file} at {position} has a leader epoch that the log has not there"

    def _has_epoch(self, home: Home, row: int, record: WholeRecord) -> bool:
        """Whether the leader epoch of a batch is between its neighbours'; at the end that of the last, or stored."""
        epochs = [
            home.columns.value("partition_leader_epoch", n) for n in range(max(row - 1, 0), min(row + 2, len(home)))
        ]
        low, epoch = epochs[0] if row else -1, epochs[1 if row else 0]
        high = epochs[-1] if row + 1 < len(home) else None
        if high is not None and high >= low:
            return low <= epoch <= high
        if epoch in {low, high} or (row == 0 and epoch == 0):
            return True
        return epoch == self.proofs.stored_epoch(record) and epoch >= low

    def _starts(self) -> Iterator[str]:
        """Logs that begin later than they did: what lies before that is deleted."""
        if str(FileKind.LOG_STARTS) not in {edit.file for edit in self.plan.edits}:
            return
        was, now = (Checkpoints(side.directory) for side in (self.before, self.after))
        for partition in self.before.directory.partitions:
            start = now.offset(FileKind.LOG_STARTS, partition) or 0
            home = self.before.home(partition.directory)
            first = home.columns.value("base_offset", 0) if len(home) else start
            if start > max(was.offset(FileKind.LOG_STARTS, partition) or 0, first):
                yield f"{partition.directory} would begin at {start}, and a broker deletes what lies before that"

    def _ids(self) -> Iterator[str]:
        """A topic id that can be read is never written over: it says whose records these are.

        Unless it is the cluster's with a byte or two destroyed, and no topic ever had it.
        """
        names = {edit.file for edit in self.plan.edits}
        for partition in self.before.directory.partitions:
            if f"{partition.directory}/{FileKind.PARTITION_METADATA}" not in names:
                continue
            now = self.after.partition(partition.directory)
            was = _topic_id(self.before.directory, partition)
            if now is None or was is None or not len(self.before.home(partition.directory)):
                continue
            to = _topic_id(self.after.directory, now)
            if to is not None and to != was and not self._is_healed(partition, was, to):
                yield f"{partition.directory} is of the topic {was}, and its records would be those of {to}"

    def _is_healed(self, partition: Partition, was: str, to: str) -> bool:
        replicas = Replicas(LogDirectories([self.before.directory]))
        image, metadata = replicas.image, replicas.metadata_log
        if image is None or metadata is None or image.topics.get(partition.topic) != to:
            return False
        return is_flipped(was, to, topic_names_ever(metadata))

    def _cuts(self) -> Iterator[str]:
        now = self._start or self._replayed(self.after)
        if now.is_harmless and not any(partition.is_stray for partition in now.partitions):
            return
        was = self._replayed(self.before)
        if not now.starts or now.offline:
            if was.starts and not was.offline:
                yield f"a broker of {now.release} starts, and would not start on the result: {now.error}"
            else:
                yield from self._stopped_otherwise(now)
            return
        changed = {edit.file.partition("/")[0] for edit in self.plan.edits}
        known = {one.key: (one.lost.records, one.is_stray) for one in was.partitions}
        for one in now.partitions:
            if one.loaded.partition.directory not in changed and one.key not in known:
                continue
            lost, is_stray = known.get(one.key, (0, False))
            if one.lost.records > lost:
                cut = number_of(one.lost.records, "record")
                yield f"a broker of {now.release} would cut {cut} off {one.key} as it is afterwards"
            if one.is_stray and not is_stray and one.loaded.partition.is_plain:
                yield f"a broker of {now.release} would set {one.key} aside as it is afterwards"

    def _stopped_otherwise(self, now: Recovery) -> Iterator[str]:
        """The partition at which a start ends, where it did not end in this way before: only the first is seen."""
        error = now.error or ""
        name = error.partition(": ")[0]
        is_changed = any(edit.file.startswith(f"{name}/") for edit in self.plan.edits)
        if is_changed and self._replayed(self.before, only={name}).error != error:
            yield f"a broker of {now.release} would not start on the result: {error}"

    def _replayed(self, side: Side, only: Container[str] | None = None) -> Recovery:
        return recover(Replicas(LogDirectories([side.directory])), self.release, self.settings, only=only)


def _records(columns: Columns) -> int:
    """Return how many records batches have, or stand for, as :class:`~rmqctl.repair.books.WholeRecord` counts them."""
    names, total = ("base_offset", "last_offset", "records_count", "attributes", "producer_id", "magic"), 0
    for _, (base, last, count, attributes, producer, magic) in columns.stretches(*names, overlap=0):
        stands_in = (count == 0) | ((attributes & int(Attributes.CONTROL) != 0) & (producer < 0))
        span = np.maximum(last - base + 1, 1)
        total += int(np.where(stands_in & (magic >= 2), span, np.where(count >= 0, count, 1)).sum())
    return total


def _hidden_in(side: Side, directory: str) -> int:
    partition = side.partition(directory)
    return sum(side.batches(log.name).hidden for log in partition.logs) if partition is not None else 0


def _is_as_before(was: Home, now: Home, row: int) -> bool:
    """Whether a batch of after has the header of the one of before at its offset."""
    other = was.row(now.columns.value("base_offset", row))
    names = "size", "crc", "partition_leader_epoch"
    return other is not None and all(was.columns.value(n, other) == now.columns.value(n, row) for n in names)


def _topic_id(directory: LogDirectory, partition: Partition) -> str | None:
    return PartitionLog(directory, partition, Checkpoints(directory)).topic_id


class _Within(frozenset[str]):
    """Names of files and directories; what lies in one of them is in it, too."""

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return frozenset.__contains__(self, name) or any(
            frozenset.__contains__(self, name[:at]) for at, letter in enumerate(name) if letter == "/"
        )


def _is_placeholder(directory: str, data: bytes, count: int, attributes: int) -> bool:
    """Whether a batch says that it stands for records that are gone: it has none, or such as change nothing."""
    if len(data) <= CRC_AT or data[MAGIC_AT] < 2:
        return False
    if count == 0:
        return True
    is_metadata = directory.startswith(METADATA_TOPIC)
    if not attributes & Attributes.CONTROL and not is_metadata:
        return False
    try:
        if attributes & Attributes.CONTROL:
            return any(control_type(record.key) == UNKNOWN_TYPE for record in records_of_batch(data))
        return any(is_no_op(record.value) for record in records_of_batch(data))
    except DecodeError:
        return False
