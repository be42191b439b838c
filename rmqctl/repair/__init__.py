"""The one mechanism that changes an existing store, and can take every change back.

plan -> lock -> does it fit, is there room -> journal with all bytes before and after -> fsync -> edits ->
fsync -> check -> done. A kill at any instruction leaves a store that :func:`pending` reports, and that
:func:`resume` finishes or :func:`undo` takes back, byte for byte. What is done, :func:`undo` takes back by a
journal of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.files.writing import FileLayer
    from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Plan, Quarantine, SetTimes, Step
    from rmqctl.repair.execute import Applied, apply, resume, undo
    from rmqctl.repair.history import History, choose_journal
    from rmqctl.repair.journal import Journal, read_journal
    from rmqctl.repair.journal_directory import default_directory, pending, refuse_pending
    from rmqctl.repair.preconditions import check_journal

__all__ = [
    "Applied",
    "Create",
    "Cut",
    "Edit",
    "Extend",
    "FileLayer",
    "History",
    "Journal",
    "Overwrite",
    "Plan",
    "Quarantine",
    "SetTimes",
    "Step",
    "apply",
    "check_journal",
    "choose_journal",
    "default_directory",
    "pending",
    "read_journal",
    "refuse_pending",
    "resume",
    "undo",
]

_MODULES = {
    "rmqctl.files.writing": {"FileLayer"},
    "rmqctl.repair.execute": {"Applied", "apply", "resume", "undo"},
    "rmqctl.repair.history": {"History", "choose_journal"},
    "rmqctl.repair.journal": {"Journal", "read_journal"},
    "rmqctl.repair.journal_directory": {"default_directory", "pending", "refuse_pending"},
    "rmqctl.repair.preconditions": {"check_journal"},
}
"""Where names come from; all others are in `rmqctl.repair.edits`."""


def __getattr__(name: str) -> object:
    """Import what carries plans out when it is asked for: most plans are only shown."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names), "rmqctl.repair.edits")
    return getattr(import_module(module), name)
