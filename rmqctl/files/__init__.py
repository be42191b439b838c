"""Bytes, wherever they lie: local files by bounded reads, remote objects by ranges, the broker's lock.

What reads or writes files raises OSError where the system refuses, in every room. The engines, and what opens
databases, raise :class:`rmqctl.errors.IOFailure` instead: the same with a sentence for people. Docstrings name either
only where they say more.
"""
