"""A broker release, as `--as-release` names it."""

from __future__ import annotations

import re
from typing import NamedTuple

_FORM = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:\.\d{1,3})?", re.ASCII)


class Release(NamedTuple):
    """Three numbers that compare in the order of releases."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Release:
        """Return the release of ``5.3.3`` or ``v5.3.3``; a fourth number (0.10.2.1) is left out.

        Raises:
            ValueError: not three numbers with dots.
        """
        match = _FORM.fullmatch(text.strip().removeprefix("v"))
        if match is None:
            raise ValueError(f"{text!r} is not a release such as 5.3.3")
        return cls(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def newer_than_known(release: Release, newest: Release) -> str:
    """Return a remark on an answer for a release of which nothing is known."""
    return f"{release} is newer than any release known here; this is by the rules of {newest}"
