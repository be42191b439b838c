"""Producing messages: drafts, many at once, with made-up times, and damage on purpose."""
