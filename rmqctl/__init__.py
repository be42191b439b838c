"""rmqctl looks at, explains and mends message stores when only the files are there."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
