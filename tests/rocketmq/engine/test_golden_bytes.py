"""The same messages make the same bytes: golden stores written again from their truth.

Exceptions: bytes behind the first eight of a blank record, which brokers up to 4.9.0 leave stale (spec 2.9);
names of index files, which are the broker's clock; the checkpoint's physicMsgTimestamp, which depends on when
a flush happened (equal where the broker's last flush came after its last message).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from tests.rocketmq.engine.reproduce import reproduce

STORES = (*(f"{release}-clean" for release in golden.RELEASES), "5.5.0-propcrc-clean", "5.5.0-multipath-clean")
EMBEDDED = ("5.5.0-propcrc-clean", "5.5.0-multipath-clean")
"""Written without a broker, so that no text was decoded into the broker's map: the texts are taken as they are."""
UNIT_FILES = ("consumequeue", "batchconsumequeue")
SAME_CHECKPOINT = ("4.5.2-clean", "5.3.3-clean")


@pytest.mark.parametrize("name", STORES)
def test_records_units_slots_and_entries_are_equal(name: str, tmp_path: Path) -> None:
    root = golden.pristine(name)
    config, odd = reproduce(name, tmp_path / name)
    assert odd == 0 or name in EMBEDDED
    blanks = {line["file"]: line["pos"] + 8 for line in golden.truth(name) if line["kind"] == "blank"}
    logs = config.commit_log_paths or ("commitlog",)
    for path in (p for log in logs for p in sorted((root / log).iterdir())):
        stop = blanks.get(path.name) if config.release < (4, 9, 1) else None
        assert path.read_bytes()[:stop] == (tmp_path / name / path.relative_to(root)).read_bytes()[:stop], path
    for path in (p for kind in UNIT_FILES for p in sorted((root / kind).rglob("*")) if p.is_file()):
        assert (tmp_path / name / path.relative_to(root)).read_bytes() == path.read_bytes(), path
    assert _index(root) == _index(tmp_path / name)
    if name in SAME_CHECKPOINT:
        assert (root / "checkpoint").read_bytes() == (tmp_path / name / "checkpoint").read_bytes()


def test_no_file_too_many(tmp_path: Path) -> None:
    root = golden.pristine("5.5.0-clean")
    reproduce("5.5.0-clean", tmp_path / "made")
    for kind in ("commitlog", *UNIT_FILES):
        theirs = {p.relative_to(root) for p in (root / kind).rglob("*")}
        ours = {p.relative_to(tmp_path / "made") for p in (tmp_path / "made" / kind).rglob("*")}
        assert ours == theirs


def _index(root: Path) -> list[bytes]:
    return [p.read_bytes() for p in sorted((root / "index").iterdir())]
