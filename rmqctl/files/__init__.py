"""Bytes, wherever they lie: local files by bounded reads, remote objects by ranges, the broker's lock."""
