"""An annotated hex dump: every byte of a file is a named field with its value and meaning, or a gap.

The fields come from the schemas in `formats`; records are found by the scan of the commit log.
"""

from __future__ import annotations

from rmqctl.hexview.annotate import annotate
from rmqctl.hexview.annotation import RAW_LIMIT, Annotation, Group
from rmqctl.hexview.kinds import kind_of
from rmqctl.hexview.render import render
from rmqctl.hexview.rows import rows
from rmqctl.rocketmq.file_kinds import FileKind

__all__ = ["RAW_LIMIT", "Annotation", "FileKind", "Group", "annotate", "kind_of", "render", "rows"]
