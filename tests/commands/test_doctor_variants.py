"""`doctor` on every kind of damage: its first three lines name what is wrong, and what it suggests first runs as printed.

The table is written by hand, by kind of damage; the variants are those of the recovery oracles. A sample runs always, the
rest where tests may be slow.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden, kafka_damage
from tests.conftest import Rmqctl

_NO_RECORD = "Bytes inside the log are no record"
_NO_FILES = "The log holds messages of a queue that has no files at all"
_CRC = "do not match its CRC-32C"
_LOST_LOG = "The log file of a segment is gone"
_NO_START = "The broker will not start: "
_SNAPSHOT = "A producer snapshot cannot be used"
_ABORTED = "A transaction that was aborted in the log is not in the transaction index"
ROCKETMQ = {
    "none": "Nothing is wrong",
    "precreated-zero-file-removed": "Nothing is wrong",
    "abort-added": "Nothing is wrong",
    "abort-added+checkpoint-at-last-file-start": "Nothing is wrong",
    "abort-added+checkpoint-zero": "The checkpoint's times are zero",
    "*cq-all-deleted*": _NO_FILES,
    "abort-removed": "messages of this queue that have no unit in it",
    "abort-removed+cq-one-queue-deleted": "messages of this queue that have no unit in it",
    "*body-flip*": "The body does not match the CRC-32 stored in the record",
    "totalsize-*": _NO_RECORD,
    "magic-flip-*": _NO_RECORD,
    "*len-negative-*": _NO_RECORD,
    "storetimestamp-zero-*": "The store time is before that of the record in front of it, or zero",
    "physicaloffset-wrong-*": "A whole record says it lies elsewhere in the log",
    "queueoffset-plus-5-*": "QUEUEOFFSET does not continue its queue",
    "*torn-tail*": "The log ends in bytes that are no whole record",
    "garbage-behind-end": "The log ends in bytes that are no whole record",
    "zero-page-*": "The properties hold bytes no encoder writes",
    "stale-valid-record-behind-end": "Old records lie after the end of the log",
    "blank-*": "The blank record that ends a full file is wrong",
    "delete-commitlog-dir": "The store has no commit log",
    "delete-*": "A file is missing between two files of the log",
    "clean/torn-tail": "The properties hold bytes no encoder writes",
    "clean/zero-page-last-file": _NO_RECORD,
    "clean/extend-last-data-file": f"{_NO_START}commitlog/00000000000000393216 has 135,168 bytes, not 131,072",
    "clean/delete-last-data-file": "Units point beyond the end of the log",
    "clean/truncate-last-file-to-zero": "Units point beyond the end of the log",
    "truncate-last-file-to-zero": "commitlog/00000000000000655360: A file has no bytes",
    "truncate-*": f"{_NO_START}commitlog/",
    "extend-last-data-file": f"{_NO_START}commitlog/00000000000000524288 has 135,168 bytes, not 131,072",
    "extra-file-nonnumeric-in-*": f"{_NO_START}commitlog/notes.bak has 16 bytes",
    "extra-file-nonnumeric-right-*": f"{_NO_START}the name of commitlog/zz.bak is no offset",
    "extra-directory-*": "commitlog/old: A file or directory lies where the broker keeps its own",
    "*cq-one-queue-deleted": _NO_FILES,
    "cq-topic-deleted": _NO_FILES,
    "cq-first-file-deleted": "LabLog/0, offset 0: The log holds messages of this queue that have no unit in it",
    "cq-last-file-deleted": "LabLog/0, offset 150: The log holds messages of this queue that have no unit in it",
    "cq-mid-file-deleted": "A file is missing between two files of a queue",
    "cq-garbage-units-behind-end": "Units after the end of the queue do not continue it",
    "*cq-ahead-of-log": "Units point beyond the end of the log",
    "*cq-last-5-units-zeroed": "messages of this queue that have no unit in it",
    "cq-garbage-unit-*": "A queue unit does not fit the record it stands for",
    "cq-wrong-phy-into-log": "A queue unit does not fit the record it stands for",
    "cq-zero-unit-*": "An empty unit stands between units",
    "cq-file-wrong-length": f"{_NO_START}consumequeue/LabLog/0/00000000000000003000 has 990 bytes, not 1000",
    "cq-extra-file-nonnumeric": f"{_NO_START}the name of consumequeue/LabOrders/0/x.tmp is no offset",
    "index-header-*": "The header of an index file cannot be right",
    "index-slot-loop": "A slot or a chain of entries is broken",
    "index-truncated": "An index file, read only by queries by key, is cut or too long",
    "*index-all-deleted": "the store has no index file for them",
    "index-last-deleted": "Messages with keys are in no index file",
    "index-nonnumeric-file": "index/readme.txt: A name in index/ is not a time",
    "checkpoint-deleted": "There is no checkpoint file although the log has messages",
    "checkpoint-zero": "The checkpoint's times are zero",
    "checkpoint-future": "The checkpoint claims times later than anything in the store",
    "checkpoint-at-last-file-start": "The checkpoint claims times later than anything in the store",
    "checkpoint-truncated-to-zero": "The checkpoint file is too short",
}
"""What the first three lines say, by kind of damage; the first pattern that fits counts."""
_BEFORE = "Consumers stand where no message is: g-classic at 50 of plain-none-0"
_HANGS_CLEAN = "Transaction tx-hang-1 never ended"
_HANGS = "Transactions tx-hang-1, tx-hang-2 never ended"
"""What is left to say of a log directory in which nothing else is wrong."""
KAFKA = {
    "crc-body-*": _CRC,
    "first-batch-of-last-segment-bad": _CRC,
    "zero-hole-64": _CRC,
    "magic-0[01]": _CRC,
    "magic-*": "The magic is none that is known",
    "length-huge": "The frame states more bytes than the file has",
    "middle-log-torn": "The frame states more bytes than the file has",
    "length-minus-3": "The batch does not match its CRC, and no batch follows where it ends",
    "length-*": "The size in the frame is less than any batch can have",
    "garbage-tail-100": "The size in the frame is less than any batch can have",
    "base-offset-below-*": "The base offset of a batch is not one that its segment can hold",
    "last-batch-base-offset-2pow40": "The base offset of a batch is not one that its segment can hold",
    "base-offset-*": "The offsets of a batch are not above those of the batches before it",
    "duplicate-last-batch": "The offsets of a batch are not above those of the batches before it",
    "leader-epoch-77": "The leader epoch of a batch is higher than that of batches after it",
    "*torn-tail-*": "The log of a broker that crashed ends with part of a batch",
    "metadata-log-torn": "__cluster_metadata-0: The log of a broker that crashed ends with part of a batch",
    "metadata-log-last-batch-crc": "__cluster_metadata-0, offset 567: The bytes of the batch do not match",
    "zero-insert-*": "Zeros stand where a batch was expected",
    "empty-middle-log": "A segment that is not the last is empty and its offsets are missing",
    "middle-log-deleted": _LOST_LOG,
    "last-log-deleted": _LOST_LOG,
    "middle-segment-all-files-deleted": "Offsets are missing between two batches",
    "timeindex-*-bad-size": "The length of a time index is no multiple of 12",
    "index-*-bad-size": "The length of an offset index is no multiple of 8",
    "timeindex-*-deleted": "A segment has no time index",
    "*index*-deleted": "A segment has no offset index",
    "index-older-zero-filled": "An offset index that is complete ends with zeros",
    "index-older-empty": "An offset index has no entries where it should",
    "index-active-garbage": "An entry of an offset index points to no batch",
    "index-older-*": "The entries of an offset index do not ascend",
    "timeindex-older-non-monotonic": "The timestamps of a time index do not ascend",
    "txnindex-older-version-256": f"{_NO_START}txn-a-0: unexpected aborted transaction version",
    "txnindex-older-version-1": "An entry of a transaction index has a version that does not exist",
    "txnindex-older-torn": _ABORTED,
    "txnindex-older-deleted": _ABORTED,
    "txnindex-last-deleted": _ABORTED,
    "txnindex-*": "An entry of a transaction index is no aborted transaction of the log",
    "snapshot-*-deleted": _HANGS,
    "snapshot-*": _SNAPSHOT,
    "leader-epoch-beyond-leo": "An entry of the leader-epoch-checkpoint starts after the end of the log",
    "leader-epoch-non-monotonic": "The entries of the leader-epoch-checkpoint do not ascend",
    "leader-epoch-empty": "There is no leader-epoch-checkpoint, or it is empty",
    "leader-epoch-deleted": "There is no leader-epoch-checkpoint, or it is empty",
    "leader-epoch-*": f"{_NO_START}plain-none-0: checkpoint file leader-epoch-checkpoint cannot be read",
    "cleaner-garbage": "cleaner-offset-checkpoint: An offset checkpoint cannot be read",
    "log-start-beyond-leo": "The log start offset of a partition lies after the end of its log",
    "recovery-point-beyond-leo": "A recovery point or high watermark lies after the end of its log",
    "*-garbage": f"{_NO_START}*cannot be read",
    "*-count-mismatch": f"{_NO_START}*cannot be read",
    "partition-metadata-deleted": "partition.metadata is missing or cannot be read",
    "partition-metadata-other-id": "The topic id of a partition is not that of the cluster's metadata",
    "stray-lost+found-dir": f"{_NO_START}found directory lost+found",
    "stray-file-abc.log-in-partition": f"{_NO_START}plain-none-0: no offset is in the file name abc.log",
    "stray-partition-dir-unknown-topic": "unknown-topic-0: A partition's directory holds no segment",
    "orphan-index": "An index belongs to no segment",
    "meta-properties-deleted": f"{_NO_START}no readable meta.properties file is found",
    "*swap*": "A .swap file stands beside a segment",
    "quorum-state-deleted": "The quorum-state file is missing or cannot be read",
    "none": _HANGS,
    "clean/metadata-log-last-batch-crc": "__cluster_metadata-0, offset 425: The bytes of the batch do not match",
    "clean/garbage-tail-100": f"{_NO_START}plain-none-0: record size -2105469487 at byte 1542",
    "clean/torn-tail-*": "The frame states more bytes than the file has",
    "clean/snapshot-all-deleted": "A producer snapshot is missing",
    "clean/log-start-mid-batch": _BEFORE,
    "clean/zero-tail-*": f"{_NO_START}plain-none-0: record size 0 at byte 1542",
    "zero-tail-*": _HANGS,
    "no-recovery-point-file": _HANGS,
    "recovery-point-empty": _HANGS,
    "log-start-empty": _HANGS,
    "*-crlf": _HANGS,
    "log-start-mid-batch": _HANGS,
    "stray-file-notes.txt-in-partition": _HANGS,
    "stray-file-in-logdir": _HANGS,
    "orphan-snapshot": _HANGS,
    "leftover-*-of-older": _HANGS,
}
"""The same of log directories."""
NEXT = {_HANGS: "transactions", _HANGS_CLEAN: "transactions", _BEFORE: "lag"}
"""What comes first where nothing is damaged, and something hurts all the same."""
EXPLAINED = {"delete-commitlog-dir", "middle-segment-all-files-deleted", "partition-metadata-other-id"}
"""Kinds that no plan mends: what comes first says where what is gone may be had."""
FEW = {"body-flip-mid", "zero-page-mid", "cq-file-wrong-length", "crc-body-mid-batch", "recovery-point-garbage"}


def said_of(name: str, table: dict[str, str], state: str = "") -> str:
    """Return what the table says of a kind of damage: that of its own name, else of the first pattern that fits.

    Args:
        state: of the store that was damaged, where the table tells it from the other.
    """
    own = {pattern: said for pattern, said in table.items() if "/" in pattern}
    said = next((said for pattern, said in own.items() if fnmatchcase(f"{state}/{name}", pattern)), None)
    said = said or table.get(name) or next(said for pattern, said in table.items() if fnmatchcase(name, pattern))
    return _HANGS_CLEAN if said == _HANGS and state == "clean" else said


@pytest.mark.parametrize(
    ("table", "releases"), [(ROCKETMQ, ("4.5.2", "4.9.8", "5.1.4", "5.3.3", "5.5.0")), (KAFKA, ("3.9.2", "4.3.1"))]
)
def test_the_table_has_every_kind_of_damage(table: dict[str, str], releases: tuple[str, ...]) -> None:
    for release in releases:
        found = golden.recovery_oracle(release)["variants"]
        for variant in found if table is ROCKETMQ else (each["variant"] for each in found):
            assert said_of(variant.partition("/")[2], table)


def _cases() -> Iterator[Any]:
    for release, table in (("5.5.0", ROCKETMQ), ("4.3.1", KAFKA)):
        found = golden.recovery_oracle(release)["variants"]
        recipes = found if table is ROCKETMQ else {each["variant"]: each for each in found}
        seen = set[str]()
        for variant, each in recipes.items():
            state, _, name = variant.partition("/")
            said = said_of(name, table, state)
            marks = () if name in FEW and name not in seen else (pytest.mark.slow,)
            seen.add(name)
            yield pytest.param(release, variant, each["recipe"], said, id=variant, marks=marks)


@pytest.mark.parametrize(("release", "variant", "recipe", "said"), list(_cases()))
def test_the_first_three_lines_name_what_is_wrong(
    release: str, variant: str, recipe: Any, said: str, rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden.unpack(f"{release}-{variant.partition('/')[0]}", tmp_path)
    (damage if release == "5.5.0" else kafka_damage).apply(recipe, root)
    monkeypatch.setenv("COLUMNS", "80")
    told = rmqctl(root)
    lines = told.stdout.splitlines()
    first = " ".join(" ".join(lines[:3]).split())
    assert fnmatchcase(first, f"*{said.replace('[', '[[]')}*")
    if said == "Nothing is wrong":
        assert told.exit_code == 0
        return
    assert told.exit_code == 1
    (command,) = [line.removeprefix("Next: ") for line in lines if line.startswith("Next: ")]
    verb = shlex.split(command)[1]
    is_explained = variant.partition("/")[2] in EXPLAINED
    assert verb == NEXT.get(said, "explain" if is_explained else "repair")
    assert rmqctl(*shlex.split(command)[1:]).exit_code in {0, 1}
