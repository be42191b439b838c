"""Salvaged stores hold every readable message at its queue offset, pass verify, and brokers start on them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.log.stand_ins import MARK
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.salvage.salvage import Salvaged, SalvageOptions, salvage
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store

DAMAGED = (
    "clean/body-flip-mid",
    "clean/totalsize-huge-mid",
    "clean/zero-page-mid",
    "clean/delete-mid-file",
    "crash/magic-flip-first-record-of-last-file",
    "crash/cq-all-deleted",
    "crash/torn-tail-only-header",
)


def _store(root: Path, base: str = "") -> StoreFiles:
    return open_store(LocalTree(root), settings=golden.broker_conf(base) if base else {})


def _messages(root: Path) -> dict[tuple[str, int, int, int], str]:
    """Hash of the body by topic, queue, queue offset and store time; placeholders apart."""
    found = {}
    for part in CommitLog(_store(root).log_files, crashed=True).walk():
        for row in range(len(part.block)):
            fields = part.block.record(row)
            if MARK not in fields["properties"]:
                place = fields["topic"].decode(), fields["queue_id"], fields["queue_offset"], fields["store_timestamp"]
                found[place] = hashlib.sha256(fields["body"]).hexdigest()
    return found


def _is_sound(root: Path, base: str, rmqctl: Any, conf: Path) -> None:
    """No finding but notes, and a broker that starts finds nothing to do."""
    golden.write_broker_conf(base, conf)
    result = rmqctl("verify", root, "--broker-conf", conf, "--no-notes", "-o", "json")
    assert json.loads(result.stdout)["findings"] == []
    replay = recover(_store(root, base))
    assert (replay.starts, replay.lost, replay.deleted, replay.redispatched) == (True, [], [], 0)


@pytest.mark.parametrize("name", golden.NAMES)
def test_an_undamaged_store_comes_out_whole(name: str, tmp_path: Path, rmqctl: Any) -> None:
    root = golden.pristine(name)
    saved = salvage([_store(root, name)], tmp_path / "into", SalvageOptions())
    assert _messages(tmp_path / "into") == _messages(root)
    assert (saved.unreadable, saved.written.placeholders, saved.written.renumbered) == ([], 0, 0)
    _is_sound(tmp_path / "into", name, rmqctl, tmp_path / "broker.conf")


@pytest.mark.parametrize("variant", DAMAGED)
@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_what_lies_behind_damage_is_saved(release: str, variant: str, tmp_path: Path, rmqctl: Any) -> None:
    base = f"{release}-{variant.partition('/')[0]}"
    root = golden.unpack(base, tmp_path)
    damage.apply(golden.recovery_oracle(release)["variants"][variant]["recipe"], root)
    saved = salvage([_store(root, base)], tmp_path / "into", SalvageOptions())
    kept, readable = _messages(tmp_path / "into"), _messages(root)
    destroyed = set(readable) - set(kept)
    assert set(kept) <= set(readable)
    assert len(destroyed) == (1 if "body-flip" in variant else 0)
    _is_sound(tmp_path / "into", base, rmqctl, tmp_path / "broker.conf")
    assert bool(saved.unreadable) == ("cq-all" not in variant)


def test_replicas_complete_each_other(tmp_path: Path) -> None:
    first, second = (golden.unpack("5.3.3-clean", tmp_path / name) for name in ("a", "b"))
    oracle = golden.recovery_oracle("5.3.3")["variants"]
    damage.apply(oracle["clean/delete-mid-file"]["recipe"], first)
    damage.apply(oracle["clean/delete-first-file"]["recipe"], second)
    saved = salvage([_store(first), _store(second)], tmp_path / "into", SalvageOptions())
    assert _messages(tmp_path / "into") == _messages(golden.pristine("5.3.3-clean"))
    assert saved.written.placeholders == 0 and saved.duplicates > 0 and saved.conflicts == 0


def test_renumbered_queues_count_from_zero(tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    damage.apply(golden.recovery_oracle("5.5.0")["variants"]["clean/delete-mid-file"]["recipe"], root)
    salvage([_store(root)], tmp_path / "into", SalvageOptions(renumber=True))
    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, queue, offset, _ in sorted(_messages(tmp_path / "into")):
        offsets.setdefault((topic, queue), []).append(offset)
    counted = {key: found for key, found in offsets.items() if key[0] != "LabBatchCq"}
    assert all(found == list(range(len(found))) for found in counted.values())


def test_the_stale_tail_comes_only_when_asked_for(tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    for file in sorted((root / "commitlog").iterdir())[-1:]:
        with file.open("r+b") as data:  # the head of the last file is overwritten, as by a broker that went on
            data.write(bytes(8))
    without = _saved(root, tmp_path / "without", stale=False)
    stale = _saved(root, tmp_path / "with", stale=True)
    assert without.stale == 0
    assert len(_messages(tmp_path / "with")) >= len(_messages(tmp_path / "without"))
    assert stale.written.messages >= without.written.messages


def _saved(root: Path, into: Path, *, stale: bool) -> Salvaged:
    return salvage([_store(root)], into, SalvageOptions(stale=stale))


def test_the_command_says_what_it_could_not_read(tmp_path: Path, rmqctl: Any) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    damage.apply(golden.recovery_oracle("4.9.8")["variants"]["clean/body-flip-mid"]["recipe"], root)
    result = rmqctl("salvage", root, tmp_path / "into", "-o", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [f["id"] for f in document["unreadable"]] == ["log.body-crc"]
    assert document["summary"]["placeholders"] == 1
    again = rmqctl("salvage", root, tmp_path / "into")
    assert "writing" not in again.stderr  # refused before anything is announced
    assert again.exit_code == 13 and "not empty" in again.stderr
    assert rmqctl("salvage", root, root / "inside").exit_code == 13


def test_a_queue_file_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    root = golden.unpack("5.1.4-crash", tmp_path)
    file = next((root / "consumequeue/LabOrders/1").iterdir())
    file.unlink()
    file.symlink_to(tmp_path / "nowhere")
    saved = salvage([_store(root)], tmp_path / "new", SalvageOptions())
    assert [(f.kind.id, f.file) for _, f in saved.unreadable] == [
        ("file.unreadable", f"consumequeue/LabOrders/1/{file.name}")
    ]
    assert _messages(tmp_path / "new") == _messages(root)


def test_offsets_come_back_into_queues_whose_tail_is_lost(tmp_path: Path, rmqctl: Any) -> None:
    root = golden.unpack("4.5.2-clean", tmp_path)
    max((root / "commitlog").iterdir()).rename(tmp_path / "lost")
    saved = salvage([_store(root)], tmp_path / "new", SalvageOptions())
    assert any("config/consumerOffset.json: set offsets back into their queues" in what for what in saved.offsets)
    assert rmqctl("verify", str(tmp_path / "new")).exit_code == 0


def test_queues_that_lost_their_first_messages_begin_at_the_next(tmp_path: Path, rmqctl: Any) -> None:
    """Before it lie filler units at offset 0 of the log: a broker holds them for messages unless the log begins later."""
    root = golden.unpack("4.9.8-clean", tmp_path)
    min((root / "commitlog").iterdir()).rename(tmp_path / "lost")
    salvage([_store(root)], tmp_path / "new", SalvageOptions())
    first: dict[tuple[str, int], int] = {}
    for topic, queue, offset, _ in _messages(tmp_path / "new"):
        first[topic, queue] = min(first.get((topic, queue), offset), offset)
    assert max(first.values()) > 0
    rows = [json.loads(line) for line in rmqctl("topics", tmp_path / "new", "-o", "jsonl").stdout.splitlines()]
    begins = {(row["topic"], row["queue_id"]): row["min_offset"] for row in rows}
    assert {key: begins[key] for key in first} == first
    assert rmqctl("verify", str(tmp_path / "new")).exit_code == 0
