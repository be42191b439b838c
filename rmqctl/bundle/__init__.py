"""A bundle: the smallest copy of a store that shows what is wrong with it, to be given to someone else.

All files of a store, without what their users put into it (:mod:`rmqctl.redaction`), as a compressed archive with
holes.
`verify`, `recover` and a dry run of `repair` answer of it as of the store: that is checked before it counts as made.
"""

from rmqctl.bundle.making import Wanted, make

__all__ = ["Wanted", "make"]
