"""Bytes, wherever they lie: local files by bounded reads, remote objects by ranges, the broker's lock.

What reads files raises OSError where one of them, or a directory, cannot be read; in every room. Docstrings name it
only where it means more.
"""
