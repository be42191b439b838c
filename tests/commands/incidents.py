"""Sixteen real incidents of brokers, each made on a copy of a golden store."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from commands import cli
from fixtures import golden

_ZEROS = bytes(10 << 20)
_CHECKPOINT = "__cluster_metadata-0/00000000000000000392-0000000002.checkpoint"


def _queues_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()


def _empty_last_log_file(root: Path) -> None:
    (root / "commitlog/00000000000000655360").write_bytes(b"")


def _queue_never_flushed(root: Path) -> None:
    queue = root / "consumequeue/LabOrders/1"
    for name in ("00000000000000001000", "00000000000000002000"):
        (queue / name).write_bytes(bytes(1000))
    (root / "abort").write_bytes(b"")


def _delay_offsets_zeroed(root: Path) -> None:
    (root / "config/delayOffset.json").write_bytes(bytes(127))
    _cut(root / "config/delayOffset.json.bak", 21)


def _index_files_broken(root: Path) -> None:
    first, second, *_ = sorted((root / "index").iterdir())
    first.write_bytes(b"")
    _cut(second, 9000)


def _log_cut(root: Path) -> None:
    _zero(root / "commitlog/00000000000000262144", 330182 - 262144, 131072)
    (root / "commitlog/00000000000000393216").unlink()
    (root / "abort").write_bytes(b"")


def _hole_in_the_log(root: Path) -> None:
    _zero(root / "commitlog/00000000000000262144", 40960, 45056)


def _impossible_offsets(root: Path) -> None:
    file = root / "config/consumerOffset.json"
    text = re.sub(r'("LabLog@Lab_grpLag":\{[^}]*\b1:)\d+', r"\g<1>647260483", file.read_text())
    file.write_text(re.sub(r'("LabOrders@Lab_grpFull":\{[^}]*\b0:)\d+', r"\g<1>-898232391123", text))


def _indexes_zeroed(root: Path) -> None:
    for segment in ("00000000000000000091", "00000000000000000146"):
        (root / f"plain-none-0/{segment}.index").write_bytes(_ZEROS)


def _microseconds(place: Path) -> Path:
    """No golden store: 400 records are produced, the last 250 with microseconds for milliseconds."""
    now = 1_790_000_000_000
    rows = [{"topic": "clicks", "key": None, "value": f"v{n}" * 20, "timestamp": now + n} for n in range(150)]
    rows += [
        {"topic": "clicks", "key": None, "value": f"v{n}" * 20, "timestamp": (now + n) * 1000} for n in range(150, 400)
    ]
    lines, root = place / "clicks.jsonl", place / "clicks"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["produce", str(root), "--format", "kafka", "--jsonl", str(lines), "--small", "--batch", "5"]
    made = CliRunner().invoke(cli, words)
    assert made.exit_code == 0, made.output
    return root


def _other_cluster(root: Path) -> None:
    meta = root / "meta.properties"
    meta.write_text(meta.read_text().replace("AbCdEfGhQxSTU-V_wXyZ01", "ZZZZEfGhQxSTU-V_wXyZ99"))


def _metadata_lost(root: Path) -> None:
    (root / "plain-none-0/partition.metadata").unlink()


def _record_corrupt(root: Path) -> None:
    with (root / "plain-none-0/00000000000000000047.log").open("r+b") as file:
        file.seek(1200)
        two = file.read(2)
        file.seek(1200)
        file.write(bytes(byte ^ 0xFF for byte in two))


def _snapshot_empty(root: Path) -> None:
    (root / _CHECKPOINT).write_bytes(b"")


def _topic_made_again(root: Path) -> None:
    shutil.rmtree(root / "plain-none-0")
    shutil.move(next(root.glob("goner-0.*-delete")), root / "plain-none-0")


def _cut(file: Path, size: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(size)


def _zero(file: Path, low: int, high: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(low)
        opened.write(bytes(high - low))


INCIDENTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "R1": ("5.5.0-crash", _queues_gone),
    "R2": ("5.5.0-crash", _empty_last_log_file),
    "R3": ("4.9.8-clean", _queue_never_flushed),
    "R5": ("5.5.0-crash", _delay_offsets_zeroed),
    "R6": ("5.5.0-clean", _index_files_broken),
    "R7": ("5.5.0-clean", _log_cut),
    "R8": ("5.5.0-clean", _hole_in_the_log),
    "R9": ("5.5.0-clean", _impossible_offsets),
    "K1": ("3.9.2-crash", _indexes_zeroed),
    "K2": ("", _microseconds),
    "K3": ("3.9.2-clean", _other_cluster),
    "K4": ("3.9.2-clean", lambda root: None),
    "K6": ("3.9.2-clean", _metadata_lost),
    "K8": ("3.9.2-clean", _record_corrupt),
    "K9": ("3.9.2-clean", _snapshot_empty),
    "K11": ("4.3.1-clean", _topic_made_again),
}


def make(incident: str, place: Path) -> Path:
    """Make the state of an incident below ``place``; returns the root of the store."""
    name, change = INCIDENTS[incident]
    if not name:
        return _microseconds(place)
    root = golden.unpack(name, place)
    change(root)
    return root
