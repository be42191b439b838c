"""The lock of a broker counts only as long as its path leads to the file that is locked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.files import lock
from rmqctl.files.lock import FileLock, LockHeldError


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_that_another_holder_takes_away_meanwhile_does_not_count(
    is_replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tried, take = tmp_path / "lock", list[int](), lock._take
    path.touch()

    def taken_away_first(fd: int) -> bool:
        if not tried:
            path.unlink()
            if is_replaced:
                path.touch()
        tried.append(os.fstat(fd).st_ino)
        return take(fd)

    monkeypatch.setattr(lock, "_take", taken_away_first)
    held = FileLock(str(path))
    assert len(tried) == 2 and os.stat(path).st_ino == tried[-1] == os.fstat(held._fd).st_ino
    assert held.is_new != is_replaced
    with pytest.raises(LockHeldError):
        FileLock(str(path))
    held.release()
    FileLock(str(path)).release()
