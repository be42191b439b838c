"""Any file of a log directory as rows, as JSON lines, as annotated bytes, and as the official tool prints it."""
