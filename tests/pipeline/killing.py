"""Work that is killed at a step: from there on nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Killed(BaseException):
    """What a kill is to the code that runs: nothing after it happens."""


@contextmanager
def killed(step: int, calls: Sequence[tuple[Any, str]]) -> Iterator[list[int]]:
    """Let only so many of some calls happen; gives the number of those that were tried.

    Args:
        calls: owner and name of each.
    """
    tried, real = [0], [(owner, name, getattr(owner, name)) for owner, name in calls]

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **more: Any) -> Any:
            tried[0] += 1
            if tried[0] > step:
                raise Killed
            return call(*args, **more)

        return act

    for owner, name, call in real:
        setattr(owner, name, guarded(call))
    try:
        yield tried
    except Killed:
        pass
    finally:
        for owner, name, call in real:
            setattr(owner, name, call)
