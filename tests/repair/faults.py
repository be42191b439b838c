"""A file layer that stops or fails at a chosen request."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from rmqctl.files.writing import FileLayer


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program goes on."""


class QuickLayer(FileLayer):
    """Does not wait for the disk: a kill loses nothing that was written."""

    def request(self, operation: str, path: str, act: Callable[[], Any]) -> Any:
        return None if operation == "fsync" else act()


class CountingLayer(QuickLayer):
    """Counts requests and keeps what they were."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    def request(self, operation: str, path: str, act: Callable[[], Any]) -> Any:
        self.requests.append((operation, path))
        return super().request(operation, path, act)


class KillingLayer(CountingLayer):
    """Dies at request number `at`: before it, after it, or in the middle of a write."""

    def __init__(self, at: int, how: str = "before") -> None:
        super().__init__()
        self.at, self.how = at, how
        self._half = False

    def request(self, operation: str, path: str, act: Callable[[], Any]) -> Any:
        self.requests.append((operation, path))
        if len(self.requests) - 1 != self.at:
            return QuickLayer.request(self, operation, path, act)
        if self.how == "after":
            act()
        elif self.how == "within" and operation == "write":
            self._half = True
            act()
        raise Killed(f"{operation} {path}")

    def put(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if self._half:
            data = data[: len(data) // 2]
        return os.pwrite(fd, data, offset)


class FailingLayer(CountingLayer):
    """Fails with an error at request number `at`; with `for_ever` at every later one too."""

    def __init__(self, at: int, number: int = errno.EIO, *, for_ever: bool = False) -> None:
        super().__init__()
        self.at, self.number, self.for_ever = at, number, for_ever

    def request(self, operation: str, path: str, act: Callable[[], Any]) -> Any:
        index = len(self.requests)
        self.requests.append((operation, path))
        if index == self.at or (self.for_ever and index > self.at):
            raise OSError(self.number, os.strerror(self.number), path)
        return QuickLayer.request(self, operation, path, act)


class AcrossLayer:
    """Mixed in: the store and the journals lie on different file systems."""

    def rename(self, old: str, new: str) -> None:
        here = {"store" if ".rmqctl-journal" not in path else "journal" for path in (old, new)}
        if len(here) > 1:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), new)
        super().rename(old, new)  # type: ignore[misc]


class AcrossCounting(AcrossLayer, CountingLayer):
    pass


class AcrossKilling(AcrossLayer, KillingLayer):
    pass
