"""The settings that brokers of each release read, with their defaults, as their jars have them; what becomes of the
settings of a file in another release.

A table is a text with a line for each name: ``name 4.9.7=16 5.3.3=32 5.5.0-`` is there from the first release of the
table on, has another default from 5.3.3 on, and is gone in 5.5.0. A default that depends on the machine is ``*``.
Releases between those of the table are as the one before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

from rmqctl.filters import did_you_mean
from rmqctl.foresight import Effect, Statement
from rmqctl.release import Release

MACHINE = "*"
_SHOWN = 60
"""Characters of a default that are shown."""


@dataclass(frozen=True)
class KnownSettings:
    """The table of a family.

    Attributes:
        package, file: where it lies.
        source: the classes that read the settings.
        free: beginnings of names that may be followed by anything.
    """

    package: str
    file: str
    source: str
    free: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the table as it lies there."""
        return files(self.package).joinpath(self.file).read_text("utf-8")

    @cached_property
    def _table(self) -> Mapping[str, list[tuple[Release, str | None]]]:
        found: dict[str, list[tuple[Release, str | None]]] = {}
        for line in self.text().splitlines():
            name, *changes = line.split(" ")
            found[name] = [_change(one) for one in changes]
        return found

    @cached_property
    def releases(self) -> list[Release]:
        """Those of the table, ascending."""
        return sorted({release for changes in self._table.values() for release, _ in changes})

    def default(self, name: str, release: Release) -> str | None:
        """Return the default that a setting has in a release, as text; None where the release does not know it."""
        value = None
        for since, now in self._table.get(name, ()):
            if since <= max(release, self.releases[0]):
                value = now
        return value

    def said_of(self, given: Mapping[str, str], shown: Release, release: Release) -> Iterator[Statement]:
        """Yield which settings of a file the release does not read, and which others change their default.

        Args:
            given: of the file, by name.
            shown: the release that ran with them until now.
        """
        known = [name for name in self._table if self.default(name, release) is not None]
        for name, value in given.items():
            if self.default(name, release) is None and not name.startswith(self.free):
                yield self._unread(name, value, release, known)
        changed = [
            f"{name}: {_short(old)} becomes {_short(new)}"
            for name in known
            if (old := self.default(name, shown)) is not None
            and old != (new := self.default(name, release))
            and name not in given
            and MACHINE not in (old, new)
        ]
        if changed:
            count = f"{len(changed):,} settings that the file does not name"
            yield Statement(
                "settings.defaults", Effect.CHANGES, count,
                f"have another default than in {shown}: {'; '.join(changed)}", self._from(release),
            )  # fmt: skip

    def _unread(self, name: str, value: str, release: Release, known: list[str]) -> Statement:
        changes = self._table.get(name)
        if changes is None:
            message = f"no release knows it{did_you_mean(name, known)}"
        elif changes[0][0] > release:
            message = f"this release does not know it; it came with {changes[0][0]} or shortly before"
        else:
            gone = next(since for since, now in changes if now is None)
            message = f"no longer read; {gone} does not have it"
        return Statement(f"setting.{name}", Effect.IGNORES, f"{name}={_short(value)}", message, self._from(release))

    def _from(self, release: Release) -> str:
        return (
            f"{self.source}, jar of {max((one for one in self.releases if one <= release), default=self.releases[0])}"
        )


def _change(text: str) -> tuple[Release, str | None]:
    if text.endswith("-") and "=" not in text:
        return Release.parse(text[:-1]), None
    release, _, value = text.partition("=")
    return Release.parse(release), value.replace("%20", " ")


def _short(value: str | None) -> str:
    text = value or "nothing"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
