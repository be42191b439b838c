"""Settings of a broker that a user hands over as a file."""

from __future__ import annotations

from pathlib import Path

from formats.java_properties import parse_properties
from rmqctl.errors import WrongUsage


def read_settings(path: Path) -> dict[str, str]:
    """Return settings of a broker.conf or a server.properties by name.

    Raises:
        WrongUsage: there is text in it, and no setting.
    """
    text = path.read_text("utf-8", errors="replace")
    settings = parse_properties(text)
    if settings and "=" not in text and ":" not in text:
        raise WrongUsage("--broker-conf", f"{path} has no setting, which is a line name=value.")
    return settings
