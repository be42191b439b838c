"""A broker release, as `--as-release` names it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rmqctl.errors import WrongUsage

_FORM = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3})(?:\.\d{1,3})?)?", re.ASCII)
_NEWEST_PATCH = 1 << 15
"""Above every number of a patch: what ``4.3`` means as long as nobody has said which are known."""


class Release(NamedTuple):
    """Three numbers that compare in the order of releases."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Release:
        """Return the release of ``5.3.3`` or ``v5.3.3``; a fourth number (0.10.2.1) is left out.

        ``5.3`` is the newest patch of 5.3, whichever that is; see :meth:`among`.

        Raises:
            ValueError: not two or three numbers with dots.
        """
        match = _FORM.fullmatch(text.strip().removeprefix("v"))
        if match is None:
            raise ValueError(f"{text!r} is not a release such as 5.3.3")
        major, minor, patch = match.groups()
        return cls(int(major), int(minor), _NEWEST_PATCH if patch is None else int(patch))

    def among(
        self,
        known: Mapping[tuple[int, int], int],
        product: str,
        first: Mapping[tuple[int, int], int] = MappingProxyType({}),
    ) -> Release:
        """Return the release as one of those that are known.

        Args:
            known: the newest patch of each series; the earlier ones are known, too.
            first: the first patch that is known of a series, where that is not 0.

        Raises:
            WrongUsage: it is none of them.
        """
        newest = known.get(self[:2])
        oldest = first.get(self[:2], 0)
        if newest is not None and (oldest <= self.patch <= newest or self.patch == _NEWEST_PATCH):
            return self._replace(patch=min(self.patch, newest))
        series = sorted(known)
        last = series[-1]
        if newest is not None and self.patch < oldest:
            hint = f"of that series only {self.major}.{self.minor}.{oldest} is known here"
        elif newest is not None:
            hint = f"the newest of that series that is known here is {self.major}.{self.minor}.{newest}"
        else:
            alone = [s for s in series if first.get(s)]
            only = "".join(f"{s[0]}.{s[1]}.{known[s]} and " for s in alone)
            begin = next(s for s in series if s not in alone)
            hint = f"known here are {only}{begin[0]}.{begin[1]} to {last[0]}.{last[1]}.{known[last]}"
        raise WrongUsage("--as-release", f"{self} is no release of {product} that is known here; {hint}.")

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + ("" if self.patch == _NEWEST_PATCH else f".{self.patch}")
