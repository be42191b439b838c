"""DLedger files: entries around message records, the entry index, and its two text files (spec 2.14)."""

from __future__ import annotations

from construct import Int32sb, Int64sb, Struct

from formats.text import decimal_until, entries, marks_of, until

DLedgerEntry = Struct(
    "magic" / Int32sb * "1 a record follows, 2 empty, 3 a change of members",
    "size" / Int32sb * "48 + body, bytes",
    "index" / Int64sb * "number of the entry",
    "term" / Int64sb,
    "position" / Int64sb * "own offset in the entry log, bytes",
    "channel" / Int32sb,
    "chain_crc" / Int32sb * "0",
    "body_crc" / Int32sb * "0",
    "body_size" / Int32sb * "bytes of the record that follows",
)

DLedgerBlank = Struct("magic" / Int32sb * "-1", "size" / Int32sb * "bytes left in the file from here")

DLedgerIndexUnit = Struct(
    "magic" / Int32sb,
    "position" / Int64sb * "where the entry lies, bytes",
    "size" / Int32sb * "bytes of the entry",
    "index" / Int64sb,
    "term" / Int64sb,
)

ENTRY_SIZE = 48
"""Unit i lies at byte ``32 * i`` of the index files."""


LINE_END, COMMENT = b"\n", "#"

DLedgerCheckpointLine = Struct(
    "name" / until(b"=") * "endIndex: last entry on the disk; committedIndex: last entry that a majority has",
    "value" / decimal_until(LINE_END, required=False) * "number of the entry",
)
DLedgerTermLine = Struct(
    "name" / until(b"=") * "currTerm: the term of the node; voteLeader: whom it voted for in that term",
    "value" / until(LINE_END, required=False) * "a number; the id of a node, empty for none",
)


def parse_lines(line: Struct, data: bytes) -> dict[str, int | str]:
    """Names and values of ``checkpoint`` or ``currterm`` (Java properties text) by the schema of a line.

    A line without a mark is passed over, and so are comments; a value that should be a number and is none stays text.
    """
    found: dict[str, int | str] = {}
    for own in entries(DLedgerTermLine, data):
        name = own.name.decode("utf-8", "replace").strip()
        if not name.startswith(COMMENT):
            value = next(entries(line, own.name + marks_of(line)[0] + own.value.strip()), own).value
            found[name] = value if isinstance(value, int) else value.decode("utf-8", "replace").strip()
    return found
