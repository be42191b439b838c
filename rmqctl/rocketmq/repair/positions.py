"""Positions of consumer groups written as a broker writes them: JSON files with their ``.bak``, rows of RocksDB.

ConsumerOffsetManager keeps the content before in the ``.bak`` (MixAll.string2File). A database is never written to: a
new one with all its rows takes its place.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.rocksdb import consumer_offset_key
from rmqctl.errors import Refused
from rmqctl.files.tree import read_all
from rmqctl.positions import Change
from rmqctl.repair.edits import Edit, Plan, Step
from rmqctl.rocketmq.rebuild.databases import replacement
from rmqctl.rocketmq.repair.config import replaced
from rmqctl.rocketmq.state.config import CONFIG, OFFSETS, ConsumerOffset, has_version_2, read_config, table, version_1
from rmqctl.rocketmq.store.databases import CONFIG_V2, METADATA, Database, new_database, open_database
from rmqctl.rocketmq.store.files import LIGHT, StoreFiles

_FILE, _LIGHT_FILE = f"{CONFIG}/consumerOffset.json", f"{CONFIG}/lmqConsumerOffset.json"
_PURPOSE = "writing positions of groups in RocksDB"
_STEP = "offsets.position"


def default_place(store: StoreFiles) -> str:
    """Return where a broker that starts on the store keeps positions: a database where one is there, else the file."""
    if has_version_2(store):
        return CONFIG_V2
    with ExitStack() as opened:
        place = version_1(store, OFFSETS, opened)
        if place is not None:
            return place[0].path
    is_light = any(store.tree.stat(_LIGHT_FILE + ending) for ending in ("", ".bak"))
    return _LIGHT_FILE if is_light else _FILE  # with light queues a broker reads that file only


def plan_positions(
    store: StoreFiles, changes: Sequence[Change], stored: Mapping[tuple[str, str, int], ConsumerOffset], room: Path
) -> Plan:
    """Plan the positions that are to be others.

    Args:
        stored: the positions that are there, by group, topic and queue.
        room: a directory in which databases are built; it must stay until the plan is carried out.

    Raises:
        MissingExtra: positions lie in RocksDB, and its package is not installed.
        Refused: a new position in a light queue, which only its broker's own table may get.
    """
    by_place = dict[str, list[Change]]()
    usual = default_place(store)
    for change in changes:
        own = stored.get((change.key.group, change.key.topic, change.key.queue))
        if own is None and change.key.topic.startswith(LIGHT):
            raise Refused(f"{change.key.topic} is a light queue, in which {change.key.group} has no position to change")
        by_place.setdefault(usual if own is None else own.file, []).append(change)
    steps = [_step(store, place, found, room) for place, found in sorted(by_place.items())]
    return Plan(Path(store.root), f"positions of groups in {store.root}", tuple(steps))


def _step(store: StoreFiles, place: str, changes: Sequence[Change], room: Path) -> Step:
    what = "; ".join(
        f"{c.key.group} in {c.key.topic}/{c.key.queue} from {'none' if c.old is None else c.old} to {c.new}"
        for c in changes
    )
    is_file = place in {_FILE, _LIGHT_FILE}
    edits = tuple(_of_file(store, place, changes) if is_file else _of_database(store, place, changes, room))
    return Step(_STEP, place, what, "it was asked for", edits)


# --- files ------------------------------------------------------------------------------------------------


def _of_file(store: StoreFiles, path: str, changes: Iterable[Change]) -> Iterator[Edit]:
    """Yield the edits of a JSON file: its new content, and in the ``.bak`` what it had, where that can be read."""
    found = read_config(store, path.rpartition("/")[2])
    if found.document is None and not (found.missing and store.tree.stat(f"{path}.bak") is None):
        raise Refused(
            f"{path} and its .bak cannot be read, so the other positions in it are not known; see: rmqctl repair"
        )
    document = dict(found.document) if isinstance(found.document, dict) else {}
    if found.document is not None and found.error is None:
        yield from replaced(store, f"{path}.bak", read_all(store.tree, path) or b"")
    tables = {name: dict(table(document, name)) for name in ("offsetTable", "lmqOffsetTable")}
    for change in changes:
        key = f"{change.key.topic}@{change.key.group}"
        if key in tables["lmqOffsetTable"]:
            tables["lmqOffsetTable"][key] = change.new
        else:
            tables["offsetTable"][key] = _with(tables["offsetTable"].get(key), change)
    document |= {name: rows for name, rows in tables.items() if rows or name in document}
    yield from replaced(store, path, json_of(document))


def _with(queues: Any, change: Change) -> dict[str, Any]:
    kept = queues if isinstance(queues, dict) else {}
    return {**kept, str(change.key.queue): change.new}


def json_of(document: Mapping[str, Any]) -> bytes:
    """Return a configuration as brokers write it, but for numbers of queues, which stand in quotes."""
    return json.dumps(document, indent="\t", ensure_ascii=False).encode("utf-8", "surrogateescape")


# --- databases --------------------------------------------------------------------------------------------


def _of_database(store: StoreFiles, path: str, changes: Iterable[Change], room: Path) -> tuple[Edit, ...]:
    """Return the edits that put a database with other positions in the place of one of either version."""
    staged = Path(tempfile.mkdtemp(dir=room, prefix="positions-"))
    family = OFFSETS.single if path == METADATA else "default"
    with open_database(store, path, _PURPOSE) as old:
        rows = _rows_2(changes) if path == CONFIG_V2 else _rows_1(old, family, changes)
        with new_database(staged, {*old.families, family}) as new:
            for name in old.families:
                for key, value in old.rows(name):
                    new.put(name, key, value)
            for key, value in rows.items():
                new.put(family, key, value)
    return replacement(store, path, staged)


def _rows_1(database: Database, family: str, changes: Iterable[Change]) -> dict[bytes, bytes]:
    """Return the rows of a database of version 1 that become others: topic@group, and a JSON object."""
    found = dict[bytes, dict[str, Any]]()
    for change in changes:
        key = f"{change.key.topic}@{change.key.group}".encode()
        document = found.get(key)
        if document is None:
            value = database.get(family, key)
            document = _parsed(key, value) if value is not None else {"offsetTable": {}}
        found[key] = {**document, "offsetTable": _with(table(document, "offsetTable"), change)}
    return {key: _compact(document) for key, document in found.items()}


def _parsed(key: bytes, value: bytes) -> dict[str, Any]:
    try:
        document = parse_config(value)
    except DecodeError as error:
        raise Refused(f"the row {key.decode('utf-8', 'replace')!r} of the positions cannot be read: {error}") from error
    return document if isinstance(document, dict) else {"offsetTable": {}}


def _compact(document: Mapping[str, Any]) -> bytes:
    """Return a row as a broker writes it: numbers of queues without quotes (RocksDBOffsetSerializeWrapper)."""
    queues = ",".join(f"{queue}:{offset}" for queue, offset in table(document, "offsetTable").items())
    rest = {name: value for name, value in document.items() if name != "offsetTable"}
    more = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in rest.items())
    return f'{{"offsetTable":{{{queues}}}{more}}}'.encode()


def _rows_2(changes: Iterable[Change]) -> dict[bytes, bytes]:
    """Return the rows of a database of version 2 (ConsumerOffsetManagerV2.commitOffset)."""
    return {
        consumer_offset_key(c.key.group.encode(), c.key.topic.encode(), c.key.queue): c.new.to_bytes(
            8, "big", signed=True
        )
        for c in changes
    }
