"""An annotated hex dump: every byte of a file is a named field with its value and meaning, or a gap."""
