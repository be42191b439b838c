"""The record that a killed writer left half written, where the rules of the broker do not see it.

The system may stop a write between two pages. The head and the body of a record then prove themselves while
the properties behind them end in zeros, which nothing in a broker checks. Nobody was told that such a
record is stored, so it is taken away before the store goes on.
"""

from __future__ import annotations

from pathlib import Path

from formats.rocketmq.message import decode_record
from rmqctl.repair.edits import Overwrite, Plan, Step
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.commitlog import CommitLog, LogState, walk_file
from rmqctl.rocketmq.log_end import late_start
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.store import RocketMQStore


def torn_record_plan(store: RocketMQStore, end: int) -> Plan | None:
    """The plan that puts zeros in the place of the last record, if it is torn; None where it is not.

    Args:
        end: where recovery ends the log.

    Raises:
        OSError: the file cannot be read.
    """
    with LogReader(store.log_files) as log:
        file = log.file_of(end - 1)
    context = next((c for c in CommitLog(store.log_files, crashed=True).contexts() if c.file is file), None)
    if file is None or context is None:
        return None
    for part in walk_file(context, LogState(), start=late_start(store, file)):
        block = part.block
        if len(block) and int(block.physical[-1] + block.total_size[-1]) == end:
            raw, position = block.raw(len(block) - 1), int(block.position[-1])
            if _is_torn(raw):
                why = "its topic or its properties end in zeros: the write was broken off between two pages"
                what = f"take the half written record at {end - len(raw)} away"
                edit = Overwrite(file.name, position, raw, bytes(len(raw)))
                step = Step(kinds.LOG_TORN_TAIL.id, file.name, what, why, (edit,))
                return Plan(Path(store.root), "take away the record that was being written", (step,))
    return None


def _is_torn(raw: bytes) -> bool:
    fields = decode_record(raw)[0]
    return 0 in fields["topic"] or 0 in fields["properties"]
