"""broker.conf: the settings that a store's files do not hold (Java properties text)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from formats.java_properties import parse_properties

OLD_NAMES = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Settings as releases up to 4.4 spell them (MessageStoreConfig) -> as all later ones do."""


def read_broker_conf(path: Path) -> dict[str, str]:
    """Settings of a broker.conf by name.

    Raises:
        OSError: the file cannot be read.
    """
    return parse_broker_conf(path.read_text("utf-8", errors="replace"))


def parse_broker_conf(text: str) -> dict[str, str]:
    """Settings in the text of a broker.conf, spaces around them gone.

    A setting under the name that old releases gave it is there under its present name, too.
    """
    settings = {name.strip(): value.strip() for name, value in parse_properties(text).items()}
    for old, new in OLD_NAMES.items():
        if old in settings:
            settings.setdefault(new, settings[old])
    return settings


def integer(settings: Mapping[str, str], name: str) -> int | None:
    """A positive whole number among the settings; None when absent or not one."""
    value = settings.get(name, "").strip()
    return int(value) if value.isascii() and value.isdigit() and int(value) > 0 else None


def flag(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    """A true/false setting; anything but ``true`` is false, as Java's Boolean.parseBoolean has it."""
    value = settings.get(name)
    return default if value is None else value.strip().lower() == "true"
