"""Which releases could have written a store: evidence from its files, records and index, each with what it proves (spec
2.3, 2.6, 4.1, 15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.checkpoint import FILE_SIZE
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.message import CODEC, Magic, SysFlag, decode_record
from formats.rocketmq.properties import is_closed, split_properties
from formats.rocketmq.rocksdb_messages import POP_FAMILY
from rmqctl.errors import RmqctlError
from rmqctl.files.tree import read_all
from rmqctl.release import Release
from rmqctl.rocketmq.log.record import MAGIC_AT, LogReader
from rmqctl.rocketmq.store.databases import POP, can_read, has_database, open_database
from rmqctl.rocketmq.store.file_kinds import KINDS
from rmqctl.rocketmq.store.files import LIGHT, QUEUES, StoreFile, StoreFiles

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
        """Whether a broker of this release can have left the fact."""
        return (self.lowest is None or self.lowest <= release) and (self.highest is None or release <= self.highest)

    def row(self) -> dict[str, str | None]:
        """As a JSON object."""
        bounds = {name: getattr(self, name) for name in ("lowest", "highest")}
        return {"fact": self.fact, **{name: str(r) if r else None for name, r in bounds.items()}}


def record_evidence(store: StoreFiles) -> Iterator[Evidence]:
    """Layout and properties of records in the last file of the log that has some."""
    records = list(_last_records(store))
    if any(r["magic"] == int(Magic.MESSAGE_V2) for r in records):
        yield Evidence("the log has records with a long topic (V2)", lowest=Release(5, 1, 0))
    if any(r["sys_flag"] & SysFlag.COMPRESSED and r["sys_flag"] & CODEC for r in records):
        yield Evidence("bodies name their compression type", lowest=Release(4, 9, 4))
    yield from _property_evidence(store, records)


def _property_evidence(store: StoreFiles, records: list[dict[str, Any]]) -> Iterator[Evidence]:
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
        return  # such brokers store the client's text as it came, so its form says nothing of them
    yield from _form_evidence(store, written or texts)


def _form_evidence(store: StoreFiles, texts: list[bytes]) -> Iterator[Evidence]:
    """Whether property texts end with 0x02; most of them count, as batches bring texts made by clients."""
    if not texts:
        return
    if 2 * sum(map(is_closed, texts)) <= len(texts):
        yield Evidence("properties do not end with 0x02", lowest=Release(4, 9, 1), highest=Release(5, 1, 4))
    elif any(store.tree.stat(path) for path in ("abort.bak", "timerwheel", "config/timercheck")):
        yield Evidence("properties end with 0x02 in a 5.x store", lowest=Release(5, 2, 0))
    elif store.tree.stat("checkpoint") is not None:
        yield Evidence("properties end with 0x02 and nothing of 5.x is there", highest=Release(4, 9, 0))


def _last_records(store: StoreFiles) -> Iterator[dict[str, Any]]:
    """Up to 256 records from the first MiB of the last file that has some."""
    for file in reversed(store.log_files):
        found = _chained_records(file)
        if found is None:
            found = _scanned_records(file)
        if found:
            yield from found[:_SAMPLE]
            return


def _chained_records(file: StoreFile) -> list[dict[str, Any]] | None:
    """Return the records that follow each other from the start of a file; None where they end but at room or a blank.

    This is what a scan finds in a sound file, at a tenth of the time: NumPy is not imported.
    """
    if file.lead:
        return None
    found: list[dict[str, Any]] = []
    with LogReader([file]) as log:
        data, at = log.read(file.base, _SAMPLE_BYTES), 0
        while at < len(data) and len(found) < _SAMPLE:
            try:
                fields, _ = decode_record(data, at)
            except DecodeError:  # the end of the log, damage, or a record that reaches out of the sample
                reaching = log.fields(file.base + at)
                if reaching is None:
                    return found if log.read(file.base + at + MAGIC_AT, 4) in _ENDS else None
                fields = reaching
            found.append(fields)
            at += fields["total_size"]
    return found


def _scanned_records(file: StoreFile) -> list[dict[str, Any]]:
    from rmqctl.rocketmq.log.scan import Extent, scan

    source = file.open()
    try:
        blocks = scan(source, Extent(file.name, file.base, stop=_SAMPLE_BYTES, lead=file.lead))
        return [decode_record(b.raw(i))[0] for b in blocks for i in range(min(len(b), _SAMPLE))]
    finally:
        source.close()


def index_evidence(store: StoreFiles) -> Iterator[Evidence]:
    """Whether the newest index file counts used slots, or entries as brokers did up to 4.7.0."""
    from rmqctl.rocketmq.index import IndexFile
    from rmqctl.rocketmq.store.geometry import index_geometry

    for entry in reversed([e for e in store.index_files if not e.is_directory]):
        try:
            file = IndexFile.open(store.tree, entry, index_geometry(store))
        except (FileNotFoundError, PermissionError):  # another file may show it
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


# --- which releases could have written a store ------------------------------------------------------


OLDEST, NEWEST = Release(3, 2, 6), Release(5, 5, 0)
KNOWN: Mapping[tuple[int, int], int] = {
    (3, 2): 6, (4, 4): 0, (4, 5): 2, (4, 6): 1, (4, 7): 1, (4, 8): 0, (4, 9): 8, (5, 0): 0, (5, 1): 4, (5, 2): 0,
    (5, 3): 4, (5, 4): 0, (5, 5): 1,
}  # fmt: skip
"""The newest patch of each series whose rules are known."""
FIRST_PATCH: Mapping[tuple[int, int], int] = {(3, 2): 6}
"""The first patch of a series that is known, where that is not 0."""
FIRST_WITH_EMPTY_BODIES = Release(5, 3, 2)
"""First release whose push consumers take messages without a body; those before fail on one and stop there."""
OLDEST_APACHE = Release(4, 4, 0)
"""The first release of Apache that is known here."""
_PATHS = sorted((
    *((row.made_at, row.since) for row in KINDS.values() if row.since),
    ("abort.bak", Release(5, 0, 0)),
    ("config/topicQueueMapping.json", Release(5, 0, 0)),
    ("config/consumerOrderInfo.json", Release(5, 0, 0)),
    ("config/messageRequestMode.json", Release(5, 0, 0)),
    ("config/tieredStoreMetadata.json", Release(5, 1, 0)),
    ("config/transactionMetrics", Release(5, 2, 0)),
    ("consumequeue/CURRENT", Release(5, 2, 0)),
    ("config/consumerOffsets", Release(5, 1, 4)),
    ("config/acls", Release(5, 3, 0)),
    ("kvStore", Release(5, 3, 2)),
    ("config/rdb", Release(5, 3, 2)),
    ("rocksdbstore", Release(5, 4, 0)),
    ("config/metadata", Release(5, 4, 0)),
    ("consumequeue_rocksdb", Release(5, 5, 0)),
), key=lambda made: made[1])  # fmt: skip
"""What a release made first, from the oldest on: kinds of files, and copies, settings and databases that are none."""
_MADE, _NOT_MADE = 4, 2
_CHECKPOINT_FIELDS = ((24, Release(5, 0, 0)), (32, Release(5, 1, 1)), (40, Release(5, 5, 0)))


@dataclass(frozen=True, slots=True)
class ReleaseRange:
    """The releases that fit all evidence."""

    lowest: Release
    highest: Release
    evidence: tuple[Evidence, ...]

    @property
    def is_5(self) -> bool:
        """Whether the rules of 5.x apply; a store that could be either is read by its later release."""
        return self.highest.major >= NEWEST.major

    def row(self) -> list[str]:
        """Lowest and highest, as the contract shows them."""
        return [str(self.lowest), str(self.highest)]


def release_range(store: StoreFiles, *, quick: bool = False) -> ReleaseRange:
    """Weigh the evidence: the releases that most of it fits. A store that a later broker took over is of that one.

    Args:
        quick: leave out the index, which only separates 4.x releases that answer queries alike.
    """
    evidence = [e for look in _LOOKS for e in look(store)]
    if not quick:  # what 3.2.6 has left in a store that a later broker took over sets no limit to that one
        was_older = any(e.highest == OLDEST for e in evidence) and any(e.lowest for e in evidence)
        evidence += [e for e in index_evidence(store) if not (was_older and e.highest)]
    bounds = {r for e in evidence for r in (e.lowest, e.highest) if r} | {OLDEST, NEWEST}
    best = max(sorted(bounds, reverse=True), key=lambda release: sum(e.weight for e in evidence if e.fits(release)))
    fitting = [e for e in evidence if e.fits(best)]
    lowest = max((e.lowest for e in fitting if e.lowest), default=OLDEST)
    highest = min((e.highest for e in fitting if e.highest), default=NEWEST)
    return ReleaseRange(lowest, highest, tuple(evidence))


def _paths(store: StoreFiles) -> Iterator[Evidence]:
    for path, since in _PATHS:
        if store.tree.stat(path) is not None:
            yield Evidence(f"{path} is there", lowest=since, weight=_MADE)


def _absent(store: StoreFiles) -> Iterator[Evidence]:
    """Yield what every later broker would have made; it is evidence only in a store that was not copied in part."""
    if store.tree.stat("checkpoint") is None or store.tree.stat("lock") is None:
        return
    if store.tree.stat("abort.bak") is None:
        yield Evidence("abort.bak is not there", highest=Release(4, 9, 8), weight=_NOT_MADE)
    elif store.tree.stat("rocksdbstore") is None:
        yield Evidence("rocksdbstore is not there", highest=Release(5, 3, 4), weight=_NOT_MADE)


def _abort(store: StoreFiles) -> Iterator[Evidence]:
    data = read_all(store.tree, "abort")
    if data is not None and data.strip().isdigit():
        yield Evidence("abort holds a process id", lowest=Release(5, 0, 0))


def _checkpoint(store: StoreFiles) -> Iterator[Evidence]:
    """Later fields, which hold physical offsets; numbers that are none come from damage."""
    data = read_all(store.tree, "checkpoint") or b""
    limit = max((f.base + f.size for f in store.log_files), default=0)
    for at, since in _CHECKPOINT_FIELDS if len(data) == FILE_SIZE else ():
        if 0 < int.from_bytes(data[at : at + 8], "big", signed=True) <= limit:
            yield Evidence(f"the checkpoint has an offset at byte {at}", lowest=since)


def _config(store: StoreFiles) -> Iterator[Evidence]:
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        try:
            document = parse_config(read_all(store.tree, f"config/{name}") or b"")
        except DecodeError:
            continue
        version = document.get("dataVersion") if isinstance(document, dict) else None
        if isinstance(version, dict) and "timestatmp" in version:  # so spelt by com.alibaba.rocketmq alone
            # Little weight: a later broker that takes the store over writes these files only when something changes.
            yield Evidence(f"config/{name} has a timestatmp", highest=OLDEST)
            continue
        if isinstance(version, dict) and "timestamp" in version:
            yield Evidence(f"config/{name} has a timestamp", lowest=OLDEST_APACHE)
        if isinstance(version, dict) and "stateVersion" in version:
            yield Evidence(f"config/{name} has a stateVersion", lowest=Release(5, 0, 0))
        elif isinstance(version, dict):
            yield Evidence(f"config/{name} has no stateVersion", highest=Release(4, 9, 8))


_LITE_SIGNS = (b"lite.topic.expiration", b"lite.bind.topic", b"%LMQ%$")


def _lite(store: StoreFiles) -> Iterator[Evidence]:
    """Attributes and light queues of lite topics, and pop records that say whether they are suspended."""
    names = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "lmqConsumerOffset.json")
    held = [name for name in names if any(s in (read_all(store.tree, f"config/{name}") or b"") for s in _LITE_SIGNS)]
    if held or any(e.name.startswith(f"{LIGHT}$") for e in store.tree.entries(QUEUES, sizes=False)):
        where = f"config/{held[0]}" if held else QUEUES
        yield Evidence(f"{where} knows lite topics", lowest=Release(5, 5, 0))
    if not has_database(store, POP) or not can_read():
        return
    with suppress(RmqctlError), open_database(store, POP, "reading pop messages in RocksDB") as database:
        if any(b'"suspend"' in value for _, value in islice(database.rows(POP_FAMILY), _POP_SAMPLE)):
            yield Evidence("pop records say whether they are suspended", lowest=Release(5, 5, 0))


def has_known_broker(store: StoreFiles) -> bool:
    """Whether a broker kept the store, and not a program that uses the store's classes without one: its configuration
    is there, or messages are that came from clients.
    """
    if store.tree.entries("config", sizes=False):
        return True
    texts = (r["properties"] for r in _last_records(store) if r["properties"])
    return any(name in _FROM_CLIENTS for text in texts for name, _ in split_properties(text))


_FROM_CLIENTS = (b"WAIT", b"CLUSTER")
_POP_SAMPLE = 64
_LOOKS: tuple[Callable[[StoreFiles], Iterator[Evidence]], ...] = (
    _paths,
    _absent,
    _abort,
    _checkpoint,
    _config,
    _lite,
    record_evidence,
)
