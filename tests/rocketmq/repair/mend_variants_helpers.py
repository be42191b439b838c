"""What tests share with test_mend_variants: lost_records."""

from __future__ import annotations

import hashlib

from fixtures import golden
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.store.files import StoreFiles


def lost_records(base: str, store: StoreFiles) -> list[int]:
    """Physical offsets of the records of a golden store that are not there, byte for byte."""
    lost = []
    with LogReader(store.log_files) as log:
        for record in golden.truth(base):
            if record["kind"] == "msg":
                raw = log.read(record["commitLogOffset"], record["storeSize"])
                if hashlib.sha256(raw).hexdigest() != record["recordSha256"]:
                    lost.append(record["commitLogOffset"])
    return lost
