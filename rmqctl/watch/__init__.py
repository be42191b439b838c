"""The watch: stores that are in use read over and over at a rate, and what is wrong in them said when it is new.

    from rmqctl.inventory import members_of
    from rmqctl.watch import Settings, Watch

    for events in Watch(members_of(["/data/rocketmq/store"]), Settings(cycles=1)).run():
        print(events)

Nothing is written into a store and no lock is taken.
"""

from __future__ import annotations

from rmqctl.watch.figures import figures_of
from rmqctl.watch.memory import Memory
from rmqctl.watch.scrub import Settings, Watch

__all__ = ["Memory", "Settings", "Watch", "figures_of"]
