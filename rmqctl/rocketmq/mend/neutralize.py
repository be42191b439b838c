"""One message made harmless: its place in log and queue stays taken, what it said is gone."""

from __future__ import annotations

from formats.rocketmq.message import SysFlag, decode_record
from rmqctl.errors import Refused
from rmqctl.repair.edits import Edit, Step
from rmqctl.repair.overwrites import changes
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.mend.claims import Claim, claims_into
from rmqctl.rocketmq.mend.damage import setting_of
from rmqctl.rocketmq.mend.placeholder import placeholder
from rmqctl.rocketmq.store import RocketMQStore


def neutralize_step(store: RocketMQStore, physical: int) -> Step:
    """Replace the message at a physical offset by a placeholder.

    Raises:
        Refused: no whole record begins there, or there is no room for a placeholder.
        OSError: the log cannot be read.
    """
    with LogReader(store.log_files) as log:
        raw, file = log.record(physical), log.file_of(physical)
    if raw is None or file is None:
        raise Refused(
            f"no record begins at offset {physical}; `rmqctl dump --from-offset {physical}` shows what is there"
        )
    fields, _ = decode_record(raw)
    found = claims_into(store, [(physical, physical + 1)]).at(physical)
    own = next((c for c in found if c.topic_bytes == fields["topic"]), None)
    if own is None:
        topic = fields["topic"].decode("utf-8", "surrogateescape")
        own = Claim(topic, fields["queue_id"], fields["queue_offset"], physical, len(raw))
    if fields["sys_flag"] & int(SysFlag.INNER_BATCH) and not own.batch:
        raise Refused(
            f"the record at offset {physical} is an inner batch without a queue unit; repair the queues first"
        )
    record = placeholder(own, len(raw), setting_of(raw), [c for c in found if c is not own])
    if record is None:
        raise Refused(f"the {len(raw)} bytes of the record at offset {physical} are too few for a placeholder")
    edits: tuple[Edit, ...] = tuple(changes(file.name, physical - file.base, raw, record))
    what = f"replace the message at {physical} ({own.topic}/{own.queue_id}, offset {own.queue_offset}) by a placeholder"
    return Step("message.neutralize", file.name, what, "asked for with --neutralize", edits, loses=1)
