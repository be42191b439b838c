"""The document of a report: its version, and how one that was written is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from rmqctl.answer import Row
from rmqctl.errors import WrongUsage

KIND, VERSION = "report", 1
"""What says that a document is a report, and how to read it; ``schema.json`` beside this module describes it."""


def read_document(path: Path) -> Row | None:
    """Return the document in a file; None where it is JSON, but no report.

    Raises:
        WrongUsage: it is not JSON, or a report that this release does not read.
    """
    document = read_json(path)
    if not isinstance(document, dict) or document.get("kind") != KIND:
        return None
    if document.get("version") != VERSION:
        raise WrongUsage("PATH", f"{path} is a report of version {document.get('version')}; this is {VERSION}.")
    return document


def read_json(path: Path) -> Any:
    """Return what a file holds.

    Raises:
        WrongUsage: it is not JSON.
    """
    try:
        return orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise WrongUsage("PATH", f"{path} is not JSON: {error}.") from None
