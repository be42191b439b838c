"""Files of a store as JSON-ready objects, one a record, unit or entry, with damage in its place."""
