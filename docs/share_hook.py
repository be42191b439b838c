"""Man pages and completions of the commands, made when a wheel is built."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShareHook(BuildHookInterface):
    """Adds what lies in ``share/`` of an environment; an editable install goes without."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files, of what the commands of this tree say."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from docs import manual

        self._made = TemporaryDirectory()
        for name, text in manual.share():
            file = Path(self._made.name, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
            build_data["shared_data"][str(file)] = f"share/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Take away what the wheel holds now."""
        if version != "editable":
            self._made.cleanup()
