"""The one mechanism that changes an existing store, and can take every change back.

plan -> lock -> does it fit, is there room -> journal with all bytes before and after -> fsync -> edits ->
fsync -> check -> done. A kill at any instruction leaves a store that :func:`pending` tells of, and that
:func:`resume` finishes or :func:`undo` takes back, byte for byte. What is done, :func:`undo` takes back by a
journal of its own.
"""

from __future__ import annotations

from rmqctl.files.writing import FileLayer
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Plan, Quarantine, SetTimes, Step
from rmqctl.repair.execute import Applied, apply, resume, undo
from rmqctl.repair.history import History, choose_journal
from rmqctl.repair.journal import Journal, default_directory, read_journal
from rmqctl.repair.preconditions import check_journal, pending, refuse_pending

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
