"""Lookups by offset, time and key as a broker and its clients answer them, and why one misses."""
