"""What verify says of a start is what `recover` says, on whatever damage and however the logs are divided."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden, kafka_damage
from rmqctl.answer import Answer
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.loading.known import KnownLogs
from rmqctl.kafka.recovery.replay import Recovery, recover
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.verbs.checking import StartingVerifications
from rmqctl.kafka.verbs.recovering import document
from rmqctl.kafka.verify.driver import VerifyOptions
from rmqctl.release import Release
from rmqctl.verification import ForeseenStart
from tests.conftest import Rmqctl

RELEASES = ("3.9.2", "4.3.1")
FEW = ("crc-body-mid-batch", "middle-log-deleted", "torn-tail-body")


def _replicas(root: Path) -> Replicas:
    return Replicas(LogDirectories([read_directory(LocalTree(str(root)))]))


def _start(root: Path, release: Release, split_size: int) -> ForeseenStart:
    replicas = _replicas(root)
    options = VerifyOptions(split_size=split_size)
    checked = StartingVerifications(replicas, replicas.place, options, Answer(), release)
    list(checked.findings())
    return checked.start()


def _cases() -> list[Any]:
    found = []
    for release in RELEASES:
        for variant in golden.recovery_oracle(release)["variants"]:
            is_fast = variant["variant"].partition("/")[2] in FEW
            found.append(
                pytest.param(release, variant, marks=[] if is_fast else [pytest.mark.slow], id=variant["variant"])
            )
    return found


@pytest.mark.parametrize(("release", "variant"), _cases())
def test_it_is_the_answer_of_recover(release: str, variant: dict[str, Any], tmp_path: Path) -> None:
    root = golden.unpack(f"{release}-{variant['variant'].partition('/')[0]}", tmp_path)
    kafka_damage.apply(variant["recipe"], root)
    wanted = recover(_replicas(root), Release.parse(release))
    for size in (1 << 26, 700):
        start = _start(root, Release.parse(release), size)
        assert start.row is not None
        assert start.row == {
            **{key: value for key, value in document(wanted, ()).items() if key != "partitions"},
            "stray": [one.key for one in wanted.hidden],
        }
        assert bool(start.harm) == (not wanted.is_harmless)


def test_partitions_come_out_alike_whether_their_logs_are_known_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a replay does to a partition, not only what it loses."""
    root = golden.pristine("4.3.1-crash")
    wanted = document(recover(_replicas(root), Release(4, 3, 1)), ())
    found = list[Recovery]()
    from rmqctl.kafka.verbs import checking

    def noted(*arguments: Any) -> Recovery:
        known: KnownLogs = next(iter(arguments[3].values()))
        assert len(known) > 20
        found.append(recover(*arguments))
        return found[-1]

    monkeypatch.setattr(checking, "recover", noted)
    assert _start(root, Release(4, 3, 1), 700).harm == ""
    assert document(found[0], ()) == wanted


def test_lost_metadata_is_no_all_clear(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """No file is damaged, and the cluster's image knows no topic: each partition goes to -stray."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    metadata = root / "__cluster_metadata-0"
    for path in metadata.glob("*.checkpoint"):
        path.unlink()
    fresh = golden.unpack("4.3.1-crash", tmp_path / "other") / "__cluster_metadata-0"
    first = min(fresh.glob("*.log"))
    shutil.copy(first, metadata / first.name)
    done = rmqctl("verify", root, "-o", "json")
    found = json.loads(done.stdout)
    wanted = json.loads(rmqctl("recover", root, "-o", "json").stdout)
    assert found["start"]["hidden"] == wanted["hidden"]
    assert done.exit_code == 1
