"""What records and index files tell of the release that wrote them (spec 2.3, 2.6, 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from formats.rocketmq.message import Magic, decode_record
from formats.rocketmq.properties import is_closed, split_properties
from rmqctl.release import Release
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.store import RocketMQStore, StoreFile

_SAMPLE = 256
_SAMPLE_BYTES = 1 << 20
_ENTRIES = 4096
_ENDS = (b"", bytes(4), int(Magic.BLANK).to_bytes(4, "big", signed=True))
_OWN_TOPICS = (b"RMQ_SYS_", b"rmq_sys_", b"SCHEDULE_TOPIC", b"TRANS_CHECK", b"%")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact and the releases it leaves.

    Attributes:
        lowest, highest: first and last release that fits, None where it does not limit.
        weight: how much it counts where facts contradict each other.
    """

    fact: str
    lowest: Release | None = None
    highest: Release | None = None
    weight: int = 1

    def fits(self, release: Release) -> bool:
        """Whether a broker of this release can have left the fact behind."""
        return (self.lowest is None or self.lowest <= release) and (self.highest is None or release <= self.highest)

    def row(self) -> dict[str, str | None]:
        """As a JSON object."""
        bounds = {name: getattr(self, name) for name in ("lowest", "highest")}
        return {"fact": self.fact, **{name: str(r) if r else None for name, r in bounds.items()}}


def record_evidence(store: RocketMQStore) -> Iterator[Evidence]:
    """Layout and properties of records in the last file of the log that has some.

    Raises:
        OSError: a file of the log cannot be read.
    """
    records = list(_last_records(store))
    if any(r["magic"] == int(Magic.MESSAGE_V2) for r in records):
        yield Evidence("the log has records with a long topic (V2)", lowest=Release(5, 1, 0))
    if any(r["sys_flag"] & 1 and r["sys_flag"] & 0x700 for r in records):
        yield Evidence("bodies name their compression type", lowest=Release(4, 9, 4))
    yield from _property_evidence(store, records)


def _property_evidence(store: RocketMQStore, records: list[dict[str, Any]]) -> Iterator[Evidence]:
    texts = [r["properties"] for r in records if r["properties"]]
    names = [{name for name, _ in split_properties(text)} for text in texts]
    if any(b"__CRC32#" in n for n in names):
        yield Evidence("records carry a CRC property", lowest=Release(5, 2, 0))
    if any(b"__transactionId__" in n for n in names):
        yield Evidence("half messages carry __transactionId__", lowest=Release(5, 0, 0))
    written = [text for text, n in zip(texts, names, strict=True) if b"CLUSTER" in n]
    if written:
        yield Evidence("properties name the cluster", lowest=Release(4, 6, 0))
    elif store.tree.stat("config/topics.json") is not None:
        clients = [r for r in records if not r["topic"].startswith(_OWN_TOPICS) and b"UNIQ_KEY" in r["properties"]]
        if clients:
            yield Evidence("messages of clients do not name the cluster", highest=Release(4, 5, 2))
        return  # such brokers store the client's text as it came, so its form tells nothing of them
    yield from _form_evidence(store, written or texts)


def _form_evidence(store: RocketMQStore, texts: list[bytes]) -> Iterator[Evidence]:
    """Whether property texts end with 0x02; most of them count, as batches bring texts made by clients."""
    if not texts:
        return
    if 2 * sum(map(is_closed, texts)) <= len(texts):
        yield Evidence("properties do not end with 0x02", lowest=Release(4, 9, 1), highest=Release(5, 1, 4))
    elif any(store.tree.stat(path) for path in ("abort.bak", "timerwheel", "config/timercheck")):
        yield Evidence("properties end with 0x02 in a 5.x store", lowest=Release(5, 2, 0))
    elif store.tree.stat("checkpoint") is not None:
        yield Evidence("properties end with 0x02 and nothing of 5.x is there", highest=Release(4, 9, 0))


def _last_records(store: RocketMQStore) -> Iterator[dict[str, Any]]:
    """Up to 256 records from the first MiB of the last file that has some."""
    for file in reversed(store.log_files):
        found = _chained_records(file)
        if found is None:
            found = _scanned_records(file)
        if found:
            yield from found[:_SAMPLE]
            return


def _chained_records(file: StoreFile) -> list[dict[str, Any]] | None:
    """The records that follow each other from the start of a file; None where they end but at room or a blank.

    This is what a scan finds in a sound file, at a tenth of the time: NumPy is not imported.
    """
    if file.lead:
        return None
    found: list[dict[str, Any]] = []
    with LogReader([file]) as log:
        at = 0
        while at < min(_SAMPLE_BYTES, file.size) and len(found) < _SAMPLE:
            fields = log.fields(file.base + at)
            if fields is None:
                return found if log.read(file.base + at + 4, 4) in _ENDS else None
            found.append(fields)
            at += fields["total_size"]
    return found


def _scanned_records(file: StoreFile) -> list[dict[str, Any]]:
    from rmqctl.rocketmq.scan import Extent, scan

    source = file.open()
    try:
        blocks = scan(source, Extent(file.name, file.base, stop=_SAMPLE_BYTES, lead=file.lead))
        return [decode_record(b.raw(i))[0] for b in blocks for i in range(min(len(b), _SAMPLE))]
    finally:
        source.close()


def index_evidence(store: RocketMQStore) -> Iterator[Evidence]:
    """Whether the newest index file counts used slots, or entries as brokers did up to 4.7.0.

    Raises:
        OSError: the file cannot be read.
    """
    from rmqctl.rocketmq.geometry import index_geometry
    from rmqctl.rocketmq.index_files import IndexFile

    for entry in reversed([e for e in store.index_files if not e.is_directory]):
        try:
            file = IndexFile.open(store.tree, entry, index_geometry(store))
        except (FileNotFoundError, PermissionError):  # another file may tell
            continue
        try:
            if not (file.count and file.is_whole):
                continue
            if file.header["hash_slot_count"] != file.count:
                yield Evidence("the index counts used slots", lowest=Release(4, 7, 1))
            elif file.entries(1, min(file.count, _ENTRIES))["previous"].any():
                yield Evidence("the index counts entries as slots", highest=Release(4, 7, 0))
            return
        finally:
            file.close()
