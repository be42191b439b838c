"""What every Python worker of Spark does before it works."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Have garbage collections pass over what is loaded by now.

    PySpark runs a full one after every task, and with all modules of a worker in it that takes as long as a small task.
    """
    gc.collect()
    gc.freeze()


__all__ = ["settle"]
