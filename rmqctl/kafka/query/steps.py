"""What a lookup looked at, step by step; ``--explain`` prints the steps in order."""

from __future__ import annotations

from typing import Any

CONCLUSION = "conclusion"
"""``what`` of the last step: one sentence with the reason of the answer."""


class Steps:
    """Collects steps; those of a lookup that is not to be explained are not kept."""

    def __init__(self, *, on: bool) -> None:
        self.on = on
        self._rows: list[dict[str, Any]] = []

    def add(self, file: str, what: str, result: str) -> None:
        """Note a step: the file relative to the log directory, what was looked at in it, and what was there."""
        if self.on:
            self._rows.append({"kind": "step", "file": file, "what": what, "result": result})

    def conclude(self, result: str, file: str = "") -> None:
        """Note the last step."""
        self.add(file, CONCLUSION, result)

    def before_conclusion(self, file: str, what: str, result: str) -> None:
        """Note a step that comes before the last one, though it was found out after it."""
        last = self._rows.pop() if self._rows else None
        self.add(file, what, result)
        if last is not None:
            self._rows.append(last)

    def rows(self) -> list[dict[str, Any]]:
        """The steps as JSON-ready rows."""
        return self._rows
