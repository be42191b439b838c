"""``--explain`` names the true cause for every damaged variant that hides a message, by key and by id.

One row a kind of damage; variants that hide nothing from a query have no row, and the test holds that too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.explain import Trace, TraceStep
from rmqctl.rocketmq.index import index_files
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.query.explain import conclude_id, explain_key
from rmqctl.rocketmq.query.ids import by_id, parse_message_id
from rmqctl.rocketmq.query.key import KeyQuery, by_key, by_key_in
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import index_geometry
from rmqctl.rocketmq.store.locate import open_store_at

BY_KEY = {
    "totalsize-flip-mid": "miss.record-damaged",
    "totalsize-huge-mid": "miss.record-damaged",
    "totalsize-zero-mid": "miss.record-damaged",
    "magic-flip-mid": "miss.record-damaged",
    "magic-flip-first-record-of-mid-file": "miss.record-damaged",
    "magic-flip-first-record-of-last-file": "miss.record-damaged",
    "bodylen-negative-last-file": "miss.record-damaged",
    "topiclen-negative-last-file": "miss.record-damaged",
    "zero-page-mid": "miss.record-damaged",
    "zero-page-last-file": "miss.record-damaged",
    "torn-tail": "miss.record-damaged",
    "torn-tail-only-header": "miss.record-damaged",
    "delete-first-file": "miss.record-expired",
    "delete-mid-file": "miss.record-gone",
    "delete-last-data-file": "miss.beyond-log",
    "delete-commitlog-dir": "miss.record-gone",
    "truncate-last-data-file-in-data": "miss.beyond-log",
    "truncate-last-file-to-zero": "miss.beyond-log",
    "index-header-garbage": "miss.index-header",
    "index-header-zero-last": "miss.index-empty",
    "index-slot-loop": "miss.chain-broken",
    "index-truncated": "miss.index-unreadable",
    "index-all-deleted": "miss.no-index",
    "index-last-deleted": "miss.index-file-gone",
}
"""Kind of damage -> last sentence of `query-key --explain` for a message that it hides."""

MAY_HIDE_NOTHING = {
    "index-slot-loop", "torn-tail", "torn-tail-only-header", "truncate-last-file-to-zero",
    "truncate-last-data-file-in-data", "cq-file-wrong-length",
}  # fmt: skip
"""In some of the stores the bytes that these change are not needed to find any message."""

Records = dict[str, list[dict[str, Any]]]
_SAMPLE = 25
NEXT_CENTURY = 4_102_444_800_000
"""Epoch ms; an end that people ask for, which a damaged header can lie behind."""
UNDISPATCHED = 2
"""Records at the end of a crashed store that no index holds yet, at most."""


@dataclass(frozen=True)
class Variant:
    release: str
    name: str

    @property
    def base(self) -> str:
        return f"{self.release}-{self.name.partition('/')[0]}"

    @property
    def kinds(self) -> list[str]:
        return self.name.partition("/")[2].split("+")

    @property
    def recipe(self) -> list[dict[str, Any]]:
        recipe: list[dict[str, Any]] = golden.recovery_oracle(self.release)["variants"][self.name]["recipe"]
        return recipe

    def __str__(self) -> str:
        return f"{self.release}-{self.name}"


def variants(release: str) -> list[Variant]:
    return [Variant(release, name) for name in golden.recovery_oracle(release)["variants"]]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("damaged")
    return {name: golden.unpack(name, directory) for name in golden.BROKER_STORES}


@pytest.fixture(scope="module")
def records() -> dict[str, list[dict[str, Any]]]:
    return {name: [t for t in golden.truth(name) if t["kind"] == "msg"] for name in golden.BROKER_STORES}


@pytest.fixture
def damaged(request: pytest.FixtureRequest, copies: dict[str, Path]) -> Iterator[tuple[Variant, Path]]:
    variant: Variant = request.param
    root = copies[variant.base]
    damage.apply(variant.recipe, root)
    try:
        yield variant, root
    finally:
        damage.undo(variant.recipe, golden.pristine(variant.base), root)


FAST = variants("5.5.0")
SLOW = [v for release in golden.RELEASES for v in variants(release) if v not in FAST]
ALL = FAST + [pytest.param(v, marks=pytest.mark.slow) for v in SLOW]


@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=str)
def test_by_key_the_true_cause_is_named(damaged: tuple[Variant, Path], records: Records) -> None:
    variant, root = damaged
    store = open_store_at(str(root))
    expected = next((BY_KEY[kind] for kind in variant.kinds if kind in BY_KEY), None)
    lost = _first_lost(store, _sample(variant, root, records[variant.base]))
    if lost is None:
        assert expected is None or set(variant.kinds) & MAY_HIDE_NOTHING
    else:
        last = explain_key(store, lost, by_key(store, lost), Trace())
        assert last.id == expected or _is_at_the_cut(variant, last), last


@pytest.mark.parametrize("name", ["torn-tail", "torn-tail-only-header"])
def test_damage_without_an_index_entry_may_have_held_the_message(
    name: str, copies: dict[str, Path], records: Records
) -> None:
    variant = Variant("5.5.0", f"crash/{name}")
    root, last = copies[variant.base], records[variant.base][-1]
    damage.apply(variant.recipe, root)
    try:
        store, query = open_store_at(str(root)), KeyQuery(last["topic"], last["uniqKey"], unique=True)
        assert explain_key(store, query, by_key(store, query), Trace()).id == "miss.log-damaged"
    finally:
        damage.undo(variant.recipe, golden.pristine(variant.base), root)


def _first_lost(store: StoreFiles, sample: list[dict[str, Any]]) -> KeyQuery | None:
    """A question that does not give the message it was made for."""
    files = index_files(store, index_geometry(store))
    with LogReader(store.log_files) as log:
        for record in sample:
            keys = [(key, False) for key in (record["keys"] or "").split(" ") if key]
            for key, unique in [(record["uniqKey"], True), *keys] if record["uniqKey"] else keys:
                query = KeyQuery(record["topic"], key, unique, end=NEXT_CENTURY)
                found = by_key_in(files, log, query, Trace(on=False)).messages
                if record["commitLogOffset"] not in {r.physical_offset for r in found}:
                    return query
    return None


def _is_at_the_cut(variant: Variant, last: TraceStep) -> bool:
    """Whether the damage is where the log now ends: a record across a cut is damaged, those behind it are gone."""
    cut = "truncate-last-data-file-in-data" in variant.kinds and last.id == "miss.record-damaged"
    return cut or ("zero-page-last-file" in variant.kinds and last.id == "miss.beyond-log")


def _sample(variant: Variant, root: Path, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records whose bytes are not what they were; some of them, or of all where none has changed."""
    indexed = records[:-UNDISPATCHED] if variant.base.endswith("crash") else records
    some = _changed(variant, root, indexed) or indexed
    if len(some) <= _SAMPLE or "index-slot-loop" in variant.kinds:
        return some
    return some[-_SAMPLE:] + random.Random(7).sample(some, _SAMPLE)


def _changed(variant: Variant, root: Path, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {Path(edit.get("file") or edit["path"]).name for edit in variant.recipe}
    whole = "commitlog" in names
    mine = [r for r in records if whole or r["file"] in names]
    was, now = (_LogBytes(base) for base in (golden.pristine(variant.base), root))
    return [r for r in mine if was.of(r) != now.of(r)]


class _LogBytes:
    """Bytes of records, each file read once."""

    def __init__(self, root: Path) -> None:
        self.root, self.files = root, dict[str, bytes]()

    def of(self, record: dict[str, Any]) -> bytes:
        name = record["file"]
        if name not in self.files:
            path = self.root / "commitlog" / name
            self.files[name] = path.read_bytes() if path.exists() else b""
        return self.files[name][record["pos"] : record["pos"] + record["storeSize"]]


_OF_RECORDS = {kind: miss for kind, miss in BY_KEY.items() if not kind.startswith("index-")}
_OF_QUEUES = (
    "cq-one-queue-deleted", "cq-topic-deleted", "cq-all-deleted", "cq-and-batchcq-all-deleted",
    "cq-first-file-deleted", "cq-mid-file-deleted", "cq-last-file-deleted", "cq-last-5-units-zeroed",
    "cq-zero-unit-in-last-file-mid", "cq-garbage-unit-in-first-file", "cq-garbage-unit-in-last-file-mid",
    "cq-wrong-phy-into-log", "cq-file-wrong-length",
)  # fmt: skip
WELL = {"miss.none", "miss.system-topic"}
BY_ID = {
    **_OF_RECORDS,
    **{kind: "miss.no-record-at-id" for kind, miss in _OF_RECORDS.items() if kind.startswith(("magic", "zero-page"))},
    "delete-mid-file": "miss.no-record-at-id",
    "delete-commitlog-dir": "miss.no-record-at-id",
    **dict.fromkeys(_OF_QUEUES, "miss.no-queue-unit"),
}
"""Kind of damage -> last sentence of `query-id OFFSETMSGID --explain` for a message that it hides from a client."""


@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=str)
def test_by_id_the_true_cause_is_named(damaged: tuple[Variant, Path], records: Records) -> None:
    variant, root = damaged
    store, before = open_store_at(str(root)), open_store_at(str(golden.pristine(variant.base)))
    expected = {BY_ID[kind] for kind in variant.kinds if kind in BY_ID}
    for record in _reached(variant, root, records[variant.base]):
        last = _explained(store, record["offsetMsgId"])
        if last.id not in WELL and _explained(before, record["offsetMsgId"]).id in WELL:
            assert last.id in {*expected, "miss.record-damaged"} or _is_at_the_cut(variant, last), last
            return
    assert not expected or variant.base.endswith("crash") or set(variant.kinds) & MAY_HIDE_NOTHING


def _reached(variant: Variant, root: Path, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records that the edits reach, themselves or their queue units; a few of them."""
    pristine = golden.pristine(variant.base)
    found = _changed(variant, root, records)[:5]
    return found or [r for r in records if not r["sysFlag"] & 0x80 and _unit(root, r) != _unit(pristine, r)][:5]


def _unit(root: Path, record: dict[str, Any]) -> bytes:
    file_size, at = 1000, record["queueOffset"] * 20
    file = root / "consumequeue" / record["topic"] / str(record["queueId"]) / f"{at - at % file_size:020}"
    return file.read_bytes()[at % file_size : at % file_size + 20] if file.exists() else b""


def _explained(store: StoreFiles, text: str) -> TraceStep:
    wanted, trace = parse_message_id(text), Trace()
    return conclude_id(store, wanted, by_id(store, wanted, (), trace), trace)
